"""A plugin's proxy: forwards its connections to the granted hosts, and no others.

It serves a socket that was opened in the plugin's own, otherwise empty network namespace. It resolves names itself,
only granted ones, and connects to the very address that it checked. It runs in one thread with its own loop, so that a
plugin's traffic does not slow down the host. It uses asyncio's streams, because anyio's do not accept a listening
socket. Closing it ends every connection.
"""

import asyncio
import contextlib
import errno
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from anyplug.model import permissions
from anyplug.runtime.proxy import allowed_addresses, requests
from anyplug.runtime.proxy.requests import Refusal, Request

Resolve = Callable[[str, int], list[str]]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CHUNK = 1 << 16  # bytes forwarded at once
SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}\r\n")  # of a chunk
MOST_SAID = 100  # refusals reported, each once: a program that tries all hosts must not fill the log
FLUSH_S = 5.0  # for the last bytes of a connection that ended
DISCARD = 9  # any port will do
BREATH_S = 1.0  # until the next attempt to accept a connection after running out of descriptors
GOODBYE_S = 5.0  # until the thread has ended


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one plugin's proxy."""

    connections: int = 64  # further ones wait until one of them ends
    head_s: float = 30.0  # for a program to send its request
    address_s: float = 5.0  # to connect to one address
    connect_s: float = 20.0  # to resolve the name and connect to one of its addresses
    idle_s: float = 600.0  # without a byte either way. Long polls are silent for minutes
    linger_s: float = 30.0  # the same, once one side has finished
    lookups: int = 8  # concurrent lookups


class Asked(msgspec.Struct, frozen=True):
    """A program's destination, and why it was refused; for the log."""

    host: str
    port: int
    refusal: str = ""


