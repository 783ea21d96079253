"""System calls that Python does not wrap, through ctypes. Each raises OSError. Knows no plugin and no profile.

Imports only the standard library, and little of it: the spawner's start-up depends on it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from typing import Any

CLONE_FS, CLONE_NEWNS, CLONE_NEWIPC = 0x200, 0x20000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 16384, 1 << 18

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 1, 4, 24, 28
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL = 36, 38, 47, 4
# NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, and each of them locked: root has no privileges.
NO_SPECIAL_ROOT = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40 | 0x80
LAST_CAPABILITY = 63  # more than there are: dropping one that does not exist fails with EINVAL

# The same numbers on every architecture.
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_OPENAT2, SYS_MOUNT_SETATTR = 428, 429, 437, 442
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, MOVE_MOUNT_FROM_DESCRIPTOR = 1, 4
RDONLY, NOSUID = 1, 2  # attributes of a mount
RESOLVE_NO_SYMLINKS = 4
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def check(result: int, what: str) -> int:
    """Return the result of a C function, or raise its error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: Any) -> int:
    """Make a system call by its number."""
    return check(libc.syscall(ctypes.c_long(number), *arguments), what)


def prctl(what: str, option: int, *arguments: int) -> int:
    """Change something about this thread or process."""
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    return check(libc.prctl(option, *words), what)


def unshare(flags: int) -> None:
    """Leave namespaces, or the file system state that threads share."""
    check(libc.unshare(flags), "unshare")


def mount(kind: str, target: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system that needs no device; an empty kind changes the flags of an existing mount."""
    name = kind.encode() or None
    check(
        libc.mount(name or b"none", os.fsencode(target), name, ctypes.c_ulong(flags), options.encode() or None),
        f"mount {target}",
    )


def name(path: str, folder: int = AT_FDCWD) -> int:
    """Open a path only to name it, without following links: one may be created at this moment."""
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS)
    try:
        return syscall(f"open {path}", SYS_OPENAT2, folder, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM}:  # an old kernel, or a container that does not know the call
            raise
    return os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=None if folder == AT_FDCWD else folder)


def unmount(path: str) -> None:
    """Detach the topmost mount at a path, with those below it; existing users keep it."""
    check(libc.umount2(os.fsencode(path), MNT_DETACH | UMOUNT_NOFOLLOW), f"umount {path}")


def clone_tree(path: str, folder: int = AT_FDCWD, *, recursive: bool = True) -> int:
    """Copy the mounts at and below a path; return a descriptor of the detached copy."""
    named = name(path, folder)
    try:
        flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
        return syscall(f"open_tree {path}", SYS_OPEN_TREE, named, b"", flags)
    finally:
        os.close(named)


def attach(tree: int, path: str) -> None:
    """Attach a copy to a path, and close it."""
    try:
        syscall(
            f"move_mount {path}", SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(path), MOVE_MOUNT_FROM_DESCRIPTOR
        )
    finally:
        os.close(tree)


def set_read_only(path: str) -> None:
    """Make this mount and those below it read-only."""
    _change_mount(AT_FDCWD, path, AT_RECURSIVE, attributes=RDONLY | NOSUID)


def set_writable(path: str) -> None:
    """Make this mount and those below it writable, as far as they were before us."""
    try:
        _change_mount(AT_FDCWD, path, AT_RECURSIVE, cleared=RDONLY)
    except PermissionError:  # one below is read-only for everybody
        try:
            _change_mount(AT_FDCWD, path, 0, cleared=RDONLY)
        except PermissionError:
            pass  # and so is this one


def set_tree_writable(tree: int) -> None:
    """Make a detached copy writable."""
    _change_mount(tree, "", AT_EMPTY_PATH, cleared=RDONLY)


def _change_mount(folder: int, path: str, flags: int, *, attributes: int = 0, cleared: int = 0) -> None:
    changes = struct.pack("=QQQQ", attributes, cleared, 0, 0)
    syscall(f"mount_setattr {path}", SYS_MOUNT_SETATTR, folder, os.fsencode(path), flags, changes, len(changes))


def drop_capabilities() -> None:
    """Make sure that nothing this process executes has a capability, whatever its user. The process keeps its own."""
    for capability in range(LAST_CAPABILITY + 1):
        try:
            prctl("bounding set", PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL:
                break  # there are no more
            raise
    prctl("securebits", PR_SET_SECUREBITS, NO_SPECIAL_ROOT)
    prctl("ambient capabilities", PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL)
