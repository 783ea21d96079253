"""The host's own tools, `builtin.NAME`: no folder, no process, always approved, and on the same path as all others."""

from anyplug.formats.shared import defaults
from anyplug.formats.shared.contract import Folder, Reload, Request, Surroundings
from anyplug.formats.shared.new_plugins import NewPlugin
from anyplug.home.settings import Arguments, Home
from anyplug.model import permissions
from anyplug.model.types import Call, Plugin, Result, Text, Tool

NAME = "builtin"
TITLE = "built-in"
MANIFEST = ""  # no folder contains them
PROJECT_ROOTS: tuple[str, ...] = ()
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
PEER = ""
LINT = ""
NEW: NewPlugin | None = None

violations = defaults.violations
switched_off = defaults.switched_off
data = defaults.data
readable = defaults.readable
named_files = defaults.named_files
programs = defaults.programs
user_roots = defaults.user_roots
private_places = defaults.private_places
prepare = defaults.prepare
ready = defaults.ready

RELOAD = Tool(
    name="builtin.reload_plugins",
    own_name="reload_plugins",
    plugin=NAME,
    description=(
        "Read all plugins again and restart what changed, so that new and edited tools can be used. With a plugin's "
        "name, restart that plugin even if nothing changed."
    ),
    input_schema={
        "type": "object",
        "properties": {"plugin": {"type": "string", "description": "The name of a plugin to restart."}},
        "additionalProperties": False,
    },
    program="",
    timeout_s=60.0,
)
PLUGIN = Plugin(
    name=NAME, format=NAME, path="", description="The host's own tools.", tier=permissions.tier(()), tools=(RELOAD,)
)


def load(folder: Folder) -> None:
    """Return None: no folder contains them."""


def environment(plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
    """Return nothing, because nothing runs."""
    return {}


def request(call: Call, around: Surroundings) -> Reload:
    """Read all plugins again."""
    return Reload(call.arguments.get("plugin", ""))


def result(call: Call, request: Request, answer: str, around: Surroundings) -> Result:
    """Return the summary of the reload."""
    return Result(content=(Text(answer),))
