"""Show a plugin its own folder as it was approved: the code comes from a snapshot, whatever happens to the original.

A mount is attached to a name, and a rename outside the sandbox would detach it. So the mount point is on a *shelf*: a
tmpfs over the folder's parent, in which nobody else can rename anything. Three ways to show a folder:

- the snapshot itself, read-only;
- an overlay of the snapshot, with what the plugin writes in `beside`;
- the real folder, writable, with the snapshot's code laid over it file by file (`laid`). The files are mounted on an
  overlay whose upper layer is the real folder, because its names stay when somebody renames a file underneath. Such
  an overlay also keeps names that are gone since, so each start gets a new one.

Part of the spawner: standard library only.
"""

from __future__ import annotations

import errno
import os

from anyplug.runtime.sandbox.linux import syscalls

MOST_NEIGHBOURS = 200  # entries of the parent folder that are mounted back
MOST_LOOKED_AT = 50_000  # entries of a real folder in which code might have been added
SCRATCH = ".shelf"  # in our home, which is covered: where overlays are prepared
UNSAFE = "its folder was changed or moved while it was being started"


class OwnFolderMount:
    """How one plugin's own folder is shown. `cover` before anything is mounted, then `fill`; `lay` for each start."""

    def __init__(
        self,
        own: str,
        snapshot: str,
        work: str,
        *,
        shelved: bool,
        beside: str,
        live: tuple[str, ...],
        laid: tuple[str, ...],
        ignored: tuple[str, ...],
        code_names: tuple[str, ...],
        code_suffixes: tuple[str, ...],
    ) -> None:
        """Open everything that a cover may hide. The fields are those of `profile.Shown`."""
        self.own = own
        self.parent = os.path.dirname(own) if shelved else ""  # to cover; empty: the folder is shown where it is
        self.is_overlaid = bool(beside)
        self.is_laid = bool(laid)
        self.refused = ""  # why there is no overlay
        self._works_in = work
        self._laid, self._ignored = laid, frozenset(ignored)
        self._code_names, self._code_suffixes = frozenset(code_names), code_suffixes
        self._snapshot = syscalls.name(snapshot)
        self._live = [
            (syscalls.clone_tree(os.path.join(own, name)), name)
            for name in live
            if os.path.isfile(os.path.join(own, name))
        ]
        self._layers = [syscalls.name(path) for path in (beside, work)] if beside else []
        self._links: dict[str, str] = {}  # next to the plugin's folder
        self._scratch = ""
        self._identity = (0, 0)
        self._work: dict[int, str] = {}  # by start: the work folder of its overlay
        self._spare: list[str] = []
        self._made = 0
        if self.is_laid:
            self._common = os.path.commonpath([own, work])
            self._tree = syscalls.clone_tree(self._common, recursive=False)
            self._real = os.stat(self.own)
            self._without_overlay = syscalls.clone_tree(self.own)

    def neighbours(self) -> list[str]:
        """List the other entries of the parent folder that are mounted back there; remember the links."""
        names = sorted(os.listdir(self.parent))[:MOST_NEIGHBOURS] if self.parent else []
        paths = [path for name in names if (path := os.path.join(self.parent, name)) != self.own]
        self._links = {path: os.readlink(path) for path in paths if os.path.islink(path)}
        return [path for path in paths if path not in self._links]

    def fill(self, home: str) -> None:
        """Mount what the plugin sees on the existing shelf. `home` is ours, and covered."""
        os.makedirs(self.own, exist_ok=True)
        for path, target in self._links.items():
            if not os.path.lexists(path):
                os.symlink(target, path)
        if self.is_laid:
            self._open_scratch(home)
            if not self._scratch:
                syscalls.attach(self._without_overlay, self.own)
            return
        if self.is_overlaid:
            upper, work = self._layers
            try:
                _overlay(self.own, self._snapshot, upper, work)
            except OSError as error:
                self.is_overlaid, self.refused = False, str(error)
        if not self.is_overlaid:
            syscalls.attach(syscalls.clone_tree(".", self._snapshot), self.own)
        for tree, name in self._live:
            syscalls.attach(tree, os.path.join(self.own, name))

    @property
    def mounted(self) -> list[str]:
        """What `fill` mounted."""
        live = [os.path.join(self.own, name) for _, name in self._live]
        return [] if self._scratch else [self.own, *live]

    @property
    def read_only(self) -> list[str]:
        """The read-only part of that."""
        if self.is_laid:
            return []
        return self.mounted[1:] if self.is_overlaid else self.mounted

    def settle(self) -> None:
        """Remember what is shown once all mounts exist; allow overlays although everything else is read-only now."""
        found = os.stat(self.own)
        self._identity = (found.st_dev, found.st_ino)
        if self._scratch:
            syscalls.set_writable(self._scratch)

    def lay(self, start: int) -> int:
        """Create the view of the real folder for one start; return a tree to attach at `own`. Raises OSError."""
        if self._scratch:
            self._work[start] = self._spare.pop() if self._spare else self._new_work()
            self._overlay_on(self.own, self._work[start])
        else:
            syscalls.attach(syscalls.clone_tree(self.own), self.own)
        try:
            for name in self._laid:
                self._lay_one(name)
            self._see_that_nothing_was_added()
            return syscalls.clone_tree(self.own)
        finally:
            syscalls.unmount(self.own)

    def outer(self, path: str) -> str:
        """Return the path of a file in the plugin's folder, which is empty here between two starts."""
        return self._inside(path) if self._scratch and path.startswith(f"{self.own}/") else path

    def clear(self) -> None:
        """Remove the path to the real folder, in the namespace of a program that is about to start."""
        if self._scratch and os.path.lexists(self._scratch):  # otherwise another /tmp covers our home
            syscalls.unmount(self._scratch)

    def ended(self, start: int) -> None:
        """Free the work folder of an ended program's overlay for another start."""
        if start in self._work:
            self._spare.append(self._work.pop(start))

    def is_in_place(self) -> bool:
        """Return whether the plugin's path still leads to what was mounted: a parent folder may have been renamed."""
        try:
            found = os.stat(self.own)
        except OSError:
            return False
        return self.is_laid or (found.st_dev, found.st_ino) == self._identity

    def _open_scratch(self, home: str) -> None:
        """Keep a writable path to the real folder, from which overlays are made."""
        scratch = os.path.join(home, SCRATCH)
        os.mkdir(scratch)
        syscalls.attach(self._tree, scratch)
        self._scratch = scratch
        syscalls.set_writable(scratch)
        os.mkdir(probe := f"{scratch}-probe")
        try:
            self._work[0] = self._new_work()
            self._overlay_on(probe, self._work[0])
            syscalls.unmount(probe)
            self.ended(0)
        except OSError as error:
            syscalls.unmount(scratch)
            self._scratch, self.refused = "", str(error)

    def _overlay_on(self, place: str, work: str) -> None:
        """Mount an overlay whose upper layer is the real folder; its names stay even if files there are renamed."""
        paths = (f"{self._works_in}/empty", self.own, work)
        with _Opened(*map(self._inside, paths)) as (empty, real, work_folder):
            found = os.fstat(real)
            if (found.st_dev, found.st_ino) != (self._real.st_dev, self._real.st_ino):
                raise OSError(errno.ESTALE, UNSAFE)
            _overlay(place, empty, real, work_folder)

    def _inside(self, path: str) -> str:
        """Return where a path below the common folder is in the scratch mount."""
        return os.path.join(self._scratch, os.path.relpath(path, self._common))

    def _new_work(self) -> str:
        self._made += 1
        path = os.path.join(self._works_in, f"{os.getpid()}-{self._made}")
        os.mkdir(self._inside(path), 0o700)
        return path

    def _lay_one(self, name: str) -> None:
        """Mount a file or folder of the snapshot in its place; a link must lead where it led."""
        at = os.path.join(self.own, name)
        kept = f"/proc/self/fd/{self._snapshot}/{name}"
        if os.path.islink(kept):
            if not os.path.islink(at) or os.readlink(at) != os.readlink(kept):
                raise OSError(errno.ESTALE, UNSAFE)
            return
        syscalls.attach(syscalls.clone_tree(name, self._snapshot), at)

    def _see_that_nothing_was_added(self) -> None:
        """Raise OSError if the real folder has code that was not approved, such as a module that would be imported."""
        laid, left, seen = set(self._laid), [""], 0
        while left:
            below = left.pop()
            with os.scandir(os.path.join(self.own, below)) as entries:
                for entry in entries:
                    seen += 1
                    name = os.path.join(below, entry.name)
                    if entry.name in self._ignored or name in laid:
                        continue
                    if seen > MOST_LOOKED_AT:
                        raise OSError(errno.EMLINK, f"there are more than {MOST_LOOKED_AT:,} files in its folder")
                    if entry.is_dir(follow_symlinks=False):
                        left.append(name)
                    elif self._is_code(entry):
                        raise OSError(errno.ESTALE, f"{name} is new, and was not approved")

    def _is_code(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        leads_to_folder = entry.is_symlink() and not entry.is_file()
        return leads_to_folder or name in self._code_names or name.lower().endswith(self._code_suffixes)


class _Opened:
    """Some folders, opened only to name them, until the end of a `with`."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths
        self._fds: list[int] = []

    def __enter__(self) -> list[int]:
        try:
            for path in self._paths:
                self._fds.append(syscalls.name(path))
        except OSError:
            self.__exit__()
            raise
        return self._fds

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)


def _overlay(at: str, lower: int, upper: int, work: int) -> None:
    """Mount an overlay of open folders: their names may contain commas and colons."""
    layers = (("lowerdir", lower), ("upperdir", upper), ("workdir", work))
    options = ",".join(f"{name}=/proc/self/fd/{fd}" for name, fd in layers)
    flags, options = syscalls.MS_NOSUID | syscalls.MS_NODEV, f"{options},userxattr"
    try:  # without the last option, Linux 6.6 and later marks the upper folder, which is the user's own
        syscalls.mount("overlay", at, flags, f"{options},uuid=null")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        syscalls.mount("overlay", at, flags, options)
