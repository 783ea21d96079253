"""Staging folders next to the plugins, in which new versions are prepared and swapped in, and old ones are deleted.

The process that works in one holds a lock on it. An unlocked one was left by a killed process: `tidy` undoes an install
or update that was not recorded, finishes a removal, and removes the folder. Knows nothing about the folders' content.
"""

import fcntl
import os
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
REMOVAL = ".removal.json"  # describes what is removed, for who finishes it
LARGEST_SWAP = 64 << 10  # bytes; it contains a path
LARGEST_REMOVAL = 1 << 20


class _Swap(msgspec.Struct, frozen=True):
    """What is replaced, and the recorded time of its replacement."""

    path: str
    about: bytes  # the new one, for who records it
    is_new: bool = False  # nothing was there before


IsDone = Callable[[str, bytes], bool]


class Left(msgspec.Struct, frozen=True):
    """What `tidy` did about one folder: it restored or took away what is at a path, or a removal is to be finished."""

    path: str
    is_restored: bool = False
    removal: bytes = b""


@contextmanager
def opened(plugins: str) -> Iterator[str]:
    """Yield an empty folder on the same file system, which is removed in any case. Raises OSError."""
    make_private(plugins)
    lock = None
    while lock is None:  # another process's `tidy` may have been faster than our lock
        folder = os.path.join(plugins, f"{PREFIX}{os.urandom(6).hex()}")
        os.mkdir(folder, 0o700)
        lock = _locked(folder, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        with suppress(OSError):
            untrusted_files.remove(folder)
        os.close(lock)


@contextmanager
def swapped(folder: str, path: str, new: str, about: bytes) -> Iterator[None]:
    """Replace a folder by a new one; restore the previous one if the block raises. Raises OSError.

    If the process is killed, `tidy` asks with `about` whether the swap was completed.
    """
    aside = os.path.join(folder, BEFORE)
    _write(folder, SWAP, msgspec.json.encode(_Swap(path, about)))
    os.rename(path, aside)
    try:
        os.rename(new, path)
        yield
    except BaseException:
        put_away(folder, path)
        os.rename(aside, path)
        raise


@contextmanager
def placed(folder: str, path: str, new: str, about: bytes) -> Iterator[None]:
    """Put a new folder where nothing is; take it away again if the block raises. `about` is as in `swapped`."""
    _write(folder, SWAP, msgspec.json.encode(_Swap(path, about, is_new=True)))
    os.rename(new, path)
    try:
        yield
    except BaseException:
        put_away(folder, path)
        raise


@contextmanager
def taken_out(folder: str, path: str, about: bytes) -> Iterator[None]:
    """Move what is at a path to where it will be deleted, in one step; put it back if the block raises.

    If the process is killed, `tidy` returns `about`, for who finishes the removal. Raises OSError.
    """
    _write(folder, REMOVAL, about)
    aside = os.path.join(folder, BEFORE)
    os.rename(path, aside)
    try:
        yield
    except BaseException:
        os.rename(aside, path)
        raise


def put_away(folder: str, path: str) -> None:
    """Move what is at a path to where it will be deleted: a file that resists deletion must not block the path."""
    if os.path.lexists(path):
        os.rename(path, os.path.join(folder, FAILED))


def names(plugins: str) -> list[str]:
    """List the staging folders, which are in use or were left by killed processes."""
    try:
        return sorted(name for name in os.listdir(plugins) if name.startswith(PREFIX))
    except OSError:
        return []


def tidy(plugins: str, is_done: IsDone, finish: Callable[[bytes], None]) -> Iterator[Left]:
    """Remove what killed processes left, and yield what was done about it.

    `is_done` tells whether what is at a path counts as installed; `finish` completes a removal.
    """
    for name in names(plugins):
        left = _tidied(os.path.join(plugins, name), is_done, finish)
        if left is not None:
            yield left


def _tidied(folder: str, is_done: IsDone, finish: Callable[[bytes], None]) -> Left | None:
    """Remove one folder, unless a process works in it."""
    lock = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if lock is None:
        return None
    try:
        left = _removed(folder)
        if left is not None:
            finish(left.removal)
        else:
            left = _put_back(folder, is_done)
        with suppress(OSError):
            untrusted_files.remove(folder)
    except OSError:
        return None  # keep it: it may contain the only copy
    finally:
        os.close(lock)
    return left


def _removed(folder: str) -> Left | None:
    """Return what was being removed, if it had been moved here."""
    if not os.path.lexists(os.path.join(folder, BEFORE)):
        return None
    try:
        with untrusted_files.hold(folder) as held:
            return Left("", removal=held.read(REMOVAL, LARGEST_REMOVAL))
    except OSError:
        return None


def _put_back(folder: str, is_done: IsDone) -> Left | None:
    """Undo an incomplete swap."""
    swap, aside = _swap_in(folder), os.path.join(folder, BEFORE)
    if swap is None:
        return None
    is_there = os.path.lexists(swap.path)
    if is_there and is_done(swap.path, swap.about):
        return None  # it was complete, except for what was moved aside
    if swap.is_new:
        if is_there:
            put_away(folder, swap.path)
        return Left(swap.path) if is_there else None
    if not os.path.lexists(aside):
        return None
    if is_there:
        put_away(folder, swap.path)
    os.rename(aside, swap.path)
    return Left(swap.path, is_restored=True)


def _write(folder: str, name: str, text: bytes) -> None:
    """Write a file, and have it on the disk before anything is moved."""
    with open(os.path.join(folder, name), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


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
