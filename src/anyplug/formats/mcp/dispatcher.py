"""Check a server's messages before the SDK reads them: invalid tools are left out, and depth and size are limited.

Imports the SDK, so only what starts a server imports this.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage

from anyplug.formats.mcp.streams import Source
from anyplug.formats.mcp.tool_results import Listing
from anyplug.model.json_values import excess

if TYPE_CHECKING:  # the SDK has no public name for them
    from mcp.client._transport import ReadStream, WriteStream

REQUESTS_AT_ONCE = 50  # that a server may make
REQUEST_PAUSE_S = 0.05  # after each further one
MOST_TYPED = 20_000  # values in what the SDK checks one by one: an answer without structured content, a notification


class Dispatcher(JSONRPCDispatcher):
    """The SDK's dispatcher, except that one invalid tool does not invalidate the whole list."""

    def __init__(
        self,
        read: "ReadStream[SessionMessage | Exception]",
        write: "WriteStream[SessionMessage]",
        listing: Callable[[], Listing],
    ) -> None:
        """Read tools into what `listing` returns at that time."""
        super().__init__(read, write)
        self._listing = listing

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None, **others: Any
    ) -> dict[str, Any]:
        """Send a request; raises RuntimeError if there is too much in the answer."""
        raw = await super().send_raw_request(method, params, opts, **others)
        if method == "tools/list":
            if why := excess(raw, sys.maxsize):
                raise RuntimeError(why)
            return self._listing().add(raw)  # which leaves out single tools that are too deep
        typed = {key: value for key, value in raw.items() if key != "structuredContent"}
        if why := excess(raw) or excess(typed, most=MOST_TYPED):
            raise RuntimeError(why)
        return raw


class Watched(Source):
    """A stream that reports when it has ended, which the SDK does not."""

    def __init__(self, stream: "ReadStream[SessionMessage | Exception]", ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended
        self._requests_left = float(REQUESTS_AT_ONCE)
        self._asked_at = time.monotonic()

    @property
    def last_context(self) -> Any:
        """What the SDK's own streams carry along."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next readable message: what is too deep or too much is left out, or its details."""
        while True:
            try:
                item = await self._stream.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._ended()
                raise
            message = item.message if isinstance(item, SessionMessage) else None
            if isinstance(message, types.JSONRPCNotification | types.JSONRPCRequest) and excess(
                message.params, most=MOST_TYPED
            ):
                continue
            if isinstance(message, types.JSONRPCRequest):
                await self._pace()
            if isinstance(message, types.JSONRPCError) and (why := excess(message.error.data)):
                message.error.data = why
            return item

    async def _pace(self) -> None:
        """Slow down a server that sends requests all the time, through its own pipe."""
        now = time.monotonic()
        earned = (now - self._asked_at) / REQUEST_PAUSE_S
        self._requests_left = min(REQUESTS_AT_ONCE, self._requests_left + earned) - 1
        self._asked_at = now
        if self._requests_left < 0:
            await anyio.sleep(REQUEST_PAUSE_S)

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()
