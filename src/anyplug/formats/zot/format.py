"""zot: a folder with `extension.json` and a long-running program; a call is a frame to it and a frame back.

The manifest does not list tools or commands: the extension registers them while it runs.
"""

import itertools
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.formats.shared import defaults, manifest
from anyplug.formats.shared.contract import AskPeer, Folder, Request, Surroundings
from anyplug.formats.shared.new_plugins import NewPlugin
from anyplug.home.settings import Arguments
from anyplug.model import permissions
from anyplug.model.errors import BadOutput
from anyplug.model.late_patterns import late
from anyplug.model.types import Block, Call, Failure, Image, Launch, Off, Plugin, Result, Text, Tool
from anyplug.runtime.processes.program import Program

if TYPE_CHECKING:  # only needed for a running extension
    from collections.abc import Iterable

    from anyplug.formats.zot import frames

NAME = "zot"
TITLE = "zot"
MANIFEST = "extension.json"
PROJECT_ROOTS: tuple[str, ...] = (".zot/extensions",)
ARGUMENTS: Arguments = "warn"
EVERY_FILE_COUNTS = False
WRITES_BESIDE_ITSELF = True
WRITES_ASIDE = False
RUNS_IN_PROJECT = False
INHERITS_ENVIRONMENT = True
DESCRIBES_ITSELF = True
CONTENT_IS_BLOCKS = False
TOOL_PREFIX = ""
NAMES_PLUGINS = False
HOST_TOOLS = frozenset(["read", "write", "edit", "bash", "skill"])
_HOST_COMMANDS = (
    "help login logout model sessions session jump compact study btw jail unjail skills reload-ext yolo telegram "
    "clear exit"
)
HOST_COMMANDS = frozenset(_HOST_COMMANDS.split())
PEER = "anyplug.formats.zot.peer:Extension"
LINT = "anyplug.formats.zot.lint:slips"

violations = defaults.violations
data = defaults.data
readable = defaults.readable
named_files = defaults.named_files
environment = defaults.environment
ready = defaults.ready

# The known keys of a manifest. Authors also use their own.
KEYS = ("name", "version", "description", "exec", "args", "enabled", "language", "skills", "theme", "themes")
TIMEOUT_S = 60.0
DEFERRED = frozenset({"deferred", "codemode"})  # exposures of tools that agents are not shown at first
BUILD_S = 300.0  # for `go build`, which may fetch modules
MOST_SAID, LONGEST_SAID = 1 << 20, 2_000  # bytes that it may print, and characters shown if it fails
# Its flags with a separate value, before the package.
_GO_FLAGS = (
    "-C -p -asmflags -buildmode -compiler -covermode -coverpkg -exec -gccgoflags -gcflags -installsuffix -ldflags -mod "
    "-modfile -overlay -pgo -pkgdir -tags -toolexec"
)
GO_FLAGS = frozenset(_GO_FLAGS.split())
THEMES = ("theme.json", "themes/theme.json")  # where zot looks for one
LONGEST_KIND = 80  # characters of a block's type, for messages
NO_CONTENT = "(extension returned no content)"
ANY_OBJECT: dict[str, Any] = {"type": "object"}
# Assumed for extensions that declare nothing.
ASKED = (
    "filesystem:read",
    "filesystem:write:.",
    "network",
    "shell:exec",
    permissions.CALL,
    permissions.OBSERVE,
    permissions.GUARD,
    permissions.REWRITE_TEXT,
)

LONGEST_NAME = 64  # characters of a name that we derive

_NOT_PLAIN = late(r"[^A-Za-z0-9._-]+")
_UNBROKEN = late(r"[\r\n]+")  # `base64` wraps lines, which zot accepts
NEW: NewPlugin | None = NewPlugin(
    format=NAME,
    folder=os.path.dirname(__file__),
    languages=("python", "node", "bash", "typescript", "go"),
    modules={
        "python": {"anyplug_ext.py": "anyplug.ext"},
        "node": {"anyplug-ext.mjs": "anyplug.ext:javascript/anyplug-ext.mjs"},
        "typescript": {"anyplug-ext.mjs": "anyplug.ext:javascript/anyplug-ext.mjs"},
    },
)


