"""Journals: lines that a process wrote and that are not in the database yet. They survive a kill of the process.

Each is a file in a shared folder, named after its process. While that process lives, only it writes there; afterwards
any other process may recover what is left. Each line begins with its line end, so that a torn line damages no other.
Knows nothing about the lines' content.

Disk space is reserved in large pieces before lines are written. Where the file can be mapped, writing a line is only a
copy to shared memory. Zeros follow the last line.
"""

import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress

from anyplug.home import process_identity, untrusted_files
from anyplug.home.location import make_private
from anyplug.model.errors import StoreError
from anyplug.model.late_patterns import late

ROOM = 1 << 16  # bytes reserved for a new sheet
LARGEST = (
    1 << 20
)  # bytes; a sheet that cannot be emptied is then replaced by another, without the lines already in the database
LEFT = "left"  # instead of a process: this one lives, but has released the journal
NAME = late(rf"(?P<owner>\d+:\w*|{LEFT})-\w+")
# File systems where a reserved block stays with its file. Elsewhere each change may need a new block (also on xfs after
# a reflink copy), and touching a page of a mapped file that the disk has no block for kills the process.
MAPPED = frozenset({"ext2", "ext3", "ext4", "tmpfs"})
MOUNTS = "/proc/self/mountinfo"
CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})  # errors of file systems that cannot reserve space
LINE_END = ord("\n")
ENDLESS = 1 << 62  # bytes of room, where each write allocates its own


class Journal:
    """The journal of one part of this process, on one sheet or two. The first is created with the first line."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sheet: _Sheet | None = None  # the one written to
        self._spare: _Sheet | None = None  # an empty one
        self._limit = LARGEST

    def append(self, line: bytes) -> None:
        """Add a line and pass it to the kernel; raises StoreError."""
        try:
            if self._sheet is None:
                self._sheet, self._limit = _Sheet(self._folder), LARGEST
            self._sheet.append(line)
        except OSError as error:
            raise _failed(self._sheet.path if self._sheet else self._folder, error) from error

    def shrink(self, kept: Collection[bytes]) -> None:
        """Discard all lines except these: at once if there are none, otherwise when it is worth it.

        What cannot be discarded now stays: recovery knows what is already in the database.
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
        """Delete the journal with its lines; the next line creates a new one."""
        for sheet in self._put_down():
            _unlink(sheet.path)

    def leave(self) -> None:
        """Release it, so that others may recover it although this process lives."""
        for sheet in self._put_down():
            try:
                os.rename(sheet.path, os.path.join(self._folder, f"{LEFT}-{os.urandom(4).hex()}"))
            except OSError:
                pass  # then they can once this process is gone

    def _turn_over(self, sheet: "_Sheet", kept: Collection[bytes]) -> None:
        """Continue with only these lines on the other sheet.

        They are on both until the first is empty, and nothing is added before that, so a kill in between leaves nothing
        that could be misread.
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
    """A file with lines, followed by zeros. Raises OSError."""

    def __init__(self, folder: str) -> None:
        make_private(folder)
        self.path = os.path.join(folder, f"{process_identity.this_process()}-{os.urandom(4).hex()}")
        self.size = 0  # of the lines
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(OSError):  # for processes that cannot see this one, such as in another container
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._map: mmap.mmap | None = None
        self._room = 0  # bytes reserved on disk

    def append(self, line: bytes) -> None:
        start = self.size
        end = start + len(line) + 1
        if end > self._room:
            self._make_room(end)
        if self._map is not None:
            self._map[start] = LINE_END  # first and separately: memcpy may write its first bytes last
            self._map[start + 1 : end] = line
        else:
            _write(self._fd, b"\n" + line, start)
        self.size = end

    def empty(self) -> None:
        """Overwrite the lines with zeros."""
        if self._map is not None:
            self._map[: self.size] = bytes(self.size)
        elif self.size:
            _write(self._fd, bytes(self.size), 0)
        self.size = 0

    def close(self) -> None:
        self._unmap()
        os.close(self._fd)

    def _make_room(self, wanted: int) -> None:
        """Reserve disk space for this many bytes and some more."""
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


def _opened(path: str, _: int) -> int:
    return untrusted_files.linked(path)


def take_over(folder: str, take: Callable[[list[bytes]], None]) -> None:
    """Pass the lines of each dead process to `take`, and remove its journals when that returns.

    All sheets of a process belong together: a line can be on two of them. If several processes try at once, one of them
    gets the lines. If it is killed, the next one gets the same lines again. Raises StoreError, and what `take` raises.
    """
    abandoned: dict[str, list[str]] = {}
    for name, is_alive in _journals(folder):
        if not is_alive:
            abandoned.setdefault(name.rpartition("-")[0], []).append(os.path.join(folder, name))
    for paths in abandoned.values():
        try:
            with ExitStack() as held:
                files = [held.enter_context(open(path, "rb", opener=_opened)) for path in paths]
                for file in files:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                there = [file for file in files if os.fstat(file.fileno()).st_nlink]
                if there:
                    take([line for file in there for line in _lines(file.read())])
                for file in there:
                    os.unlink(file.name)
        except (FileNotFoundError, BlockingIOError):
            continue  # another process was faster
        except OSError as error:
            raise _failed(paths[0], error) from error


def of_the_living(folder: str) -> Iterator[list[bytes]]:
    """Yield the lines of each journal whose process lives."""
    for name, is_alive in _journals(folder):
        if is_alive:
            try:
                with open(untrusted_files.linked(os.path.join(folder, name)), "rb") as file:
                    yield _lines(file.read())
            except (FileNotFoundError, untrusted_files.Changed):
                continue  # it has just ended, or is not a file


def write_for(owner: str, folder: str, lines: Collection[bytes]) -> None:
    """Write a journal on behalf of another process; raises OSError."""
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
    """Yield the name of each journal, and whether its process lives."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return  # none was created yet
    for name in names:
        if found := NAME.fullmatch(name):
            owner = found["owner"]
            yield name, owner != LEFT and process_identity.is_alive(owner)


def _lines(text: bytes) -> list[bytes]:
    """Return the lines; if a process was killed while emptying the file, there are zeros before them, too."""
    return text.strip(b"\0").split(b"\n")


def _write(fd: int, data: bytes, start: int) -> None:
    """Write all data in one call; raises OSError, also after a partial write."""
    if os.pwrite(fd, data, start) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _reserve(fd: int, size: int) -> bool:
    """Reserve disk space for a file; return False if the file system cannot. Raises OSError if the disk is full."""
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
    """Return the type of file system that a file is on; empty if unknown."""
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
        f"the journal {path} failed: {error.strerror}", "check the disk's free space and the folder's permissions"
    )
