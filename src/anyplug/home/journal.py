"""Journals: lines that a process wrote down and that are not in the store yet. A kill of the process loses none.

Each lies in a folder of them, under a name that begins with its process. While that process lives, only it writes
there; afterwards whoever comes by takes over what is left. A line begins with its line end, so that one that was
torn spoils no other. Knows nothing of what the lines say.

A journal has room before it has lines: the disk is asked for it in large pieces, and where the file can be mapped a
line is only copied to memory that the kernel shares with it. Behind the last line are zeros.
"""

import errno
import fcntl
import mmap
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress

from anyplug.home import process_identity
from anyplug.home.location import make_private
from anyplug.model.errors import StoreError

ROOM = 1 << 16  # bytes that a new sheet has
LARGEST = 1 << 20  # bytes, then a sheet that cannot be emptied is left for another, without what is in the store
LEFT = "left"  # in place of a process: this one lives, and has let go of it
NAME = re.compile(rf"(?P<owner>\d+:\w*|{LEFT})-\w+")
# Where a block that was asked for stays this file's own. Elsewhere each change may need a new one, also on xfs where
# somebody made a copy that shares it, and a page of a mapped file for which the disk has none ends the process.
MAPPED = frozenset({"ext2", "ext3", "ext4", "tmpfs"})
MOUNTS = "/proc/self/mountinfo"
CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})  # what file systems say that give no room ahead
LINE_END = ord("\n")
ENDLESS = 1 << 62  # bytes of room, where each write asks for its own


