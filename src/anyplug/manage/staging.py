"""Staging folders next to the plugins, in which new versions are prepared and swapped in.

The process that works in one holds a lock on it. An unlocked one was left by a killed process: `tidy` restores what was
moved aside there, and removes the folder. Knows nothing about the folders' content.
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

# In a staging folder, next to what is prepared under its own name: no plugin's name begins with a dot.
BEFORE = ".before"
FAILED = ".failed"
SWAP = ".swap.json"  # describes what is replaced
LARGEST_SWAP = 64 << 10  # bytes; it contains a path


class _Swap(msgspec.Struct, frozen=True):
    """What is replaced, and the recorded time of its replacement."""

    path: str
    at: float


@contextmanager
def opened(plugins: str) -> Iterator[str]:
    """Yield an empty folder on the same file system, which is removed in any case. Raises OSError."""
    make_private(plugins)
    lock = None
    while lock is None:  # another process's `tidy` may have been faster than our lock
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
    """Replace a folder by a new one; restore the previous one if the block raises. Raises OSError.

    `at` will be recorded as the new one's time of arrival, from which `tidy` knows whether the swap was completed.
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
    """Move what is at a path to where it will be deleted: a file that resists deletion must not block the path."""
    if os.path.lexists(path):
        os.rename(path, os.path.join(folder, FAILED))


def tidy(plugins: str, came_at: Callable[[str], float | None]) -> list[str]:
    """Remove what killed processes left; return the paths that were restored.

    `came_at` returns the recorded time of arrival for a path.
    """
    try:
        names = sorted(os.listdir(plugins))
    except OSError:
        return []
    left = [os.path.join(plugins, name) for name in names if name.startswith(PREFIX)]
    return [path for folder in left if (path := _tidied(folder, came_at))]


def _tidied(folder: str, came_at: Callable[[str], float | None]) -> str:
    """Remove one folder, unless a process works in it; return the path of what was restored."""
    lock = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if lock is None:
        return ""
    try:
        path = _put_back(folder, came_at)
        with suppress(OSError):
            untrusted_files.remove(folder)
    except OSError:
        return ""  # keep it: it may contain the only copy
    finally:
        os.close(lock)
    return path


def _put_back(folder: str, came_at: Callable[[str], float | None]) -> str:
    """Undo an incomplete swap; return its path, if there was one."""
    swap, aside = _swap_in(folder), os.path.join(folder, BEFORE)
    if swap is None or not os.path.lexists(aside):
        return ""
    if os.path.lexists(swap.path):
        if came_at(swap.path) == swap.at:
            return ""  # it was complete, except for what was moved aside
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
    """Lock a folder; None if another process holds it, or if it is gone."""
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
