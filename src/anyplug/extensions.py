"""The extensions that are up: starts, watches over, restarts and retires them, in the order in which they load.

An extension that crashed is started again after a pause that grows; after several crashes in a row it is given
up, with the reason, until somebody asks for it again. One that has run for a while starts with a clean slate.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Literal

import anyio
import anyio.abc
import msgspec

from anyplug import logs, offers
from anyplug.errors import AnyplugError, Unavailable
from anyplug.formats.zot import format as zot
from anyplug.formats.zot.extension import Extension, Greeting
from anyplug.model import Command, Plugin
from anyplug.offers import Offer
from anyplug.runtime.program import Program, Spawn
from anyplug.runtime.session import PeerGone
from anyplug.settings import Home, Settings, zot_home
from anyplug.store import Store

HELLO_S = 10.0
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)  # before each restart; after the last one it is given up
STEADY_S = 60.0  # a run of this length forgives the crashes before it

Health = Literal["idle", "running", "restarting", "given_up"]


class Wanted(msgspec.Struct, frozen=True):
    """An extension that should run, as it is now."""

    plugin: Plugin
    digest: str
    at_once: bool = True  # else only when it is first needed, if what it offers is known


class Running:
    """One extension's place: what runs there now, and how it went so far."""

    def __init__(self, wanted: Wanted, offer: Offer | None) -> None:
        self.plugin = wanted.plugin
        self.digest = wanted.digest
        self.offer = offer  # of this digest, if it ever ran
        self.extension: Extension | None = None
        self.health: Health = "idle"
        self.reason = ""  # why it is not up
        self.restarts = 0
        self.crashes = 0  # in a row
        self.settled = anyio.Event()  # it is up, or the attempt to start it failed
        self.scope = anyio.CancelScope()  # of the task that keeps it up
        self.over = anyio.Event()  # that task has ended, and with it the process

    def guards(self, event: str) -> bool:
        """Whether it decides about an event; one that never ran may."""
        return self.offer is None or event in self.offer.intercepts


