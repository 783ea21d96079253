"""Detect changes in watched folders with inotify, on Linux.

It sees what programs on this machine do through a path below those folders, before their system call returns. It does
not see changes through another hard link or mapped memory, on other machines of a network, or by moving a parent
folder.
"""

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
MOST_WATCHED = 10_000  # paths; beyond that all watches are dropped: the kernel counts them for all programs of the user
CHUNK = 65_536  # bytes of events read at once
NO_BYTES = bytes(struct.calcsize("i"))  # the number of bytes to read, as the kernel writes it


class PathWatch:
    """Watches paths from the moment they are added."""

    def __init__(self) -> None:
        self._fd = -1
        self._count = 0
        self._turn = threading.Lock()  # for threads that add watches; `happened` never waits for them
        self._is_lost = False  # something cannot be watched
        self._is_there = sys.platform == "linux"
        self._waiting = bytearray(NO_BYTES)

    def watch(self, paths: Iterable[str]) -> bool:
        """Watch further folders and files, following links.

        Return False if not all of them can be watched; then nothing is watched any more, including earlier paths.
        """
        if not self._is_there:
            return False
        # ctypes takes milliseconds to import, and a single call needs no watch
        from anyplug.runtime.sandbox.linux import syscalls

        with self._turn:
            try:
                if self._fd < 0:
                    start = syscalls.libc.inotify_init1(CLOSED_ON_EXEC_AND_NEVER_BLOCKING)
                    self._fd = syscalls.check(start, "inotify_init1")
                for path in map(os.fsencode, paths):
                    syscalls.check(syscalls.libc.inotify_add_watch(self._fd, path, CHANGES), "inotify_add_watch")
                    self._count += 1
            except OSError:
                self._is_lost = True  # something is gone, unreadable, or more than the user may watch
            # Closed by the thread that calls `happened`: it may be about to use the descriptor.
            self._is_lost = self._is_lost or self._count > MOST_WATCHED
            return not self._is_lost

    def happened(self) -> bool:
        """Return whether anything changed since the last call."""
        if self._is_lost:
            self.close()
        if self._fd < 0:
            return False
        if not _has_events(self._fd, self._waiting):
            return False
        try:
            while os.read(self._fd, CHUNK):
                pass
        except BlockingIOError:
            pass
        return True

    def close(self) -> None:
        """Stop watching."""
        with self._turn:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd, self._count, self._is_lost = -1, 0, False


class Arrivals:
    """The names that are added to some folders. `close` when done."""

    def __init__(self, folders: Iterable[str]) -> None:
        """Start watching; if the kernel does not allow it, nothing is reported."""
        from anyplug.runtime.sandbox.linux import syscalls  # for the same reason

        self._folders: dict[int, str] = {}
        self._waiting = bytearray(NO_BYTES)
        try:
            started = syscalls.libc.inotify_init1(CLOSED_ON_EXEC_AND_NEVER_BLOCKING)
            self._fd = syscalls.check(started, "inotify_init1")
            for folder in folders:
                watch = syscalls.libc.inotify_add_watch(self._fd, os.fsencode(folder), ARRIVALS)
                self._folders[syscalls.check(watch, "inotify_add_watch")] = folder
        except OSError:
            self.close()

    def names(self) -> list[tuple[str, bool]]:
        """Return what was added since the last call, each with whether it is a folder; an empty path for too much."""
        found: list[tuple[str, bool]] = []
        if self._fd < 0 or not _has_events(self._fd, self._waiting):
            return found
        try:
            while True:
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
        """Stop watching."""
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
        self._fd = -1


def _has_events(fd: int, waiting: bytearray) -> bool:
    """Return whether events wait to be read; the kernel writes into `waiting` how many bytes.

    Each call asks this. A read that finds nothing takes four times as long, and a buffer that is not reused twice.
    """
    fcntl.ioctl(fd, termios.FIONREAD, waiting)
    return waiting != NO_BYTES
