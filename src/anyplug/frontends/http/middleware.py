"""Checks for every request, in this order: host name, origin, path, token or session, size, rate limits.

An ASGI application around others. It knows paths and access, and about the applications only whether they speak
JSON-RPC: there it distinguishes calls from answers and notifications for running calls, which must always get through.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from anyplug.frontends.http import refusals, same_origin
from anyplug.frontends.http.asgi import App, Receive, Scope, Send
from anyplug.frontends.http.listener import Listener
from anyplug.frontends.http.rate_limits import Admission, Kind
from anyplug.frontends.http.refusals import NULL, Refusal
from anyplug.frontends.http.request_bodies import Bodies, replaying
from anyplug.frontends.http.response import Reply
from anyplug.frontends.http.token import Token
from anyplug.frontends.http.uvicorn_timeouts import KNOWN
from anyplug.home.settings import HttpSettings
from anyplug.model.json_values import with_whole_characters

# Headers that decide something: with two of them, a proxy in front of us could have judged the other one.
SINGLE = frozenset({b"authorization", b"host", b"origin", b"cookie", b"content-length", b"content-type",
                    b"mcp-session-id", b"mcp-protocol-version", b"mcp-method",
                    b"access-control-request-method"})  # fmt: skip
SESSION = "anyplug.session"  # in a request's scope: the browser session that it belongs to
LISTENING = b"subscriptions/listen"  # the newer era's request that stays open to receive changes

_logger = logging.getLogger(__name__)


class Session(Protocol):
    """A browser that a person opened."""

    @property
    def origin(self) -> bytes:
        """Of the page that may use it."""
        ...


class Route(msgspec.Struct, frozen=True):
    """The application at a path and below it."""

    app: App
    is_rpc: bool = False
    is_open: bool = False  # no token needed
    session_of: Callable[[dict[bytes, bytes], bytes], Session | None] | None = None  # by its cookie, headers and query
    streams: Callable[[str], bool] = lambda _: False  # whether a path's answer stays open
    max_bytes: int = 0  # of a request; 0: as the settings say


class Shell:
    """In front of everything that is served."""

    def __init__(self, listener: Listener, routes: Mapping[str, Route], token: Token, settings: HttpSettings) -> None:
        self._listener = listener
        self._routes = {**routes, "/healthz": Route(_healthy, is_open=True)}
        self._token = token
        self._origins = listener.origins | {origin.encode() for origin in settings.origins}
        self._admission = Admission(settings)
        self._bodies = Bodies(settings.max_request_bytes)
        self._running: dict[asyncio.Task[Any], Kind] = {}
        self._is_ending = False
        self._idle = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if scope["http_version"] != "1.1" or (len(headers) < len(scope["headers"]) and _is_ambiguous(scope["headers"])):
            return await Reply(send).refuse(refusals.TWICE if scope["http_version"] == "1.1" else refusals.MALFORMED)
        origin = headers.get(b"origin")
        if (refusal := self._unwelcome(headers, origin)) is not None:
            return await Reply(send).refuse(refusal)
        reply = Reply(send, origin)
        if origin is not None and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            return await reply.allow(headers)
        route = self._route(scope["path"])
        if route is None:
            return await reply.refuse(refusals.NOTHING_HERE)
        reply.request_id = NULL if route.is_rpc else None
        if not route.is_open:
            if (refusal := self._refused(route, scope, headers)) is not None:
                return await reply.refuse(refusal)
            scope[KNOWN] = True
        body = await self._bodies.read(int(headers.get(b"content-length", b"0")), receive, route.max_bytes)
        if body is None:
            return None
        if isinstance(body, Refusal):
            return await reply.refuse(body)
        try:
            given = with_whole_characters(body) if route.is_rpc else body
            return await self._admit(route, scope, headers, given, receive, reply)
        finally:
            self._bodies.release(body)

    def _unwelcome(self, headers: dict[bytes, bytes], origin: bytes | None) -> Refusal | None:
        """Return why no page or program that asks like this gets anything."""
        if not self._listener.is_ours(headers.get(b"host", b"")):
            return refusals.NOT_OURS
        if origin is not None and origin not in self._origins:
            return refusals.FOREIGN
        return refusals.NO_WORKERS if b"service-worker" in headers else None

    def _refused(self, route: Route, scope: Scope, headers: dict[bytes, bytes]) -> Refusal | None:
        """Return why a request may not use a route; put the session of a browser into its scope."""
        authorization = headers.get(b"authorization")
        if authorization is None and route.session_of is not None:
            session = route.session_of(headers, scope["query_string"])
            if session is not None:
                scope[SESSION] = session
                return same_origin.refusal(scope["method"], headers, session.origin)
        return None if self._token.is_carried_by(authorization or b"") else refusals.NO_TOKEN

    async def end(self, grace_s: float) -> None:
        """Accept no more calls, end streams, give calls a bounded time, then end them."""
        self._is_ending = True
        self._cancel(Kind.STREAM)
        if self._admission.calls:
            try:
                await asyncio.wait_for(self._idle.wait(), grace_s)
            except TimeoutError:
                pass
        self._cancel(*Kind)

    def _route(self, path: str) -> Route | None:
        while path:
            if (found := self._routes.get(path)) is not None:
                return found
            path = path.rpartition("/")[0]
        return self._routes.get("/")

    async def _admit(
        self, route: Route, scope: Scope, headers: dict[bytes, bytes], body: bytes, receive: Receive, reply: Reply
    ) -> None:
        kind, client = _kind(route, scope, headers, body, reply), _client(scope, headers)
        if reply.request_id is not None and not _is_id(reply.request_id):
            reply.request_id = NULL
            return await reply.refuse(refusals.NO_ID)
        if self._is_ending and kind is not Kind.WORD:
            return await reply.refuse(refusals.ENDING)
        if (refusal := self._admission.enter(client, kind)) is not None:
            return await reply.refuse(refusal)
        task = asyncio.current_task()
        assert task is not None
        self._running[task] = kind
        try:
            await route.app(scope, replaying(body, receive), reply.send)
        except asyncio.CancelledError:
            if not self._is_ending:
                raise
            task.uncancel()
            await reply.cut_off(refusals.ENDING)
        except Exception:  # whatever fails behind us, the next request is served
            _logger.exception("%s %s failed", scope["method"], scope["path"])
            await reply.cut_off(refusals.FAILED)
        finally:
            del self._running[task]
            self._admission.leave(client, kind)
            if self._is_ending and not self._admission.calls:
                self._idle.set()

    def _cancel(self, *kinds: Kind) -> None:
        for task, kind in self._running.items():
            if kind in kinds:
                task.cancel()


def _is_ambiguous(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether a deciding header occurs twice."""
    names = [name for name, _ in headers if name in SINGLE]
    return len(names) != len(set(names))


