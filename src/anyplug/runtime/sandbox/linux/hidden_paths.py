"""Notice when a hidden path appears or is replaced while programs run: a mount covers an existing file, not a name.

Standard library only; part of the spawner.
"""

from __future__ import annotations

import errno
import os

from anyplug.runtime.sandbox.linux import syscalls

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable

NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC  # the same bits as inotify's own
ARRIVED = 0x80 | 0x100  # moved here, created here
ONLY_FOLDERS = 0x01000000
LONGEST_EVENTS = 1 << 16  # bytes read at once
DEEPEST = 64  # folders above each other to which the way is remembered
MOST_LINKS = 40  # links followed for one file, as in the kernel


class HiddenNames:
    """Paths whose targets at creation a sandbox covers."""

    def __init__(self, paths: tuple[str, ...], covered: tuple[str, ...]) -> None:
        """Watch the folders above each path. Raises OSError if the machine is out of watches.

        `covered` are the covered real paths; anything else there now has appeared since.
        """
        self.fd = syscalls.check(syscalls.libc.inotify_init1(NONBLOCK_CLOEXEC), "inotify_init1")
        self._paths = paths
        self._targets: dict[str, str | None] = {}  # of the links on the way to them, and None for all else there
        self._folders: list[bytes] = []  # above the paths, and above all that leads to their targets
        self._names: set[bytes] = set()
        self._watch()
        self._before = {path: _identity(path) if os.path.realpath(path) in covered else None for path in paths}

    def add(self, paths: tuple[str, ...]) -> str:
        """Watch further paths, which nothing covers; return one at which there is something, or empty."""
        self._paths += paths
        self._targets = {}
        self._before |= dict.fromkeys(paths)
        return self.exposed()

    def stirred(self) -> str:
        """Do the same as `exposed` if inotify reports something that may be one of the paths."""
        try:
            events = os.read(self.fd, LONGEST_EVENTS)
        except BlockingIOError:
            return ""
        return self.exposed() if any(name in events for name in self._names) else ""

    def exposed(self) -> str:
        """Return a path at which there is something that was not there before; empty if there is none."""
        self._watch()  # first, so that what appears in a new folder is seen by this check or the next
        now = {path: _identity(path) for path in self._paths}
        found = next((path for path, what in now.items() if what is not None and what != self._before[path]), "")
        self._before = now
        return found

    def _watch(self) -> None:
        """Watch each existing folder above a path; watched ones stay so. Each start of a program waits for this."""
        links = Links()
        if not self._targets or self._targets != {place: links.target(place) for place in self._targets}:
            ways = {way for path in self._paths for way in (path, *links.on_the_way_to(path))}
            self._names |= {os.fsencode(name) + b"\0" for way in ways for name in way.split("/") if name}
            self._folders = [*map(os.fsencode, {above for way in ways for above in _above(way)})]
            self._targets = links.targets
        for folder in self._folders:
            syscalls.libc.inotify_add_watch(self.fd, folder, ARRIVED | ONLY_FOLDERS)


def identities(paths: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Return the targets of paths, to be covered. An empty device is as good as its cover."""
    found = {path: state for path in paths if (state := _identity(path)) is not None}
    return {path: state for path, state in found.items() if state != _identity(os.devnull)}


def check_covered(to_cover: dict[str, tuple[int, int]]) -> None:
    """Raise OSError if one of these paths still leads to its original target."""
    for path, state in to_cover.items():
        if _identity(path) == state:
            raise OSError(errno.EBUSY, f"{path} must be hidden, but could not be covered")


def _above(path: str) -> list[str]:
    """Return the folders above a path, except for the root."""
    found = []
    folder = os.path.dirname(path)
    while folder != "/":
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


class Links:
    """Links as they are during one piece of work: reads each path once, and nothing below one that is missing."""

    def __init__(self) -> None:
        self.targets: dict[str, str | None] = {}  # None: it is no link; parents come before what is below them
        self._missing: set[str] = set()
        self._ways: dict[str, list[str]] = {}

    def target(self, path: str) -> str | None:
        """Return a link's target; None if it is no link."""
        if path not in self.targets:
            self.targets[path] = self._look(path)
        return self.targets[path]

    def is_missing(self, path: str) -> bool:
        """Return whether there was nothing at a path that was read."""
        return path in self._missing

    def on_the_way_to(self, path: str) -> list[str]:
        """Return what `on_the_way_to` does."""
        way = self._ways.get(path)
        if way is None:
            way = self._ways[path] = self._way(path)
        return way

    def real(self, path: str) -> str:
        """Return the target of an absolute path."""
        return self.on_the_way_to(path)[-1]

    def _way(self, path: str) -> list[str]:
        """Begin with the way to the folder: most paths share theirs."""
        folder, slash, name = path.rpartition("/")
        if slash and name not in {"", ".", ".."} and path.startswith("/") and path.count("/") <= DEEPEST:
            before = self.on_the_way_to(folder) if folder else ["/"]
            here = os.path.join(before[-1], name)
            if len(before) < MOST_LINKS and self.target(here) is None:
                return [*before[:-1], here]
        return on_the_way_to(path, self.target)

    def _look(self, path: str) -> str | None:
        try:
            if os.path.dirname(path) not in self._missing:
                return os.readlink(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return None
        self._missing.add(path)
        return None


def link_target(path: str) -> str | None:
    """Return a link's target; None if it is no link."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def on_the_way_to(path: str, target_of: Callable[[str], str | None] = link_target) -> list[str]:
    """Return every link on the way to a path's target, each with its real folder, and the target itself."""
    found, at = [], "/"
    parts = path.split("/")[::-1]
    while parts:
        part = parts.pop()
        if part in {"", ".", ".."}:
            at = os.path.dirname(at) if part == ".." else at
            continue
        here = f"{at}/{part}" if at != "/" else f"/{part}"
        target = target_of(here)
        if target is None:  # it is not a link, or nothing
            at = here
            continue
        found.append(here)
        if len(found) > MOST_LINKS:
            return found
        at = "/" if target.startswith("/") else at
        parts += target.split("/")[::-1]
    return [*found, at]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino
