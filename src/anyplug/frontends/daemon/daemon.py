"""The daemon: listen on a socket that only its user may open, and keep hosts running for attached clients."""

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from anyplug import __version__
from anyplug.call.consent import Attachment
from anyplug.catalog.profiles import View
from anyplug.frontends.daemon import proc_tree, protocol
from anyplug.frontends.daemon.connection import Connection, hearing
from anyplug.frontends.daemon.hosts import Key, Projects
from anyplug.frontends.daemon.locate import PLACES, PLACES_OF_POLICIES, Address
from anyplug.frontends.daemon.policy_clients import Decisions
from anyplug.frontends.daemon.web_server import Web, WebServer
from anyplug.home.location import at_socket, make_private
from anyplug.home.settings import Home
from anyplug.host.host import Host
from anyplug.model.errors import AnyplugError, Denied
from anyplug.model.untrusted_text import lines_for_people
from anyplug.policy import bound_agents
from anyplug.runtime import mcp_sdk

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AHEAD_S = 2.0  # first what it was started for, then what the next agent should not wait for
LOOK_S = 1.0  # between checks for attached clients
BACKLOG = 512  # pending connections
SLOWEST = 10  # tools in the status
LEAVE_S = 5.0  # for clients to receive the last answers
LEAVE_STEP_S = 0.01
LAST_S = 60.0  # for a client that left to read its answers; people put programs to sleep
FREE_S = 30.0  # for a previous daemon to end: its plugins get some seconds to end in order
FREE_STEP_S = 0.05
MOST_FILES = 65_536  # open files: about seven per long-running plugin, in each project
STEADY_S = 1.0  # a daemon that answers for this long is running; the client that started us has found it by then


class AlreadyUp(AnyplugError):
    """This home already has a daemon."""

    code = "unavailable"


