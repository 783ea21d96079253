"""Messages on a byte stream: newline-delimited JSON-RPC.

Lines go to the SDK, except those that the fast path handles. Invalid messages are answered as JSON-RPC requires, so
that a faulty client learns about it; lines that are too long are skipped.
"""

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
import mcp_types as types
import msgspec
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from anyplug.frontends.mcp.fast_path import FastPath
from anyplug.frontends.mcp.result_content import encoded
from anyplug.model.json_values import with_whole_characters

LONGEST_LINE = 64 << 20  # bytes; a call may carry 25 MiB of files, which are 34 MiB in base64
CHUNK = 65_536  # bytes
STALL_S = 60.0  # how long a client may read nothing while it sends more; people put programs to sleep

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Reader(Protocol):
    """The source of a client's bytes, like asyncio's StreamReader."""

    async def read(self, n: int, /) -> bytes:
        """Return some bytes, empty at the end."""
        ...


class Writer(Protocol):
    """The destination of a client's bytes, like asyncio's StreamWriter."""

    def write(self, data: bytes, /) -> None:
        """Write bytes, completely."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more; raises OSError if nobody reads any more."""
        ...


async def read(receive: Reader, outlet: "Outlet", to_sdk: Any, lane: FastPath | None = None) -> None:
    """Pass every line to the fast path or to the SDK, until the stream ends.

    While the client does not read, nothing more is read from it, so that answers cannot pile up; for a limited time,
    since it may have closed its end, which only a read reveals.
    """
    async for received in _lines(receive):
        if received is None:
            await outlet.send_error(types.INVALID_REQUEST, f"a line is longer than {LONGEST_LINE >> 20} MiB")
            continue
        with anyio.move_on_after(STALL_S) as patience:
            await outlet.has_room()
        if patience.cancelled_caught:
            return
        line = with_whole_characters(received)
        if not line or line.isspace() or (lane is not None and lane.takes(line)):
            continue
        try:
            fields = _fields(line)  # first, because the SDK's reader takes NaN for JSON
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except (msgspec.DecodeError, UnicodeError, RecursionError, ValidationError):
            await outlet.send_error(*_fault(line))
            continue
        if isinstance(message, types.JSONRPCNotification) and "id" in fields:  # one that is not allowed
            await outlet.send_error(types.INVALID_REQUEST, "Invalid request")
            continue
        if lane is not None:
            lane.passes(message)
        try:
            await to_sdk.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


async def _lines(receive: Reader) -> AsyncIterator[bytes | None]:
    """Split the data into lines; None stands for one that is too long."""
    parts: list[bytes] = []
    length, is_skipping = 0, False
    while True:
        try:
            chunk = await receive.read(CHUNK)
        except OSError:
            return
        if not chunk:
            return  # an unfinished line was not meant to be read
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            parts.append(piece)
            if is_skipping or length + len(piece) > LONGEST_LINE:
                yield None
            else:
                yield parts[0] if len(parts) == 1 else b"".join(parts)
            parts, length, is_skipping = [], 0, False
        length += len(rest)
        if length > LONGEST_LINE:
            parts, is_skipping = [], True
        elif rest:
            parts.append(rest)


def _fault(line: bytes) -> tuple[int, str, Any]:
    """Return what is wrong with an invalid line, and the id of its request."""
    try:
        given = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return types.PARSE_ERROR, "Parse error", None
    if isinstance(given, list):
        return types.INVALID_REQUEST, "batches of messages are not supported: send one message per line", None
    name = given.get("id") if isinstance(given, dict) and "method" in given else None
    is_name = isinstance(name, str | int) and not isinstance(name, bool)
    return types.INVALID_REQUEST, "Invalid request", name if is_name else None


class Outlet:
    """Sends messages to the client, one per line; the SDK's write stream."""

    def __init__(self, send: Writer, broken: Callable[[], None]) -> None:
        """`broken` is called when nobody reads any more."""
        self._send = send
        self._broken = broken
        self._is_broken = False

    async def send_bytes(self, line: bytes) -> None:
        """Send a line, waiting while the client is behind; if it has gone, do nothing."""
        if not self._is_broken:
            self._send.write(line)
            await self.has_room()

    async def has_room(self) -> None:
        """Wait while the client is behind."""
        if self._is_broken:
            return
        try:
            await self._send.drain()
        except OSError:
            self._is_broken = True
            self._broken()

    async def send_error(self, code: int, message: str, name: Any = None) -> None:
        """Answer an invalid request."""
        await self.send_bytes(encoded({"jsonrpc": "2.0", "id": name, "error": {"code": code, "message": message}}))

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message of the SDK."""
        await self.send_bytes(encoded(item.message.model_dump(by_alias=True, mode="python", exclude_unset=True)))

    async def aclose(self) -> None:
        """Do nothing: the stream belongs to the caller."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
