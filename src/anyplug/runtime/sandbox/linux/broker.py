"""The broker: makes the changes in granted folders that a plugin's programs may not make themselves.

Landlock can allow a folder but not except names in it, and a mount needs something to be mounted on. So the programs of
a plugin that was granted a folder get a narrower domain than the grant: in that folder they may only read. Their filter
asks this process about every call that changes something there (SECCOMP_RET_USER_NOTIF). It copies the path, checks it
against the protected paths, makes the call itself and returns the result, or the open file.

It is a fork of the spawner, in the programs' mount namespace, with their user and limits, confined to the domain of the
grants. A call that it lets through is checked again by the narrower domain; a path that is changed meanwhile, a lost
race or an overlooked call ends in EACCES. If the broker dies, calls fail with ENOSYS.

It also connects the sockets of plugins without `network:unix`, so that they reach Unix sockets in their own folders and
no others (`own_sockets`).

No folder is ever renamed to, or from, a name on the way to a protected path, so a folder that was checked cannot become
part of one during the call, and several brokers need no lock. Standard library only; part of the spawner.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import fcntl
import os
import select
import stat
import struct

from anyplug.runtime.sandbox import packets
from anyplug.runtime.sandbox.linux import own_sockets, seccomp, syscalls
from anyplug.runtime.sandbox.linux.memory_and_disk import wear
from anyplug.runtime.sandbox.linux.protected_names import (
    CLOSED,
    FREE,
    GIT_MARK,
    GIT_NAME,
    INNER,
    Protected,
    drafted,
    sounds_like_file,
)

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from anyplug.runtime.sandbox.linux.own_sockets import OwnFolders
else:
    import _signal as signal

RECEIVE, SEND, IS_VALID, ADD_DESCRIPTOR, SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103, 0x40082104
SYNC_WAKE_UP = 1  # the answer wakes the program on this CPU: one context switch instead of two
NOTICE = struct.Struct("=QIIiIQ6Q")  # id, pid, flags; number, architecture, instruction, arguments
ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
ADDITION = struct.Struct("=QIIII")  # id, flags, our descriptor, its number there, its flags
SEND_ADDED = 2
GO_ON = 1
LONGEST_PATH = 4096
MOST_LINKS = 40  # links followed for one file, as in the kernel
LARGEST_VALUE = 1 << 16  # of an extended attribute, as in the kernel
RESOLVE_NO_MAGICLINKS = 2
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x200, 0x400, 0x1000
RENAME_EXCHANGE = 2
OPENS_NO_FILE = os.O_PATH | os.O_DIRECTORY
CHANGES_FILE = os.O_ACCMODE | os.O_TRUNC
FIRST_FREE = 3  # descriptors below are the standard streams
FIFO_MS = 5  # between checks whether somebody reads a FIFO that is being opened
CAP_SYS_PTRACE = 1 << 19  # to read what programs pass, where Yama allows only ancestors
CAPABILITY_VERSION = 0x20080522
YAMA = "/proc/sys/kernel/yama/ptrace_scope"
OLDEST_KERNEL = (5, 19)  # SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: before it, a signal repeats what is already done
SYS_PIDFD_GETFD = 438
SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
SYS_UTIMENSAT = {"x86_64": 280, "aarch64": 88}
BILLION = 1_000_000_000
STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
DESCRIPTORS = ("/proc/self/fd", "/proc/thread-self/fd", "/dev/fd")
CONTROL = 3  # the descriptor of the socket to the spawner
LISTEN = b"listen"
WITHDRAWN = b"-"  # a call whose program was killed before it was handled


class GoOn(Exception):
    """The call does not concern us: let the kernel do it, in the narrower domain."""


class Later(Exception):
    """The call would block; try again soon."""


class NameInFolder:
    """An open folder, its path, and a name in it."""

    __slots__ = ("fd", "folder", "name")

    def __init__(self, fd: int, folder: str, name: str) -> None:
        """`folder` is empty if the broker does not write there."""
        self.fd, self.folder, self.name = fd, folder, name


class Call:
    """A waiting system call."""

    __slots__ = ("arguments", "id", "name", "opened", "tid")

    def __init__(self, number: int, tid: int, name: str, arguments: tuple[int, ...]) -> None:
        self.id, self.tid, self.name, self.arguments = number, tid, name, arguments
        self.opened: list[int] = []

    def integer(self, index: int) -> int:
        """Return an argument that is an `int` in the kernel."""
        value = self.arguments[index] & 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value

    def memory(self, index: int, size: int) -> bytes:
        """Copy what an argument points to, as much as there is."""
        fd = os.open(f"/proc/{self.tid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, self.arguments[index])
        except (OverflowError, OSError) as error:
            raise OSError(errno.EFAULT, "bad address") from error
        finally:
            os.close(fd)

    def path(self, index: int) -> str:
        """Copy a path."""
        text, end, _ = self.memory(index, LONGEST_PATH).partition(b"\0")
        if not end:
            raise OSError(errno.ENAMETOOLONG, "path too long")
        return os.fsdecode(text)

    def keep(self, fd: int) -> int:
        """Close this when the call is answered."""
        self.opened.append(fd)
        return fd

    def base(self, at: int, path: str) -> int:
        """Open the folder that a path is relative to."""
        where = "cwd" if at == AT_FDCWD else f"fd/{at}"
        name = "/" if path.startswith("/") else f"/proc/{self.tid}/{where}"
        try:
            return self.keep(os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        except FileNotFoundError:
            raise OSError(errno.EBADF, "no such descriptor") from None

    def umask(self) -> int:
        """Read the program's umask."""
        return int(self._status(b"Umask:"), 8)

    def _status(self, key: bytes) -> bytes:
        """Read one of the first lines of the program's status."""
        fd = os.open(f"/proc/{self.tid}/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 512).partition(key)[2].split(None, 1)[0]
        finally:
            os.close(fd)

    def descriptor(self, fd: int) -> int:
        """Duplicate one of the program's descriptors."""
        process = os.pidfd_open(int(self._status(b"Tgid:")))
        try:
            return self.keep(syscalls.syscall("pidfd_getfd", SYS_PIDFD_GETFD, process, fd, 0))
        finally:
            os.close(process)


class Broker:
    """Answers the calls of one confined process tree."""

    def __init__(
        self,
        listener: int,
        roots: tuple[str, ...],
        direct: tuple[str, ...],
        protected: Protected,
        own: OwnFolders | None,
    ) -> None:
        """`roots` are the folders in which it makes changes, except for `direct`, which programs change themselves.

        Unix sockets must be in `own` folders; None if every one was granted.
        """
        self._own = own
        self._listener = listener
        self._roots = tuple(path.rstrip("/") + "/" for path in roots)
        self._direct = tuple(path.rstrip("/") + "/" for path in direct)
        self._protected = protected
        self._waiting: list[Call] = []
        self._umask = os.umask(0)
        os.umask(self._umask)
        machine = seccomp.ARCHITECTURES.index(os.uname().machine)
        self._names = {
            numbers[machine]: name for name, numbers in (seccomp.BROKERED | seccomp.BROKERED_SOCKETS).items()
        }
        self._rename = SYS_RENAMEAT2[os.uname().machine]

    def serve(self, control: _socket.socket, *, relayed: bool) -> None:
        """Answer until the spawner or all programs are gone; `relayed`: calls come through `control`."""
        try:
            fcntl.ioctl(self._listener, SET_FLAGS, SYNC_WAKE_UP)
        except OSError:
            pass  # before 6.6: slower
        poll = select.poll()
        poll.register(control, select.POLLIN if relayed else 0)
        if not relayed:
            poll.register(self._listener, select.POLLIN)
        while True:
            for fd, happened in poll.poll(FIFO_MS if self._waiting else None):
                if not happened & select.POLLIN:
                    return
                if not self.answer(control.recv(NOTICE.size) if fd != self._listener else self._receive()):
                    return
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                self._answer(call)

    def _receive(self) -> bytes:
        notice = bytearray(NOTICE.size)
        try:
            fcntl.ioctl(self._listener, RECEIVE, notice)
        except OSError:
            return WITHDRAWN
        return bytes(notice)

    def answer(self, notice: bytes) -> bool:
        """Carry out one call; return False if there will be no more."""
        if notice == WITHDRAWN or not notice:
            return bool(notice)
        number, tid, _, what, _, _, *arguments = NOTICE.unpack(notice)
        self._answer(Call(number, tid, self._names.get(what, ""), tuple(arguments)))
        return True

    def _answer(self, call: Call) -> None:
        value, error, flags = 0, 0, 0
        try:
            try:
                given = CALLS[call.name](self, call)
            except GoOn:
                if call.name == "connect":
                    raise OSError(errno.EPERM, "not one of its own sockets") from None
                flags = GO_ON
            except Later:
                self._waiting.append(call)
                return
            else:
                if given is not None:
                    self._give(call, given)
                    return
        except OSError as problem:
            error = problem.errno or errno.EIO
        except Exception:  # noqa: BLE001 - whatever it is, the program must not get what it asked for
            error = errno.EACCES
        finally:
            for fd in call.opened:
                os.close(fd)
            call.opened = []
        try:
            fcntl.ioctl(self._listener, SEND, ANSWER.pack(call.id, value, -error, flags))
        except OSError:  # it was killed meanwhile
            pass

    def _give(self, call: Call, opened: tuple[int, int]) -> None:
        """Pass a file to the program as the result of the call."""
        fd, flags = opened
        fcntl.ioctl(self._listener, ADD_DESCRIPTOR, ADDITION.pack(call.id, SEND_ADDED, fd, 0, flags & os.O_CLOEXEC))

    def _is_valid(self, call: Call) -> None:
        """Raise OSError if the program is gone: its number may be another's by now."""
        fcntl.ioctl(self._listener, IS_VALID, struct.pack("=Q", call.id))

    # Where things are

    def where(self, path: str) -> str:
        """Return a folder's path if the broker makes changes there, else an empty string."""
        whole = path.rstrip("/") + "/"
        if not whole.startswith(self._roots) or whole.startswith(self._direct):
            return ""
        return path

    def place(self, call: Call, at: int, path: str, base: int = -1, *, folder: bool = False) -> NameInFolder:
        """Resolve a path up to its last name. `folder`: it may end in a slash."""
        if not path:
            raise GoOn
        if folder and path != "/":
            path = path.rstrip("/") or "/"
        before, slash, name = path.rpartition("/")
        if name in {"", ".", ".."}:
            raise GoOn
        begin = base if base >= 0 and not path.startswith("/") else call.base(at, path)
        self._is_valid(call)
        fd = call.keep(_enter(begin, (before or "/") if slash else "."))
        where = os.readlink(f"/proc/self/fd/{fd}")
        if where.startswith("/proc/"):  # these names depend on who asks
            raise GoOn
        return NameInFolder(fd, self.where(where), name)

    def followed(self, call: Call, at: int, path: str) -> NameInFolder:
        """Resolve a path completely, including links; what is there was not a link when it was checked."""
        place = self.place(call, at, path)
        for _ in range(MOST_LINKS):
            found = _look(place)
            if found is None or not stat.S_ISLNK(found.st_mode):
                return place
            _check_link(place, found)
            place = self.place(call, at, os.readlink(place.name, dir_fd=place.fd), place.fd)
        raise OSError(errno.ELOOP, "too many links")

    def check(self, place: NameInFolder, *, there: int = 0, folder: bool = False) -> None:
        """Raise OSError if a name must not be created, changed or removed.

        `there` is the error if something exists, or if nothing does with a negative number; `folder`: only a folder.
        """
        state = self._protected.state(place.folder, place.name)
        if state != CLOSED and (self._is_gits(place) or (not folder and self._is_draft(place))):
            state = CLOSED
        if state == FREE or (state == INNER and folder):
            return
        exists = _look(place) is not None
        if there and exists == (there > 0):
            raise OSError(abs(there), "as the kernel would report")
        raise OSError(errno.EROFS, "protected")

    def _is_gits(self, place: NameInFolder) -> bool:
        """Return whether git would run commands from a name: its folder is a repository, whatever it is called."""
        for levels in self._protected.git_folders(place.folder, place.name):
            try:
                os.stat("../" * levels + GIT_MARK, dir_fd=place.fd, follow_symlinks=False)
            except OSError:
                continue
            return True
        return False

    def _is_draft(self, place: NameInFolder) -> bool:
        """Return whether programs rename such a name to a protected file: it would then be open already."""
        for name in drafted(place.name):
            file = NameInFolder(place.fd, place.folder, name)
            if self._protected.state(file.folder, name) != CLOSED and not self._is_gits(file):
                continue
            found = _look(file)
            if sounds_like_file(name) if found is None else not stat.S_ISDIR(found.st_mode):
                return True
        return False

    def _check_move(self, one: NameInFolder, other: NameInFolder) -> None:
        """Raise OSError if the content of a moved folder would get where it could not have been created.

        Patterns apply wherever the folder is, or name it; only a `.git` may contain what may not be elsewhere. This
        applies to everything that is moved, since a file may be a folder by the time of the call. No folder ever gets
        into a `.git` or out of it, so this stays true until the call is made.
        """
        if self._protected.repository(one.folder) != self._protected.repository(other.folder):
            raise OSError(errno.EXDEV, "into a repository, or out of it")
        for place in (one, other):
            if self._is_repository(place):
                raise OSError(errno.EROFS, "protected")

    def _is_repository(self, place: NameInFolder) -> bool:
        """Return whether a name is a folder that git considers a repository, which a `.git` file may point to."""
        if 0 not in self._protected.git_folders(os.path.join(place.folder, place.name), GIT_NAME):
            return False
        try:
            os.stat(f"{place.name}/{GIT_MARK}", dir_fd=place.fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    # The calls

    def open(self, call: Call, at: int, index: int, flags: int, mode: int) -> tuple[int, int] | None:
        """Open or create a file."""
        path = call.path(index)
        if (own := _own_descriptor(path)) >= 0:
            return self.reopen(call, own, flags)
        if path.startswith(("/dev/", "/proc/")):
            raise GoOn  # /dev/null, mostly
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            self._refuse_unnamed(call, at, path)
        if flags & OPENS_NO_FILE:
            raise GoOn
        is_new = flags & os.O_CREAT and flags & os.O_EXCL
        place = (self.place if is_new or flags & os.O_NOFOLLOW else self.followed)(call, at, path)
        if not place.folder:
            raise GoOn
        found = _look(place)
        if found is None:
            if not flags & os.O_CREAT:
                raise OSError(errno.ENOENT, "no such file")
        elif is_new or not flags & CHANGES_FILE or not _is_plain(found):
            raise GoOn  # it exists, is only read, or is not a file: the narrower domain decides
        self.check(place)
        if flags & os.O_CREAT:
            os.umask(call.umask())
        return self._open(call, place, flags, mode), flags

    def _open(self, call: Call, place: NameInFolder, flags: int, mode: int) -> int:
        try:
            fd = os.open(
                place.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode & 0o1777, dir_fd=place.fd
            )
        except OSError as error:
            if error.errno == errno.ENXIO and not flags & os.O_NONBLOCK:  # a FIFO without a reader
                raise Later from None
            raise
        call.keep(fd)
        if not _is_plain(os.fstat(fd)):
            raise OSError(errno.EACCES, "it has changed")
        if not flags & os.O_NONBLOCK:
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
        return fd

    def _refuse_unnamed(self, call: Call, at: int, path: str) -> None:
        """Refuse to create a file without a name, which could later get any name; every program has a fallback."""
        begin = call.base(at, path)
        self._is_valid(call)
        fd = call.keep(_enter(begin, path or "."))
        if self.where(os.readlink(f"/proc/self/fd/{fd}")):
            raise OSError(errno.EOPNOTSUPP, "no unnamed files")
        raise GoOn

    def reopen(self, call: Call, own: int, flags: int) -> tuple[int, int]:
        """Open what the program already has open, as `/dev/stdout` does."""
        named = call.keep(os.open(f"/proc/{call.tid}/fd/{own}", os.O_PATH | os.O_CLOEXEC))
        self._is_valid(call)
        if flags & OPENS_NO_FILE or not stat.S_ISREG(os.fstat(named).st_mode) or not self._is_ours(named):
            raise GoOn
        plain = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) | os.O_CLOEXEC
        fd = call.keep(os.open(f"/proc/self/fd/{named}", plain))
        return fd, flags

    def mkdir(self, call: Call, at: int, index: int, mode: int) -> None:
        """Create a folder."""
        place = self._ours(call, at, index, folder=True)
        self.check(place, there=errno.EEXIST, folder=True)
        os.umask(call.umask())
        os.mkdir(place.name, mode & 0o1777, dir_fd=place.fd)

    def remove(self, call: Call, at: int, index: int, flags: int) -> None:
        """Remove a name."""
        is_folder = bool(flags & AT_REMOVEDIR)
        place = self._ours(call, at, index, folder=is_folder)
        self.check(place, there=-errno.ENOENT, folder=is_folder)
        if is_folder:
            os.rmdir(place.name, dir_fd=place.fd)
        else:
            os.unlink(place.name, dir_fd=place.fd)

    def rename(self, call: Call, places: tuple[int, int, int, int], flags: int) -> None:
        """Rename. Between our folders and others it looks like another disk: the program then copies, name by name."""
        old_at, old, new_at, new = places
        old_path, new_path = call.path(old), call.path(new)
        one = self.place(call, old_at, old_path, folder=True)
        other = self.place(call, new_at, new_path, folder=True)
        if not one.folder and not other.folder:
            raise GoOn
        found = _look(one)
        if found is None:
            raise OSError(errno.ENOENT, "no such file")
        if not one.folder or not other.folder:
            raise OSError(errno.EXDEV, "between folders of different owners")
        if (old_path.endswith("/") or new_path.endswith("/")) and not stat.S_ISDIR(found.st_mode):
            raise OSError(errno.ENOTDIR, "not a folder")
        self.check(one)
        self.check(other)
        self._check_move(one, other)
        syscalls.syscall(
            "rename", self._rename, one.fd, os.fsencode(one.name), other.fd, os.fsencode(other.name),
            ctypes.c_uint(flags & 0xFFFFFFFF),
        )  # fmt: skip

    def link(self, call: Call, places: tuple[int, int, int, int], flags: int) -> None:
        """Add another name for a file."""
        old_at, old, new_at, new = places
        follows = bool(flags & AT_SYMLINK_FOLLOW)
        path = call.path(old)
        other = self.place(call, new_at, call.path(new))
        one = (self.followed if follows else self.place)(call, old_at, path)
        if not one.folder and not other.folder:
            raise GoOn
        if not one.folder or not other.folder:
            raise OSError(errno.EXDEV, "between folders of different owners")
        self.check(one, there=-errno.ENOENT)
        self.check(other, there=errno.EEXIST)
        self._check_move(one, other)
        os.link(one.name, other.name, src_dir_fd=one.fd, dst_dir_fd=other.fd, follow_symlinks=False)

    def symlink(self, call: Call, at: int, target: int, index: int) -> None:
        """Create a symbolic link."""
        to = call.path(target)
        place = self._ours(call, at, index)
        self.check(place, there=errno.EEXIST)
        if self._protected.leads_to_own(to):
            raise OSError(errno.EROFS, "it would lead to where nothing is protected")
        os.symlink(to, place.name, dir_fd=place.fd)

    def mknod(self, call: Call, at: int, index: int, mode: int, device: int) -> None:
        """Create a file, a FIFO or a socket; our domain does not allow devices."""
        place = self._ours(call, at, index)
        self.check(place, there=errno.EEXIST)
        os.umask(call.umask())
        os.mknod(place.name, mode & 0o171777, device & 0xFFFFFFFF, dir_fd=place.fd)

    def truncate(self, call: Call) -> None:
        """Truncate or extend a file."""
        place = self.followed(call, AT_FDCWD, call.path(0))
        found = _look(place)
        if not place.folder or found is None or not stat.S_ISREG(found.st_mode):
            raise GoOn
        self.check(place)
        size = call.arguments[1]
        fd = call.keep(os.open(place.name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.fd))
        if size >> 63:
            raise OSError(errno.EINVAL, "negative")
        os.ftruncate(fd, size)

    def bind(self, call: Call) -> None:
        """Create a socket with a path. Others have no name in a folder."""
        fd, address = self._socket(call)
        if not own_sockets.is_local(fd) or (self._own is None and not own_sockets.has_path(address)):
            raise GoOn
        place = self.place(call, AT_FDCWD, own_sockets.path_in(address))
        if not place.folder:
            raise GoOn  # the narrower domain lets programs create sockets in their own folders only
        if self._own is not None and place.folder not in self._own:
            raise OSError(errno.EPERM, "not one of its own folders")
        self.check(place, there=errno.EADDRINUSE)
        os.fchdir(call.base(AT_FDCWD, ""))
        try:
            os.umask(call.umask())
            own_sockets.bind(fd, address)
        finally:
            os.chdir("/")

    def connect(self, call: Call) -> None:
        """Connect a socket; one of this machine's only to one in the plugin's own folders. Never left to the kernel."""
        fd, address = self._socket(call)
        if own_sockets.is_local(fd):
            place = self.followed(call, AT_FDCWD, own_sockets.path_in(address))
            if self._own is None or os.readlink(f"/proc/self/fd/{place.fd}") not in self._own:
                raise OSError(errno.EPERM, "not one of its own folders")
            file = call.keep(os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd))
            if not stat.S_ISSOCK(os.fstat(file).st_mode):
                raise OSError(errno.ECONNREFUSED, "not a socket")
            address = own_sockets.address_of(file)
        if not own_sockets.connect(fd, address):
            raise Later

    def listen(self, call: Call) -> None:
        """Let a Unix socket listen, where no other may."""
        fd = call.descriptor(call.integer(0))
        self._is_valid(call)
        if not own_sockets.is_local(fd):
            raise OSError(errno.EPERM, "not a Unix socket")
        own_sockets.listen(fd, call.integer(1))

    def _socket(self, call: Call) -> tuple[int, bytes]:
        """Duplicate the socket that a call is about, and copy the address."""
        size = call.integer(2)
        if not 0 <= size <= own_sockets.LARGEST_ADDRESS:
            raise OSError(errno.EINVAL, "not an address")
        fd = call.descriptor(call.integer(0))
        address = call.memory(1, size) if size else b""
        self._is_valid(call)
        return fd, address

    def change(
        self,
        call: Call,
        at: int,
        index: int,
        act: Callable[[str], object],
        *,
        follow: bool = True,
        may_be_empty: bool = False,
    ) -> None:
        """Change a file's metadata, through a path that leads to nothing but that file.

        Landlock does not cover these calls, so none of them may be let through: what was checked might have changed by
        then.
        """
        path = call.path(index) if call.arguments[index] or not may_be_empty else ""
        if not path and not may_be_empty:
            raise OSError(errno.ENOENT, "an empty path")
        own = at if not path else _own_descriptor(path) if follow else -1
        if not path or own >= 0:
            where = "cwd" if own == AT_FDCWD else f"fd/{own}"
            fd = call.keep(os.open(f"/proc/{call.tid}/{where}", os.O_PATH | os.O_CLOEXEC))
        else:
            flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
            try:
                fd = call.keep(_enter(call.base(at, path), path, flags))
            except GoOn:
                raise OSError(errno.ELOOP, "a link of the kernel's own") from None
        self._is_valid(call)
        self._is_ours(fd)
        act(f"/proc/self/fd/{fd}")

    def change_opened(self, call: Call, act: Callable[[str], object]) -> None:
        """Do the same to a file that the program has open."""
        fd = call.keep(os.open(f"/proc/{call.tid}/fd/{call.integer(0)}", os.O_PATH | os.O_CLOEXEC))
        self._is_valid(call)
        self._is_ours(fd)
        act(f"/proc/self/fd/{fd}")

    def _is_ours(self, fd: int) -> bool:
        """Return whether an open file is where the broker makes changes; raises OSError if nobody may change it."""
        where = os.readlink(f"/proc/self/fd/{fd}")
        if not where.startswith("/") or f"{where}/".startswith(self._direct):
            return False  # not a file, or the plugin's own
        folder, _, name = where.rpartition("/")
        folder = folder or "/"
        if f"{where}/" in self._roots:
            return True
        if not name or not self.where(folder):
            raise OSError(errno.EROFS, "not granted")
        above = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.check(NameInFolder(above, folder, name), folder=stat.S_ISDIR(os.fstat(fd).st_mode))
        finally:
            os.close(above)
        return True

    def _ours(self, call: Call, at: int, index: int, *, folder: bool = False) -> NameInFolder:
        place = self.place(call, at, call.path(index), folder=folder)
        if not place.folder:
            raise GoOn
        return place


