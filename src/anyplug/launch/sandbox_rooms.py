"""Which spawner starts a plugin's programs: one for each plugin and purpose, held to what the plugin was granted.

A room is one such spawner. It is made when a program of the plugin first runs, and made anew when the plugin, its
grants or what the person set are others; an old one goes when nothing runs in it any more, and so do those that
nobody used lately.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - asyncio would import it later, when files may be short
import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from anyplug.catalog.approvals import Standing
from anyplug.formats import registry
from anyplug.formats.shared import one_shot
from anyplug.home.code_snapshots import Changed
from anyplug.home.location import SCRATCH, known_homes, make_private
from anyplug.home.settings import Home, Settings
from anyplug.launch.own_folder import OwnFolders, View, stamp
from anyplug.launch.sandbox_profiles import Allowances, with_values
from anyplug.model import permissions, protected_paths
from anyplug.model.errors import CURE_FOR_SHORTAGE, NotApproved, NotEnforceable, Unavailable, is_shortage
from anyplug.model.types import Plugin
from anyplug.runtime import thread_lanes
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Purpose, Receipt, Spawn
from anyplug.runtime.sandbox.profile import Profile

if TYPE_CHECKING:
    from anyplug.launch.learning import Learning
    from anyplug.runtime.sandbox.linux.syscall_recorder import Recorder
    from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

T = TypeVar("T")

MOST_IDLE = 16  # rooms that are kept although nothing runs in them: each is a process of 10 MB
OFF = Receipt(layers=(), landlock=0, filter="", limits={})


class Room:
    """Where programs of one plugin run."""

    def __init__(self, spawn: Spawn, basis: object, confined: "ConfinedSpawn | None") -> None:
        self.spawn = spawn
        self.basis = basis  # what it was made from
        self.confined = confined  # None where nothing is held
        self.receipt = confined.receipt if confined is not None else OFF
        self.view: View | None = None  # of the plugin's own folder, which goes with the room
        self.users = 0
        self.is_stale = False
        # An environment that was given, and what became of it in here: nearly every call brings the same one.
        self.given: dict[str, str] = {}
        self.inside: dict[str, str] = {}

    @property
    def is_usable(self) -> bool:
        """Whether programs can be started in it."""
        is_tainted = self.view is not None and bool(self.view.intruder)
        return (self.confined is None or self.confined.is_alive) and not is_tainted

    def close(self) -> None:
        """End what runs in it. Blocks."""
        if self.confined is not None:
            self.confined.close()
        if self.view is not None:
            self.view.close()

    @property
    def has_own_tmp(self) -> bool:
        """Whether each start can have a /tmp of its own."""
        return self.confined is not None and "mounts" in self.confined.enforcement.held


class Confinement:
    """The rooms of one host."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        guard: Guard,
        direct: Spawn,
        project: str,
        own_folders: OwnFolders | None,
        learning: "Learning | None" = None,
        variables: Mapping[str, str] = os.environ,
        tell: Callable[[Plugin, str], None] = lambda *_: None,
        runs: tuple[str, ...] = (),
    ) -> None:
        """Make no room yet.

        `direct` starts programs where confinement is switched off. `own_folders` shows plugins theirs from snapshots,
        unless it is None. `learning` watches a plugin. `variables` are the user's: programs are looked for on that
        PATH. `tell` hears which hosts a plugin was refused. Programs in the folders `runs` may run, too.
        """
        self._home = home
        self._settings = settings
        self._guard = guard
        self._direct = direct
        self._project = project
        self._own_folders = own_folders
        self._learning = learning
        folders = own_folders.plugin_folders if own_folders is not None else frozenset
        self._plugin_folders = folders
        self._allowances = Allowances(home, settings, project, variables, folders, runs)
        self._tell = tell
        self._rooms: dict[tuple[str, Purpose], Room] = {}  # who was used last comes last
        self._receipts: dict[str, Receipt] = {}  # of the rooms in which plugins ran last
        self._making: dict[tuple[str, Purpose], anyio.Lock] = {}
        self._stale: list[Room] = []
        self._is_closed = False

    @property
    def is_on(self) -> bool:
        """Whether plugins are held to their permissions at all."""
        return self._settings.is_confining

    def follow(self, settings: Settings) -> None:
        """Make rooms by other settings from now on; what runs in one stays there until it ends."""
        self._settings = self._allowances.settings = settings

    async def enter(self, plugin: Plugin, standing: Standing, purpose: Purpose = "run") -> Room:
        """Return the room for a plugin's programs; `leave` it when they have ended.

        Raises NotEnforceable; or Unavailable, if a folder of the plugin's cannot be made, the machine is short of
        something, or the host has ended.
        """
        key = (plugin.path, purpose)
        # What is being set up has no digest yet: its scripts may be others each time that they are resolved.
        code = standing.digest or (object() if purpose == "resolve" else "")
        rights = (code, standing.granted, standing.unconfined)
        basis = (rights, self._settings.of_room(plugin.name), self._folders(plugin, standing))
        if self.is_on and purpose == "run":
            await self._tidy(plugin, standing)
        room = self._current(key, basis)
        if room is None:
            async with self._making.setdefault(key, anyio.Lock()):
                room = self._current(key, basis)  # somebody may have been faster
                if room is None:
                    if key in self._rooms:
                        self._put_away(self._rooms.pop(key))
                    if purpose == "run":
                        self._receipts.pop(plugin.path, None)
                    with anyio.CancelScope(shield=True):  # it takes a moment, and else nobody would close it
                        room = await self._make(plugin, standing, purpose, basis)
                    self._thin_out()
        assert room is not None
        self._rooms.pop(key, None)
        self._rooms[key] = room
        if self._is_closed:  # while it was made: whoever closed the others has not seen this one
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.close)
            raise _ended()
        if purpose == "run":
            self._receipts[plugin.path] = room.receipt
        room.users += 1
        return room

    def leave(self, room: Room) -> None:
        """Say that what ran in it has ended."""
        room.users -= 1
        if room.is_stale and not room.users:
            self._close_soon(room)

    def see_that_nothing_came(self, plugin: Plugin) -> None:
        """See to it that no code came into a plugin's folder while it ran; raises NotApproved."""
        for room in (self._rooms.get((plugin.path, "run")), *self._stale):
            if room is not None and room.view is not None and room.view.own == plugin.path and room.view.intruder:
                raise NotApproved(plugin.name, "changed", (room.view.intruder,))

    def receipt(self, plugin: Plugin) -> Receipt | None:
        """Say what a plugin's programs are held by; None if none has run."""
        return self._receipts.get(plugin.path)

    def cure(
        self,
        plugin: Plugin,
        standing: Standing,
        said: str,
        withheld: frozenset[str] = frozenset(),
        purpose: Purpose = "run",
    ) -> str:
        """Say which grants would help a plugin that failed, by what it said; empty if none would, as far as is seen.

        `withheld` are variables that it does not see.
        """
        from anyplug.launch import missing_grants  # its patterns take 9 ms to compile, and only what fails needs them

        lack = missing_grants.variables(said, withheld)
        if self.is_on and sys.platform == "linux" and missing_grants.speaks_of_one(said):
            lack += missing_grants.read(
                said,
                missing_grants.Scene(
                    profile=self._allowances.profile(plugin, standing, purpose),
                    cwd=self._project if registry.BY_NAME[plugin.format].RUNS_IN_PROJECT else plugin.path,
                    user=os.path.expanduser("~"),
                    project=self._project,
                    find=self._allowances.program_files,
                ),
            )
        return missing_grants.cure(plugin, lack, is_new=purpose == "init")

    def close(self) -> None:
        """Close every room, with whatever still runs in it; no more can be entered. Blocks: call it in a thread."""
        self._is_closed = True
        for room in (*self._rooms.values(), *self._stale):
            room.close()
        self._rooms.clear()
        self._stale.clear()

    async def _make(self, plugin: Plugin, standing: Standing, purpose: Purpose, basis: object) -> Room:
        if not self.is_on:
            return Room(self._direct, basis, None)
        if sys.platform != "linux":
            if standing.unconfined:
                return Room(self._direct, basis, None)
            raise NotEnforceable(plugin.name, f"nothing is confined on {sys.platform} yet", "")
        learning = self._learning if self._learning and self._learning.is_about(plugin, purpose) else None
        widened = learning.widened(standing) if learning else standing
        profile = await self._profile(plugin, widened, purpose)
        view = await self._view(plugin, standing, purpose)
        profile = profile if view is None else view.added_to(profile)
        for folder in profile.measured:
            one_shot.make_folder(folder)
        make_private(os.path.join(self._home.path, SCRATCH))  # the spawner takes hold of it before it covers our home
        # 15 ms with ctypes, and only a host that starts something needs it.
        from anyplug.runtime.sandbox.enforcement import NotEnforceable as NotHeld
        from anyplug.runtime.sandbox.enforcement import Shortage

        recorder = learning.recorder() if learning else None
        tell = functools.partial(_call_soon, asyncio.get_running_loop(), self._tell, plugin)
        make = functools.partial(self._spawner, plugin, profile, standing.unconfined, recorder, tell)
        try:
            confined = await anyio.to_thread.run_sync(make)
        except NotHeld as refusal:
            if view is not None:
                await anyio.to_thread.run_sync(view.close)
            if self._is_closed:
                raise _ended() from refusal
            if isinstance(refusal, Shortage):
                reason = f"plugin '{plugin.name}' cannot be confined just now, and was not run: {refusal.reason}"
                raise Unavailable(reason, refusal.cure) from refusal
            raise NotEnforceable(plugin.name, str(refusal), refusal.cure) from refusal
        room = Room(confined, basis, confined)
        room.view = view
        if view is not None:
            view.keeps_names = "overlay" not in confined.enforcement.refused
        return room

    async def _profile(self, plugin: Plugin, standing: Standing, purpose: Purpose) -> Profile:
        """Draw what a plugin's programs may do; in a thread, because that goes through all of its files."""
        try:
            return await thread_lanes.run(plugin.path, self._allowances.profile, plugin, standing, purpose)
        except OSError as error:
            raise Unavailable(
                f"the files of '{plugin.name}' cannot be looked at: {error.filename}: {error.strerror}",
                f"look at it with `anyplug show {plugin.name}`, then call it again",
            ) from error

    async def keep(self, plugin: Plugin, digest: str, tell: Callable[[str], None]) -> None:
        """Make the snapshot from which a plugin will run, if it will; raises NotApproved, or Unavailable."""
        folders = self._folders_shown(plugin) if self.is_on else None
        if folders is not None:
            if folders.is_large(plugin):
                tell(f"copying the files of plugin '{plugin.name}': it runs from this copy")
            await self._copied(plugin, functools.partial(folders.keep, plugin, digest))

    def _folders_shown(self, plugin: Plugin) -> OwnFolders | None:
        """Return what shows a plugin its own folder; None if it runs from the folder itself."""
        folders = self._own_folders
        is_shown = folders is not None and folders.shows(plugin, namespaces=self._settings.namespaces)
        return folders if is_shown else None

    async def _view(self, plugin: Plugin, standing: Standing, purpose: Purpose) -> View | None:
        """Return the view of a plugin's own folder, if it runs from a snapshot; raises NotApproved, or Unavailable."""
        folders = self._folders_shown(plugin) if purpose != "init" else None
        if folders is None:
            return None
        return await self._copied(plugin, functools.partial(folders.view, plugin, standing, purpose))

    async def _copied(self, plugin: Plugin, copy: Callable[[], T]) -> T:
        """Copy in a thread what a plugin runs from; raises NotApproved, or Unavailable."""
        try:
            return await anyio.to_thread.run_sync(copy)
        except Changed as change:
            if plugin.explicit:
                raise Unavailable(f"plugin '{plugin.name}' was not started: {change}", "call it again") from change
            raise NotApproved(plugin.name, "changed", (str(change),)) from change
        except OSError as error:
            cure = "check the disk's space and the permissions of anyplug's home folder"
            raise Unavailable(
                f"plugin '{plugin.name}' was not started, because no copy of its code can be kept: {error}",
                CURE_FOR_SHORTAGE if is_shortage(error) else cure,
            ) from error

    async def _tidy(self, plugin: Plugin, standing: Standing) -> None:
        """Take code away that a plugin wrote over its own, and the room in which it would still be seen."""
        if self._own_folders is None or not self._own_folders.has_written(plugin, standing):
            return
        try:
            had_code = await thread_lanes.run(plugin.path, self._own_folders.tidy, plugin)
        except OSError as error:
            raise Unavailable(
                f"what '{plugin.name}' wrote into its folder cannot be looked through: {error.strerror}",
                f"delete what it does not need in {self._home.beside(plugin)}",
            ) from error
        if had_code:
            room = self._rooms.pop((plugin.path, "run"), None)
            if room is not None:
                self._put_away(room)

    def _spawner(
        self,
        plugin: Plugin,
        profile: Profile,
        tolerant: bool,
        recorder: "Recorder | None",
        tell: Callable[[str], None],
    ) -> "ConfinedSpawn":
        # As above.
        from anyplug.runtime.sandbox.enforcement import wanted_layers
        from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

        layers = wanted_layers(namespaces=self._settings.namespaces)
        return ConfinedSpawn(
            self._guard, profile, layers=layers, tolerant=tolerant, recorder=recorder, owner=plugin.name, tell=tell
        )

    def _folders(self, plugin: Plugin, standing: Standing) -> tuple[int, ...]:
        """Say which folders these are now: a room shows those that were there when it was made."""
        if not self.is_on:
            return ()
        data = registry.BY_NAME[plugin.format].data(plugin, self._home)
        found = [_identity(plugin.path), *stamp(plugin)]
        for folder in (data, self._home.cache(plugin)):
            one_shot.make_folder(folder)
            found.append(_identity(folder))
        scopes = (permissions.scope_of(grant) for grant in standing.granted if grant.startswith("filesystem:"))
        found += [_identity(os.path.join(self._project, os.path.expanduser(scope))) for scope in scopes if scope]
        if any(grant.startswith("filesystem:") for grant in standing.granted):
            # What appears later is to be hidden and protected, too.
            found += map(_identity, protected_paths.places(os.path.expanduser("~"), "").hidden)
            folders = self._plugin_folders()
            found.append(hash((folders, with_values(folders), *known_homes())))
            found.append(_identity(os.path.join(self._project, ".git", "config")))  # git replaces it with each change
        return tuple(found)

    def _current(self, key: tuple[str, Purpose], basis: object) -> Room | None:
        room = self._rooms.get(key)
        return room if room is not None and room.basis == basis and room.is_usable else None

    def _put_away(self, room: Room) -> None:
        room.is_stale = True
        self._stale.append(room)
        if not room.users:
            self._close_soon(room)

    def _close_soon(self, room: Room) -> None:
        self._stale.remove(room)
        if room.confined is not None:
            asyncio.get_running_loop().run_in_executor(None, room.close)

    def _thin_out(self) -> None:
        """Close those that nobody used for longest, if too many have nothing to do."""
        idle = [key for key, room in self._rooms.items() if not room.users and room.confined is not None]
        for key in idle[: max(0, len(idle) - MOST_IDLE)]:
            self._put_away(self._rooms.pop(key))


def _ended() -> Unavailable:
    return Unavailable("the host has ended meanwhile", "call it in one that is up")


def _call_soon(loop: asyncio.AbstractEventLoop, tell: Callable[[Plugin, str], None], plugin: Plugin, text: str) -> None:
    """Tell in the host's own thread."""
    try:
        loop.call_soon_threadsafe(tell, plugin, text)
    except RuntimeError:  # it has ended, and nobody is there to be told
        pass


def _identity(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
