"""The rule that is always on: an agent must not change the policies that bind it, what asks them, or our database.

For tools that write, the real paths of their files are checked; for shell commands, the paths and words in them, as far
as these can be read (see `shell`, `shell.word_values`). A word that is not fully known is a pattern (see
`shell.word_patterns`): a command that may write is refused if the pattern may match something protected and some
literal part of it says so. A command that only reads is allowed. If a command cannot be parsed with certainty, or runs
a text in another language, it is refused if it mentions anything protected at all. What a program does beyond its
command line is not seen here. For that there are the accepted copies of policies (`accepted_copies`), the folders'
permissions and the sandbox of plugins.
"""

import fnmatch
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

from anyplug.policy.agent_events import CARRIERS, FOLDER_KEYS, LONGEST_COMMAND, Event, command_lines
from anyplug.policy.decisions import Finding
from anyplug.policy.opencode.installation import NAME as GATE
from anyplug.policy.paths import FOLDER, environment_places, expanded, is_link, is_within, program_places, resolved
from anyplug.policy.shell import command_steps, destinations, substitutions, syntax, unpacking, word_patterns
from anyplug.policy.shell.command_steps import (
    ASSIGNMENT,
    LONGEST_GLOB,
    LONGEST_PATH,
    MOST_READ,
    MOST_SHOWN,
    REMOVERS,
    Step,
    may_write,
)