def load(folder: Folder) -> Plugin:
    """Read `extension.json`."""
    report = manifest.Report()
    where = os.path.join(folder.path, MANIFEST)
    given = manifest.read_object(where, report)
    raw = {key.lower(): value for key, value in (given or {}).items() if value is not None}  # as zot reads it
    name = ""
    launch = None
    if given is not None:
        name = _name(raw, report, where, os.path.basename(folder.found_at))
        launch = _launch(raw, folder.path, report, where)
    asked = ASKED if launch is not None or report.is_broken else ()
    enabled = raw.get("enabled", True)
    if not isinstance(enabled, bool):
        report.error(f"'enabled' must be true or false at {where}", "use one of them, or leave it out")
    return Plugin(
        name=name or os.path.basename(folder.found_at),
        format=NAME,
        path=folder.path,
        found_at=folder.found_at,
        explicit=folder.explicit,
        version=_text(raw, "version"),
        description=_text(raw, "description"),
        permissions=asked,
        tier=permissions.tier(asked),
        launch=launch,
        processes=("",) if launch else (),
        enabled=enabled is not False,
        problems=tuple(report.problems),
    )


def files_read(plugin: Plugin) -> tuple[str, ...]:
    """Return the files that decide what `load` returns, if it found no problem and they are no links.

    Empty if other places decide too.
    """
    program = plugin.launch.program if plugin.launch is not None else ""
    where = f"{plugin.path}/{MANIFEST}"
    if program and "/" not in program and not os.path.lexists(f"{plugin.path}/{program}"):
        return (where,)  # it is looked up in the PATH when it starts
    return (where, program) if manifest.are_direct(plugin.path, (program,)) else ()


def switched_off(plugin: Plugin) -> Off | None:
    """Honour `enabled` in the manifest; an extension without a program cannot be enabled at all."""
    if plugin.launch is None and not plugin.is_broken:
        return Off("it contains no program that could run")
    return None if plugin.enabled else Off(f'set "enabled" to true in {os.path.join(plugin.path, MANIFEST)}')


def zot_home() -> str:
    """Return the folder in which zot's users keep their extensions and logs."""
    if given := os.environ.get("ZOT_HOME"):
        return os.path.expanduser(given)
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/zot")
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "zot")


def user_roots() -> tuple[str, ...]:
    """Return the folder that zot reads in every project."""
    return (os.path.join(zot_home(), "extensions"),)


def private_places(project: str) -> tuple[str, ...]:
    """Return the folders that zot reads."""
    return (*(os.path.join(project, root) for root in PROJECT_ROOTS), *user_roots())


def programs(plugin: Plugin, variables: Mapping[str, str] | None, project: str) -> list[str]:
    """Return the extension's program."""
    return [plugin.launch.program] if plugin.launch is not None else []


async def prepare(plugin: Plugin, around: Surroundings) -> str:
    """Build an extension that `go run` starts, so that its first start need not: each has a build cache of its own.

    A shared one would let an extension replace what another one runs. If it fails, the first start tries again.
    """
    launch = plugin.launch
    if launch is None or os.path.basename(launch.program) != "go" or launch.arguments[:1] != ("run",):
        return ""
    around.tell(f"building {plugin.name} with `go build`")
    built = os.path.join(around.home.cache(plugin), "built")
    finished = await around.run(
        Program(
            argv=(launch.program, "build", "-o", built, *_packages(launch.arguments[1:])),
            cwd=plugin.path,
            env=around.environment,
            timeout_s=BUILD_S,
            max_stdout=MOST_SAID,
            max_stderr=MOST_SAID,
            purpose="init",
        )
    )
    if finished.exit_code == 0:
        return ""
    said = finished.stderr.decode(errors="replace").strip()[-LONGEST_SAID:] or finished.reason or finished.ending
    return f"it could not be built yet, and will be at its first start: {said}"


