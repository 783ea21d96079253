"""The host's own tools, `builtin.NAME`: no folder, no process, always approved, and on the same path as all others."""

from typing import Any

from anyplug.formats.shared.contract import Folder, Surroundings
from anyplug.home.settings import Arguments, Home
from anyplug.model import permissions, schema
from anyplug.model.errors import InvalidArguments, PluginNotFound
from anyplug.model.types import Call, Plugin, Result, Text, Tool

NAME = "builtin"
TITLE = "built-in"
MANIFEST = ""  # no folder holds them
ARGUMENTS: Arguments = "strict"
EVERY_FILE_COUNTS = False
WRITES_BESIDE_ITSELF = False
WRITES_ASIDE = False
RUNS_IN_PROJECT = False
INHERITS_ENVIRONMENT = False
DESCRIBES_ITSELF = False
CONTENT_IS_BLOCKS = False
TOOL_PREFIX = "builtin."
HOST_TOOLS: frozenset[str] = frozenset()
HOST_COMMANDS: frozenset[str] = frozenset()

RELOAD = Tool(
    name="builtin.reload_plugins",
    own_name="reload_plugins",
    plugin=NAME,
    description=(
        "Read all plugins again and start anew what changed, so that new and edited tools can be used. "
        "With a plugin's name, that plugin is started anew even if nothing changed."
    ),
    input_schema={
        "type": "object",
        "properties": {"plugin": {"type": "string", "description": "The name of a plugin to start anew."}},
        "additionalProperties": False,
    },
    program="",
    timeout_s=60.0,
)
PLUGIN = Plugin(
    name=NAME, format=NAME, path="", description="The host's own tools.", tier=permissions.tier(()), tools=(RELOAD,)
)


def load(folder: Folder) -> None:
    """No folder holds them."""


def violations(tool: Tool, arguments: dict[str, Any]) -> list[str]:
    """Check against the schema."""
    return schema.violations(tool.input_schema, arguments)


def switched_off(plugin: Plugin, tool: Tool | None) -> str:
    """They are always on."""
    return ""


def environment(plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
    """Nothing runs, so nothing is given."""
    return {}


def data(plugin: Plugin, home: Home) -> str:
    """They keep none."""
    return home.data(plugin)


def readable(plugin: Plugin) -> tuple[str, ...]:
    """Nothing runs."""
    return ()


async def prepare(plugin: Plugin, around: Surroundings) -> str:
    """Nothing has to be set up."""
    return ""


async def invoke(call: Call, around: Surroundings) -> Result:
    """Read all plugins again, and say what there is now."""
    try:
        return Result(content=(Text(await around.reload(call.arguments.get("plugin", ""))),))
    except PluginNotFound as error:
        raise InvalidArguments(call.tool.name, [error.message]) from error