class Journal:
    """The journal of one part of this process, on one sheet or two. The first is made with its first line."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sheet: _Sheet | None = None  # that is written to
        self._spare: _Sheet | None = None  # that is empty
        self._limit = LARGEST

    def append(self, line: bytes) -> None:
        """Add a line, so that the kernel has it; raises StoreError."""
        try:
            if self._sheet is None:
                self._sheet, self._limit = _Sheet(self._folder), LARGEST
            self._sheet.append(line)
        except OSError as error:
            raise _failed(self._sheet.path if self._sheet else self._folder, error) from error

    def shrink(self, kept: Collection[bytes]) -> None:
        """Forget all lines but these, at once if there are none, else when it is worth it.

        What cannot be forgotten now stays: whoever takes over knows what is in the store already.
        """
        try:
            if self._sheet is None:
                return
            if kept and self._sheet.size > self._limit:
                self._turn_over(self._sheet, kept)
            elif not kept:
                self._sheet.empty()
        except OSError:
            pass

    def remove(self) -> None:
        """Take it away with all that is in it; the next line makes another."""
        for sheet in self._put_down():
            _unlink(sheet.path)

    def leave(self) -> None:
        """Let go of it: whoever comes by may take over, although this process lives."""
        for sheet in self._put_down():
            try:
                os.rename(sheet.path, os.path.join(self._folder, f"{LEFT}-{os.urandom(4).hex()}"))
            except OSError:
                pass  # then they may once this process is gone

    def _turn_over(self, sheet: "_Sheet", kept: Collection[bytes]) -> None:
        """Go on with just these lines on the other sheet.

        They stand on both until the first is empty, and the other gets no more before that: so whoever is killed on
        the way leaves nothing that could be misread.
        """
        other = self._spare or _Sheet(self._folder)
        self._spare = other
        try:
            for line in kept:
                other.append(line)
            sheet.empty()
        except OSError:
            other.empty()
            raise
        self._sheet, self._spare = other, sheet
        self._limit = max(LARGEST, 2 * other.size)

    def _put_down(self) -> list["_Sheet"]:
        sheets = [sheet for sheet in (self._sheet, self._spare) if sheet is not None]
        self._sheet = self._spare = None
        for sheet in sheets:
            sheet.close()
        return sheets


class _Sheet:
    """A file with lines, and zeros behind them. Raises OSError."""

    def __init__(self, folder: str) -> None:
        make_private(folder)
        self.path = os.path.join(folder, f"{process_identity.this_process()}-{os.urandom(4).hex()}")
        self.size = 0  # of the lines
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(OSError):  # for those who do not see this process: they may be in another container
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._map: mmap.mmap | None = None
        self._room = 0  # bytes that the disk keeps for it

    def append(self, line: bytes) -> None:
        start = self.size
        end = start + len(line) + 1
        if end > self._room:
            self._make_room(end)
        if self._map is not None:
            self._map[start] = LINE_END  # first, and by itself: memcpy may write its first bytes last
            self._map[start + 1 : end] = line
        else:
            _write(self._fd, b"\n" + line, start)
        self.size = end

    def empty(self) -> None:
        """Put zeros in place of the lines."""
        if self._map is not None:
            self._map[: self.size] = bytes(self.size)
        elif self.size:
            _write(self._fd, bytes(self.size), 0)
        self.size = 0

    def close(self) -> None:
        self._unmap()
        os.close(self._fd)

    def _make_room(self, wanted: int) -> None:
        """Ask the disk for room for so many bytes and some more."""
        room = max(ROOM, 2 * self._room, wanted)
        try:
            is_kept = _reserve(self._fd, room)
        except OSError:  # then perhaps for this line alone
            room = wanted
            is_kept = _reserve(self._fd, room)
        if not is_kept:
            self._room = ENDLESS
            return
        if self._map is not None or _file_system(self._fd) in MAPPED:
            self._unmap()
            self._map = mmap.mmap(self._fd, room)
        self._room = room

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None


def take_over(folder: str, take: Callable[[list[bytes]], None]) -> None:
    """Hand over the lines of each process that is gone, and remove its journals when `take` has come back.

    All sheets of a process belong together: a line can stand on two of them. Of several who try at the same time one
    gets them. If it is killed on the way, the next one gets the same lines again. Raises StoreError, and what `take`
    raises.
    """
    abandoned: dict[str, list[str]] = {}
    for name, is_alive in _journals(folder):
        if not is_alive:
            abandoned.setdefault(name.rpartition("-")[0], []).append(os.path.join(folder, name))
    for paths in abandoned.values():
        try:
            with ExitStack() as held:
                files = [held.enter_context(open(path, "rb")) for path in paths]
                for file in files:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                there = [file for file in files if os.fstat(file.fileno()).st_nlink]
                if there:
                    take([line for file in there for line in _lines(file.read())])
                for file in there:
                    os.unlink(file.name)
        except (FileNotFoundError, BlockingIOError):
            continue  # somebody else was faster
        except OSError as error:
            raise _failed(paths[0], error) from error


def of_the_living(folder: str) -> Iterator[list[bytes]]:
    """Return the lines of each journal whose process lives."""
    for name, is_alive in _journals(folder):
        if is_alive:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    yield _lines(file.read())
            except FileNotFoundError:
                continue  # it has just ended


def write_for(owner: str, folder: str, lines: Collection[bytes]) -> None:
    """Write a journal in the name of another process; raises OSError."""
    make_private(folder)
    name = f"{owner}-before"
    if not NAME.fullmatch(name):
        name = f"{LEFT}-before"
    fd = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        _write(fd, b"".join(b"\n" + line for line in lines), os.fstat(fd).st_size)
    finally:
        os.close(fd)


def _journals(folder: str) -> Iterator[tuple[str, bool]]:
    """Return the name of each, and whether its process lives."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return  # nobody made one yet
    for name in names:
        if found := NAME.fullmatch(name):
            owner = found["owner"]
            yield name, owner != LEFT and process_identity.is_alive(owner)


def _lines(text: bytes) -> list[bytes]:
    """Return what was written; where somebody was killed while it was being emptied, there are zeros before it, too."""
    return text.strip(b"\0").split(b"\n")


def _write(fd: int, data: bytes, start: int) -> None:
    """Write all in one go; raises OSError, also if there was room for a part only."""
    if os.pwrite(fd, data, start) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _reserve(fd: int, size: int) -> bool:
    """Have the disk keep so many bytes for a file; False if it cannot promise that. Raises OSError if it is full."""
    if sys.platform == "darwin":
        return False
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno in CANNOT:
            return False
        raise
    return True


def _file_system(fd: int) -> str:
    """Return the kind of file system that a file lies on; empty if that is not to be known."""
    device = os.fstat(fd).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as mounts:
            for mount in mounts:
                known, _, rest = mount.partition(" - ")
                if known.split()[2] == wanted:
                    return rest.split()[0]
    except (OSError, IndexError):
        pass
    return ""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _failed(path: str, error: OSError) -> StoreError:
    return StoreError(
        f"the journal {path} failed: {error.strerror}", "check the disk's space and the folder's permissions"
    )
