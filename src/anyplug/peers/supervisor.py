"""Keep one process of a plugin running: start it, wait for its end, restart it, or give it up.

A crashed process is restarted after a growing pause; after several crashes in a row it is given up, with the reason.
From then on it is tried once after each cool-down, or when somebody requests it. A long run, or one with many good
answers, starts the count over. Plugins of formats that need not run all the time are restarted when next needed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import anyio
import anyio.abc
import msgspec

from anyplug.catalog.catalog import Catalog
from anyplug.formats import registry
from anyplug.formats.shared.contract import Greeting, Peer, Terms
from anyplug.home import plugin_logs
from anyplug.home.settings import Settings
from anyplug.launch.surroundings import Start
from anyplug.model.errors import AnyplugError, CallError, NotEnforceable
from anyplug.model.types import Plugin
from anyplug.peers.slot import Slot
from anyplug.runtime import thread_lanes
from anyplug.runtime.session.session import PeerGone
from anyplug.secrets.redaction import Redaction

PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)  # before each restart; after the last one it is given up
COOL_DOWNS_S = (30.0, 120.0, 600.0)  # before each try of one that was given up; the last one repeats
STEADY_S = 60.0  # a run of this length resets the count of crashes
STEADY_ANSWERS = 10  # and so does one with this many good answers
SLOW_S = 5.0  # of a start, before people are told; nearly all take less than one
DRAIN_S = 30.0  # how long running calls may delay the end of what is replaced
DRAIN_STEP_S = 0.01
STOPPED = "was stopped by the host"


class Watcher(Protocol):
    """Is told about the state of all places of a host."""

    def stirred(self) -> None:
        """Record that a process started, ended or registered something."""
        ...

    def changed(self) -> None:
        """Report that what can be called may have changed."""
        ...

    def note_offer(self, place: Slot, peer: Peer) -> None:
        """Record that a peer's offer changed."""
        ...

    def said(self, peer: Any, frame: msgspec.Struct | None) -> None:
        """Pass on a peer's own message; None if it has ended."""
        ...


