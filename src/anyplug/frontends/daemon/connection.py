"""One client of the resident host, from its first line to its last: an attachment."""

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
from anyplug.call.consent import Answer, Attachment, Question
from anyplug.catalog.profiles import View
from anyplug.frontends.daemon import peer_check, protocol
from anyplug.frontends.daemon.host_access import Keeper
from anyplug.frontends.daemon.hosts import Key
from anyplug.frontends.daemon.request_handlers import Answers, conditions
from anyplug.host.host import Host
from anyplug.launch.surroundings import Users
from anyplug.model.errors import AnyplugError
from anyplug.policy import bound_agents

HELLO_S = 10.0  # for the first line
MOST_AT_ONCE = 100  # requests of one client; a command has one, an agent's gate some
COME_BACK_S = 1  # what a client is told to wait that has too many


class Hearer:
    """Who hears of long work that is done for a request, until the request is over.

    Processes that are started for a request go on behind it, in its context: what they have to say then is not for it.
    """

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send: Callable[[Any], None] | None = send

    def hears(self, text: str) -> bool:
        """Tell them, if they still want to know; whether they do."""
        if self._send is None:
            return False
        self._send({"note": text})
        return True

    def leaves(self) -> None:
        """Hear no more: the request is over."""
        self._send = None


#: Who hears of what is done for the request under way.
hearing: ContextVar[Hearer] = ContextVar("hearing")


class Connection:
    """One attached client."""

    def __init__(self, keeper: Keeper, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
        self.is_attached = False  # it was let in, and not only to ask how the host does

    @property
    def is_control(self) -> bool:
        """Whether it only asks how the host does, or ends it."""
        return self.hello is not None and self.hello.kind == "control"

    async def serve(self) -> None:
        """Serve it until it leaves. What it asked for and did not wait for is cancelled."""
        try:
            with anyio.fail_after(HELLO_S):
                line = await self._reader.readline()
        except (TimeoutError, ValueError):  # silence, or a line without end
            return
        if not line:
            return
        try:
            # Only now: who is sent away before they have been heard does not hear why.
            self.pid = peer_check.check(self._writer.get_extra_info("socket"), self._keeper.projects.hosts)
            hello = self.hello = protocol.read_hello(line)
            self._keeper.welcome(hello)
            if hello.kind == "control":
                self._greet()
                await self._answer_all(lambda request: self._control(request, hello))
                return
            if hello.kind == "policy":
                bound_agents.note(self._keeper.home.path, self.pid, hello.environment)
                self._greet()
                await self._answer_all(lambda request: self._keeper.decide(request, hello), protocol.read_event)
                return
            project = await self._keeper.projects.enter(_key(hello), hello.environment)
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
        """End it from our side: what is under way is cancelled, and its last answers still go out."""
        if isinstance(self._writer.transport, asyncio.ReadTransport):  # as all that can be read from are
            self._writer.transport.pause_reading()  # what came behind the end would be a fault
        self._reader.feed_eof()

    def send_away(self, error: AnyplugError) -> None:
        """Return why it is not served any more, unless it speaks another protocol by now."""
        if not (self.is_attached and self.hello is not None and self.hello.kind == "mcp"):
            self._send({"error": protocol.error_shape(error)})

    async def _serve_in(self, host: Host | None, hello: protocol.Hello) -> None:
        if host is None:  # it is going down; who hears nothing tries another
            return
        users = Users(hello.environment)
        if hello.kind == "mcp":
            view = View(self._keeper.home, hello.profile, hello.surface)
            self.attachment = Attachment("mcp", users=users, shows_panels=False)
            self._greet()
            await self._keeper.serve_mcp(host, view, self._reader, self._writer, self.attachment)
            return
        ask = self._ask if hello.asks else None
        self.attachment = Attachment("cli", ask=ask, yes=hello.yes, users=users, shows_panels=False)
        self._greet()
        if fault := host.catalog.settings_fault:
            self._send({"note": f"warning: {fault}"})
        await self._answer_all(Answers(host, self.attachment, self._send))

    async def _control(self, request: protocol.Request, hello: protocol.Hello) -> Any:
        """Answer about the resident host itself, and about what is up in it: nothing is opened for that."""
        if isinstance(request, protocol.Status):
            return self._keeper.status()
        if isinstance(request, protocol.Conditions):
            host = self._keeper.projects.open_host(_key(hello))
            return conditions(host) if host is not None else {}
        if isinstance(request, protocol.Stop):
            self._keeper.stop()
            return self._keeper.pid
        raise protocol.BadFrame("a client of this kind cannot ask for that", "")

    def _greet(self) -> None:
        self.is_attached = not self.is_control
        self._send({"attached": self.attachment.id, "version": __version__, "pid": self._keeper.pid})

    async def _answer_all(
        self, answer: Callable[[Any], Awaitable[Any]], read: Callable[[bytes], Any] = protocol.read_request
    ) -> None:
        """Read requests until the client leaves, and answer each as it is done.

        While it does not take its answers, nothing more is read, so that they cannot pile up.
        """
        async with anyio.create_task_group() as tasks:
            with contextlib.suppress(ConnectionError, ValueError):  # it left, or sent a line without end
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
                        refusal = protocol.Overloaded(
                            "too many requests are under way", f"try again in {COME_BACK_S} s"
                        )
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
            hearer.leaves()  # all that is known of it is for the log
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
        """Ask the person at the other end, for as long as it takes: they may be thinking."""
        number = next(self._numbers)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._questions[number] = future
        self._send({"ask": number, "question": question})
        try:
            return await future
        finally:
            del self._questions[number]

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
