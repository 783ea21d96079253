"""The daemon over HTTP: tools at /mcp, the console and its API. Opened at the start, or when a person asks for it.

Imports the SDK and uvicorn only when it is opened.
"""

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.abc
import anyio.to_thread

from anyplug.call.open_questions import OpenQuestions
from anyplug.frontends.daemon.hosts import Key, Projects
from anyplug.frontends.daemon.protocol import Served, ServeHttp
from anyplug.home.settings import Home, HttpSettings
from anyplug.host.host import Host
from anyplug.model.errors import Unavailable
from anyplug.runtime import mcp_sdk

if TYPE_CHECKING:  # only needed over HTTP
    from anyplug.frontends.console.browser_sessions import BrowserSessions
    from anyplug.frontends.http.listener import Listener
    from anyplug.frontends.http.token import Token


class Web(NamedTuple):
    """Where to serve over HTTP, to whom, how much, and for which folder."""

    listener: "Listener"
    token: "Token"
    settings: HttpSettings
    key: Key
    words: list[str] = []  # noqa: RUF012 - the arguments of the program that serve this; none if nobody asked for it


def listened(home: Home, request: ServeHttp, key: Key) -> Web:
    """Listen as a person asked, and find or create the token. Raises UsageError and ConfigError."""
    from anyplug.frontends.http.listener import listen, parse_address
    from anyplug.frontends.http.token import read_token, renew_token  # only needed over HTTP

    settings = home.read_settings().http
    listener = listen(
        parse_address(request.address),
        expose=request.expose,
        names=settings.hosts,
        certificate=request.certificate or None,
        key=request.key or None,
    )
    try:
        listener.open_page()
        token = renew_token(home) if request.new_token else read_token(home)
    except BaseException:
        listener.close()
        raise
    words = [word for path in key.plugins for word in ("--plugin", path)]
    words += [*(() if key.discover else ("--no-discover",)), "--home", home.path, "serve"]
    words += ["--http", f"{request.address.rpartition(':')[0]}:{listener.port}"]
    words += [word for named in request.files.items() for word in named]
    return Web(listener, token, settings, key, words + (["--expose"] if request.expose else []))


