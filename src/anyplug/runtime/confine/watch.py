"""What limits of single processes cannot hold: the memory of a whole tree, and the disk it fills. Looked at in turns.

Standard library only; part of the spawner.
"""

import os
import resource
from collections.abc import Container, Mapping

LARGEST_MARK = 1 << 60  # a start's mark is this less its number: an amount that no machine has
PAGE = os.sysconf("SC_PAGE_SIZE")
NOTABLE = 64 << 20  # bytes of disk that must be gone before folders are measured
MOST_FILES = 200_000  # looked at in one measurement; who has more is over the limit, too


def other_processes() -> list[int]:
    """List what is here besides us, the oldest first."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def wears(pid: int, marks: Container[int]) -> bool:
    """Whether a process was started for one of these: a limit that limits nothing, and is inherited, says so."""
    try:
        return resource.prlimit(pid, resource.RLIMIT_RSS)[0] in marks
    except OSError:
        return False


def is_running(pid: int) -> bool:
    """Whether more is left of a process than its entry in the table."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in b"ZX"
    except (OSError, IndexError):
        return False


class Watch:
    """Says when a plugin's programs together use more than they may."""

    def __init__(self, limits: Mapping[str, int], folders: tuple[str, ...]) -> None:
        self._limits = limits
        self._folders = folders
        self._free = self._measure_free()

    def excess(self, pids: list[int]) -> str:
        """Say what there is too much of; empty if nothing is."""
        memory, most = sum(map(_resident, pids)), self._limits["memory"]
        if memory > most:
            return f"its processes together used more than {most >> 20} MiB of memory"
        if len(pids) > self._limits["processes"]:
            return f"it had more than {self._limits['processes']} processes"
        return self._disk_excess()

    def _disk_excess(self) -> str:
        free = self._measure_free()
        if all(now > before - NOTABLE for now, before in zip(free, self._free, strict=True)):
            return ""
        self._free = free
        most = self._limits["disk"]
        for folder in self._folders:
            if measure(folder, most) > most:
                return f"{folder} holds more than {most >> 20} MiB"
        return ""

    def _measure_free(self) -> list[int]:
        found = []
        for folder in self._folders:
            try:
                state = os.statvfs(folder)
                found.append(state.f_bavail * state.f_frsize)
            except OSError:
                found.append(0)
        return found


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def measure(folder: str, enough: int) -> int:
    """Measure what a folder holds, no further than `enough`."""
    total = files = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
            files += 1
            if total > enough or files > MOST_FILES:
                return enough + 1
    return total