RULE: Final = "ANYPLUG-SELF-PROTECTION"
READING_TOOLS: Final = frozenset(
    {
        "Read", "Grep", "Glob", "List", "LS", "NotebookRead", "TodoRead", "TodoWrite", "WebFetch", "WebSearch", "Task",
        "websearch", "skill", "question", "lsp", "plan_exit",
    }
)  # fmt: skip
READERS: Final = frozenset(
    {
        "basename", "cat", "cd", "cmp", "cut", "df", "diff", "dirname", "du", "echo", "egrep", "fgrep", "file", "find",
        "grep", "head", "hexdump", "jq", "less", "ls", "md5sum", "more", "od", "popd", "printf", "pushd", "pwd",
        "realpath", "rg", "sha256sum", "sort", "stat", "strings", "tail", "test", "tr", "tree", "true", "wc",
        "which", "[",
    }
)  # fmt: skip
READING_GIT: Final = frozenset(  # and those that do not change the files in the folder
    {"status", "diff", "log", "show", "blame", "grep", "ls-files", "branch", "add", "commit", "push", "fetch", "tag"}
)
READING_OURS: Final = frozenset(
    {
        "list", "ls", "tools", "show", "audit", "logs", "jobs", "check", "doctor", "eval", "status", "ps", "completion",
    }
)  # fmt: skip
READING_POLICY: Final = frozenset({"validate", "inspect", "test", "explain", "replay"})
CHANGING_OURS: Final = frozenset(  # the others, by which our program is recognised behind unknown words
    {
        "call", "chain", "run", "mcp", "serve", "stop", "approve", "deny", "revoke", "grant", "ungrant", "learn",
        "enable", "disable", "install", "update", "remove", "rm", "uninstall", "leftovers", "reload", "config",
        "secret", "connect", "export", "new", "policy", "demo",
    }
)  # fmt: skip
OURS: Final = frozenset({"anyplug", "cupcake"})
OUR_OPTIONS: Final = frozenset({"--plugin", "--ext", "-e", "--home"})  # with a value, before the command
OUR_FLAGS: Final = frozenset({"--no-discover", "--quiet", "--debug"})
HARMLESS_FLAGS: Final = frozenset({"--version", "--help", "-h"})
RUNNERS: Final = frozenset(  # run what their arguments name
    {
        "env", "sudo", "doas", "nohup", "nice", "ionice", "time", "timeout", "command", "exec", "builtin", "xargs",
        "parallel", "setsid", "stdbuf", "watch", "uvx", "uv", "pipx", "npx", "poetry", "hatch", "pdm", "rye", "conda",
        "strace", "script", "flock", "chroot", "unshare", "su", "find", "coproc", "then", "do", "else", "if", "while",
        "until", "!", "{",
    }
)  # fmt: skip
MENTIONING: Final = frozenset({"type", "hash", "whereis", "man", "alias", "export", "pip", "pip3"})
LISTING: Final = frozenset({"find", "fd", "ls"})  # what they list, `xargs` can remove
UNKNOWN: Final = syntax.UNKNOWN  # also stands for the value of a variable that the line does not set
USUAL_NAMES: Final = ("rulebook.yml", "evaluate.rego", "settings.toml")
MOST_FILES: Final = 2_000  # of policies whose names are compared with what `find` searches
FEWEST_KNOWN: Final = 3  # characters next to an unknown value by which our program is recognised
CHANGING: Final = {  # prefixes of options by which a reading command writes a file or starts a program
    "diff": ("--output",),
    "file": ("--compile",),
    "find": ("-delete", "-exec", "-ok", "-fls", "-fprint"),
    "git": ("--output", "--open-files-in-pager", "--ext-diff", "--textconv", "--upload-pack", "--receive-pack"),
    "less": ("--log-file", "--LOG-FILE"),
    "rg": ("--pre", "--hostname-bin"),
    "sort": ("--output", "--compress-program"),
}
CHANGING_LETTERS: Final = {"file": "C", "git": "O", "less": "oO", "sort": "o", "tree": "o"}
GATES: Final = (".claude/settings.json", ".claude/settings.local.json", ".opencode", "opencode.json", "opencode.jsonc")
TRUSTING: Final = frozenset({"trust", "init"})
KILLING: Final = frozenset({"kill", "pkill", "killall", "skill"})
RENAMING: Final = frozenset({"alias", "hash", "ln", "cp", "install", "mv", "link", "function"})
SEARCHING: Final = frozenset({"grep", "rg", "ag", "egrep", "fgrep"})
INTERPRETERS: Final = frozenset(  # run texts in other languages, which can start commands
    {
        "awk", "gawk", "mawk", "nawk", "perl", "node", "nodejs", "bun", "deno", "ruby", "php", "lua", "luajit", "tclsh",
        "make", "gmake", "ed", "ex", "vi", "vim", "nvim", "emacs", "gdb", "Rscript", "osascript", "pwsh", "just",
    }
)  # fmt: skip
SHORTEST_LONG: Final = 3  # characters of `--o`, which means `--output` if it is unambiguous
OWN_FOLDER: Final = "cupcake"  # of the user's policies for all projects
FREE: Final = ("files", "data", "cache")  # of our own folder: what plugins write, and pass to each other
COMMAND_TEXTS: Final = ("argv", "input", "stdin", "code", "run", "exec", "shell", "line", "commands")  # keys
CODE_KEYS: Final = frozenset({"code", "source"})  # in languages that are not parsed
PROGRAM_KEYS: Final = ("command", "cmd", "program", "executable", "file")
CONTENT_KEYS: Final = frozenset({"content", "new_string", "newString", "old_string", "oldString"})  # text for a file
MOST_PACKED: Final = 16  # commands of a line that may pack what another unpacks
# What makes Claude Code and OpenCode ask us: an agent that changes it is no longer asked about.
_GATE: Final = re.compile(
    r"(?:^|[^\w.-])\.claude/settings[^/\s]*\.json|(?:^|[^\w.-])\.opencode(?![\w.-])|\.config/opencode(?![\w.-])"
    r"|(?:^|[^\w.-])opencode\.jsonc?(?![\w.-])"
)
_REMOVING_TOOL: Final = re.compile(r"delete|remove|move|rename|trash|unlink|rmdir|rm_", re.IGNORECASE)
_RUNNING_TOOL: Final = re.compile(
    r"bash|shell|terminal|exec|command|console|python|script|tmux|ssh|repl", re.IGNORECASE
)
_NAMING: Final = re.compile(r"path|file|target|source|dest|name", re.IGNORECASE)  # a key whose text lists files
_PATCHING: Final = re.compile(r"^(?:\+\+\+|---|\*\*\*|Index:|diff --git|rename (?:from|to))[ \t]", re.MULTILINE)
_CALLING: Final = re.compile(  # our program, options, and a command that changes something
    r"(?:anyplug|cupcake)(?:\.exe)?[\s,;()\[\]{}:!]+(?:-[^\s,()\[\]{}]*[\s,()\[\]{}]+(?:[/~.][^\s,]*[\s,]+)?)*"
    r"(?:policy(?:[\s,]+-[^\s,]*)*[\s,]+(?:trust|init)"
    rf"|(?:{'|'.join(sorted(CHANGING_OURS - {'policy', 'new', 'run', 'call', 'config', 'update', 'export'}))})\b"
    r"|(?:run|call|new|config|update|export)[\s,]+[\w-])"
)
_UNINSTALLING: Final = re.compile(r"\b(?:uninstall|remove|purge|erase)\b|\b(?:force-reinstall|downgrade)\b")
_INSTALLING: Final = re.compile(r"\b(?:pip[0-9.]*|uv|pipx|conda|poetry|pdm|easy_install)\b")
_BUILDING: Final = re.compile(r"-m venv\b|\buv venv\b|\bvirtualenv\b|\bensurepip\b")
_PROGRAM: Final = re.compile(r"/(?:bin/(?:anyplug|cupcake)$|(?:site|dist)-packages/anyplug(?:-[^/]*)?(?:/|$))")
_PACKAGE: Final = re.compile(r"anyplug(?:[\[=<>~!@].*)?", re.IGNORECASE)
_HIDDEN: Final = re.compile(r"(?:^| )(?:-[A-Za-z]*[Hu.]|--hidden|--unrestricted|--no-ignore)")
_LISTS_FILES: Final = re.compile(r"(?:^| )(?:-[A-Za-z]*[lL]|--files)")
_MAGIC: Final = re.compile(r":(?:\([^)]*\)|[/!^]+)?")  # before a pathspec of git
_SED_WRITING: Final = re.compile(r"[wW][ \t]*(?=[^\s])")
_PRINTING: Final = re.compile(r"[0-9,$]*p")
_PYTHON: Final = re.compile(r"python[0-9.]*|pypy[0-9.]*")
_BRACES: Final = re.compile(r"\{[^{}]*\}")


