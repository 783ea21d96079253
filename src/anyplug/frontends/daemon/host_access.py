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

    async def decide(self, request: dict[str, Any], hello: protocol.Hello) -> dict[str, Any]:
        """Decide about an agent's event by the policies of its project. Raises AnyplugError."""
        ...

    def status(self) -> dict[str, Any]:
        """Return the daemon's status."""
        ...

    def stop(self) -> None:
        """End in order."""
        ...