class Daemon:
    """One daemon. It ends when stopped, on a signal, or after some time without clients."""

    def __init__(self, home: Home, *, linger_s: float | None = None) -> None:
        """`linger_s`: how long it keeps running without clients; forever if None."""
        self.home = home
        self._address = Address(home.path)
        self._linger_s = linger_s
        self._stopping = anyio.Event()
        self._attached: set[Connection] = set()
        self._is_closing = False
        self._busy_at = time.monotonic()  # when a client was last attached
        self._started = time.time()
        self._decisions = Decisions(home)
        self.pid = os.getpid()
        self.projects: Projects
        self.web: WebServer

    @property
    def url(self) -> str:
        """Its HTTP address; empty if it has none."""
        return self.web.url

    def stop(self) -> None:
        """End in order."""
        self._stopping.set()

    @asynccontextmanager
    async def up(self, web: Web | None = None) -> AsyncIterator[None]:
        """Run inside the block, also over HTTP if requested. Clients find it once it is completely up.

        Raises AlreadyUp, OSError if it cannot listen, and AnyplugError if there is no host for HTTP.
        """
        _allow_files()
        # Signals first: a client that sees it running may stop it at once. nohup ignores SIGHUP, and so do we then.
        heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        with anyio.open_signal_receiver(*heard) as signals:
            async with _tasks() as tasks:
                tasks.start_soon(self._stop_by, signals)
                async with self._locked():
                    with self._listening() as (path, listener):
                        async with self._serving(listener, tasks), self._over_http(web):
                            self._write_word(path)
                            self._busy_at = time.monotonic()  # nobody could attach before
                            tasks.start_soon(self._leave_when_alone)
                            try:
                                yield
                            finally:
                                self._address.forget()  # before clients see that it ends

    @asynccontextmanager
    async def _serving(self, listener: socket.socket, tasks: anyio.abc.TaskGroup) -> AsyncIterator[None]:
        """Serve clients inside the block."""
        self.projects = Projects(self.home.path, tasks, self._tell)
        tasks.start_soon(self.projects.close_those_left)
        tasks.start_soon(_load_mcp_ahead)

        def attach(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.start_soon(self._attach, reader, writer)

        server = await asyncio.start_unix_server(attach, sock=listener, limit=protocol.LONGEST_LINE)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._close(server)

    @asynccontextmanager
    async def _over_http(self, web: Web | None) -> AsyncIterator[None]:
        """Serve over HTTP inside the block, too: now, or when somebody asks for the console."""
        async with _tasks() as tasks:
            self.web = WebServer(self.home, self.projects, tasks, self.remember)
            if web is not None:
                await self.web.open(web)
            yield

    async def open_console(self, hello: protocol.Hello, pid: int, port: int | None) -> dict[str, str]:
        """Serve the console for a person, and return a link to it. Raises AnyplugError."""
        self.welcome(msgspec.structs.replace(hello, kind="cli"))
        if why := bound_agents.reason_against(self.home.path, pid, hello.environment):
            raise Denied("host", f"the console was not opened: {why}", "run `anyplug ui` in your own terminal")
        link = await self.web.open_console(Key(hello.cwd, hello.discover, hello.plugins), hello.environment, port)
        return {"url": self.web.page_url, "link": link}

    async def serve_http(self, request: protocol.ServeHttp, hello: protocol.Hello, pid: int) -> protocol.Served:
        """Serve over HTTP from now on, because a person asked for it. Raises AnyplugError."""
        self.welcome(msgspec.structs.replace(hello, kind="cli"))
        if why := bound_agents.reason_against(self.home.path, pid, hello.environment):
            raise Denied("host", f"nothing is served over HTTP: {why}", "run `anyplug serve` in your own terminal")
        self._linger_s = None  # it is no longer only for the clients that started it
        return await self.web.serve(request, Key(hello.cwd, hello.discover, hello.plugins))

    def remember(self, words: Sequence[str], cwd: str) -> None:
        """Remember what it was asked to serve, in case it is killed."""
        if self._linger_s is not None:
            words = [*words, "--linger", str(self._linger_s)]
        with contextlib.suppress(OSError):
            self._address.remember(words, cwd)

    async def until_stopped(self) -> None:
        """Wait for a signal, for `stop`, or for the end of the lingering time."""
        await self._stopping.wait()

    def welcome(self, hello: protocol.Hello) -> None:
        """Check that a client would find the same here as by itself; raises Elsewhere if not."""
        if hello.kind == "control":
            return
        for name in PLACES_OF_POLICIES if hello.kind == "policy" else PLACES:
            if hello.environment.get(name, "") != os.environ.get(name, ""):
                raise Elsewhere(
                    f"the daemon runs with a different {name}", ("run `anyplug stop`, or work without the daemon")
                )
        if hello.kind != "policy" and not os.path.isdir(hello.cwd):
            raise Elsewhere(f"the folder {hello.cwd} does not exist", "")

    async def serve_mcp(
        self, host: Host, view: View, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, attachment: Attachment
    ) -> None:
        """Speak MCP with a client until it leaves."""
        serve_stream = await anyio.to_thread.run_sync(_load_mcp)  # immediate, except right after the start
        host.warm_up()
        await serve_stream(host, view, reader, writer, attachment=attachment)

    async def decide(self, request: dict[str, Any], hello: protocol.Hello, pid: int) -> dict[str, Any]:
        """Decide about an agent's event by the policies of its project. Raises AnyplugError."""
        return await self._decisions.answer(request, hello, pid)

    async def status(self) -> dict[str, Any]:
        """Return the daemon's status."""
        children, memory = await anyio.to_thread.run_sync(_processes, self.pid)  # there may be thousands
        hosts = self.projects.hosts
        tally = self.projects.tally
        clients = [connection for connection in self._attached if connection.is_attached]
        return {
            "up": True,
            "pid": self.pid,
            "version": __version__,
            "home": self.home.path,
            "url": self.url or None,
            "console": self.web.page_url or None,
            "uptime_s": round(time.time() - self._started, 1),
            "attached": len(clients),
            "clients": [_client_shape(connection) for connection in clients],
            "projects": [
                {"folder": project.key.folder, "attached": project.users, "plugins": list(project.key.plugins)}
                for project in self.projects.all
            ],
            "settings": next((host.catalog.settings_fault for host in hosts if host.catalog.settings_fault), None),
            "plugins": _approved(hosts) if hosts else None,
            "running": sum(len(host.peers.up) for host in hosts),
            "processes": children,
            "waiting": sum(host.waiting for host in hosts),
            "memory_bytes": memory,
            "calls": tally.calls,
            "errors": tally.errors,
            "slowest": [msgspec.to_builtins(pace) for pace in tally.paces()[:SLOWEST]],
        }

    async def _attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, reader, writer)
        self._attached.add(connection)
        try:
            if not self._is_closing:  # otherwise it came too late, and its connection is closed
                await connection.serve()
        except Exception as error:  # noqa: BLE001 - a fault of ours with one client must not end the others
            connection.send_away(self.projects.fault(error))
        finally:
            self._attached.discard(connection)
            if connection.is_attached:
                self._busy_at = time.monotonic()
            writer.close()
            try:
                with anyio.move_on_after(LAST_S), contextlib.suppress(OSError):
                    await writer.wait_closed()
            finally:
                writer.transport.abort()  # whatever they have not read by now

    async def _leave_when_alone(self) -> None:
        while (linger_s := self._linger_s) is not None:
            await anyio.sleep(min(LOOK_S, linger_s))
            if self._linger_s is None:  # a person asked for HTTP meanwhile
                return
            is_needed = any(not connection.is_control for connection in self._attached)
            if is_needed or self.web.is_used or any(host.has_jobs for host in self.projects.hosts):
                self._busy_at = time.monotonic()
            elif time.monotonic() - self._busy_at > linger_s:
                self.stop()
                return

    async def _stop_by(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if number == signal.SIGHUP and not _has_terminal():
                await self._reload_settings()
            else:
                self.stop()

    async def _reload_settings(self) -> None:
        """Read the settings and all plugins again, as service managers ask with SIGHUP."""
        self._tell("reading the settings and the plugins again")
        for host in self.projects.hosts:
            try:
                await host.look_again()
            except AnyplugError as error:  # the previous settings stay in force
                self._tell(error.message)

    async def _close(self, server: asyncio.Server) -> None:
        """Accept no more clients, end running requests, and close every host."""
        self._is_closing = True
        server.close()
        for connection in list(self._attached):
            connection.leave()
        with anyio.move_on_after(LEAVE_S):
            while self._attached:
                await anyio.sleep(LEAVE_STEP_S)
        await self.projects.close()
        await anyio.to_thread.run_sync(self._decisions.close)

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Be the only daemon of this home inside the block, waiting for one that is ending. Raises AlreadyUp."""
        make_private(self._address.folder)
        fd = os.open(self._address.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            began = unanswered = time.monotonic()
            while not _is_locked(fd):
                # The holder of the lock is not reachable: it is starting, ending, or only checking whether the lock is
                # free.
                now = time.monotonic()
                if not self._address.is_answered():
                    unanswered = now
                if self._stopping.is_set() or now - unanswered > STEADY_S or now - began > FREE_S:
                    word = self._address.read() or {}
                    raise AlreadyUp(
                        f"the daemon is already running for {self.home.path} (pid {word.get('pid', '?')})",
                        "`anyplug status` shows details; `anyplug stop` stops it",
                    )
                await anyio.sleep(FREE_STEP_S)
            yield
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[tuple[str, socket.socket]]:
        """Listen inside the block; yield where. With the lock held, an existing socket is a leftover."""
        path = self._address.socket_path()
        self._take_away(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            before = os.umask(0o177)
            try:
                at_socket(listener.bind, path)
            finally:
                os.umask(before)
            listener.listen(BACKLOG)
            yield path, listener
        finally:
            listener.close()
            self._take_away(path)

    def _take_away(self, path: str) -> None:
        for left in (self._address.word, path):
            with contextlib.suppress(OSError):
                os.unlink(left)

    def _write_word(self, path: str) -> None:
        """Write where we are: from here on clients find us."""
        word = {"pid": self.pid, "socket": path, "version": __version__, "started": self._started}
        written = f"{self._address.word}.{self.pid}"
        try:
            fd = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(msgspec.json.encode(word))
            os.replace(written, self._address.word)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(written)
            raise

    @staticmethod
    def _tell(text: str) -> None:
        """Send a message to the client whose request is being processed; otherwise to the log."""
        hearer = hearing.get(None)
        if hearer is None or not hearer.hears(text):
            with contextlib.suppress(OSError):  # a full disk must not end the running work
                print("\n".join(lines_for_people(text, "")), file=sys.stderr, flush=True)


@asynccontextmanager
async def _tasks() -> AsyncIterator[anyio.abc.TaskGroup]:
    """Yield tasks that end with the block."""
    tasks = await anyio.create_task_group().__aenter__()
    try:
        yield tasks
    finally:
        tasks.cancel_scope.cancel()
        # The block's own error must not be passed to the tasks: it would come back inside a group.
        await tasks.__aexit__(None, None, None)


def _allow_files() -> None:
    """Raise the limit of open files as far as allowed: the default is too low for many plugins."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has another limit, which is not reported here
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_locked(fd: int) -> bool:
    """Lock a file; return False if another process has locked it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _load_mcp_ahead() -> None:
    await anyio.sleep(AHEAD_S)
    await anyio.to_thread.run_sync(_load_mcp, abandon_on_cancel=True)


def _load_mcp() -> Callable[..., Awaitable[None]]:
    mcp_sdk.load()
    # Imports the SDK, which takes a second that no agent should wait for.
    from anyplug.frontends.mcp.mcp_server import serve_stream

    mcp_sdk.set_aside()
    return serve_stream


class Elsewhere(AnyplugError):
    """This daemon would not serve a client as the client would serve itself."""

    code = "unavailable"


def _processes(pid: int) -> tuple[int, int]:
    """Return how many processes descend from one, and their memory with its own."""
    children = proc_tree.descendants(pid)
    return len(children), sum(map(proc_tree.memory, [pid, *children]))


def _approved(hosts: list[Host]) -> int:
    """Count the plugins that may run, each once even if several projects have it."""
    return len({entry.path for host in hosts for entry in host.plugins if entry.state == "approved"})


def _client_shape(connection: Connection) -> dict[str, Any]:
    assert connection.hello is not None
    return {
        "id": connection.attachment.id,
        "kind": connection.hello.kind,
        "pid": connection.pid,
        "folder": connection.hello.cwd,
        "since": connection.since,
    }


def _has_terminal() -> bool:
    """Return whether a terminal is attached, whose end SIGHUP then means."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
