"""The plugins that stay up: starts, watches over, restarts and retires them, in the order in which they load.

One that crashed is started again after a pause that grows; after several crashes in a row it is given up, with
the reason, until somebody asks for it again. One that has run for a while starts with a clean slate. Formats whose
plugins need not be up all the time have them started when they are next needed.

What is to be replaced finishes its calls first, and its successor waits for that.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import msgspec

from anyplug import logs, offers
from anyplug.approval import Rights
from anyplug.catalog import Catalog
from anyplug.errors import AnyplugError, CallError, NotEnforceable, Unavailable
from anyplug.formats.contract import Greeting, Peer, Terms
from anyplug.formats.standing import PEERS
from anyplug.model import Offer, Plugin
from anyplug.place import Place, Wanted
from anyplug.runtime.session import PeerGone
from anyplug.secrecy import Secrecy
from anyplug.settings import Settings
from anyplug.surroundings import Start

PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)  # before each restart; after the last one it is given up
STEADY_S = 60.0  # a run of this length forgives the crashes before it
DRAIN_S = 30.0  # how long calls under way may hold up the end of what is to be replaced
DRAIN_STEP_S = 0.01
HEAR_S = 10.0  # for those that have to start first, and then have the time that they have for `ready`
HEAR_STEP_S = 0.05
STOPPED = "was stopped by the host"

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
    ) -> None:
        """Start nothing yet.

        `start` gives what a plugin is started with, `secrecy` what hides its secrets; `changed` hears that there is
        something else to call. `greeting` is what they are told of the agent that they work for.
        """
        self._home = catalog.home
        self._settings = catalog.settings
        self._store = catalog.store
        self._start = start
        self._secrecy = secrecy
        self._tasks = tasks
        self._changed = changed
        self._said: Said = _unheard
        self._greeting = greeting
        self._places: dict[tuple[str, str], Place] = {}
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
        """Give a place, as long as it is there."""
        return self._places.get(key)

    @property
    def places(self) -> list[Place]:
        """The places of all that should be up, whether they are or not, in load order."""
        return list(self._places.values())

    def of(self, plugin: Plugin) -> list[Place]:
        """Give the places of a plugin's processes."""
        found = (self._places.get((plugin.path, process)) for process in plugin.processes)
        return [place for place in found if place is not None]

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

    def swap(
        self, wanted: list[Wanted], renew: Callable[[Plugin], bool] = lambda _: False
    ) -> Callable[[], Awaitable[None]]:
        """Run just these from now on; those that are others now, or are to be renewed, are started anew.

        All of it is begun here, and the host's own tasks see to it. What this gives waits until each is up, or failed
        to start once: what is tried again holds nobody up, and neither does what waits for calls of what it replaces.
        """
        before, self._places = self._places, {}
        self.roll += 1
        begun: list[Place] = []
        for one in wanted:
            known = offers.stored(self._store, one.plugin, one.digest)
            for process in one.plugin.processes:
                key = (one.plugin.path, process)
                place = before.get(key)
                if place is not None and place.is_for(one) and not renew(one.plugin):
                    del before[key]
                else:
                    place = Place(one, process, known.get(process), place)
                    if not place.guarded and not place.is_known:
                        place.guarded = frozenset(self._last_offer(one.plugin, process).intercepts)
                if place.is_unused and (one.at_once or self._must_run(place)):  # also if somebody relies on it since
                    begun.append(place)
                self._places[key] = place
        leaving = [place.over for place in before.values() if not place.is_busy]
        # The next attempt has an event of its own.
        attempts = [place.settled for place in begun if not any(replaced.is_busy for replaced in place.before)]
        for place in begun:
            self._begin(place)
        for place in before.values():
            self._tasks.start_soon(self._retire, place)

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
                self._begin(place)

    async def hear_out(self, is_known: Callable[[], bool]) -> None:
        """Wait until something is known, or all who have not said that they are ready have had their time."""
        unsure = [place for place in self._places.values() if place.may_offer_more]
        for place in unsure:
            if place.health == "idle" and not place.is_ending:
                self._begin(place)
        with anyio.move_on_after(HEAR_S):
            while not is_known() and any(place.may_offer_more for place in unsure):
                await anyio.sleep(HEAR_STEP_S)
        for place in unsure:
            if place.peer is not None:
                self.note_offer(place, place.peer)

    async def reach(self, plugin: Plugin, process: str = "") -> Any:
        """Give a process that is up, waiting for one that is on its way; raises Unavailable."""
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
        """Give the place of a process once it is up, or failed to be; raises Unavailable if there is none.

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
            self._begin(place)
        if place.peer is None:
            await place.settled.wait()
        return place

    async def look_in(self, plugin: Plugin, *, retry: bool) -> list[Place]:
        """Give a plugin's places once it is known how each does: idle ones are started, none is waited for twice.

        `retry`: start also what failed some time ago, and is not tried again by itself.
        """
        places = self.of(plugin)
        for place in places:
            if place.is_ending:
                await place.over.wait()
            if place in self._places.values() and place.health == "idle" and (retry or not place.reason):
                place.reason = ""
                self._begin(place)
        for place in places:
            if place.peer is None and not place.reason:
                await place.settled.wait()
        return places

    def lost(self, place: Place, peer: Peer) -> None:
        """Note at once that a peer has ended, so that nobody is sent to the dead."""
        if place.peer is peer:
            place.peer, place.health, place.settled = None, "restarting", anyio.Event()
            place.is_ending = not peer.RESTARTS
            self.roll += 1

    async def stop_all(self) -> None:
        """Let all of them leave now, at the same time."""
        places, self._places = list(self._places.values()), {}
        self.roll += 1
        async with anyio.create_task_group() as tasks:
            for place in places:
                tasks.start_soon(self._end, place)

    def note_offer(self, place: Place, peer: Peer) -> None:
        """Keep what a peer registered, and say that there is something else to call."""
        had_said_all = place.has_said_all
        place.take(self._secrecy(place.plugin).offer(peer.offer))
        self.roll += 1
        is_news = peer.has_said_all or not had_said_all  # else what is kept says more
        if is_news and not place.plugin.explicit and place in self.of(place.plugin):
            known = {other.process: other.offer for other in self.of(place.plugin) if other.offer and other.is_known}
            offers.save(self._store, place.plugin, place.digest, known)
        self._changed()

    def heard(self, peer: Peer, frame: msgspec.Struct) -> None:
        """Pass on what a peer said on its own account."""
        self._said(peer, frame)

    def _last_offer(self, plugin: Plugin, process: str) -> Offer:
        """Give what it offered when it last ran, whatever its digest was then."""
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

    def _begin(self, place: Place) -> None:
        if place.over.is_set():  # it was up before, and nobody needed it until now
            place.scope, place.over, place.settled = anyio.CancelScope(), anyio.Event(), anyio.Event()
        place.health = "restarting"
        self._tasks.start_soon(self._keep_up, place)

    async def _keep_up(self, place: Place) -> None:
        """Run what belongs to a place, again and again, until it is retired, given up or not needed."""
        try:
            with place.scope:
                for replaced in place.before:
                    await replaced.over.wait()
                place.before = ()
                while place.health == "restarting":
                    attempt = place.settled
                    await self._run_once(place)
                    attempt.set()  # whoever waited for this one learns how it went
                    self._changed()
                    await self._pause(place, attempt)
        except Exception as error:  # noqa: BLE001 - a fault of ours with this plugin must not end the others
            place.peer, place.health, place.reason = None, "given_up", f"anyplug itself failed with it: {error!r}"
            said = {"message": f"keeping plugin '{place.plugin.name}' up failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(said)
            self.roll += 1
            place.settled.set()
            self._changed()
        finally:
            place.is_ending = False
            place.over.set()
            place.settled.set()

    async def _pause(self, place: Place, attempt: anyio.Event) -> None:
        """Wait before the next attempt, if there is to be one."""
        if place.health != "restarting":
            place.settled.set()
            return
        if place.settled is attempt:  # it never came up; whoever waits since one did waits for the next
            place.settled = anyio.Event()
        await anyio.sleep(PAUSES_S[place.crashes - 1])
        place.restarts += 1

    async def _run_once(self, place: Place) -> None:
        """Start a peer and wait for its end; say in `reason` why it is not up any more."""
        ended = anyio.Event()
        began = time.monotonic()
        peer = start = None
        came_up = False
        how = STOPPED
        try:
            start = await self._start(place.plugin)
            peer = PEERS[place.plugin.format](place.plugin, self._terms(place, start), _Ear(self, place, ended))
            await peer.start()
            place.peer, place.health, place.reason = peer, "running", ""
            came_up = True
            self.roll += 1
            self.note_offer(place, peer)
            place.session = peer.session
            place.settled.set()
            try:
                await ended.wait()
                assert peer.gone is not None
                how = f"ended: {peer.gone.reason}"
                place.reason = self._secrecy(place.plugin).text(str(peer.unavailable("by itself", peer.gone)))
            finally:
                if peer.gone is None:
                    place.peer = None
                    self.roll += 1
                    with anyio.CancelScope(shield=True):
                        await peer.stop()
        except AnyplugError as error:
            place.refusal = error if isinstance(error, NotEnforceable) else None
            if start is not None and isinstance(error, CallError) and "anyplug grant" not in error.hint:
                error.hint = start.cure(f"{error.message}\n{error.metadata.get('stderr', '')}") or error.hint
            self._secrecy(place.plugin).error(error)
            place.reason = f"{error.message} ({error.hint})" if error.hint else error.message
            how = f"did not come up: {error.message}"
        finally:
            if peer is not None:
                place.session = getattr(peer, "session", None) or place.session  # it may have failed before it had one
                self._said(peer, None)
            if start is not None:
                start.release()
            if peer is not None:
                self._log_end(place, peer, how)
        place.came_up = came_up
        place.crashes = 1 if time.monotonic() - began > STEADY_S else place.crashes + 1
        if place.refusal is not None:
            place.health = "given_up"  # trying again changes nothing
        elif peer is not None and not peer.RESTARTS:
            place.health, place.restarts = "idle", place.restarts + 1
        elif place.crashes > len(PAUSES_S):
            place.health = "given_up"
            place.reason = f"{place.crashes} failures in a row, the last: {place.reason}"
        else:
            place.health = "restarting"

    async def _retire(self, place: Place) -> None:
        """Let a place's calls end, for a bounded time, and then the process."""
        with anyio.move_on_after(DRAIN_S):
            while place.is_busy:
                await anyio.sleep(DRAIN_STEP_S)
        await self._end(place)

    async def _end(self, place: Place) -> None:
        place.scope.cancel()
        with anyio.CancelScope(shield=True):
            if place.health != "idle":  # else it never began, or has ended
                await place.over.wait()
        place.health, place.reason, place.before = "idle", "it was stopped", ()
        place.over.set()
        place.settled.set()

    def _log_end(self, place: Place, peer: Peer, how: str) -> None:
        """Write into the log how a run ended, in one line: what it said itself stands above."""
        session = getattr(peer, "session", None)  # it may have been stopped before it had one
        if how == STOPPED and session is not None and session.gone is not None:
            how = f"{how}: {session.gone.reason}"
        said = self._secrecy(place.plugin).text(how).partition("\n")[0]
        logs.append(self._home.log(place.plugin.name), f"{_label(place)} {said}", "")

    def _terms(self, place: Place, start: Start) -> Terms:
        plugin = place.plugin
        path = self._home.log(plugin.name)
        logs.append(path, f"starting {_label(place)}", "")
        secrecy = self._secrecy(plugin)
        return Terms(
            process=place.process,
            home=self._home,
            settings=self._settings.of(plugin.name),
            environment=start.environment,
            greeting=self._greeting,
            spawn=start.spawn,
            tasks=self._tasks,
            log=lambda chunk: logs.append_raw(path, secrecy.data(chunk)),
            secrecy=secrecy,
        )


def _unheard(_peer: Any, _frame: msgspec.Struct | None) -> None:
    """Take note of nothing."""


def _label(place: Place) -> str:
    """Name what runs at a place, for the log."""
    return f"{place.plugin.name} {place.process or place.plugin.version}".rstrip()


class _Ear:
    """What one run of a peer reports to."""

    def __init__(self, peers: Peers, place: Place, ended: anyio.Event) -> None:
        self._peers = peers
        self._place = place
        self._ended = ended
        self._is_noting = False

    def registered(self, peer: Peer) -> None:
        self._peers.roll += 1
        # Before it is ready, its start tells of everything at once; later, many come in one go, too.
        if self._place.peer is peer and not self._is_noting:
            self._is_noting = True
            asyncio.get_running_loop().call_soon(self._note, peer)

    def _note(self, peer: Peer) -> None:
        self._is_noting = False
        self._peers.note_offer(self._place, peer)

    def said(self, peer: Peer, frame: msgspec.Struct) -> None:
        self._peers.heard(peer, frame)

    def ended(self, peer: Peer, gone: PeerGone) -> None:
        self._peers.lost(self._place, peer)
        self._ended.set()
