"""How much at once, and how fast: counts and token buckets, for each client and for all of them. Pure but for a clock.

A client is a session of MCP, or a connection where there is none: agents on one machine share its address and the
token, and one that runs wild must not use up what the others have. What keeps a client from being many is the bucket
of all.
"""

import time
from collections.abc import Callable, Hashable
from enum import Enum

from anyplug.frontends.http.refusals import Refusal, overloaded
from anyplug.home.settings import HttpSettings

BURST_S = 2.0  # seconds' worth of requests that may come at once after a pause: agents work in bursts
CLIENTS_IN_STEP = 4  # clients that may use their full rate at the same time, before all are slowed down
REMEMBERED = 1024  # clients whose rate is known; each is some 300 bytes
WAIT_S = 1.0  # what is said when a place has to get free first: nobody knows when, and calls take about that long
TOO_MANY, BUSY = 429, 503  # whose fault it is: this client's, or everybody's


class Kind(Enum):
    """What a request costs."""

    CALL = "call"
    STREAM = "stream"  # stays open to hear of changes, and does nothing meanwhile
    WORD = "word"  # an answer or a note to what is under way; refused, it would leave that hanging


class Bucket:
    """Holds what may still be taken at once; fills by itself."""

    __slots__ = ("_level", "_rate", "_size", "_when")

    def __init__(self, rate: float, size: float, now: float) -> None:
        self._rate, self._size = rate, size
        self._level, self._when = size, now

    def take(self, now: float) -> float:
        """Take one, and give 0; or take nothing, and return the seconds until there is one."""
        level = min(self._size, self._level + (now - self._when) * self._rate)
        self._when = now
        if level < 1:
            self._level = level
            return (1 - level) / self._rate
        self._level = level - 1
        return 0.0

    def is_full(self, now: float) -> bool:
        """Return whether it holds no more than one that was just made."""
        return self._level + (now - self._when) * self._rate >= self._size


class Admission:
    """Who may begin what."""

    def __init__(self, settings: HttpSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._buckets: dict[Hashable, Bucket] = {}
        self._all = self._bucket(CLIENTS_IN_STEP)
        self._calls: dict[Hashable, int] = {}
        self.calls = 0
        self.streams = 0

    def enter(self, client: Hashable, kind: Kind) -> Refusal | None:
        """Let a request begin, which must `leave` then; or say why not."""
        now = self._clock()
        if kind is not Kind.WORD and (wait := self._of(client, now).take(now)):
            return overloaded(TOO_MANY, f"more than {self._settings.requests_per_s:g} requests a second", wait)
        if wait := self._all.take(now):
            return overloaded(BUSY, "too many requests from all clients together", wait)
        if kind is Kind.CALL:
            of_client = self._calls.get(client, 0)
            if of_client >= self._settings.calls_per_client:
                return overloaded(TOO_MANY, f"this client has all of its {of_client} calls under way", WAIT_S)
            if self.calls >= self._settings.calls:
                return overloaded(BUSY, f"all {self.calls} calls that may be under way are", WAIT_S)
            self._calls[client] = of_client + 1
            self.calls += 1
        elif kind is Kind.STREAM:
            if self.streams >= self._settings.streams:
                return overloaded(BUSY, f"all {self.streams} streams that may be open are", WAIT_S)
            self.streams += 1
        return None

    def leave(self, client: Hashable, kind: Kind) -> None:
        """Note that a request has ended."""
        if kind is Kind.CALL:
            self.calls -= 1
            if left := self._calls[client] - 1:
                self._calls[client] = left
            else:
                del self._calls[client]
        elif kind is Kind.STREAM:
            self.streams -= 1

    def _of(self, client: Hashable, now: float) -> Bucket:
        bucket = self._buckets.get(client)
        if bucket is None:
            if len(self._buckets) >= REMEMBERED:
                self._forget(now)
            bucket = self._buckets[client] = self._bucket()
        return bucket

    def _forget(self, now: float) -> None:
        """Make room: those that rested are as good as new, and else the one that came first has to start anew."""
        self._buckets = {client: bucket for client, bucket in self._buckets.items() if not bucket.is_full(now)}
        if len(self._buckets) >= REMEMBERED:
            del self._buckets[next(iter(self._buckets))]

    def _bucket(self, share: int = 1) -> Bucket:
        rate = self._settings.requests_per_s * share
        return Bucket(rate, max(1.0, rate * BURST_S), self._clock())
