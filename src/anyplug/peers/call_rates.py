"""How many calls per second an extension may request: each leaves records, and nobody may be asking for them."""

import asyncio
import time
from collections.abc import Callable

import msgspec

from anyplug.model.token_bucket import Bucket
from anyplug.model.types import Plugin

COUNT_S = 60.0  # from the first refusal to the line that says how many followed

Log = Callable[[Plugin, str, str], None]


class Rate(msgspec.Struct, frozen=True):
    """A limit for calls of a kind: so many at once, and so many per second after that."""

    kind: str
    at_once: int
    per_s: int

    def __str__(self) -> str:
        return f"at most {self.at_once:,} calls {self.kind} at once, and {self.per_s} per second after that"


OWN = Rate("outside any other call", 200, 20)  # a timer, a note, a slash command: nobody limits these otherwise
NESTED = Rate("within other calls", 2_000, 100)  # for a tool that uses another for each of many files


class CallRates:
    """Limits for each plugin, which a restart of it does not renew."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        """`log` writes to a plugin's own log."""
        self._log = log
        self._clock = clock
        self._buckets: dict[tuple[str, Rate], Bucket] = {}
        self._refused: dict[tuple[str, Rate], int] = {}  # since the last line about it

    def take(self, plugin: Plugin, rate: Rate) -> float:
        """Count a call and return 0; or refuse it, and return the seconds until there may be one."""
        place, now = (plugin.path, rate), self._clock()
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = Bucket(rate.per_s, rate.at_once, now)
        wait_s = bucket.take(now)
        if wait_s:
            self._note(plugin, rate, place)
        return wait_s

    def _note(self, plugin: Plugin, rate: Rate, place: tuple[str, Rate]) -> None:
        if place in self._refused:
            self._refused[place] += 1
            return
        self._refused[place] = 1
        self._log(plugin, f"[anyplug] a call that it requested was refused: {rate}", "")
        asyncio.get_running_loop().call_later(COUNT_S, self._count, plugin, rate, place)

    def _count(self, plugin: Plugin, rate: Rate, place: tuple[str, Rate]) -> None:
        count = self._refused.pop(place)
        if count > 1:
            said = f"[anyplug] {count:,} calls that it requested were refused within {COUNT_S:g} s: {rate}"
            self._log(plugin, said, "")
