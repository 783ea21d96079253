"""MCP over HTTP in the daemon: a server for each profile, all on the host of the folder in which it was started."""

from collections.abc import Callable
from typing import Any

from mcp.server.lowlevel import Server

from anyplug.catalog.profiles import ProfileNotFound, View
from anyplug.frontends.mcp.mcp_server import make_server
from anyplug.home.settings import Home
from anyplug.host.host import Host
from anyplug.model.errors import ConfigError


def servers(host: Host, home: Home) -> Callable[[str], Server[Any] | None]:
    """Return a function that finds a profile's server; None if there is no such profile (any more)."""
    made: dict[str, Server[Any]] = {}

    def server_of(profile: str) -> Server[Any] | None:
        try:
            view = View(home, profile)
        except ProfileNotFound:
            made.pop(profile, None)
            return None
        except ConfigError:  # while the settings are being edited, keep the known servers
            return made.get(profile)
        if profile not in made:
            made[profile] = make_server(host, view)
        return made[profile]

    return server_of
