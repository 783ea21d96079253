"""The rule that is always on: an agent does not change the policies that bind it, what asks them, nor our store.

Tools that write are seen by where their files really are; of shell commands, by the paths and words in them. A
command that only reads is let through. What a program does that a command starts, or what a variable hides, is not
seen here: the folders' permissions and the confinement of plugins are for that.
"""

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from anyplug.policy.decisions import Finding
from anyplug.policy.events import Event
from anyplug.policy.opencode.installation import NAME as GATE
from anyplug.policy.paths import FOLDER, is_within, resolved

RULE: Final = "ANYPLUG-SELF-PROTECTION"
READING_TOOLS: Final = frozenset(
    {
        "Read", "Grep", "Glob", "List", "LS", "NotebookRead", "TodoRead", "TodoWrite", "WebFetch", "WebSearch", "Task",
        "websearch", "skill", "question", "lsp", "plan_exit",
    }
)  # fmt: skip
READERS: Final = frozenset(
    {
        "basename", "cat", "cd", "cmp", "cut", "diff", "dirname", "echo", "egrep", "fgrep", "file", "find",
        "grep", "head", "hexdump", "jq", "less", "ls", "md5sum", "more", "od", "popd", "printf", "pushd", "pwd",
        "realpath", "rg", "sha256sum", "sort", "stat", "strings", "tail", "test", "tr", "tree", "true", "wc",
        "which", "[",
    }
)  # fmt: skip
READING_GIT: Final = frozenset(  # and those that leave the files in the folder as they are
    {"status", "diff", "log", "show", "blame", "grep", "ls-files", "branch", "add", "commit", "push", "fetch", "tag"}
)
READING_OURS: Final = frozenset({"list", "tools", "show", "audit", "logs", "jobs", "check", "doctor", "eval", "status"})
READING_POLICY: Final = frozenset({"validate", "inspect", "test", "explain", "replay"})
REMOVERS: Final = frozenset({"rm", "rmdir", "mv", "chmod", "chown", "chattr", "trash", "unlink", "shred", "rsync"})
CHANGING: Final = {  # options by which what else only reads writes a file or starts a program, as they begin
    "diff": ("--output",),
    "file": ("--compile",),
    "find": ("-delete", "-exec", "-ok", "-fls", "-fprint"),
    "git": ("--output", "--open-files-in-pager", "--ext-diff", "--textconv", "--upload-pack", "--receive-pack"),
    "less": ("--log-file", "--LOG-FILE"),
    "rg": ("--pre", "--hostname-bin"),
    "sort": ("--output", "--compress-program"),
}
CHANGING_LETTERS: Final = {"file": "C", "git": "O", "less": "oO", "sort": "o", "tree": "o"}
SHORTEST_LONG: Final = 3  # characters of `--o`, which is taken for `--output` where nothing else begins so
FREE: Final = ("files", "data", "cache")  # of our own folder: what plugins write, and hand to each other
LONGEST_PATH: Final = 4096  # characters; longer texts are no paths
LONGEST_GLOB: Final = 255  # characters; to read a longer one can take minutes, and nobody writes one in good faith
DEEPEST: Final = 6  # levels of arguments that are looked through
_PRINTING: Final = re.compile(r"[0-9,$]*p")


def finding(event: Event, protected: Sequence[str]) -> Finding | None:
    """Say in what an event would change what is protected; None if it would not."""
    if event.name != "PreToolUse" or event.tool in READING_TOOLS:
        return None
    document = event.document
    if event.tool == "Bash":
        what = _by_command(document, protected)
    else:
        views = [document, *(view for _, view in event.views)]
        what = next((path for view in views for path in _paths(view) if _is_protected(path, protected)), "")
    if not what:
        return None
    return Finding(
        verb="deny",
        reason=f"an agent may not change the policies that bind it, nor anyplug's own files ({what})",
        rule_id=RULE,
        severity="CRITICAL",
        policy="self_protection",
        file="builtin/self_protection",
        row=1,
    )


