"""Git's settings, as a command line gives them and as files hold them, and what its aliases stand for.

`git help config` and `git help git` list where settings come from: options before the command, `git config`, variables,
and files. A value that is not known has UNKNOWN in it; a setting whose name is not known may be any.
"""

import functools
import itertools
import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from anyplug.model.late_patterns import late
from anyplug.policy.paths import expanded, resolved
from anyplug.policy.shell import reading_time
from anyplug.policy.shell.substitutions import MADE, UNKNOWN

VALUED: Final = frozenset(  # git's own options, before its command, whose value is the next word
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source", "--super-prefix"}
)
COMMANDS: Final = frozenset(  # of git: an alias with such a name is ignored
    {
        "add", "am", "annotate", "apply", "archive", "bisect", "blame", "branch", "bundle", "cat-file", "check-attr",
        "check-ignore", "checkout", "checkout-index", "cherry", "cherry-pick", "clean", "clone", "column", "commit",
        "commit-tree", "config", "count-objects", "describe", "diff", "diff-files", "diff-index", "diff-tree",
        "difftool", "fast-export", "fast-import", "fetch", "for-each-ref", "format-patch", "fsck", "gc", "grep",
        "hash-object", "help", "init", "lfs", "log", "ls-files", "ls-remote", "ls-tree", "maintenance", "merge",
        "merge-base", "mergetool", "mv", "name-rev", "notes", "pull", "push", "range-diff", "rebase", "reflog",
        "remote", "repack", "replace", "reset", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog", "show",
        "show-branch", "show-ref", "sparse-checkout", "stage", "stash", "status", "submodule", "subtree", "switch",
        "symbolic-ref", "tag", "update-index", "update-ref", "var", "verify-commit", "verify-tag", "version",
        "whatchanged", "worktree",
    }
)  # fmt: skip
SCOPES: Final = ("config", "config.worktree")  # files in a repository that git reads settings from
SYSTEM: Final = "/etc/gitconfig"
CONFIG_VALUED: Final = ("--file", "--blob", "--type", "--default", "--comment", "--value", "--url")  # of `git config`
CONFIG_READING: Final = ("--get", "--list", "--name-only", "--show-")
CONFIG_COMMANDS: Final = frozenset({"get", "set", "list", "unset", "edit", "rename-section", "remove-section"})
SETTING_VARIABLES: Final = frozenset({"read", "mapfile", "readarray", "printf", "for", "select"})  # without an `=`
SHOWING: Final = frozenset({"grep", "log", "show", "diff"})  # of git
LARGEST: Final = 1 << 18  # bytes of a file with settings
MOST_FILES: Final = 32  # that include each other
MOST_ALIASES: Final = 8  # that stand for each other
_VARIABLE: Final = late(r"GIT_CONFIG_(?:(KEY|VALUE)_(\d+)|(PARAMETERS))(?:=([\s\S]*))?")
_SECTION: Final = late(r'\[\s*([\w.-]+)\s*(?:"((?:\\.|[^"\\])*)"\s*)?\]')
_ENTRY: Final = late(r"([A-Za-z][\w-]*)\s*(?:=\s*(.*))?")
_VALUE: Final = late(r'"((?:\\.|[^"\\])*)"?|\\(.)|([#;].*)|([^"\\#;]+)')
_OPEN: Final = late(rf"[{UNKNOWN}{MADE}*?$]")


class Setting(NamedTuple):
    """One setting: its name, and its value; None if it is removed."""

    key: str
    value: str | None
    lasts: bool = True  # in a file

    def is_about(self, name: str) -> bool:
        """Return whether its name is a name, or begins with one that ends with a dot, or may."""
        known = _OPEN.split(self.key.casefold(), maxsplit=1)[0]
        is_same = known.startswith(name) if name.endswith(".") else known == name
        return is_same or (known != self.key.casefold() and name.startswith(known))

    @property
    def is_known(self) -> bool:
        """Return whether its value can be read."""
        return self.value is not None and UNKNOWN not in self.value and MADE not in self.value


def git_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return git's command and what follows it."""
    at = _command_at(words)
    return (words[at], list(words[at + 1 :])) if at < len(words) else ("", [])


def _command_at(words: Sequence[str]) -> int:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in VALUED else 1
    return at


