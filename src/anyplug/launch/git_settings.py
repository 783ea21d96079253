"""Which files git would run or read because the configuration of a repository names them, such as `core.hooksPath`.

Reads configurations as text and starts nothing: git itself would run what is written in them. Everything is bounded,
since others write repositories.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from anyplug.home import untrusted_files
from anyplug.launch import command_paths
from anyplug.launch.command_paths import CommandPaths
from anyplug.model.late_patterns import late

MOST_FILES, MOST_BYTES = 200, 1 << 18  # configurations of one look, and what of one is read
MOST_DEPTH = 10  # of configurations that include one another, as with git
GIT_FILE = "gitdir:"  # how a `.git` that is a file begins
# What a key's last part, or its section, says of the value.
FOLDERS_AND_FILES = frozenset({"hookspath", "templatedir", "attributesfile"})
INCLUDES = frozenset({"include", "includeif"})
COMMAND_SECTIONS = frozenset({"alias", "pager"})
COMMANDS = frozenset(
    """
    alternaterefscommand args askpass browser cccmd clean cmd command defaultkeycommand difffilter driver editor
    external fsmonitor gitproxy headercmd helper httpd packobjectshook pager path process program receivepack
    recentobjectshook sendmailcmd smtpserver smudge sshcommand textconv tocmd tunnel update uploadpack
""".split()  # noqa: SIM905 - a list of words is read as words
)
HOOKS = """
    applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit post-index-change post-merge
    post-receive post-rewrite post-update pre-applypatch pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase
    pre-receive prepare-commit-msg proc-receive push-to-checkout reference-transaction sendemail-validate update
