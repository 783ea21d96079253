"""Choose the spawner that starts a plugin's programs: one per plugin and purpose, limited to the plugin's grants.

A room is one such spawner. It is created when a program of the plugin first runs, and replaced when the plugin, its
grants or the settings change. An old room is closed when nothing runs in it any more, and so are rooms that were not
used recently.
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
import msgspec

from anyplug.catalog.approvals import Standing
from anyplug.formats import registry
from anyplug.home.code_snapshots import Changed
from anyplug.home.digest import CONFIG
from anyplug.home.location import SCRATCH, known_homes, make_private
from anyplug.home.settings import Home, Settings
from anyplug.launch import file_arguments
from anyplug.launch.own_folder import OwnFolders, View, stamp
from anyplug.launch.run_files import make_folder
from anyplug.launch.sandbox_profiles import Allowances, with_values
from anyplug.model import permissions, protected_paths
from anyplug.model.errors import CURE_FOR_SHORTAGE, NotApproved, NotEnforceable, Unavailable, is_shortage
from anyplug.model.types import Call, Plugin
from anyplug.runtime import thread_lanes
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Purpose, Receipt, Spawn
from anyplug.runtime.sandbox.profile import SHARED_TMP, Profile

if TYPE_CHECKING:
    from anyplug.launch.learning import Learning
    from anyplug.runtime.sandbox.linux.syscall_recorder import Recorder
    from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

T = TypeVar("T")

MOST_IDLE = 16  # rooms that are kept while idle: each is a process of 10 MB
PROFILES = "profiles"  # the lane in which they are built: in more threads at once, they wait for each other
OFF = Receipt(layers=(), landlock=0, filter="", limits={})


class Room:
    """The sandbox in which one plugin's programs run."""

    def __init__(self, spawn: Spawn, basis: object, confined: "ConfinedSpawn | None") -> None:
        self.spawn = spawn
        self.basis = basis  # what it was created from
        self.confined = confined  # None if nothing is confined
        self.receipt = confined.receipt if confined is not None else OFF
        self.view: View | None = None  # of the plugin's own folder, closed with the room
        self.around: set[str] = set()  # what it may change or see, or was already told about
        self.users = 0
        self.is_stale = False
        # The last environment passed in, and the result: nearly every call passes the same one.
        self.given: dict[str, str] = {}
        self.inside: dict[str, str] = {}

    @property
    def is_usable(self) -> bool:
        """Whether programs can be started in it."""
        is_tainted = self.view is not None and bool(self.view.intruder)
        return (self.confined is None or self.confined.is_alive) and not is_tainted

    def extend(self, protected: tuple[str, ...], hidden: tuple[str, ...]) -> bool:
        """Protect and hide further paths from what runs in it; return False if it has to be closed instead. Blocks."""
        confined = self.confined
        if confined is None or confined.profile is None:
            return True
        profile, known = confined.profile, self.around
        more = [path for path in protected if path not in known] if profile.brokered else []
        secret = (
            [path for path in hidden if path not in known and os.path.dirname(path) not in known]
            if profile.secret
            else []
        )
        if not (more or secret) or not confined.is_alive:  # last: each new plugin asks this of all others
            return True
        try:
            is_done = confined.extend(more, secret)
        except OSError:
            return not confined.is_alive
        known.update(more, secret)
        return is_done or not confined.is_alive

    def close(self) -> None:
        """Kill what runs in it. Blocks."""
        if self.confined is not None:
            self.confined.close()
        if self.view is not None:
            self.view.close()

    @property
    def has_own_tmp(self) -> bool:
        """Whether each start can have its own /tmp."""
        return self.confined is not None and "mounts" in self.confined.enforcement.held

    @property
    def is_granted_tmp(self) -> bool:
        """Whether the machine's /tmp was granted by name."""
        profile = self.confined.profile if self.confined is not None else None
        return profile is not None and not {"/", SHARED_TMP[0]}.isdisjoint(profile.exact)

    @property
    def writes_tmp(self) -> bool:
        """Whether its programs can write to what they see as /tmp."""
        profile = self.confined.profile if self.confined is not None else None
        return profile is None or profile.private_tmp or not {"/", SHARED_TMP[0]}.isdisjoint(profile.writable)


