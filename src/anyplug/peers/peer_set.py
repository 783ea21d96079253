"""The plugins that stay up: a place for each of their processes, in the order in which they load.

Places are swapped when other plugins are loaded: what is to be replaced finishes its calls first, and its successor
waits for that. How what belongs to a place is kept up is the matter of `upkeep`.
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
from anyplug.peers.slot import Place, Wanted
from anyplug.peers.supervisor import Upkeep
from anyplug.secrets.redaction import Secrecy

HEAR_S = 10.0  # for those that have to start first, and then have the time that they have for `ready`
HEAR_STEP_S = 0.05

Said = Callable[[Any, msgspec.Struct | None], None]


class Peers:
    """All plugins of a host that stay up. Their tasks live in the host's task group."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        start: Callable[[Plugin], Awaitable[Start]],
        secrecy: Callable[[Plugin], Secrecy],
        tasks: anyio.abc.TaskGroup,
        changed: Callable[[], None],
        greeting: Greeting,
        tell: Callable[[str], None],
    ) -> None:
        """Start nothing yet.

        `start` gives what a plugin is started with, `secrecy` what hides its secrets; `changed` hears that there is
        something else to call. `greeting` is what they are told of the agent that they work for; `tell` hears of starts
        that take long.
        """
        self._settings = catalog.settings
        self._store = catalog.store
        self._approvals = catalog.approvals
        self._tell = tell
        self._upkeep = Upkeep(catalog, self, start=start, secrecy=secrecy, tasks=tasks, greeting=greeting, tell=tell)
        self._secrecy = secrecy
        self._tasks = tasks
        self._changed = changed
        self._said: Said = _unheard
        self._places: dict[tuple[str, str], Place] = {}
        self._leaving: dict[tuple[str, str], Place] = {}  # that are to leave, and may have
        self._is_over = False  # the host ends, and nothing is started any more
        self.roll = 0  # grows whenever somebody comes, goes or registers something

    def report_to(self, said: Said) -> None:
        """Have somebody hear of the frames that nobody asked for, and, with None for a frame, of each peer's end."""
        self._said = said

    @property
    def up(self) -> list[Any]:
        """Those that run, in load order."""
        return [place.peer for place in self._places.values() if place.peer is not None]

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Which places there are, in load order; `at` gives the one that is there now."""
        return list(self._places)

    def at(self, key: tuple[str, str]) -> Place | None:
        """Return a place, as long as it is there."""
        return self._places.get(key)

    @property
    def places(self) -> list[Place]:
        """The places of all that should be up, whether they are or not, in load order."""
        return list(self._places.values())

    def of(self, plugin: Plugin) -> list[Place]:
        """Return the places of a plugin's processes."""
        found = (self._places.get((plugin.path, process)) for process in plugin.processes)
        return [place for place in found if place is not None]

    def has_begun(self, plugin: Plugin) -> bool:
        """Whether anything of a plugin was started, whatever became of it."""
        return any(not place.is_unused for place in self.of(plugin))

    def has_other_rights(self, plugin: Plugin, rights: Rights) -> bool:
        """Whether a plugin was started with other rights than it has now."""
        for process in plugin.processes:
            place = self._places.get((plugin.path, process))
            if place is not None and place.rights != rights:
                return True
        return False

    def follow(self, settings: Settings) -> None:
        """Start by other settings from now on; `swap` starts anew what runs by those before."""
        self._settings = settings
        self._upkeep.follow(settings)

    def swap(
        self, wanted: list[Wanted], renew: Callable[[Plugin], bool] = lambda _: False
    ) -> Callable[[], Awaitable[None]]:
        """Run just these from now on; those that are others now, or are to be renewed, are started anew.

        All of it is begun here, and the host's own tasks see to it. What this gives waits until each is up, or failed
        to start once: what is tried again holds nobody up, and neither does what waits for calls of what it replaces.
        """
        before, self._places = self._places, {}
        going = {key: place for key, place in self._leaving.items() if not place.over.is_set()}
        self.roll += 1
        begun: list[Place] = []
        for one in [] if self._is_over else wanted:  # somebody may still have been looking when the host ended
            known = offers.stored(self._store, one.plugin, one.digest)
            for process in one.plugin.processes:
                key = (one.plugin.path, process)
                place = before.get(key)
                if place is not None and place.is_for(one) and not renew(one.plugin):
                    del before[key]
                else:
                    place = Place(one, process, known.get(process), place or going.get(key))
                    if not place.guarded and not place.is_known:
                        place.guarded = frozenset(self._last_offer(one.plugin, process).intercepts)
                if place.is_unused and (one.at_once or self._must_run(place)):  # also if somebody relies on it since
                    begun.append(place)
                self._places[key] = place
        self._leaving = going | before
        leaving = [place.over for place in before.values() if not place.is_busy]
        # The next attempt has an event of its own.
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
        """Wait for what others have begun to start, but for what waits for the calls of what it replaces.

        Not to be waited for by what a plugin asks for while it comes up.
        """
        for place in self.places:
            if place.is_coming_up and place.is_free:
                await place.settled.wait()

    def begin_idle(self) -> None:
        """Start what waits to be needed."""
        for place in self._places.values():
            if place.health == "idle" and not place.is_ending:
                self._upkeep.begin(place)

    async def hear_out(self, is_known: Callable[[], bool]) -> None:
        """Wait until something is known, or all who have not said that they are ready have had their time."""
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
        """Return a process that is up, waiting for one that is on its way; raises Unavailable."""
        place = await self._came_up(plugin, process)
        while place is not self._places.get((plugin.path, process)):  # it was replaced meanwhile
            place = await self._came_up(plugin, process)
        if place.refusal is not None:
            raise place.refusal
        if place.peer is None:
            raise Unavailable(
                f"plugin '{plugin.name}' is not running: {place.reason}",
                f"`anyplug logs {plugin.name}` shows what it said; mend it and try again. Where a host stays up, "
                f"that takes `anyplug reload {plugin.name}`, for agents `builtin.reload_plugins`, or `host.reload`",
            )
        return place.peer

    async def _came_up(self, plugin: Plugin, process: str) -> Place:
        """Return the place of a process once it is up, or failed to be; raises Unavailable if there is none.

        What was replaced meanwhile is given as it is.
        """
        place = self._places.get((plugin.path, process))
        if place is None:
            raise Unavailable(f"plugin '{plugin.name}' is not running", f"`anyplug show {plugin.name}` says why")
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

    async def look_in(self, plugin: Plugin, *, retry: bool) -> list[Place]:
        """Return a plugin's places once it is known how each does: idle ones are started, none is waited for twice.

        `retry`: start also what failed some time ago, and is not tried again by itself.
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
        """Let all of them leave, at the same time; no other is started.

        Unless at once, one that is at its first start since its approval may first say all that it offers: what it
        registers at a later start is held back, so a call that is done early must not cut that short.
        """
        self._is_over = True
        places, self._places = list(self._places.values()), {}
        self.roll += 1
        async with anyio.create_task_group() as tasks:
            for place in places:
                tasks.start_soon(self._leave, place, at_once)

    async def _leave(self, place: Place, at_once: bool) -> None:
        while not at_once and place.peer is not None and place.may_offer_more and self._is_pinned_by_this_run(place):
            await anyio.sleep(HEAR_STEP_S)
        await self._upkeep.end(place)

    def _is_pinned_by_this_run(self, place: Place) -> bool:
        pins = self._approvals.pins(place.plugin)
        pinned = pins.processes.get(place.process) if pins is not None else None
        return pinned is not None and pinned.run == place.run

    def note_offer(self, place: Place, peer: Peer) -> None:
        """Keep what a peer registered, and say that there is something else to call."""
        had_said_all = place.has_said_all
        place.take(clean_offer(self._secrecy(place.plugin).offer(peer.offer)))
        self.roll += 1
        is_news = peer.has_said_all or not had_said_all  # else what is kept says more
        if is_news and not place.plugin.explicit and place in self.of(place.plugin):
            known = {other.process: other.offer for other in self.of(place.plugin) if other.offer and other.is_known}
            offers.save(self._store, place.plugin, place.digest, known)
        self._pin(place, is_starting=not peer.has_said_all)
        self._changed()

    def _pin(self, place: Place, *, is_starting: bool) -> None:
        """Pin what models read of a process that was just approved."""
        if place.plugin.explicit or place.offer is None:
            return
        try:
            self._approvals.pin(
                place.plugin, place.process, place.run, place.offer, place.digest, is_starting=is_starting
            )
        except StoreError as error:  # it is tried again when it next registers something
            self._tell(f"the tools of '{place.plugin.name}' cannot be pinned: {error.message}")

    def stirred(self) -> None:
        """Note that somebody came, went or registered something."""
        self.roll += 1

    def changed(self) -> None:
        """Say that there may be something else to call."""
        self._changed()

    def said(self, peer: Any, frame: msgspec.Struct | None) -> None:
        """Pass on what a peer said on its own account; None if it has ended."""
        self._said(peer, frame)

    def _last_offer(self, plugin: Plugin, process: str) -> Offer:
        """Return what it offered when it last ran, whatever its digest was then."""
        return offers.stored(self._store, plugin, "").get(process, Offer())

    def _must_run(self, place: Place) -> bool:
        """Whether it has to be up although nobody needs its tools: it sees what happens, or may.

        One that has not said all may yet say that it does; one with tools most likely does not, unless the person
        relies on it.
        """
        offer, settings = place.offer, self._settings.of(place.plugin.name)
        if not place.is_known or offer is None or offer.must_run or settings.guard == "required":
            return True
        return not offer.is_whole and (settings.on_silence == "closed" or not offer.tools)


def _unheard(_peer: Any, _frame: msgspec.Struct | None) -> None:
    """Take note of nothing."""
