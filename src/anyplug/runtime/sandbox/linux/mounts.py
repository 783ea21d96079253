"""Namespaces and mounts: which part of the file system a plugin's programs see, and which they can write.

Set up once, by the spawner, before anything is started. `enter` leaves the machine's namespaces; `furnish` covers what
must not be visible, mounts a private /tmp and /dev/shm, and makes everything read-only except for what is granted. That
also closes what Landlock leaves open: changing modes, times and attributes of others' files.
"""

from __future__ import annotations

import _socket  # `socket` takes 4 ms to import, and `re` 8
import errno
import fcntl
import os
import struct

from anyplug.runtime.sandbox.linux import syscalls

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anyplug.runtime.sandbox.linux.own_folder_mount import OwnFolderMount

Paths = tuple[str, ...]

TMP, SHM = "/tmp", "/dev/shm"
SHM_BYTES = 64 << 20  # for semaphores and small shared memory, as multiprocessing needs them
COVER_BYTES = 1 << 16  # the cover of a hidden folder contains only mount points
BYTES_PER_FILE, FEWEST_FILES = 1 << 12, 4096  # of a folder in memory
SET_FLAGS, INTERFACE_UP = 0x8914, 1  # of a network interface
KERNELS = ("/proc", "/sys")
PID_MAX = "/proc/sys/kernel/pid_max"
PID_MAX_SINCE = (6, 14)  # the first Linux with a separate one for each pid namespace
SMALLEST_PID_MAX = 301  # the kernel reserves 300
# How a kernel, a security module or a container's filter answers that something is not to be had here at all.
REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
NO_MORE = frozenset({errno.ENOSPC, errno.EUSERS})  # as many namespaces as the limit says, which may be none
LIMITS = tuple(f"/proc/sys/user/max_{kind}_namespaces" for kind in ("user", "mnt", "pid", "net", "ipc"))


def is_refusal(error: OSError) -> bool:
    """Return whether an error says that this machine does not let us do something, rather than that it went wrong."""
    return error.errno in REFUSALS or (error.errno in NO_MORE and any(map(_is_zero, LIMITS)))


