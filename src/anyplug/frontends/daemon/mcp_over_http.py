"""The daemon over HTTP: a server for each profile, all on the host of the folder in which it was started."""

from collections.abc import Callable
from typing import Any, NamedTuple

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from mcp.server.lowlevel import Server

from anyplug.catalog.profiles import ProfileNotFound, View
from anyplug.frontends.daemon.hosts import Key
from anyplug.frontends.http.http_server import serve_http
from anyplug.frontends.http.listener import Listener
from anyplug.frontends.http.token import Token
from anyplug.frontends.mcp.mcp_server import make_server
from anyplug.home.settings import Home, HttpSettings
from anyplug.host.host import Host
from anyplug.model.errors import ConfigError


class Web(NamedTuple):
    """Where to serve over HTTP, to whom, how much, and for which folder."""

    listener: Listener
    token: Token
    settings: HttpSettings
    key: Key


async def serve(web: Web, host: Host, home: Home, *, task_status: TaskStatus[str] = TASK_STATUS_IGNORED) -> None:
    """Serve until cancelled; report the address once it is up."""
    await serve_http(web.listener, servers(host, home), token=web.token, settings=web.settings, task_status=task_status)


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