def finding(event: Event, protected: Sequence[str]) -> Finding | None:
    """Return how an event would change something protected; None if it would not."""
    if event.name != "PreToolUse" or event.tool in READING_TOOLS:
        return None
    for part in event.parts:
        if found := finding(part, protected):
            return found
    if event.parts and event.tool in CARRIERS:
        return None
    what = next(_touched(event, protected), "")
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


def _touched(event: Event, protected: Sequence[str]) -> Iterator[str]:
    """Yield what protected things an event would change."""
    document = event.document
    environment = environment_places(document["cwd"])
    held = [*protected, *_gates(document["cwd"], protected), *environment]
    if event.tool != "Bash":
        if "unknown_header" in document:
            yield document["unknown_header"]
        for view in (document, *(view for _, view in event.views)):
            yield from (path for path in _paths(view) if _is_written(path, protected, environment))
        if _REMOVING_TOOL.search(event.tool):
            yield from (path for path in _paths(document) if any(is_within(folder, path) for folder in held))
    given = event.given_input
    if isinstance(given, dict):
        folders = _folders(event)
        code = [text for key, text in _texts(given) if key in CODE_KEYS]
        yield from (name for text in code for name in _unread(text, protected))
        for line in dict.fromkeys((*command_lines(given), *_commands_in(event))):
            if len(line) > LONGEST_COMMAND:
                yield from _unread(line, protected)
                continue
            for folder in folders:
                yield from CommandLine(line, folder, protected, held, environment=environment).changes()


def _folders(event: Event) -> list[str]:
    """Return the folders that a command may run in: the event's, and each that an argument may name."""
    cwd = event.document["cwd"]
    keys = FOLDER_KEYS if event.tool == "Bash" else (*FOLDER_KEYS, "path")
    given: Any = event.given_input
    told = [given[key] for key in keys if isinstance(given.get(key), str) and "\n" not in given[key]]
    found = [resolved(os.path.expanduser(one.removeprefix("file://")), cwd) for one in told if len(one) < LONGEST_PATH]
    return list(dict.fromkeys(found if found and event.tool == "Bash" else (*found, resolved("", cwd))))


def _gates(cwd: str, protected: Sequence[str]) -> list[str]:
    """List our own program and the files through which agents ask us: not to be removed with their folders."""
    found = [os.path.realpath(place) for place in _gate_places(cwd, protected) if os.path.lexists(place)]
    return [*found, *program_places()]


def _gate_places(cwd: str, protected: Sequence[str]) -> list[str]:
    """List where the files through which agents ask us are, or would be."""
    folders = {cwd, *(os.path.dirname(folder) for folder in protected if os.path.basename(folder) == FOLDER)}
    user = os.path.expanduser("~")
    places = [os.path.join(folder, name) for folder in (*folders, user) for name in GATES]
    return [*places, os.path.join(user, ".config", "opencode")]


def _unread(line: str, protected: Sequence[str]) -> Iterator[str]:
    """Yield the protected things that a text mentions."""
    text = syntax.plain(line)
    yield from (name for name in (FOLDER, GATE, *OURS) if name in text)
    yield from (found[0] for found in [_GATE.search(text)] if found)
    yield from (folder for folder in protected if folder.casefold() in text)


def _is_written(path: str, protected: Sequence[str], environment: Sequence[str]) -> bool:
    """Return whether a tool that writes to a path changes something protected."""
    return _is_protected(path, protected) or _is_program(path, environment)


def _is_program(path: str, environment: Sequence[str]) -> bool:
    """Return whether a path is our own program, or inside it or its environment: the running one, or another."""
    return bool(_PROGRAM.search(path)) or any(is_within(path, place) for place in (*program_places(), *environment))


def _is_protected(path: str, protected: Sequence[str]) -> bool:
    lower = path.casefold()
    parts = lower.split(os.sep)
    if FOLDER in parts or parts[-1] == GATE or _GATE.search(lower):
        return True
    return any(_is_in(path, folder) for folder in protected)


def _is_in(path: str, folder: str) -> bool:
    """Return whether a path, which may contain globs, can be in a folder and is not free there."""
    if is_within(path, folder):
        return not _is_free(path, folder)
    if not any(char in path for char in syntax.GLOBS):
        return False
    parts, real = path.split(os.sep), folder.split(os.sep)
    fits = len(parts) >= len(real) and all(map(_fits, parts, real))
    return fits and not _is_free(os.sep.join([*real, *parts[len(real) :]]), folder)


def _is_free(path: str, folder: str) -> bool:
    return os.path.basename(folder) != OWN_FOLDER and any(is_within(path, os.path.join(folder, free)) for free in FREE)


def _paths(document: dict[str, Any]) -> Iterator[str]:
    """Yield the real paths of all arguments that could be a path."""
    cwd = document["cwd"]
    if "resolved_file_path" in document:
        yield document["resolved_file_path"]
    for key, text in _texts(document.get("tool_input")):
        if "\n" in text.strip():
            named = unpacking.patched(text) if _PATCHING.search(text) else ()
            names = (*named, *(text.split("\n") if _NAMING.search(key) else ()))
        else:
            names = (text.strip(),)
        yield from (place for name in names for place in _places(name, cwd))
    for patched in document.get("patched_files", ()):
        yield patched["resolved_file_path"]


