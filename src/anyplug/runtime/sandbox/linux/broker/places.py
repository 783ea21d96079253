"""Where a brokered call would change something, and whether it may."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

from anyplug.runtime.sandbox.linux import syscalls
from anyplug.runtime.sandbox.linux.broker.waiting_call import GoOn
from anyplug.runtime.sandbox.linux.protected_names import (
    CLOSED,
    FREE,
    GIT_MARK,
    GIT_NAME,
    INNER,
    drafted,
    sounds_like_file,
)

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from anyplug.runtime.sandbox.linux.broker.waiting_call import Call
    from anyplug.runtime.sandbox.linux.own_sockets import OwnFolders
    from anyplug.runtime.sandbox.linux.protected_names import Protected

MOST_LINKS = 40  # links followed for one file, as in the kernel
RESOLVE_NO_MAGICLINKS = 2
STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
DESCRIPTORS = ("/proc/self/fd", "/proc/thread-self/fd", "/dev/fd")


class NameInFolder:
    """An open folder, its path, and a name in it."""

    __slots__ = ("fd", "folder", "name")

    def __init__(self, fd: int, folder: str, name: str) -> None:
        """`folder` is empty if the broker does not write there."""
        self.fd, self.folder, self.name = fd, folder, name


class Places:
    """The folders in which the broker makes changes, and the names there that nobody may change."""

    def __init__(
        self, roots: tuple[str, ...], direct: tuple[str, ...], protected: Protected, own: OwnFolders | None
    ) -> None:
        """`roots` are the folders in which it makes changes, except for `direct`, which programs change themselves.

        Unix sockets must be in `own` folders; None if every one was granted.
        """
        self.own = own
        self._roots = tuple(path.rstrip("/") + "/" for path in roots)
        self._direct = tuple(path.rstrip("/") + "/" for path in direct)
        self.protected = protected

    def where(self, path: str) -> str:
        """Return a folder's path if the broker makes changes there, else an empty string."""
        whole = path.rstrip("/") + "/"
        if not whole.startswith(self._roots) or whole.startswith(self._direct):
            return ""
        return path

    def place(self, call: Call, at: int, path: str, base: int = -1, *, folder: bool = False) -> NameInFolder:
        """Resolve a path up to its last name. `folder`: it may end in a slash."""
        if not path:
            raise GoOn
        if folder and path != "/":
            path = path.rstrip("/") or "/"
        before, slash, name = path.rpartition("/")
        if name in {"", ".", ".."}:
            raise GoOn
        begin = base if base >= 0 and not path.startswith("/") else call.base(at, path)
        call.check_alive()
        fd = call.keep(enter(begin, (before or "/") if slash else "."))
        where = os.readlink(f"/proc/self/fd/{fd}")
        if where.startswith("/proc/"):  # these names depend on who asks
            raise GoOn
        return NameInFolder(fd, self.where(where), name)

    def followed(self, call: Call, at: int, path: str) -> NameInFolder:
        """Resolve a path completely, including links; what is there was not a link when it was checked."""
        place = self.place(call, at, path)
        for _ in range(MOST_LINKS):
            found = look(place)
            if found is None or not stat.S_ISLNK(found.st_mode):
                return place
            _check_link(place, found)
            place = self.place(call, at, os.readlink(place.name, dir_fd=place.fd), place.fd)
        raise OSError(errno.ELOOP, "too many links")

    def check(self, place: NameInFolder, *, there: int = 0, folder: bool = False) -> None:
        """Raise OSError if a name must not be created, changed or removed.

        `there` is the error if something exists, or if nothing does with a negative number; `folder`: only a folder.
        """
        state = self.protected.state(place.folder, place.name)
        if state != CLOSED and (self._is_gits(place) or (not folder and self._is_draft(place))):
            state = CLOSED
        if state == FREE or (state == INNER and folder):
            return
        exists = look(place) is not None
        if there and exists == (there > 0):
            raise OSError(abs(there), "as the kernel would report")
        raise OSError(errno.EROFS, "protected")

    def _is_gits(self, place: NameInFolder) -> bool:
        """Return whether git would run commands from a name: its folder is a repository, whatever it is called."""
        for levels in self.protected.git_folders(place.folder, place.name):
            try:
                os.stat("../" * levels + GIT_MARK, dir_fd=place.fd, follow_symlinks=False)
            except OSError:
                continue
            return True
        return False

    def _is_draft(self, place: NameInFolder) -> bool:
        """Return whether programs rename such a name to a protected file: it would then be open already."""
        for name in drafted(place.name):
            file = NameInFolder(place.fd, place.folder, name)
            if self.protected.state(file.folder, name) != CLOSED and not self._is_gits(file):
                continue
            found = look(file)
            if sounds_like_file(name) if found is None else not stat.S_ISDIR(found.st_mode):
                return True
        return False

    def check_move(self, one: NameInFolder, other: NameInFolder) -> None:
        """Raise OSError if the content of a moved folder would get where it could not have been created.

        Patterns apply wherever the folder is, or name it; only a `.git` may contain what may not be elsewhere. This
        applies to everything that is moved, since a file may be a folder by the time of the call. No folder ever gets
        into a `.git` or out of it, so this stays true until the call is made.
        """
        if self.protected.repository(one.folder) != self.protected.repository(other.folder):
            raise OSError(errno.EXDEV, "into a repository, or out of it")
        for place in (one, other):
            if self._is_repository(place):
                raise OSError(errno.EROFS, "protected")

    def _is_repository(self, place: NameInFolder) -> bool:
        """Return whether a name is a folder that git considers a repository, which a `.git` file may point to."""
        if 0 not in self.protected.git_folders(os.path.join(place.folder, place.name), GIT_NAME):
            return False
        try:
            os.stat(f"{place.name}/{GIT_MARK}", dir_fd=place.fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    def is_ours(self, fd: int) -> bool:
        """Return whether an open file is where the broker makes changes; raises OSError if nobody may change it."""
        where = os.readlink(f"/proc/self/fd/{fd}")
        if not where.startswith("/") or f"{where}/".startswith(self._direct):
            return False  # not a file, or the plugin's own
        folder, _, name = where.rpartition("/")
        folder = folder or "/"
        if f"{where}/" in self._roots:
            return True
        if not name or not self.where(folder):
            raise OSError(errno.EROFS, "not granted")
        above = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.check(NameInFolder(above, folder, name), folder=stat.S_ISDIR(os.fstat(fd).st_mode))
        finally:
            os.close(above)
        return True

    def ours(self, call: Call, at: int, index: int, *, folder: bool = False) -> NameInFolder:
        """Resolve an argument; raise GoOn if it is not where the broker makes changes."""
        place = self.place(call, at, call.path(index), folder=folder)
        if not place.folder:
            raise GoOn
        return place


def enter(base: int, path: str, flags: int = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) -> int:
    """Open a path below a folder without following the kernel's own links, which lead where no name shows."""
    how = struct.pack("=QQQ", flags, 0, RESOLVE_NO_MAGICLINKS)
    try:
        return syscalls.syscall("open", syscalls.SYS_OPENAT2, base, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GoOn from None
        raise


def look(place: NameInFolder) -> os.stat_result | None:
    """Return what has a name, without following a link; None if nothing does."""
    try:
        return os.stat(place.name, dir_fd=place.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def is_plain(found: os.stat_result) -> bool:
    """Return whether it is a file or a FIFO."""
    return stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)


def _check_link(place: NameInFolder, link: os.stat_result) -> None:
    """Enforce `fs.protected_symlinks`, since we follow the link: another user's link in a shared folder is a trap."""
    folder = os.fstat(place.fd)
    is_shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if is_shared and link.st_uid not in {os.geteuid(), folder.st_uid}:
        raise OSError(errno.EACCES, "another user's link")


def own_descriptor(path: str) -> int:
    """Return the number of the descriptor that a path stands for; -1 if it does not."""
    if path in STREAMS:
        return STREAMS[path]
    folder, _, name = path.rpartition("/")
    return int(name) if folder in DESCRIPTORS and name.isascii() and name.isdigit() else -1