class Extensions:
    """All extensions of a host. Its tasks live in the host's task group."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        store: Store,
        *,
        spawn: Spawn,
        environment: Callable[[Plugin], dict[str, str]],
        tasks: anyio.abc.TaskGroup,
        changed: Callable[[], None],
        said: Callable[[Extension, msgspec.Struct | None], None],
        greeting: Greeting,
    ) -> None:
        """Start nothing yet. `said` hears frames that nobody asked for, and None when an extension has ended."""
        self._home = home
        self._settings = settings
        self._store = store
        self._spawn = spawn
        self._environment = environment
        self._tasks = tasks
        self._changed = changed
        self._said = said
        self._greeting = greeting
        self._places: dict[str, Running] = {}

    @property
    def up(self) -> list[Extension]:
        """Those that run, in load order."""
        return [place.extension for place in self._places.values() if place.extension is not None]

    @property
    def places(self) -> list[Running]:
        """Every extension that should run, up or not, in load order."""
        return list(self._places.values())

    def place(self, plugin: Plugin) -> Running | None:
        """Give an extension's place."""
        return self._places.get(plugin.path)

    async def sync(self, wanted: list[Wanted]) -> None:
        """Run just these; those that have another digest now are started anew.

        Gives back when each is up, or failed to start once: what is tried again holds nobody up.
        """
        keep = {one.plugin.path: one for one in wanted}
        gone = [place for path, place in self._places.items() if path not in keep or keep[path].digest != place.digest]
        for place in gone:
            del self._places[place.plugin.path]
        before, self._places = self._places, {}
        fresh: list[tuple[Running, bool]] = []
        for path, one in keep.items():
            if path not in before:
                place = Running(one, offers.stored(self._store, one.plugin, one.digest))
                fresh.append((place, one.at_once or place.offer is None or place.offer.must_run))
                before[path] = place
            self._places[path] = before[path]
        async with anyio.create_task_group() as tasks:
            for place in gone:
                tasks.start_soon(self._retire, place)
        begun = [place for place, at_once in fresh if at_once]
        attempts = [place.settled for place in begun]  # the next attempt has an event of its own
        for place in begun:
            self._begin(place)
        for settled in attempts:
            await settled.wait()

    async def stop(self, plugin: Plugin) -> None:
        """Let one of them leave; the next `sync` starts it with a clean slate."""
        place = self._places.pop(plugin.path, None)
        if place is not None:
            await self._retire(place)

    async def peer(self, plugin: Plugin) -> Extension:
        """Give a running extension, waiting for one that is on its way; raises Unavailable."""
        place = self._places.get(plugin.path)
        if place is None:
            raise Unavailable(f"extension '{plugin.name}' is not running", f"`anyplug show {plugin.name}` says why")
        if place.health == "idle":
            self._begin(place)
        if place.extension is None:
            await place.settled.wait()
        if place.extension is None:
            raise Unavailable(
                f"extension '{plugin.name}' is not running: {place.reason}",
                f"`anyplug logs {plugin.name}` shows what it said; mend it and try again (`host.reload` in a program)",
            )
        return place.extension

    def lost(self, place: Running, extension: Extension) -> None:
        """Note at once that an extension has ended, so that nobody is sent to the dead."""
        if place.extension is extension:
            place.extension, place.health, place.settled = None, "restarting", anyio.Event()

    async def stop_all(self) -> None:
        """Let all of them leave, at the same time."""
        places, self._places = list(self._places.values()), {}
        async with anyio.create_task_group() as tasks:
            for place in places:
                tasks.start_soon(self._retire, place)

    def _begin(self, place: Running) -> None:
        place.health = "restarting"
        self._tasks.start_soon(self._keep_up, place)

    async def _keep_up(self, place: Running) -> None:
        """Run an extension, again and again, until it is retired or given up."""
        try:
            with place.scope:
                while place.health != "given_up":
                    await self._run_once(place)
                    place.settled.set()  # whoever waited for this attempt learns how it went
                    self._changed()
                    if place.health == "restarting":
                        place.settled = anyio.Event()
                        place.restarts += 1
                        await anyio.sleep(PAUSES_S[place.crashes - 1])
        finally:
            place.over.set()

    async def _run_once(self, place: Running) -> None:
        """Start an extension and wait for its end; say in `reason` why it is not up any more."""
        ended = anyio.Event()
        extension = Extension(place.plugin, _Ear(self, place, ended), self._greeting)
        began = time.monotonic()
        try:
            await extension.start(
                self._program(place.plugin), self._spawn, self._logger(place.plugin), self._hello_s(place.plugin)
            )
            place.extension, place.health, place.reason = extension, "running", ""
            self.note_offer(place, extension)
            place.settled.set()
            if "session_start" in extension.events:
                extension.tell({"type": "event", "event": "session_start"})
            await ended.wait()
            assert extension.session.gone is not None
            place.reason = extension.unavailable("by itself", extension.session.gone).message
        except AnyplugError as error:
            place.reason = f"{error.message} ({error.hint})" if error.hint else error.message
        finally:
            if extension.is_started and extension.session.gone is None:
                place.extension = None
                with anyio.CancelScope(shield=True):
                    await extension.stop()
            self._said(extension, None)
        place.crashes = 1 if time.monotonic() - began > STEADY_S else place.crashes + 1
        place.health = "given_up" if place.crashes > len(PAUSES_S) else "restarting"

    async def _retire(self, place: Running) -> None:
        place.scope.cancel()
        with anyio.CancelScope(shield=True):
            if place.health != "idle":  # else it never began
                await place.over.wait()
        place.health, place.reason = "idle", "it was stopped"
        place.settled.set()

    def note_offer(self, place: Running, extension: Extension) -> None:
        """Keep what an extension registered, and say that there is something else to call."""
        place.offer = Offer(
            tools=zot.tools(extension),
            commands=tuple(
                Command(name=name, plugin=place.plugin.name, description=command.description)
                for name, command in extension.commands.items()
            ),
            events=tuple(sorted(extension.events)),
            intercepts=tuple(sorted(extension.intercepts)),
            warnings=tuple(extension.warnings),
        )
        if not place.plugin.explicit:
            offers.save(self._store, place.plugin, place.digest, place.offer)
        self._changed()

    def heard(self, extension: Extension, frame: msgspec.Struct) -> None:
        """Pass on what an extension said on its own account."""
        self._said(extension, frame)

    def _program(self, plugin: Plugin) -> Program:
        assert plugin.launch is not None
        return Program(
            argv=(plugin.launch.program, *plugin.launch.arguments),
            cwd=plugin.path,
            env=self._environment(plugin),
        )

    def _hello_s(self, plugin: Plugin) -> float:
        return self._settings.of(plugin.name).hello_s or HELLO_S

    def _logger(self, plugin: Plugin) -> Callable[[bytes], None]:
        path = self._home.log(plugin.name)
        if os.path.dirname(plugin.found_at) == os.path.join(zot_home(), "extensions"):
            logs.link(path, os.path.join(zot_home(), "logs", f"ext-{plugin.name}.log"))
        logs.append(path, f"starting {plugin.name} {plugin.version}".rstrip(), "")
        return lambda chunk: logs.append_raw(path, chunk)


class _Ear:
    """What one run of an extension reports to."""

    def __init__(self, extensions: Extensions, place: Running, ended: anyio.Event) -> None:
        self._extensions = extensions
        self._place = place
        self._ended = ended
        self._is_noting = False

    def registered(self, extension: Extension) -> None:
        # Before it is ready, its start tells of everything at once; later, many come in one go, too.
        if self._place.extension is extension and not self._is_noting:
            self._is_noting = True
            asyncio.get_running_loop().call_soon(self._note, extension)

    def _note(self, extension: Extension) -> None:
        self._is_noting = False
        self._extensions.note_offer(self._place, extension)

    def said(self, extension: Extension, frame: msgspec.Struct) -> None:
        self._extensions.heard(extension, frame)

    def ended(self, extension: Extension, gone: PeerGone) -> None:
        self._extensions.lost(self._place, extension)
        self._ended.set()
