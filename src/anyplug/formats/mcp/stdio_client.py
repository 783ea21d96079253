"""A session with a process, as the pair of streams that the SDK wants: MCP's stdio framing is our own.

The SDK takes messages one by one while a session reads in chunks: a server that says more than can be followed is
made to wait, by its own pipe. Imports the SDK, so only what starts a server imports this.
"""

from collections import deque
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from anyplug.formats.mcp.streams import Source, Stream
from anyplug.runtime.session.session import NotSent, PeerGone, Session

UNREADABLE = "Failed to parse the answer"  # as the SDK begins it for servers at an address
FULL = 256  # messages that wait to be taken before the server has to


class Inbox(Source):
    """What a server says. `take` is for its session, `receive` for the SDK."""

    def __init__(self) -> None:
        self.session: Session  # whose frames these are, as soon as it is there
        self._messages: deque[SessionMessage] = deque()
        self._news = anyio.Event()
        self._is_paused = False
        self._is_over = False

    def take(self, frame: dict[str, Any]) -> None:
        """Take one frame; what is no message is counted and survived."""
        message: JSONRPCMessage
        try:
            message = jsonrpc_message_adapter.validate_python(frame, by_name=False)
        except (ValidationError, RecursionError):
            self.session.malformed("a message must be JSON-RPC 2.0")
            number = frame.get("id")
            if "method" in frame or not isinstance(number, int | str):
                return
            # Whoever waits for this answer need not wait any longer.
            unreadable = ErrorData(code=PARSE_ERROR, message=f"{UNREADABLE}: it is not JSON-RPC 2.0")
            message = JSONRPCError(jsonrpc="2.0", id=number, error=unreadable)
        self.session.counts.frames[_kind(message)] += 1
        self._messages.append(SessionMessage(message))
        if len(self._messages) >= FULL and not self._is_paused:
            self._is_paused = True
            self.session.pause()
        self._news.set()

    def end(self) -> None:
        """Say that nothing more will come."""
        self._is_over = True
        self._news.set()

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; raises EndOfStream."""
        while not self._messages:
            if self._is_over:
                raise anyio.EndOfStream
            self._news = anyio.Event()
            await self._news.wait()
        message = self._messages.popleft()
        if self._is_paused and not self._messages:
            self._is_paused = False
            self.session.resume()
            await anyio.lowlevel.checkpoint()  # what was just taken gets its turn
        return message


class Outbox(Stream):
    """What a server is told."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message; raises BrokenResourceError if the server has ended, or cannot be sent this."""
        try:
            await self._session.wait_for_room(None)
            self._session.send(item.message.model_dump(by_alias=True, mode="json", exclude_unset=True))
        except (PeerGone, NotSent) as error:
            raise anyio.BrokenResourceError from error


def _kind(message: Any) -> str:
    match message:
        case JSONRPCRequest():
            return "request"
        case JSONRPCNotification():
            return "notification"
        case JSONRPCError():
            return "error"
        case _:
            return "result"