class Supervisor:
    """Keeps the processes of one host running. Its tasks live in the host's task group."""

    def __init__(
        self,
        catalog: Catalog,
        watcher: Watcher,
        *,
        start: Callable[[Plugin], Awaitable[Start]],
        secrecy: Callable[[Plugin], Redaction],
        tasks: anyio.abc.TaskGroup,
        greeting: Greeting,
        tell: Callable[[str], None],
    ) -> None:
        """Start nothing yet. `start` returns what a plugin is started with, `secrecy` what masks its secrets.

        `tell` is called about a slow start: somebody may be waiting for it.
        """
        self._home = catalog.home
        self._settings = catalog.settings
        self._watcher = watcher
        self._start = start
        self._secrecy = secrecy
        self._tasks = tasks
        self._greeting = greeting
        self._tell = tell

    def follow(self, settings: Settings) -> None:
        """Use new settings for future starts."""
        self._settings = settings

    def begin(self, place: Slot) -> None:
        """Start the process of a place, and keep it running."""
        place.begin()
        self._tasks.start_soon(self._keep_up, place)

    async def retire(self, place: Slot) -> None:
        """Let a place's calls end, for a limited time, and then the process."""
        with anyio.move_on_after(DRAIN_S):
            while place.is_busy:
                await anyio.sleep(DRAIN_STEP_S)
        await self.end(place)

    async def end(self, place: Slot) -> None:
        """End a place's process now."""
        place.scope.cancel()
        with anyio.CancelScope(shield=True):
            if place.health != "idle":  # otherwise it never began, or has ended
                await place.over.wait()
        place.empty()

    async def _keep_up(self, place: Slot) -> None:
        """Run the process of a place, again and again, until it is retired, given up or not needed."""
        try:
            with place.scope:
                for replaced in place.before:
                    await replaced.over.wait()
                place.before = ()
                while place.health == "restarting":
                    attempt = place.settled
                    await self._run_once(place)
                    attempt.set()  # tell those who waited for this attempt
                    self._watcher.changed()
                    await self._pause(place, attempt)
                    await self._cool_down(place)
        except Exception as error:  # noqa: BLE001 - a fault of ours with this plugin must not end the others
            place.peer, place.health, place.reason = (
                None,
                "given_up",
                (f"anyplug itself failed while running it: {error!r}"),
            )
            said = {"message": f"keeping plugin '{place.plugin.name}' running failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(said)
            self._watcher.stirred()
            place.settled.set()
            self._watcher.changed()
        finally:
            place.is_ending = False
            place.over.set()
            place.settled.set()

    async def _pause(self, place: Slot, attempt: anyio.Event) -> None:
        """Wait before the next attempt, if there is one."""
        if place.health != "restarting":
            place.settled.set()
            return
        if place.settled is attempt:  # it never started; those who wait since then wait for the next
            place.settled = anyio.Event()
        await anyio.sleep(PAUSES_S[place.crashes - 1])
        place.restarts += 1

    async def _cool_down(self, place: Slot) -> None:
        """If a place was given up, wait before it is tried once more. Nothing that is tried again changes a refusal."""
        if place.health != "given_up" or place.refusal is not None:
            return
        pause_s = COOL_DOWNS_S[min(place.cool_downs, len(COOL_DOWNS_S) - 1)]
        place.cool_downs += 1
        place.reason += f"; the next try is at {time.strftime('%H:%M:%S', time.localtime(time.time() + pause_s))}"
        self._watcher.changed()
        await anyio.sleep(pause_s)
        place.settled, place.health = anyio.Event(), "restarting"  # calls wait for this one try
        place.restarts += 1

    async def _run_once(self, place: Slot) -> None:
        """Run a place's peer from its start to its end, and decide whether it is restarted."""
        began, ended = time.monotonic(), anyio.Event()
        start: Start | None = None
        peer: Peer | None = None
        came_up, how, place.answers = False, STOPPED, 0
        try:
            start = await self._start(place.plugin)
            ear = _Reports(self._watcher, place, ended)
            peer = registry.peer(place.plugin, self._terms(place, start), ear)
            with self._telling_if_slow(place):
                await peer.start()
            came_up = True
            how = await self._stay_up(place, peer, ended)
        except AnyplugError as error:
            await self._explain(place, start, error)
            how = f"did not start: {error.message}"
        finally:
            if peer is not None:
                place.session = getattr(peer, "session", None) or place.session  # it may have failed before it had one
                self._watcher.said(peer, None)
            if start is not None:
                start.release()
            if peer is not None:
                self._log_end(place, peer, how)
        place.came_up = came_up
        if time.monotonic() - began > STEADY_S or place.answers >= STEADY_ANSWERS:
            place.crashes = place.cool_downs = 0
        place.crashes += 1
        _decide(place, is_restarted=peer is None or peer.RESTARTS)

    @contextmanager
    def _telling_if_slow(self, place: Slot) -> Iterator[None]:
        name = place.plugin.name
        said = f"{name} is still starting; `anyplug logs {name} -f` shows its output"
        timer = asyncio.get_running_loop().call_later(SLOW_S, self._tell, said)
        try:
            yield
        finally:
            timer.cancel()

    async def _stay_up(self, place: Slot, peer: Peer, ended: anyio.Event) -> str:
        """Keep a started peer in its place until it ends, or should end; return how it ended."""
        try:
            place.fill(peer)
            self._watcher.note_offer(place, peer)
            place.settled.set()
            await ended.wait()
        finally:
            if peer.gone is None:
                place.peer = None
                self._watcher.stirred()
                with anyio.CancelScope(shield=True):
                    await peer.stop()
        assert peer.gone is not None
        place.reason = self._secrecy(place.plugin).text(str(peer.unavailable("by itself", peer.gone)))
        return f"ended: {peer.gone.reason}"

    async def _explain(self, place: Slot, start: Start | None, error: AnyplugError) -> None:
        """Store why a peer did not start, with the grant that it seems to lack, and its secrets masked."""
        place.refusal = error if isinstance(error, NotEnforceable) else None
        if start is not None and isinstance(error, CallError) and "anyplug grant" not in error.hint:
            said = f"{error.message}\n{error.metadata.get('stderr', '')}"
            error.hint = await thread_lanes.run(place.plugin.path, start.cure, said) or error.hint
        self._secrecy(place.plugin).error(error)
        place.reason = f"{error.message} ({error.hint})" if error.hint else error.message

    def _log_end(self, place: Slot, peer: Peer, how: str) -> None:
        """Log how a run ended, in one line; its own output is above."""
        session = getattr(peer, "session", None)  # it may have been stopped before it had one
        if how == STOPPED and session is not None and session.gone is not None:
            how = f"{how}: {session.gone.reason}"
        said = self._secrecy(place.plugin).text(how).partition("\n")[0]
        plugin_logs.append(self._home.log(place.plugin), f"{_label(place)} {said}", "")

    def _terms(self, place: Slot, start: Start) -> Terms:
        plugin = place.plugin
        path = self._home.log(plugin)
        plugin_logs.append(path, f"starting {_label(place)}", "")
        secrecy = self._secrecy(plugin)
        return Terms(
            process=place.process,
            home=self._home,
            settings=self._settings.of(plugin.name),
            environment=start.environment,
            granted=place.rights[0],
            greeting=self._greeting,
            spawn=start.spawn,
            tasks=self._tasks,
            log=lambda chunk: plugin_logs.append_raw(path, secrecy.data(chunk)),
            secrecy=secrecy,
        )


def _decide(place: Slot, *, is_restarted: bool) -> None:
    """Decide what becomes of a place whose peer has ended, or did not start."""
    if place.refusal is not None:
        place.health = "given_up"  # trying again changes nothing
    elif not is_restarted:
        place.health, place.restarts = "idle", place.restarts + 1
    elif place.crashes > len(PAUSES_S):
        place.health = "given_up"
        place.reason = f"{place.crashes} failures in a row, the last: {place.reason}"
    else:
        place.health = "restarting"


def _label(place: Slot) -> str:
    """Name a place's process, for the log."""
    plugin = place.plugin
    process = "" if place.process == plugin.name else place.process or plugin.version
    return f"{plugin.name} {process}".rstrip()


class _Reports:
    """Receives the reports of one run of a peer."""

    def __init__(self, watcher: Watcher, place: Slot, ended: anyio.Event) -> None:
        self._watcher = watcher
        self._place = place
        self._ended = ended
        self._is_noting = False

    def registered(self, peer: Peer) -> None:
        self._watcher.stirred()
        # Before it is ready, its start reports everything at once; later, many come together, too.
        if self._place.peer is peer and not self._is_noting:
            self._is_noting = True
            asyncio.get_running_loop().call_soon(self._note, peer)

    def _note(self, peer: Peer) -> None:
        self._is_noting = False
        self._watcher.note_offer(self._place, peer)

    def said(self, peer: Peer, frame: msgspec.Struct) -> None:
        self._watcher.said(peer, frame)

    def ended(self, peer: Peer, gone: PeerGone) -> None:
        if self._place.peer is peer:  # at once, so that nothing is sent to the dead process
            self._place.lose(peer)
            self._watcher.stirred()
        self._ended.set()
