"""What a connection may use of the resident host that it is attached to."""

import asyncio
from typing import Any, Protocol

from anyplug.call.consent import Attachment
from anyplug.catalog.profiles import View
from anyplug.frontends.daemon import protocol
from anyplug.frontends.daemon.hosts import Projects
from anyplug.home.settings import Home
from anyplug.host.host import Host


class Keeper(Protocol):
    """The resident host, seen from one of its connections."""

    pid: int
    home: Home
    projects: Projects

    def welcome(self, hello: protocol.Hello) -> None:
        """See whether a client would find the same here as by itself; raises Elsewhere if not."""
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
        """Return how it does."""
        ...

    def stop(self) -> None:
        """Let it end, in order."""
        ...
