"""Unix sockets that need no grant: those in a plugin's own folders.

A read-only mount does not stop `connect`, and Landlock does not cover it, so the broker connects for the programs: it
has copied the address and holds the socket and the file, so nothing of that can change between check and call. The
same goes for addresses of the network: a program could replace either meanwhile. Standard library only; part of the
spawner.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import os

from anyplug.runtime.sandbox.linux import syscalls

LARGEST_ADDRESS = 128  # bytes, as in the kernel
FAMILY = 2  # bytes before a path
PENDING = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EAGAIN})


class OwnFolders:
    """The folders that nobody else puts sockets into."""

    def __init__(self, own: tuple[str, ...], others: tuple[str, ...]) -> None:
        """`others` may be inside them, such as a project in /tmp, or around them."""
        self._own = tuple(_whole(path) for path in own)
        self._others = tuple(path for path in map(_whole, others) if path not in self._own)

    def __contains__(self, folder: str) -> bool:
        """Return whether a folder is the plugin's own: the innermost one around it decides."""
        whole = _whole(folder)
        own, other = (
            max((len(path) for path in paths if whole.startswith(path)), default=0)
            for paths in (self._own, self._others)
        )
        return own > other


def has_path(address: bytes) -> bool:
    """Return whether an address is a Unix socket's with a file."""
    return (
        len(address) > FAMILY and int.from_bytes(address[:FAMILY], "little") == _socket.AF_UNIX and address[FAMILY] != 0
    )


def path_in(address: bytes) -> str:
    """Return the path in a Unix address; raises OSError for names without a file, which anybody may have."""
    if not has_path(address):
        raise OSError(errno.EPERM, "not a path")
    return os.fsdecode(address[FAMILY:].partition(b"\0")[0])


def address_of(fd: int) -> bytes:
    """Return the address that leads to an open file."""
    return _socket.AF_UNIX.to_bytes(FAMILY, "little") + f"/proc/self/fd/{fd}\0".encode()


def is_local(fd: int) -> bool:
    """Return whether a descriptor is a Unix socket; raises OSError if it is no socket."""
    peer = _socket.socket(fileno=os.dup(fd))
    try:
        return peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_DOMAIN) == _socket.AF_UNIX
    finally:
        peer.close()


def bind(fd: int, address: bytes) -> None:
    """Bind a socket."""
    syscalls.check(syscalls.libc.bind(fd, address, len(address)), "bind")


def listen(fd: int, backlog: int) -> None:
    """Let a socket listen."""
    syscalls.check(syscalls.libc.listen(fd, backlog), "listen")


def connect(fd: int, address: bytes) -> bool:
    """Connect a socket without waiting; raises OSError. Return False if the program waits and must be answered later.

    To connect again is how to find out what became of it.
    """
    blocks = os.get_blocking(fd)
    os.set_blocking(fd, False)
    try:
        problem = _connect(fd, address)
        if blocks and problem == errno.EINPROGRESS:
            problem = _connect(fd, address)  # on this machine it is done by now
    finally:
        os.set_blocking(fd, blocks)
    if blocks and problem in PENDING:
        return False
    if problem:
        raise OSError(problem, os.strerror(problem))
    return True


def _connect(fd: int, address: bytes) -> int:
    return ctypes.get_errno() if syscalls.libc.connect(fd, address, len(address)) else 0


def _whole(path: str) -> str:
    return path.rstrip("/") + "/"