def _packages(arguments: tuple[str, ...]) -> list[str]:
    """Return the flags and packages of `go run`, without what is passed to the program."""
    found: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        found.append(rest.pop(0))
        if f"-{found[-1].lstrip('-')}" in GO_FLAGS and rest:
            found.append(rest.pop(0))
    if rest and not rest[0].endswith(".go"):
        return [*found, rest[0]]
    files = itertools.takewhile(lambda word: word.endswith(".go"), rest)
    return [*found, *files]


def request(call: Call, around: Surroundings) -> AskPeer:
    """AskPeer the running extension."""
    waits_for_a_person = call.tool.timeout_s <= 0 and call.shows_panels
    return AskPeer(None if waits_for_a_person else around.settings.timeout_s or call.tool.timeout_s or TIMEOUT_S)


def result(call: Call, request: Request, answer: "frames.ToolResult", around: Surroundings) -> Result:
    """Read the extension's blocks."""
    blocks: list[Block] = []
    for raw in answer.content:
        block = _block(call, raw)
        if block is not None:
            blocks.append(block)
    content = tuple(blocks) or (Text(NO_CONTENT),)
    if not answer.is_error:
        activates = tuple(answer.activate_tools)
        return Result(content=content, structured=_structured(call, answer), activates=activates)
    said = "\n".join(block.text for block in content if isinstance(block, Text))
    return Result(
        content=content,
        structured=answer.structured_content,
        is_error=True,
        error=Failure("tool_error", said),
    )


def _structured(call: Call, answer: "frames.ToolResult") -> Any:
    """Return the structured result; zot takes the text of a tool with an output schema, which may be the same."""
    if answer.structured_content is not None or call.tool.output_schema is None:
        return answer.structured_content
    texts = [raw["text"] for raw in answer.content if isinstance(raw.get("text"), str)]
    try:
        return msgspec.json.decode("\n".join(texts))
    except (msgspec.DecodeError, RecursionError):
        return None


def tools(plugin: str, registered: "Iterable[frames.RegisterTool]") -> tuple[Tool, ...]:
    """Convert the tools that an extension registered."""
    return tuple(
        Tool(
            name=tool.name,
            own_name=tool.name,
            plugin=plugin,
            description=tool.description,
            input_schema=tool.schema if isinstance(tool.schema, dict) and tool.schema else ANY_OBJECT,
            program="",
            timeout_s=0 if tool.interactive else TIMEOUT_S,
            output_schema=tool.output_schema if isinstance(tool.output_schema, dict) and tool.output_schema else None,
            deferred=tool.deferred or tool.exposure in DEFERRED,
            namespace=tool.namespace or plugin,
        )
        for tool in registered
    )


def name_of(given: str, folder: str = "") -> str:
    """Return an extension's name here: zot accepts any text, but ours are typed, and used for folders.

    If nothing valid is left of it, use its folder's name; empty if that is invalid, too.
    """
    if manifest.is_plain_name(given):
        return given
    import unicodedata  # hardly any name needs it

    plain = unicodedata.normalize("NFKD", given).encode("ascii", "ignore").decode()
    candidates = (_NOT_PLAIN.sub("-", plain).strip("-._")[:LONGEST_NAME], folder)
    return next(filter(manifest.is_plain_name, candidates), "")


def _name(raw: dict[str, Any], report: manifest.Report, where: str, folder: str) -> str:
    given = _text(raw, "name")
    if not given:
        report.needs_text(raw, "name", "manifest: name is required", 'add "name": "..."', where)
        return ""
    name = name_of(given, folder)
    if not name:
        report.error(f"the name '{given}' cannot be a folder's name", manifest.PLAIN_NAMES)
    elif name != given:
        report.warn(f"the name '{given}' cannot be a folder's name; here it is '{name}'", manifest.PLAIN_NAMES)
    return name


