"""The calls that open, create, rename and remove files."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat

from anyplug.runtime.sandbox.linux import syscalls
from anyplug.runtime.sandbox.linux.broker.places import enter, is_plain, look, own_descriptor
from anyplug.runtime.sandbox.linux.broker.waiting_call import AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, GoOn, Later

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from anyplug.runtime.sandbox.linux.broker.places import NameInFolder, Places
    from anyplug.runtime.sandbox.linux.broker.waiting_call import Call

OPENS_NO_FILE = os.O_PATH | os.O_DIRECTORY
CHANGES_FILE = os.O_ACCMODE | os.O_TRUNC
SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}


def open(places: Places, call: Call, at: int, index: int, flags: int, mode: int) -> tuple[int, int] | None:
    """Open or create a file."""
    path = call.path(index)
    if (own := own_descriptor(path)) >= 0:
        return reopen(places, call, own, flags)
    if path.startswith(("/dev/", "/proc/")):
        raise GoOn  # /dev/null, mostly
    if flags & os.O_TMPFILE == os.O_TMPFILE:
        _refuse_unnamed(places, call, at, path)
    if flags & OPENS_NO_FILE:
        raise GoOn
    is_new = flags & os.O_CREAT and flags & os.O_EXCL
    place = (places.place if is_new or flags & os.O_NOFOLLOW else places.followed)(call, at, path)
    if not place.folder:
        raise GoOn
    found = look(place)
    if found is None:
        if not flags & os.O_CREAT:
            raise OSError(errno.ENOENT, "no such file")
    elif is_new or not flags & CHANGES_FILE or not is_plain(found):
        raise GoOn  # it exists, is only read, or is not a file: the narrower domain decides
    places.check(place)
    if flags & os.O_CREAT:
        os.umask(call.umask())
    return _open(places, call, place, flags, mode), flags


def _open(places: Places, call: Call, place: NameInFolder, flags: int, mode: int) -> int:
    try:
        fd = os.open(place.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode & 0o1777, dir_fd=place.fd)
    except OSError as error:
        if error.errno == errno.ENXIO and not flags & os.O_NONBLOCK:  # a FIFO without a reader
            raise Later from None
        raise
    call.keep(fd)
    if not is_plain(os.fstat(fd)):
        raise OSError(errno.EACCES, "it has changed")
    if not flags & os.O_NONBLOCK:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return fd


def _refuse_unnamed(places: Places, call: Call, at: int, path: str) -> None:
    """Refuse to create a file without a name, which could later get any name; every program has a fallback."""
    begin = call.base(at, path)
    call.check_alive()
    fd = call.keep(enter(begin, path or "."))
    if places.where(os.readlink(f"/proc/self/fd/{fd}")):
        raise OSError(errno.EOPNOTSUPP, "no unnamed files")
    raise GoOn


def reopen(places: Places, call: Call, own: int, flags: int) -> tuple[int, int]:
    """Open what the program already has open, as `/dev/stdout` does."""
    named = call.keep(os.open(f"/proc/{call.tid}/fd/{own}", os.O_PATH | os.O_CLOEXEC))
    call.check_alive()
    if flags & OPENS_NO_FILE or not stat.S_ISREG(os.fstat(named).st_mode) or not places.is_ours(named):
        raise GoOn
    plain = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) | os.O_CLOEXEC
    fd = call.keep(os.open(f"/proc/self/fd/{named}", plain))
    return fd, flags


def mkdir(places: Places, call: Call, at: int, index: int, mode: int) -> None:
    """Create a folder."""
    place = places.ours(call, at, index, folder=True)
    places.check(place, there=errno.EEXIST, folder=True)
    os.umask(call.umask())
    os.mkdir(place.name, mode & 0o1777, dir_fd=place.fd)


def remove(places: Places, call: Call, at: int, index: int, flags: int) -> None:
    """Remove a name."""
    is_folder = bool(flags & AT_REMOVEDIR)
    place = places.ours(call, at, index, folder=is_folder)
    places.check(place, there=-errno.ENOENT, folder=is_folder)
    if is_folder:
        os.rmdir(place.name, dir_fd=place.fd)
    else:
        os.unlink(place.name, dir_fd=place.fd)


def rename(places: Places, call: Call, where: tuple[int, int, int, int], flags: int) -> None:
    """Rename. Between our folders and others it looks like another disk: the program then copies, name by name."""
    old_at, old, new_at, new = where
    old_path, new_path = call.path(old), call.path(new)
    one = places.place(call, old_at, old_path, folder=True)
    other = places.place(call, new_at, new_path, folder=True)
    if not one.folder and not other.folder:
        raise GoOn
    found = look(one)
    if found is None:
        raise OSError(errno.ENOENT, "no such file")
    if not one.folder or not other.folder:
        raise OSError(errno.EXDEV, "between folders of different owners")
    if (old_path.endswith("/") or new_path.endswith("/")) and not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ENOTDIR, "not a folder")
    places.check(one)
    places.check(other)
    places.check_move(one, other)
    syscalls.syscall(
        "rename", SYS_RENAMEAT2[os.uname().machine], one.fd, os.fsencode(one.name), other.fd, os.fsencode(other.name),
        ctypes.c_uint(flags & 0xFFFFFFFF),
    )  # fmt: skip


def link(places: Places, call: Call, where: tuple[int, int, int, int], flags: int) -> None:
    """Add another name for a file."""
    old_at, old, new_at, new = where
    follows = bool(flags & AT_SYMLINK_FOLLOW)
    path = call.path(old)
    other = places.place(call, new_at, call.path(new))
    one = (places.followed if follows else places.place)(call, old_at, path)
    if not one.folder and not other.folder:
        raise GoOn
    if not one.folder or not other.folder:
        raise OSError(errno.EXDEV, "between folders of different owners")
    places.check(one, there=-errno.ENOENT)
    places.check(other, there=errno.EEXIST)
    places.check_move(one, other)
    os.link(one.name, other.name, src_dir_fd=one.fd, dst_dir_fd=other.fd, follow_symlinks=False)


def symlink(places: Places, call: Call, at: int, target: int, index: int) -> None:
    """Create a symbolic link."""
    to = call.path(target)
    place = places.ours(call, at, index)
    places.check(place, there=errno.EEXIST)
    if places.protected.leads_to_own(to):
        raise OSError(errno.EROFS, "it would lead to where nothing is protected")
    os.symlink(to, place.name, dir_fd=place.fd)


def mknod(places: Places, call: Call, at: int, index: int, mode: int, device: int) -> None:
    """Create a file, a FIFO or a socket; our domain does not allow devices."""
    place = places.ours(call, at, index)
    places.check(place, there=errno.EEXIST)
    os.umask(call.umask())
    os.mknod(place.name, mode & 0o171777, device & 0xFFFFFFFF, dir_fd=place.fd)


def truncate(places: Places, call: Call) -> None:
    """Truncate or extend a file."""
    place = places.followed(call, AT_FDCWD, call.path(0))
    found = look(place)
    if not place.folder or found is None or not stat.S_ISREG(found.st_mode):
        raise GoOn
    places.check(place)
    size = call.arguments[1]
    fd = call.keep(os.open(place.name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.fd))
    if size >> 63:
        raise OSError(errno.EINVAL, "negative")
    os.ftruncate(fd, size)
