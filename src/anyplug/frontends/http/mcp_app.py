"""`/mcp` and `/mcp/<profile>`: the SDK's transport for each profile, created on its first request.

Both eras of the protocol are served at each path; the SDK tells them apart by a header. Knows nothing about what a
profile's server does.
"""

import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from anyplug.frontends.http.asgi import App, Message, Receive, Scope, Send
from anyplug.frontends.http.rate_limits import BUSY, WAIT_S
from anyplug.frontends.http.refusals import NOTHING_HERE, NULL, Refusal, overloaded
from anyplug.frontends.http.response import Reply
from anyplug.home.settings import HttpSettings

PATH = "/mcp"
LAST_EVENT = b"last-event-id"

ServerOf = Callable[[str], Server[Any] | None]

_PROFILE = re.compile(re.escape(PATH) + r"(?:/(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]{0,63})?)?")


class Endpoints:
    """The profiles in use. `server_of` returns a profile's server, "" being the default profile, or None.

    It is called for each request, and must return the same object as long as its sessions should live.
    """

    def __init__(self, server_of: ServerOf, settings: HttpSettings) -> None:
        self._server_of = server_of
        self._settings = settings
        self._open: dict[str, _Endpoint] = {}
        self._opening = anyio.Lock()

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._group.cancel_scope.cancel()
        return await self._group.__aexit__(kind, error, trace)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request at or below `/mcp`."""
        found = _PROFILE.fullmatch(scope["path"])
        endpoint = None if found is None else await self._endpoint(found["name"] or "")
        if endpoint is None:
            return await _refuse(send, NOTHING_HERE)
        if scope["method"] == "POST" and not any(name == b"mcp-session-id" for name, _ in scope["headers"]):
            send = _saying_why(send, self._settings.sessions)
        # No events are kept, so no stream can be resumed: the client gets a new one. The SDK cannot answer it.
        headers = [(name, value) for name, value in scope["headers"] if name != LAST_EVENT]
        return await endpoint.app({**scope, "headers": headers}, receive, send)

    async def _endpoint(self, profile: str) -> "_Endpoint | None":
        server = self._server_of(profile)
        endpoint = self._open.get(profile)
        if endpoint is not None and endpoint.server is server:
            return endpoint
        async with self._opening:  # two requests may arrive at once
            endpoint = self._open.get(profile)
            if endpoint is not None and endpoint.server is not server:
                self._open.pop(profile).close()
                endpoint = None
            if endpoint is None and server is not None:
                endpoint = _Endpoint(server, self._settings)
                await self._group.start(endpoint.run)
                self._open[profile] = endpoint
        return endpoint


class _Endpoint:
    """One profile's server, and its sessions."""

    def __init__(self, server: Server[Any], settings: HttpSettings) -> None:
        self.server = server
        self._sessions = StreamableHTTPSessionManager(
            server,
            session_idle_timeout=settings.session_idle_s,
            max_request_body_size=settings.max_request_bytes,
            max_sessions=settings.sessions,
        )
        self.app: App = self._sessions.handle_request
        self._scope = anyio.CancelScope()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Run until closed."""
        with self._scope:
            async with self._sessions.run():
                task_status.started()
                await anyio.sleep_forever()

    def close(self) -> None:
        """End it with its sessions."""
        self._scope.cancel()


def _saying_why(send: Send, sessions: int) -> Send:
    """Explain a refusal for too many sessions in our format: the SDK answers a bare 503 then, and only then."""
    is_replaced = False

    async def replacing(message: Message) -> None:
        nonlocal is_replaced
        if message["type"] == "http.response.start" and message["status"] == BUSY:
            is_replaced = True
            await _refuse(send, overloaded(BUSY, f"{sessions} sessions are open", WAIT_S))
        elif not is_replaced:
            await send(message)

    return replacing


async def _refuse(send: Send, refusal: Refusal) -> None:
    await Reply(send, request_id=NULL).refuse(refusal)
