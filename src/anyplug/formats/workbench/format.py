"""Workbench: a folder with `index.js` whose `register(api)` names its tools; a call is a frame to its Node process.

There is no list of tools in a manifest: the plugin registers them while it runs.
"""

import os
from typing import Any

import msgspec

from anyplug.formats.shared import defaults, manifest
from anyplug.formats.shared.contract import AskPeer, Folder, Request, Surroundings
from anyplug.formats.shared.new_plugins import ACTION, WORD, NewPlugin
from anyplug.formats.shared.scripts import modules_above
from anyplug.home.settings import Arguments, Home
from anyplug.model import permissions
from anyplug.model.errors import BadOutput, TooLarge
from anyplug.model.late_patterns import late
from anyplug.model.types import Audio, Block, Call, Failure, Image, Plugin, Resource, Result, Text

NAME = "workbench"
TITLE = "Workbench"
MANIFEST = "index.js"
PROJECT_ROOTS: tuple[str, ...] = ("plugins",)
PACKAGE = "package.json"
ARGUMENTS: Arguments = "warn"
EVERY_FILE_COUNTS = True
WRITES_BESIDE_ITSELF = False
WRITES_ASIDE = True
RUNS_IN_PROJECT = True
INHERITS_ENVIRONMENT = True
DESCRIBES_ITSELF = True
CONTENT_IS_BLOCKS = False
TOOL_PREFIX = ""
NAMES_PLUGINS = False
HOST_TOOLS: frozenset[str] = frozenset()
HOST_COMMANDS: frozenset[str] = frozenset()
PEER = "anyplug.formats.workbench.peer:NodePlugin"
LINT = ""

violations = defaults.violations
switched_off = defaults.switched_off
data = defaults.data
named_files = defaults.named_files
programs = defaults.programs
user_roots = defaults.user_roots
private_places = defaults.private_places
prepare = defaults.prepare
ready = defaults.ready

TIMEOUT_S = 30.0
MAX_CHARS = 500_000  # of text in an answer, in UTF-16 units as in JavaScript; more is truncated
LARGEST_INDEX = 32 << 20  # bytes; bundles are large
LARGEST_RE_EXPORT = 64 << 10  # bytes of a file that only passes on what others export
MOST_RE_EXPORTED = 50  # files that are searched
# Assumed for plugins that declare nothing.
ASKED = ("network", "filesystem:read")

_ODD = late(r"^[^A-Za-z0-9_]+|[^A-Za-z0-9._-]+")  # in a folder's name, which is also used for logs
_REGISTER = late(rb"\bregister\b")
_EXPORT = late(r"\bexports?\b")
_MODULE = late(r"""(?:\brequire\s*\(|\bfrom|\bimport\s*\(?)\s*['"]([^'"\s]+)['"]""")
_WORD = late(r"[A-Za-z_$][\w$]*")
_NO_NAMES = frozenset(
    {"as", "const", "default", "export", "exports", "from", "import", "let", "module", "require", "var"}
)
_SUFFIXES = (".js", ".cjs", ".mjs")


def _new_tool(name: str) -> str:
    """Name the tool of a new plugin as Workbench authors do, `myPlugin.count`."""
    first, *more = WORD.findall(name.lower())
    return f"{first}{''.join(word.capitalize() for word in more)}.{ACTION}"


NEW: NewPlugin | None = NewPlugin(format=NAME, folder=os.path.dirname(__file__), languages=("node",), tool=_new_tool)


class Answer(msgspec.Struct, kw_only=True):
    """The runner's answer to a call."""

    id: str
    content: Any = None
    metadata: Any = None
    error: Any = None
    extra: dict[str, Any] = {}  # further keys that the plugin returned
    warnings: list[str] = []
    too_large: int = 0  # bytes of an answer that could not be sent


def load(folder: Folder) -> Plugin | None:
    """Read `index.js` and `package.json`.

    Without `register` in index.js, or in a file that it re-exports, the folder is not a Workbench plugin; if a person
    takes it for one, package.json is enough.
    """
    report = manifest.Report()
    try:
        source = manifest.read_file(os.path.join(folder.path, MANIFEST), LARGEST_INDEX)
    except OSError as error:
        report.error(f"cannot read {MANIFEST} in {folder.path}: {error.strerror or error}", "make it a readable file")
        source = b"register"
    is_assumed = folder.assumed and os.path.lexists(os.path.join(folder.path, PACKAGE))
    if not is_assumed and b"register" not in source and not _passes_on(folder.path, source):
        return None
    package = _package(folder.path, report)
    return Plugin(
        name=_ODD.sub("_", os.path.basename(folder.found_at)),
        format=NAME,
        path=folder.path,
        found_at=folder.found_at,
        explicit=folder.explicit,
        version=_text(package, "version"),
        description=_text(package, "description"),
        permissions=ASKED,
        tier=permissions.tier(ASKED),
        processes=("",),
        problems=tuple(report.problems),
    )


def _passes_on(folder: str, source: bytes) -> bool:
    """Return whether `register` is in a file that index.js re-exports, directly or through others."""
    left, seen = _re_exported(folder, folder, source), set[str]()
    while left and len(seen) < MOST_RE_EXPORTED:
        path = left.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            text = manifest.read_file(path, LARGEST_INDEX, folder)
        except OSError:
            continue
        if _REGISTER.search(text):
            return True
        left += _re_exported(folder, os.path.dirname(path), text)
    return False


def _re_exported(folder: str, here: str, source: bytes) -> list[str]:
    """List the files inside the plugin that a module takes exports from.

    By its text alone: a module counts if a statement that exports names it, or a name that was imported from it.
    """
    if len(source) > LARGEST_RE_EXPORT:
        return []
    statements = source.decode(errors="replace").split(";")
    exporting = " ".join(statement for statement in statements if _EXPORT.search(statement))
    words = set(_WORD.findall(exporting))
    found = _MODULE.findall(exporting)
    for statement in statements:
        if words.intersection(_WORD.findall(statement.partition("=")[0].partition(" from")[0])) - _NO_NAMES:
            found += _MODULE.findall(statement)
    paths = [_resolved(folder, here, name) for name in dict.fromkeys(found)]
    return [path for path in paths if path]


def _resolved(folder: str, here: str, name: str) -> str:
    """Return the file that Node loads for a module's name; empty if there is none inside the plugin."""
    base = os.path.normpath(os.path.join(here, name) if name.startswith(".") else f"{folder}/node_modules/{name}")
    if not base.startswith(f"{folder}/"):
        return ""
    main = _text(_package(base, manifest.Report()), "main") if os.path.isfile(f"{base}/{PACKAGE}") else ""
    tries = [base, *(f"{base}{suffix}" for suffix in _SUFFIXES)]
    tries += [os.path.normpath(f"{base}/{main}{suffix}") for suffix in ("", *_SUFFIXES)] if main else []
    tries += [f"{base}/index{suffix}" for suffix in _SUFFIXES]
    return next((path for path in tries if os.path.isfile(path)), "")


def environment(plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
    """Return the user's environment."""
    return {**users, "PATH": f"{home.bin}:{users.get('PATH', os.defpath)}"}


def readable(plugin: Plugin) -> tuple[str, ...]:
    """Return our runner, and the folders of modules around the plugin."""
    around = [*modules_above(plugin.path), *modules_above(os.path.dirname(plugin.found_at))]
    return (os.path.dirname(os.path.abspath(__file__)), *around)


def request(call: Call, around: Surroundings) -> AskPeer:
    """AskPeer the plugin's process."""
    return AskPeer(around.settings.timeout_s or call.tool.timeout_s)


def result(call: Call, request: Request, answer: Answer, around: Surroundings) -> Result:
    """Read the blocks and the metadata; raises TooLarge."""
    if answer.too_large:
        raise TooLarge(
            f"the answer of '{call.tool.own_name}' has {answer.too_large:,} bytes, more than can be passed on",
            "return less, or write it to a file and return its path",
        )
    blocks = tuple(_block(item) for item in answer.content) if isinstance(answer.content, list) else ()
    content = blocks or (Text("" if answer.content == [] else _as_text(answer.content)),)
    metadata = answer.metadata if isinstance(answer.metadata, dict) else {}
    if answer.warnings:
        own = metadata.get("warnings", [])
        metadata = {**metadata, "warnings": [*answer.warnings, *(own if isinstance(own, list) else [own])]}
    failure = Failure("tool_error", _as_text(answer.error)) if answer.error else None
    return Result(
        content=content,
        structured=_structured(answer),
        metadata=metadata,
        is_error=failure is not None,
        error=failure,
    )


def _package(folder: str, report: manifest.Report) -> dict[str, Any]:
    where = os.path.join(folder, PACKAGE)
    if os.path.lexists(where):
        return manifest.read_object(where, report, fatal=False) or {}
    hint = 'add one with {"type": "commonjs"}, which Workbench itself needs'
    report.warn(f"there is no {PACKAGE}; {MANIFEST} is taken as CommonJS", hint)
    return {}


def _structured(answer: Answer) -> Any:
    """Return what is not content: further keys, or data of a type that metadata cannot have here."""
    if answer.extra:
        return answer.extra
    return None if isinstance(answer.metadata, dict) else answer.metadata


def _block(item: Any) -> Block:
    """Convert one content block; an unknown type is shown as in Workbench, as its text or as JSON."""
    if not isinstance(item, dict):
        return Text(_as_text(item))
    kind, data = item.get("type"), item.get("data")
    mime_type = item.get("mimeType") or item.get("mime_type")
    if kind in {"image", "audio"} and isinstance(data, str) and isinstance(mime_type, str):
        return Image(mime_type, data) if kind == "image" else Audio(mime_type, data)
    resource = item if kind == "resource_link" else item.get("resource") if kind == "resource" else None
    if isinstance(resource, dict) and isinstance(resource.get("uri"), str):
        return _resource(resource)
    text = item.get("text")
    return Text(text if kind == "text" and isinstance(text, str) else _as_text(text or item))


def _resource(raw: dict[str, Any]) -> Resource:
    return Resource(
        uri=raw["uri"],
        mime_type=_text(raw, "mimeType"),
        text=_text(raw, "text"),
        data=_text(raw, "blob"),
        name=_text(raw, "title") or _text(raw, "name"),
        description=_text(raw, "description"),
    )


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _text(raw: dict[str, Any], field: str) -> str:
    value = raw.get(field)
    return value if isinstance(value, str) else ""


def read_answer(raw: dict[str, Any], tool: str) -> Answer:
    """Read a result frame; raises BadOutput."""
    try:
        return msgspec.convert(raw, Answer)
    except msgspec.ValidationError as error:
        raise BadOutput(
            f"the answer of '{tool}' is malformed: {error}", "check whether the plugin writes to descriptor 4"
        ) from None