def _kind(route: Route, scope: Scope, headers: dict[bytes, bytes], body: bytes, reply: Reply) -> Kind:
    """Return what a request costs, and set the id of a JSON-RPC request for its reply."""
    if scope["method"] == "GET":
        is_stream = route.is_rpc or route.streams(scope["path"]) or b"text/event-stream" in headers.get(b"accept", b"")
        return Kind.STREAM if is_stream else Kind.CALL
    if not route.is_rpc or scope["method"] != "POST":
        return Kind.CALL
    try:
        message = _peek(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Kind.CALL  # neither an answer nor a notification
    if not message.id or not message.method:
        return Kind.WORD
    reply.request_id = message.id
    return Kind.STREAM if headers.get(b"mcp-method") == LISTENING else Kind.CALL


def _is_id(id: msgspec.Raw) -> bool:
    """Return whether a request may have this id; the SDK takes a request with another one for a notification."""
    if id is NULL:  # nothing was asked yet
        return True
    try:
        return type(msgspec.json.decode(id)) in {str, int}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True  # the SDK answers it


class _Peek(msgspec.Struct):
    """The part of a JSON-RPC message that tells what it is."""

    id: msgspec.Raw = msgspec.Raw()
    method: msgspec.Raw = msgspec.Raw()


_peek = msgspec.json.Decoder(_Peek).decode


def _client(scope: Scope, headers: dict[bytes, bytes]) -> Hashable:
    """Identify the client."""
    session, address = headers.get(b"mcp-session-id"), scope["client"]
    return address if session is None or address is None else (address[0], session)


async def _healthy(scope: Scope, receive: Receive, send: Send) -> None:
    body = b'{"ok":true}'
    await Reply(send).whole(200, refusals.json_headers(body), body)
