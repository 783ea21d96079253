"""The answer to a client: tracks whether it has begun, and which pages a browser may show it to."""

import msgspec

from anyplug.frontends.http import refusals
from anyplug.frontends.http.asgi import Message, Send
from anyplug.frontends.http.refusals import Headers, Refusal

PREFLIGHT_S = b"600"  # how long a browser may cache the permission
METHODS = b"GET, POST, DELETE"
SENDABLE = frozenset({b"authorization", b"content-type", b"accept", b"last-event-id"})  # and names that begin with mcp-
READABLE = b"mcp-session-id, mcp-protocol-version, www-authenticate, retry-after"


class Reply:
    """The answer to one request."""

    __slots__ = ("_is_complete", "_is_started", "_origin", "_send", "request_id")

    def __init__(self, send: Send, origin: bytes | None = None, request_id: msgspec.Raw | None = None) -> None:
        """`origin` is that of a page that may read the answer; an id, or NULL, means JSON-RPC."""
        self._send = send
        self._origin = origin
        self._is_started = self._is_complete = False
        self.request_id = request_id

    async def send(self, message: Message) -> None:
        """Send a part of it."""
        if message["type"] == "http.response.start":
            self._is_started = True
            if self._origin is not None:
                message["headers"] = [*message["headers"], *_cors(self._origin)]
        else:
            self._is_complete = not message.get("more_body", False)
        await self._send(message)

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a complete answer."""
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal."""
        await self.whole(refusal.status, *refusals.render(refusal, self.request_id))

    async def cut_off(self, refusal: Refusal) -> None:
        """Send a refusal, unless an answer has already begun; then end it."""
        if not self._is_started:
            await self.refuse(refusal)
        elif not self._is_complete:
            await self.send({"type": "http.response.body", "body": b""})

    async def allow(self, headers: dict[bytes, bytes]) -> None:
        """Tell a browser what a page of this origin may send."""
        wanted = [name.strip().lower() for name in headers.get(b"access-control-request-headers", b"").split(b",")]
        names = [name for name in wanted if name in SENDABLE or name.startswith(b"mcp-")]
        allowed = [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", b", ".join(names)),
            (b"access-control-max-age", PREFLIGHT_S),
        ]
        if headers.get(b"access-control-request-private-network") == b"true":
            allowed.append((b"access-control-allow-private-network", b"true"))
        await self.whole(204, allowed, b"")


def _cors(origin: bytes) -> Headers:
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", READABLE),
        (b"vary", b"origin"),
    ]
