"""Identify a process by number and start time, because a number alone may be reused."""

import os

OVER = "over"  # instead of the start time of a process that has ended and was not waited for


def this_process() -> str:
    """Return this process's identity: its number and start time."""
    return of(os.getpid())


def of(pid: int) -> str:
    """Return a process's identity."""
    return f"{pid}:{_started(pid)}"


def is_alive(process: str) -> bool:
    """Return whether that process still runs."""
    pid, _, started = process.partition(":")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return started == _started(int(pid)) != OVER


def _started(pid: int) -> str:
    """Return the kernel's start time; empty without /proc, and a special word for a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return OVER if fields[0] in {b"Z", b"X"} else fields[19].decode()
