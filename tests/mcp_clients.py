"""Connects clients to our MCP server: the SDK's own client in either era, and lines as anybody may send them."""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientSession
from mcp.shared.message import SessionMessage

import plugin_folders
from anyplug.catalog.profiles import View
from anyplug.formats import registry
from anyplug.frontends.mcp.mcp_server import serve_stream
from anyplug.home.settings import find_home
from anyplug.host.host import Host
from anyplug.model import tool_names
from conftest import HABITS

PATIENCE_S = 30.0
# The host's own tools, as agents see them that have no asynchronous ones.
OURS = [tool_names.model_name(tool.name) for tool in registry.BUILTIN.tools if tool.name != registry.JOB]
ERAS = {"older": "legacy", "newer": "auto"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}


@asynccontextmanager
async def served(
    host: Host, view: View | None = None, *, is_fast: bool = True
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve one connection over a pair of sockets; give the client's end of it."""
    theirs, ours = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs, limit=1 << 27)
    async with anyio.create_task_group() as tasks:
        receive, send = await asyncio.open_connection(sock=ours)

        async def serve() -> None:
            try:
                await serve_stream(host, view or View(find_home()), receive, send, is_fast=is_fast)
            finally:
                send.transport.abort()  # closing would wait for a client that does not read

        tasks.start_soon(serve)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


class Transport:
    """The way from the SDK's client to a pair of streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def __aenter__(self) -> Any:
        self._tasks = await anyio.create_task_group().__aenter__()
        received, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, to_send = anyio.create_memory_object_stream[SessionMessage](0)

        async def receive() -> None:
            async with received:
                while line := await self._reader.readline():
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    await received.send(SessionMessage(message))

        async def send() -> None:
            async for item in to_send:
                self._writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

        self._ends = (received, read, write, to_send)
        self._tasks.start_soon(receive)
        self._tasks.start_soon(send)
        return read, write

    async def __aexit__(self, *_: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        for end in self._ends:
            end.close()
        self._writer.close()


@asynccontextmanager
async def client(
    host: Host, era: str = "older", view: View | None = None, *, is_fast: bool = True, **others: Any
) -> AsyncIterator[Client]:
    """Connect the SDK's client to a host of this process."""
    async with (
        served(host, view, is_fast=is_fast) as (reader, writer),
        Client(Transport(reader, writer), mode=ERAS[era], **others) as connected,
    ):
        yield connected


def process(era: str, *words: str, **others: Any) -> Client:
    """Connect the SDK's client to `anyplug mcp` as a process of its own."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "anyplug", *words], env=dict(os.environ), cwd=os.getcwd()
    )
    return Client(server, mode=ERAS[era], **others)


class Lines:
    """A client that sends what it likes, line by line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, message: Any) -> None:
        """Send a message, or any bytes."""
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self._writer.write(line + b"\n")

    async def receive(self) -> Any:
        """Give the next message."""
        with anyio.fail_after(PATIENCE_S):
            line = await self._reader.readline()
        return json.loads(line)

    async def ask(self, message: Any) -> Any:
        """Send a message and give the next one that comes."""
        self.send(message)
        return await self.receive()

    async def greet(self, capabilities: dict[str, Any] | None = None) -> Any:
        """Begin in the older era."""
        answer = await self.ask(request(0, "initialize", {**HELLO, "capabilities": capabilities or {}}))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def stop_reading(self) -> None:
        """Take nothing more of what is sent."""
        self._writer.transport.pause_reading()

    def leave(self) -> None:
        """Close the connection for good."""
        self._writer.close()


def request(name: Any, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make a request."""
    return {"jsonrpc": "2.0", "id": name, "method": method, **({} if params is None else {"params": params})}


def modern(name: Any, method: str, params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """Make a request of the newer era."""
    return request(name, method, {**(params or {}), "_meta": {**ENVELOPE, **meta}})


@asynccontextmanager
async def lines(host: Host, view: View | None = None, *, is_fast: bool = True) -> AsyncIterator[Lines]:
    """Connect a client that sends lines to a host of this process."""
    async with served(host, view, is_fast=is_fast) as (reader, writer):
        yield Lines(reader, writer)


def mcp_plugin(root: str, script: str, name: str = "kit") -> str:
    """Write an MCP server as a plugin, by a script that has tests/plugins/mcp/rpc.py beside it."""
    folder = os.path.join(root, name)
    plugin_folders.write(os.path.join(folder, "server.py"), "import json, os, sys, time\nfrom rpc import *\n" + script)
    shutil.copy(os.path.join(HABITS, "mcp", "rpc.py"), folder)
    servers = {name: {"command": "python3", "args": ["server.py"]}}
    plugin_folders.write(os.path.join(folder, "mcp.json"), json.dumps({"mcpServers": servers}))
    return folder


async def approve(host: Host, *names: str, always: bool = False) -> None:
    """Approve plugins, as a person would."""
    for name in names:
        await host.approve(host.snapshot.plugin(name).plugin, always=always)


def last(host: Host, count: int) -> list[Any]:
    """The newest records of the audit, the oldest of them first."""
    return [one.record for one in host.audit.calls()][-count:]


def answering(*answers: Any) -> tuple[Any, list[Any]]:
    """Give a person who answers questions, one after the other, and what they were asked."""
    asked: list[Any] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        said = answers[min(len(asked), len(answers)) - 1]
        if said in {"decline", "cancel"}:
            return types.ElicitResult(action=said)
        if said == "never":
            await anyio.sleep_forever()
        return types.ElicitResult(action="accept", content={"answer": said})

    return elicit, asked


async def raw_call(session: ClientSession, name: str, arguments: dict[str, Any], **others: Any) -> Any:
    """Call a tool without the client's own rounds of questions."""
    return await session.call_tool(name, arguments, allow_input_required=True, **others)
