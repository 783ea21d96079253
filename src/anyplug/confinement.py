"""Which spawner starts a plugin's programs: one for each plugin and purpose, held to what the plugin was granted.

A room is one such spawner. It is made when a program of the plugin first runs, and made anew when the plugin or
its grants are others; an old one goes when nothing runs in it any more, and so do those that nobody used lately.
"""

import asyncio
import functools
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec

from anyplug import config, permissions
from anyplug.approval import Standing
from anyplug.errors import NotEnforceable
from anyplug.formats import oneshot, table
from anyplug.formats.mcp import configuration
from anyplug.formats.workbench import format as workbench
from anyplug.model import Plugin
from anyplug.runtime.confine import profile as profiles
from anyplug.runtime.confine import system
from anyplug.runtime.confine.profile import Profile, System
from anyplug.runtime.guard import Guard
from anyplug.runtime.program import Purpose, Receipt, Spawn
from anyplug.settings import Home, Settings, cyclop_plugins, zot_home

if TYPE_CHECKING:
    from anyplug.learning import Learning
    from anyplug.runtime.confine.record import Recorder
    from anyplug.runtime.confine.spawn import ConfinedSpawn

MOST_IDLE = 16  # rooms that are kept although nothing runs in them: each is a process of 10 MB
MOST_CODE = 200  # files that are bound read-only one by one; of more, the folders in which they lie
MODULE_FOLDERS = frozenset({"node_modules", ".venv", "venv", "vendor"})
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
NAMESPACES = frozenset({"mounts", "pids", "network", "read-only"})  # the layers that need them
SHARED_TMP = ("/tmp/", "/var/tmp/")
OFF = Receipt(layers=(), landlock=0, filter="", limits={})


