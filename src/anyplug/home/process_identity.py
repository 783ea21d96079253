"""Which process wrote something down, and whether it still lives. A number alone could be somebody else's by now."""

import os

OVER = "over"  # in place of the start of a process that has ended, and that nobody has waited for


def this_process() -> str:
    """Name this process: its number and when it started."""
    return of(os.getpid())


def of(pid: int) -> str:
    """Name a process by its number."""
    return f"{pid}:{_started(pid)}"


def is_alive(process: str) -> bool:
    """Whether the process of that name still runs."""
    pid, _, started = process.partition(":")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return started == _started(int(pid)) != OVER


def _started(pid: int) -> str:
    """Return the start time as the kernel counts it; empty where there is no /proc, another word for a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return OVER if fields[0] in {b"Z", b"X"} else fields[19].decode()