def _places(text: str, cwd: str) -> Iterator[str]:
    """Yield where a text leads, if it can be a path."""
    if text and "\0" not in text and len(text) < LONGEST_PATH:
        path = os.path.join(cwd, os.path.expanduser(unquote(text).removeprefix("file://")))
        if os.sep in text or _names(text, ()) or os.path.lexists(path):
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


class CommandLine:
    """A command line, parsed as far as it shows what it changes."""

    def __init__(
        self,
        line: str,
        folder: str,
        protected: Sequence[str],
        held: Sequence[str] = (),
        *,
        is_inner: bool = False,
        starts: Sequence[str] = (),
        environment: Sequence[str] = (),
    ) -> None:
        self._line = line
        self._protected = protected
        self._held = held or protected  # including what must only not be removed
        self._folder = folder
        self._environment = environment  # that our program runs from, if it is its own
        self._places = list(dict.fromkeys((*self._held, *_gate_places(folder, protected))))
        self._is_inner = is_inner  # its texts are parsed by the line that contains it
        self._has_dots = "dotglob" in line  # then * also matches names with a leading dot
        reading = command_steps.read(line, starts or [folder], self._is_near)
        self._steps = reading.steps
        self._is_sure = reading.is_sure
        self._reading = reading
        self._is_fed = self._is_feeding()
        self._seen: dict[tuple[str, str, bool], bool] = {}

    def _is_feeding(self) -> bool:
        """Return whether a command that writes gets its files from another command."""
        is_writing = any(may_write(step) or any(map(word_patterns.is_unknown, step.writes)) for step in self._steps)
        has_output = any(step.has_output for step in self._steps)
        return any(
            (step.program in {"xargs", "parallel"} and not _feeds_reader(step))
            or (may_write(step) and (step.has_output or (has_output and any(UNKNOWN in one for one in step.words))))
            or (is_writing and step.program == "while" and "read" in step.words)
            for step in self._steps
        )

    def changes(self) -> Iterator[str]:
        """Yield the protected things that the line changes."""
        if not self._is_sure:
            yield from _unread(self._line, self._protected)
        yield from self._runs_ours()
        words = [word for step in self._steps for word in step.words]
        for step in self._steps:
            yield from (path for path in self._removed(step) if self._holds(path))
            yield from filter(self._is_replaced, unpacking.targets(step.words, step.folder, self._line, words))
            if step.writes or may_write(step):
                named = (*step.writes, *(step.targets() if may_write(step) else ()))
                written = (*step.written, *(step.words[1:] if may_write(step) else ()))
                yield from (
                    path for path in (*named, *map(step.lexical, written)) if _is_program(path, self._environment)
                )
            if step.writes or not self._only_reads(step):
                patterns = step.patterns(has_moved=step.folder != self._folder)
                yield from (given for given, path in patterns if self._may_hold(step, given, path))
                yield from self._named_from(step)
                puts = itertools.chain(destinations.puts(step.words, step.places), self._repacked(step))
                yield from (put.place for put in puts if self._is_put(put))
        for text, folders in () if self._is_inner else command_steps.told(self._reading):
            inner = CommandLine(
                text,
                self._folder,
                self._protected,
                self._held,
                is_inner=True,
                starts=folders,
                environment=self._environment,
            )
            yield from inner.changes()
        touched = next(self._mentioned(), "")
        if touched and not all(self._only_reads(step) for step in self._steps):
            yield touched

    def _is_near(self, folder: str) -> bool:
        """Return whether a folder is above something protected, or in it."""
        return any(is_within(place, folder) or is_within(folder, place) for place in self._places)

    def _named_from(self, step: Step) -> Iterator[str]:
        """Yield the arguments of a writing command that are protected only relative to its folder."""
        for word in step.words[1:]:
            if len(word) > LONGEST_PATH or word.startswith("-"):
                continue
            for path in {word, word.partition("=")[2]} - {""}:
                if step.folder != self._folder or is_link(path, step.folder):
                    yield from (place for place in step.places(path) if _is_protected(place, self._protected))
        if step.program == "git" and "-C" in step.words[1:-1]:
            at = step.words.index("-C")
            there = Step([*step.words[:at], *step.words[at + 2 :]], [], step.where(step.words[at + 1]))
            yield from self._named_from(there)
        if step.program == "sed":
            yield from (path for path in _written_by_sed(step) if _is_protected(path, self._protected))
        if step.folder != self._folder and not word_patterns.is_unknown(step.folder):
            for place in self._places:
                inner = os.path.relpath(place, step.folder) if is_within(place, step.folder) else ""
                if inner.strip(".") and any(_has_name(word, inner) for word in step.words[1:]):
                    yield place

    def _repacked(self, step: Step) -> Iterator[destinations.Put]:
        """Yield what a `tar` extracts where, if another one of the line may pack it."""
        if step.program not in unpacking.UNPACKERS:
            return
        others = (one for one in self._steps if one.program in unpacking.UNPACKERS and one.words != step.words)
        for packing in itertools.islice(others, MOST_PACKED):
            for base in unpacking.folders(packing.words, packing.folder):
                for word in packing.words[1:]:
                    source = resolved(word, base)
                    if not word.startswith("-") and os.path.lexists(source):
                        for into in unpacking.folders(step.words, step.folder):
                            yield destinations.Put(source, os.path.normpath(os.path.join(into, word)))

    def _is_put(self, put: destinations.Put) -> bool:
        """Return whether something that is copied, or something in it, gets a protected path."""
        if word_patterns.is_unknown(put.place):
            return any(
                word_patterns.may_be(
                    put.place, put.place, place, removes=False, has_moved=False, has_dots=self._has_dots
                )
                for place in self._places
                if not (is_within(put.place, place) and _is_free(put.place, place))
            )
        place = resolved(put.place, self._folder)
        if _is_protected(place, self._protected) or _is_program(place, self._environment):
            return True
        below = [each for each in self._places if is_within(each, place)]
        return any(self._has_inside(put.source, place, each) for each in below)

    def _has_inside(self, source: str, place: str, protected: str) -> bool:
        """Return whether a folder has something that gets a protected path at its place; if unknown, whether it may."""
        inner = os.path.join(source, os.path.relpath(protected, place))
        if source and os.path.lexists(source):
            return os.path.lexists(inner)
        told = (path for step in self._steps for path in (*step.paths, *step.writes))
        if source and any(is_within(path, inner) or (path != source and is_within(inner, path)) for path in told):
            return True  # created by the same line
        is_of_project = word_patterns.is_of_project(protected)
        return os.path.basename(place) == ".claude" or (not is_of_project and is_within(place, os.path.expanduser("~")))

    def _is_replaced(self, path: str) -> bool:
        """Return whether a file that an archive or a patch writes is protected: here, not in a project elsewhere."""
        real = resolved(path, self._folder)
        if any(is_within(real, place) and not _is_free(real, place) for place in self._places):
            return True
        projects = [os.path.dirname(place) for place in self._protected if os.path.basename(place) == FOLDER]
        return any(is_within(real, project) for project in projects) and _is_protected(real, self._protected)

    def _runs_ours(self) -> Iterator[str]:  # noqa: C901 - one branch for each way
        """Yield the commands that run our program, or may, to change something."""
        text = syntax.plain(self._line)
        is_mentioned = any(name in text for name in OURS) or any(
            name in word.casefold() for step in self._steps for word in step.words for name in OURS
        )
        renamed: set[str] = set()
        for step in self._steps:
            words, shown = step.words, " ".join(step.words[:MOST_SHOWN])
            rest = _ours(step)
            if rest is not None and not _only_looks(rest):
                yield shown
            behind = words[step.start + 1 :]
            if self._uninstalls(step):
                yield shown
            is_unknown = word_patterns.is_unknown(step.program) or not step.program or step.program.startswith("$")
            if is_unknown and (_is_trusting(behind) or (is_mentioned and _is_changing(behind))):
                yield shown
            if not is_mentioned:
                continue
            if step.program in KILLING or (step.program in syntax.PREFIXES and KILLING & set(words)):
                yield shown
            if step.program in renamed and not _only_looks(behind):
                yield shown
            if step.program in RENAMING:
                renamed.update(word.partition("=")[0].rpartition("/")[2] for word in behind)
            if rest is None and not _only_mentions(step) and _CALLING.search(syntax.plain(" ".join(words))):
                yield shown
        if is_mentioned and _CALLING.search(text) and any(_runs_texts(step) for step in self._steps):
            yield "anyplug"

    def _uninstalls(self, step: Step) -> bool:
        """Return whether a command removes our package or its dependencies from our environment, or rebuilds that."""
        words = step.words
        text = " ".join(words)
        places = self._environment
        told = [step.lexical(word.rpartition("=")[2]) for word in words]
        is_there = any(is_within(one, place) or is_within(place, one) for one in told if one for place in places)
        if _BUILDING.search(text):
            return is_there
        if not _INSTALLING.search(text):
            return False
        if is_there:
            return True
        if not _UNINSTALLING.search(text):
            return False
        named = [word for word in words[step.start + 1 :] if not word.startswith("-")]
        if any(_PACKAGE.fullmatch(word) or _is_our_name(word) for word in named):
            return True
        lists = any({"freeze", "list"} & set(one.words) for one in self._steps)
        is_listed = "<" in self._line and any(word in {"-r", "--requirement"} for word in words)
        mentions = any(_PACKAGE.fullmatch(word) for one in self._steps for word in one.words)
        return (lists and (step.has_output or "xargs" in words or is_listed)) or (is_listed and mentions)

    def _mentioned(self) -> Iterator[str]:
        if _is_protected(self._folder, self._protected):
            yield self._folder
        for step in self._steps:
            yield from (path for path in (*step.writes, *step.paths) if _is_protected(path, self._protected))
            yield from (word for word in step.words if _names(word, self._protected))

    def _removed(self, step: Step) -> Iterator[str]:
        """Yield the places that a command removes or changes with their content."""
        if step.removes:
            yield from step.removed()
        lists = step.name in LISTING or (step.name in SEARCHING and _LISTS_FILES.search(" ".join(step.words)))
        if lists and (self._is_fed or _find_changes(step)):
            yield from (start for start in _started(step) if not self._looks_elsewhere(step, start))
        if step.name == "git":
            yield from _removed_by_git(step, self._held)
            yield from self._listed_by_git(step)
        if step.program in unpacking.UNPACKERS and "--remove-files" in step.words:
            yield from step.targets()

    def _listed_by_git(self, step: Step) -> list[str]:
        """Return the folder whose files `git ls-files` passes to a command that changes them."""
        command, rest = _git(step.words)
        named = [word.rpartition("/")[2] for word in rest if not word.startswith("-")]
        if command != "ls-files" or not self._is_fed:
            return []
        if named:
            names = _names_in(self._protected)
            is_meant = any(_is_named(name, pattern, "-name") for pattern in named for name in names)
        else:
            short = any(word.startswith("-") for word in rest)  # only new or changed ones …
            is_meant = not short and any(one.removes for one in self._steps)
        return [step.folder] if is_meant else []

    def _looks_elsewhere(self, step: Step, start: str) -> bool:
        """Return whether `find` searches names that nothing protected below a folder has."""
        words = step.words
        if {"-o", "-or", ","} & set(words):
            return False
        asked = [
            (word, words[at + 1].replace(UNKNOWN, "*"))
            for at, word in enumerate(words[:-1])
            if word in {"-name", "-iname"} and words[at - 1] not in {"!", "-not"}
        ]
        asked += [("-name", word.partition("=")[2]) for word in words if word.startswith(("--include=", "--glob="))]
        if not asked:
            return False
        below = [place for place in self._held if _reaches(start, place, has_dots=self._has_dots)]
        names = _names_in(below)
        names += [part for place in below for part in place.split(os.sep)[len(start.rstrip(os.sep).split(os.sep)) :]]
        return any(not any(_is_named(name, pattern, word) for name in names) for word, pattern in asked)

    def _may_hold(self, step: Step, given: str, path: str) -> bool:
        """Return whether a partly unknown word may match something protected, and something in it says so."""
        key = (given, path, step.removes)
        if key not in self._seen:
            has_moved = step.folder != self._folder
            self._seen[key] = any(
                word_patterns.may_be(
                    given, path, place, removes=step.removes, has_moved=has_moved, has_dots=self._has_dots
                )
                for place in dict.fromkeys((*self._protected, *self._held))
                if not (is_within(path, place) and _is_free(path, place))
            )
        return self._seen[key]

    def _holds(self, path: str) -> bool:
        """Return whether a path, which may contain globs, can be a protected folder or a parent of one."""
        return any(_reaches(path, folder, has_dots=self._has_dots) for folder in self._held)

    def _only_reads(self, step: Step) -> bool:
        words, name = step.words, step.name
        if any(_is_protected(path, self._protected) for path in step.writes):
            return False
        if (rest := _ours(step)) is not None:
            return _only_looks(rest)
        if name == "sed":  # its scripts can write and run things: only those that print lines certainly do not
            return words[1:2] == ["-n"] and any(_PRINTING.fullmatch(word) for word in words[2:3])
        if name == "git" and _removed_by_git(step, self._held) == [] and _git(words)[0] in {"clean", "stash"}:
            return True
        if any(_changes(name, word) for word in words[1:]):
            writes = any(word.startswith(("-fprint", "-fls")) for word in words)
            return name == "find" and not writes and not _find_changes(step)
        if name == "git":
            return len(words) > 1 and words[1] in READING_GIT
        is_assignment = bool(words) and all(ASSIGNMENT.match(word) for word in words)
        return name in READERS or is_assignment or (not name and not step.writes)


