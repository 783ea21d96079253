"""Servers at an address: the SDK's HTTP transports with limits, and the errors that they do not pass on.

Imports the SDK, so only what starts a server imports this.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from anyplug.model import permissions
from anyplug.model.errors import Unavailable
from anyplug.model.types import Endpoint

if TYPE_CHECKING:  # the SDK has no public name for it
    from mcp.client._transport import TransportStreams

CONNECT_S = 30.0  # for one request to be accepted
READ_S = 300.0  # between two parts of a streamed answer
REFUSED = 400  # and above: a server's refusals
NOT_FOUND = 404
PORTS = {"http": 80, "https": 443}  # for an address without a port
NOT_STREAMABLE = frozenset({400, 404, 405, 406, 415})  # what servers with the older transport answer to a POST
SESSION = "mcp-session-id"
MOST_OF_SIGN_IN = 1 << 20  # bytes of an answer while a person signs in
TOO_LARGE = "the answer has more than"


class TooLarge(httpx2.StreamError):
    """An answer is too long."""


class NotOlder(Exception):
    """The server does not look like one with the older transport."""


class Exchange:
    """The state of the HTTP side of one connection."""

    def __init__(
        self,
        endpoint: Endpoint,
        limit: int,
        lost: Callable[[str], None],
        granted: tuple[str, ...] = (),
        auth: httpx2.Auth | None = None,
    ) -> None:
        """`limit` is in bytes per answer; `lost` is called when the server no longer knows our session.

        `granted` are the permissions of the plugin on whose behalf we connect. `auth` shows who is signed in.
        """
        self._auth = auth
        self._granted = granted
        self._endpoint = endpoint
        self._limit = limit
        self._lost = lost
        self.status = 0  # of the first refusal

    @property
    def ways(self) -> "Sequence[Callable[[], AbstractAsyncContextManager[TransportStreams]]]":
        """The transports to try; the older one comes second, and only if the newer is not understood."""
        known = {"http": [self.streamable], "sse": [self.sse]}
        return known.get(self._endpoint.transport, [self.streamable, self.older])

    @asynccontextmanager
    async def streamable(self) -> "AsyncIterator[TransportStreams]":
        """Connect by streamable HTTP."""
        async with (
            self._client(self._endpoint.headers) as client,
            streamable_http_client(self._endpoint.url, http_client=client, max_sse_event_size=self._limit) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def sse(self) -> "AsyncIterator[TransportStreams]":
        """Connect with the older transport: a stream of events, and POST requests."""
        async with sse_client(
            self._endpoint.url,
            headers=self._endpoint.headers,
            httpx_client_factory=self._client,
        ) as streams:
            yield streams

    @asynccontextmanager
    async def older(self) -> "AsyncIterator[TransportStreams]":
        """Connect with the older transport if the server's answer suggests that it has no other."""
        if self.status not in NOT_STREAMABLE:
            raise NotOlder
        async with self.sse() as streams:
            yield streams

    async def greet(self, auth: httpx2.Auth) -> int:
        """Send a first request, so that the server asks for a sign-in if it wants one; return its HTTP status."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "anyplug", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        accepted = {"accept": "application/json, text/event-stream"}
        async with (
            self._client({**self._endpoint.headers, **accepted}, auth=auth) as client,
            client.stream("POST", self._endpoint.url, json=message) as response,
        ):
            return response.status_code

    def lacking(self, url: str) -> str:
        """Return the permission needed to connect to an address; empty if it is granted. Raises Unavailable."""
        try:
            where = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise Unavailable(f"the server's address cannot be used: {error}", "correct it") from error
        port = where.port or PORTS.get(where.scheme, 0)
        return "" if permissions.may_reach(self._granted, where.host, port) else permissions.to(where.host, port)

    async def _refuse(self, request: httpx2.Request) -> None:
        """Check every request against the grants, including redirects."""
        if lacking := self.lacking(str(request.url)):
            raise httpx2.RequestError(f"{lacking} is not granted", request=request)

    def _client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        patience = httpx2.Timeout(CONNECT_S, read=READ_S)
        hooks: dict[str, list[Callable[..., Any]]] = {"request": [self._refuse], "response": [self._look]}
        return httpx2.AsyncClient(headers=headers, timeout=patience, event_hooks=hooks, auth=auth or self._auth)

    async def _look(self, response: httpx2.Response) -> None:
        if response.status_code >= REFUSED:
            self.status = self.status or response.status_code
        if response.status_code == NOT_FOUND and SESSION in response.request.headers:
            self._lost("it no longer knows our session")
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream, self._limit)


class _Bounded(httpx2.AsyncByteStream):
    """A body with a maximum length."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in self._body:
            seen += len(chunk)
            if seen > self._limit:
                raise TooLarge(f"{TOO_LARGE} {self._limit:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()