""".split()  # noqa: SIM905 - as above


# What git itself writes in its folder; a command that reads it must not keep git from working.
GITS_OWN = late(r"(?:refs|logs|objects|index|packed-refs|shallow|[A-Z_]+)(?:/.*)?", re.DOTALL)


class Repository(NamedTuple):
    """Where a repository lies: where its work tree should be, and its folders with configurations."""

    work: str
    folders: list[str]


def named(repositories: Iterable[str], user: str, variables: dict[str, str]) -> list[str]:
    """List what the configurations of these repositories, and the user's own, name; by absolute paths.

    A repository is given by its `.git`, folder or file, or as a bare one. What exists comes first.
    """
    settings = variables.get("XDG_CONFIG_HOME") or os.path.join(user, ".config")
    given = (variables.get("GIT_CONFIG_GLOBAL", ""), variables.get("GIT_CONFIG_SYSTEM", ""))
    usual = (os.path.join(user, ".gitconfig"), os.path.join(settings, "git", "config"), "/etc/gitconfig")
    everywhere = [path for path in (*usual, *given) if os.path.isabs(path)]
    found: dict[str, None] = {}
    left = [MOST_FILES]
    commands = CommandPaths(user)
    for repository in dict.fromkeys(repositories):
        if (place := _opened(repository)) is None:
            continue
        own = [os.path.join(folder, name) for folder in place.folders for name in ("config", "config.worktree")]
        read = [entry for path in (*own, *everywhere) for entry in _of_file(path, user, left, 0)]
        found |= dict.fromkeys(_named_in(read, place, user, commands))
    return sorted(found, key=lambda path: not os.path.lexists(path))


def above(folder: str) -> Iterator[str]:
    """Yield the repositories that a folder may lie in."""
    while folder not in {"", "/"}:
        yield os.path.join(folder, ".git")
        folder = os.path.dirname(folder)


def _opened(repository: str) -> Repository | None:
    """Return where a repository lies; None if it is not one."""
    work = os.path.dirname(repository) if os.path.basename(repository) == ".git" else repository
    folder = repository
    if os.path.isfile(repository):
        text = _text(repository)
        if not text.startswith(GIT_FILE):
            return None
        folder = os.path.join(work, text.removeprefix(GIT_FILE).strip())
    if not os.path.isdir(folder):
        return None
    common = os.path.join(folder, _text(os.path.join(folder, "commondir")).strip() or ".")
    return Repository(work, list(dict.fromkeys((os.path.normpath(folder), os.path.normpath(common)))))


class _Entry(NamedTuple):
    section: str
    key: str
    value: str
    folder: str  # of its configuration


def _of_file(path: str, user: str, left: list[int], depth: int) -> list[_Entry]:
    """Return the entries of a configuration, and of those that it includes, whatever the conditions are."""
    left[0] -= 1
    if left[0] < 0 or depth > MOST_DEPTH:
        return []
    folder = os.path.dirname(path)
    found = [_Entry(section, key, value, folder) for section, key, value in entries(_text(path))]
    for entry in tuple(found):
        if entry.section in INCLUDES and entry.key == "path":
            found += _of_file(command_paths.path(entry.value, folder, user), user, left, depth + 1)
    return found


def _named_in(read: list[_Entry], place: Repository, user: str, commands: CommandPaths) -> list[str]:
    """List what these entries name, wherever git may begin: in each work tree that they set, and in its own folder."""
    moved = [
        command_paths.path(entry.value, folder, user)
        for entry in read
        if (entry.section, entry.key) == ("core", "worktree")
        for folder in place.folders
    ]
    trees = list(dict.fromkeys((place.work, *moved)))
    found = []
    for section, key, value, folder in read:
        if section in INCLUDES and key == "path":
            found.append(command_paths.path(value, folder, user))
        elif key in FOLDERS_AND_FILES:
            for begin in (*trees, *place.folders):
                named = command_paths.path(value, begin, user)
                is_around = any(f"{inner}/".startswith(f"{named.rstrip('/')}/") for inner in (*trees, *place.folders))
                found += [os.path.join(named, hook) for hook in HOOKS] if is_around and key == "hookspath" else [named]
        elif section in COMMAND_SECTIONS or key in COMMANDS:
            found += commands.all(value, trees)
            # Hooks of a push, and commands that serve one, begin in git's own folder.
            found += [os.path.join(own, value) for own in place.folders if "/" in value and not os.path.isabs(value)]
        else:
            found += commands.existing(value, trees)
    return [path for path in map(os.path.normpath, found) if os.path.isabs(path) and not _is_gits_own(path, place)]


def _is_gits_own(path: str, place: Repository) -> bool:
    own = [os.path.relpath(path, folder) for folder in place.folders if path.startswith(f"{folder}/")]
    return any(GITS_OWN.fullmatch(name) for name in own)


def _text(path: str) -> str:
    try:
        return untrusted_files.head(path, MOST_BYTES).decode(errors="surrogateescape")
    except OSError:
        return ""


def entries(text: str) -> list[tuple[str, str, str]]:
    """Read a configuration: its section without the part in quotes, the key, both in small letters, and the value."""
    found: list[tuple[str, str, str]] = []
    section = ""
    rest = text.replace("\r\n", "\n").removeprefix("\ufeff")
    while rest:
        rest = rest.lstrip()
        if rest.startswith("["):
            header, rest = _header(rest)
            section = header.split('"', 1)[0].split(".", 1)[0].strip().lower()
            continue
        if rest.startswith(("#", ";")):
            rest = rest.partition("\n")[2]
            continue
        ends = [at for at in (rest.find("="), rest.find("\n")) if at >= 0]
        end = min(ends, default=len(rest))
        key, value = rest[:end].strip().lower(), ""
        if rest[end : end + 1] == "=":
            value, rest = _value(rest[end + 1 :])
        else:
            rest = rest[end + 1 :]
        if key:
            found.append((section, key, value))
    return found


def _header(text: str) -> tuple[str, str]:
    """Split a section's header from what follows: brackets may stand in its part in quotes."""
    is_quoted, at = False, 1
    while at < len(text) and text[at] != "\n" and (is_quoted or text[at] != "]"):
        if text[at] == "\\":
            at += 1
        elif text[at] == '"':
            is_quoted = not is_quoted
        at += 1
    return text[1:at], text[at + 1 :]


def _value(text: str) -> tuple[str, str]:
    """Split a value from what follows, without quotes, escapes, comments and the ends of lines that go on."""
    found, is_quoted, at = [], False, 0
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            following = text[at + 1 : at + 2]
            found.append({"\n": "", "n": "\n", "t": "\t", "b": "\b"}.get(following, following))
            at += 2
            continue
        if letter == '"':
            is_quoted = not is_quoted
        elif letter == "\n" or (letter in "#;" and not is_quoted):
            break
        else:
            found.append(letter)
        at += 1
    return "".join(found).strip(), text[at:].partition("\n")[2]
