"""Looks at plugins before they run. A look takes a system call for each of a plugin's files, so some are shared.

All calls that begin in the same turn of the event loop share one: a file that changes between two of them changes in
a few microseconds of which nobody could say to whom they belong.

What stays up runs the code that was looked at when it started. Its looks hold for longer, as long as the kernel says
that nothing stirred in its folders, and for a short while at most, because the kernel does not see everything.
"""

import asyncio
import os
from typing import NamedTuple

from anyplug.approval import Standing
from anyplug.catalog import Catalog
from anyplug.digest import Reading
from anyplug.model import Plugin
from anyplug.runtime.stir import Stir

LASTS_S = 0.05  # how long a look holds if nothing stirs
LASTS_TIMES = 100  # or so many times as long as it took: a plugin of many files takes longer to look at
MOST_WATCHED = 5_000  # folders of a plugin; the kernel keeps about a kilobyte for each


class _Look(NamedTuple):
    plugin: Plugin
    decided: int  # decisions that had been made here
    standing: Standing
    until: float = 0.0  # in the loop's time; none if it is good for this turn only


class Looks:
    """Where plugins stand this very moment."""

    def __init__(self, catalog: Catalog, loop: asyncio.AbstractEventLoop) -> None:
        self._catalog = catalog
        self._loop = loop
        self._stir = Stir()
        self._of_this_turn: dict[str, _Look] = {}
        self._lasting: dict[str, _Look] = {}
        self._watched: dict[str, Reading] = {}

    def standing(self, plugin: Plugin) -> Standing:
        """Say where a plugin stands; raises StoreError if nobody knows what was decided about it."""
        if self._stir.happened():
            self._lasting.clear()
            self._of_this_turn.clear()
        look = self._lasting.get(plugin.path) or self._of_this_turn.get(plugin.path)
        if look is not None and self._is_good(look, plugin):
            return look.standing
        look = self._look(plugin)
        if look.standing.state == "approved":  # a refusal takes no turn, and may be put right before the next call
            if look.until:
                self._lasting[plugin.path] = look
            if not self._of_this_turn:
                self._loop.call_soon(self._of_this_turn.clear)
            self._of_this_turn[plugin.path] = look
        return look.standing

    def close(self) -> None:
        """Watch no more."""
        self._stir.close()

    def _is_good(self, look: _Look, plugin: Plugin) -> bool:
        """Whether a look is at this plugin as it is loaded, since the last decision, and not too old."""
        return (
            look.plugin is plugin
            and look.decided == self._catalog.approvals.decided
            and (not look.until or look.until > self._loop.time())
        )

    def _look(self, plugin: Plugin) -> _Look:
        decided, before = self._catalog.approvals.decided, self._catalog.last_reading(plugin)
        is_watched = plugin.stays_up and self._watch(plugin, before)  # first: whatever changes from now on is seen
        began = self._loop.time()
        standing = self._catalog.standing(plugin)
        took = self._loop.time() - began
        if not is_watched or standing.state != "approved" or self._catalog.last_reading(plugin) is not before:
            return _Look(plugin, decided, standing)
        return _Look(plugin, decided, standing, began + max(LASTS_S, LASTS_TIMES * took))

    def _watch(self, plugin: Plugin, reading: Reading | None) -> bool:
        """Watch all that the next look will be at, which the last one says; False if that is not possible."""
        if reading is None or len(reading.folders) > MOST_WATCHED:
            return False
        if self._watched.get(plugin.path) is not reading:
            decisions = [] if plugin.explicit else [self._catalog.approvals.mark.path]
            folders = [plugin.path + folder[0] for folder in reading.folders]
            files = (f"{plugin.path}/{file[0]}" for file in reading.stamps)
            if not self._stir.watch([*decisions, *folders, *filter(os.path.islink, files)]):
                return False
            self._watched[plugin.path] = reading
        return True
