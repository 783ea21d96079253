"""Decide whether a plugin may run: only what a person approved, as it is at this moment. Asked once per call.

A check takes a system call for each of the plugin's files, or reads them all. What each call starts is checked each
time. A long-running plugin runs the code that was checked when it started: that check holds as long as the kernel
reports no change in its folders, and only for a short time, because the kernel does not see every change.
"""

import os
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from anyplug.call.state import CallState
from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.home.digest import Reading
from anyplug.model.errors import Denied, NotApproved, PluginDisabled, StoreError, ToolNotFound, Unavailable
from anyplug.model.types import Plugin, Tool
from anyplug.runtime import thread_lanes
from anyplug.runtime.inotify import PathWatch
from anyplug.secrets.redaction import Redactions

LASTS_S = 0.05  # how long a check is valid if nothing changes
LASTS_TIMES = 100  # or this many times as long as it took: plugins with many files take longer to check
LASTS_AT_MOST_S = 2.0  # however long it took: the machine may have been busy
MOST_WATCHED = 5_000  # folders of a plugin; the kernel needs about a kilobyte for each


class _Look(NamedTuple):
    plugin: Plugin
    decided: int  # number of decisions made by this process
    standing: Standing
    until: float


class Admission:
    """Checks a plugin before anything of it runs. `close` when done."""

    def __init__(
        self,
        catalog: Catalog,
        secrecies: Redactions,
        is_behind: Callable[[Plugin], bool],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`catch_up` loads what people have decided since, if `is_behind` says so for a call of a plugin."""
        self._catalog = catalog
        self._secrecies = secrecies
        self._is_behind = is_behind
        self._catch_up = catch_up
        self._stir = PathWatch()
        self._lasting: dict[str, _Look] = {}
        self._watched: dict[str, tuple[Reading, bool]] = {}  # what should be watched, and whether it is
        self._stirred = 0  # number of changes seen

    def close(self) -> None:
        """Stop watching."""
        self._stir.close()

    async def admit(self, plugin: Plugin, tool: Tool | None, trail: CallState) -> Standing:
        """Check that a plugin and its tool may be used, by all decisions made so far; raises CallError.

        Who guards a call is theirs to say, too: so what they decided since is loaded then.
        """
        try:
            standing = self._known(plugin) or await self._looked(plugin)
        except StoreError as error:
            raise _unreadable("it is unknown whether it was approved", error) from error
        trail.record.digest = standing.digest
        if tool is not None and trail.attachment.view is not None and standing.hides(tool):
            raise ToolNotFound(tool.name, [])
        _check(plugin, tool, standing)
        trail.secrecy = self._secrecies.of(plugin, standing.granted)
        try:
            if self._is_behind(plugin):
                await self._catch_up()
        except StoreError as error:
            raise _unreadable("the decisions cannot be read", error) from error
        return standing

    async def admit_start(self, plugin: Plugin) -> Standing:
        """Check now whether a long-running plugin may be started; raises CallError."""
        try:
            standing = await self._looked(plugin)
        except StoreError as error:
            raise _unreadable("it is unknown whether it was approved", error) from error
        _check(plugin, None, standing)
        self._secrecies.of(plugin, standing.granted)
        return standing

    def _known(self, plugin: Plugin) -> Standing | None:
        """Return where a plugin stands, if the last look at it still holds."""
        self._notice()
        look = self._lasting.get(plugin.path)
        if (
            look is not None
            and look.plugin is plugin
            and look.decided == self._catalog.approvals.decided
            and look.until > time.monotonic()
        ):
            return look.standing
        return None

    async def _looked(self, plugin: Plugin) -> Standing:
        """Check now whether a plugin is approved, and return the result; raises StoreError."""
        self._lasting.pop(plugin.path, None)
        approvals = self._catalog.approvals
        if not plugin.explicit:
            approvals.refresh()
        if plugin.in_fleet:  # nothing of it is here that could be looked at
            return await self._look(plugin)
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


def _check(plugin: Plugin, tool: Tool | None, standing: Standing) -> None:
    """Check that a person approved the plugin as it is, and that nothing disabled it; raises CallError."""
    if standing.state == "disabled":
        cure = standing.off.cure_for(tool.own_name) if standing.off and tool is not None else standing.reason
        raise PluginDisabled(plugin.name, cure)
    if standing.state == "changed" and not (plugin.is_file or os.path.isdir(plugin.path)):
        cure = "put it back" if plugin.explicit else "install it again"
        raise Unavailable(f"the folder of plugin '{plugin.name}' is gone: {plugin.path}", cure)
    if plugin.in_fleet and standing.state != "approved":
        refused = NotApproved(plugin.name, standing.state)
        refused.hint = standing.reason
        raise refused
    if standing.state != "approved":
        raise NotApproved(plugin.name, standing.state, standing.changes, standing.reason)
    if tool is not None and standing.off is not None and tool.own_name not in standing.off.tools:
        raise PluginDisabled(plugin.name, standing.off.cure_for(tool.own_name), tool.own_name)


def _unreadable(what: str, error: StoreError) -> Denied:
    return Denied("host", f"{what}: {error.message}", error.hint)