def _is_protected(path: str, protected: Sequence[str]) -> bool:
    parts = path.casefold().split(os.sep)
    if FOLDER in parts or parts[-1] == GATE:
        return True
    return any(
        is_within(path, folder) and not any(is_within(path, os.path.join(folder, free)) for free in FREE)
        for folder in protected
    )


def _paths(document: dict[str, Any]) -> Iterator[str]:
    """Give all that a tool is told and that could be a path, where it really is."""
    cwd = document["cwd"]
    if "resolved_file_path" in document:
        yield document["resolved_file_path"]
    for text in _texts(document.get("tool_input"), DEEPEST):
        if "\n" not in text and len(text) < LONGEST_PATH and (os.sep in text or FOLDER in text or text == GATE):
            yield resolved(os.path.expanduser(text.removeprefix("file://")), cwd)
    for patched in document.get("patched_files", ()):
        yield patched["resolved_file_path"]


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth > 0 and isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in {"content", "new_string", "newString", "old_string", "oldString"}:
                yield from _texts(inner, depth - 1)


def _by_command(document: dict[str, Any], protected: Sequence[str]) -> str:
    commands = document.get("commands") or []
    given = document.get("tool_input")
    workdir = given.get("workdir") if isinstance(given, dict) else None
    folder = resolved(workdir if isinstance(workdir, str) else "", document["cwd"])
    touched = folder if _is_protected(folder, protected) else ""
    for command in commands:
        for path in (*command["writes"], *command["paths"]):
            if _is_protected(path, protected):
                touched = touched or path
        for word in command["words"]:
            if _names(word, protected):
                touched = touched or word
        if command["name"] in REMOVERS or any(word in REMOVERS for word in command["words"]):
            for path in command["paths"]:
                if any(is_within(folder, path) for folder in protected):
                    return str(path)
    if touched and not all(_only_reads(command, protected) for command in commands):
        return touched
    return ""


def _names(word: str, protected: Sequence[str]) -> bool:
    lower = word.casefold()
    if FOLDER in lower or GATE in lower or any(folder in word for folder in protected):
        return True
    return any(
        ("*" in part or "?" in part or "[" in part)
        and part.startswith((".", "[", "?"))
        and (len(part) > LONGEST_GLOB or fnmatch.fnmatch(FOLDER, part))
        for part in lower.split(os.sep)
    )


def _only_reads(command: dict[str, Any], protected: Sequence[str]) -> bool:
    words, name = command["words"], command["name"]
    if any(_is_protected(path, protected) for path in command["writes"]):
        return False
    if name in {"anyplug", "cupcake"}:
        return _only_looks(words[1:])
    if name == "sed":  # its scripts can write and run things: only those that print lines are surely none of these
        return words[1:2] == ["-n"] and any(_PRINTING.fullmatch(word) for word in words[2:3])
    if any(_changes(name, word) for word in words[1:]):
        return False
    if name == "git":
        return len(words) > 1 and words[1] in READING_GIT
    return name in READERS or (not name and not command["writes"])


def _changes(name: str, word: str) -> bool:
    """Whether a word lets a command write or run something although by its name it only reads."""
    option = word.partition("=")[0]
    is_long = option.startswith("--")
    for known in CHANGING.get(name, ()):
        if option.startswith(known) or (is_long and len(option) >= SHORTEST_LONG and known.startswith(option)):
            return True
    is_short = option.startswith("-") and not is_long
    return is_short and any(letter in option for letter in CHANGING_LETTERS.get(name, ""))


def _only_looks(words: list[str]) -> bool:
    said = [word for word in words if not word.startswith("-")]
    if said[:1] == ["policy"]:
        return len(said) > 1 and said[1] in READING_POLICY
    return bool(said) and said[0] in READING_OURS