class Rooms:
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
        """Create no room yet.

        `direct` starts programs if confinement is disabled. `own_folders` shows plugins their folders from snapshots,
        unless it is None. `learning` observes a plugin. `variables` are the user's: programs are looked up in that
        PATH. `tell` is called with each host that a plugin was refused. Programs in the folders `runs` may run, too.
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
        grants = own_folders.write_grants if own_folders is not None else frozenset
        self._allowances = Allowances(home, settings, project, variables, folders, runs, grants)
        self._tell = tell
        self._rooms: dict[tuple[str, Purpose], Room] = {}  # most recently used last
        self._receipts: dict[str, Receipt] = {}  # of the rooms in which plugins ran last
        self._making: dict[tuple[str, Purpose], anyio.Lock] = {}
        self._stale: list[Room] = []
        self._told: frozenset[str] = frozenset()  # the plugins' folders that the rooms were told about
        self._is_closed = False

    @property
    def is_on(self) -> bool:
        """Whether plugins are confined at all."""
        return self._settings.is_confining

    def follow(self, settings: Settings) -> None:
        """Use new settings for future rooms; running programs keep their room."""
        self._settings = self._allowances.settings = settings

    async def enter(self, plugin: Plugin, standing: Standing, purpose: Purpose = "run") -> Room:
        """Return the room for a plugin's programs; `leave` it when they have ended.

        Raises NotEnforceable; or Unavailable, if a folder of the plugin's cannot be created, the machine is out of some
        resource, or the host has ended.
        """
        key = (plugin.path, purpose)
        # A plugin that is being set up has no digest yet: its scripts may differ each time they are resolved.
        code = standing.digest or (object() if purpose == "resolve" else "")
        rights = (code, standing.granted, standing.unconfined)
        basis = (rights, self._settings.of_room(plugin.name), self._folders(plugin, standing))
        if self.is_on and purpose == "run":
            await self._tidy(plugin, standing)
        room = self._current(key, basis)
        if room is None:
            async with self._making.setdefault(key, anyio.Lock()):
                room = self._current(key, basis)  # another task may have been faster
                if room is None:
                    if key in self._rooms:
                        self._put_away(self._rooms.pop(key))
                    if purpose == "run":
                        self._receipts.pop(plugin.path, None)
                    with anyio.CancelScope(shield=True):  # it is quick, and otherwise nobody would close it
                        room = await self._make(plugin, standing, purpose, basis)
                    self._thin_out()
        assert room is not None
        self._rooms.pop(key, None)
        self._rooms[key] = room
        if self._is_closed:  # while it was being created: the closing task has not seen it
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.close)
            raise _ended()
        if purpose == "run":
            self._receipts[plugin.path] = room.receipt
        room.users += 1
        return room

    def leave(self, room: Room) -> None:
        """Report that what ran in it has ended."""
        room.users -= 1
        if room.is_stale and not room.users:
            self._close_soon(room)

    def intruder(self, plugin: Plugin) -> str:
        """Return code that was added to a plugin's folder while it ran; empty if there is none."""
        room = self._rooms.get((plugin.path, "run"))
        found = room.view.intruder if room is not None and room.view is not None else ""
        if found or not self._stale:
            return found
        views = [room.view for room in self._stale if room.view is not None and room.view.own == plugin.path]
        return next((view.intruder for view in views if view.intruder), "")

    def receipt(self, plugin: Plugin) -> Receipt | None:
        """Return how a plugin's programs are confined, and which hosts they reached since the last time.

        None if none has run.
        """
        receipt, room = self._receipts.get(plugin.path), self._rooms.get((plugin.path, "run"))
        reached = room.confined.take_reached() if room is not None and room.confined is not None else []
        if receipt is None or not reached:
            return receipt
        return msgspec.structs.replace(receipt, reached=tuple(permissions.written(*where) for where in reached))

    async def with_files(self, call: Call, standing: Standing, granted: tuple[str, ...] | None) -> Call:
        """Return a call with files in place of their paths. `granted` are the grants of a plugin that makes the call.

        Raises Denied and InvalidArguments.
        """
        own = standing.granted if granted is None else granted
        reader = file_arguments.Reader(self._home, self._project, own, granted is not None)
        return await thread_lanes.run(call.plugin.path, file_arguments.read, call, standing, reader, self._allowances)

    def covers_tmp(self, plugin: Plugin) -> bool:
        """Return whether a plugin's programs have a /tmp of their own."""
        room = self._rooms.get((plugin.path, "run"))
        profile = room.confined.profile if room is not None and room.confined is not None else None
        return room is not None and room.has_own_tmp and profile is not None and profile.private_tmp

    def cure(
        self,
        plugin: Plugin,
        standing: Standing,
        said: str,
        withheld: frozenset[str] = frozenset(),
        purpose: Purpose = "run",
    ) -> str:
        """Return which grants would help a failed plugin, guessed from its output; empty if none.

        `withheld` are variables that it does not see.
        """
        from anyplug.launch import missing_grants  # its patterns take 9 ms to compile, and only failures need them

        lack = missing_grants.variables(said, withheld) + missing_grants.desktop_programs(said, standing.granted)
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
        """Close every room and kill what runs there; none can be entered afterwards. Blocks: call it in a thread."""
        self._is_closed = True
        rooms = (*self._rooms.values(), *self._stale)
        for room in rooms:  # the kernel takes 2 to 25 ms to take a sandbox apart
            if room.confined is not None:
                room.confined.hang_up()
        for room in rooms:
            room.close()
        self._rooms.clear()
        self._stale.clear()

    async def _make(self, plugin: Plugin, standing: Standing, purpose: Purpose, basis: object) -> Room:
        if not self.is_on:
            return Room(self._direct, basis, None)
        if sys.platform != "linux":
            if standing.unconfined:
                return Room(self._direct, basis, None)
            raise NotEnforceable(plugin.name, f"anyplug cannot confine programs on {sys.platform} yet", "")
        learning = self._learning if self._learning and self._learning.is_about(plugin, purpose) else None
        widened = learning.widened(standing) if learning else standing
        profile = await self._profile(plugin, widened, purpose)
        view = await self._view(plugin, standing, purpose)
        profile = profile if view is None else view.added_to(profile)
        for folder in profile.measured:
            make_folder(folder)
        make_private(os.path.join(self._home.path, SCRATCH))  # the spawner takes hold of it before it covers our home
        try:
            confined = await self._confined(plugin, profile, standing, learning)
        except BaseException:
            if view is not None:
                asyncio.get_running_loop().run_in_executor(None, view.close)
            raise
        room = Room(confined, basis, confined)
        room.view = view
        folders = (plugin.path, plugin.found_at)
        room.around.update(profile.protected, profile.secret, profile.hidden, folders)
        room.around.update(os.path.join(folder, CONFIG) for folder in folders)
        if view is not None:
            view.keeps_names = "overlay" not in confined.enforcement.refused
        try:
            await self._tell_all(room)
        except BaseException:
            asyncio.get_running_loop().run_in_executor(None, room.close)
            raise
        return room

    async def _confined(
        self, plugin: Plugin, profile: Profile, standing: Standing, learning: "Learning | None"
    ) -> "ConfinedSpawn":
        """Start the sandbox; raises Unavailable, or NotEnforceable."""
        # Takes 15 ms with ctypes, and only a host that starts something needs it.
        from anyplug.runtime.sandbox.enforcement import NotEnforceable as NotHeld
        from anyplug.runtime.sandbox.enforcement import Shortage
        from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

        recorder = learning.recorder() if learning else None
        tell = functools.partial(_call_soon, asyncio.get_running_loop(), self._tell, plugin)
        make = functools.partial(self._spawner, plugin, profile, standing.unconfined, recorder, tell)
        try:
            return await thread_lanes.make(make, ConfinedSpawn.close)
        except NotHeld as refusal:
            if self._is_closed:
                raise _ended() from refusal
            if isinstance(refusal, Shortage):
                reason = f"plugin '{plugin.name}' cannot be confined right now and was not run: {refusal.reason}"
                raise Unavailable(reason, refusal.cure) from refusal
            raise NotEnforceable(plugin.name, str(refusal), refusal.cure) from refusal

    async def _tell_all(self, *new: Room, only_hide: bool = False) -> None:
        """Make the sandboxes that exist protect and hide what the present plugins add, before another plugin runs.

        A sandbox that does not confirm it is closed. A program that may have opened what is protected from now on is
        ended, unless plugins `only_hide` their values yet.
        """
        if not only_hide:
            self._told = self._plugin_folders()
        rooms = [room for room in (*self._rooms.values(), *self._stale, *new) if room.confined is not None]
        deaf = await anyio.to_thread.run_sync(self._extended, rooms, only_hide)
        for room in deaf:
            await anyio.to_thread.run_sync(room.close)

    def _extended(self, rooms: list[Room], only_hide: bool) -> list[Room]:
        """Extend the sandboxes of rooms; return those that have to be closed instead."""
        protected, hidden = self._allowances.around_plugins()
        return [room for room in rooms if not room.extend(() if only_hide else protected, hidden)]

    async def follow_plugins(self, *, is_approved: bool) -> None:
        """Do so after plugins were found, or one of them approved: another host may run it."""
        if (self._rooms or self._stale) and self._plugin_folders() != self._told and not self._is_closed:
            await self._tell_all(only_hide=not is_approved)

    async def _profile(self, plugin: Plugin, standing: Standing, purpose: Purpose) -> Profile:
        """Build a plugin's profile; in a thread, because that visits all of its files."""
        try:
            lane = PROFILES if purpose == "run" else plugin.path  # dependencies are hashed, which may take long
            return await thread_lanes.run(lane, self._allowances.profile, plugin, standing, purpose)
        except OSError as error:
            raise Unavailable(
                f"the files of '{plugin.name}' cannot be read: {error.filename}: {error.strerror}",
                f"check it with `anyplug show {plugin.name}`, then call it again",
            ) from error

    async def keep(self, plugin: Plugin, digest: str, tell: Callable[[str], None]) -> None:
        """Create the snapshot from which a plugin will run, if needed; raises NotApproved, or Unavailable."""
        folders = self._folders_shown(plugin) if self.is_on else None
        if folders is not None:
            if folders.is_large(plugin):
                tell(f"copying the files of plugin '{plugin.name}': it runs from this copy")
            await self._copied(plugin, functools.partial(folders.keep, plugin, digest))

    def _folders_shown(self, plugin: Plugin) -> OwnFolders | None:
        """Return what creates a plugin's view of its folder; None if it runs from the folder itself."""
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
            cure = "check the disk's free space and the permissions of anyplug's home folder"
            raise Unavailable(
                f"plugin '{plugin.name}' was not started, because its code cannot be copied: {error}",
                CURE_FOR_SHORTAGE if is_shortage(error) else cure,
            ) from error

    async def _tidy(self, plugin: Plugin, standing: Standing) -> None:
        """Remove code that a plugin wrote over its own, and the room in which it would still be visible."""
        if self._own_folders is None or not self._own_folders.has_written(plugin, standing):
            return
        try:
            had_code = await thread_lanes.run(plugin.path, self._own_folders.tidy, plugin)
        except OSError as error:
            raise Unavailable(
                f"what '{plugin.name}' wrote into its folder cannot be searched for code: {error.strerror}",
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
        # Late for the same reason.
        from anyplug.runtime.sandbox.enforcement import wanted_layers
        from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

        layers = wanted_layers(namespaces=self._settings.namespaces)
        return ConfinedSpawn(
            self._guard, profile, layers=layers, tolerant=tolerant, recorder=recorder, owner=plugin.name, tell=tell
        )

    def _folders(self, plugin: Plugin, standing: Standing) -> tuple[int, ...]:
        """Return the identity of these folders: a room shows those that existed when it was created."""
        if not self.is_on:
            return ()
        data = registry.BY_NAME[plugin.format].data(plugin, self._home)
        found = [_identity(plugin.path), *stamp(plugin)]
        for folder in (data, self._home.cache(plugin)):
            make_folder(folder)
            found.append(_identity(folder))
        scopes = (permissions.scope_of(grant) for grant in standing.granted if grant.startswith("filesystem:"))
        found += [_identity(os.path.join(self._project, os.path.expanduser(scope))) for scope in scopes if scope]
        if any(grant.startswith("filesystem:") for grant in standing.granted):
            # What appears later must be hidden and protected, too.
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
        """Close the least recently used rooms if too many are idle."""
        idle = [key for key, room in self._rooms.items() if not room.users and room.confined is not None]
        for key in idle[: max(0, len(idle) - MOST_IDLE)]:
            self._put_away(self._rooms.pop(key))


def _ended() -> Unavailable:
    return Unavailable("the host has ended", "run the command again")


def _call_soon(loop: asyncio.AbstractEventLoop, tell: Callable[[Plugin, str], None], plugin: Plugin, text: str) -> None:
    """Call `tell` in the host's own thread."""
    try:
        loop.call_soon_threadsafe(tell, plugin, text)
    except RuntimeError:  # the host has ended, so there is nobody to tell
        pass


def _identity(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