class Room:
    """Where programs of one plugin run."""

    def __init__(self, spawn: Spawn, basis: object, confined: "ConfinedSpawn | None") -> None:
        self.spawn = spawn
        self.basis = basis  # what it was made from
        self.confined = confined  # None where nothing is held
        self.receipt = confined.receipt if confined is not None else OFF
        self.users = 0
        self.is_stale = False
        # An environment that was given, and what became of it in here: nearly every call brings the same one.
        self.given: dict[str, str] = {}
        self.inside: dict[str, str] = {}

    @property
    def is_usable(self) -> bool:
        """Whether programs can be started in it."""
        return self.confined is None or self.confined.is_alive

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
        learning: "Learning | None" = None,
        variables: Mapping[str, str] = os.environ,
    ) -> None:
        """Make no room yet.

        `direct` starts programs where confinement is switched off. `learning` watches a plugin. `variables` are the
        user's: programs are looked for on that PATH.
        """
        self._home = home
        self._settings = settings
        self._guard = guard
        self._direct = direct
        self._project = project
        self._learning = learning
        self._variables = variables
        self._rooms: dict[tuple[str, Purpose], Room] = {}  # who was used last comes last
        self._receipts: dict[str, Receipt] = {}  # of the rooms in which plugins ran last
        self._making: dict[tuple[str, Purpose], anyio.Lock] = {}
        self._stale: list[Room] = []

    @property
    def is_on(self) -> bool:
        """Whether plugins are held to their permissions at all."""
        return self._settings.is_confining

    async def enter(self, plugin: Plugin, standing: Standing, purpose: Purpose = "run") -> Room:
        """Give the room for a plugin's programs; `leave` it when they have ended.

        Raises NotEnforceable; or Unavailable, if a folder of the plugin's cannot be made.
        """
        key = (plugin.path, purpose)
        basis = (standing.digest, standing.granted, standing.unconfined, self._folders(plugin, standing))
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
        if purpose == "run":
            self._receipts[plugin.path] = room.receipt
        room.users += 1
        return room

    def leave(self, room: Room) -> None:
        """Say that what ran in it has ended."""
        room.users -= 1
        if room.is_stale and not room.users:
            self._close_soon(room)

    def receipt(self, plugin: Plugin) -> Receipt | None:
        """Say what a plugin's programs are held by; None if none has run."""
        return self._receipts.get(plugin.path)

    def profile(self, plugin: Plugin, standing: Standing, purpose: Purpose = "run") -> Profile:
        """Draw what a plugin's programs may do."""
        format, home = table.BY_NAME[plugin.format], self._home
        # Who builds dependencies has the network, and so none of the plugin's data.
        data = format.data(plugin, home) if purpose != "resolve" else home.cache(plugin.name)
        place = profiles.Place(
            plugin=self._own_place(plugin, purpose),
            data=data,
            cache=home.cache(plugin.name),
            home=home.path,
            user=os.path.expanduser("~"),
            others=_others(self._project),
            project=self._project if self._project != "/" else "",  # services run there: it is nobody's project
            writes_beside_itself=purpose == "init" or (purpose == "run" and format.WRITES_BESIDE_ITSELF),
            code=() if purpose == "init" else _code(plugin, standing),
        )
        granted = ("network",) if purpose == "resolve" else standing.granted
        if not place.project:
            granted = tuple(grant for grant in granted if not _is_in_project(grant))
        search_path = self._variables.get("PATH", os.defpath)
        found = _surveyed(search_path, home.bin, place.user, _changed(home.bin))
        if "shell:exec" in granted:
            found = system.for_every_program(found)
        find = functools.partial(system.program_files, search_path=search_path)
        drawn = profiles.draw(granted, place, found, find, self._limits(plugin))
        if standing.unconfined and any(grant.startswith("network:") for grant in drawn.unheld):
            # The person said that it may run although nothing holds it to these hosts.
            wider = profiles.draw((*granted, "network"), place, found, find, self._limits(plugin))
            drawn = msgspec.structs.replace(wider, unheld=drawn.unheld)
        variables = format.environment(plugin, home, dict(self._variables), frozenset())
        own = (
            *format.readable(plugin),
            *filter(None, map(self._variables.get, CERTIFICATES)),
            *(system.libraries(variables) if purpose != "resolve" else ()),
        )
        scripts = _scripts(plugin) if purpose == "resolve" else ()
        return msgspec.structs.replace(
            drawn,
            readable=(
                *drawn.readable,
                *_outside(home.path, _real((*own, *_on_the_way(plugin, search_path)))),
                *scripts,
            ),
            executable=(*drawn.executable, *_launched(plugin, search_path)),
            writable=(*drawn.writable, *_above(drawn.hidden, drawn.writable)),
        )

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
        from anyplug import refusals  # its patterns take 9 ms to compile, and only what fails needs them

        lack = refusals.variables(said, withheld)
        if self.is_on and sys.platform == "linux" and refusals.speaks_of_one(said):
            lack += refusals.read(
                said,
                refusals.Scene(
                    profile=self.profile(plugin, standing, purpose),
                    cwd=self._project if plugin.format == workbench.NAME else plugin.path,
                    user=os.path.expanduser("~"),
                    project=self._project,
                    find=functools.partial(system.program_files, search_path=self._variables.get("PATH", os.defpath)),
                ),
            )
        return refusals.cure(plugin, lack, is_new=purpose == "init")

    def close(self) -> None:
        """Close every room, with whatever still runs in it. Blocks: call it in a thread."""
        for room in (*self._rooms.values(), *self._stale):
            if room.confined is not None:
                room.confined.close()
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
        profile = self.profile(plugin, learning.widened(standing) if learning else standing, purpose)
        for folder in profile.measured:
            oneshot.make_folder(folder)
        # 15 ms with ctypes, and only a host that starts something needs it.
        from anyplug.runtime.confine.enforcement import NotEnforceable as NotHeld

        recorder = learning.recorder() if learning else None
        make = functools.partial(self._spawner, profile, tolerant=standing.unconfined, recorder=recorder)
        try:
            confined = await anyio.to_thread.run_sync(make)
        except NotHeld as refusal:
            raise NotEnforceable(plugin.name, str(refusal), refusal.cure) from refusal
        return Room(confined, basis, confined)

    def _spawner(self, profile: Profile, *, tolerant: bool, recorder: "Recorder | None") -> "ConfinedSpawn":
        # As above.
        from anyplug.runtime.confine.enforcement import LAYERS
        from anyplug.runtime.confine.spawn import ConfinedSpawn

        layers = tuple(layer for layer in LAYERS if self._settings.namespaces or layer not in NAMESPACES)
        return ConfinedSpawn(self._guard, profile, layers=layers, tolerant=tolerant, recorder=recorder)

    def _limits(self, plugin: Plugin) -> profiles.Limits:
        given = self._settings.of(plugin.name).limits
        return profiles.Limits(**{name: value for name, value in msgspec.structs.asdict(given).items() if value})

    def _own_place(self, plugin: Plugin, purpose: Purpose) -> str:
        """Give the folder that programs see as the plugin's."""
        if purpose == "resolve":  # who has the network is shown the scripts, and not what is configured
            return self._home.bin
        # A client's configuration is not for its servers to read.
        return self._home.data(plugin.name) if plugin.is_file else plugin.path

    def _folders(self, plugin: Plugin, standing: Standing) -> tuple[int, ...]:
        """Say which folders these are now: a room shows those that were there when it was made."""
        if not self.is_on:
            return ()
        data = table.BY_NAME[plugin.format].data(plugin, self._home)
        found = [_identity(plugin.path)]
        for folder in (data, self._home.cache(plugin.name)):
            oneshot.make_folder(folder)
            found.append(_identity(folder))
        scopes = (_scope(grant) for grant in standing.granted if grant.startswith("filesystem:"))
        found += [_identity(os.path.join(self._project, os.path.expanduser(scope))) for scope in scopes if scope]
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
            asyncio.get_running_loop().run_in_executor(None, room.confined.close)

    def _thin_out(self) -> None:
        """Close those that nobody used for longest, if too many have nothing to do."""
        idle = [key for key, room in self._rooms.items() if not room.users and room.confined is not None]
        for key in idle[: max(0, len(idle) - MOST_IDLE)]:
            self._put_away(self._rooms.pop(key))


