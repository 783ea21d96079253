"""Serve MCP over HTTP until cancelled: uvicorn, the middleware, and the endpoints behind it.

Shutdown, in order: no more connections, no more calls, streams end, running calls get `grace_s`, remaining calls are
ended with an error answer, connections close, sessions end.
"""

import ssl
from collections.abc import Callable, Mapping

import anyio
import anyio.abc
import uvicorn

from anyplug.frontends.http.access_log import AccessLog
from anyplug.frontends.http.asgi import App
from anyplug.frontends.http.listener import BACKLOG, Listener
from anyplug.frontends.http.mcp_app import PATH, Endpoints, ServerOf
from anyplug.frontends.http.middleware import Route, Shell
from anyplug.frontends.http.token import Token
from anyplug.frontends.http.uvicorn_timeouts import HEAD_BYTES, connections_within
from anyplug.home.settings import HttpSettings

KEEP_ALIVE_S = 30  # how long a connection waits for its next request: agents think between calls
TICK_S = 1.0  # how often uvicorn renews the `Date` header
CLOSING_S = 2  # for connections to close after everything they served has ended


async def serve_http(
    listener: Listener,
    server_of: ServerOf,
    *,
    token: Token,
    settings: HttpSettings,
    more: Mapping[str, Route] | None = None,
    access_log: Callable[[], str] | None = None,
    task_status: anyio.abc.TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, then shut down within `grace_s` and a little more. Report the URL once it is up.

    `more` are further paths, each with an application for it and what is below. `access_log` returns the file that
    requests are logged to, where the settings may change.
    """
    ending = anyio.Event()

    async def serve() -> None:
        # Shielded, so that running calls may end; bounded by `grace_s`, then by CLOSING_S.
        with anyio.CancelScope(shield=True):
            async with Endpoints(server_of, settings) as endpoints:
                shell = Shell(listener, {PATH: Route(endpoints, is_rpc=True), **(more or {})}, token, settings)
                app = AccessLog(shell, access_log or (lambda: settings.access_log))
                server = _Server(_configuration(app, listener, settings))
                await server.open(listener)
                task_status.started(listener.url)
                await server.stay(ending)
                server.stop_listening()
                await shell.end(settings.grace_s)
                await server.shutdown(listener.sockets)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            try:
                await anyio.sleep_forever()
            finally:
                ending.set()
    finally:
        listener.close()


class _Server(uvicorn.Server):
    """uvicorn's server without its own lifecycle: signals, loop and shutdown belong to our caller."""

    async def open(self, listener: Listener) -> None:
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        self.servers = []
        await self.startup(sockets=listener.sockets)

    async def stay(self, ending: anyio.Event) -> None:
        """Keep running; uvicorn's own loop polls ten times a second whether to end."""
        while not ending.is_set():
            await self.on_tick(0)
            with anyio.move_on_after(TICK_S):
                await ending.wait()

    def stop_listening(self) -> None:
        for server in self.servers:
            server.close()


def _configuration(app: App, listener: Listener, settings: HttpSettings) -> uvicorn.Config:
    tls = listener.tls

    def with_tls(_config: uvicorn.Config, _default: object) -> ssl.SSLContext:
        assert tls is not None
        return tls

    return uvicorn.Config(
        app,
        interface="asgi3",
        http=connections_within(settings),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # invalid requests from strangers must not fill a log; our own errors have another logger
        access_log=False,
        proxy_headers=False,  # no client may claim another's address
        server_header=False,
        headers=[("x-content-type-options", "nosniff")],
        backlog=BACKLOG,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSING_S,
        ssl_context_factory=with_tls if tls else None,
    )