def _enter(base: int, path: str, flags: int = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) -> int:
    """Open a path below a folder without following the kernel's own links, which lead where no name shows."""
    how = struct.pack("=QQQ", flags, 0, RESOLVE_NO_MAGICLINKS)
    try:
        return syscalls.syscall("open", syscalls.SYS_OPENAT2, base, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GoOn from None
        raise


def _look(place: NameInFolder) -> os.stat_result | None:
    try:
        return os.stat(place.name, dir_fd=place.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)


def _check_link(place: NameInFolder, link: os.stat_result) -> None:
    """Enforce `fs.protected_symlinks`, since we follow the link: another user's link in a shared folder is a trap."""
    folder = os.fstat(place.fd)
    is_shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if is_shared and link.st_uid not in {os.geteuid(), folder.st_uid}:
        raise OSError(errno.EACCES, "another user's link")


def _own_descriptor(path: str) -> int:
    """Return the number of the descriptor that a path stands for; -1 if it does not."""
    if path in STREAMS:
        return STREAMS[path]
    folder, _, name = path.rpartition("/")
    return int(name) if folder in DESCRIPTORS and name.isascii() and name.isdigit() else -1


def _times(call: Call, index: int, form: str, unit: int) -> Callable[[str], None]:
    """Set the times of a file, passed as pairs of seconds and fractions."""
    if not call.arguments[index]:
        return os.utime
    words = struct.unpack(form, call.memory(index, struct.calcsize(form)))
    if unit == 0:  # whole seconds
        times = (words[0] * BILLION, words[1] * BILLION)
    else:
        times = (words[0] * BILLION + words[1] * unit, words[2] * BILLION + words[3] * unit)
    return lambda path: os.utime(path, ns=times)


def _exact_times(call: Call, index: int) -> Callable[[str], object]:
    """Set them as `utimensat` does, which also knows "now" and "unchanged"."""
    times = call.memory(index, 32) if call.arguments[index] else None
    number = SYS_UTIMENSAT[os.uname().machine]
    return lambda path: syscalls.syscall("utimensat", number, AT_FDCWD, path.encode(), times, 0)


def _attribute(call: Call) -> Callable[[str], None]:
    name, size = call.path(1), call.arguments[3]
    if size > LARGEST_VALUE:
        raise OSError(errno.E2BIG, "value too long")
    value = call.memory(2, size) if size else b""
    return lambda path: os.setxattr(path, name, value, call.integer(4))


def _no_attribute(call: Call) -> Callable[[str], None]:
    name = call.path(1)
    return lambda path: os.removexattr(path, name)


def _mode(call: Call, index: int) -> Callable[[str], None]:
    mode = call.arguments[index] & 0o7777
    return lambda path: os.chmod(path, mode)


def _owner(call: Call, index: int) -> Callable[[str], None]:
    user, group = call.integer(index), call.integer(index + 1)
    return lambda path: os.chown(path, user, group)


def _follows(call: Call, index: int) -> bool:
    flags = call.integer(index)
    if flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH):
        raise OSError(errno.EINVAL, "unknown flags")
    return not flags & AT_SYMLINK_NOFOLLOW


