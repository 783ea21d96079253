"""Who is at the other end of the socket: the same user, and no process that a plugin of ours started."""

import os
import socket
from collections.abc import Sequence

from anyplug.errors import AnyplugError
from anyplug.frontends.resident import processes
from anyplug.frontends.resident.address import credentials
from anyplug.host import Host


class NotSeen(AnyplugError):
    """Nobody can tell who this caller is."""

    code = "unavailable"


class NotWelcome(AnyplugError):
    """This caller may not attach."""

    code = "denied"


def check(connection: socket.socket, hosts: Sequence[Host]) -> int:
    """Give the caller's process id; raises NotWelcome, also to whatever plugins of `hosts` started, and NotSeen.

    A plugin that reached the host that runs it could use every other plugin's permissions. Its processes cannot open
    the socket where they are confined; this is for those that are not.
    """
    peer = credentials(connection)
    pid, uid = peer or (0, os.getuid())  # where nobody can tell, the socket's folder is closed to others
    if uid != os.getuid():
        raise NotWelcome(f"this host belongs to another user than {uid}", "each user has a host of their own")
    if peer is not None and not processes.is_there(pid):  # one that connects for another and ends hides that other
        raise NotSeen("the process that connected has ended, or runs where it cannot be seen", "work without the host")
    if os.getpid() in processes.ancestors(pid) or any(host.has_started(pid) for host in hosts):
        raise NotWelcome(
            "a process that a plugin started may not attach to the host that runs plugins",
            "zot extensions call other tools with `call_tool`; else let the agent call both",
        )
    return pid
