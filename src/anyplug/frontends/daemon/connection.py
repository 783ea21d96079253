"""One client of the daemon, from its first line to its last: an attachment."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import msgspec

from anyplug import __version__
from anyplug.call import trace_context
from anyplug.call.consent import Answer, Attachment, Question
from anyplug.catalog.profiles import View
from anyplug.frontends.daemon import chat_client, peer_check, protocol
from anyplug.frontends.daemon.host_access import DaemonAccess
from anyplug.frontends.daemon.hosts import Key
from anyplug.frontends.daemon.request_handlers import Answers, conditions
from anyplug.host.host import Host
from anyplug.launch.surroundings import Users
from anyplug.model.errors import AnyplugError

HELLO_S = 10.0  # for the first line
MOST_AT_ONCE = 100  # requests of one client; a command has one, an agent's gate some
COME_BACK_S = 1  # how long a client with too many requests is told to wait


class Hearer:
    """Receives messages about long work for a request, until the request is over.

    Processes started for a request outlive it in its context; their later messages are not for it.
    """

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send: Callable[[Any], None] | None = send

    def hears(self, text: str) -> bool:
        """Deliver a message; return whether it was still wanted."""
        if self._send is None:
            return False
        self._send({"note": text})
        return True

    def leaves(self) -> None:
        """Stop delivering: the request is over."""
        self._send = None


#: Receives messages about work for the current request.
hearing: ContextVar[Hearer] = ContextVar("hearing")


class Connection:
    """One attached client."""

    def __init__(self, keeper: DaemonAccess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keeper = keeper
        self._reader = reader
        self._writer = writer
        self._questions: dict[int, asyncio.Future[Answer]] = {}
        self._under_way = 0
        self._numbers = itertools.count(1)
        self.since = time.time()
        self.pid = 0
        self.hello: protocol.Hello | None = None
        self.attachment = Attachment("cli", shows_panels=False)
        self.is_attached = False  # it was accepted, and is not only a control client

    @property
    def is_control(self) -> bool:
        """Whether it only queries or stops the daemon."""
        return self.hello is not None and self.hello.kind == "control"

    async def serve(self) -> None:
        """Serve it until it leaves. Requests it did not wait for are cancelled."""
        try:
            with anyio.fail_after(HELLO_S):
                line = await self._reader.readline()
        except (TimeoutError, ValueError):  # silence, or an endless line
            return
        if not line:
            return
        try:
            # Only now, because a client that is refused before it was read does not receive the reason.
            self.pid = peer_check.check(self._writer.get_extra_info("socket"), self._keeper.projects.hosts)
            hello = self.hello = protocol.read_hello(line)
            self._keeper.welcome(hello)
            if hello.kind == "control":
                self._greet()
                await self._answer_all(lambda request: self._control(request, hello))
                return
            if hello.kind == "policy":
                self._greet()
                await self._answer_all(
                    lambda request: self._keeper.decide(request, hello, self.pid), protocol.read_event
                )
                return
            greeting = chat_client.greeting(self._keeper.home, hello) if hello.kind == "chat" else None
            project = await self._keeper.projects.enter(_key(hello), hello.environment, greeting)
        except AnyplugError as error:
            self.send_away(error)
            return
        try:
            await self._serve_in(project.host, hello)
        except AnyplugError as error:
            self.send_away(error)
        finally:
            self._keeper.projects.leave(project)

    def leave(self) -> None:
        """Disconnect it: running requests are cancelled, and its last answers are still sent."""
        if isinstance(self._writer.transport, asyncio.ReadTransport):  # as all readable transports are
            self._writer.transport.pause_reading()  # anything received after the end would be an error
        self._reader.feed_eof()

    def send_away(self, error: AnyplugError) -> None:
        """Tell it why it is no longer served, unless it speaks another protocol by now."""
        if not (self.is_attached and self.hello is not None and self.hello.kind == "mcp"):
            self._send({"error": protocol.error_shape(error)})

    async def _serve_in(self, host: Host | None, hello: protocol.Hello) -> None:
        if host is None:  # it is shutting down; a client that gets no answer tries another daemon
            return
        users = Users(hello.environment)
        if hello.kind == "mcp":
            view = View(self._keeper.home, hello.profile, hello.surface)
            self.attachment = Attachment("mcp", users=users, shows_panels=False, is_model=True)
            self._greet()
            await self._keeper.serve_mcp(host, view, self._reader, self._writer, self.attachment)
            return
        if hello.kind == "chat":
            self._greet()
            await chat_client.serve(host, hello, self._reader, self._writer)
            return
        ask = self._ask if hello.asks else None
        self.attachment = Attachment("cli", ask=ask, yes=hello.yes, users=users, shows_panels=False)
        self.attachment.trace = trace_context.read(hello.environment)
        self._greet()
        if fault := host.catalog.settings_fault:
            self._send({"note": f"warning: {fault}"})
        await self._answer_all(Answers(host, self.attachment, self._send))

    async def _control(self, request: protocol.Request, hello: protocol.Hello) -> Any:
        """Answer about the daemon itself, and about what runs in it, without opening a host."""
        if isinstance(request, protocol.Status):
            return await self._keeper.status()
        if isinstance(request, protocol.Conditions):
            host = self._keeper.projects.open_host(_key(hello))
            return conditions(host) if host is not None else {}
        if isinstance(request, protocol.OpenConsole):
            return await self._keeper.open_console(hello, self.pid, request.port)
        if isinstance(request, protocol.ServeHttp):
            return await self._keeper.serve_http(request, hello, self.pid)
        if isinstance(request, protocol.Stop):
            self._keeper.stop()
            return self._keeper.pid
        raise protocol.BadFrame("this kind of client cannot request that", "")

    def _greet(self) -> None:
        self.is_attached = not self.is_control
        self._send({"attached": self.attachment.id, "version": __version__, "pid": self._keeper.pid})

    async def _answer_all(
        self, answer: Callable[[Any], Awaitable[Any]], read: Callable[[bytes], Any] = protocol.read_request
    ) -> None:
        """Read requests until the client leaves, and answer each when it is done.

        While it does not read its answers, nothing more is read from it, so that they cannot pile up.
        """
        async with anyio.create_task_group() as tasks:
            with contextlib.suppress(ConnectionError, ValueError):  # it left, or sent an endless line
                while line := await self._reader.readline():
                    await self._writer.drain()
                    try:
                        request = read(line)
                    except protocol.BadFrame as error:
                        self._send({"id": protocol.id_of(line), "error": protocol.error_shape(error)})
                        continue
                    if isinstance(request, protocol.Answered):
                        self._answered(request)
                        continue
                    number = request["id"] if isinstance(request, dict) else request.id
                    if self._under_way >= MOST_AT_ONCE:
                        refusal = protocol.Overloaded("too many requests are running", f"try again in {COME_BACK_S} s")
                        self._send({"id": number, "error": protocol.error_shape(refusal)})
                        continue
                    self._under_way += 1
                    tasks.start_soon(self._see_to, number, answer, request)
            tasks.cancel_scope.cancel()

    async def _see_to(self, number: int, answer: Callable[[Any], Awaitable[Any]], request: Any) -> None:
        hearer = Hearer(self._send)
        hearing.set(hearer)
        try:
            line = _encoded({"id": number, "result": await answer(request)})
        except AnyplugError as error:
            line = _encoded({"id": number, "error": protocol.error_shape(error)})
        except Exception as error:  # noqa: BLE001 - a fault of ours with one request must not end the others
            hearer.leaves()  # everything known about it goes to the log
            line = _encoded({"id": number, "error": protocol.error_shape(self._keeper.projects.fault(error))})
        finally:
            hearer.leaves()
        try:
            self._write(line)
            await self._writer.drain()
        except ConnectionError:
            pass
        finally:
            self._under_way -= 1

    async def _ask(self, question: Question) -> Answer:
        """Ask the person at the other end, without a time limit: they may be thinking."""
        number = next(self._numbers)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._questions[number] = future
        self._send({"ask": number, "question": question})
        try:
            return await future
        finally:
            del self._questions[number]
            if not future.done() or future.cancelled():
                answered = self._keeper.projects.questions.answered(question.id)
                if answered is not None and answered.word != "withdrawn":
                    self._send({"withdraw": number, "word": answered.word, "by": answered.by})

    def _answered(self, given: protocol.Answered) -> None:
        future = self._questions.get(given.answer)
        if future is not None and not future.done():
            future.set_result(given.word)

    def _send(self, value: Any) -> None:
        self._write(_encoded(value))

    def _write(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)


def _key(hello: protocol.Hello) -> Key:
    return Key(hello.cwd, hello.discover, hello.plugins)


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"
