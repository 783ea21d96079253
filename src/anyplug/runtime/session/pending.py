"""Unanswered requests to a peer: who waits for which answer, by name, and until when."""

import asyncio
from typing import Any


class Questions:
    """The open requests to one peer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: dict[str, float] = {}  # of the open ones, in the loop's time
        self._clock: asyncio.TimerHandle | None = None  # not later than the first of them
        self.open: dict[str, asyncio.Future[Any]] = {}

    def expect(self, name: str, timeout_s: float | None) -> "asyncio.Future[Any]":
        """Return a future for the answer of that name; it fails with TimeoutError if none comes in time."""
        future = self.open[name] = self._loop.create_future()
        if timeout_s is not None:
            self._deadlines[name] = until = self._loop.time() + timeout_s
            if self._clock is None or until < self._clock.when():
                self._set_clock(until)
        return future

    def take(self, name: str) -> "asyncio.Future[Any] | None":
        """Close a request; return its future, unless nobody waits (any more)."""
        future = self.open.pop(name, None)
        return None if future is None or future.done() else future

    def forget(self, name: str) -> None:
        """Close a request that needs no answer any more."""
        self.open.pop(name, None)
        self._deadlines.pop(name, None)

    def fail(self, name: str, error: Exception) -> None:
        """Fail the waiting future, if any."""
        if (future := self.take(name)) is not None:
            future.set_exception(error)
            future.exception()  # a caller that gave up will not retrieve it

    def fail_all(self, error: Exception) -> None:
        """Fail all waiting futures: there will be no answers."""
        if self._clock is not None:
            self._clock.cancel()
        for name in list(self.open):
            self.fail(name, error)

    def _set_clock(self, when: float) -> None:
        """Schedule the deadline check. One timer is enough for all: nearly every answer comes in time."""
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self._loop.call_at(when, self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        self._clock = None
        now = self._loop.time()
        for name in [name for name, until in self._deadlines.items() if until <= now]:
            del self._deadlines[name]
            self.fail(name, TimeoutError())
        if self._deadlines:
            self._set_clock(min(self._deadlines.values()))
