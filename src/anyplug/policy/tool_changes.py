"""Whether a call of a tool would change guarded places: by the paths, the patches and the commands in its arguments."""

import os
import re
from collections.abc import Iterator
from typing import Any, Final

from anyplug.model.late_patterns import late
from anyplug.policy.agent_events import CARRIERS, FOLDER_KEYS, LONGEST_COMMAND, Event, command_lines
from anyplug.policy.paths import is_within, resolved
from anyplug.policy.shell import syntax, unpacking
from anyplug.policy.shell.command_steps import LONGEST_PATH
from anyplug.policy.shell.guarded_places import Guarded
from anyplug.policy.shell.line_changes import CommandLine

READING_TOOLS: Final = frozenset(
    {
        "Read", "Grep", "Glob", "List", "LS", "NotebookRead", "TodoRead", "TodoWrite", "WebFetch", "WebSearch", "Task",
        "websearch", "skill", "question", "lsp", "plan_exit",
    }
)  # fmt: skip
COMMAND_TEXTS: Final = ("argv", "input", "stdin", "code", "run", "exec", "shell", "line", "commands")  # keys
CODE_KEYS: Final = frozenset({"code", "source"})  # in languages that are not parsed
PROGRAM_KEYS: Final = ("command", "cmd", "program", "executable", "file")
CONTENT_KEYS: Final = frozenset({"content", "new_string", "newString", "old_string", "oldString"})  # text for a file
_REMOVING_TOOL: Final = late(r"delete|remove|move|rename|trash|unlink|rmdir|rm_", re.IGNORECASE)
_RUNNING_TOOL: Final = late(r"bash|shell|terminal|exec|command|console|python|script|tmux|ssh|repl", re.IGNORECASE)
_NAMING: Final = late(r"path|file|target|source|dest|name", re.IGNORECASE)  # a key whose text lists files
_PATCHING: Final = late(r"^(?:\+\+\+|---|\*\*\*|Index:|diff --git|rename (?:from|to))[ \t]", re.MULTILINE)


def changes(event: Event, guarded: Guarded) -> Iterator[str]:
    """Name what of the guarded a call changes."""
    if event.name != "PreToolUse" or event.tool in READING_TOOLS:
        return
    for part in event.parts:
        yield from changes(part, guarded)
    if event.parts and event.tool in CARRIERS:
        return
    if event.tool != "Bash":
        yield from _changed_files(event, guarded)
    given = event.given_input
    if isinstance(given, dict):
        code = [text for key, text in _texts(given) if key in CODE_KEYS]
        yield from (name for text in code for name in guarded.mentions(text))
        for line in dict.fromkeys((*command_lines(given), *_commands_in(event))):
            if len(line) > LONGEST_COMMAND:
                yield from guarded.mentions(line)
                continue
            for folder in folders(event):
                yield from CommandLine(line, folder, guarded).changes()


def _changed_files(event: Event, guarded: Guarded) -> Iterator[str]:
    document = event.document
    if "unknown_header" in document:
        yield document["unknown_header"]
    for view in (document, *(view for _, view in event.views)):
        yield from (path for path in _paths(view, guarded) if guarded.is_written(path))
    if _REMOVING_TOOL.search(event.tool):
        yield from (path for path in _paths(document, guarded) if any(is_within(place, path) for place in guarded.held))


def folders(event: Event) -> list[str]:
    """Return the folders that a command may run in: the event's, and each that an argument may name."""
    cwd = event.document["cwd"]
    keys = FOLDER_KEYS if event.tool == "Bash" else (*FOLDER_KEYS, "path")
    given: Any = event.given_input if isinstance(event.given_input, dict) else {}
    told = [given[key] for key in keys if isinstance(given.get(key), str) and "\n" not in given[key]]
    found = [resolved(os.path.expanduser(one.removeprefix("file://")), cwd) for one in told if len(one) < LONGEST_PATH]
    return list(dict.fromkeys(found if found and event.tool == "Bash" else (*found, resolved("", cwd))))


def _paths(document: dict[str, Any], guarded: Guarded) -> Iterator[str]:
    """Yield the real paths of all arguments that could be a path."""
    cwd = document["cwd"]
    if "resolved_file_path" in document:
        yield document["resolved_file_path"]
    for key, text in _texts(document.get("tool_input")):
        if not guarded.is_argument(document.get("tool_name", ""), key, text):
            continue
        if "\n" in text.strip():
            named = unpacking.patched(text) if _PATCHING.search(text) else ()
            names = (*named, *(text.split("\n") if _NAMING.search(key) else ()))
        else:
            names = (text.strip(),)
        yield from (place for name in names for place in _places(name, cwd, guarded))
    for patched in document.get("patched_files", ()):
        yield patched["resolved_file_path"]


def _places(text: str, cwd: str, guarded: Guarded) -> Iterator[str]:
    """Yield where a text leads, if it can be a path."""
    if text and "\0" not in text and len(text) < LONGEST_PATH:
        from urllib.parse import unquote  # with `ipaddress`; a shell command needs neither

        path = os.path.join(cwd, os.path.expanduser(unquote(text).removeprefix("file://")))
        if os.sep in text or guarded.is_named(text) or os.path.lexists(path):
            yield resolved(path, cwd)
            yield resolved(os.path.expanduser(text.removeprefix("file://")), cwd)


def _commands_in(event: Event) -> Iterator[str]:
    """Yield everything that a tool may be told to run, at any depth: also a program with separate arguments."""
    if _RUNNING_TOOL.search(event.tool):
        yield from (text for _, text in _texts(event.given_input) if any(char in text for char in syntax.BLANKS))
    waiting: list[Any] = [event.given_input]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        if not isinstance(value, dict):
            continue
        waiting += value.values()
        yield from command_lines(value)
        for key in COMMAND_TEXTS:
            yield from command_lines({"command": value.get(key)})
        rest: Any = next(
            (value[key] for key in ("args", "arguments", "argv") if isinstance(value.get(key), list | str)), []
        )
        for key in PROGRAM_KEYS:
            if rest and isinstance(value.get(key), str):
                is_text = isinstance(rest, str)
                yield f"{value[key]} {rest}" if is_text else next(command_lines({"command": [value[key], *rest]}))


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every string and every key in the arguments, with the key that contains it."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, str):
            if key not in CONTENT_KEYS:
                yield key, value
        elif isinstance(value, list):
            waiting += [(key, inner) for inner in value]
        elif isinstance(value, dict):
            yield from ((key, inner) for inner in value)
            waiting += value.items()
