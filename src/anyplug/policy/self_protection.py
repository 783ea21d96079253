"""The rule that is always on: an agent must not change the policies that bind it, what asks them, or our database.

Tools that write are seen by where their files really are (see `tool_changes`); shell commands by the paths and words in
them, as far as these can be read (see `shell.line_changes`). What is not fully known of a word is a pattern (see
`word_patterns`): a command that may write is refused if it may stand for something protected and some literal part of
it says so. A command that only reads is let through. What else a program does that a command starts is not seen here.
For that there are the accepted copies of policies (`accepted_copies`), the folders' permissions and the sandbox of
plugins.
"""

import fnmatch
import functools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from anyplug.model import foreign_patterns
from anyplug.model.late_patterns import late
from anyplug.policy import tool_changes
from anyplug.policy.agent_events import Event
from anyplug.policy.decisions import Finding
from anyplug.policy.opencode.installation import NAME as GATE
from anyplug.policy.paths import FOLDER, environment_places, is_within, program_places, real
from anyplug.policy.shell import program_texts, reading_time, substitutions, syntax, told_texts, word_patterns
from anyplug.policy.shell.command_steps import LONGEST_GLOB, MOST_SHOWN, Line, Step
from anyplug.policy.shell.found_files import SEARCHING
from anyplug.policy.shell.git_configuration import git_command
from anyplug.policy.shell.guarded_places import Change, Guarded, lies_in
from anyplug.policy.shell.reading_commands import READERS, READING_GIT
from anyplug.policy.shell.syntax import UNKNOWN

