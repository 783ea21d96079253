"""The descendants of a process and their memory, from /proc. Empty where there is no /proc."""

import os

PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Return a process's children, their children, and so on."""
    parents: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit() and (parent := _parent(name)):
            parents.setdefault(parent, []).append(int(name))
    found: list[int] = []
    todo = [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def is_there(pid: int) -> bool:
    """Return whether a process exists."""
    return os.path.exists(f"/proc/{pid}/stat")


def ancestors(pid: int) -> set[int]:
    """Return a process and its ancestors."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        pid = _parent(str(pid))
    return found


def memory(pid: int) -> int:
    """Return a process's memory in bytes, without what it shares with others."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * PAGE


def _parent(name: str) -> int:
    try:
        with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
