"""The host's own tools, `builtin.NAME`: no folder, no process, always approved, and on the same path as all others."""

from typing import Any

from anyplug.formats.shared import defaults
from anyplug.formats.shared.contract import AskJob, Folder, Reload, Request, Surroundings
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
                "description": f"How many seconds to wait for its end before answering; {WAIT_S} by default.",
            },
            "cancel": {"type": "boolean", "description": "Cancel the job."},
        },
        "required": ["id"],
        "additionalProperties": False,
    },
    program="",
    timeout_s=60.0,
)
PLUGIN = Plugin(
    name=NAME,
    format=NAME,
    path="",
    description="The host's own tools.",
    tier=permissions.tier(()),
    tools=(RELOAD, JOB),
)


def load(folder: Folder) -> None:
    """Return None: no folder contains them."""


def environment(plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
    """Return nothing, because nothing runs."""
    return {}


def request(call: Call, around: Surroundings) -> Reload | AskJob:
    """Read all plugins again, or ask for a job."""
    given = call.arguments
    if call.tool.name == JOB.name:
        return AskJob(given["id"], given.get("wait_s", WAIT_S), given.get("cancel", False))
    return Reload(given.get("plugin", ""))


def result(call: Call, request: Request, answer: Any, around: Surroundings) -> Result:
    """Return the summary of the reload, or the result of the job's tool as if that had been called."""
    return answer if isinstance(answer, Result) else Result(content=(Text(answer),))