class WebServer:
    """The HTTP server of one daemon."""

    sessions: "BrowserSessions"

    def __init__(
        self, home: Home, projects: Projects, tasks: anyio.abc.TaskGroup, remember: Callable[[list[str], str], None]
    ) -> None:
        """Serve nothing yet; once opened, it runs in `tasks`. `remember` notes what it was asked to serve."""
        self._remember = remember
        self.home = home
        self.started = time.time()
        self.pid = os.getpid()
        self._projects = projects
        self._tasks = tasks
        self._opening = anyio.Lock()
        self._web: Web | None = None
        self._host: Host | None = None  # of the folder that it serves to all programs
        self._users = 0
        self._environments: dict[Hashable, Mapping[str, str]] = {}
        self.url = ""
        self.page_url = ""

    @property
    def server(self) -> "WebServer":
        """What the handlers of the API may know."""
        return self

    @property
    def questions(self) -> OpenQuestions:
        """The open questions of all projects."""
        return self._projects.questions

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin work that goes on when its request has been answered."""

        async def guarded() -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - a fault of ours in it must not end the daemon
                self._projects.tell_of(error)

        self._tasks.start_soon(guarded)

    @property
    def place(self) -> Hashable:
        """The folder of callers that name none."""
        assert self._web is not None
        return self._web.key

    @property
    def is_used(self) -> bool:
        """Whether a request is being served; a page that is open has one."""
        return self._users > 0

    async def open(self, web: Web) -> None:
        """Serve. Raises AnyplugError if there is no host for it."""
        await anyio.to_thread.run_sync(mcp_sdk.load)
        await anyio.to_thread.run_sync(mcp_sdk.set_aside)
        self._web = web
        self.url = await self._tasks.start(self._serve, web)
        self.page_url = web.listener.page_url
        if web.words:
            self._remember(web.words, web.key.folder)

    async def serve(self, request: ServeHttp, key: Key) -> Served:
        """Serve as a person asked, unless it is served already. Raises AnyplugError."""
        from anyplug.frontends.http.listener import parse_address  # only needed over HTTP

        async with self._opening:
            if not self.url:
                web = await anyio.to_thread.run_sync(listened, self.home, request, key)
                await self.open(web)
                return Served(url=self.url, pid=self.pid, warnings=tuple(web.listener.warnings))
            wanted, again = parse_address(request.address), "run `anyplug stop`, then try again"
            if self._web is None or wanted.port not in {0, self._web.listener.port}:
                raise Unavailable(f"the daemon already serves over HTTP at {self.url}", again)
            if request.new_token:
                raise Unavailable(f"no new token was created: the daemon at {self.url} would go on with the old", again)
            asked = {**request.files, **({"--expose": ""} if request.expose else {})}
            if missing := [name for name, value in asked.items() if not {name, value or name} <= {*self._web.words}]:
                raise Unavailable(f"the daemon already serves at {self.url}, and without this {missing[0]}", again)
            return Served(url=self.url, pid=self.pid)

    async def open_console(self, key: Key, environment: Mapping[str, str], port: int | None) -> str:
        """Serve on loopback, unless it is served already; return a link that a browser can open once.

        `port` is where to serve, instead of at any free port.

        Raises AnyplugError.
        """
        async with self._opening:
            if not self.url:
                await self.open(await anyio.to_thread.run_sync(self._listened, key, port))
        self._environments[key] = environment
        return f"{self.page_url}/?key={self.sessions.link(key)}"

    @asynccontextmanager
    async def inside(self, place: Hashable) -> AsyncIterator[Host]:
        """Keep the host of a folder open inside the block."""
        self._users += 1
        try:
            if self._web is not None and place == self._web.key and self._host is not None:
                yield self._host
                return
            assert isinstance(place, Key)
            project = await self._projects.enter(place, self._environments.get(place, os.environ))
            try:
                if project.host is None:
                    raise Unavailable("the daemon is shutting down", "run `anyplug ui` again")
                project.host.warm_up()
                yield project.host
            finally:
                self._projects.leave(project)
        finally:
            self._users -= 1

    def _listened(self, key: Key, port: int | None) -> Web:
        from anyplug.frontends.http.listener import listen_afresh
        from anyplug.frontends.http.token import read_token  # only needed over HTTP

        settings = self.home.read_settings().http
        return Web(listen_afresh(port or 0, names=settings.hosts), read_token(self.home), settings, key)

    async def _serve(self, web: Web, *, task_status: anyio.abc.TaskStatus[str] = anyio.TASK_STATUS_IGNORED) -> None:
        try:
            await anyio.to_thread.run_sync(_import_server)
            project = await self._projects.enter(web.key, os.environ)
        except BaseException:
            web.listener.close()
            raise
        # With the SDK and uvicorn, which only HTTP needs; imported by now.
        from anyplug.frontends.console import console_routes
        from anyplug.frontends.console.browser_sessions import BrowserSessions
        from anyplug.frontends.daemon.mcp_over_http import servers
        from anyplug.frontends.http.http_server import serve_http

        try:
            assert project.host is not None
            project.host.warm_up()
            self._host = host = project.host
            self.sessions = BrowserSessions(web.listener)
            await serve_http(
                web.listener,
                servers(project.host, self.home),
                token=web.token,
                settings=web.settings,
                more=console_routes.routes(self),
                access_log=lambda: host.catalog.settings.http.access_log,
                task_status=task_status,
            )
        finally:
            self._host, self.url, self.page_url = None, "", ""
            self._projects.leave(project)


def _import_server() -> None:
    """Import what serves HTTP: in a thread, because other callers of the daemon would wait for a third of a second."""
    from anyplug.frontends.console import browser_sessions, console_routes  # noqa: F401 - only imported
    from anyplug.frontends.daemon import mcp_over_http  # noqa: F401 - only imported
    from anyplug.frontends.http import http_server  # noqa: F401 - only imported