def _written_by_sed(step: Step) -> Iterator[str]:
    """Yield the files that a `sed` script may write: what follows a `w`, to the end of the line."""
    for word in step.words[1:]:
        for found in itertools.islice(_SED_WRITING.finditer(word), MOST_READ):
            yield step.where(word[found.end() :].partition("\n")[0].strip())


def _has_name(word: str, inner: str) -> bool:
    """Return whether a word, or a text in it, names a path."""
    at = word.find(inner)
    while at >= 0:
        end = at + len(inner)
        is_start = not (word[at - 1 : at].isalnum() or word[at - 1 : at] in set("_-.")) or not at
        if is_start and not (word[end : end + 1].isalnum() or word[end : end + 1] in {"_", "-"}):
            return True
        at = word.find(inner, at + 1)
    return False


def _names(word: str, protected: Sequence[str]) -> bool:
    lower = word.casefold()
    if FOLDER in lower or GATE in lower or _GATE.search(lower) or any(folder in word for folder in protected):
        return True
    return any(_may_be_folder(part) for part in lower.split(os.sep))


def _may_be_folder(part: str) -> bool:
    """Return whether a part of a path can match the folder of policies."""
    if word_patterns.is_unknown(part):
        return word_patterns.is_told(part, FOLDER)
    if "{" in part and "," in part:
        part = _BRACES.sub("*", part)
    is_glob = "*" in part or "?" in part or "[" in part
    return is_glob and part.startswith((".", "[", "?")) and (len(part) > LONGEST_GLOB or fnmatch.fnmatch(FOLDER, part))


