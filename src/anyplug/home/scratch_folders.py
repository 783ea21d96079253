"""Temporary folders of our processes, in the home, where no plugin reaches them.

In /tmp, a plugin that may write there could read them and replace them with links. So each is in `<home>/scratch`, is
held by a descriptor from its creation, and is created again if something else is in its place. Its process holds a lock
on it; a folder without a lock was left by a process that was killed.
"""

import fcntl
import os
from contextlib import suppress

from anyplug.home import untrusted_files
from anyplug.home.location import SCRATCH, make_private
from anyplug.home.untrusted_files import Budget, Changed, HeldFolder

CHANCE = 6  # bytes in a name
ATTEMPTS = 3  # to make one: another process may tidy it up before it is locked
TIDY_S = 5.0  # for removing what others left
MOST_LEFT = 1_000  # entries of the folder that are looked at then


class Scratch:
    """One such folder, made when it is first needed; `close` removes it."""

    def __init__(self, home: str) -> None:
        self._above = os.path.join(home, SCRATCH)
        self.path = self._first = os.path.join(self._above, f"{os.getpid()}-{os.urandom(CHANCE).hex()}")
        self._held: HeldFolder | None = None

    def folder(self) -> HeldFolder:
        """Return it, made now if it is not there, or not the one that was made; raises OSError."""
        if self._held is not None:
            if self._is_in_place(self._held):
                return self._held
            self._held.close()
            self._held = None
            self.path = f"{self._first}-{os.urandom(CHANCE).hex()}"  # the guardian knows how they begin
        for _ in range(ATTEMPTS):
            make_private(self._above)
            with untrusted_files.hold(self._above) as above:
                name = os.path.basename(self.path)
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=above.fd)
                held = above.own_folder(name)
            with suppress(OSError):  # a file system without locks, where nothing is tidied up either
                fcntl.flock(held.fd, fcntl.LOCK_SH)
            if self._is_in_place(held):
                self._held = held
                return held
            held.close()
        raise Changed("it is removed as soon as it is made", self.path)

    def close(self) -> None:
        """Remove it, and what others left that were killed. Blocks."""
        if self._held is None:
            return
        with suppress(OSError):
            untrusted_files.remove(self.path)
        self._held.close()
        self._held = None
        sweep(os.path.dirname(self._above))

    def _is_in_place(self, held: HeldFolder) -> bool:
        """Return whether the path still leads to this folder, and through no link of that name."""
        try:
            found, ours = os.lstat(self.path), os.fstat(held.fd)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


def are_left(home: str) -> bool:
    """Return whether there are scratch folders, of processes that run or were killed."""
    try:
        with os.scandir(os.path.join(home, SCRATCH)) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def sweep(home: str) -> None:
    """Remove the scratch folders of processes that were killed together with their guardian. Blocks."""
    with suppress(OSError), untrusted_files.hold(os.path.join(home, SCRATCH)) as above:
        for name in above.names(Budget(MOST_LEFT, seconds=TIDY_S)):
            with suppress(OSError), above.own_folder(name) as left:
                fcntl.flock(left.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                untrusted_files.remove(name, TIDY_S, above.fd)
