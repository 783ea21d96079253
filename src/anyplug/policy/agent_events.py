"""Events: convert what an agent's hooks send to a typed value, and to the `input` that policies read.

OpenCode, one JSON object:   hook_event_name PreToolUse | PostToolUse, session_id, cwd, tool, args,
                             and of PostToolUse result {success, output?, error?, exit_code?};
                             PermissionRequest with permission_type and metadata; UserPromptSubmit with prompt
Claude Code, Codex:          hook_event_name, session_id, cwd, and of tools tool_name, tool_input (, tool_response)
Our own host (`anyplug`):    as OpenCode's, with plugin, format, tier, grants, caller, chain

Unknown keys are kept, and policies see them. Policies also find: tool_name, tool_input, tool_response; of a shell
command affected_parent_directories, and commands: each simple command in it with its name, words, paths, the files that
it writes, and the places that its words may lead to; of a file resolved_file_path, original_file_path, is_symlink. A
patch is also seen as the edits that it consists of, and a tool that carries calls of others (`batch`) as these calls:
`views` are further inputs for one event, `parts` the calls in it.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from anyplug.model.late_patterns import late
from anyplug.policy import patch_targets
from anyplug.policy.paths import expanded, is_link, resolved
from anyplug.policy.shell import command_steps, substitutions, syntax, word_patterns

Harness = Literal["opencode", "claude", "anyplug"]

HARNESSES: Final = ("opencode", "claude", "anyplug")
POLICIES_OF: Final = {"codex": "claude"}  # agents whose events have the form of another's, whose policies apply
AGENTS: Final = (*HARNESSES, *POLICIES_OF)
CLAUDE_LIKE: Final = frozenset({"claude", "codex"})
OURS: Final = "anyplug"  # the events of our own host
ELSEWHERE: Final = ("cursor", "factory")  # the original also answers these
LARGEST: Final = 32 << 20  # bytes of an event; a tool's output can be long
LONGEST_COMMAND: Final = 131_072  # characters: Linux allows no longer argument, and so no longer `sh -c`
MOST_PATCHED: Final = 500  # files: each is decided about
DEEPEST: Final = 120  # levels: fewer than the evaluator refuses
TOOL_NAMES: Final = {
    "bash": "Bash", "edit": "Edit", "write": "Write", "read": "Read", "grep": "Grep", "glob": "Glob", "list": "List",
    "patch": "Patch", "todowrite": "TodoWrite", "todoread": "TodoRead", "webfetch": "WebFetch", "task": "Task",
}  # fmt: skip
EVENTS: Final[dict[str, frozenset[str]]] = {
    "opencode": frozenset({"PreToolUse", "PostToolUse", "PermissionRequest", "UserPromptSubmit"}),
    "anyplug": frozenset({"PreToolUse", "PostToolUse"}),
    "claude": frozenset(
        {
            "PreToolUse", "PostToolUse", "Notification", "Stop", "SubagentStop", "PreCompact", "UserPromptSubmit",
            "SessionStart", "SessionEnd", "PermissionRequest",
        }
    ),
}  # fmt: skip
EVENTS["codex"] = EVENTS["claude"]
ALL_EVENTS: Final = frozenset().union(*EVENTS.values())
WITH_TOOLS: Final = frozenset({"PreToolUse", "PostToolUse", "PermissionRequest"})
PATH_KEYS: Final = ("file_path", "path", "filePath", "notebook_path")
COMMAND_KEYS: Final = ("command", "cmd", "script")
FOLDER_KEYS: Final = (  # the folder that a command runs in
    "workdir", "cwd", "working_directory", "workingDirectory", "working_dir", "workingDir", "directory", "dir",
    "folder",
)  # fmt: skip
EDIT_LISTS: Final = frozenset({"multiedit"})  # tools with a list of edits, in lower case
FILE_TOOLS: Final = frozenset({"Edit", "Write", "Read", "MultiEdit", "NotebookEdit", "NotebookRead", "List"})
SHOWN: Final = 80  # characters of an invalid call
PATCH_TOOLS: Final = frozenset({"apply_patch", "Patch"})
PATCHING_TOOL: Final = late(r"patch|diff", re.IGNORECASE)  # with other names
PATCH_KEYS: Final = ("patchText", "patch", "input", "diff")
SPELLINGS: Final = (  # of one argument, in tools of different agents
    PATH_KEYS,
    ("content", "new_string", "newString", "new_source"),
    ("old_string", "oldString"),
)
SEARCHING_TOOLS: Final = frozenset({"Grep", "Glob"})
NAMING_KEY: Final = late(  # of an argument that names files, in unknown tools
    r"path|file|source|dest|target|folder|directory|^(?:src|dst|from|to|uri)$", re.IGNORECASE
)
MOST_NAMED: Final = 1_000  # files that one call names
LONGEST_PATH: Final = 4096  # characters
CARRIERS: Final = frozenset({"batch"})  # only call other tools
CALLED: Final = ("tool", "tool_name", "toolName", "recipient_name", "name")  # keys of a call within a call
CALLED_WITH: Final = ("parameters", "args", "arguments", "input", "tool_input", "params")
DEEPEST_CALLS: Final = 3  # levels of calls in calls


class BadEvent(ValueError):
    """The input is not an event; the text tells why."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed event."""

    harness: str
    name: str
    tool: str  # as policies call it; empty if the event is not about one
    cwd: str
    session: str
    document: dict[str, Any]
    given_input: Any = None  # the tool's original arguments
    views: tuple[tuple[str, dict[str, Any]], ...] = ()  # tools and inputs that are parts of it
    parts: "tuple[Event, ...]" = ()  # calls that it carries