_HERE = AT_FDCWD
CREATING = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
# The system calls, each as one of the methods above: (broker, call) -> a file to return and its flags, or nothing.
CALLS: dict[str, Callable[[Broker, Call], tuple[int, int] | None]] = {
    "open": lambda b, c: b.open(c, _HERE, 0, c.integer(1), c.integer(2)),
    "openat": lambda b, c: b.open(c, c.integer(0), 1, c.integer(2), c.integer(3)),
    "creat": lambda b, c: b.open(c, _HERE, 0, CREATING, c.integer(1)),
    "mkdir": lambda b, c: b.mkdir(c, _HERE, 0, c.integer(1)),
    "mkdirat": lambda b, c: b.mkdir(c, c.integer(0), 1, c.integer(2)),
    "rmdir": lambda b, c: b.remove(c, _HERE, 0, AT_REMOVEDIR),
    "unlink": lambda b, c: b.remove(c, _HERE, 0, 0),
    "unlinkat": lambda b, c: b.remove(c, c.integer(0), 1, c.integer(2)),
    "rename": lambda b, c: b.rename(c, (_HERE, 0, _HERE, 1), 0),
    "renameat": lambda b, c: b.rename(c, (c.integer(0), 1, c.integer(2), 3), 0),
    "renameat2": lambda b, c: b.rename(c, (c.integer(0), 1, c.integer(2), 3), c.integer(4)),
    "link": lambda b, c: b.link(c, (_HERE, 0, _HERE, 1), 0),
    "linkat": lambda b, c: b.link(c, (c.integer(0), 1, c.integer(2), 3), c.integer(4)),
    "symlink": lambda b, c: b.symlink(c, _HERE, 0, 1),
    "symlinkat": lambda b, c: b.symlink(c, c.integer(1), 0, 2),
    "mknod": lambda b, c: b.mknod(c, _HERE, 0, c.integer(1), c.integer(2)),
    "mknodat": lambda b, c: b.mknod(c, c.integer(0), 1, c.integer(2), c.integer(3)),
    "truncate": lambda b, c: b.truncate(c),
    "bind": lambda b, c: b.bind(c),
    "connect": lambda b, c: b.connect(c),
    "listen": lambda b, c: b.listen(c),
    "chmod": lambda b, c: b.change(c, _HERE, 0, _mode(c, 1)),
    "fchmod": lambda b, c: b.change_opened(c, _mode(c, 1)),
    "fchmodat": lambda b, c: b.change(c, c.integer(0), 1, _mode(c, 2)),
    "fchmodat2": lambda b, c: b.change(
        c, c.integer(0), 1, _mode(c, 2), follow=_follows(c, 3), may_be_empty=bool(c.integer(3) & AT_EMPTY_PATH)
    ),
    "chown": lambda b, c: b.change(c, _HERE, 0, _owner(c, 1)),
    "lchown": lambda b, c: b.change(c, _HERE, 0, _owner(c, 1), follow=False),
    "fchown": lambda b, c: b.change_opened(c, _owner(c, 1)),
    "fchownat": lambda b, c: b.change(
        c, c.integer(0), 1, _owner(c, 2), follow=_follows(c, 4), may_be_empty=bool(c.integer(4) & AT_EMPTY_PATH)
    ),
    "utime": lambda b, c: b.change(c, _HERE, 0, _times(c, 1, "=2q", 0)),
    "utimes": lambda b, c: b.change(c, _HERE, 0, _times(c, 1, "=4q", 1000)),
    "futimesat": lambda b, c: b.change(c, c.integer(0), 1, _times(c, 2, "=4q", 1000)),
    "utimensat": lambda b, c: b.change(
        c, c.integer(0), 1, _exact_times(c, 2), follow=_follows(c, 3), may_be_empty=True
    ),
    "setxattr": lambda b, c: b.change(c, _HERE, 0, _attribute(c)),
    "lsetxattr": lambda b, c: b.change(c, _HERE, 0, _attribute(c), follow=False),
    "fsetxattr": lambda b, c: b.change_opened(c, _attribute(c)),
    "removexattr": lambda b, c: b.change(c, _HERE, 0, _no_attribute(c)),
    "lremovexattr": lambda b, c: b.change(c, _HERE, 0, _no_attribute(c), follow=False),
    "fremovexattr": lambda b, c: b.change_opened(c, _no_attribute(c)),
}


