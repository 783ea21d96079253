"""Whether anything stirred in some folders, by one question to the kernel: inotify, on Linux.

It sees what programs on this machine do by a path below those folders, before their system call comes back. It does
not see what is changed by another hard link or through mapped memory, on other machines of a network, or by moving a
folder above.
"""

import array
import fcntl
import os
import struct
import sys
import termios
import threading
from collections.abc import Iterable

CHANGES = 0x002 | 0x004 | 0x008 | 0x040 | 0x080 | 0x100 | 0x200 | 0x400 | 0x800  # of content, mode, name, existence
ARRIVALS = 0x080 | 0x100  # moved to, created
IS_FOLDER, HEADER = 0x40000000, struct.Struct("iIII")  # watch, what happened, cookie, length of the name
CLOSED_ON_EXEC_AND_NEVER_BLOCKING = os.O_CLOEXEC | os.O_NONBLOCK
MOST_WATCHED = 10_000  # paths, then all are let go: the kernel counts them for all programs of the user
CHUNK = 65_536  # bytes of what happened that are read at once


class Stir:
    """Watches paths from the moment they are named."""

    def __init__(self) -> None:
        self._fd = -1
        self._count = 0
        self._waiting = array.array("i", [0])
        self._turn = threading.Lock()  # of those who watch in threads; `happened` never waits for them
        self._is_lost = False  # something cannot be watched
        self._is_there = sys.platform == "linux"

    def watch(self, paths: Iterable[str]) -> bool:
        """Watch folders and files, too. What links lead to is watched.

        False if not all of them can be; then nothing is watched any more, also not what was before.
        """
        if not self._is_there:
            return False
        from anyplug.runtime.sandbox.linux import syscalls  # ctypes takes milliseconds, and one call needs no watch

        with self._turn:
            try:
                if self._fd < 0:
                    start = syscalls.libc.inotify_init1(CLOSED_ON_EXEC_AND_NEVER_BLOCKING)
                    self._fd = syscalls.check(start, "inotify_init1")
                for path in map(os.fsencode, paths):
                    syscalls.check(syscalls.libc.inotify_add_watch(self._fd, path, CHANGES), "inotify_add_watch")
                    self._count += 1
            except OSError:
                self._is_lost = True  # something is gone, not to be read, or more than the user may watch
            # Closed by the thread that asks `happened`: it may be about to use the descriptor.
            self._is_lost = self._is_lost or self._count > MOST_WATCHED
            return not self._is_lost

    def happened(self) -> bool:
        """Return whether anything did since this was last asked."""
        if self._is_lost:
            self.close()
        if self._fd < 0:
            return False
        fcntl.ioctl(self._fd, termios.FIONREAD, self._waiting)
        if not self._waiting[0]:
            return False
        try:
            while os.read(self._fd, CHUNK):
                pass
        except BlockingIOError:
            pass
        return True

    def close(self) -> None:
        """Watch no more."""
        with self._turn:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd, self._count, self._is_lost = -1, 0, False


class Arrivals:
    """The names that come into some folders. `close` when done."""

    def __init__(self, folders: Iterable[str]) -> None:
        """Watch from now on; nothing is seen if the kernel does not let us."""
        from anyplug.runtime.sandbox.linux import syscalls  # as above

        self._folders: dict[int, str] = {}
        try:
            started = syscalls.libc.inotify_init1(CLOSED_ON_EXEC_AND_NEVER_BLOCKING)
            self._fd = syscalls.check(started, "inotify_init1")
            for folder in folders:
                watch = syscalls.libc.inotify_add_watch(self._fd, os.fsencode(folder), ARRIVALS)
                self._folders[syscalls.check(watch, "inotify_add_watch")] = folder
        except OSError:
            self.close()

    def names(self) -> list[tuple[str, bool]]:
        """List what came since this was last asked, each with whether it is a folder; an empty path if too much did."""
        found = []
        try:
            while self._fd >= 0:
                packet, at = os.read(self._fd, CHUNK), 0
                while at < len(packet):
                    watch, what, _, length = HEADER.unpack_from(packet, at)
                    name = packet[at + HEADER.size : at + HEADER.size + length].rstrip(b"\0")
                    at += HEADER.size + length
                    if watch in self._folders and name:
                        found.append((os.path.join(self._folders[watch], os.fsdecode(name)), bool(what & IS_FOLDER)))
                    elif watch < 0:
                        found.append(("", False))
        except BlockingIOError:
            pass
        return found

    def close(self) -> None:
        """Watch no more."""
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
        self._fd = -1
