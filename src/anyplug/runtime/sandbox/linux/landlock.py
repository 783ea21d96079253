"""Landlock: which files and TCP ports a thread and its descendants may use.

Our own implementation, because `py-landlock` knows files only (no ports, no scopes) and `sandlock` starts the programs
itself, which costs 6 ms a call and leaves no place for our pipes and namespaces. The interface is three system calls. A
ruleset names inodes, not paths: what is recreated needs a new one.
"""

import ctypes
import os
import stat
import struct

from anyplug.runtime.sandbox.linux import syscalls

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # on every architecture
ASK_VERSION = 1
RULE_PATH, RULE_PORT = 1, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, MAKE_CHAR, MAKE_BLOCK = 1, 2, 4, 8, 1 << 6, 1 << 11
TRUNCATE, IOCTL_DEVICE = 1 << 14, 1 << 15
EVERYTHING = (1 << 16) - 1
READ = READ_FILE | READ_DIR
RUN = READ | EXECUTE
WRITE = EVERYTHING & ~EXECUTE & ~MAKE_CHAR & ~MAKE_BLOCK
DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEVICE
CHANGE = EVERYTHING & ~(EXECUTE | READ | IOCTL_DEVICE)
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE  # rights that apply to a single file
RIGHTS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}  # how many rights each version knows; later ones know 16

BIND_TCP, CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1, 2
SINCE_TRUNCATE, SINCE_PORTS, SINCE_SCOPES = 3, 4, 6  # versions


def version() -> int:
    """Return the version of this kernel's Landlock; 0 if it has none, or it is disabled."""
    number: int = syscalls.libc.syscall(ctypes.c_long(CREATE_RULESET), None, ctypes.c_size_t(0), ASK_VERSION)
    return max(number, 0)


class Ruleset:
    """What will be allowed. Everything else that this kernel's Landlock knows is refused."""

    def __init__(self, *, ports: tuple[int, ...] | None = (), scopes: int = 0, about: int = EVERYTHING) -> None:
        """`ports` are those that may be connected to, None for all; raises OSError without Landlock.

        `about` are the file rights that are refused unless allowed; others are not affected.
        """
        known = version()
        self._rights = (1 << RIGHTS_OF_VERSION.get(known, 16)) - 1 & about
        holds_ports = ports is not None and known >= SINCE_PORTS
        words = [self._rights, (BIND_TCP | CONNECT_TCP) if holds_ports else 0, scopes]
        size = 8 if known < SINCE_PORTS else 16 if known < SINCE_SCOPES else 24
        handled = struct.pack("=QQQ", *words)[:size]
        self.fd = syscalls.syscall("landlock", CREATE_RULESET, handled, ctypes.c_size_t(size), 0)
        for port in ports or () if holds_ports else ():
            rule = struct.pack("=QQ", CONNECT_TCP, port)
            syscalls.syscall(f"landlock port {port}", ADD_RULE, self.fd, RULE_PORT, rule, 0)

    def allow(self, path: str, rights: int) -> bool:
        """Allow something on a file, or on a folder and all below; return False if the path is missing or a link."""
        try:
            fd = syscalls.name(path)
        except OSError:
            return False
        try:
            self.allow_opened(fd, rights)
        finally:
            os.close(fd)
        return True

    def allow_opened(self, fd: int, rights: int) -> None:
        """Allow the same for an open file."""
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= ON_FILES
        rule = struct.pack("=Qi", rights & self._rights, fd)
        syscalls.syscall("landlock rule", ADD_RULE, self.fd, RULE_PATH, rule, 0)

    def restrict(self) -> None:
        """Restrict this thread permanently. Needs no_new_privs."""
        syscalls.syscall("landlock", RESTRICT_SELF, self.fd, 0)

    def close(self) -> None:
        """Close it; restricted threads stay restricted."""
        os.close(self.fd)
