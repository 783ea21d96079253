"""What a host has loaded: reads plugins, starts and retires those that stay up, and swaps the snapshot."""

import asyncio
import functools
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread

from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.catalog.offers import merged
from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.model.errors import StoreError, Unavailable
from anyplug.model.types import Offer, Plugin
from anyplug.peers.peer_set import Peers
from anyplug.peers.slot import Wanted
from anyplug.runtime import thread_lanes

RETRY_S = 0.5  # before the next attempt to look, or to make a snapshot, if the store failed

NOTHING = Snapshot(entries=(), owners={}, aliases={}, model_names={})

Renew = Callable[[Plugin], bool]
Settle = Callable[[], Awaitable[None]]  # waits until what was begun is up, or failed to be


class Loading:
    """The snapshot of one host, and how it comes about."""

    def __init__(
        self,
        catalog: Catalog,
        swapped: Callable[[], None],
        set_anew: Callable[[], None],
        *,
        eager: bool,
    ) -> None:
        """Load nothing yet.

        `swapped` hears of each new snapshot, `set_anew` of new settings, before plugins are read by them. Without
        `eager`, what stays up is started when it is first used.
        """
        self._catalog = catalog
        catalog.is_on_loop = True
        self._peers: Peers  # from `begin` on
        self._swapped = swapped
        self._set_anew = set_anew
        self._eager = eager
        self._found: list[Plugin] = []
        self._taken_over = NOTHING  # by which what stays up was started; `snapshot` may be older, or newer
        self._edition = 0  # of people's decisions, when these were taken over
        self._is_stale = False
        self._retry: asyncio.TimerHandle | None = None
        self._looking = anyio.Lock()  # of two looks the later one must win
        self.snapshot = NOTHING

    def why_absent(self, name: str) -> str:
        """Say why nothing of that name runs."""
        return self.snapshot.why_absent(name)

    async def begin(self, peers: Peers) -> None:
        """Load what is there; `peers` keeps up what stays up."""
        self._peers = peers
        found, slow = await self._find()
        await self._settle(self._take_over(found, _nothing), slow)
        self._refresh()

    async def again(self, renew: Renew | None = None) -> None:
        """Read everything again, also the settings; of what stays up, start anew what changed or is to be renewed."""
        settle = await self._look(renew or _nothing)
        try:
            await settle()
        finally:
            self._refresh()  # also for those who do not wait for it to the end

    async def catch_up_for(self, plugin: Plugin) -> None:
        """Read everything again if people have decided something since, for a call of a plugin that waits for it.

        What they decided may be that a guard is to be asked. Of plugins with many or large files it waits only for
        those that may guard the call and were not read before: no plugin holds up others' calls with its own files.
        Raises StoreError.
        """
        # Where the person named the folder, the look at it was no look at what people decided about others.
        if plugin.explicit and any(not other.explicit for other in self._found):
            self._catalog.approvals.refresh()
        if self._edition == self._catalog.approvals.edition:
            return
        settle = await self._look(_nothing, lambda one: one.stays_up and not self._catalog.has_reading(one))
        try:
            await settle()
        finally:
            self._refresh()

    async def reload(self, name: str | None) -> None:
        """Start anew all that was started, or just the plugin of that name, and wait for it. Raises PluginNotFound."""
        only = None if name is None else self.snapshot.plugin(name).path
        await self.again(lambda plugin: plugin.path == only if only else self._peers.has_begun(plugin))
        for place in self._peers.places:  # some may wait for the calls of what they replace
            if place.health == "restarting":
                await place.settled.wait()

    async def reload_in_a_call(self, name: str) -> str:
        """Read everything again because a tool asked for it: nobody waits for what waits for calls under way."""
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
        from anyplug.catalog.watch import changes  # pulls in watchfiles, which a single call does not need

        async with anyio.create_task_group() as tasks:
            async for _ in changes(self._catalog, lambda: self._taken_over, leaving):
                settle = await self._look_in_time(leaving)
                if settle is not None:
                    # What takes its time to start or to leave must not hide what changes meanwhile.
                    tasks.start_soon(self._settled, settle)

    def close(self) -> None:
        """Make no more snapshots."""
        if self._retry is not None:
            self._retry.cancel()

    def grow_stale(self) -> None:
        """Make a new snapshot soon: an extension registers many things in one go."""
        if not self._is_stale:
            self._is_stale = True
            asyncio.get_running_loop().call_soon(self._refresh_in_time)

    def catch_up(self) -> None:
        """Make the new snapshot now, if one is to be made soon."""
        if self._is_stale:
            self._refresh_in_time()

    async def _look(self, renew: Renew, patient_with: Renew = lambda _: True) -> Settle:
        """Read everything and take it over; gives what waits until that has come to something. Raises StoreError.

        What that gives reads plugins with many or large files, too, if `patient_with` says so.
        """
        async with self._looking:
            taken_over = self._catalog.follow_settings()
            if taken_over is not None:
                self._set_anew()
            found, slow = await self._find()
            settle = self._take_over(found, renew)
            if taken_over is not None:  # else whoever looks next does all of it
                taken_over()
        return functools.partial(self._settle, settle, [plugin for plugin in slow if patient_with(plugin)])

    async def _find(self) -> tuple[list[Plugin], list[Plugin]]:
        """Read what is there, and take the digests of what may run, in threads: others have calls under way.

        Gives all plugins, and those of them that take longer to read.
        """
        found = await anyio.to_thread.run_sync(self._catalog.find, self.snapshot)
        if not all(plugin.explicit for plugin in found):
            self._catalog.approvals.refresh()
        return found, await anyio.to_thread.run_sync(self._catalog.hash, found)

    async def _settle(self, settle: Settle, slow: list[Plugin]) -> None:
        """Wait for what was taken over; then read the plugins that take long, and take over what comes of it."""
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
        """Do the same as soon as it is possible; None if the host leaves before.

        Until then the snapshot stays as it is, and calls say what is wrong with the store.
        """
        while not leaving.is_set():
            try:
                return await self._look(_nothing)
            except StoreError:
                with anyio.move_on_after(RETRY_S):
                    await leaving.wait()
        return None

    async def _settled(self, settle: Settle) -> None:
        """Wait until what was taken over has come to something, and make a snapshot of that."""
        await settle()
        self._refresh_in_time()

    def _take_over(self, found: list[Plugin], renew: Renew) -> Settle:
        """Take over what was found: begin to start, renew and retire what stays up. Gives what waits for it.

        What is renewed is started also where others wait until they are needed: somebody wants to know how it does.
        """
        self._found = found
        renewed = {plugin.path for plugin in found if renew(plugin)}
        statics = {plugin.path: plugin for plugin in found}
        taken_over = self._catalog.snapshot(found, self._offer, as_read=True)
        self._edition = self._catalog.approvals.edition
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
        """Return the paths of plugins of which nothing is down for longer than a moment."""
        down = [place for place in self._peers.places if place.peer is None and place.reason]
        lasting = {place.plugin.path for place in down if not place.is_coming_back}
        return {place.plugin.path for place in down} - lasting

    def _own_standing(self, entry: Entry) -> Standing:
        """Say where a plugin stands; one that is shadowed and still on guard stands for itself."""
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
        except StoreError:  # calls say what is wrong with it
            self.close()  # somebody else may have failed as well, and one more attempt is enough
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._refresh_in_time)

    def _refresh(self) -> None:
        """Swap the snapshot for one that has what extensions offer now."""
        self.snapshot = self._catalog.snapshot(self._found, self._offer, as_read=True)
        self._is_stale = False
        self._swapped()


def _nothing(_: Plugin) -> bool:
    """Renew none."""
    return False
