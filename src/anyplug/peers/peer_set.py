"""The long-running plugins: a place for each of their processes, in load order.

Places are swapped when other plugins are loaded: what is replaced finishes its calls first, and its successor waits for
that. `supervisor` keeps the process of a place running.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import msgspec

from anyplug.catalog import offers
from anyplug.catalog.approvals import Rights
from anyplug.catalog.catalog import Catalog
from anyplug.formats.shared.contract import Greeting, Peer
from anyplug.home.settings import Settings
from anyplug.launch.surroundings import Start
from anyplug.model.errors import StoreError, Unavailable
from anyplug.model.types import Offer, Plugin
from anyplug.model.untrusted_text import clean_offer
from anyplug.peers.slot import Slot, Wanted
from anyplug.peers.supervisor import Supervisor
from anyplug.secrets.redaction import Redaction

HEAR_S = 10.0  # for those that must start first, and then have their time to become ready
HEAR_STEP_S = 0.05

Said = Callable[[Any, msgspec.Struct | None], None]


class Peers:
    """All long-running plugins of a host. Their tasks live in the host's task group."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        start: Callable[[Plugin], Awaitable[Start]],
        secrecy: Callable[[Plugin], Redaction],
        tasks: anyio.abc.TaskGroup,
        changed: Callable[[], None],
        greeting: Greeting,
        tell: Callable[[str], None],
    ) -> None:
        """Start nothing yet.

        `start` returns what a plugin is started with, `secrecy` what masks its secrets; `changed` is called when what
        can be called changed. `greeting` describes the agent that they work for; `tell` is called about slow starts.
        """
        self._settings = catalog.settings
        self._store = catalog.store
        self._approvals = catalog.approvals
        self._tell = tell
        self._upkeep = Supervisor(
            catalog, self, start=start, secrecy=secrecy, tasks=tasks, greeting=greeting, tell=tell
        )
        self._secrecy = secrecy
        self._tasks = tasks
        self._changed = changed
        self._said: Said = _unheard
        self._places: dict[tuple[str, str], Slot] = {}
        self._leaving: dict[tuple[str, str], Slot] = {}  # leaving, or already gone
        self._is_over = False  # the host is ending, and nothing is started any more
        self.roll = 0  # grows whenever a process starts, ends or registers something

    def report_to(self, said: Said) -> None:
        """Register a callback for unsolicited frames, and, with None for a frame, for each peer's end."""
        self._said = said

    @property
    def up(self) -> list[Any]:
        """The running ones, in load order."""
        return [place.peer for place in self._places.values() if place.peer is not None]

    @property
    def keys(self) -> list[tuple[str, str]]:
        """The keys of all places, in load order; `at` returns the present place."""
        return list(self._places)

    def at(self, key: tuple[str, str]) -> Slot | None:
        """Return a place, if it still exists."""
        return self._places.get(key)

    @property
    def places(self) -> list[Slot]:
        """All places, whether their process is running or not, in load order."""
        return list(self._places.values())

    def of(self, plugin: Plugin) -> list[Slot]:
        """Return the places of a plugin's processes."""
        found = (self._places.get((plugin.path, process)) for process in plugin.processes)
        return [place for place in found if place is not None]

    def has_begun(self, plugin: Plugin) -> bool:
        """Return whether anything of a plugin was started, whatever became of it."""
        return any(not place.is_unused for place in self.of(plugin))

    def has_other_rights(self, plugin: Plugin, rights: Rights) -> bool:
        """Return whether a plugin was started with rights other than its present ones."""
        for process in plugin.processes:
            place = self._places.get((plugin.path, process))
            if place is not None and place.rights != rights:
                return True
        return False

    def follow(self, settings: Settings) -> None:
        """Use new settings for future starts; `swap` restarts what runs with the old ones."""
        self._settings = settings
        self._upkeep.follow(settings)

    def swap(
        self, wanted: list[Wanted], renew: Callable[[Plugin], bool] = lambda _: False
    ) -> Callable[[], Awaitable[None]]:
        """Replace the running set, restarting what changed or must be renewed.

        Everything is begun here, and runs in the host's own tasks. The returned function waits until each is running,
        or failed to start once: neither retries nor waiting for replaced processes' calls delay it.
        """
        before, self._places = self._places, {}
        going = {key: place for key, place in self._leaving.items() if not place.over.is_set()}
        self.roll += 1
        begun: list[Slot] = []
        for one in [] if self._is_over else wanted:  # a load may still have been running when the host ended
            known = offers.stored(self._store, one.plugin, one.digest)
            for process in one.plugin.processes:
                key = (one.plugin.path, process)
                place = before.get(key)
                if place is not None and place.is_for(one) and not renew(one.plugin):
                    del before[key]
                else:
                    place = Slot(one, process, known.get(process), place or going.get(key))
                    if not place.guarded and not place.is_known:
                        place.guarded = frozenset(self._last_offer(one.plugin, process).intercepts)
                if place.is_unused and (one.at_once or self._must_run(place)):  # also if it has become required since
                    begun.append(place)
                self._places[key] = place
        self._leaving = going | before
        leaving = [place.over for place in before.values() if not place.is_busy]
        # The next attempt has its own event.
        attempts = [place.settled for place in begun if not any(replaced.is_busy for replaced in place.before)]
        for place in begun:
            self._upkeep.begin(place)
        for place in before.values():
            self._tasks.start_soon(self._upkeep.retire, place)

        async def settle() -> None:
            for event in (*leaving, *attempts):
                await event.wait()

        return settle

    async def come_up(self) -> None:
        """Wait for what others have begun to start, except for processes whose predecessors still have calls.

        Must not be awaited on behalf of a plugin that is starting.
        """
        for place in self.places:
            if place.is_coming_up and place.is_free:
                await place.settled.wait()

    def begin_idle(self) -> None:
        """Start the deferred plugins."""
        for place in self._places.values():
            if place.health == "idle" and not place.is_ending:
                self._upkeep.begin(place)

    async def hear_out(self, is_known: Callable[[], bool]) -> None:
        """Wait until something is known, or all plugins that are not ready have had their time."""
        unsure = [place for place in self._places.values() if place.may_offer_more]
        for place in unsure:
            if place.health == "idle" and not place.is_ending:
                self._upkeep.begin(place)
        with anyio.move_on_after(HEAR_S):
            while not is_known() and any(place.may_offer_more for place in unsure):
                await anyio.sleep(HEAR_STEP_S)
        for place in unsure:
            if place.peer is not None:
                self.note_offer(place, place.peer)

    async def reach(self, plugin: Plugin, process: str = "") -> Any:
        """Return a running process, waiting for one that is starting; raises Unavailable."""
        place = self._places.get((plugin.path, process))
        if place is not None and place.is_serving:  # as for most calls
            return place.peer
        place = await self._came_up(plugin, process)
        while place is not self._places.get((plugin.path, process)):  # it was replaced meanwhile
            place = await self._came_up(plugin, process)
        if place.refusal is not None:
            raise place.refusal
        if place.peer is None:
            raise Unavailable(
                f"plugin '{plugin.name}' is not running: {place.reason}",
                f"`anyplug logs {plugin.name}` shows its output; fix it and try again. With a daemon, run `anyplug "
                f"reload {plugin.name}` then; agents call `builtin.reload_plugins`, programs `host.reload`",
            )
        return place.peer

    def answered(self, plugin: Plugin, process: str) -> None:
        """Count a good answer of a process: one that works in between may crash more often."""
        place = self._places.get((plugin.path, process))
        if place is not None:
            place.answers += 1

    async def _came_up(self, plugin: Plugin, process: str) -> Slot:
        """Return the place of a process once it is running, or failed to start; raises Unavailable if there is none.

        A place that was replaced meanwhile is returned as it is.
        """
        place = self._places.get((plugin.path, process))
        if place is None:
            raise Unavailable(f"plugin '{plugin.name}' is not running", f"`anyplug show {plugin.name}` shows why")
        if place.peer is not None and place.peer.session is not None and place.peer.session.is_given_up:
            await place.peer.session.left()
        if place.is_ending:
            await place.over.wait()
        if place is not self._places.get((plugin.path, process)):
            return place
        if place.health == "idle":
            self._upkeep.begin(place)
        if place.peer is None:
            await place.settled.wait()
        return place

    async def look_in(self, plugin: Plugin, *, retry: bool) -> list[Slot]:
        """Return a plugin's places once their state is known: idle ones are started, none is waited for twice.

        `retry`: also start what failed earlier and is not retried by itself.
        """
        places = self.of(plugin)
        for place in places:
            if place.is_ending:
                await place.over.wait()
            if place in self._places.values() and place.health == "idle" and (retry or not place.reason):
                place.reason = ""
                self._upkeep.begin(place)
        for place in places:
            if place.peer is None and not place.reason:
                await place.settled.wait()
        return places

    async def stop_all(self, *, at_once: bool) -> None:
        """End all of them at the same time, and start no others.

        Unless `at_once`, a process at its first start since its approval may finish registering: what it registers at a
        later start is held back, so a quick call must not cut that short.
        """
        self._is_over = True
        places, self._places = list(self._places.values()), {}
        self.roll += 1
        async with anyio.create_task_group() as tasks:
            for place in places:
                tasks.start_soon(self._leave, place, at_once)

    async def _leave(self, place: Slot, at_once: bool) -> None:
        while not at_once and place.peer is not None and place.may_offer_more and self._is_pinned_by_this_run(place):
            await anyio.sleep(HEAR_STEP_S)
        await self._upkeep.end(place)

    def _is_pinned_by_this_run(self, place: Slot) -> bool:
        pins = self._approvals.pins(place.plugin)
        pinned = pins.processes.get(place.process) if pins is not None else None
        return pinned is not None and pinned.run == place.run

    def note_offer(self, place: Slot, peer: Peer) -> None:
        """Store what a peer registered, and report the change."""
        had_said_all = place.has_said_all
        place.take(self._secrecy(place.plugin).offer(clean_offer(peer.offer)))
        self.roll += 1
        is_news = peer.has_said_all or not had_said_all  # otherwise the stored offer is more complete
        if is_news and not place.plugin.explicit and place in self.of(place.plugin):
            known = {other.process: other.offer for other in self.of(place.plugin) if other.offer and other.is_known}
            offers.save(self._store, place.plugin, place.digest, known)
        self._pin(place, is_starting=not peer.has_said_all)
        self._changed()

    def _pin(self, place: Slot, *, is_starting: bool) -> None:
        """Pin what models read of a process that was just approved."""
        if place.plugin.explicit or place.offer is None:
            return
        try:
            self._approvals.pin(
                place.plugin, place.process, place.run, place.offer, place.digest, is_starting=is_starting
            )
        except StoreError as error:  # retried when it next registers something
            self._tell(f"the tools of '{place.plugin.name}' cannot be pinned: {error.message}")

    def stirred(self) -> None:
        """Record that a process started, ended or registered something."""
        self.roll += 1

    def changed(self) -> None:
        """Report that what can be called may have changed."""
        self._changed()

    def said(self, peer: Any, frame: msgspec.Struct | None) -> None:
        """Pass on a peer's own message; None if it has ended."""
        self._said(peer, frame)

    def _last_offer(self, plugin: Plugin, process: str) -> Offer:
        """Return what it offered in its last run, with any digest."""
        return offers.stored(self._store, plugin, "").get(process, Offer())

    def _must_run(self, place: Slot) -> bool:
        """Return whether it must run although its tools are not needed: it observes events, or may.

        One that has not registered everything may yet say so; one with tools most likely does not, unless it is
        required.
        """
        offer, settings = place.offer, self._settings.of(place.plugin.name)
        if not place.is_known or offer is None or offer.must_run or settings.guard == "required":
            return True
        return not offer.is_whole and (settings.on_silence == "closed" or not offer.tools)


def _unheard(_peer: Any, _frame: msgspec.Struct | None) -> None:
    """Ignore the frame."""
