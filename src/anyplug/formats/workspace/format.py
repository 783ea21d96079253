"""The chat's own tools, with zot's names and arguments: a plugin that comes with anyplug, and runs in the sandbox.

It reads files, writes in the project, and runs commands without a network. What a call wants beyond that it says
itself, in its arguments, and each is a question to the person of its own.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from anyplug.formats.shared import defaults, one_shot
from anyplug.formats.shared.contract import Folder, Surroundings
from anyplug.formats.shared.new_plugins import NewPlugin
from anyplug.home.settings import Arguments
from anyplug.model import permissions
from anyplug.model.errors import BadOutput
from anyplug.model.types import Call, Failure, Image, Plugin, Result, Text, Tool
from anyplug.runtime.processes.program import Finished, Program

NAME = "workspace-tools"
TITLE = "anyplug"
MANIFEST = ""  # it is not searched for
PROJECT_ROOTS: tuple[str, ...] = ()
ARGUMENTS: Arguments = "strict"
EVERY_FILE_COUNTS = True
WRITES_BESIDE_ITSELF = False
WRITES_ASIDE = False
RUNS_IN_PROJECT = True
INHERITS_ENVIRONMENT = False
DESCRIBES_ITSELF = False
CONTENT_IS_BLOCKS = False
TOOL_PREFIX = ""
NAMES_PLUGINS = False
HOST_TOOLS: frozenset[str] = frozenset()
HOST_COMMANDS: frozenset[str] = frozenset()
PEER = ""
LINT = ""
NEW: NewPlugin | None = None

violations = defaults.violations
switched_off = defaults.switched_off
environment = defaults.environment
data = defaults.data
readable = defaults.readable
named_files = defaults.named_files
user_roots = defaults.user_roots
private_places = defaults.private_places
prepare = defaults.prepare
ready = defaults.ready

PATH = os.path.realpath(os.path.join(os.path.dirname(__file__), "program"))
MAIN = os.path.join(PATH, "workspace_program.py")
GRANTED = ("filesystem:read", "filesystem:write:.", "shell:exec")
FILES_S = 30.0  # for a file
USUAL_S, LONGEST_S = 120, 1_200  # for a command
GRACE_S = 15.0  # after a command's own time, to say so
MAX_STDOUT = 8 << 20  # bytes: an image in base64
MAX_STDERR = 64 << 10
WORDS = one_shot.Words(
    timed_out="it was ended after {seconds:g} s",
    too_large="its output is larger than {size}",
    crashed="it failed",
    not_executable="Python cannot be run",
    not_started="it could not be started",
)


def programs(plugin: Plugin, variables: Mapping[str, str] | None, project: str) -> list[str]:
    """Return our own interpreter, which may be in a place that the sandbox does not show, such as /tmp."""
    return [sys.executable]


def _tool(name: str, description: str, properties: dict[str, Any], *required: str, timeout_s: float = FILES_S) -> Tool:
    return Tool(
        name=name,
        own_name=name,
        plugin=NAME,
        description=description,
        input_schema={
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        },
        program=MAIN,
        timeout_s=timeout_s,
    )


_PATH = {"type": "string", "description": "The file, relative to the working folder or absolute."}
TOOLS = (
    _tool(
        "read",
        "Read a file, or list the files in a folder. A text comes with its line numbers; a picture is shown.",
        {
            "path": _PATH,
            "offset": {"type": "integer", "minimum": 1, "description": "The first line; 1 if left out."},
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines; 2000 if left out."},
        },
        "path",
    ),
    _tool(
        "write",
        "Write a file, with the folders that it needs; overwrites what it contained.",
        {"path": _PATH, "content": {"type": "string", "description": "The whole content of the file."}},
        "path",
        "content",
    ),
    _tool(
        "edit",
        "Replace a text in a file. It must occur exactly once, unless `all` is true.",
        {
            "path": _PATH,
            "oldText": {"type": "string", "description": "The text to replace, exactly as in the file."},
            "newText": {"type": "string", "description": "What to put there."},
            "all": {"type": "boolean", "description": "Replace it everywhere."},
        },
        "path",
        "oldText",
        "newText",
    ),
    _tool(
        "bash",
        "Run a shell command in the working folder, in a sandbox: it reads files, writes below the working folder, and "
        "has no network. Ask for more with `network` and `paths`; the person is asked each time.",
        {
            "command": {"type": "string", "description": "The command."},
            "timeout": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": LONGEST_S,
                "description": f"Seconds; {USUAL_S} if left out.",
            },
            "network": {"type": "boolean", "description": "It needs the network."},
            "paths": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": 10,
                "description": "Files and folders that it must change outside the working folder, or that are "
                "protected, such as .git/config.",
            },
        },
        "command",
        timeout_s=LONGEST_S + GRACE_S,
    ),
    _tool(
        "skill",
        "Load a skill: instructions for a kind of task, kept in a SKILL.md. Without a name, list them.",
        {"name": {"type": "string", "description": "The skill's name."}},
    ),
)
PLUGIN = Plugin(
    name=NAME,
    format=NAME,
    path=PATH,
    found_at=PATH,
    description="Reads, writes and edits files, and runs commands, for the chat.",
    permissions=GRANTED,
    tier=permissions.tier(GRANTED),
    tools=TOOLS,
    is_ours=True,
)


def load(folder: Folder) -> None:
    """Return None: no folder that is searched contains it."""


def request(call: Call, around: Surroundings) -> Program:
    """Run the program once, in the project."""
    given, name = call.arguments, call.tool.own_name
    seconds = given.get("timeout", USUAL_S) + GRACE_S if name == "bash" else FILES_S
    asked = {"tool": name, "input": given, "skills": skill_folders() if name == "skill" else []}
    return Program(
        argv=(sys.executable, "-I", "-S", MAIN),
        cwd=around.project or os.getcwd(),
        env=around.environment,
        stdin=msgspec.json.encode(asked),
        timeout_s=around.settings.timeout_s or seconds,
        max_stdout=around.settings.max_output_bytes or MAX_STDOUT,
        max_stderr=MAX_STDERR,
    )


def skill_folders() -> list[str]:
    """List the folders that may contain skills, relative to the project or the user's; the first of a name counts."""
    return [".agents/skills", ".claude/skills", ".zot/skills", "~/.agents/skills", "~/.claude/skills", "~/.zot/skills"]


def result(call: Call, request: Program, answer: Finished, around: Surroundings) -> Result:
    """Read the program's answer. Raises CallError."""
    if answer.ending != "exited" or answer.exit_code != 0:
        raise one_shot.failure(call, request, answer, WORDS)
    try:
        said = msgspec.json.decode(answer.stdout)
        text, is_error = str(said["text"]), bool(said.get("is_error"))
        image = Image(**said["image"]) if said.get("image") else None
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise BadOutput(f"the answer of '{call.tool.name}' cannot be read: {error}", "call it again") from error
    blocks = (Text(text), image) if image is not None else (Text(text),)
    return Result(
        content=blocks,
        is_error=is_error,
        error=Failure("tool_error", text.splitlines()[0] if text else "it failed") if is_error else None,
        metadata={"exit_code": said["exit_code"]} if "exit_code" in said else {},
    )
