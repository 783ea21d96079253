"""Check who connects: the same user, not a process that a plugin of ours started, and not in a sandbox."""

import os
import socket
from collections.abc import Sequence

from anyplug.frontends.daemon import proc_tree
from anyplug.frontends.daemon.locate import credentials
from anyplug.host.host import Host
from anyplug.model.errors import AnyplugError

RESTRICTIONS = frozenset({"NoNewPrivs", "Seccomp", "Seccomp_filters"})  # fields of /proc/PID/status
NAMESPACES = ("user", "mnt", "pid")


class NotSeen(AnyplugError):
    """The caller cannot be identified."""

    code = "unavailable"


class NotWelcome(AnyplugError):
    """This caller may not attach."""

    code = "denied"


def check(connection: socket.socket, hosts: Sequence[Host]) -> int:
    """Return the caller's process id; raises NotWelcome, also for descendants of the plugins of `hosts`, and NotSeen.

    A plugin that reached the host that runs it could use every other plugin's permissions. Confined processes cannot
    open the socket; this check is for those that are not confined.
    """
    peer = credentials(connection)
    pid, uid = peer or (0, os.getuid())  # where the caller is unknown, the socket's folder is closed to other users
    if uid != os.getuid():
        raise NotWelcome(
            f"this daemon belongs to a user other than {uid}",
            ("each user needs their own daemon: run `anyplug serve --detach` as that user"),
        )
    if peer is not None and not proc_tree.is_there(
        pid
    ):  # a process that connects on behalf of another and exits would hide it
        raise NotSeen(
            "the process that connected has ended, or runs where it cannot be seen",
            ("work without the daemon (ANYPLUG_RESIDENT=off)"),
        )
    if os.getpid() in proc_tree.ancestors(pid) or any(host.has_started(pid) for host in hosts):
        raise NotWelcome(
            "a process that a plugin started may not attach to the daemon",
            "zot extensions call other tools with `call_tool`; otherwise let the agent call both",
        )
    if peer is not None and is_sandboxed(pid):
        raise NotSeen(
            "a sandboxed process may not attach to a daemon outside its sandbox, because it would escape that way",
            "work without the daemon (ANYPLUG_RESIDENT=off), or start both in the same sandbox",
        )
    return pid


def is_sandboxed(pid: int) -> bool:
    """Return whether a process is confined by a sandbox that we are not in, such as that of another home's plugin.

    All our sandboxes set no_new_privs, which a process cannot drop. If we have it too, as in some containers, the
    caller must be confined exactly as we are.
    """
    theirs, ours = _restrictions(pid), _restrictions(os.getpid())
    if theirs.get("NoNewPrivs") == "0":
        return False
    return theirs != ours or any(_namespace(pid, kind) != _namespace(os.getpid(), kind) for kind in NAMESPACES)


def _restrictions(pid: int) -> dict[str, str]:
    """Return a process's restrictions according to the kernel; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            fields = (line.partition(":") for line in file)
            return {name: value.strip() for name, _, value in fields if name in RESTRICTIONS}
    except OSError:
        return {}


def _namespace(pid: int, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""
