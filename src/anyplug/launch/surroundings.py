"""What plugins' programs get, and how they run: a plugin's environment, confined and with a log."""

import errno
import functools
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec

from anyplug.catalog import seen_permissions
from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.formats import registry
from anyplug.formats.shared import scripts
from anyplug.formats.shared.contract import Surroundings
from anyplug.home import plugin_logs
from anyplug.home.settings import Settings
from anyplug.launch import code_above, desktop, run_files
from anyplug.launch.own_folder import OwnFolders
from anyplug.launch.sandbox_rooms import Room, Rooms
from anyplug.launch.warm_starts import WarmStarts
from anyplug.model import permissions
from anyplug.model.errors import NotApproved, StoreError, Unavailable
from anyplug.model.late_patterns import late
from anyplug.model.types import Call, File, Plugin, Result
from anyplug.model.untrusted_text import for_models
from anyplug.runtime import thread_lanes
from anyplug.runtime.processes.program import Finished, Program, Purpose, Receipt, Spawn, TmpTaken
from anyplug.runtime.processes.toolchain import link_programs
from anyplug.runtime.runner import Runner
from anyplug.runtime.sandbox.profile import may_read
from anyplug.runtime.warm.pool import Kept, Pool
from anyplug.secrets import env_vars
from anyplug.secrets.redaction import Redactions
from anyplug.secrets.vault import SIGN_IN

if TYPE_CHECKING:  # only used while learning
    from anyplug.launch.learning import Learning

T = TypeVar("T")

LONGEST_LOOKED_AT = 100_000  # characters of a result that are searched for paths
REPORT_WINDOW = 65_536  # bytes at the end of a running program's stderr in which its last line is looked for
LONGEST_REPORT = 300  # characters
MOST_REMARKS = 5  # about one result
_IN_TMP = late(r"(?<![\w/.~:-])/tmp/[\w./+@%-]*[\w]")

PROJECT_ENVIRONMENT = "UV_PROJECT_ENVIRONMENT"
UV_SETTINGS = "UV_CONFIG_FILE"
OF_SHORT_LISTS = (
    "UV_PYTHON_INSTALL_DIR"  # a format that sets it promises a short list of variables, to which we add none
)
BUILT_BY_GO = "GOTMPDIR"  # where `go run` builds what it runs; nothing in a /tmp can be executed
TEMPORARY = frozenset({"TMPDIR", "TEMP", "TMP"})  # where programs are told to keep temporary files
# Where programs cache what they can fetch again: the variable for it, and the default in the home folder.
CACHES = {
    "XDG_CACHE_HOME": ".cache",
    "npm_config_cache": ".npm",
    "PIP_CACHE_DIR": ".cache/pip",
    "UV_CACHE_DIR": ".cache/uv",
    "UV_TOOL_DIR": ".local/share/uv/tools",
    "GOMODCACHE": "go/pkg/mod",
    "BUN_INSTALL_CACHE_DIR": ".bun/install/cache",
}


class _Made(NamedTuple):
    """Surroundings, and what they were built from."""

    standing: Standing
    has_variables: bool  # granted by name
    stamp: Any  # of the stored secrets
    settings: Settings
    around: Surroundings


