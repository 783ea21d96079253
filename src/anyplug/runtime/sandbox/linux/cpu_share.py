"""How a plugin's programs share the CPU with others: all together count as one, or else have a low priority.

A hundred busy processes get a hundred shares, so the kernel must count a plugin's processes as a group. It does so by
session if it groups by session at all (autogroup), which costs nothing; otherwise by a cgroup for the plugin, if we may
create one, which takes some milliseconds. A group has the weight of any other, so that calls also finish on a busy
machine. Priorities count only within a group, where the spawner comes first; without groups only the low priority
applies, and `means` tells so.

Part of the spawner: standard library only.
"""

from __future__ import annotations

import os

NICE = 5  # a third of the usual weight: enough to give way, and still to make progress
LAST_NICE = 19
CGROUPS = "/sys/fs/cgroup"
PREFIX = "anyplug-"
REAL_TIME = (os.SCHED_FIFO, os.SCHED_RR)
SESSIONS, CGROUP, PRIORITY = "sessions", "cgroup", "priority"


def means() -> str:
    """Return how a plugin's processes are counted as one: `sessions`, `cgroup`, or not at all (`priority`)."""
    folder, weight = _own_cgroup()
    if _read("/proc/sys/kernel/sched_autogroup_enabled") == "1" and _is_outermost(folder, weight):
        return SESSIONS
    return CGROUP if _parent(folder, weight) else PRIORITY


def enter() -> str:
    """Count this process and its descendants as one; return how. Needs its own session.

    They do not keep a real-time priority of the host: one that spins would leave nothing for others.
    """
    if os.sched_getscheduler(0) in REAL_TIME:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    how = means()
    if how == CGROUP and not _enter_cgroup():
        return PRIORITY
    return how


def demote_sessions(proc: str, pids: list[int]) -> None:
    """Reduce the weight of sessions that programs opened themselves: each would count as one more.

    `proc` is a writable /proc. The kernel accepts one such change per 100 ms from an ordinary user, so the others wait
    for the next check.
    """
    own = _read(f"{proc}/self/autogroup").partition(" ")[0]
    seen = {own}
    for pid in pids:
        group, _, nice = _read(f"{proc}/{pid}/autogroup").partition(" nice ")
        if group and group not in seen:
            seen.add(group)
            if nice != str(LAST_NICE):
                _write(f"{proc}/{pid}/autogroup", str(LAST_NICE))


def remove_empty_cgroups() -> None:
    """Remove the cgroups of ended spawners; the kernel refuses for those in which programs run."""
    if means() != CGROUP:
        return
    parent = _parent(*_own_cgroup())
    for name in os.listdir(parent):
        if name.startswith(PREFIX) and not os.path.exists(f"/proc/{name.removeprefix(PREFIX)}"):
            try:
                os.rmdir(os.path.join(parent, name))
            except OSError:
                continue


def _own_cgroup() -> tuple[str, str]:
    """Return the folder of the cgroup that controls our CPU share, and the name of its weight file."""
    unified = ""
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return f"{CGROUPS}/cpu{path}".rstrip("/"), "cpu.shares"
        if not controllers:
            unified = f"{CGROUPS}{path}".rstrip("/")
    return unified, "cpu.weight"


def _is_outermost(folder: str, weight: str) -> bool:
    """Return whether no cgroup divides the CPU here: only then does the kernel group by session."""
    if weight == "cpu.shares":
        return os.path.exists(
            f"{folder}/release_agent"
        )  # which only the root cgroup has, whatever a container calls it
    if not os.path.exists(f"{CGROUPS}/cgroup.controllers"):
        return False
    while len(folder) >= len(CGROUPS):
        if os.path.exists(f"{folder}/{weight}"):
            return False
        folder = os.path.dirname(folder)
    return True


def _parent(folder: str, weight: str) -> str:
    """Return where a cgroup can be created that shares the CPU with ours; empty if nowhere."""
    if weight == "cpu.weight":  # a cgroup with processes cannot have such children, and ours contains us
        folder = os.path.dirname(folder) if len(folder) > len(CGROUPS) else folder
        if "cpu" not in _read(f"{folder}/cgroup.subtree_control").split():
            return ""
    is_ours = os.access(folder, os.W_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)
    return folder if folder and is_ours else ""


def _enter_cgroup() -> bool:
    folder, weight = _own_cgroup()
    own = os.path.join(_parent(folder, weight), f"{PREFIX}{os.getpid()}")
    try:
        os.mkdir(own)
    except OSError:
        return False
    if _write(f"{own}/cgroup.procs", str(os.getpid())):
        return True
    os.rmdir(own)
    return False


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _write(path: str, text: str) -> bool:
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except OSError:
        return False
    return True
