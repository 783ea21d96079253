"""Looks at the machine's processes: who is left of those that a test started."""

import os
import time
from collections.abc import Callable

PATIENCE_S = 30.0  # for what happens in a moment, on a machine that has much else to do


def read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def state(pid: int | str) -> str:
    """The kernel's letter for a process or a thread; empty if there is none."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return fields[0].decode() if fields else ""


def is_running(pid: int) -> bool:
    """Whether any of its threads runs: the main one may have ended before the others."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return any(state(f"{pid}/task/{thread}") not in {"", "Z", "X"} for thread in threads)


def processes(is_wanted: Callable[[int], bool]) -> dict[int, str]:
    """The processes that run and are wanted, each with its command line."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {
        pid: read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
        for pid in pids
        if is_running(pid) and is_wanted(pid)
    }


def carrying(token: str) -> dict[int, str]:
    """The processes that have a word in their environment, less this one."""
    return processes(lambda pid: pid != os.getpid() and token.encode() in read(f"/proc/{pid}/environ"))


def tagged(tag: int) -> dict[int, str]:
    """The processes that wear a guard's mark."""
    return processes(lambda pid: f" {tag} ".encode() in read(f"/proc/{pid}/limits"))


def outside(number: int, token: str) -> int:
    """This side's number of a process that knows itself by another, as in a namespace of its own; 0 if it is gone."""
    known = [pid for pid in carrying(token) if _own_number(pid) == number]
    return max(known, default=0)


def _own_number(pid: int) -> int:
    """The number by which a process knows itself."""
    line = next((line for line in read(f"/proc/{pid}/status").splitlines() if line.startswith(b"NSpid:")), b"0")
    return int(line.split()[-1])


def children() -> dict[int, str]:
    """This process's children, also those that nobody has waited for."""
    mine = str(os.getpid()).encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {
        pid: read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
        for pid in pids
        if read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1:2] == [mine]
    }


def until(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Wait until something is so; False if it never is."""
    end = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
