"""Which files git would run or read because the configuration of a repository names them, such as `core.hooksPath`.

Reads configurations as text and starts nothing: git itself would run what is written in them. Everything is bounded,
since others write repositories.
"""

import os
from collections.abc import Iterable, Iterator

from anyplug.home import untrusted_files

MOST_FILES, MOST_BYTES = 200, 1 << 18  # configurations of one look, and what of one is read
MOST_DEPTH = 10  # of configurations that include one another, as with git
MOST_WORDS = 200  # of one value
GIT_FILE = "gitdir:"  # how a `.git` that is a file begins
# What a key's last part, or its section, says of the value.
FOLDERS_AND_FILES = frozenset({"hookspath", "templatedir", "attributesfile"})
INCLUDES = frozenset({"include", "includeif"})
COMMAND_SECTIONS = frozenset({"alias", "pager"})
COMMANDS = frozenset(
    """
    alternaterefscommand askpass cccmd clean cmd command defaultkeycommand difffilter driver editor external fsmonitor
    gitproxy headercmd helper packobjectshook pager path process program receivepack sendmailcmd smtpserver smudge
    sshcommand textconv tocmd update uploadpack
""".split()  # noqa: SIM905 - a list of words is read as words
)
HOOKS = """
    applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit post-index-change post-merge
    post-receive post-rewrite post-update pre-applypatch pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase
    pre-receive prepare-commit-msg proc-receive push-to-checkout reference-transaction sendemail-validate update
""".split()  # noqa: SIM905 - as above


def named(repositories: Iterable[str], user: str, variables: dict[str, str]) -> list[str]:
    """List what the configurations of these repositories, and the user's own, name; by absolute paths.

    A repository is given by its `.git`, folder or file, or as a bare one.
    """
    settings = variables.get("XDG_CONFIG_HOME") or os.path.join(user, ".config")
    given = (variables.get("GIT_CONFIG_GLOBAL", ""), variables.get("GIT_CONFIG_SYSTEM", ""))
    usual = (os.path.join(user, ".gitconfig"), os.path.join(settings, "git", "config"), "/etc/gitconfig")
    everywhere = [path for path in (*usual, *given) if os.path.isabs(path)]
    found: dict[str, None] = {}
    left = [MOST_FILES]
    for repository in dict.fromkeys(repositories):
        if (place := _opened(repository)) is None:
            continue
        work, folders = place
        own = [os.path.join(folder, name) for folder in folders for name in ("config", "config.worktree")]
        for path in (*own, *everywhere):
            found |= dict.fromkeys(_of_file(path, work, user, left, 0))
    return list(found)


def above(folder: str) -> Iterator[str]:
    """Yield the repositories that a folder may lie in."""
    while folder not in {"", "/"}:
        yield os.path.join(folder, ".git")
        folder = os.path.dirname(folder)


def _opened(repository: str) -> tuple[str, list[str]] | None:
    """Return the base of relative paths, and the folders with configurations; None if it is not a repository."""
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
    return work, list(dict.fromkeys((os.path.normpath(folder), os.path.normpath(common))))


def _of_file(path: str, work: str, user: str, left: list[int], depth: int) -> list[str]:
    """List what one configuration names, and those that it includes, whatever the conditions are."""
    left[0] -= 1
    if left[0] < 0 or depth > MOST_DEPTH:
        return []
    found = []
    for section, key, value in entries(_text(path)):
        if section in INCLUDES and key == "path":
            included = _path(value, os.path.dirname(path), user)
            found += [included, *_of_file(included, work, user, left, depth + 1)]
        elif key in FOLDERS_AND_FILES:
            named = _path(value, work, user)
            is_around = f"{work}/".startswith(f"{named.rstrip('/')}/")
            found += [os.path.join(named, hook) for hook in HOOKS] if is_around and key == "hookspath" else [named]
        elif section in COMMAND_SECTIONS or key in COMMANDS:
            words = value.lstrip("!").replace('"', " ").replace("'", " ").replace(";", " ").split()[:MOST_WORDS]
            paths = (_path(word, work, user) for word in words if not word.startswith("-"))
            found += [path for path in paths if os.path.isfile(path)]
    return [os.path.normpath(path) for path in found if os.path.isabs(path)]


def _path(text: str, folder: str, user: str) -> str:
    text = user + text[1:] if text == "~" or text.startswith("~/") else text
    return os.path.normpath(os.path.join(folder, text.replace("\0", "")))


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