def _reaches(path: str, folder: str, *, has_dots: bool) -> bool:
    if word_patterns.is_unknown(path):  # `_may_hold` handles these
        return False
    parts, real = path.rstrip(os.sep).split(os.sep), folder.split(os.sep)
    return len(parts) <= len(real) and all(
        _fits(part, name, has_dots=has_dots) for part, name in zip(parts, real, strict=False)
    )


def _fits(part: str, name: str, *, has_dots: bool = False) -> bool:
    if part == name:
        return True
    if not any(char in part for char in syntax.GLOBS) or len(part) > LONGEST_GLOB:
        return False
    return (has_dots or part.startswith(".") or not name.startswith(".")) and fnmatch.fnmatchcase(name, part)


def _names_in(protected: Sequence[str]) -> list[str]:
    """List the names of what is protected, and of its content."""
    found = list(USUAL_NAMES)
    for folder in protected:
        found.append(os.path.basename(folder))
        for above, folders, names in os.walk(folder):
            free = {"__pycache__", *(name for name in FREE if _is_free(os.path.join(above, name), folder))}
            folders[:] = [name for name in folders if name not in free]
            found += [*folders, *names]
            if len(found) > MOST_FILES:
                break
    return found


def _is_named(name: str, pattern: str, option: str) -> bool:
    if option == "-iname":
        name, pattern = name.casefold(), pattern.casefold()
    return len(pattern) > LONGEST_GLOB or fnmatch.fnmatchcase(name, pattern)