def gits(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of each git command among words, from `git` on."""
    yield from (list(words[at:]) for at, word in enumerate(words) if word.rpartition("/")[2].casefold() == "git")


def settings(lines: Sequence[Sequence[str]]) -> Iterator[Setting]:
    """Yield what commands, each as its words, set."""
    yield from _of_variables(lines)
    assigned = dict(word.partition("=")[::2] for words in lines for word in words if "=" in word)
    for words in lines:
        reading_time.check()
        for git in gits(words):
            yield from _of_options(git, assigned)
            command, rest = git_command(git)
            if command == "config":
                yield from _configured(rest)


def _of_variables(lines: Sequence[Sequence[str]]) -> Iterator[Setting]:
    keys: dict[str, str] = {}
    values: dict[str, str] = {}
    for words in lines:
        for word in words:
            found = _VARIABLE.fullmatch(word)
            if found is None or (found[4] is None and not _sets_variables(words)):
                continue
            text = UNKNOWN if found[4] is None else found[4]
            if found[3]:
                yield from _of_parameters(text)
            else:
                (keys if found[1] == "KEY" else values)[found[2]] = text
    yield from (Setting(key, values.get(number, UNKNOWN), lasts=False) for number, key in keys.items())


def _sets_variables(words: Sequence[str]) -> bool:
    """Return whether a command may give a value to a variable that it only names; a language's strings are one."""
    return words[0] in SETTING_VARIABLES or any(git_command(git)[0] not in SHOWING for git in gits(words))


def _of_parameters(text: str) -> Iterator[Setting]:
    """Parse GIT_CONFIG_PARAMETERS: quoted texts such as 'core.pager=cat', or 'core.pager'='cat'."""
    try:
        parts = shlex.split(text)
    except ValueError:
        parts = [UNKNOWN]
    for part in parts:
        key, equals, value = part.partition("=")
        yield Setting(key, value if equals or UNKNOWN not in key else UNKNOWN, lasts=False)


def _of_options(git: Sequence[str], assigned: dict[str, str]) -> Iterator[Setting]:
    command_at = _command_at(git)
    is_cloning = git[command_at : command_at + 1] == ["clone"]
    for at, word in enumerate(git):
        option, equals, value = word.partition("=")
        following = "".join(git[at + 1 : at + 2])
        if at > command_at and not is_cloning:
            break
        if word == "-c" or (is_cloning and word == "--config"):
            key, _, value = following.partition("=")
            yield Setting(key, value, lasts=is_cloning)
        elif word.startswith("-c") and equals:
            yield Setting(option[2:], value, lasts=is_cloning)
        elif is_cloning and option == "--config" and equals:
            yield Setting(*value.partition("=")[::2])
        elif option == "--config-env":
            key, _, name = (value if equals else following).rpartition("=")
            yield Setting(key, assigned.get(name, UNKNOWN), lasts=False)


def _configured(rest: Sequence[str]) -> Iterator[Setting]:
    """Yield what `git config` sets, in whatever file."""
    named: list[str] = []
    modes: list[str] = []
    waits = False
    for word in rest:
        option, equals, _ = word.partition("=")
        if waits:
            waits = False
        elif word.startswith("--") and len(word) > len("--"):
            is_valued = len(option) > len("--x") and any(known.startswith(option) for known in CONFIG_VALUED)
            waits = is_valued and not equals
            modes += [] if is_valued else [word]
        elif word.startswith("-") and len(word) > 1:
            before, letter, behind = word[1:].partition("f")
            waits = bool(letter) and not behind
            modes += [f"-{one}" for one in before]
        else:
            named.append(word)
    mode = named.pop(0) if named and named[0] in CONFIG_COMMANDS else ""
    if mode == "edit" or "-e" in modes or any(len(one) > len("--e") and "--edit".startswith(one) for one in modes):
        yield Setting(UNKNOWN, UNKNOWN)
    elif mode in {"get", "list"} or "-l" in modes or any(one.startswith(CONFIG_READING) for one in modes):
        return
    elif mode.endswith("section") or any(one.startswith(("--ren", "--rem")) for one in modes):
        yield from (Setting(f"{name}.", None) for name in named)
    elif mode == "unset" or any(one.startswith("--uns") for one in modes):
        yield from (Setting(key, None) for key in named[:1])
    else:
        yield from itertools.starmap(Setting, itertools.pairwise(named))


def aliased(lines: Sequence[Sequence[str]], folders: Sequence[str]) -> Iterator[str]:
    """Yield what runs if a git command, each in its folder, is an alias that the line or a file makes."""
    told: list[Setting] | None = None
    for words, folder in zip(lines, folders, strict=True):
        for git in gits(words):
            command, rest = git_command(git)
            reading_time.check()
            if not command or command in COMMANDS:
                continue
            told = list(settings(lines)) if told is None else told
            for value in _values(f"alias.{command}", [*told, *stored(folder)]):
                yield from _standing_for(value, rest, [*told, *stored(folder)])


def may_run(name: str, git: Sequence[str], told: Sequence[Setting], folder: str) -> bool:
    """Return whether a git command may be an alias of another one: not if all that it stands for is known."""
    command, _ = git_command(git)
    if command in COMMANDS:
        return command == name
    values = list(_values(f"alias.{command}", [*told, *stored(folder)]))
    return not values or any(value.startswith("!") or value.split()[:1] == [name] for value in values)


def _standing_for(value: str, rest: Sequence[str], known: Sequence[Setting]) -> Iterator[str]:
    for _ in range(MOST_ALIASES):
        if value.startswith("!"):
            yield f"{value[1:]} {shlex.join(rest)}"
            return
        yield f"git {value} {shlex.join(rest)}"
        first, _, behind = value.partition(" ")
        inner = next(_values(f"alias.{first}", known), "")
        if not inner:
            return
        value = f"{inner} {behind}"


def _values(key: str, known: Sequence[Setting]) -> Iterator[str]:
    names = {key.casefold(), f"{key.casefold()}.command"}
    yield from dict.fromkeys(one.value for one in known if one.value and one.is_known and one.key.casefold() in names)


def repository(folder: str) -> str:
    """Return the folder of the repository that a folder belongs to: where its settings and hooks are; empty if none."""
    _, place = work_tree(folder)
    common = _text(os.path.join(place, "commondir")).strip() if place else ""
    return resolved(common, place) if common else place


def work_tree(folder: str) -> tuple[str, str]:
    """Return the top of the work tree that a folder belongs to, and where its index is; empty if there is none."""
    top = folder
    while not os.path.lexists(os.path.join(top, ".git")):
        if top == os.path.dirname(top):
            return "", ""
        top = os.path.dirname(top)
    place = os.path.join(top, ".git")
    return top, place if os.path.isdir(place) else resolved(_text(place).removeprefix("gitdir:").strip(), top)


def files(folder: str) -> list[str]:
    """Return the files that git reads settings from in a folder, whether they are there or not, and what they include.

    Those that a condition includes count in any case.
    """
    inside = repository(folder)
    user = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "git", "config")
    found = [
        SYSTEM,
        user,
        os.path.expanduser("~/.gitconfig"),
        *(os.path.join(inside, name) for name in SCOPES if inside),
    ]
    for path in found:  # it grows
        for one in _parsed(path) if len(found) < MOST_FILES else ():
            is_including = one.is_about("include.path") or one.is_about("includeif.")
            place = resolved(expanded(one.value or "", ""), os.path.dirname(path)) if is_including else path
            found += [] if place in found else [place]
    return found