class Users:
    """A user's environment, and the surroundings built from it for each plugin."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = variables
        self.made: dict[str, _Made] = {}


class Start(msgspec.Struct, frozen=True):
    """How a long-running process of a plugin is started; `release` when it has ended."""

    environment: dict[str, str]
    spawn: Spawn
    release: Callable[[], None]
    cure: Callable[[str], str]  # which grants would help, guessed from its output


class Provisions:
    """Builds the surroundings of each plugin, once per standing. `close` when done."""

    def __init__(
        self,
        catalog: Catalog,
        runner: Runner,
        secrecies: Redactions,
        users: Users,
        pool: Pool,
        *,
        project: str,
        learning: "Learning | None",
        tell: Callable[[str], None],
    ) -> None:
        """`users` has the environment of callers that bring none; `project` is the folder that grants refer to.

        `learning` watches what one plugin does; `tell` hears of long work.
        """
        self._catalog = catalog
        self._runner = runner
        self._project = project
        self._is_learning = learning is not None  # which notes what it saw by itself
        self._warm = WarmStarts(pool, catalog.home, runner, is_learning=learning is not None)
        self._confinement = Rooms(
            catalog.home,
            catalog.settings,
            runner.guard,
            runner.direct,
            project,
            OwnFolders(catalog),
            learning,
            users.variables,
            self._log_refused_host,
        )
        self._secrecies = secrecies
        self._tell = tell
        self._users = users
        self._desktops = desktop.Desktops(users.variables)
        self._linked = False
        self._keyring = anyio.CapacityLimiter(1)  # one prompt at a time

    def follow(self, settings: Settings) -> None:
        """Use new settings for future programs."""
        self._runner.use_namespaces(wanted=settings.namespaces)
        self._warm.follow(settings.warm)
        self._confinement.follow(settings)

    async def follow_plugins(self, is_approved: bool) -> None:
        """Make the running sandboxes hide what the present plugins add, and protect it once one of them is approved."""
        await self._confinement.follow_plugins(is_approved=is_approved)

    async def with_files(self, call: Call, standing: Standing, caller: Plugin | None) -> Call:
        """Return a call that has paths with the files in their place; raises Denied and InvalidArguments."""
        granted = None if caller is None else self._catalog.approvals.granted(caller)
        return await self._confinement.with_files(call, standing, granted)

    def receipt(self, plugin: Plugin) -> Receipt | None:
        """Return how a plugin's programs were confined in a call; None if none has run."""
        receipt = self._confinement.receipt(plugin)
        if receipt is not None and receipt.reached and not self._is_learning and not plugin.explicit:
            self._note_hosts(plugin, receipt)
        return receipt

    def _note_hosts(self, plugin: Plugin, receipt: Receipt) -> None:
        """Keep which grants the proxy used."""
        places = {where: permissions.destination(f"network:{where}") for where in receipt.reached}
        used = {
            name: [where for where, at in places.items() if at and permissions.may_reach((name,), at.host, at.port)]
            for name in receipt.hosts
        }
        used = {name: found for name, found in used.items() if found}
        try:
            digest = self._catalog.digest(plugin).value
            seen_permissions.note(self._catalog.store, plugin.path, digest, used, is_whole=False)
        except (OSError, StoreError):
            pass  # the call itself is recorded, with the hosts

    async def keep(self, plugin: Plugin, digest: str) -> None:
        """Keep a copy of the code of a plugin that is being approved; raises NotApproved, or Unavailable."""
        await self._confinement.keep(plugin, digest, self._tell)

    def intruder(self, plugin: Plugin) -> str:
        """Return code that was added to a plugin's folder while it ran; empty if there is none."""
        return "" if plugin.explicit else self._confinement.intruder(plugin)

    def close(self) -> None:
        """Kill all programs. Blocks: call it in a thread."""
        self._confinement.close()
        self._desktops.close()

    def of(self, plugin: Plugin, standing: Standing, users: Users | None = None) -> Surroundings:
        """Return what a plugin's format may use; `users` is for a caller with its own environment."""
        users = users or self._users
        if (made := self.made(plugin, standing, users)) is not None:
            return made
        has_variables = bool(permissions.environment_names(standing.granted))
        stamp = self._stamp(has_variables)
        around = Surroundings(
            home=self._catalog.home,
            settings=self._catalog.settings.of(plugin.name),
            environment=self.variables(plugin, standing, users),
            conceal=self._secrecies.of(plugin).text,
            run=functools.partial(self.run, plugin, standing),
            tell=self._tell,
            project=self._project,
        )
        users.made[plugin.path] = _Made(standing, has_variables, stamp, self._catalog.settings, around)
        return around

    def made(self, plugin: Plugin, standing: Standing, users: Users | None = None) -> Surroundings | None:
        """Return the same as `of` if nothing has to be done for it."""
        known = (users or self._users).made.get(plugin.path)
        if known is None or known.standing is not standing or known.settings is not self._catalog.settings:
            return None
        return known.around if self._stamp(known.has_variables) == known.stamp else None

    async def ready(self, plugin: Plugin, standing: Standing, users: Users | None = None) -> Surroundings:
        """Return the same as `of`, waiting in a thread for a keyring to be unlocked."""
        return await self._in_turn(standing, functools.partial(self.of, plugin, standing, users))

    async def _in_turn(self, standing: Standing, work: Callable[[], T]) -> T:
        """Do something that may wait for a keyring, in a thread; without granted variables, do it at once."""
        if not permissions.environment_names(standing.granted):
            return work()
        self._link()
        return await anyio.to_thread.run_sync(work, limiter=self._keyring)

    def _stamp(self, has_variables: bool) -> Any:
        """Return what changes with the stored secrets; nothing for a plugin that can get none."""
        return self._catalog.secrets.stamp() if has_variables else None

    def variables(self, plugin: Plugin, standing: Standing, users: Users | None = None) -> dict[str, str]:
        """Return the environment of a plugin's programs.

        Raises SecretsUnusable if one of its secrets cannot be read, and Unavailable if the home is not writable.
        """
        self._link()
        self._claim(plugin)
        names = permissions.environment_names(standing.granted)
        users = users or self._users
        self._secrecies.of(plugin, standing.granted).look(users.variables)  # before anything of it is passed on
        own = [name for name in names if not name.startswith(SIGN_IN)]
        stored = self._catalog.secrets.values(plugin, own) if own else {}
        given = env_vars.divide({**users.variables, **stored}, names, inherits=standing.inherits_environment).given
        variables = registry.BY_NAME[plugin.format].environment(plugin, self._catalog.home, given, names)
        if not plugin.is_file and OF_SHORT_LISTS not in variables:
            variables = code_above.variables(plugin.path, users.variables) | variables
        return variables | self._desktop(plugin, standing, variables) | self._runner.environment

    def _desktop(self, plugin: Plugin, standing: Standing, variables: dict[str, str]) -> dict[str, str]:
        """Return the variables through which a plugin uses the clipboard and notifications; raises Unavailable."""
        cache = self._catalog.home.cache(plugin)
        if not desktop.NAMES.keys().isdisjoint(standing.granted):
            run_files.make_folder(cache)
        try:
            return self._desktops.environment(plugin.name, cache, standing.granted, variables.get("PATH", os.defpath))
        except OSError as error:
            raise Unavailable(
                f"cannot offer the desktop to '{plugin.name}': {error.strerror}",
                f"check the disk's free space and the permissions of {cache}",
            ) from error

    def _claim(self, plugin: Plugin) -> None:
        """Bind the data folder to a plugin before any of its programs can use it; raises Unavailable."""
        try:
            self._catalog.home.claim(plugin, self._catalog.approvals.namesakes(plugin) if plugin.explicit else ())
        except OSError as error:
            raise Unavailable(
                f"cannot create the data folder of '{plugin.name}': {error.strerror}",
                f"check the disk's free space and the permissions of {self._catalog.home.path}",
            ) from error

    def _link(self) -> None:
        if not self._linked:
            folder = self._catalog.home.bin
            try:
                link_programs(folder)
            except OSError as error:
                raise Unavailable(
                    f"cannot create the folder of programs for plugins, {folder}: {error.strerror}",
                    "check the disk's free space and the folder's permissions",
                ) from error
            self._linked = True

    async def start(self, plugin: Plugin, standing: Standing) -> Start:
        """Return what a long-running process is started with; raises NotEnforceable."""
        # First, because it creates the folder of programs that a room shows.
        variables = await self._in_turn(standing, functools.partial(self.variables, plugin, standing))
        room = await self._confinement.enter(plugin, standing)
        try:
            inside = self._inside(room, plugin, variables)
        except BaseException:
            self._confinement.leave(room)
            raise
        return Start(
            environment=inside,
            spawn=room.spawn,
            release=lambda: self._confinement.leave(room),
            cure=lambda said: self.cure(plugin, standing, said),
        )

    def cure(
        self, plugin: Plugin, standing: Standing, said: str, users: Users | None = None, purpose: Purpose = "run"
    ) -> str:
        """Return which grants would help a failed plugin, guessed from its output; empty if none."""
        variables = (users or self._users).variables
        names, inherits = permissions.environment_names(standing.granted), standing.inherits_environment
        withheld = env_vars.divide(variables, names, inherits=inherits).withheld
        try:
            return self._confinement.cure(plugin, standing, said, frozenset(withheld), purpose)
        except (OSError, ImportError):  # it is only a guess, and there may be too many open files to make one
            return ""

    def private_files(self, plugin: Plugin, result: Result, arguments: dict[str, Any]) -> list[str]:
        """Return remarks about files that a result names and that only the plugin sees, in a /tmp of its own."""
        if "/tmp/" not in (text := result.text[:LONGEST_LOOKED_AT]) or not self._confinement.covers_tmp(plugin):
            return []
        outputs = {block.name: block.path for block in result.content if isinstance(block, File)}
        given = msgspec.json.encode(arguments, enc_hook=str).decode()
        remarks = []
        ours = f"{self._catalog.home.path.rstrip('/')}/"  # with its data and caches, which are no part of that /tmp
        for path in dict.fromkeys(_IN_TMP.findall(text)):
            if path.startswith(ours):
                continue
            if os.path.basename(path) in outputs:
                remarks.append(f"{path} is kept as {outputs[os.path.basename(path)]}")
            elif not os.path.lexists(path) and os.path.basename(path) not in given:  # it may be an input
                remarks.append(
                    f"{path} is in the plugin's own /tmp: nobody else can open it, and it is deleted with the plugin. "
                    f"`anyplug grant {plugin.name} filesystem:write:/tmp` lets it use the machine's /tmp"
                )
        return remarks[:MOST_REMARKS]

    def _log_refused_host(self, plugin: Plugin, text: str) -> None:
        """Log which host the proxy refused; host names may contain secrets."""
        path, secrecy = self._catalog.home.log(plugin), self._secrecies.of(plugin)
        plugin_logs.append(path, "the proxy refused a host", secrecy.text(text))

    def _inside(self, room: Room, plugin: Plugin, variables: dict[str, str]) -> dict[str, str]:
        """Name writable folders for temporary files and caches: the user's own are not writable in a room."""
        if room.confined is None:
            return variables
        if room.given is not variables:
            room.given, room.inside = variables, self._made_at_home(room, plugin, variables)
        return room.inside

    def _made_at_home(self, room: Room, plugin: Plugin, variables: dict[str, str]) -> dict[str, str]:
        assert room.confined is not None
        assert room.confined.profile is not None
        own, user = self._catalog.home.cache(plugin), variables.get("HOME", "")
        kept = {name: value for name, value in variables.items() if name not in TEMPORARY}
        if not room.has_own_tmp or not room.writes_tmp:
            kept["TMPDIR"] = os.path.join(own, "tmp")
            run_files.make_folder(kept["TMPDIR"])
        writable = room.confined.profile.writable
        for name, place in CACHES.items():
            usual = variables.get(name) or os.path.join(user, place)
            if not any(f"{usual}/".startswith(f"{folder}/") for folder in writable):
                kept[name] = os.path.join(own, place.replace("/", "-").strip("."))
        if UV_SETTINGS in kept and not may_read(room.confined.profile, kept[UV_SETTINGS]):
            # `uv` ends if it cannot read them. They may have passwords of indexes, which code of others must not get.
            del kept[UV_SETTINGS]
            kept["UV_NO_CONFIG"] = "1"
        if OF_SHORT_LISTS not in kept:
            kept[BUILT_BY_GO] = os.path.join(own, "go-build")
            run_files.make_folder(kept[BUILT_BY_GO])
            # Where `uv run` creates a project's environment: next to the project it would change the plugin's code.
            kept[PROJECT_ENVIRONMENT] = os.path.join(own, "project")
        return kept

    async def run(self, plugin: Plugin, standing: Standing, program: Program) -> Finished:
        """Run a program confined, with what it says on stderr kept in the plugin's log.

        Raises CallError if it may not run, or if what it needs cannot be had.
        """
        for folder in program.folders:
            run_files.make_folder(folder)
        async with scripts.turn(program.shares, shared=True) if program.shares else nullcontext():
            room = await self._confinement.enter(plugin, standing, program.purpose)
            try:
                inside = self._inside(room, plugin, program.env)
                if inside is not program.env:
                    program = msgspec.structs.replace(program, env=inside)
                kept = self._warm.begin(plugin, program, room)
                if program.trace:
                    program = msgspec.structs.replace(program, env={**program.env, **program.trace})
                try:
                    if program.private_tmp:
                        return await self._run_in_tmp(plugin, program, room, kept)
                    waiting = kept.waiting if kept is not None else None
                    return self._logged(plugin, program, await self._runner(program, room.spawn, waiting))
                finally:
                    await self._warm.pool.end(kept)
            finally:
                self._confinement.leave(room)

    async def _run_in_tmp(self, plugin: Plugin, program: Program, room: Room, kept: Kept | None) -> Finished:
        """Run a program that has a /tmp/NAME of its own, and files that go in and come out there."""
        name, files = program.private_tmp, program.files
        waiting = kept.waiting if kept is not None else None
        try:
            is_shared = room.is_granted_tmp
            private = self._runner.private_tmp(name, has_own=room.has_own_tmp, is_shared=is_shared)
            async with private if kept is None else kept.own_tmp() as tmp:
                stamps = run_files.put(tmp, files) if files is not None else {}
                writable = () if tmp.cover else (tmp.folder,)
                program = msgspec.structs.replace(program, tmp=tmp.cover, writable=writable)
                finished = self._logged(plugin, program, await self._runner(program, room.spawn, waiting))
                if files is None or finished.ending != "exited" or finished.exit_code != 0:
                    return finished
                if run_files.are_none(tmp, stamps):  # without the cost of a thread
                    return finished
                taken = await thread_lanes.run(plugin.path, run_files.take, tmp, stamps, files)
                return msgspec.structs.replace(finished, files=taken)
        except TmpTaken as taken_by:
            raise Unavailable(
                f"plugin '{plugin.name}' writes to /tmp/{name}, but {taken_by}", "move it away"
            ) from taken_by

    def last_report(self, plugin: Plugin, stderr: bytes) -> str:
        """Return the last whole line of what a running program wrote to stderr, with secrets hidden."""
        secrecy = self._secrecies.of(plugin)
        shown = secrecy.data(stderr[-REPORT_WINDOW:], is_cut=True).decode(errors="replace")
        lines = [line for line in shown.splitlines(keepends=True) if line.strip() and line.endswith(("\n", "\r"))]
        if not lines:
            return ""
        # Cleaning may put a secret together again that was written with invisible characters in it.
        return secrecy.text(for_models(" ".join(lines[-1].split())))[:LONGEST_REPORT]

    def _logged(self, plugin: Plugin, program: Program, finished: Finished) -> Finished:
        """Keep in the plugin's log how a program ended; return that with its secrets hidden. Raises NotApproved."""
        if finished.ending == "not_started" and finished.errno == errno.ESTALE:  # the spawner just saw it
            raise NotApproved(plugin.name, "changed", (finished.reason,))
        if finished.stderr:
            is_cut = len(finished.stderr) >= program.max_stderr
            # Here, because formats quote only a part of it.
            shown = self._secrecies.of(plugin).data(finished.stderr, is_cut=is_cut)
            finished = msgspec.structs.replace(finished, stderr=shown)
        if finished.stderr or finished.exit_code != 0:
            heading = f"{os.path.basename(program.argv[0])} {finished.ending}"
            if finished.exit_code is not None:
                heading += f" with {finished.exit_code}"
            said = finished.stderr.decode(errors="replace") or finished.reason
            plugin_logs.append(self._catalog.home.log(plugin), heading, said)
        return finished