@functools.lru_cache(maxsize=8)
def _surveyed(search_path: str, bin_folder: str, user: str, _changed: int) -> System:
    """Look at the machine once, and again when our folder of programs is another: at first there is none."""
    return system.survey.__wrapped__(search_path, bin_folder, user)


def _changed(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _identity(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _above(hidden: tuple[str, ...], writable: tuple[str, ...]) -> list[str]:
    """Give the folders between what it may write to and what is hidden in there.

    Named themselves, they are mounts, which cannot be renamed: else another could be put in the hidden one's place.
    """
    tops = [os.path.realpath(path) + "/" for path in writable]
    found = []
    for path in map(os.path.realpath, hidden):
        parent = os.path.dirname(path)
        while any(parent.startswith(top) for top in tops):
            found.append(parent)
            parent = os.path.dirname(parent)
    return found


def _is_in_project(grant: str) -> bool:
    scope = _scope(grant)
    return grant.startswith("filesystem:") and bool(scope) and not scope.startswith(("/", "~"))


def _scope(grant: str) -> str:
    return grant.removeprefix(permissions.kind(grant)).removeprefix(":")


def _others(project: str) -> tuple[str, ...]:
    """Give the folders besides ours in which there are plugins and their data, and nothing else."""
    return (
        os.path.join(project, ".anyplug"),
        os.path.join(project, ".zot", "extensions"),
        os.path.join(zot_home(), "extensions"),
        os.path.dirname(cyclop_plugins()),
    )


def _scripts(plugin: Plugin) -> list[str]:
    """Give what lies in a plugin's folder, except for its configuration."""
    return [os.path.join(plugin.path, name) for name in os.listdir(plugin.path) if name != config.FILE]


def _code(plugin: Plugin, standing: Standing) -> tuple[str, ...]:
    """Give what of a plugin was approved and must stay as it is; folders of modules as a whole."""
    names = set()
    for name in standing.files:
        head = next((at for at, part in enumerate(name.split("/")) if part in MODULE_FOLDERS), None)
        names.add(name if head is None else "/".join(name.split("/")[: head + 1]))
    if len(names) > MOST_CODE:
        names = {name.partition("/")[0] for name in names}
    return tuple(os.path.join(plugin.path, name) for name in sorted(names))


def _launched(plugin: Plugin, search_path: str) -> tuple[str, ...]:
    """Give the files of the programs that its manifest names outside its folder, as the person saw them."""
    return tuple(file for command in _commands(plugin) for file in _files_of(command, plugin, search_path))


def _commands(plugin: Plugin) -> list[str]:
    commands = [configuration.program(plugin, endpoint) for endpoint in plugin.endpoints if endpoint.command]
    return commands + ([plugin.launch.program] if plugin.launch is not None else [])


def _on_the_way(plugin: Plugin, search_path: str) -> list[str]:
    """Give the folders in which links lead to these programs, as those of virtual environments do.

    A plugin's own /tmp covers what lies there, and would cover them.
    """
    import shutil  # here already, with the host

    found = []
    for command in _commands(plugin):
        path = shutil.which(command, path=search_path) or ""
        while path.startswith(SHARED_TMP) and os.path.islink(path) and os.path.dirname(path) not in found:
            found.append(os.path.dirname(path))
            path = os.path.join(os.path.dirname(path), os.readlink(path))
    return found


def _files_of(command: str, plugin: Plugin, search_path: str) -> tuple[str, ...]:
    import shutil  # here already, with the host

    found = shutil.which(command, path=search_path)
    if found is None or found.startswith(plugin.path + "/"):  # a link in its folder opens nothing outside
        return ()
    prefix = os.path.dirname(os.path.dirname(found))
    settings = os.path.join(prefix, "pyvenv.cfg")
    around = (settings, os.path.join(prefix, "lib")) if os.path.exists(settings) else ()
    return (*system.program_files(found), *_real(around))


def _outside(home: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out what is ours, or holds what is ours, whatever a configuration names."""
    inside = f"{os.path.realpath(home)}/"
    return tuple(path for path in paths if not f"{path}/".startswith(inside) and not inside.startswith(f"{path}/"))


def _real(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for path in paths if os.path.exists(path))
