"""The host's own tools, `builtin.NAME`: no folder, no process, always approved, and on the same path as all others."""

from typing import Any

from anyplug.formats.shared import defaults
from anyplug.formats.shared.contract import (
    AskInstall,
    AskJob,
    Folder,
    Inspect,
    ReadResult,
    Reload,
    Request,
    Surroundings,
)
from anyplug.formats.shared.new_plugins import NewPlugin
from anyplug.home.settings import Arguments, Home
from anyplug.model import hints, permissions
from anyplug.model.types import Call, Plugin, Result, Text, Tool

TIMEOUT_S = 60.0  # for any of them
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
NAMES_PLUGINS = False
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


def _tool(name: str, description: str, properties: dict[str, str], required: tuple[str, ...] = ()) -> Tool:
    """Define a tool whose arguments are all strings."""
    return Tool(
        name=f"{TOOL_PREFIX}{name}",
        own_name=name,
        plugin=NAME,
        description=description,
        input_schema={
            "type": "object",
            "properties": {key: {"type": "string", "description": about} for key, about in properties.items()},
            **({"required": list(required)} if required else {}),
            "additionalProperties": False,
        },
        program="",
        timeout_s=TIMEOUT_S,
    )


RELOAD = _tool(
    "reload_plugins",
    "Read all plugins again and restart what changed, so that new and edited tools can be used. With a plugin's "
    "name, restart that plugin even if nothing changed.",
    {"plugin": "The name of a plugin to restart."},
)
# By default shorter than the time that impatient clients give a call, and at most shorter than most clients' limit.
WAIT_S, LONGEST_WAIT_S = 2, 50
JOB = Tool(
    name="builtin.job",
    own_name="job",
    plugin=NAME,
    description=(
        "Return the result of a job, which is what a call of an asynchronous tool begins, or how long it has been "
        "running. Ask again until it has ended; the result is kept."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The job's id, as the call of the tool returned it."},
            "wait_s": {
                "type": "number",
                "minimum": 0,
                "maximum": LONGEST_WAIT_S,
                "description": f"How many seconds to wait for its end; {WAIT_S} by default.",
            },
            "cancel": {"type": "boolean", "description": "Cancel the job."},
        },
        "required": ["id"],
        "additionalProperties": False,
    },
    program="",
    timeout_s=TIMEOUT_S,
)
USUAL_PART, LARGEST_PART = 20_000, 50_000  # characters
READ_RESULT = Tool(
    name="builtin.read_result",
    own_name="read_result",
    plugin=NAME,
    description="Read a range of a result that was too long to be returned whole.",
    input_schema={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The result's id, as the shortened result names it."},
            "offset": {"type": "integer", "minimum": 0, "description": "Where to begin, in characters; 0 by default."},
            "length": {
                "type": "integer",
                "minimum": 1,
                "maximum": LARGEST_PART,
                "description": f"How many characters to read; {USUAL_PART} by default.",
            },
        },
        "required": ["id"],
        "additionalProperties": False,
    },
    program="",
    timeout_s=TIMEOUT_S,
)
LIST = _tool(
    "list_plugins",
    "List the user's plugins: what each is for, its tools, and whether it can be used.",
    {},
)
DESCRIBE = _tool(
    "describe_plugin",
    "Describe a plugin: its tools and commands, why it cannot be used, and its author's instructions for the user.",
    {"plugin": "The plugin's name."},
    ("plugin",),
)
INSTALL = _tool(
    "request_install",
    "Ask the user to install a plugin. Nothing is fetched or run: the request waits until the user reviews it.",
    {
        "source": "The address of a git repository, or a folder.",
        "ref": "A branch, tag or commit.",
        "subdir": "The plugin's folder inside the source.",
    },
    ("source",),
)
READING = frozenset({LIST.name, DESCRIBE.name})  # those that change nothing
PLUGIN = Plugin(
    name=NAME,
    format=NAME,
    path="",
    description="The host's own tools.",
    tier=permissions.tier(()),
    tools=(RELOAD, LIST, DESCRIBE, INSTALL, READ_RESULT, JOB),
)


def load(folder: Folder) -> None:
    """Return None: no folder contains them."""


def environment(plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
    """Return nothing, because nothing runs."""
    return {}


def request(call: Call, around: Surroundings) -> Request:
    """Return what the host has to do."""
    given = call.arguments
    if call.tool.name in READING:
        return Inspect(given.get("plugin", ""))
    if call.tool.name == INSTALL.name:
        return AskInstall(given["source"], given.get("ref", ""), given.get("subdir", ""))
    if call.tool.name == READ_RESULT.name:
        return ReadResult(given["id"], int(given.get("offset", 0)), int(given.get("length", USUAL_PART)))
    if call.tool.name == JOB.name:
        return AskJob(given["id"], given.get("wait_s", WAIT_S), given.get("cancel", False))
    return Reload(given.get("plugin", ""))


def result(call: Call, request: Request, answer: Any, around: Surroundings) -> Result:
    """Return what the host found or did; for a job, the result of its tool as if that had been called."""
    match request:
        case AskJob():
            assert isinstance(answer, Result)
            return answer
        case ReadResult():
            text, end, whole = answer
            more = f"the next offset is {end}" if end < whole else "this is the end"
            said = f"[anyplug] Characters {end - len(text):,} to {end:,} of {whole:,}; {more}."
            return Result(content=(Text(text), Text(said)), metadata={"next_offset": end, "characters": whole})
        case Inspect():
            text, data = answer
            return Result(content=(Text(text),), structured=data)
        case AskInstall():
            typed = hints.command("install", *answer)
            said = f"The request is stored, and nothing was fetched; {hints.FOR_USER}{typed} fetches the plugin, "
            return Result(content=(Text(f"{said}shows what it asks for, and asks before any of it runs."),))
    return Result(content=(Text(answer),))
