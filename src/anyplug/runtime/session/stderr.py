"""A peer's stderr: log it as it comes, and keep its end for messages."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol

from anyplug.runtime.session.reader import CHUNK, LONG_S, LONGEST_REST_S, REST_TIMES

KEPT = 4_096  # bytes of the end


class StreamFilter(Protocol):
    """A filter for a stream, which may hold some of it back for a while."""

    def feed(self, chunk: bytes, /) -> bytes:
        """Add a chunk; return what comes out."""
        ...

    def end(self) -> bytes:
        """Return what was held back."""
        ...


class LastWords:
    """The reading end of a peer's stderr, on the event loop."""

    def __init__(
        self, fd: int, loop: asyncio.AbstractEventLoop, log: Callable[[bytes], None], sieve: StreamFilter | None
    ) -> None:
        """Start reading. Everything passes through the `sieve` first."""
        self._fd = fd
        self._loop = loop
        self._log = log
        self._sieve = sieve
        self._end = b""
        self._size = 0  # bytes so far
        self._heeded_from = 0  # bytes before `heed`
        self._rest: asyncio.TimerHandle | None = None  # it waits until then
        loop.add_reader(fd, self.read)

    @property
    def end(self) -> str:
        """The end of its stderr."""
        return self._end.decode(errors="replace")

    @property
    def news(self) -> str:
        """The same, without what came before `heed`."""
        kept_from = self._size - len(self._end)
        return self._end[max(0, self._heeded_from - kept_from) :].decode(errors="replace").strip()

    def heed(self) -> None:
        """Treat further output as news."""
        self._heeded_from = self._size

    def read(self) -> bool:
        """Read a chunk; return False if there is nothing now, or at the end."""
        try:
            chunk = os.read(self._fd, CHUNK) if self._fd >= 0 else b""
        except BlockingIOError:
            return False
        if not chunk:
            self._close()
            return False
        worked = time.thread_time()
        self._keep(chunk if self._sieve is None else self._sieve.feed(chunk))
        worked_s = time.thread_time() - worked
        if worked_s > LONG_S and self._rest is None:  # as with its frames
            self._loop.remove_reader(self._fd)
            self._rest = self._loop.call_later(min(REST_TIMES * worked_s, LONGEST_REST_S), self._rested)
        return True

    def _rested(self) -> None:
        self._rest = None
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self.read)

    def close(self) -> None:
        """Stop reading, and release what was held back."""
        self._close()
        if self._sieve is not None:
            self._keep(self._sieve.end())

    def _keep(self, said: bytes) -> None:
        if said:
            self._end = (self._end + said)[-KEPT:]
            self._size += len(said)
            self._log(said)

    def _close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
