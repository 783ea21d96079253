"""What a host has loaded: read plugins, start and retire long-running ones, and swap the snapshot."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.to_thread

from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.catalog.offers import merged
from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.home import plugin_config
from anyplug.model.errors import ConfigError, StoreError, Unavailable
from anyplug.model.types import Offer, Plugin
from anyplug.peers.peer_set import Peers
from anyplug.peers.slot import Wanted
from anyplug.runtime import thread_lanes

RETRY_S = 0.5  # before the next attempt after the database failed

NOTHING = Snapshot(entries=(), owners={}, aliases={}, model_names={})

Renew = Callable[[Plugin], bool]
Settle = Callable[[], Awaitable[None]]  # waits until what was begun is running, or failed to start


class Loading:
    """The snapshot of one host, and how it is built."""

    def __init__(
        self,
        catalog: Catalog,
        swapped: Callable[[], None],
        reconfigured: Callable[[], None],
        *,
        eager: bool,
    ) -> None:
        """Load nothing yet.

        `swapped` is called with each new snapshot, `reconfigured` after new settings, before plugins are read.
        Without `eager`, long-running plugins are started when they are first used.
        """
        self._catalog = catalog
        catalog.is_on_loop = True
        self._peers: Peers  # from `begin` on
        self._swapped = swapped
        self._reconfigured = reconfigured
        self._eager = eager
        self._found: list[Plugin] = []
        self._taken_over = NOTHING  # with which long-running plugins were started; `snapshot` may be older or newer
        self._edition = 0  # of the decisions, when these were applied
        self._is_stale = False
        self._retry: asyncio.TimerHandle | None = None
        self._looking = anyio.Lock()  # of two loads the later one must win
        self.snapshot = NOTHING

    def why_absent(self, name: str) -> str:
        """Return why nothing of that name runs."""
        return self.snapshot.why_absent(name)

    async def begin(self, peers: Peers) -> None:
        """Load everything; `peers` keeps long-running plugins running."""
        self._peers = peers
        found, slow = await self._find()
        await self._settle(self._take_over(found, _nothing), slow)
        self._refresh()

    async def again(self, renew: Renew | None = None) -> None:
        """Read everything again, including settings; restart long-running plugins that changed or must be renewed."""
        settle = await self._look(renew or _nothing)
        try:
            await settle()
        finally:
            self._refresh()  # also for callers that do not wait for the end

    def is_behind(self, plugin: Plugin) -> bool:
        """Return whether people have decided something since, for a call of a plugin. Raises StoreError."""
        # Where the person named the folder, the look at it was no look at what people decided about others.
        if plugin.explicit and any(not other.explicit for other in self._found):
            self._catalog.approvals.refresh()
        return self._edition != self._catalog.approvals.edition

    async def catch_up_with_decisions(self) -> None:
        """Read everything again, for a call that waits for it. Raises StoreError.

        What people decided may be that a guard is to be asked. Of plugins with many or large files it waits only for
        those that may guard the call and were not read before: no plugin holds up others' calls with its own files.
        """
        settle = await self._look(_nothing, lambda one: one.stays_up and not self._catalog.has_reading(one))
        try:
            await settle()
        finally:
            self._refresh()

    async def reload(self, name: str | None) -> None:
        """Restart everything that was started, or just the plugin of that name, and wait for it.

        Raises PluginNotFound.
        """
        only = None if name is None else self.snapshot.plugin(name).path
        await self.again(lambda plugin: plugin.path == only if only else self._peers.has_begun(plugin))
        for place in self._peers.places:  # some may wait for the calls of what they replace
            if place.health == "restarting":
                await place.settled.wait()

    async def reload_in_a_call(self, name: str) -> str:
        """Read everything again for a tool that asked for it, without waiting for running calls to end."""
        only = self.snapshot.plugin(name).path if name else None
        given_up = {place.plugin.path for place in self._peers.places if place.health == "given_up"}
        before = self.snapshot
        try:
            await self.again(lambda plugin: plugin.path == only or plugin.path in given_up)
        except StoreError as error:
            raise Unavailable(f"the plugins cannot be read again: {error.message}", error.hint) from error
        there = self.snapshot.compared_to(before, self._coming_back())
        return "\n".join([there, *filter(None, [self._catalog.settings_fault])])

    async def follow(self, leaving: anyio.Event) -> None:
        """Read everything again each time that something changes, until `leaving`."""
        from anyplug.catalog.watch import changes  # imports watchfiles, which a single call does not need

        async with anyio.create_task_group() as tasks:
            async for _ in changes(self._catalog, lambda: self._taken_over, leaving):
                settle = await self._look_in_time(leaving)
                if settle is not None:
                    # Slow starts and ends must not hide what changes meanwhile.
                    tasks.start_soon(self._settled, settle)

    def close(self) -> None:
        """Build no more snapshots."""
        if self._retry is not None:
            self._retry.cancel()

    def grow_stale(self) -> None:
        """Schedule a new snapshot: an extension registers many things at once."""
        if not self._is_stale:
            self._is_stale = True
            asyncio.get_running_loop().call_soon(self._refresh_in_time)

    def catch_up(self) -> None:
        """Build the scheduled snapshot now, if any."""
        if self._is_stale:
            self._refresh_in_time()

    async def _look(self, renew: Renew, patient_with: Renew = lambda _: True) -> Settle:
        """Read everything and apply it; return a function that waits until that has settled. Raises StoreError.

        If `patient_with` says so, that also reads plugins with many or large files.
        """
        async with self._looking:
            taken_over = self._catalog.follow_settings()
            if taken_over is not None:
                self._reconfigured()
            found, slow = await self._find()
            settle = self._take_over(found, renew)
            if taken_over is not None:  # otherwise the next load does all of it
                taken_over()
        return functools.partial(self._settle, settle, [plugin for plugin in slow if patient_with(plugin)])

    async def _find(self) -> tuple[list[Plugin], list[Plugin]]:
        """Read all plugins, and take the digests of those that may run, in threads: other calls are running.

        Return all plugins, and those of them that take longer to read.
        """
        found = await anyio.to_thread.run_sync(self._catalog.find, self.snapshot)
        if not all(plugin.explicit for plugin in found):
            self._catalog.approvals.refresh()
        return found, await anyio.to_thread.run_sync(self._catalog.hash, found)

    async def _settle(self, settle: Settle, slow: list[Plugin]) -> None:
        """Wait for what was applied; then read the slow plugins, and apply the result."""
        await settle()
        if not slow:
            return
        changed: list[bool] = []

        async def read(plugin: Plugin) -> None:
            changed.append(await thread_lanes.run(plugin.path, self._catalog.hash_whole, plugin))

        async with anyio.create_task_group() as tasks:
            for plugin in slow:
                tasks.start_soon(read, plugin)
        if any(changed):
            async with self._looking:
                settle = self._take_over(self._found, _nothing)
            await settle()

    async def _look_in_time(self, leaving: anyio.Event) -> Settle | None:
        """Do the same as soon as possible; return None if the host ends first.

        Until then the snapshot stays as it is, and calls report what is wrong with the database.
        """
        while not leaving.is_set():
            try:
                return await self._look(_nothing)
            except StoreError:
                with anyio.move_on_after(RETRY_S):
                    await leaving.wait()
        return None

    async def _settled(self, settle: Settle) -> None:
        """Wait until what was applied has settled, and build a snapshot."""
        await settle()
        self._refresh_in_time()

    def _take_over(self, found: list[Plugin], renew: Renew) -> Settle:
        """Begin to start, renew and retire long-running plugins as found; return a function that waits for that.

        Renewed plugins are started even if others wait until they are needed: somebody wants to know their state.
        """
        self._found = found
        renewed = {plugin.path for plugin in found if renew(plugin)}
        statics = {plugin.path: plugin for plugin in found}
        taken_over = self._catalog.snapshot(found, self._offer, as_read=True)
        self._edition = self._catalog.approvals.edition
        for entry in taken_over.entries:
            # Before anything starts: a file of values that appears later ends the plugins that it is hidden from.
            if entry.plugin.config and entry.state == "approved":
                with suppress(ConfigError, OSError):  # a call says what is wrong with it
                    plugin_config.fill_in_defaults(entry.plugin, plugin_config.read(entry.plugin))
        wanted = [
            Wanted(
                statics[entry.path],
                standing.digest,
                standing.rights,
                self._catalog.settings.at_start(entry.name),
                at_once=self._eager or entry.path in renewed,
            )
            for entry in taken_over.entries
            if entry.plugin.stays_up and (standing := self._own_standing(entry)).state == "approved"
        ]
        settle = self._peers.swap(wanted, lambda plugin: plugin.path in renewed)
        self._taken_over = taken_over
        return settle

    def _coming_back(self) -> set[str]:
        """Return the paths of plugins that are down only for a moment."""
        down = [place for place in self._peers.places if place.peer is None and place.reason]
        lasting = {place.plugin.path for place in down if not place.is_coming_back}
        return {place.plugin.path for place in down} - lasting

    def _own_standing(self, entry: Entry) -> Standing:
        """Return a plugin's standing; a shadowed plugin that still guards has its own."""
        return self._catalog.standing_as_read(entry.plugin) if entry.on_guard else entry.standing

    def _offer(self, plugin: Plugin) -> Offer | None:
        places = self._peers.of(plugin)
        if not places:
            return self._catalog.last_offer(plugin)
        known = [place.offer_now for place in places]
        return merged(offer for offer in known if offer) if any(known) else None

    def _refresh_in_time(self) -> None:
        try:
            self._refresh()
        except StoreError:  # calls report what is wrong with it
            self.close()  # another attempt may have failed as well, and one retry is enough
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._refresh_in_time)

    def _refresh(self) -> None:
        """Swap the snapshot for one with what extensions offer now."""
        self.snapshot = self._catalog.snapshot(self._found, self._offer, as_read=True)
        self._is_stale = False
        self._swapped()


def _nothing(_: Plugin) -> bool:
    """Renew none."""
    return False
