"""A conversation in the daemon, as a face in another process uses it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from anyplug.agent.conversation import Choice, Hear
from anyplug.agent.conversation_events import ConversationEvent, Opened
from anyplug.call.consent import Answer
from anyplug.frontends.daemon import chat_protocol, protocol
from anyplug.frontends.daemon.locate import Address, hello, may_attach
from anyplug.model.errors import AnyplugError

GREET_S = 60.0  # for plugins to start


class RefusedByDaemon(AnyplugError):
    """The daemon does not serve this chat."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


class RemoteConversation:
    """A conversation that runs in the daemon."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.id = ""
        self._reader = reader
        self._writer = writer
        self._listeners: list[Hear] = []
        self._so_far: list[ConversationEvent] = []
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._is_ready = False
        self._over = asyncio.Event()

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Register a callback for all events from now on; call the returned function to stop."""
        self._listeners.append(hear)
        return lambda: self._listeners.remove(hear)

    def so_far(self) -> Sequence[ConversationEvent]:
        """Return the events of what was shown when it was opened."""
        return tuple(self._so_far)

    async def send(self, text: str) -> None:
        """Send a message; during a turn it is queued. A line that begins with a slash is a command."""
        self._tell(chat_protocol.Send(text=text))

    async def cancel(self) -> None:
        """Cancel the running turn, its tool calls included."""
        await self._ask(lambda number: chat_protocol.Cancel(id=number))

    def take_back(self) -> str:
        """Remove the last queued message, and return it: it is the last that `Queued` named."""
        last = self._queued[-1] if self._queued else ""
        if last:
            number = next(self._numbers)
            self._tell(chat_protocol.TakeBack(id=number))
        return last

    def answer(self, question: str, word: Answer) -> None:
        """Answer a question of this conversation."""
        self._tell(chat_protocol.GiveAnswer(question=question, word=word))

    async def commands(self) -> Sequence[Choice]:
        """List the slash commands."""
        raw = await self._ask(lambda number: chat_protocol.ListCommands(id=number))
        return chat_protocol.choices(raw) if raw else ()

    async def use_model(self, model: str) -> None:
        """Go on with another model."""
        self._tell(chat_protocol.UseModel(model=model))

    def press(self, panel: str, owner: str, key: str, text: str = "") -> None:
        """Send a key to a panel."""
        self._tell(chat_protocol.Press(panel=panel, owner=owner, key=key, text=text))

    def paste(self, panel: str, owner: str, text: str) -> None:
        """Send pasted text to a panel."""
        self._tell(chat_protocol.Paste(panel=panel, owner=owner, text=text))

    def close_panel(self, panel: str, owner: str) -> None:
        """Close a panel."""
        self._tell(chat_protocol.ClosePanel(panel=panel, owner=owner))

    async def settled(self) -> None:
        """Wait until nothing runs and nothing is queued."""
        await self._ask(lambda number: chat_protocol.Settled(id=number))

    async def lost(self) -> None:
        """Wait until the daemon has ended."""
        await self._over.wait()

    async def greet(self, line: bytes) -> None:
        """Attach, and receive what is shown so far; raises RefusedByDaemon and ConnectionError."""
        self._writer.write(line)
        while not self._is_ready:
            said = await self._reader.readline()
            if not said:
                raise ConnectionResetError
            if said.startswith(b'{"attached"'):
                continue
            self._take(said)

    async def follow(self) -> None:
        """Receive events until the daemon or the chat ends."""
        with suppress(ConnectionError, ValueError):
            while line := await self._reader.readline():
                self._take(line)
        self._over.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_result(b"")

    def _take(self, line: bytes) -> None:
        said = chat_protocol.read_said(line)
        if not isinstance(said, chat_protocol.Said):
            self._hear(said)
        elif said.error is not None and not self._is_ready:
            raise RefusedByDaemon(**said.error)
        elif said.ready:
            self._is_ready = True
        elif said.id is not None and (future := self._waiting.pop(said.id, None)) is not None and not future.done():
            future.set_result(bytes(said.result))

    def _hear(self, event: ConversationEvent) -> None:
        if isinstance(event, Opened):
            self.id = event.conversation
        if not self._is_ready:
            self._so_far.append(event)
        self._queued = getattr(event, "texts", self._queued)
        for hear in list(self._listeners):
            hear(event)

    _queued: tuple[str, ...] = ()

    async def _ask(self, line: Callable[[int], msgspec.Struct]) -> bytes:
        if self._over.is_set():
            return b""
        number = next(self._numbers)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._tell(line(number))
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    def _tell(self, line: msgspec.Struct) -> None:
        if not self._writer.is_closing():
            self._writer.write(chat_protocol.encoded(line))


@asynccontextmanager
async def remote_conversation(home: str, **options: Any) -> AsyncIterator[RemoteConversation | None]:
    """Hold a conversation in the daemon of a home, inside the block; None if no daemon is running.

    `options` are those of the daemon's `Hello`: model, base_url, resume, plugins, discover, yes, asks. Raises
    RefusedByDaemon.
    """
    connection = Address(home).connect() if may_attach() else None
    if connection is None:
        yield None
        return
    connection.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=protocol.LONGEST_LINE)
    talk = RemoteConversation(reader, writer)
    following: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(GREET_S):
            await talk.greet(hello("chat", **options))
        following = asyncio.ensure_future(talk.follow())
        yield talk
    finally:
        if following is not None:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
