"""Check plugins before they run. A check takes a system call per file of the plugin, or reads them all.

Plugins that start for each call are checked each time. A long-running plugin runs the code that was checked when it
started: its check stays valid as long as inotify reports no change in its folders, and only for a short while, because
inotify does not see everything.
"""

import os
import time
from typing import NamedTuple

from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.home.digest import Reading
from anyplug.model.types import Plugin
from anyplug.runtime import thread_lanes
from anyplug.runtime.inotify import Stir

LASTS_S = 0.05  # how long a check is valid if nothing changes
LASTS_TIMES = 100  # or this many times as long as it took: plugins with many files take longer to check
LASTS_AT_MOST_S = 2.0  # however long it took: the machine may have been busy
MOST_WATCHED = 5_000  # folders of a plugin; the kernel needs about a kilobyte for each


class _Look(NamedTuple):
    plugin: Plugin
    decided: int  # number of decisions made by this process
    standing: Standing
    until: float


class Looks:
    """The current standing of plugins."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._stir = Stir()
        self._lasting: dict[str, _Look] = {}
        self._watched: dict[str, tuple[Reading, bool]] = {}  # what should be watched, and whether it is
        self._stirred = 0  # number of changes seen

    async def standing(self, plugin: Plugin) -> Standing:
        """Return a plugin's standing; raises StoreError if the decision about it cannot be read."""
        self._notice()
        look = self._lasting.get(plugin.path)
        if (
            look is not None
            and look.plugin is plugin
            and look.decided == self._catalog.approvals.decided
            and look.until > time.monotonic()
        ):
            return look.standing
        return await self.fresh_standing(plugin)

    def close(self) -> None:
        """Stop watching."""
        self._stir.close()

    async def fresh_standing(self, plugin: Plugin) -> Standing:
        """Do the same with a new check, for callers that are about to start something."""
        self._lasting.pop(plugin.path, None)
        approvals = self._catalog.approvals
        if not plugin.explicit:
            approvals.refresh()
        decided, before = approvals.decided, self._catalog.last_reading(plugin)
        # Start watching first, so that every later change is seen.
        is_watched = plugin.stays_up and before is not None and await self._is_watched(plugin, before)
        self._notice()
        began, stirred = time.monotonic(), self._stirred
        standing = await self._look(plugin)
        self._notice()
        is_known = plugin.explicit or approvals.is_settled  # otherwise a process is deciding, which no file will show
        is_same = self._catalog.last_reading(plugin) is before and self._stirred == stirred
        if is_watched and is_known and is_same and standing.state == "approved":
            lasts_s = min(max(LASTS_S, LASTS_TIMES * (time.monotonic() - began)), LASTS_AT_MOST_S)
            self._lasting[plugin.path] = _Look(plugin, decided, standing, began + lasts_s)
        return standing

    async def _look(self, plugin: Plugin) -> Standing:
        """Check a plugin's files; many or large ones in a thread, for which only calls of this plugin wait."""
        at_once = self._catalog.standing_at_once(plugin)
        if at_once is not None:
            return at_once
        return await thread_lanes.run(plugin.path, self._catalog.standing_as_decided, plugin)

    def _notice(self) -> None:
        """Drop all checks if anything changed."""
        if self._stir.happened():
            self._stirred += 1
            self._lasting.clear()

    async def _is_watched(self, plugin: Plugin, reading: Reading) -> bool:
        """Watch everything that the next check will read, as the last one did; return False if that is impossible."""
        if len(reading.folders) > MOST_WATCHED:
            return False
        known = self._watched.get(plugin.path)
        if known is None or known[0] is not reading:
            if reading.is_small:
                is_watched = self._watch(plugin, reading)
            else:
                is_watched = await thread_lanes.run(plugin.path, self._watch, plugin, reading)
            if not is_watched:  # and neither is anything else any more
                self._watched.clear()
                self._lasting.clear()
            known = self._watched[plugin.path] = (reading, is_watched)
        return known[1]

    def _watch(self, plugin: Plugin, reading: Reading) -> bool:
        decisions = [] if plugin.explicit else [self._catalog.approvals.mark.path]
        folders = [plugin.path + folder[0] for folder in reading.folders]
        files = (f"{plugin.path}/{file[0]}" for file in reading.stamps)
        return self._stir.watch([*decisions, *folders, *filter(os.path.islink, files)])
