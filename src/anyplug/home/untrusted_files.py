"""Safe access to files and folders that a plugin can change.

A plugin may swap whatever it can write at any moment: a folder for a link, a file for a pipe, a small file for a huge
one. So the host holds a descriptor of the folder, reaches everything below it by names that must not be links, checks
what it has opened rather than what a path leads to, and stops at a limit.

Standard library only and quick to import: the guardian and the spawner use it, too.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

OWNER = stat.S_IRWXU
PERMISSIONS = 0o777  # of a mode; the bits above, such as setuid, are never copied
NAME_BYTES = 8  # random bytes in the temporary name of a folder that is being removed
CHUNK = 1 << 20  # bytes read at once
MOST_DEPTH = 100  # nested folders; each takes a descriptor while it is walked, and processes have 1,024
REMOVE_S = 600.0  # for one removal; a program that keeps creating files must not occupy us forever
BATCH = 10_000  # names listed at once during a removal
MOST_ENTRIES = 120_000  # a large node_modules has about 60,000
MOST_BYTES = 2 << 30
MOST_SECONDS = 120.0
MOST_OF_OURS = 16 << 20  # bytes of a file that we or a person wrote, such as settings

# The device and type are checked after opening; until then O_NONBLOCK keeps a pipe from blocking us.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

SYS_OPENAT2 = 437  # the same number on every architecture
RESOLVE = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS, NO_SYMLINKS, BENEATH


class TooMuch(OSError):
    """A plugin's files exceed a limit. `strerror` says which one, and `filename` where."""

    def __init__(self, why: str, path: str) -> None:
        super().__init__(errno.EFBIG, why, path)


class Changed(OSError):
    """Something is not what it must be, or was swapped while we looked."""

    def __init__(self, why: str, path: str) -> None:
        super().__init__(errno.ESTALE, why, path)


class Budget:
    """Limits for one piece of work. Each method raises TooMuch when they are exceeded."""

    def __init__(
        self, entries: int = MOST_ENTRIES, size: int = MOST_BYTES, seconds: float = MOST_SECONDS, file: int = 0
    ) -> None:
        """`file` is the largest size of one file, if limited."""
        self._most_entries, self._most_bytes, self._most_seconds = entries, size, seconds
        self._most_of_one = file or size
        self._entries = self._bytes = 0
        self._until = time.monotonic() + seconds

    def renewed(self) -> Budget:
        """Return a fresh budget with the same limits."""
        return Budget(self._most_entries, self._most_bytes, self._most_seconds, self._most_of_one)

    def entry(self, path: str) -> None:
        """Count a file or folder."""
        self.entries(1, path)
        self.tick(path)

    def entries(self, count: int, path: str) -> None:
        """Count several files and folders that are about to be visited."""
        self._entries += count
        if self._entries > self._most_entries:
            raise TooMuch(f"there are more than {self._most_entries:,} files and folders", path)

    def file(self, size: int, path: str) -> None:
        """Count a file that is about to be read, by its apparent size: a sparse file takes as long as any other."""
        if size > self._most_of_one:
            raise TooMuch(f"it has {shown(size)}; the limit for one file is {shown(self._most_of_one)}", path)
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise TooMuch(f"the files have more than {shown(self._most_bytes)} together", path)

    def tick(self, path: str) -> None:
        """Check the clock."""
        if time.monotonic() > self._until:
            raise TooMuch(f"reading the files takes longer than {self._most_seconds:g} seconds", path)


