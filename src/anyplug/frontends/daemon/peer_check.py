"""Who is at the other end of the socket: the same user, no process that a plugin of ours started, none in a sandbox."""

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
    """Nobody can tell who this caller is."""

    code = "unavailable"


class NotWelcome(AnyplugError):
    """This caller may not attach."""

    code = "denied"


def check(connection: socket.socket, hosts: Sequence[Host]) -> int:
    """Return the caller's process id; raises NotWelcome, also to whatever plugins of `hosts` started, and NotSeen.

    A plugin that reached the host that runs it could use every other plugin's permissions. Its processes cannot open
    the socket where they are confined; this is for those that are not.
    """
    peer = credentials(connection)
    pid, uid = peer or (0, os.getuid())  # where nobody can tell, the socket's folder is closed to others
    if uid != os.getuid():
        raise NotWelcome(f"this host belongs to another user than {uid}", "each user has a host of their own")
    if peer is not None and not proc_tree.is_there(pid):  # one that connects for another and ends hides that other
        raise NotSeen("the process that connected has ended, or runs where it cannot be seen", "work without the host")
    if os.getpid() in proc_tree.ancestors(pid) or any(host.has_started(pid) for host in hosts):
        raise NotWelcome(
            "a process that a plugin started may not attach to the host that runs plugins",
            "zot extensions call other tools with `call_tool`; else let the agent call both",
        )
    if peer is not None and is_sandboxed(pid):
        raise NotSeen(
            "a process in a sandbox that this host is not in may not attach: it would leave the sandbox that way",
            "work without the host, or start both in the same sandbox",
        )
    return pid


def is_sandboxed(pid: int) -> bool:
    """Return whether a process is held by a sandbox that we are not in, such as that of another home's plugin.

    Every sandbox of ours sets no_new_privs, which no process gets rid of. If we have it too, as in some containers,
    the other one has to be held exactly as we are.
    """
    theirs, ours = _restrictions(pid), _restrictions(os.getpid())
    if theirs.get("NoNewPrivs") == "0":
        return False
    return theirs != ours or any(_namespace(pid, kind) != _namespace(os.getpid(), kind) for kind in NAMESPACES)


def _restrictions(pid: int) -> dict[str, str]:
    """Return what the kernel says of a process's restrictions; nothing if it has ended."""
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
