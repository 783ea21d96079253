"""What a connection may use of the daemon."""

import asyncio
from typing import Any, Protocol

from anyplug.call.consent import Attachment
from anyplug.catalog.profiles import View
from anyplug.frontends.daemon import protocol
from anyplug.frontends.daemon.hosts import Projects
from anyplug.home.settings import Home
from anyplug.host.host import Host


class DaemonAccess(Protocol):
    """The daemon, as its connections see it."""

    pid: int
    home: Home
    projects: Projects

    def welcome(self, hello: protocol.Hello) -> None:
        """Check that a client would find the same here as by itself; raises Elsewhere if not."""
        ...

    async def serve_mcp(
        self, host: Host, view: View, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, attachment: Attachment
    ) -> None:
        """Speak MCP with a client until it leaves."""
        ...

    async def decide(self, request: dict[str, Any], hello: protocol.Hello, pid: int) -> dict[str, Any]:
        """Decide about an agent's event by the policies of its project. Raises AnyplugError."""
        ...

    async def open_console(self, hello: protocol.Hello, pid: int, port: int | None) -> dict[str, str]:
        """Serve the console for a person, and return its address and a link to it. Raises AnyplugError."""
        ...

    async def serve_http(self, request: protocol.ServeHttp, hello: protocol.Hello, pid: int) -> protocol.Served:
        """Serve over HTTP from now on, because a person asked for it. Raises AnyplugError."""
        ...

    async def status(self) -> dict[str, Any]:
        """Return the daemon's status."""
        ...

    def stop(self) -> None:
        """End in order."""
        ...
