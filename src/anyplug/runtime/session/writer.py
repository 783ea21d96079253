"""Write to a peer without blocking; what it has not read yet waits in a buffer.

A peer that reads nothing for STALL_S is given up. Callers check how much is waiting.
"""

import asyncio
import os
from collections.abc import Callable

STALL_S = 5.0  # how long a peer may read nothing while something is waiting
LARGEST_DELAYED = 65_536  # bytes that may wait for the end of the loop's iteration; the capacity of a Linux pipe


class Outgoing:
    """The writing end of a pipe, on the event loop."""

    def __init__(
        self,
        fd: int,
        loop: asyncio.AbstractEventLoop,
        *,
        give_up: Callable[[str], None],
        closed: Callable[[], None],
    ) -> None:
        """Take the pipe. `give_up` is called if the peer stalls, `closed` when it will read no more."""
        self._fd = fd
        self._loop = loop
        self._give_up = give_up
        self._closed = closed
        self._unsent = bytearray()
        self._is_due = False  # the loop is about to flush
        self._is_blocked = False  # the peer's pipe is full, and the loop reports when it is not
        self._stall: asyncio.TimerHandle | None = None
        self.is_open = True
        self.is_closing = False  # nothing more will be written

    @property
    def waiting(self) -> int:
        """The number of bytes that the peer has not read yet."""
        return len(self._unsent)

    def write(self, data: bytes, *, at_once: bool) -> None:
        """Send bytes, at once or together with others of this iteration.

        An idle peer gets them at once; a busy one is woken once for all of them.
        """
        if at_once and not self._unsent and self.is_open:
            try:
                data = data[os.write(self._fd, data) :]
            except OSError:
                pass  # the pipe is full, or broken: handled below
            if not data:
                return
        self._unsent += data
        if not self._is_blocked:
            if at_once or len(self._unsent) > LARGEST_DELAYED:
                self._flush()
            elif not self._is_due:
                self._is_due = True
                self._loop.call_soon(self._flush)

    def close_when_sent(self) -> None:
        """Close as soon as everything is sent."""
        self.is_closing = True
        if not self._unsent:
            self.close()

    def close(self) -> None:
        """Close now, whatever is waiting."""
        self._watch_for_a_stall(on=False)
        if self.is_open:
            self.is_open = False
            self._loop.remove_writer(self._fd)
            os.close(self._fd)

    def _flush(self) -> None:
        """Write what fits, and schedule the rest."""
        self._is_due = False
        if not self.is_open:
            return
        try:
            while self._unsent:
                written = os.write(self._fd, self._unsent)
                del self._unsent[:written]
                if self._is_blocked:
                    self._watch_for_a_stall(restart=True)
        except BlockingIOError:
            self._watch_for_a_stall()
            if not self._is_blocked:
                self._is_blocked = True
                self._loop.add_writer(self._fd, self._flush)
            return
        except OSError:
            self._unsent.clear()
            self._closed()  # usually it is ending, and then its end is reported first
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._fd)
            self._watch_for_a_stall(on=False)
        if self.is_closing:
            self.close()

    def _watch_for_a_stall(self, *, restart: bool = False, on: bool = True) -> None:
        if self._stall is not None and (restart or not on):
            self._stall.cancel()
            self._stall = None
        if on and self._stall is None and self._unsent:
            self._stall = self._loop.call_later(STALL_S, self._give_up, f"it has read nothing for {STALL_S:.0f}s")