class HeldFolder:
    """A folder held by a descriptor: whatever replaces its path, this stays the one that was opened."""

    def __init__(self, fd: int, path: str) -> None:
        """Take ownership of the descriptor. `path` is for messages."""
        self.fd = fd
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)

    def where(self, relative: str) -> str:
        """Return the path of something inside, for messages."""
        return os.path.join(self.path, relative)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of an entry itself, even if it is a link; raises OSError."""
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def names(self, budget: Budget) -> list[str]:
        """List the names inside, sorted; raises OSError."""
        return sorted(entry.name for entry in self._entries(budget))

    def folder(self, relative: str) -> HeldFolder:
        """Hold a folder inside, without following links; raises OSError."""
        return HeldFolder(self._opened(relative, FOLDER), self.where(relative))

    def own_folder(self, name: str) -> HeldFolder:
        """Hold a direct subfolder that is ours and on the same file system, so that nobody mounted or moved it in."""
        held = self.folder(name)
        found, around = os.fstat(held.fd), os.fstat(self.fd)
        if found.st_dev == around.st_dev and found.st_uid == os.geteuid():
            return held
        held.close()
        raise Changed("it belongs to another user or is on another file system", self.where(name))

    def open(self, relative: str) -> int:
        """Open a regular file inside for reading, without following links; raises OSError."""
        return regular(self._opened(relative, READ | os.O_NOFOLLOW), self.where(relative))

    def open_linked(self, name: str) -> int:
        """Open a regular file for reading, or the target of a link with that name; raises OSError."""
        path = self.where(name)
        if not stat.S_ISREG(os.stat(name, dir_fd=self.fd).st_mode):  # opening a device can have side effects
            raise Changed("it is not a regular file", path)
        return regular(os.open(name, READ, dir_fd=self.fd), path)

    def read(self, relative: str, largest: int) -> bytes:
        """Read a small regular file inside, without following links; raises OSError."""
        return _whole(self._opened(relative, READ | os.O_NOFOLLOW), self.where(relative), largest)

    def create(self, relative: str, mode: int = 0o600) -> int:
        """Create a file that must not exist yet, and open it for writing; raises OSError."""
        folder, _, name = relative.rpartition("/")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        if not folder:
            return os.open(name, flags, mode, dir_fd=self.fd)
        with self.folder(folder) as below:
            return os.open(name, flags, mode, dir_fd=below.fd)

    def write(self, name: str, data: bytes, *, appends: bool = False) -> None:
        """Write a file directly inside that the person named, or append to it; raises OSError.

        A link, or a second name of a file elsewhere, could have been put there to have that one changed.
        """
        path = self.where(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = regular(os.open(name, flags | (os.O_APPEND if appends else 0), 0o666, dir_fd=self.fd), path)
        with open(fd, "wb") as file:
            if os.fstat(fd).st_nlink > 1:
                raise Changed("it is a second name of another file", path)
            if not appends:
                file.truncate(0)
            file.write(data)

    def make_folders(self, relative: str) -> HeldFolder:
        """Hold a folder inside, creating missing folders on the way; raises OSError."""
        at = HeldFolder(os.dup(self.fd), self.path)
        for name in _parts(relative) if relative else ():
            with at:
                try:
                    os.mkdir(name, dir_fd=at.fd)
                except FileExistsError:
                    pass
                at = at.folder(name)
        return at

    def walk(self, budget: Budget, enter: Callable[[str], bool] = lambda _: True) -> Iterator[Entry]:
        """Yield everything inside except links' targets, each folder before its content; raises OSError.

        `enter` is called with every name, relative to this folder: what it declines is neither yielded nor entered. A
        folder that disappears or turns into a link meanwhile is skipped.
        """
        left = [iter([Entry("", self, os.fstat(self.fd))])]
        held: list[HeldFolder] = []
        try:
            while left:
                entry = next(left[-1], None)
                if entry is None:
                    left.pop()
                    if held:
                        held.pop().close()
                    continue
                if not stat.S_ISDIR(entry.found.st_mode):
                    yield entry
                    continue
                if len(held) > MOST_DEPTH:
                    why = f"there are more than {MOST_DEPTH} nested folders"
                    raise TooMuch(why, self.where(entry.relative))
                try:
                    below = HeldFolder(os.dup(self.fd), self.path) if not held else held[-1].folder(entry.name)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as error:
                    if error.errno == errno.ELOOP:
                        continue
                    raise
                held.append(below)
                yield Entry(entry.relative, below, os.fstat(below.fd))
                left.append(iter(below.listed(entry.relative, budget, enter)))
        finally:
            for folder in held:
                folder.close()

    def listed(self, relative: str, budget: Budget, enter: Callable[[str], bool]) -> list[Entry]:
        """List the entries of this folder, whose path is `relative`, with their status; raises OSError."""
        found = []
        for entry in self._entries(budget):
            name = f"{relative}/{entry.name}" if relative else entry.name
            if not enter(name):
                continue
            try:
                found.append(Entry(name, self, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue  # it disappeared meanwhile
        return found

    def _entries(self, budget: Budget) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self.fd) as entries:
                for entry in entries:
                    budget.entry(self.where(entry.name))
                    yield entry
        except OSError as error:
            if error.filename is None or isinstance(error.filename, int):
                error.filename = self.path
            raise

    def _opened(self, relative: str, flags: int) -> int:
        try:
            return _open_beneath(self.fd, relative, flags)
        except OSError as error:
            error.filename = self.where(relative)
            raise


class Entry:
    """An entry of a walk: its path relative to the top, its folder, and its status.

    If it is a folder itself, `folder` is that folder.
    """

    __slots__ = ("folder", "found", "relative")

    def __init__(self, relative: str, folder: HeldFolder, found: os.stat_result) -> None:
        self.relative = relative
        self.folder = folder
        self.found = found

    @property
    def name(self) -> str:
        """Its own name."""
        return self.relative.rpartition("/")[2]

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, and not a link to one."""
        return stat.S_ISDIR(self.found.st_mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a link."""
        return stat.S_ISLNK(self.found.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.found.st_mode)


def hold(path: str) -> HeldFolder:
    """Hold a folder that is not a link itself; raises OSError."""
    return HeldFolder(os.open(path, FOLDER), path)


def read(path: str, largest: int) -> bytes:
    """Read a small regular file that is not a link itself; raises OSError."""
    return _whole(os.open(path, READ | os.O_NOFOLLOW), path, largest)


def linked(path: str) -> int:
    """Open a regular file for reading, or the target of a link, as people link their settings; raises OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a device can have side effects
        raise Changed("it is not a regular file", path)
    return regular(os.open(path, READ), path)


def read_linked(path: str, largest: int = MOST_OF_OURS) -> bytes:
    """Read a small regular file, or the target of a link; raises OSError."""
    return _whole(linked(path), path, largest)


def head(path: str, count: int) -> bytes:
    """Read the first bytes of a regular file, or of a link's target; raises OSError."""
    folder, name = os.path.split(path)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with HeldFolder(os.open(folder or ".", flags), folder) as held:
        fd = held.open_linked(name)
    try:
        return os.pread(fd, count, 0)
    finally:
        os.close(fd)


def read_inside(folder: str, path: str, largest: int) -> bytes:
    """Read a small regular file in a plugin's folder, following links that stay in the folder.

    Raises OSError.
    """
    with hold(folder) as held:
        relative = path[len(folder) + 1 :] if os.path.dirname(path) == folder else os.path.relpath(path, folder)
        try:
            return held.read(relative, largest)
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                raise
        real = os.path.realpath(path)
        if not real.startswith(f"{os.path.realpath(folder)}{os.sep}"):
            raise Changed("it is a link that leads outside the plugin's folder", path)
        return held.read(os.path.relpath(real, os.path.realpath(folder)), largest)


def regular(fd: int, path: str) -> int:
    """Return the descriptor if it is a regular file; otherwise close it and raise OSError."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise Changed("it is not a regular file", path)


def chunks(fd: int, path: str, budget: Budget) -> Iterator[bytes]:
    """Read an open file up to the size it had at the beginning: it may grow as fast as we read."""
    left = os.fstat(fd).st_size
    budget.file(left, path)
    while left > 0 and (chunk := os.read(fd, min(CHUNK, left))):
        left -= len(chunk)
        budget.tick(path)
        yield chunk


def copy_file(fd: int, path: str, target: HeldFolder, name: str, budget: Budget, mode: int = 0o600) -> None:
    """Copy an open file's content to a new file; raises OSError."""
    new = target.create(name, mode)
    with open(new, "wb", buffering=0) as file:
        file.writelines(chunks(fd, path, budget))
        os.fchmod(new, mode)  # regardless of the umask


def copy_entry(source: HeldFolder, relative: str, target: HeldFolder, new: str, budget: Budget) -> None:
    """Copy a regular file with its mode and times, or a link as a link, replacing what is there; raises OSError."""
    above, _, name = relative.rpartition("/")
    into, _, new_name = new.rpartition("/")
    with source.make_folders("") if not above else source.folder(above) as old, target.make_folders(into) as folder:
        try:
            os.unlink(new_name, dir_fd=folder.fd)
        except FileNotFoundError:
            pass
        if stat.S_ISLNK(old.stat(name).st_mode):
            os.symlink(os.readlink(name, dir_fd=old.fd), new_name, dir_fd=folder.fd)
            return
        fd = old.open(name)
        try:
            found = os.fstat(fd)
            copy_file(fd, old.where(name), folder, new_name, budget, found.st_mode & PERMISSIONS)
            os.utime(new_name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=folder.fd, follow_symlinks=False)
        finally:
            os.close(fd)


def files(folder: str, budget: Budget | None = None) -> list[str]:
    """List the files and links of a tree, relative to it; raises OSError."""
    with hold(folder) as held:
        return sorted(entry.relative for entry in held.walk(budget or Budget()) if not entry.is_folder)


def remove(path: str, seconds: float = REMOVE_S, folder: int | None = None) -> None:
    """Remove a folder and its contents without following links; raises OSError if something remains.

    `folder` is the open one that a relative path begins in.

    The standard library recurses and holds a descriptor for each level; a plugin can nest folders deeper than that, and
    deeper than any path can name.
    """
    until = time.monotonic() + seconds
    top = _open_for_removal(path, folder)
    try:
        while names := _some_names(top):
            for name in names:
                if not _is_removed(name, top):
                    _take_apart(name, top, until)
                if time.monotonic() > until:
                    raise TooMuch(f"removing it takes longer than {seconds:g} seconds", path)
    finally:
        os.close(top)
    os.rmdir(path, dir_fd=folder)


def shown(size: int) -> str:
    """Format a number of bytes for people."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"


def _whole(fd: int, path: str, largest: int) -> bytes:
    """Read an open file and close it; raises OSError if it is not a regular one, or larger than allowed."""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Changed("it is not a regular file", path)
        size = status.st_size
        if size > largest:
            raise TooMuch(f"it has {size:,} bytes; the limit is {largest:,}", path)
        found = os.read(fd, size + 1)
        while found and len(found) < size and (chunk := os.read(fd, size + 1 - len(found))):
            found += chunk
        return found
    finally:
        os.close(fd)


def _open_beneath(folder: int, relative: str, flags: int) -> int:
    """Open something below a folder without following any link; raises OSError.

    The kernel does it in one step where it has `openat2`. ctypes takes milliseconds to load, so that is used only if it
    is already loaded; the alternative is as safe.
    """
    if "/" not in relative and relative not in {"", ".", ".."}:  # as most are
        return os.open(relative, flags | os.O_NOFOLLOW, dir_fd=folder)
    names = _parts(relative)
    if len(names) > 1 and "ctypes" in sys.modules and (fd := _openat2(folder, relative, flags)) is not None:
        return fd
    at = folder
    try:
        for name in names[:-1]:
            below = os.open(name, FOLDER, dir_fd=at)
            if at != folder:
                os.close(at)
            at = below
        return os.open(names[-1], flags | os.O_NOFOLLOW, dir_fd=at)
    finally:
        if at != folder:
            os.close(at)


def _openat2(folder: int, relative: str, flags: int) -> int | None:
    """Open something below a folder with one system call; None where the kernel lacks it."""
    if sys.platform != "linux":
        return None
    import ctypes  # already loaded

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    how = b"".join(word.to_bytes(8, sys.byteorder) for word in (flags | os.O_NOFOLLOW, 0, RESOLVE))
    fd = libc.syscall(ctypes.c_long(SYS_OPENAT2), folder, os.fsencode(relative), how, ctypes.c_size_t(len(how)))
    if fd >= 0:
        return int(fd)
    number = ctypes.get_errno()
    if number in {errno.ENOSYS, errno.EPERM, errno.EAGAIN}:  # an old kernel, a container's filter, or a race
        return None
    raise OSError(number, os.strerror(number), relative)


def _parts(relative: str) -> list[str]:
    names = relative.split("/")
    if not all(names) or not {".", ".."}.isdisjoint(names):
        raise Changed("it is not a plain relative path", relative)
    return names


def _take_apart(name: str, top: int, until: float) -> None:
    """Remove a folder; its subfolders are moved to the top first, so that nothing is ever more than two levels deep."""
    inner = _open_for_removal(name, top)
    try:
        while names := _some_names(inner):
            for one in names:
                if not _is_removed(one, inner):
                    os.close(_open_for_removal(one, inner))  # moving a folder requires write permission to it
                    os.rename(one, os.urandom(NAME_BYTES).hex(), src_dir_fd=inner, dst_dir_fd=top)
            if time.monotonic() > until:
                raise TooMuch("removing it takes too long", name)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _some_names(folder: int) -> list[str]:
    """List some of the names in a folder: there may be more than fit into memory."""
    with os.scandir(folder) as entries:
        return [entry.name for entry, _ in zip(entries, range(BATCH), strict=False)]


def _is_removed(name: str, folder: int) -> bool:
    """Remove anything but a folder; return False if it is one."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass  # another process was faster
    return True


def _open_for_removal(name: str, folder: int | None = None) -> int:
    """Open a folder, but not a link, even if its mode denies us access; raises OSError."""
    if hasattr(os, "O_PATH"):
        pinned = os.open(name, FOLDER | os.O_PATH, dir_fd=folder)
        try:
            if os.fstat(pinned).st_mode & OWNER != OWNER:
                os.chmod(f"/proc/self/fd/{pinned}", OWNER)
        finally:
            os.close(pinned)
    else:
        os.chmod(name, OWNER, dir_fd=folder, follow_symlinks=False)
    opened = os.open(name, FOLDER, dir_fd=folder)
    if folder is not None and os.fstat(opened).st_dev != os.fstat(folder).st_dev:
        os.close(opened)
        raise OSError(errno.EXDEV, "another file system is mounted there", name)
    return opened
