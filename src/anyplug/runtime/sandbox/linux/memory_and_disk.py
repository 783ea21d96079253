"""Limits that cannot be set per process: a process tree's memory and disk usage, checked periodically.

Standard library only; part of the spawner.
"""

from __future__ import annotations

import os
import resource
import stat

from anyplug.home import untrusted_files
from anyplug.runtime.processes.guardian import is_dead

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

LARGEST_MARK = 1 << 60  # an amount that no machine has
PAGE = os.sysconf("SC_PAGE_SIZE")
BLOCK = 512  # bytes, the kernel's unit for file sizes
NOTABLE = 64 << 20  # bytes of disk that must be used up before folders are measured
NOTABLE_FILES = 10_000  # files and folders that must have been added before folders are measured
MOST_FILES = 120_000  # visited in one measurement, including folders; more than that is over the limit, too
MEASURE_S = 10.0  # for one measurement; taking longer is over the limit, too


def mark_of(number: int) -> int:
    """Return the mark of a start: unique, not a value that a process has by itself, and without a limiting effect."""
    hard = resource.getrlimit(resource.RLIMIT_RSS)[1]  # it is unlimited by default, unless set on purpose
    most = LARGEST_MARK if hard == resource.RLIM_INFINITY else min(LARGEST_MARK, hard)
    return most - 1 - number % max(most // 2, 1)


def wear(mark: int | None) -> None:
    """Set a mark, which descendants inherit; or remove it."""
    hard = resource.getrlimit(resource.RLIMIT_RSS)[1]
    resource.setrlimit(resource.RLIMIT_RSS, (hard if mark is None else mark, hard))


def other_processes() -> list[int]:
    """List the other processes here, oldest first."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def wears(pid: int, marks: Container[int]) -> bool:
    """Return whether a process belongs to one of these starts, by its inherited limit, which limits nothing."""
    try:
        return resource.prlimit(pid, resource.RLIMIT_RSS)[0] in marks
    except OSError:
        return False


def is_running(pid: int) -> bool:
    """Return whether more is left of a process than its entry in the table."""
    return not is_dead(pid)


class Watch:
    """Detects when a plugin's programs together use more than they may."""

    def __init__(self, limits: Mapping[str, int], folders: tuple[str, ...]) -> None:
        self._limits = limits
        self._folders = folders
        self._free = {folder: _free(folder) for folder in folders}

    def begin(self, folder: str) -> None:
        """Include a folder that a program has as its /tmp, until `end`."""
        self._free[folder] = _free(folder)

    def end(self, folder: str) -> None:
        """Exclude it again."""
        self._free.pop(folder, None)

    def excess(self, pids: list[int]) -> str:
        """Return what exceeds its limit; empty if nothing does."""
        if len(pids) > self._limits["processes"]:  # first, because so many also use much memory
            return f"it had more than {self._limits['processes']} processes"
        memory, most = sum(map(_resident, pids)), self._limits["memory"]
        if memory > most:
            return f"its processes together used more than {most >> 20} MiB of memory"
        return self._disk_excess(pids)

    def _disk_excess(self, pids: list[int]) -> str:
        free = {folder: _free(folder) for folder in self._free}
        grown = [folder for folder, before in self._free.items() if _is_notable(before, free[folder])]
        # Space that others free must not hide what it takes.
        self._free = {
            folder: now if folder in grown else (max(now[0], self._free[folder][0]), max(now[1], self._free[folder][1]))
            for folder, now in free.items()
        }
        if not grown:
            return ""
        deleted = measure_deleted(pids)
        for folder in grown:
            is_own = folder in self._folders
            most = self._limits["disk" if is_own else "tmp"]
            shown = folder if is_own else "its /tmp"
            try:
                if _measured(folder, most) + deleted.get(_device(folder), 0) > most:
                    return f"{shown} contains more than {most >> 20} MiB"
            except untrusted_files.TooMuch as error:
                return f"in {shown} {error.strerror}"
        return ""


def _free(folder: str) -> tuple[int, int]:
    """Return how many bytes and files there is room for."""
    try:
        state = os.statvfs(folder)
    except OSError:
        return 0, 0
    return state.f_bavail * state.f_frsize, state.f_favail


def _is_notable(before: tuple[int, int], now: tuple[int, int]) -> bool:
    return now[0] < before[0] - NOTABLE or now[1] < before[1] - NOTABLE_FILES


def _device(folder: str) -> int:
    try:
        return os.stat(folder).st_dev
    except OSError:
        return -1


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def measure(folder: str, enough: int) -> int:
    """Measure a folder, up to `enough`. What cannot be measured counts as more than that."""
    try:
        return _measured(folder, enough)
    except untrusted_files.TooMuch:
        return enough + 1


def _measured(folder: str, enough: int) -> int:
    """Do the same; raises TooMuch if there are too many files or nested folders."""
    total = 0
    several: set[int] = set()  # files with more than one name
    budget = untrusted_files.Budget(entries=MOST_FILES, seconds=MEASURE_S)
    try:
        # The top may be a link, which only the host can create.
        top = untrusted_files.HeldFolder(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), folder)
    except (FileNotFoundError, NotADirectoryError):
        return 0  # it disappeared meanwhile
    except OSError:
        return enough + 1
    try:
        with top:
            for entry in top.walk(budget):
                found = entry.found
                if entry.relative and found.st_ino not in several:
                    total += found.st_blocks * BLOCK
                    if not entry.is_folder and found.st_nlink > 1:
                        several.add(found.st_ino)
                if total > enough:
                    return enough + 1
    except untrusted_files.TooMuch:
        raise
    except OSError:  # a folder without access for us
        return enough + 1
    return total


def measure_deleted(pids: Iterable[int]) -> dict[int, int]:
    """Measure, for each device, deleted files that are still open."""
    found: dict[tuple[int, int], int] = {}
    looked_at = 0
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue  # it has ended
        for name in names[: max(MOST_FILES - looked_at, 0)]:
            try:
                file = os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if stat.S_ISREG(file.st_mode) and file.st_nlink == 0:
                found[file.st_dev, file.st_ino] = file.st_blocks * BLOCK
        looked_at += len(names)
    total: dict[int, int] = {}
    for (device, _), size in found.items():
        total[device] = total.get(device, 0) + size
    return total