RULE: Final = "ANYPLUG-SELF-PROTECTION"
READING_OURS: Final = frozenset(
    {
        "list", "ls", "tools", "show", "audit", "logs", "jobs", "check", "doctor", "eval", "status", "ps", "completion",
        "results", "search", "outdated",
    }
)  # fmt: skip
CHANGING_WORDS: Final = {"jobs": ("--c",), "audit": ("prune", "--reseal")}  # with which these change something
READING_POLICY: Final = frozenset({"validate", "inspect", "test", "explain", "replay"})
CHANGING_OURS: Final = frozenset(  # the others, by which our program is recognised behind unknown words
    {
        "call", "chain", "run", "mcp", "serve", "stop", "approve", "deny", "revoke", "grant", "ungrant", "learn",
        "enable", "disable", "install", "update", "remove", "rm", "uninstall", "leftovers", "reload", "config",
        "secret", "connect", "export", "new", "policy", "demo", "chat", "ask", "ui", "try", "fleet", "worker",
        "dev", "test", "login",
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
USUAL_NAMES: Final = ("rulebook.yml", "evaluate.rego", "settings.toml")
FEWEST_KNOWN: Final = 3  # characters next to an unknown value by which our program is recognised
GATES: Final = (
    ".claude/settings.json", ".claude/settings.local.json", ".codex/hooks.json", ".codex/config.toml", ".opencode",
    "opencode.json", "opencode.jsonc",
)  # fmt: skip
TRUSTING: Final = frozenset({"trust", "init"})
KILLING: Final = frozenset({"kill", "pkill", "killall", "skill", "killall5", "fuser"})
SERVICES: Final = frozenset({"systemctl", "launchctl", "service", "supervisorctl", "pm2"})
SERVING: Final = frozenset(  # what they are told to do to a program
    {"stop", "kill", "disable", "mask", "restart", "unload", "bootout", "remove", "delete", "revert", "edit"}
)
FINDING: Final = frozenset({"pgrep", "pidof"})  # whose output names processes
OUR_PROCESSES: Final = ("anyplug",)
OUR_COMMAND: Final = "python3 -m anyplug serve"
RENAMING: Final = frozenset({"alias", "hash", "ln", "cp", "install", "mv", "link", "function"})
INTERPRETERS: Final = frozenset(  # run texts in other languages, which can start commands
    {
        "awk", "gawk", "mawk", "nawk", "perl", "node", "nodejs", "bun", "deno", "ruby", "php", "lua", "luajit", "tclsh",
        "make", "gmake", "ed", "ex", "vi", "vim", "nvim", "emacs", "gdb", "Rscript", "osascript", "pwsh", "just",
    }
)  # fmt: skip
OWN_FOLDER: Final = "cupcake"  # of the user's policies for all projects
FREE: Final = ("files", "data", "cache")  # of our own folder: what plugins write, and pass to each other
# What makes Claude Code, Codex and OpenCode ask us: an agent that changes it is no longer asked about.
_GATE: Final = late(
    r"(?:^|[^\w.-])\.claude/settings[^/\s]*\.json|(?:^|[^\w.-])\.opencode(?![\w.-])|\.config/opencode(?![\w.-])"
    r"|(?:^|[^\w.-])opencode\.jsonc?(?![\w.-])|(?:^|[^\w.-])\.codex/(?:hooks\.json|config\.toml)"
)
_COMMON: Final = ("run", "call", "new", "config", "update", "export", "dev", "test", "login")  # words of other programs
_CALLING: Final = late(  # our program, options, and a command that changes something
    r"(?:anyplug|cupcake)(?:\.exe)?[\s,;()\[\]{}:!]+(?:-[^\s,()\[\]{}]*[\s,()\[\]{}]+(?:[/~.][^\s,]*[\s,]+)?)*"
    r"(?:policy(?:[\s,]+-[^\s,]*)*[\s,]+(?:trust|init)"
    rf"|(?:{'|'.join(sorted(CHANGING_OURS - {'policy', *_COMMON}))})\b"
    rf"|(?:{'|'.join(_COMMON)})[\s,]+[\w-])"
)
_UNINSTALLING: Final = late(r"\b(?:uninstall|remove|purge|erase)\b|\b(?:force-reinstall|downgrade)\b")
_INSTALLING: Final = late(r"\b(?:pip[0-9.]*|uv|pipx|conda|poetry|pdm|easy_install)\b")
_BUILDING: Final = late(r"-m venv\b|\buv venv\b|\bvirtualenv\b|\bensurepip\b")
_PROGRAM: Final = late(r"/(?:bin/(?:anyplug|cupcake)$|(?:site|dist)-packages/anyplug(?:-[^/]*)?(?:/|$))")
_PACKAGE: Final = late(r"anyplug(?:[\[=<>~!@].*)?", re.IGNORECASE)
_SIGNAL: Final = late(r"-(?:SIG)?[A-Z][A-Z0-9]{2,}")
_ALL: Final = late(r"-0*1")  # every process that there is
_BY_USER: Final = late(r"-[A-Za-z]*[uUgG]|--(?:eu|u|g)")
_WHOLE: Final = late(r"-[A-Za-z]*f|--full")
_VALUED_KILLING: Final = late(r"-[A-Za-z]*[uUgGPstFdon]|--(?:signal|euid|uid|group|parent|session|terminal|user)")
_PYTHON: Final = late(r"python[0-9.]*|pypy[0-9.]*")
_BRACES: Final = late(r"\{[^{}]*\}")


def finding(event: Event, protected: Sequence[str]) -> Finding | None:
    """Return how an event would change something protected; None if it would not."""
    what = next(tool_changes.changes(event, OwnFiles(event.cwd, protected, tool_changes.folders(event))), "")
    if not what:
        return None
    cure = f". {what.cure}" if isinstance(what, Change) and what.cure else ""
    what = what.replace(UNKNOWN, "…").replace(substitutions.MADE, "…")
    return Finding(
        verb="deny",
        reason=f"an agent may not change the policies that bind it, nor anyplug's own files ({what}){cure}",
        rule_id=RULE,
        severity="CRITICAL",
        policy="self_protection",
        file="builtin/self_protection",
        row=1,
    )


class OwnFiles(Guarded):
    """The policies, our store, the files by which agents ask us, and our program."""

    names = USUAL_NAMES

    def __init__(self, cwd: str, protected: Sequence[str], folders: Sequence[str] = ()) -> None:
        self.folders = protected
        self._environment = environment_places(cwd, protected)  # that our program runs from, if it is its own
        self.held = list(dict.fromkeys((*protected, *_gates(cwd, protected), *self._environment)))
        gates = (place for folder in (cwd, *folders) for place in _gate_places(folder, protected))
        self.places = list(dict.fromkeys((*self.held, *gates)))

    def covers(self, path: str) -> bool:
        """Return whether a path is of the policies, the store or the gates."""
        reading_time.check()
        lower = path.casefold()
        parts = lower.split(os.sep)
        if FOLDER in parts or parts[-1] == GATE or _GATE.search(lower):
            return True
        return any(lies_in(path, folder) and not self.is_free(path, folder) for folder in self.folders)

    def is_written(self, path: str) -> bool:
        """Return whether a path is one of these, or of our own program: the one that runs, or another one."""
        if self.covers(path) or _PROGRAM.search(path):
            return True
        return any(is_within(path, place) for place in (*program_places(), *self._environment))

    def is_replaced(self, path: str) -> bool:
        """Return whether a path is one of these here, and not in a project that lies elsewhere."""
        if any(is_within(path, place) and not self.is_free(path, place) for place in self.places):
            return True
        projects = [os.path.dirname(place) for place in self.folders if os.path.basename(place) == FOLDER]
        return any(is_within(path, project) for project in projects) and self.covers(path)

    def is_free(self, path: str, place: str) -> bool:
        """Return whether a path is what plugins write, and hand to each other."""
        if os.path.basename(place) == OWN_FOLDER:
            return False
        parts, depth = path.split(os.sep), len(place.split(os.sep))
        return parts[depth : depth + 1] != [] and parts[depth] in FREE

    def is_named(self, word: str) -> bool:
        """Return whether a word mentions one of these, or may."""
        lower = word.casefold()
        if FOLDER in lower or GATE in lower or _GATE.search(lower) or any(folder in word for folder in self.folders):
            return True
        return any(_may_be_folder(part) for part in lower.split(os.sep))

    def mentions(self, text: str) -> Iterator[str]:
        """Name which of these a text mentions."""
        text = syntax.plain(text)
        yield from (name for name in (FOLDER, GATE, *OURS) if name in text)
        yield from (found[0] for found in [_GATE.search(text)] if found)
        yield from (folder for folder in self.folders if folder.casefold() in text)

    def may_hold(
        self, given: str, path: str, place: str, *, removes: bool = False, has_moved: bool = False, has_dots: bool
    ) -> bool:
        """Return whether a word that is not fully known may stand for one of these."""
        return word_patterns.may_be(given, path, place, removes=removes, has_moved=has_moved, has_dots=has_dots)

    def may_come(self, place: str, guarded: str) -> bool:
        """Return whether a copy from an unknown source may bring one of these: into a person's own folders."""
        is_of_project = word_patterns.is_of_project(guarded)
        return os.path.basename(place) in {".claude", ".codex"} or (
            not is_of_project and is_within(place, os.path.expanduser("~"))
        )

    def only_reads(self, step: Step) -> bool | None:
        """Return whether our own program is only told to show something; None of every other program."""
        rest = _ours(step)
        return None if rest is None else _only_looks(rest)

    def also_changed(self, line: Line, _folder: str) -> Iterator[str]:  # noqa: C901 - one branch for each way
        """Yield the commands that run our program, or may, to change something."""
        text = syntax.plain(line.text)
        is_mentioned = any(name in text for name in OURS) or any(
            name in word.casefold() for step in line.steps for word in step.words for name in OURS
        )
        renamed: set[str] = set()
        for step in line.steps:
            reading_time.check()
            words, shown = step.words, " ".join(step.words[:MOST_SHOWN])
            rest = _ours(step)
            if rest is not None and not _only_looks(rest):
                yield shown
            behind = words[step.start + 1 :]
            if self._uninstalls(step, line):
                yield shown
            is_unknown = word_patterns.is_unknown(step.program) or step.program[:1] in {"", "$", "{"}
            if is_unknown and (_is_trusting(behind) or (is_mentioned and _is_changing(behind))):
                yield shown
            if self._kills(step, line, is_mentioned=is_mentioned) or _runs_found(step, is_mentioned=is_mentioned):
                yield shown
            if _makes_our_name(step, line) or _runs_made(step, line):
                yield shown
            if not is_mentioned:
                continue
            if step.program in renamed and not _only_looks(behind):
                yield shown
            if step.program in RENAMING:
                renamed.update(word.partition("=")[0].rpartition("/")[2] for word in behind)
            if (
                rest is None
                and not _only_mentions(step)
                and _CALLING.search(syntax.plain(" ".join((*words[:1], *step.files))))
            ):
                yield shown
        if is_mentioned and _CALLING.search(text) and any(_runs_texts(step) for step in line.steps):
            yield "anyplug"

    def _kills(self, step: Step, line: Line, *, is_mentioned: bool) -> bool:
        """Return whether a command ends our processes: by a pattern that fits them, or together with all others."""
        words = [word for word in step.words if not _SIGNAL.fullmatch(word)]
        if (KILLING | SERVICES | FINDING | SEARCHING).isdisjoint(word.rpartition("/")[2] for word in words):
            return False
        finding_programs = FINDING | (SEARCHING if any(one.program == "ps" for one in line.steps) else set())
        ending = KILLING | SERVICES | finding_programs
        at = next((at for at, word in enumerate(words) if word.rpartition("/")[2] in ending), -1)
        if at < 0 or (at != step.start and step.program not in syntax.PREFIXES):
            return False
        name, behind = words[at].rpartition("/")[2], words[at + 1 :]
        if name in SERVICES:
            return is_mentioned and not SERVING.isdisjoint(behind)
        if name in finding_programs and not any(KILLING & set(one.words) for one in line.steps):
            return False
        if name == "killall5" or (name == "kill" and any(map(_ALL.fullmatch, step.words[at + 2 :]))):
            return True
        if name in KILLING and is_mentioned:
            return True
        patterns = _process_patterns(behind)
        if name in {"kill", "fuser"}:
            return False
        if not patterns:
            return any(map(_BY_USER.match, behind))
        told = (*OUR_PROCESSES, OUR_COMMAND) if any(map(_WHOLE.match, behind)) else OUR_PROCESSES
        return any(_matches(pattern, process) for pattern in patterns for process in told)

    def _uninstalls(self, step: Step, line: Line) -> bool:
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
        lists = any({"freeze", "list"} & set(one.words) for one in line.steps)
        is_listed = "<" in line.text and any(word in {"-r", "--requirement"} for word in words)
        mentions = any(_PACKAGE.fullmatch(word) for one in line.steps for word in one.words)
        return (lists and (step.has_output or "xargs" in words or is_listed)) or (is_listed and mentions)


def _gates(cwd: str, protected: Sequence[str]) -> list[str]:
    """List our own program and the files through which agents ask us: not to be removed with their folders."""
    found = [real(place) for place in _gate_places(cwd, protected) if os.path.lexists(place)]
    return [*found, *program_places()]


def _gate_places(cwd: str, protected: Sequence[str]) -> list[str]:
    """List where the files through which agents ask us are, or would be."""
    return _places_of_gates(cwd, tuple(protected), os.path.expanduser("~"))


@functools.lru_cache(maxsize=64)  # each event asks for them several times
def _places_of_gates(cwd: str, protected: tuple[str, ...], user: str) -> list[str]:
    folders = {cwd, *(os.path.dirname(folder) for folder in protected if os.path.basename(folder) == FOLDER)}
    places = [os.path.join(folder, name) for folder in (*folders, user) for name in GATES]
    return [*places, os.path.join(user, ".config", "opencode")]


def _may_be_folder(part: str) -> bool:
    """Return whether a part of a path can match the folder of policies."""
    if word_patterns.is_unknown(part):
        return word_patterns.is_told(part, FOLDER)
    if "{" in part and "," in part:
        part = _BRACES.sub("*", part)
    is_glob = "*" in part or "?" in part or "[" in part
    return is_glob and part.startswith((".", "[", "?")) and (len(part) > LONGEST_GLOB or fnmatch.fnmatch(FOLDER, part))


def _ours(step: Step) -> list[str] | None:
    """Return the arguments of our own program if a command runs it, whatever precedes it; else None."""
    words, start, first = step.words, step.start, step.program
    if _PYTHON.fullmatch(first) and any("anyplug" in word and " " in word for word in words):
        return ["python"]  # a script that imports us
    if first in READERS or first in MENTIONING or (first == "git" and git_command(words)[0] != "submodule"):
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


def _runs_found(step: Step, *, is_mentioned: bool) -> bool:
    """Return whether `find` or `xargs` runs a file that they find with arguments that make anyplug change something."""
    at = next((at for at, word in enumerate(step.words) if word == "{}" or UNKNOWN in word[:1]), -1)
    if at < 1 or step.program not in {"find", "fd", "xargs"}:
        return False
    behind = step.words[at + 1 :]
    return _is_trusting(behind) or (is_mentioned and _is_changing(behind))


def _runs_made(step: Step, line: Line) -> bool:
    """Return whether a shell is fed a text that the line computes in a way that nobody can read."""
    is_fed = step.program in syntax.SHELLS and all(word.startswith("-") for word in step.words[step.start + 1 :])
    return is_fed and any(substitutions.MADE in text for text in line.printed)


def _makes_our_name(step: Step, line: Line) -> bool:
    """Return whether a program in another language is about our package, by whatever pieces it makes the name of."""
    if not _PYTHON.fullmatch(step.program) and step.program not in told_texts.LANGUAGES:
        return False
    is_fed = len(step.words) == step.start + 1 or "-" in step.words
    text = "\n".join((*step.words[step.start + 1 :], *(line.printed if is_fed else ())))
    pieces = program_texts.pieces(text)
    is_python = bool(_PYTHON.fullmatch(step.program))
    return (is_fed and is_python and "anyplug" in text) or any(program_texts.composed(pieces, OURS))


def _process_patterns(words: Sequence[str]) -> list[str]:
    """Return the patterns that `pkill` and its like are given."""
    return [
        word
        for at, word in enumerate(words)
        if not word.startswith("-") and not (at and _VALUED_KILLING.fullmatch(words[at - 1]))
    ]


def _matches(pattern: str, process: str) -> bool:
    """Return whether a pattern finds a process; one that nobody can read does."""
    known = word_patterns.known(pattern)
    if word_patterns.is_unknown(pattern):
        return len(known) >= FEWEST_KNOWN and known in process
    try:
        return len(pattern) > LONGEST_GLOB or foreign_patterns.is_found(pattern, process)
    except foreign_patterns.BadPattern:
        return pattern in process or ("(?" in pattern or "\\" in pattern)


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
        return step.words[step.start + 1 : step.start + 2] != ["-c"] and git_command(step.words)[0] in READING_GIT
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
    changing = CHANGING_WORDS.get(words[at], ())
    return words[at] in READING_OURS and not any(word.startswith(changing) for word in words if changing)