def resolve(host: str, port: int) -> list[str]:
    """Return a host's addresses; raises OSError. Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # A link-local address has a zone suffix, which is not part of the address.
    return list(dict.fromkeys(str(where[0]).partition("%")[0] for *_, where in found))


class Proxy:
    """Serves one listening socket in a thread, until `close`."""

    def __init__(
        self,
        listener: socket.socket,
        granted: tuple[str, ...],
        *,
        owner: str,
        tell: Callable[[Asked], None] = lambda _: None,
        resolve: Resolve = resolve,
        bounds: Bounds | None = None,
    ) -> None:
        """Start. `granted` are permissions; `owner` is their plugin, for hints.

        `tell` is called in the proxy's thread with each host and refusal, once.
        """
        found = (permissions.destination(permission) for permission in granted)
        self._granted = frozenset(where for where in found if where is not None)
        self._owner = owner
        self._tell = tell
        self._resolve = resolve
        self._bounds = bounds or Bounds()
        self._told: set[Asked] = set()
        self._reached: set[tuple[str, int]] = set()
        self._listener = listener
        listener.setblocking(False)
        self.port: int = listener.getsockname()[1]
        self._places = asyncio.Semaphore(self._bounds.connections)
        self._lookups = asyncio.Semaphore(self._bounds.lookups)
        self._loop = asyncio.new_event_loop()
        self._serving = self._loop.create_task(self._serve())
        self._thread = threading.Thread(target=self._run, name="anyplug-proxy", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it is serving."""
        return self._thread.is_alive()

    def take_reached(self) -> list[tuple[str, int]]:
        """Return the hosts and ports to which it connected since the last time. From any thread."""
        if not self._reached:
            return []
        reached, self._reached = self._reached, set()
        return sorted(reached)

    def close(self) -> None:
        """End every connection, and accept no more."""
        with contextlib.suppress(RuntimeError):  # it has ended, and its loop with it
            self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join(GOODBYE_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serving)
        except asyncio.CancelledError:
            pass
        finally:
            self._listener.close()
            self._loop.run_until_complete(asyncio.sleep(0))  # transports close in the next iteration
            self._loop.close()

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as connections:
            while True:
                await self._places.acquire()
                try:
                    client = await self._accept()
                except OSError:  # no descriptor is left, or the client has gone
                    self._places.release()
                    await asyncio.sleep(BREATH_S)
                    continue
                connections.create_task(self._attend(client)).add_done_callback(lambda _: self._places.release())

    async def _accept(self) -> socket.socket:
        """Accept the next connection. The loop's own `sock_accept` loses one if it is cancelled at the same time."""
        while True:
            try:
                return self._listener.accept()[0]
            except BlockingIOError:
                pass
            waiting = asyncio.Event()
            self._loop.add_reader(self._listener, waiting.set)
            try:
                await waiting.wait()
            finally:
                self._loop.remove_reader(self._listener)

    async def _attend(self, client: socket.socket) -> None:
        """Serve one connection to its end. Raises nothing for what a program or a host does."""
        with contextlib.suppress(OSError):
            async with _opened(client) as program:
                await self._answer(program)

    async def _answer(self, program: Stream) -> None:
        """Read a program's request and carry it out, or answer why not."""
        try:
            async with asyncio.timeout(self._bounds.head_s):
                head = await program[0].readuntil(requests.END)
            request = requests.read(head)
            peer = await self._reach(request)
        except asyncio.LimitOverrunError:
            await self._refuse(program, Refusal(431, "the head is too large"))
        except Refusal as refusal:
            await self._refuse(program, refusal)
        except (OSError, EOFError):  # it went away, or sent nothing in time
            return
        else:
            async with _opened(peer) as far:
                await self._converse(request, program, far)

    async def _refuse(self, program: Stream, refusal: Refusal) -> None:
        """Refuse, and read the rest of what it sends: otherwise the kernel may discard our answer."""
        reader, writer = program
        with contextlib.suppress(OSError):
            async with asyncio.timeout(self._bounds.address_s):
                writer.write(refusal.answer())
                await writer.drain()
                writer.write_eof()
                while await reader.read(CHUNK):
                    pass

    async def _reach(self, request: Request) -> socket.socket:
        """Connect to a request's destination. Raises Refusal."""
        host, port = request.host, request.port
        refusal: Refusal | None = None
        if not allowed_addresses.is_granted(self._granted, host, port):
            refusal = requests.not_granted(self._owner, host, port)
            self._tell_once(request, refusal)
            raise refusal
        try:
            async with asyncio.timeout(self._bounds.connect_s):
                found = [host] if allowed_addresses.is_address(host) else _spelled(await self._look_up(host, port))
                usable = allowed_addresses.usable(self._granted, host, port, found, is_own)
                if not usable:
                    refusal = requests.not_public(self._owner, host, port, found)
                self._tell_once(request, refusal)
                if refusal is not None:
                    raise refusal
                peer = await self._connect(usable, port)
        except TimeoutError:
            raise Refusal(504, f"{host} cannot be reached in time") from None
        except OSError as error:
            raise Refusal(502, f"{host} cannot be reached: {error.strerror or error}") from error
        if len(self._reached) < MOST_SAID:
            self._reached.add((host, port))
        return peer

    async def _connect(self, usable: list[str], port: int) -> socket.socket:
        """Connect to the first address that answers; raises the last error."""
        for number, address in enumerate(usable, start=1):
            peer = socket.socket(_family(address), socket.SOCK_STREAM)
            peer.setblocking(False)
            try:
                async with asyncio.timeout(self._bounds.address_s):
                    await self._loop.sock_connect(peer, (address, port))
            except BaseException as error:
                peer.close()
                if number == len(usable) or not isinstance(error, OSError):
                    raise
            else:
                return peer
        raise AssertionError("there is at least one address")

    async def _look_up(self, host: str, port: int) -> list[str]:
        """Resolve a name; raises OSError.

        In a thread that is abandoned at the end, because it cannot be interrupted.
        """
        async with self._lookups:
            answer: asyncio.Future[list[str]] = self._loop.create_future()

            def settle(found: list[str] | OSError) -> None:
                if not answer.done():
                    answer.set_exception(found) if isinstance(found, OSError) else answer.set_result(found)

            def work() -> None:
                try:
                    found: list[str] | OSError = self._resolve(host, port)
                except OSError as error:
                    found = error
                except UnicodeError as error:  # a label that the resolver rejects
                    found = OSError(0, str(error))
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    self._loop.call_soon_threadsafe(settle, found)

            try:
                threading.Thread(target=work, name="anyplug-proxy-names", daemon=True).start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, str(error)) from error
            return await answer

    async def _converse(self, request: Request, program: Stream, far: Stream) -> None:
        """Forward bytes both ways until both sides have ended, or nothing moved for too long."""
        bounds, loop = self._bounds, self._loop
        patience = bounds.idle_s
        if request.is_tunnel:
            program[1].write(requests.OPENED)
        else:
            far[1].write(request.head)
        try:
            async with asyncio.timeout(patience) as bound, asyncio.TaskGroup() as both:

                def moved() -> None:
                    bound.reschedule(loop.time() + patience)

                async def until_done(half: Awaitable[None]) -> None:
                    nonlocal patience
                    await half
                    patience = bounds.linger_s
                    moved()

                outward = (
                    _carry(program[0], far[1], moved) if request.is_tunnel else _send(request, program, far, moved)
                )
                both.create_task(until_done(outward))
                both.create_task(until_done(_carry(far[0], program[1], moved)))
        except* (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # one side went away, was silent for too long, or sent something that cannot be forwarded

    def _tell_once(self, request: Request, refusal: Refusal | None) -> None:
        asked = Asked(request.host, request.port, f"{refusal}. {refusal.cure}" if refusal else "")
        if asked not in self._told and len(self._told) < MOST_SAID:
            self._told.add(asked)
            self._tell(asked)


def _spelled(found: list[str]) -> list[str]:
    """Return the addresses in canonical spelling; raises OSError if there is none."""
    spelled = [name for address in found if (name := permissions.host_name(address))]
    if not spelled:
        raise OSError(errno.EADDRNOTAVAIL, "it has no address")
    return spelled


def is_own(address: str) -> bool:
    """Return whether an address is this machine's. Asks the kernel for a route, and sends nothing."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as way:
        try:
            way.connect((address, DISCARD))
        except OSError:
            return False  # there is no route
        return bool(way.getsockname()[0] == address)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@contextlib.asynccontextmanager
async def _opened(peer: socket.socket) -> AsyncIterator[Stream]:
    """Return a socket's two streams; it is closed at the end, with a moment to send what is left."""
    try:
        reader, writer = await asyncio.open_connection(sock=peer, limit=requests.LARGEST_HEAD)
    except BaseException:
        peer.close()
        raise
    try:
        yield reader, writer
        writer.close()
        async with asyncio.timeout(FLUSH_S):
            await writer.wait_closed()
    except OSError:  # it is gone, or does not read
        pass
    finally:
        writer.transport.abort()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, moved: Callable[[], None]) -> None:
    """Forward everything, including the end."""
    while data := await source.read(CHUNK):
        sink.write(data)
        moved()
        await sink.drain()
    sink.write_eof()


async def _send(request: Request, program: Stream, far: Stream, moved: Callable[[], None]) -> None:
    """Forward the body of one request; anything after it ends the connection."""
    source, sink = program[0], far[1]
    await _carry_exactly(request.length, source, sink, moved)
    if request.is_chunked:
        while size := await _chunk(source, sink):
            await _carry_exactly(size + len(b"\r\n"), source, sink, moved)
        while await source.readuntil(b"\r\n") != b"\r\n":
            pass  # trailers
        sink.write(b"\r\n")
    if await source.read(1):
        raise ConnectionAbortedError("a second request on the same connection")


async def _chunk(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> int:
    """Forward the line before a chunk; return the chunk's size, 0 for the last."""
    line = await source.readuntil(b"\r\n")
    if not SIZE.fullmatch(line):
        raise ConnectionAbortedError("invalid chunk size")
    sink.write(line)
    return int(line, 16)


async def _carry_exactly(
    size: int, source: asyncio.StreamReader, sink: asyncio.StreamWriter, moved: Callable[[], None]
) -> None:
    while size:
        data = await source.read(min(size, CHUNK))
        if not data:
            raise ConnectionResetError("it went away")
        sink.write(data)
        moved()
        await sink.drain()
        size -= len(data)
