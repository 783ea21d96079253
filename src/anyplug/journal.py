"""Journals: lines that a process wrote down and that are not in the store yet. A kill of the process loses none.

Each lies in a folder of them, under a name that begins with its process. While that process lives, only it writes
there; afterwards whoever comes by takes over what is left. A line begins with its line end, so that one that was
torn spoils no other. Knows nothing of what the lines say.
"""

import errno
import fcntl
import os
import re
from collections.abc import Callable, Collection, Iterator

from anyplug import liveness
from anyplug.errors import StoreError

LARGEST = 1 << 20  # bytes, then a journal that cannot be emptied is written anew without what is in the store
LEFT = "left"  # in place of a process: this one lives, and has let go of it
NEW = ".new"  # one that is being written anew
NAME = re.compile(rf"(?P<owner>\d+:\w*|{LEFT})-\w+(?P<new>{re.escape(NEW)})?")


class Journal:
    """The journal of one part of this process. It is made with its first line."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = ""
        self._fd = -1
        self._size = 0
        self._limit = LARGEST

    def append(self, line: bytes) -> None:
        """Add a line in one write, so that the kernel has it; raises StoreError."""
        try:
            if self._fd < 0:
                self._open()
            self._size += _write(self._fd, b"\n" + line)
        except OSError as error:
            raise _failed(self._path or self._folder, error) from error

    def shrink(self, kept: Collection[bytes]) -> None:
        """Forget all lines but these, at once if there are none, else when it is worth it.

        What cannot be forgotten now stays: whoever takes over knows what is in the store already.
        """
        try:
            if kept and self._size > self._limit:
                self._rewrite(kept)
            elif not kept and self._size:
                os.ftruncate(self._fd, 0)
                self._size = 0
        except OSError:
            pass

    def remove(self) -> None:
        """Take it away with all that is in it; the next line makes another."""
        if self._fd >= 0:
            self._close()
            _unlink(self._path)

    def leave(self) -> None:
        """Let go of it: whoever comes by may take over, although this process lives."""
        if self._fd >= 0:
            self._close()
            try:
                os.rename(self._path, os.path.join(self._folder, f"{LEFT}-{os.urandom(4).hex()}"))
            except OSError:
                pass  # then they may once this process is gone

    def _open(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = os.path.join(self._folder, f"{liveness.this_process()}-{os.urandom(4).hex()}")
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        self._path, self._size, self._limit = path, 0, LARGEST

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1

    def _rewrite(self, kept: Collection[bytes]) -> None:
        """Swap it for one that has just these lines: until the swap the old one holds, and from then on the new."""
        new = self._path + NEW
        fd = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            size = _write(fd, b"".join(b"\n" + line for line in kept))
            os.rename(new, self._path)
        except OSError:
            os.close(fd)
            _unlink(new)
            raise
        self._close()
        self._fd, self._size, self._limit = fd, size, max(LARGEST, 2 * size)


def take_over(folder: str, take: Callable[[list[bytes]], None]) -> None:
    """Hand over the lines of each journal whose process is gone, and remove it when `take` has come back.

    Of several who try at the same time one gets a journal. If it is killed on the way, the next one gets the
    same lines again. Raises StoreError, and what `take` raises.
    """
    for name, is_alive in _journals(folder):
        path = os.path.join(folder, name)
        if is_alive:
            continue
        if name.endswith(NEW):
            _unlink(path)  # it never took the old one's place
            continue
        try:
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file.fileno()).st_nlink:
                    take(file.read().split(b"\n"))
                    os.unlink(path)
        except (FileNotFoundError, BlockingIOError):
            continue  # somebody else was faster
        except OSError as error:
            raise _failed(path, error) from error


def of_the_living(folder: str) -> Iterator[list[bytes]]:
    """Give the lines of each journal whose process lives."""
    for name, is_alive in _journals(folder):
        if is_alive and not name.endswith(NEW):
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    yield file.read().split(b"\n")
            except FileNotFoundError:
                continue  # it has just ended


def write_for(owner: str, folder: str, lines: Collection[bytes]) -> None:
    """Write a journal in the name of another process; raises OSError."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = f"{owner}-before"
    if not NAME.fullmatch(name):
        name = f"{LEFT}-before"
    fd = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        _write(fd, b"".join(b"\n" + line for line in lines))
    finally:
        os.close(fd)


def _journals(folder: str) -> Iterator[tuple[str, bool]]:
    """Give the name of each, and whether its process lives."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return  # nobody made one yet
    for name in names:
        if found := NAME.fullmatch(name):
            owner = found["owner"]
            yield name, owner != LEFT and liveness.is_alive(owner)


def _write(fd: int, data: bytes) -> int:
    """Write all in one go; give how many bytes that is. Raises OSError, also if there was room for a part only."""
    if os.write(fd, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return len(data)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _failed(path: str, error: OSError) -> StoreError:
    return StoreError(
        f"the journal {path} failed: {error.strerror}", "check the disk's space and the folder's permissions"
    )
