"""The daemon's side of one chat: a conversation on the project's host."""

import asyncio
import contextlib
from collections.abc import Callable

import anyio
import anyio.abc

from anyplug.agent.live_conversation import LiveConversation
from anyplug.agent.model_choice import choose
from anyplug.agent.open_conversation import greeting_of, open_conversation
from anyplug.formats.shared.contract import Greeting
from anyplug.frontends.daemon import chat_protocol, protocol
from anyplug.home.settings import Home
from anyplug.host.host import Host
from anyplug.launch.surroundings import Users

MOST_UNREAD = 64 << 20  # bytes that a client has not read; then it is gone, as far as anybody can tell


def greeting(home: Home, hello: protocol.Hello) -> Greeting | None:
    """Return what a host's plugins are told if they are started for this chat; raises UsageError and ConfigError."""
    if hello.resume:
        return None
    choice = choose(hello.model, hello.base_url, home.read_settings().chat, hello.environment)
    return greeting_of(choice, hello.cwd)


async def serve(host: Host, hello: protocol.Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hold a conversation with a client until it leaves. Raises AnyplugError if it cannot begin."""

    def send(value: object) -> None:
        if writer.is_closing():
            return
        writer.write(chat_protocol.encoded(value))
        if writer.transport.get_write_buffer_size() > MOST_UNREAD:
            writer.transport.abort()

    async with open_conversation(
        host,
        model=hello.model,
        base_url=hello.base_url,
        resume=hello.resume,
        environment=hello.environment,
        users=Users(hello.environment),
        yes=hello.yes,
        asks=hello.asks,
    ) as talk:
        for event in talk.so_far():
            send(event)
        send({"ready": True})
        talk.listen(send)
        async with anyio.create_task_group() as tasks:
            with contextlib.suppress(ConnectionError, ValueError):  # it left, or sent an endless line
                while line := await reader.readline():
                    await writer.drain()
                    try:
                        await _do(talk, chat_protocol.read_line(line), send, tasks)
                    except protocol.BadFrame as error:
                        send({"error": protocol.error_shape(error)})
            tasks.cancel_scope.cancel()


async def _do(  # noqa: C901 - one case for each line of the protocol
    talk: LiveConversation,
    line: chat_protocol.ClientLine,
    send: Callable[[object], None],
    tasks: anyio.abc.TaskGroup,
) -> None:
    async def cancelled(number: int) -> None:
        await talk.cancel()
        send({"id": number, "result": None})

    async def settled(number: int) -> None:
        await talk.settled()
        send({"id": number, "result": None})

    match line:
        case chat_protocol.Send():
            await talk.send(line.text)
        case chat_protocol.Cancel():
            tasks.start_soon(cancelled, line.id)
        case chat_protocol.Settled():
            tasks.start_soon(settled, line.id)
        case chat_protocol.TakeBack():
            send({"id": line.id, "result": talk.take_back()})
        case chat_protocol.GiveAnswer():
            talk.answer(line.question, line.word)
        case chat_protocol.ListCommands():
            send({"id": line.id, "result": await talk.commands()})
        case chat_protocol.UseModel():
            await talk.use_model(line.model)
        case chat_protocol.Press():
            talk.press(line.panel, line.owner, line.key, line.text)
        case chat_protocol.Paste():
            talk.paste(line.panel, line.owner, line.text)
        case chat_protocol.ClosePanel():
            talk.close_panel(line.panel, line.owner)