def shortfall() -> str:
    """Return what this machine lacks for a broker; empty if nothing."""
    machine, release = os.uname().machine, os.uname().release
    if machine not in seccomp.ARCHITECTURES:
        return f"there is no broker for {machine}"
    if _version(release) < OLDEST_KERNEL:
        return f"Linux {release} is older than {OLDEST_KERNEL[0]}.{OLDEST_KERNEL[1]}"
    try:
        with open(YAMA, "rb") as file:
            scope = int(file.read())
    except (OSError, ValueError):
        scope = 0
    if scope and not _capabilities() & CAP_SYS_PTRACE:
        return f"kernel.yama.ptrace_scope is {scope}, so it cannot read the paths that the plugin's programs pass"
    return ""


def _version(release: str) -> tuple[int, ...]:
    words = release.replace("-", ".").split(".")[:2]
    return tuple(int(word) for word in words if word.isdigit())


def start(
    roots: tuple[str, ...], direct: tuple[str, ...], protected: Protected, own: OwnFolders | None, *, relayed: bool
) -> tuple[int, int]:
    """Fork a broker confined like this thread; return its process and a socket that takes its listener."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours.detach()
    try:
        _be_alone(theirs.detach())
        _serve(roots, direct, protected, own, relayed=relayed)
    finally:
        os._exit(0)


def _be_alone(control: int) -> None:
    """Drop what belongs to the spawner: the pipes of programs, its rights and its mark."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in range(FIRST_FREE):
        os.dup2(nothing, stream)
    control = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, CONTROL + 1)
    os.dup2(control, CONTROL, inheritable=False)
    os.closerange(CONTROL + 1, os.sysconf("SC_OPEN_MAX"))
    wear(None)
    _keep_capabilities(CAP_SYS_PTRACE)
    syscalls.prctl("dumpable", syscalls.PR_SET_DUMPABLE, 0)
    os.chdir("/")


def _serve(
    roots: tuple[str, ...], direct: tuple[str, ...], protected: Protected, own: OwnFolders | None, *, relayed: bool
) -> None:
    control = _socket.socket(fileno=CONTROL)
    packet, listeners = packets.receive(control, len(LISTEN), 1)
    if packet == LISTEN and listeners:
        Broker(listeners[0], roots, direct, protected, own).serve(control, relayed=relayed)


def _capabilities() -> int:
    header, data = struct.pack("=Ii", CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    syscalls.check(syscalls.libc.capget(header, data), "capget")
    low, high = struct.unpack_from("=I", data, 4)[0], struct.unpack_from("=I", data, 16)[0]
    return int(low | high << 32)


def _keep_capabilities(kept: int) -> None:
    """Drop all capabilities that the programs lack, except for reading what they pass."""
    kept &= _capabilities()
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    data = struct.pack("=6I", kept & 0xFFFFFFFF, kept & 0xFFFFFFFF, 0, kept >> 32, kept >> 32, 0)
    syscalls.check(syscalls.libc.capset(header, data), "capset")