def stored(folder: str) -> list[Setting]:
    """Return the settings in the files that git reads in a folder."""
    return [one for path in files(folder) for one in _parsed(path)]


def _parsed(path: str) -> Sequence[Setting]:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    is_read = stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST
    return _read(path, found.st_mtime_ns, found.st_size, found.st_ino) if is_read else ()


@functools.lru_cache(maxsize=64)
def _read(path: str, *_state: int) -> tuple[Setting, ...]:
    return tuple(parsed(_text(path)))


def _text(path: str) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST)
    except (OSError, ValueError):
        return ""


def parsed(text: str) -> Iterator[Setting]:
    """Parse a file of git's settings; what is invalid is skipped."""
    section = ""
    for line in text.replace("\\\n", "").split("\n"):
        rest = line.strip()
        while found := _SECTION.match(rest):
            section = found[1] if found[2] is None else f"{found[1]}.{_unescaped(found[2])}"
            rest = rest[found.end() :].strip()
        if found := _ENTRY.match(rest):
            yield Setting(f"{section}.{found[1]}", _plain(found[2]) if found[2] is not None else "true")


def _plain(value: str) -> str:
    made = ""
    for quoted, escaped, comment, bare in _VALUE.findall(value):
        if comment:
            break
        made += _unescaped(quoted) + escaped + bare
    return made.strip()


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
