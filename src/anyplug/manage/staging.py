"""Folders beside the plugins in which something is made ready, and by way of which folders are swapped.

Whoever works in one holds a lock on it. One that nobody has locked was left by a process that was killed: `tidy` puts
back what was moved aside there, and takes the folder away. Knows nothing of what the folders hold.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.location import make_private

PREFIX = ".staging-"

# In such a folder, beside what is made ready under its own name: no plugin's name begins with a dot.
BEFORE = ".before"
FAILED = ".failed"
SWAP = ".swap.json"  # what is replaced
LARGEST_SWAP = 64 << 10  # bytes; it has a path in it


class _Swap(msgspec.Struct, frozen=True):
    """What is replaced, and since when what replaces it is said to be there."""

    path: str
    at: float


@contextmanager
def opened(plugins: str) -> Iterator[str]:
    """Return an empty folder on the same file system, which goes away in any case. Raises OSError."""
    make_private(plugins)
    lock = None
    while lock is None:  # somebody who tidies up may have been faster than our lock
        folder = os.path.join(plugins, f"{PREFIX}{secrets.token_hex(6)}")
        os.mkdir(folder, 0o700)
        lock = _locked(folder, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        with suppress(OSError):
            untrusted_files.remove(folder)
        os.close(lock)


@contextmanager
def swapped(folder: str, path: str, new: str, at: float) -> Iterator[None]:
    """Put a new folder in the place of another, and the one before again if the block raises. Raises OSError.

    `at` is when the new one will be said to have come, by which `tidy` knows whether all was done.
    """
    aside = os.path.join(folder, BEFORE)
    with open(os.path.join(folder, SWAP), "wb") as file:
        file.write(msgspec.json.encode(_Swap(path, at)))
    os.rename(path, aside)
    try:
        os.rename(new, path)
        yield
    except BaseException:
        put_away(folder, path)
        os.rename(aside, path)
        raise


def put_away(folder: str, path: str) -> None:
    """Move what is at a path to where it will be deleted: a file that resists that must not keep the place."""
    if os.path.lexists(path):
        os.rename(path, os.path.join(folder, FAILED))


def tidy(plugins: str, came_at: Callable[[str], float | None]) -> list[str]:
    """Take away what killed processes left, and give the paths of what is in its place again.

    `came_at` says when what is at a path is said to have come.
    """
    try:
        names = sorted(os.listdir(plugins))
    except OSError:
        return []
    left = [os.path.join(plugins, name) for name in names if name.startswith(PREFIX)]
    return [path for folder in left if (path := _tidied(folder, came_at))]


def _tidied(folder: str, came_at: Callable[[str], float | None]) -> str:
    """Take one folder away, unless a process works in it; give the path of what was put back."""
    lock = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if lock is None:
        return ""
    try:
        path = _put_back(folder, came_at)
        with suppress(OSError):
            untrusted_files.remove(folder)
    except OSError:
        return ""  # it stays: it may hold the only copy
    finally:
        os.close(lock)
    return path


def _put_back(folder: str, came_at: Callable[[str], float | None]) -> str:
    """Undo a swap that was cut short; give the path that it was about, if there was one."""
    swap, aside = _swap_in(folder), os.path.join(folder, BEFORE)
    if swap is None or not os.path.lexists(aside):
        return ""
    if os.path.lexists(swap.path):
        if came_at(swap.path) == swap.at:
            return ""  # it was done, but for what was moved aside
        put_away(folder, swap.path)
    os.rename(aside, swap.path)
    return swap.path


def _swap_in(folder: str) -> _Swap | None:
    try:
        with untrusted_files.hold(folder) as held:
            return msgspec.json.decode(held.read(SWAP, LARGEST_SWAP), type=_Swap)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _locked(folder: str, how: int) -> int | None:
    """Lock a folder; None if somebody else has it, or if it is gone."""
    try:
        lock = os.open(folder, untrusted_files.FOLDER)
    except OSError:
        return None
    try:
        fcntl.flock(lock, how)
        if os.path.samestat(os.fstat(lock), os.lstat(folder)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
