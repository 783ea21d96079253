"""A session with a process as the pair of streams that the SDK expects: the stdio framing is our own.

The SDK takes messages one by one while a session reads in chunks: a server that sends too much is made to wait, through
its own pipe. Imports the SDK, so only what starts a server imports this.
"""

import re
from collections import deque
from typing import Any

import anyio
import msgspec
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
from anyplug.runtime.session.reader import Unread
from anyplug.runtime.session.session import NotSent, PeerGone, Session

UNREADABLE = "Failed to parse the answer"  # as the SDK words it for remote servers
# Where SDKs write the id of an answer: first, or last. Elsewhere it may be part of the result.
FIRST_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+|"[^"\\]*")\s*[,}]')
LAST_ID = re.compile(rb'[,{]\s*"id"\s*:\s*(\d+|"[^"\\]*")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
METHOD = b'"method"'
FULL = 256  # unread messages before the server has to wait


class Inbox(Source):
    """A server's messages. `take` is for its session, `receive` for the SDK."""

    def __init__(self) -> None:
        self.session: Session  # set as soon as it exists
        self._messages: deque[SessionMessage] = deque()
        self._news = anyio.Event()
        self._is_paused = False
        self._is_over = False

    def take(self, frame: dict[str, Any]) -> None:
        """Handle one frame; an invalid message is counted and skipped."""
        message: JSONRPCMessage
        try:
            message = jsonrpc_message_adapter.validate_python(frame, by_name=False)
        except (ValidationError, RecursionError):
            self.session.malformed("a message must be JSON-RPC 2.0")
            number = frame.get("id")
            if "method" not in frame and isinstance(number, int | str):
                self._fail(number, "it is not JSON-RPC 2.0")
            return
        self._add(message)

    def miss(self, line: Unread) -> None:
        """Handle a line that is not JSON: if it was meant as an answer, its caller is told."""
        found = FIRST_ID.match(line.part) or LAST_ID.search(line.end)
        if found is not None and METHOD not in line.part and METHOD not in line.end:
            self._fail(msgspec.json.decode(found[1]), line.why)

    def _fail(self, number: int | str, why: str) -> None:
        error = ErrorData(code=PARSE_ERROR, message=f"{UNREADABLE}: {why}")
        self._add(JSONRPCError(jsonrpc="2.0", id=number, error=error))

    def _add(self, message: JSONRPCMessage) -> None:
        self.session.counts.frames[_kind(message)] += 1
        self._messages.append(SessionMessage(message))
        if len(self._messages) >= FULL and not self._is_paused:
            self._is_paused = True
            self.session.pause()
        self._news.set()

    def end(self) -> None:
        """Signal the end of the messages."""
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
            await anyio.lowlevel.checkpoint()  # let the last message be handled
        return message


class Outbox(Stream):
    """Messages to a server."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message; raises BrokenResourceError if the server has ended, or this cannot be sent."""
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