def _is_zero(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read().strip() == b"0"
    except OSError:
        return False


def enter(flags: int) -> bool:
    """Leave namespaces, as root directly, else through a user namespace; True if it used one. Raises OSError."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        try:
            syscalls.unshare(flags)
        except OSError:  # a root without privileges, as in containers, is like an ordinary user
            pass
        else:
            return False
    syscalls.unshare(flags | syscalls.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    return True


def keep_to_itself() -> None:
    """Make mounts created here invisible outside."""
    syscalls.mount("", "/", syscalls.MS_REC | syscalls.MS_PRIVATE)


def bring_up_loopback() -> None:
    """Enable the loopback interface of a new network namespace."""
    any_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(any_socket.fileno(), SET_FLAGS, struct.pack("16sH22x", b"lo", INTERFACE_UP))
    finally:
        any_socket.close()


def see_own_processes_only() -> None:
    """Mount the /proc of the new pid namespace. EPERM in containers that hide parts of theirs."""
    syscalls.mount("proc", "/proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)


def limit_processes(number: int) -> None:
    """Limit the pid namespace as a whole, including root, if the kernel supports that."""
    if _version(os.uname().release) < PID_MAX_SINCE:
        return  # before that there was one limit for the whole machine, which root would change
    try:
        with open(PID_MAX, "w", encoding="ascii") as file:
            file.write(str(max(number, SMALLEST_PID_MAX)))
    except OSError:
        pass  # the total is checked in any case


def _version(release: str) -> tuple[int, ...]:
    """Return the first two numbers of a kernel's release; empty if it has none."""
    found = []
    for part in release.split(".")[:2]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is inside a folder, and not the folder itself."""
    return path != folder and path.startswith(folder.rstrip("/") + "/")


def outermost(paths: Sequence[str]) -> list[str]:
    """Drop paths inside others of them."""
    return [path for path in dict.fromkeys(paths) if not any(is_below(path, other) for other in paths)]


def furnish(
    seen: Paths,
    writable: Paths,
    hidden: Paths,
    code: Paths,
    pinned: Paths,
    *,
    private_tmp: bool,
    tmp_bytes: int,
    shelf: OwnFolderMount | None = None,
) -> list[str]:
    """Arrange the mounts; return those of `seen` that were put back below /tmp. All paths are real and exist.

    A shelf shows the plugin's own folder; other entries of its parent stay as visible and writable as they were.
    """
    own = {TMP: tmp_bytes} if private_tmp else {}
    own |= {SHM: SHM_BYTES} if os.path.isdir(SHM) else {}
    if shelf is not None:
        seen, writable = _around(shelf, seen, writable, hidden)
    mounted = _cover(seen, dict.fromkeys(hidden, COVER_BYTES) | own, shelf)
    if shelf is not None:
        shelf.fill(hidden[0])
        mounted |= dict.fromkeys(shelf.mounted, False)
        code = tuple(path for path in code if path != shelf.own and not is_below(path, shelf.own))
    read_only = {"/": True} | dict.fromkeys(mounted, True)
    read_only |= dict.fromkeys(writable, False) | dict.fromkeys(own, False)
    if "/" in writable:  # the kernel's own switches are not anybody's files
        read_only |= dict.fromkeys(KERNELS, True)
    read_only |= dict.fromkeys(code, True)
    if shelf is not None:
        read_only |= dict.fromkeys(shelf.read_only, True)
    _pin({*pinned, *(folder for path in code for folder in between(path, writable))}, read_only, mounted)
    in_order = sorted((path for path in read_only if os.path.lexists(path)), key=_depth)
    for path in in_order:
        if path != "/" and path not in mounted:
            syscalls.attach(syscalls.clone_tree(path), path)
    for path in in_order:
        (syscalls.set_read_only if read_only[path] else syscalls.set_writable)(path)
    if shelf is not None:
        shelf.settle()
    return [path for path in mounted if is_below(path, TMP)] if private_tmp else []


def _pin(folders: set[str], read_only: dict[str, bool], mounted: dict[str, bool]) -> None:
    """Make folders mount points as well, which cannot be renamed: otherwise another could be put in their place.

    They stay as writable as they are. Folders inside a cover are left out: they stay covered, and nothing is renamed
    there.
    """
    for path in sorted(folders, key=_depth):
        if path not in read_only and not mounted.get(_nearest(path, mounted)):
            read_only[path] = read_only[_nearest(path, read_only)]


def _around(shelf: OwnFolderMount, seen: Paths, writable: Paths, hidden: Paths) -> tuple[Paths, Paths]:
    """Drop paths in the plugin's folder, which the shelf shows; add visible paths next to it."""
    seen = tuple(path for path in seen if not is_below(path, shelf.own))
    writable = tuple(path for path in writable if not is_below(path, shelf.own))
    if not _holds(seen, shelf.parent) or _holds(hidden, shelf.parent):
        return seen, writable
    neighbours = tuple(shelf.neighbours())
    return (*seen, *neighbours), (*writable, *neighbours) if _holds(writable, shelf.parent) else writable


def _cover(seen: Paths, covers: dict[str, int], shelf: OwnFolderMount | None) -> dict[str, bool]:
    """Cover folders with empty ones, and put back what should be visible; return all mount points, True for covers.

    From the outside in: what was put back may contain the next folder to cover. What a shelf shows, it puts back
    itself.
    """
    parent = shelf.parent if shelf is not None and shelf.parent not in covers else ""
    if parent:
        covers = {**covers, parent: COVER_BYTES}
    below = [path for path in seen if path not in covers and any(is_below(path, cover) for cover in covers)]
    trees = {path: (syscalls.clone_tree(path), os.path.isdir(path)) for path in below}
    mounted: dict[str, bool] = {}
    for path in sorted({*covers, *below}, key=_depth):
        if path in covers:
            if path == parent and mounted.get(_nearest(path, mounted)):
                os.makedirs(path, exist_ok=True)  # nobody else can rename anything here
            elif os.path.isdir(path):
                mode = "1777" if path in {TMP, SHM} else "755"
                options = f"mode={mode},size={covers[path]},nr_inodes={most_files(covers[path])}"
                syscalls.mount("tmpfs", path, syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
                mounted[path] = True
            elif os.path.lexists(path):
                syscalls.attach(syscalls.clone_tree(os.devnull), path)
                mounted[path] = False
            continue
        tree, is_folder = trees[path]
        if shelf is not None and path == shelf.own:
            os.makedirs(path, exist_ok=True)
            os.close(tree)
        elif mounted[_nearest(path, mounted)]:
            make_mount_point(path, is_folder=is_folder)
            syscalls.attach(tree, path)
            mounted[path] = False
        else:  # it is already visible
            os.close(tree)
    return mounted


def most_files(size: int) -> int:
    """Return how many files a folder in memory may contain: each takes a kilobyte in the kernel, even if empty."""
    return max(size // BYTES_PER_FILE, FEWEST_FILES)


def _holds(folders: Paths, path: str) -> bool:
    """Return whether a path is one of these folders, or inside one."""
    return any(path == folder or is_below(path, folder) for folder in folders)


def _nearest(path: str, mounted: Iterable[str]) -> str:
    """Return the innermost mount point above a path; empty if there is none."""
    return max((place for place in mounted if is_below(path, place)), key=_depth, default="")


def _depth(path: str) -> int:
    return path.rstrip("/").count("/")


def between(path: str, folders: Paths) -> list[str]:
    """Return the folders on the way from one of `folders` to the path, without the two ends."""
    found = []
    parent = os.path.dirname(path)
    while any(is_below(parent, folder) for folder in folders):
        found.append(parent)
        parent = os.path.dirname(parent)
    return found


def make_mount_point(path: str, *, is_folder: bool) -> None:
    """Create something to mount on, if there is nothing."""
    os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
    if not is_folder and not os.path.lexists(path):
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
