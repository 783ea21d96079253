"""Rate and concurrency limits: counts and token buckets, per client and for all clients. Pure except for a clock.

A client is an MCP session, or a connection if there is none: agents on one machine share its address and the token, and
a runaway agent must not use up the others' share. The bucket for all limits a client that poses as many.
"""

import time
from collections.abc import Callable, Hashable
from enum import Enum

from anyplug.frontends.http.refusals import Refusal, overloaded
from anyplug.home.settings import HttpSettings
from anyplug.model.token_bucket import Bucket

BURST_S = 2.0  # seconds' worth of requests allowed at once after a pause: agents work in bursts
CLIENTS_IN_STEP = 4  # clients that may use their full rate at the same time before all are slowed down
REMEMBERED = 1024  # clients whose rate is tracked; each takes about 300 bytes
WAIT_S = 1.0  # suggested wait for a free slot: unknown, but calls take about that long
TOO_MANY, BUSY = 429, 503  # whose fault it is: this client's, or the total load's


class Kind(Enum):
    """What a request costs."""

    CALL = "call"
    STREAM = "stream"  # stays open to receive changes, and does nothing meanwhile
    WORD = "word"  # an answer or notification for a running call; refusing it would leave that hanging


class Admission:
    """Decides which requests may begin."""

    def __init__(self, settings: HttpSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._buckets: dict[Hashable, Bucket] = {}
        self._all = self._bucket(CLIENTS_IN_STEP)
        self._calls: dict[Hashable, int] = {}
        self.calls = 0
        self.streams = 0

    def enter(self, client: Hashable, kind: Kind) -> Refusal | None:
        """Let a request begin, which must `leave` later; or return why not."""
        now = self._clock()
        if kind is not Kind.WORD and (wait := self._of(client, now).take(now)):
            return overloaded(TOO_MANY, f"more than {self._settings.requests_per_s:g} requests per second", wait)
        if wait := self._all.take(now):
            return overloaded(BUSY, "too many requests from all clients together", wait)
        if kind is Kind.CALL:
            of_client = self._calls.get(client, 0)
            if of_client >= self._settings.calls_per_client:
                return overloaded(
                    TOO_MANY, (f"this client already has {of_client} calls running, the most it may have"), WAIT_S
                )
            if self.calls >= self._settings.calls:
                return overloaded(BUSY, f"{self.calls} calls are already running, the most allowed", WAIT_S)
            self._calls[client] = of_client + 1
            self.calls += 1
        elif kind is Kind.STREAM:
            if self.streams >= self._settings.streams:
                return overloaded(BUSY, f"{self.streams} streams are already open, the most allowed", WAIT_S)
            self.streams += 1
        return None

    def leave(self, client: Hashable, kind: Kind) -> None:
        """Record that a request has ended."""
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
        """Make room: drop clients with a full bucket, or else the one that came first."""
        self._buckets = {client: bucket for client, bucket in self._buckets.items() if not bucket.is_full(now)}
        if len(self._buckets) >= REMEMBERED:
            del self._buckets[next(iter(self._buckets))]

    def _bucket(self, share: int = 1) -> Bucket:
        rate = self._settings.requests_per_s * share
        return Bucket(rate, max(1.0, rate * BURST_S), self._clock())
