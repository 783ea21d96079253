"""A system call that waits for the broker: what the program passed, copied from its memory."""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from anyplug.runtime.sandbox.linux import syscalls

IS_VALID = 0x40082102
LONGEST_PATH = 4096
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x200, 0x400, 0x1000
SYS_PIDFD_GETFD = 438


class GoOn(Exception):
    """The call does not concern us: let the kernel do it, in the narrower domain."""


class Later(Exception):
    """The call would block; try again soon."""


class Call:
    """A waiting system call."""

    __slots__ = ("_listener", "arguments", "id", "name", "opened", "tid")

    def __init__(self, listener: int, number: int, tid: int, name: str, arguments: tuple[int, ...]) -> None:
        self._listener = listener
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

    def check_alive(self) -> None:
        """Raise OSError if the program is gone: its number may be another's by now."""
        fcntl.ioctl(self._listener, IS_VALID, struct.pack("=Q", self.id))
