"""Paths on disk: where policies are, and where a tool's path really leads."""

import functools
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import anyplug
from anyplug.model.hashes import sha256

FOLDER: Final = ".cupcake"  # of a project
HOME_FOLDER: Final = "policy"  # in our home: the user's policies for every tool of ours, in every project
ACCEPTED: Final = "accepted"  # in our home: copies of projects' policies (see `accepted_copies`)
DEEPEST: Final = 64  # folders above each other whose links are remembered

# The folder that a process runs in, or the root: of a command, ours is another one.
_OF_PROCESS: Final = re.compile(r"/+proc/+[^/]+/+(?:task/+[^/]+/+)?(cwd|root)(?=/|\Z)")

_seen: ContextVar[dict[str, str] | None] = ContextVar("seen", default=None)


def find(start: str, home: str = "") -> str | None:
    """Find the nearest `.cupcake`, from a folder upwards; with `home`, also one that was accepted and is gone now."""
    folder = os.path.abspath(start)
    accepted = _names(os.path.join(home, ACCEPTED)) if home else frozenset[str]()
    while True:
        found = os.path.join(folder, FOLDER)
        if os.path.isdir(found) or (accepted and _key(folder) in accepted):
            return found
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def accepted_folder(home: str, project: str) -> str:
    """Return the folder in our home for what was accepted of a project."""
    return os.path.join(home, ACCEPTED, _key(project))


def _key(project: str) -> str:
    return sha256(os.fsencode(real(project))).hexdigest()[:32]


def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


@contextmanager
def one_look() -> Iterator[None]:
    """Look at each link once, for one event: its words and what is protected from it share most folders."""
    token = _seen.set({})
    try:
        yield
    finally:
        _seen.reset(token)


def real(path: str) -> str:
    """Return what `os.path.realpath` does."""
    seen = _seen.get()
    return os.path.realpath(path) if seen is None else _real(path, seen)


def _real(path: str, seen: dict[str, str]) -> str:
    known = seen.get(path)
    if known is None:
        folder, name = os.path.split(path)
        if name in {"", ".", ".."} or not os.path.isabs(path) or path.count(os.sep) > DEEPEST:
            known = os.path.realpath(path)
        else:
            known = os.path.join(_real(folder, seen), name)
            try:
                is_known_link = stat.S_ISLNK(os.lstat(known).st_mode)
            except OSError:
                is_known_link = False
            known = os.path.realpath(known) if is_known_link else known
        seen[path] = known
    return known


def resolved(path: str, base: str) -> str:
    """Resolve a path relative to a folder, following links as far as they exist."""
    joined = os.path.join(base, path)
    try:
        return real(joined)
    except (OSError, ValueError):  # a zero byte, a name that is too long
        return os.path.normpath(joined)


def expanded(word: str, base: str) -> str:
    """Expand what a shell certainly replaces at the beginning of a word."""
    if not word.startswith(("$", "~")):
        found = _OF_PROCESS.match(word)
        return (base if found[1] == "cwd" else "") + (word[found.end() :] or "/") if found else word
    if word == "~+" or word.startswith("~+/"):
        return base + word[2:]
    for name, value in (("PWD", base), ("HOME", os.path.expanduser("~"))):
        for form in (f"${{{name}}}", f"${name}"):
            if word == form or word.startswith(form + os.sep):
                return value + word[len(form) :]
    return os.path.expanduser(word) if word.startswith("~") else word


@functools.cache
def program_places() -> list[str]:
    """List where our own program is: its package, its metadata, and the commands that start it."""
    package = os.path.dirname(os.path.abspath(anyplug.__file__))
    folders = [os.path.dirname(sys.executable), *os.get_exec_path()]
    commands = [*(os.path.join(folder, "anyplug") for folder in folders), sys.argv[0]]
    named = [command for command in commands if os.path.basename(command) == "anyplug" and os.path.lexists(command)]
    found = [package, *named]
    return list(dict.fromkeys([*map(os.path.abspath, found), *map(os.path.realpath, found)]))


def environment_places(start: str, homes: Sequence[str] = ()) -> list[str]:
    """List the environment that our program runs from, unless it belongs to the project around a folder.

    A folder is that project if a person accepted its policies, or if its repository is older than the environment: an
    agent can make a repository anywhere, also around ours.
    """
    found = dict.fromkeys((os.path.abspath(sys.prefix), real(sys.prefix)))
    root = _project_root(start)
    accepted = [accepted_folder(home, root) for home in homes if os.path.basename(home) != FOLDER]
    is_inside = bool(root) and any(is_within(place, root) for place in found)
    is_shared = is_inside and (any(map(os.path.isdir, accepted)) or _is_older(root))
    return [] if is_shared or sys.prefix == sys.base_prefix else list(found)


def _is_older(root: str) -> bool:
    """Return whether a repository is older than our environment, by times that nobody can set."""
    made = [os.path.join(root, name) for name in (".git/description", ".git")]
    try:
        since = next(os.stat(path).st_ctime_ns for path in made if os.path.lexists(path))
        config = os.path.join(sys.prefix, "pyvenv.cfg")
        return since <= os.stat(config if os.path.lexists(config) else sys.prefix).st_ctime_ns
    except (OSError, StopIteration):
        return False


def _project_root(start: str) -> str:
    """Return the nearest folder upwards with policies or a repository; a home folder is not a project."""
    folder = real(start)
    home = real(os.path.expanduser("~"))
    while not is_within(home, folder):
        if any(os.path.lexists(os.path.join(folder, name)) for name in (FOLDER, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return ""


def is_link(path: str, base: str) -> bool:
    """Return whether a path itself is a symbolic link."""
    try:
        return os.path.islink(os.path.join(base, path))
    except (OSError, ValueError):
        return False


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or inside it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def may_be_there(path: str) -> bool:
    """Return whether something may exist at a path; also if that is not visible, since it may forbid something."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