def _started(step: Step) -> list[str]:
    """Return the places at which `find` or `ls` begins."""
    words: list[str] = []
    if step.name == "fd" or step.name in SEARCHING:  # a pattern comes first; some skip hidden folders
        if step.name in {"fd", "rg", "ag"} and not _HIDDEN.search(" ".join(step.words)):
            return []
        ends = next((at for at, word in enumerate(step.words) if word in {"-x", "-X", "--exec", "--exec-batch"}), None)
        words = [word for word in step.words[1:ends] if not word.startswith("-")][1:]
        return [resolved(expanded(word, step.folder), step.folder) for word in words or ["."]]
    for word in step.words[1:]:
        if step.name == "find" and word.startswith(("-", "(", "!")) and word not in {"-H", "-L", "-P"}:
            break
        if not word.startswith("-"):
            words.append(word)
    return [resolved(expanded(word, step.folder), step.folder) for word in words or ["."]]


def _find_changes(step: Step) -> bool:
    """Return whether `find` deletes what it finds, or passes it to a program that may."""
    words = step.words
    if step.name not in {"find", "fd"}:
        return False
    if "-delete" in words:
        return True
    runs = {"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"}
    return any(word in runs and not _is_reader(words[at + 1 : at + 2]) for at, word in enumerate(words))


def _is_reader(words: Sequence[str]) -> bool:
    return bool(words) and words[0].rpartition("/")[2] in READERS - {"find"}


def _feeds_reader(step: Step) -> bool:
    return any(_is_reader([word]) for word in step.words[1:]) and not any(
        word.rpartition("/")[2] in REMOVERS | syntax.SHELLS for word in step.words[1:]
    )