def parse(raw: bytes | str) -> Any:
    """Parse JSON. Raises BadEvent."""
    if len(raw) > LARGEST:
        raise BadEvent(f"the event is longer than {LARGEST >> 20} MiB")
    if not raw.strip():
        raise BadEvent("there is no event: nothing was passed")
    try:
        found = msgspec.json.decode(raw)
        # Parsers differ in which of two equal keys counts. This pass only looks for these: numbers are not parsed.
        json.loads(raw, object_pairs_hook=_refuse_doubled, parse_int=len, parse_float=len)
    except BadEvent:
        raise
    except UnicodeError:
        raise BadEvent("the event is not JSON: it is not UTF-8") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadEvent(f"the event is not JSON: {error}") from None
    return found


def _refuse_doubled(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise BadEvent(f"the event has the key {key!r} twice in one object")
        seen.add(key)


def read(harness: str, given: Any, *, depth: int = DEEPEST_CALLS) -> Event:
    """Convert what was sent to an event, with at most `depth` levels of calls in it. Raises BadEvent."""
    name = _event_name(harness, given)
    document = dict(given)
    if harness in CLAUDE_LIKE:
        tool = _read_claude(name, document)
    elif name == "PermissionRequest":
        tool = _read_permission(document)
    elif name == "UserPromptSubmit":
        tool = ""
    else:
        tool = _read_tool(name, document, harness)
    given_input = document.get("tool_input")
    if name in WITH_TOOLS:
        _refuse_wrong_types(tool, given_input, "tool_input" if harness in CLAUDE_LIKE else "args")
    parts = _parts(tool, given, given_input, harness, depth) if name == "PreToolUse" else []
    _enrich(tool, document, harness)
    views = _views(tool, document) if name != "PermissionRequest" else []
    for part in parts:
        carried = [(part.tool, part.document), *part.views]
        views += [(kind, {**view, "part_of": view.get("part_of", tool)}) for kind, view in carried]
    if len(views) > MOST_PATCHED:
        raise BadEvent(f"the call consists of more than {MOST_PATCHED} others")
    return Event(
        harness=harness,
        name=name,
        tool=tool,
        cwd=given["cwd"],
        session=given["session_id"],
        document=document,
        given_input=given_input,
        views=tuple(views),
        parts=tuple(parts),
    )


def _event_name(harness: str, given: Any) -> str:
    """Return the kind of event. Raises BadEvent if it is unknown."""
    if not isinstance(given, dict):
        raise BadEvent("the event must be a JSON object")
    if _depth(given) > DEEPEST:
        raise BadEvent(f"the event is nested more than {DEEPEST} levels deep")
    name = given.get("hook_event_name")
    if not isinstance(name, str) or name not in EVENTS[harness]:
        known = ", ".join(sorted(EVENTS[harness]))
        said = f"is {name!r}" if "hook_event_name" in given else "is missing"
        raise BadEvent(f"hook_event_name must be one of {known}, but {said}")
    for key in ("session_id", "cwd"):
        if not isinstance(given.get(key), str):
            raise BadEvent(f"{key} must be a string")
    return name


def _refuse_wrong_types(tool: str, arguments: Any, key: str) -> None:
    """Refuse arguments of types that policies would not find. Raises BadEvent."""
    if not isinstance(arguments, dict):
        raise BadEvent(f"{key} must be an object")
    if tool == "Bash":
        for name in COMMAND_KEYS:
            value = arguments.get(name, "")
            is_list = isinstance(value, list) and all(isinstance(word, str) for word in value)
            if not isinstance(value, str) and not is_list:
                raise BadEvent(f"{key}.{name} must be a string, or a list of strings")
    elif tool in PATCH_TOOLS or tool in FILE_TOOLS:
        for name in PATCH_KEYS if tool in PATCH_TOOLS else PATH_KEYS:
            if not isinstance(arguments.get(name) or "", str):
                raise BadEvent(f"{key}.{name} must be a string")
    _refuse_two_spellings(tool, arguments, key)


def _refuse_two_spellings(tool: str, arguments: dict[str, Any], key: str) -> None:
    """Refuse arguments that are passed twice: the tool uses one, and a policy may check the other. Raises BadEvent."""
    groups: tuple[tuple[str, ...], ...] = ()
    if tool == "Bash":
        groups = (COMMAND_KEYS, FOLDER_KEYS)
    elif tool in PATCH_TOOLS:
        groups = (PATCH_KEYS,)
    elif tool in FILE_TOOLS or tool in SEARCHING_TOOLS or tool.lower() in EDIT_LISTS:
        groups = SPELLINGS
    edits = arguments.get("edits")
    for place, given in ((key, arguments), *((f"{key}.edits", edit) for edit in _listed(edits))):
        for group in groups:
            said = [name for name in group if given.get(name) is not None]
            if other := next((name for name in said if given[name] != given[said[0]]), ""):
                raise BadEvent(f"{place}.{said[0]} and {place}.{other} must be equal: {tool} uses only one of them")


def _listed(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _parts(tool: str, given: dict[str, Any], arguments: Any, harness: str, depth: int) -> list[Event]:
    """Read the calls that a call carries as separate events. Raises BadEvent."""
    calls = list(_calls(tool, arguments))
    if calls and depth <= 0:
        raise BadEvent(f"calls are nested more than {DEEPEST_CALLS} levels deep")
    if len(calls) > MOST_PATCHED:
        raise BadEvent(f"the call carries more than {MOST_PATCHED} others")
    keys = ("tool_name", "tool_input") if harness in CLAUDE_LIKE else ("tool", "args")
    return [read(harness, {**given, **dict(zip(keys, call, strict=True))}, depth=depth - 1) for call in calls]


def _calls(tool: str, arguments: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls in a call, as tool and arguments. Raises BadEvent."""
    for value in (arguments, *arguments.values()):
        if isinstance(value, str) and tool in CARRIERS:
            value = _decoded(value)  # noqa: PLW2901
        for one in value if isinstance(value, list) else (value,):
            calls = _called(one)
            yield from calls
            if not calls and tool in CARRIERS and isinstance(value, list):
                raise BadEvent(f"{tool}: {str(one)[:SHOWN]} is not a call: it needs a tool and its parameters")


def _called(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that a value may mean: by each key that could name the tool, and its arguments."""
    if isinstance(value, str):
        value = _decoded(value)
    if not isinstance(value, dict):
        return []
    names = dict.fromkeys(value[key].removeprefix("functions.") for key in CALLED if isinstance(value.get(key), str))
    given = (_decoded(value[key]) if isinstance(value.get(key), str) else value.get(key) for key in CALLED_WITH)
    arguments = [one for one in given if isinstance(one, dict)]
    return [(TOOL_NAMES.get(name, name), one) for name in names for one in arguments]


def _decoded(text: str) -> Any:
    """Decode a text that may be JSON."""
    try:
        found = parse(text) if text.lstrip()[:1] in {"{", "[", '"'} else text
        return _decoded(found) if isinstance(found, str) and found != text else found
    except BadEvent:
        return text


def with_input(given: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """Return an event as it would have come with other arguments."""
    return {**given, "args" if "args" in given else "tool_input": changed}


def _read_tool(name: str, document: dict[str, Any], harness: str) -> str:
    tool = document.get("tool")
    if not isinstance(tool, str):
        raise BadEvent("tool must be a string")
    if "args" not in document:
        raise BadEvent("args is missing")
    if name == "PostToolUse":
        result = document.get("result")
        if not isinstance(result, dict) or not isinstance(result.get("success"), bool):
            raise BadEvent("result must be an object whose `success` is true or false")
        document["tool_response"] = result
    named = TOOL_NAMES.get(tool, tool) if harness == "opencode" else tool
    document["tool_name"] = named
    document["tool_input"] = document["args"]
    return named


def _read_claude(name: str, document: dict[str, Any]) -> str:
    if name not in WITH_TOOLS:
        return ""
    if not isinstance(document.get("tool_name"), str):
        raise BadEvent("tool_name must be a string")
    if "tool_input" not in document:
        raise BadEvent("tool_input is missing")
    given = document["tool_input"]
    if document["tool_name"] in PATCH_TOOLS and isinstance(given, dict) and isinstance(given.get("command"), str):
        document["tool_input"] = {**given, PATCH_KEYS[0]: given["command"]}  # as Codex names a patch
    return str(document["tool_name"])


def _read_permission(document: dict[str, Any]) -> str:
    """Read a request for a permission as the tool that it is about."""
    kind = document.get("permission_type", document.get("tool", ""))
    if not isinstance(kind, str):
        raise BadEvent("permission_type must be a string")
    metadata = document.get("metadata")
    document["tool_name"] = TOOL_NAMES.get(kind, kind)
    if metadata is not None and not isinstance(metadata, dict):
        raise BadEvent("metadata must be an object")
    document["tool_input"] = dict(metadata or {})
    return str(document["tool_name"])


def _enrich(tool: str, document: dict[str, Any], harness: str) -> None:
    """Add what policies would otherwise have to find out themselves."""
    given = document.get("tool_input")
    if not isinstance(given, dict):
        return
    arguments = dict(given)
    command = next(command_lines(arguments), None)
    if tool == "Bash" and command is not None:
        if len(command) > LONGEST_COMMAND:
            raise BadEvent(f"the command is longer than {LONGEST_COMMAND} characters")
        arguments["command"] = syntax.normalised(syntax.joined(command))
        base = _folder(document, arguments)
        document["affected_parent_directories"] = [
            resolved(word, base) for word in syntax.path_words(arguments["command"])
        ]
        document["commands"] = _commands(command, [base])
    elif tool != "Bash":
        _enrich_file(tool, document, arguments, harness)
    document["tool_input"] = arguments


def command_lines(arguments: dict[str, Any]) -> Iterator[str]:
    """Yield what a tool is told to run, under the usual names of that argument, as a string or a list of words."""
    for key in COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list) and value:
            yield shlex.join(word if isinstance(word, str) else str(word) for word in value)


def _commands(command: str, starts: Sequence[str], *, is_inner: bool = False) -> list[dict[str, Any]]:
    """Return the simple commands of a line as policies see them: as written, and again where values change its words.

    They are followed by those that its programs are told to run.
    """
    found: list[dict[str, Any]] = []
    for at, simple in enumerate(syntax.simple_commands(command)):
        found.append(_simple(simple.words, simple.writes, starts[0]))
        found[at]["targets"] = []
    line = command_steps.read(command, starts)
    for step in line.steps:
        targets = list(dict.fromkeys((*step.paths, *step.writes, *step.named())))
        targets = [target.replace(syntax.UNKNOWN, "*").replace(substitutions.MADE, "*") for target in targets]
        written = found[step.at]
        written["targets"] = list(dict.fromkeys((*written["targets"], *targets)))
        written["writes"] = list(dict.fromkeys((*written["writes"], *step.writes)))
        words = [word.replace(syntax.UNKNOWN, "").replace(substitutions.MADE, "") for word in step.words]
        if words != list(map(word_patterns.simplified, written["words"])):
            found.append({**_simple(words, step.written, step.folder), "targets": targets})
    for one in tuple(found):
        found += [{**one, "name": _name(words), "words": words} for words in command_steps.carried(one["words"])]
    for text, folders in () if is_inner else command_steps.told(line):
        found += _commands(text, folders, is_inner=True)
    if is_inner:
        return found
    different = {(one["name"], *one["words"], None, *one["writes"], None, *one["targets"]): one for one in found[::-1]}
    return [*different.values()][::-1]


def _name(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2] if words else ""


def _simple(words: Sequence[str], writes: Sequence[str], base: str) -> dict[str, Any]:
    return {
        "name": _name(words),
        "words": list(words),
        "paths": [resolved(expanded(word, base), base) for word in words[1:] if syntax.is_path(word)],
        "writes": [resolved(expanded(word, base), base) for word in writes],
    }


def _enrich_file(tool: str, document: dict[str, Any], arguments: dict[str, Any], harness: str) -> None:
    path = next(_paths_of(arguments), None)
    if path is not None:
        document.update(_located(document, path))
    document["named_files"] = list(_named_files(arguments, document["cwd"]))
    _name_alike(tool, arguments, harness)
    edits = arguments.get("edits")
    if tool.lower() in EDIT_LISTS and isinstance(edits, list):
        arguments["edits"] = [_enrich_edit(edit, path, document["cwd"], harness) for edit in edits]


def _name_alike(tool: str, arguments: dict[str, Any], harness: str) -> None:
    """Rename the arguments of an edit to what policies of every agent know."""
    if harness == "opencode":
        for theirs, ours in (("filePath", "file_path"), ("oldString", "old_string"), ("newString", "new_string")):
            if arguments.get(theirs) is not None and arguments.get(ours) is None:
                arguments[ours] = arguments[theirs]
    for key in ("content",) if tool == "Write" else ("new_source",) if tool == "NotebookEdit" else ():
        if arguments.get(key) is not None and arguments.get("new_string") is None:
            arguments["new_string"] = arguments[key]


def _paths_of(arguments: dict[str, Any]) -> Iterator[str]:
    return (value for key in PATH_KEYS if isinstance(value := arguments.get(key), str))


def _named_files(arguments: dict[str, Any], cwd: str) -> Iterator[str]:
    """Yield the real path of every file that a call names, under any key."""
    waiting: list[tuple[str, Any]] = list(arguments.items())
    left = MOST_NAMED
    while waiting and left > 0:
        key, value = waiting.pop(0)
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(key, one) for one in value]
        elif isinstance(value, str) and 0 < len(value) < LONGEST_PATH:
            path = _path_of_url(value)
            if path or NAMING_KEY.search(key):
                left -= 1
                yield resolved(os.path.expanduser(path or value), cwd)


def _path_of_url(text: str) -> str:
    """Return the path of a `file:` URL; empty for any other text."""
    if text[:5].lower() != "file:":
        return ""
    from urllib.parse import unquote  # with `ipaddress`; few calls have such a URL

    host, slash, rest = text[5:].removeprefix("//").partition("/")
    return unquote(slash + rest if host in {"", "localhost"} else host + slash + rest)


def _enrich_edit(edit: Any, path: str | None, cwd: str, harness: str) -> Any:
    if not isinstance(edit, dict):
        return edit
    known = dict(edit)
    _name_alike("Edit", known, harness)
    own = next(_paths_of(edit), path)
    return {**known, "resolved_file_path": resolved(own, cwd)} if isinstance(own, str) else known


def _located(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Return a document that is about one file."""
    cwd = document["cwd"]
    where = {"resolved_file_path": resolved(path, cwd), "is_symlink": is_link(path, cwd)}
    return {**document, "original_file_path": path, **where}


def _folder(document: dict[str, Any], arguments: dict[str, Any]) -> str:
    """Return the folder in which a command runs."""
    told = next((value for key in FOLDER_KEYS if isinstance(value := arguments.get(key), str)), "")
    return os.path.join(document["cwd"], os.path.expanduser(told))


def _views(tool: str, document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return a patch as the edits and writes that policies know, and a call with several files by each."""
    arguments = document.get("tool_input")
    if not isinstance(arguments, dict) or tool == "Bash":
        return []
    if tool not in PATCH_TOOLS and not PATCHING_TOOL.search(tool):
        others = [path for path in dict.fromkeys(_paths_of(arguments)) if path != document["original_file_path"]]
        alike = ["MultiEdit"] if tool != "MultiEdit" and tool.lower() in EDIT_LISTS else []
        return [*((tool, _located(document, path)) for path in others), *((name, document) for name in alike)]
    text = next((value for key in PATCH_KEYS if isinstance(value := arguments.get(key), str)), "")
    touched = patch_targets.touches(text)
    if tool in PATCH_TOOLS and (unknown := patch_targets.unknown_header(text)):
        document["unknown_header"] = unknown
    if len(touched) > MOST_PATCHED:
        raise BadEvent(f"the patch touches more than {MOST_PATCHED} files")
    document["patched_files"] = [
        {"path": touch.path, "action": touch.action, "resolved_file_path": resolved(touch.path, document["cwd"])}
        for touch in touched
    ]
    found: list[tuple[str, dict[str, Any]]] = []
    for touch in touched:
        kind = "Write" if touch.action in {"add", "move"} else "Edit"
        view = {key: value for key, value in document.items() if key != "patched_files"}
        view["tool_name"] = kind
        view["part_of"] = tool
        view["tool_input"] = {
            "filePath": touch.path, "file_path": touch.path, "oldString": touch.before, "old_string": touch.before,
            "newString": touch.after, "new_string": touch.after, "content": touch.after, "action": touch.action,
        }  # fmt: skip
        found.append((kind, _located(view, touch.path)))
    return found


def _depth(value: Any) -> int:
    """Return how deeply a value is nested, up to what matters."""
    level: list[Any] = [value]
    depth = 0
    while level and depth <= DEEPEST:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return depth
