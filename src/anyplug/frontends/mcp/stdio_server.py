"""Serve one client on this process's stdin and stdout. Only the protocol goes to stdout."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from anyplug.catalog.profiles import View
from anyplug.frontends.mcp.json_lines import CHUNK, Reader, Writer
from anyplug.frontends.mcp.mcp_server import serve_stream
from anyplug.host.host import Host

LIMIT = 1 << 20  # bytes read ahead
LAST_S = 1.0  # for pending writes at the end; a client that does not read must not keep us
STDIN, STDOUT, STDERR = 0, 1, 2


async def serve_stdio(host: Host, view: View) -> None:
    """Serve until stdin ends, or until nobody reads stdout."""
    async with _wire() as (receive, send):
        await serve_stream(host, view, receive, send)


@asynccontextmanager
async def _wire() -> AsyncIterator[tuple[Reader, Writer]]:
    """Reserve stdin and stdout for the protocol: prints go to stderr, and nobody else reads our input."""
    source, sink = os.dup(STDIN), os.dup(STDOUT)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, STDIN)
    os.dup2(STDERR, STDOUT)
    os.close(nowhere)
    try:
        async with _reader(source) as reader, _writer(sink) as writer:
            yield reader, writer
    finally:
        os.dup2(source, STDIN)
        os.dup2(sink, STDOUT)
        for descriptor in (STDIN, STDOUT):
            os.set_blocking(descriptor, True)  # it is shared with the terminal and others on the pipe


@asynccontextmanager
async def _reader(source: int) -> AsyncIterator[Reader]:
    if not _can_be_waited_for(source):
        yield _File(source)
        return
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LIMIT)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(source), "rb", buffering=0)
    )
    try:
        yield reader
    finally:
        transport.close()


@asynccontextmanager
async def _writer(sink: int) -> AsyncIterator[Writer]:
    if not _can_be_waited_for(sink):
        yield _File(sink)
        return
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(os.dup(sink), "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        yield writer
    finally:
        writer.close()
        with anyio.move_on_after(LAST_S, shield=True):
            try:
                await writer.wait_closed()
            except OSError:
                pass  # nobody reads any more


def _can_be_waited_for(descriptor: int) -> bool:
    """Return whether the loop can wait for it: not for files, or devices like /dev/null."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


class _File:
    """A descriptor that is always ready, or that only a thread can wait for."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self, n: int = CHUNK, /) -> bytes:
        return await anyio.to_thread.run_sync(os.read, self._descriptor, n, abandon_on_cancel=True)

    def write(self, data: bytes, /) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    async def drain(self) -> None:
        """Return at once: everything is already written."""