def _git(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return git's command and what follows it."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in {"-C", "-c", "--git-dir", "--work-tree", "--namespace"} else 1
    return (words[at], list(words[at + 1 :])) if at < len(words) else ("", [])


def _removed_by_git(step: Step, held: Sequence[str]) -> list[str]:
    """Return the places whose files a git command removes or replaces."""
    command, rest = _git(step.words)
    named = [word for at, word in enumerate(rest) if not word.startswith("-") and rest[at - 1 : at] != ["-e"]]
    short = "".join(word[1:] for word in rest if word.startswith("-") and not word.startswith("--"))
    if command == "clean":
        excluded = [
            word.removeprefix("-e").removeprefix("--exclude=").strip("/")
            for at, word in enumerate(rest)
            if word.startswith(("-e", "--exclude=")) or rest[max(at - 1, 0) : at] in (["-e"], ["--exclude"])
        ]
        is_dry = "n" in short.partition("e")[0] or any(word.startswith("--dry") for word in rest)
        if is_dry or any(word in {FOLDER, f"**/{FOLDER}"} for word in excluded):
            return []
        places = named or ["."]
    elif command == "stash":
        takes_all = {"u", "a"} & set(short) or any(word.startswith(("--inc", "--al")) for word in rest)
        if named[:1] not in ([], ["push"], ["save"]):
            return []
        places = named[1:] if named[:1] == ["push"] and named[1:] else ["."] if takes_all else []
    elif command in {"checkout", "restore"}:
        places = [word for word in named if word.startswith((".", ":", "/", "*"))]
        places += ["."] if any(word.startswith("--pathspec-f") for word in rest) else []
    elif command == "rm":
        places = [] if "--cached" in rest else named
    elif command == "checkout-index":
        places = ["."] if "a" in short or "--all" in rest else []
    else:
        return []
    at = next((step.words[at + 1] for at, word in enumerate(step.words[:-1]) if word == "-C"), "")
    folder = resolved(expanded(at, step.folder), step.folder)
    found = [resolved(expanded(place.removeprefix(":/"), folder), folder) for place in places]
    return found + [path for place in places for path in _matched(place, folder, held)]


def _matched(pathspec: str, folder: str, held: Sequence[str]) -> Iterator[str]:
    """Yield the protected things that a pathspec of git matches: its globs include folders and hidden names."""
    magic = _MAGIC.match(pathspec)
    pattern = pathspec[magic.end() :] if magic else pathspec
    if magic and set(magic[0]) & set("!^") | {word for word in ("exclude", "attr") if word in magic[0]}:
        yield from held
    elif any(char in pattern for char in syntax.GLOBS) and len(pattern) <= LONGEST_GLOB:
        starts = (folder, *(os.path.dirname(place) for place in held)) if magic else (folder,)
        for place in held:
            below = (os.path.join(above, name) for above, _, names in os.walk(place) for name in names)
            inside = list(itertools.islice(below, MOST_FILES))
            names = [os.path.relpath(path, start) for path in (place, *inside) for start in starts]
            globs = (pattern, pattern.removeprefix("**/"))
            if any(fnmatch.fnmatchcase(name, each) for name in names if name[:2] != ".." for each in globs):
                yield place


def _changes(name: str, word: str) -> bool:
    """Return whether a word makes a command write or run something although by its name it only reads."""
    option = word.partition("=")[0]
    is_long = option.startswith("--")
    for known in CHANGING.get(name, ()):
        if option.startswith(known) or (is_long and len(option) >= SHORTEST_LONG and known.startswith(option)):
            return True
    is_short = option.startswith("-") and not is_long
    return is_short and any(letter in option for letter in CHANGING_LETTERS.get(name, ""))


def _ours(step: Step) -> list[str] | None:
    """Return the arguments of our own program if a command runs it, whatever precedes it; else None."""
    words, start, first = step.words, step.start, step.program
    if _PYTHON.fullmatch(first) and any("anyplug" in word and " " in word for word in words):
        return ["python"]  # a script that imports us
    if first in READERS or first in MENTIONING or (first == "git" and _git(words)[0] != "submodule"):
        return None
    if first == "command" and words[start + 1 : start + 2] in (["-v"], ["-V"]):
        return None
    for at in range(start, len(words)):
        is_module = words[at - 1 : at] == ["-m"] and words[at].partition(".")[0] == "anyplug"
        if is_module or words[at] == "-manyplug" or words[at].endswith("anyplug/__main__.py"):
            return words[at + 1 :]
        if not _is_our_name(words[at]):
            continue
        rest = words[at + 1 :]
        if at == start:
            return rest
        runs = any(word.rpartition("/")[2] in RUNNERS | syntax.SHELLS for word in words[start:at])
        if runs or next(iter(rest), "") in CHANGING_OURS:
            return rest or ["-"]  # what is read from elsewhere, as by `xargs`, is unknown
    return None


def _is_our_name(word: str) -> bool:
    """Return whether a word is our program, or can be: with globs, or with unknown parts."""
    name = word.rpartition("/")[2].casefold().removesuffix(".exe")
    if name in OURS:
        return True
    pattern = name.replace(UNKNOWN, "*").replace(substitutions.MADE, "*")
    if not any(char in pattern for char in syntax.GLOBS) or len(pattern) > LONGEST_GLOB:
        return False
    literal = len(pattern.translate(dict.fromkeys(map(ord, "*?[]!"))))
    return literal >= FEWEST_KNOWN - 1 and fnmatch.fnmatchcase("anyplug", pattern)


def _is_changing(words: Sequence[str]) -> bool:
    """Return whether words after an unknown program would make ours change something."""
    first = next((word for word in words if not word.startswith("-")), "")
    return first in CHANGING_OURS


def _is_trusting(words: Sequence[str]) -> bool:
    """Return whether words would make our program accept policies, however they are split."""
    parts = " ".join(words).casefold().split()
    return "policy" in parts and bool(TRUSTING & set(parts[parts.index("policy") :]))


def _only_mentions(step: Step) -> bool:
    """Return whether a command treats its arguments as text, and runs none of it."""
    if step.start and any("anyplug" in word for word in step.words[: step.start]):
        return step.start == len(step.words)
    if step.program == "git":
        return step.words[step.start + 1 : step.start + 2] != ["-c"] and _git(step.words)[0] in READING_GIT
    return step.program in READERS or step.program in MENTIONING - {"alias", "hash", "export"}


def _runs_texts(step: Step) -> bool:
    """Return whether a command runs texts that it is passed or fed."""
    names = {word.rpartition("/")[2] for word in step.words[step.start : step.start + MOST_SHOWN]}
    if _only_mentions(step):
        return False
    runners = syntax.SHELLS | syntax.TEXT_RUNNERS | INTERPRETERS | {"xargs", "eval"}
    return bool(names & runners) or any(map(_PYTHON.fullmatch, names))


def _only_looks(words: list[str]) -> bool:
    """Return whether our own program is only told to show something."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, _ = words[at].partition("=")
        if words[at] in HARMLESS_FLAGS:
            return True
        if option not in OUR_OPTIONS and words[at] not in OUR_FLAGS:
            return False
        at += 2 if option in OUR_OPTIONS and not equals else 1
    if at >= len(words):
        return not words  # alone it only prints its usage
    if words[at + 1 : at + 2] and words[at + 1] in HARMLESS_FLAGS:
        return True
    if words[at] == "policy":
        return len(words) > at + 1 and words[at + 1] in READING_POLICY
    return words[at] in READING_OURS and not any(word.startswith("--c") for word in words if words[at] == "jobs")
