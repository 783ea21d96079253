"""Limit how many calls run at once: places are given to waiting calls in fair turns.

A plugin gets another place only while it holds no more places than are free. The same rule applies to a caller among
its plugin's places, so a flood leaves room for others. Each plugin has a queue for each caller. A free place goes to
the plugin, and within it to the caller, that has waited longest since its last turn: a flood delays others by one turn.

One-shot plugins share one pool of places, and long-running ones a larger pool. Nested calls have separate pools, one
for each depth: an outer call keeps its place while it waits for an inner one.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from typing import Self, TypeVar

from anyplug.home.settings import CallSettings, PluginSettings
from anyplug.model.errors import Overloaded

K = TypeVar("K")

LIGHT = 8  # calls of long-running plugins that cost about as much as a process
LEAST_S, MOST_S = 1, 60  # of the wait that is suggested
SHARE = 0.2  # of the newest call in the average duration
FIRST_GUESS_S = 1.0  # of a call's duration


class Places:
    """The places for the calls of one process."""

    def __init__(self) -> None:
        self._settings = CallSettings()
        self._pools: dict[tuple[bool, int], _Pool] = {}

    def follow(self, settings: CallSettings) -> None:
        """Use other limits from now on."""
        self._settings = settings
        for pool in self._pools.values():
            pool.follow(settings)

    @property
    def running(self) -> int:
        """How many calls run."""
        return sum(pool.taken for pool in self._pools.values())

    @property
    def waiting(self) -> int:
        """How many calls wait for a place."""
        return sum(pool.waiting for pool in self._pools.values())

    def place(
        self, plugin: str, name: str, line: str, own: PluginSettings, *, is_light: bool = False, depth: int = 1
    ) -> "Place":
        """Return the place for one call, which its block takes and frees. `is_light`: it starts no process."""
        pool = self._pools.get((is_light, depth))
        if pool is None:
            pool = self._pools[is_light, depth] = _Pool(self._settings, LIGHT if is_light else 1)
        most = own.calls or self._settings.per_plugin * pool.factor
        return Place(pool, plugin, name, line, most)


class Place:
    """The place of one call. Use it as a context."""

    __slots__ = ("_pool", "_since", "line", "most", "name", "plugin", "turns")

    def __init__(self, pool: "_Pool", plugin: str, name: str, line: str, most: int) -> None:
        """`plugin` is its path. Callers of one `line` take turns as one, and `most` is the number of its places."""
        self._pool = pool
        self.plugin = plugin
        self.name = name
        self.line = line
        self.turns = (plugin, line)
        self.most = most

    def check(self) -> None:
        """Raise Overloaded if the call could not even wait now."""
        if not self._pool.may_run(self):
            self._pool.check(self)

    async def __aenter__(self) -> Self:
        """Take the place, perhaps after a wait. Raises Overloaded."""
        if not self._pool.take(self):
            await self._pool.wait(self)
        self._since = time.monotonic()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.free(self, time.monotonic() - self._since)


class _Pool:
    """Places of one kind, at one depth."""

    def __init__(self, settings: CallSettings, factor: int) -> None:
        self.settings = settings
        self.factor = factor
        self.taken = self.waiting = 0
        # How many run, and how many of each line wait. Not `Counter`: it deletes in Python, and each call does.
        self._of_plugin: dict[str, int] = {}
        self._of_line: dict[tuple[str, str], int] = {}
        self._queued_by: dict[str, int] = {}
        # Those who had their turn last come last, at both levels.
        self._queues: OrderedDict[str, OrderedDict[str, deque[_Waiter]]] = OrderedDict()
        self._average_s = FIRST_GUESS_S

    def may_run(self, who: Place) -> bool:
        """Return whether a call may begin now."""
        held, free = self._of_plugin.get(who.plugin, 0), self.settings.at_once * self.factor - self.taken
        left = who.most - held
        return free > 0 and left > 0 and held <= free and self._of_line.get(who.turns, 0) <= left

    def take(self, who: Place) -> bool:
        """Take a place if there is one, and nobody of the same plugin and line waits for it."""
        if self._queued_by and who.line in self._queues.get(who.plugin, ()):
            return False
        if not self.may_run(who):
            return False
        self._count(who)
        return True

    def _count(self, who: Place) -> None:
        self.taken += 1
        _more(self._of_plugin, who.plugin)
        _more(self._of_line, who.turns)

    def check(self, who: Place) -> None:
        """Raise Overloaded if no call of this caller may wait now."""
        free = self.settings.waiting - self.waiting
        if free <= 0 or self._queued_by.get(who.line, 0) > free:
            raise self._overloaded(who)

    async def wait(self, who: Place) -> None:
        """Wait for a place, and take it. Raises Overloaded."""
        self.check(who)
        waiter = _Waiter(who)
        lines = self._queues.setdefault(who.plugin, OrderedDict())
        lines.setdefault(who.line, deque()).append(waiter)
        self.waiting += 1
        _more(self._queued_by, who.line)
        timer = waiter.turn.get_loop().call_later(self.settings.wait_s, waiter.give_up)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter.has_turn:
                self.free(who, None)
            raise
        finally:
            timer.cancel()
            if not waiter.has_turn:
                self._forget(waiter)
        if not waiter.has_turn:
            raise self._overloaded(who)

    def free(self, who: Place, took_s: float | None) -> None:
        """Free a place, and let the next call take it."""
        if took_s is not None:
            self._average_s += SHARE * (took_s - self._average_s)
        self.taken -= 1
        _less(self._of_plugin, who.plugin)
        _less(self._of_line, who.turns)
        if self._queues:
            self._give_all()

    def follow(self, settings: CallSettings) -> None:
        """Use other limits from now on."""
        self.settings = settings
        self._give_all()

    def _give_all(self) -> None:
        while self._queues and self._give():
            pass

    def _give(self) -> bool:
        """Let the next call take a place; return whether any could."""
        for plugin, lines in self._queues.items():
            for line, queue in lines.items():
                waiter = queue[0]
                if self.may_run(waiter.who):
                    self._forget(waiter)
                    if line in lines:
                        lines.move_to_end(line)
                    if plugin in self._queues:
                        self._queues.move_to_end(plugin)
                    self._count(waiter.who)
                    waiter.has_turn = True
                    if not waiter.turn.done():
                        waiter.turn.set_result(True)
                    return True
        return False

    def _forget(self, waiter: "_Waiter") -> None:
        """Take one out of the queues."""
        plugin, line = waiter.who.plugin, waiter.who.line
        lines = self._queues[plugin]
        lines[line].remove(waiter)
        if not lines[line]:
            del lines[line]
        if not lines:
            del self._queues[plugin]
        self.waiting -= 1
        _less(self._queued_by, line)

    def _overloaded(self, who: Place) -> Overloaded:
        """Return the refusal of a call, with an estimate of when a place will be free for it, in whole seconds."""
        running = self._of_plugin.get(who.plugin, 0)
        before = sum(map(len, self._queues.get(who.plugin, {}).values())) + 1
        seconds = math.ceil(self._average_s * before / max(1, running))
        return Overloaded(who.name, running, self.waiting, max(LEAST_S, min(MOST_S, seconds)))


class _Waiter:
    """One call that waits."""

    __slots__ = ("has_turn", "turn", "who")

    def __init__(self, who: Place) -> None:
        self.who = who
        self.turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.has_turn = False

    def give_up(self) -> None:
        """Stop waiting, because it took too long."""
        if not self.turn.done():
            self.turn.set_result(False)


def _more(counts: dict[K, int], key: K) -> None:
    counts[key] = counts.get(key, 0) + 1


def _less(counts: dict[K, int], key: K) -> None:
    """Count one less; forget what has none."""
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
