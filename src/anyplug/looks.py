"""Looks at plugins before they run. A look takes a system call for each of a plugin's files.

What each call starts anew is looked at each time. What stays up runs the code that was looked at when it started: its
looks hold as long as the kernel says that nothing stirred in its folders, and for a short while at most, because the
kernel does not see everything.
"""

import os
import time
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
    until: float


class Looks:
    """Where plugins stand this very moment."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._stir = Stir()
        self._lasting: dict[str, _Look] = {}
        self._watched: dict[str, Reading] = {}

    def standing(self, plugin: Plugin) -> Standing:
        """Say where a plugin stands; raises StoreError if nobody knows what was decided about it."""
        if self._stir.happened():
            self._lasting.clear()
        look = self._lasting.get(plugin.path)
        if (
            look is not None
            and look.plugin is plugin
            and look.decided == self._catalog.approvals.decided
            and look.until > time.monotonic()
        ):
            return look.standing
        return self._look(plugin)

    def close(self) -> None:
        """Watch no more."""
        self._stir.close()

    def _look(self, plugin: Plugin) -> Standing:
        decided, before = self._catalog.approvals.decided, self._catalog.last_reading(plugin)
        is_watched = plugin.stays_up and self._watch(plugin, before)  # first: whatever changes from now on is seen
        began = time.monotonic()
        standing = self._catalog.standing(plugin)
        if is_watched and standing.state == "approved" and self._catalog.last_reading(plugin) is before:
            lasts_s = max(LASTS_S, LASTS_TIMES * (time.monotonic() - began))
            self._lasting[plugin.path] = _Look(plugin, decided, standing, began + lasts_s)
        return standing

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
