"""The calls about sockets."""

from __future__ import annotations

import errno
import os
import stat

from anyplug.runtime.sandbox.linux import own_sockets
from anyplug.runtime.sandbox.linux.broker.waiting_call import AT_FDCWD, GoOn, Later

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from anyplug.runtime.sandbox.linux.broker.places import Places
    from anyplug.runtime.sandbox.linux.broker.waiting_call import Call


def bind(places: Places, call: Call) -> None:
    """Create a socket with a path. Others have no name in a folder."""
    fd, address = _socket(call)
    if not own_sockets.is_local(fd) or (places.own is None and not own_sockets.has_path(address)):
        raise GoOn
    place = places.place(call, AT_FDCWD, own_sockets.path_in(address))
    if not place.folder:
        raise GoOn  # the narrower domain lets programs create sockets in their own folders only
    if places.own is not None and place.folder not in places.own:
        raise OSError(errno.EPERM, "not one of its own folders")
    places.check(place, there=errno.EADDRINUSE)
    os.fchdir(call.base(AT_FDCWD, ""))
    try:
        os.umask(call.umask())
        own_sockets.bind(fd, address)
    finally:
        os.chdir("/")


def connect(places: Places, call: Call) -> None:
    """Connect a socket; one of this machine's only to one in the plugin's own folders. Never left to the kernel."""
    fd, address = _socket(call)
    if own_sockets.is_local(fd):
        place = places.followed(call, AT_FDCWD, own_sockets.path_in(address))
        if places.own is None or os.readlink(f"/proc/self/fd/{place.fd}") not in places.own:
            raise OSError(errno.EPERM, "not one of its own folders")
        file = call.keep(os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd))
        if not stat.S_ISSOCK(os.fstat(file).st_mode):
            raise OSError(errno.ECONNREFUSED, "not a socket")
        address = own_sockets.address_of(file)
    if not own_sockets.connect(fd, address):
        raise Later


def listen(call: Call) -> None:
    """Let a Unix socket listen, where no other may."""
    fd = call.descriptor(call.integer(0))
    call.check_alive()
    if not own_sockets.is_local(fd):
        raise OSError(errno.EPERM, "not a Unix socket")
    own_sockets.listen(fd, call.integer(1))


def _socket(call: Call) -> tuple[int, bytes]:
    """Duplicate the socket that a call is about, and copy the address."""
    size = call.integer(2)
    if not 0 <= size <= own_sockets.LARGEST_ADDRESS:
        raise OSError(errno.EINVAL, "not an address")
    fd = call.descriptor(call.integer(0))
    address = call.memory(1, size) if size else b""
    call.check_alive()
    return fd, address
