"""The calls that change times, modes, owners and extended attributes."""

from __future__ import annotations

import errno
import os
import struct

from anyplug.runtime.sandbox.linux import syscalls
from anyplug.runtime.sandbox.linux.broker.places import enter, own_descriptor
from anyplug.runtime.sandbox.linux.broker.waiting_call import AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, GoOn

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable

    from anyplug.runtime.sandbox.linux.broker.places import Places
    from anyplug.runtime.sandbox.linux.broker.waiting_call import Call

LARGEST_VALUE = 1 << 16  # of an extended attribute, as in the kernel
SYS_UTIMENSAT = {"x86_64": 280, "aarch64": 88}
BILLION = 1_000_000_000


def change(
    places: Places,
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
    own = at if not path else own_descriptor(path) if follow else -1
    if not path or own >= 0:
        where = "cwd" if own == AT_FDCWD else f"fd/{own}"
        fd = call.keep(os.open(f"/proc/{call.tid}/{where}", os.O_PATH | os.O_CLOEXEC))
    else:
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        try:
            fd = call.keep(enter(call.base(at, path), path, flags))
        except GoOn:
            raise OSError(errno.ELOOP, "a link of the kernel's own") from None
    call.check_alive()
    places.is_ours(fd)
    act(f"/proc/self/fd/{fd}")


def change_opened(places: Places, call: Call, act: Callable[[str], object]) -> None:
    """Do the same to a file that the program has open."""
    fd = call.keep(os.open(f"/proc/{call.tid}/fd/{call.integer(0)}", os.O_PATH | os.O_CLOEXEC))
    call.check_alive()
    places.is_ours(fd)
    act(f"/proc/self/fd/{fd}")


def times(call: Call, index: int, form: str, unit: int) -> Callable[[str], None]:
    """Return the change that sets the times, passed as pairs of seconds and fractions."""
    if not call.arguments[index]:
        return os.utime
    words = struct.unpack(form, call.memory(index, struct.calcsize(form)))
    if unit == 0:  # whole seconds
        times = (words[0] * BILLION, words[1] * BILLION)
    else:
        times = (words[0] * BILLION + words[1] * unit, words[2] * BILLION + words[3] * unit)
    return lambda path: os.utime(path, ns=times)


def exact_times(call: Call, index: int) -> Callable[[str], object]:
    """Return the change that sets the times as `utimensat` does, which also knows "now" and "unchanged"."""
    times = call.memory(index, 32) if call.arguments[index] else None
    number = SYS_UTIMENSAT[os.uname().machine]
    return lambda path: syscalls.syscall("utimensat", number, AT_FDCWD, path.encode(), times, 0)


def attribute(call: Call) -> Callable[[str], None]:
    """Return the change that sets an extended attribute."""
    name, size = call.path(1), call.arguments[3]
    if size > LARGEST_VALUE:
        raise OSError(errno.E2BIG, "value too long")
    value = call.memory(2, size) if size else b""
    return lambda path: os.setxattr(path, name, value, call.integer(4))


def no_attribute(call: Call) -> Callable[[str], None]:
    """Return the change that removes an extended attribute."""
    name = call.path(1)
    return lambda path: os.removexattr(path, name)


def mode(call: Call, index: int) -> Callable[[str], None]:
    """Return the change that sets the mode."""
    mode = call.arguments[index] & 0o7777
    return lambda path: os.chmod(path, mode)


def owner(call: Call, index: int) -> Callable[[str], None]:
    """Return the change that sets the owner."""
    user, group = call.integer(index), call.integer(index + 1)
    return lambda path: os.chown(path, user, group)


def follows(call: Call, index: int) -> bool:
    """Return whether the flags of a call follow a link at the end of the path."""
    flags = call.integer(index)
    if flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH):
        raise OSError(errno.EINVAL, "unknown flags")
    return not flags & AT_SYMLINK_NOFOLLOW