def _launch(raw: dict[str, Any], folder: str, report: manifest.Report, where: str) -> Launch | None:
    """Find the program: absolute, relative to the manifest if it has a slash, else in the PATH."""
    given, arguments = _text(raw, "exec"), raw.get("args", [])
    if not given and (holds := _else_holds(raw, folder)):
        hint = "leave it where zot finds it; it contains nothing that anyplug could run"
        report.warn(f"it contains {holds} and no program", hint, manifest.NOTHING_TO_RUN)
        return None
    if not given:
        report.needs_text(raw, "exec", "manifest: exec is required", 'add "exec" with the path of the program', where)
        return None
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        report.error(f"'args' must be a list of strings at {where}", 'write it like ["--mode", "daemon"]')
        return None
    if "\0" in given or any("\0" in word for word in arguments):
        report.error(f"'exec' and 'args' must not contain NUL at {where}", "remove it")
        return None
    program = os.path.normpath(os.path.join(folder, given)) if "/" in given else given
    if "/" in given and not given.startswith("/"):
        manifest.warn_if_not_executable(program, f"exec '{given}'", report)
    elif "/" not in given and os.path.isfile(os.path.join(folder, given)):
        report.warn(
            f"exec '{given}' is looked up in the PATH, not in the folder",
            (f'write "./{given}" for a program in the folder'),
        )
    _warn_of_foreign_code(program, arguments, folder, report)
    return Launch(program, tuple(arguments))


def _warn_of_foreign_code(program: str, arguments: list[str], folder: str, report: manifest.Report) -> None:
    """Report code outside the folder that runs: it may change after the approval without being noticed."""
    words = [program] if "/" in program and not manifest.is_the_machines(program) else []
    words += [word for word in arguments if "/" in word and "://" not in word and manifest.is_code(word)]
    for word in words:
        path = os.path.normpath(os.path.join(folder, word))
        if not manifest.is_inside(path, folder):
            hint = "keep it in the extension's folder, and use a path relative to that"
            report.warn(f"it runs {path}, which the digest does not cover", hint, manifest.NOT_COVERED)


def _else_holds(raw: dict[str, Any], folder: str) -> str:
    """Return what zot finds in an extension that needs no program; empty if there is nothing."""
    if any(os.path.exists(os.path.join(folder, name)) for name in THEMES):
        return "a theme"
    return "skills" if raw.get("skills") or os.path.isdir(os.path.join(folder, "skills")) else ""


def _block(call: Call, raw: dict[str, Any]) -> Block | None:
    """Convert one content block; empty text is left out."""
    kind, text = raw.get("type"), raw.get("text")
    if kind == "text" and isinstance(text, str):  # the usual case
        return Text(text) if text else None
    raw = {key.lower(): value for key, value in raw.items()}  # they may have any case
    kind, text = raw.get("type"), raw.get("text")
    if kind == "text" and not isinstance(text, str | None):
        raise BadOutput(
            f"extension {call.plugin.name}/{call.tool.own_name} returned {type(text).__name__} for a text",
            'write "text" as a string',
        )
    if kind == "text":
        return Text(text) if text else None
    if kind == "image":
        data = raw.get("data", "")
        data = _UNBROKEN.sub("", data) if isinstance(data, str) else None
        if data is None or not _is_base64(data):
            raise BadOutput(
                f"extension {call.plugin.name}/{call.tool.own_name} returned undecodable image",
                "an image's data must be base64",
            )
        mime_type = raw.get("mime_type")
        return Image(mime_type if isinstance(mime_type, str) and mime_type else "image/png", data)
    shown = type(kind).__name__ if isinstance(kind, dict | list) else str(kind)[:LONGEST_KIND]
    return Text(f'[unknown block type "{shown}" from extension {call.plugin.name}]')


def _is_base64(data: str) -> bool:
    import base64  # takes 6 ms to import, and few tools return images

    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        return False
    return True


def _text(raw: dict[str, Any], field: str) -> str:
    value = raw.get(field)
    return value if isinstance(value, str) else ""
