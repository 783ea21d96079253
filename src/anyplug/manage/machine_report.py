"""Report what this machine enforces, by really trying to escape, and other problems of the installation."""

import glob
import os
import platform
import stat
import subprocess
import sys
from typing import Literal

import anyio
import msgspec

from anyplug.catalog.catalog import Catalog
from anyplug.catalog.offers import NOT_RUNNING
from anyplug.catalog.snapshot import Entry
from anyplug.home.location import LONGEST_SOCKET_PATH
from anyplug.home.scratch_folders import Scratch
from anyplug.home.settings import Home
from anyplug.launch import assessment
from anyplug.manage.connect import policy_hooks
from anyplug.model.errors import NotEnforceable as PluginNotEnforceable
from anyplug.model.hints import typed
from anyplug.policy.opencode import installation
from anyplug.runtime.processes import toolchain
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.sandbox import escape_test
from anyplug.runtime.sandbox.enforcement import (
    BROKER,
    CURES,
    LAYERS,
    MEANINGS,
    NAMESPACES,
    Enforcement,
    NotEnforceable,
    wanted_layers,
)
from anyplug.runtime.sandbox.linux import cpu_share, landlock
from anyplug.runtime.sandbox.profile import Profile

IS_LINUX = sys.platform == "linux"
VERSION_S = 10.0  # asking a program for its version
OTHERS = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# What stays open where a layer is missing, without violating any profile: `Enforcement.gaps` describes them.
GAPS = {
    "see the host's command line": "pids",
    "see others' shared memory": "ipc",
    "change a mode": "read-only",
    "change a time": "read-only",
    "change the mode of git's settings": "read-only",
}
CPU_SHARED = {
    cpu_share.SESSIONS: f"{MEANINGS['cpu']}: the kernel groups them by session",
    cpu_share.CGROUP: f"{MEANINGS['cpu']}: each plugin has a cgroup",
    cpu_share.PRIORITY: "a low priority; many processes get more CPU time than one",
}
# How to install a program.
SOURCES = {
    "node": f"install Node {'.'.join(map(str, toolchain.OLDEST_NODE))} or newer, or `pip install 'anyplug[node]'`",
    "uv": "`pip install uv`",
}


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer, and whether this machine has it."""

    name: str
    held: bool
    meaning: str
    why: str = ""  # why it does not
    cure: str = ""


class WayOut(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to escape. `gap`: it succeeds, as expected where a layer is missing."""

    name: str
    state: Literal["blocked", "open", "gap"]
    answer: str  # of the kernel


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong. Only a `problem` means that permissions are not enforced."""

    level: Literal["problem", "warning"]
    what: str
    cure: str = ""
    plugin: str = ""  # the plugin concerned, if not all


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A program that runs plugins."""

    name: str
    path: str | None
    version: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The findings."""

    holds: bool  # whether everything that permissions require is enforced
    system: str
    user: str
    landlock: int
    off_by: str  # what disabled confinement
    layers: tuple[Layer, ...]
    ways_out: tuple[WayOut, ...]
    programs: tuple[Installed, ...]
    home: str
    home_mode: str  # as `chmod` writes it; empty if it does not exist yet
    plugins: dict[str, int]  # how many, by state
    faults: tuple[Fault, ...]


async def examine(catalog: Catalog, entries: tuple[Entry, ...]) -> Report:
    """Try everything; takes about a second."""
    faults: list[Fault] = []
    off_by = assessment.switched_off(catalog.settings)
    if off_by:
        cure = "unset it" if off_by == assessment.VARIABLE else 'write `confinement = "on"`, or remove the line'
        faults.append(_problem(f"confinement is disabled by {off_by}: plugins can do whatever you can", cure))
    scratch = Scratch(catalog.home.path)
    try:
        layers = wanted_layers(namespaces=catalog.settings.namespaces)
        enforcement, ways_out = await _try(layers, scratch, faults)
    finally:
        await anyio.to_thread.run_sync(scratch.close)
    programs = await anyio.to_thread.run_sync(_programs)
    faults += [
        _warning((f"{p.name}, which plugins need, is not installed"), SOURCES[p.name])
        for p in programs
        if p.path is None
    ]
    faults += _of_home(catalog.home)
    gates = [*installation.problems(os.getcwd()), *policy_hooks.problems(os.getcwd())]
    faults += [_warning(problem.message, problem.hint) for problem in gates]
    faults += await anyio.to_thread.run_sync(_of_plugins, catalog, entries)
    states = [entry.state for entry in entries]
    return Report(
        holds=not any(fault.level == "problem" for fault in faults),
        system=f"{platform.system()} {platform.release()} on {platform.machine()}",
        user="root" if os.getuid() == 0 else "an ordinary user",
        landlock=landlock.version() if IS_LINUX else 0,
        off_by=off_by,
        layers=_layers(enforcement, namespaces=catalog.settings.namespaces),
        ways_out=ways_out,
        programs=programs,
        home=catalog.home.path,
        home_mode=_mode(catalog.home.path),
        plugins={state: states.count(state) for state in dict.fromkeys(states)},
        faults=tuple(faults),
    )


def _problem(what: str, cure: str, plugin: str = "") -> Fault:
    return Fault(level="problem", what=what, cure=cure, plugin=plugin)


def _warning(what: str, cure: str, plugin: str = "") -> Fault:
    return Fault(level="warning", what=what, cure=cure, plugin=plugin)


async def _try(
    layers: tuple[str, ...], scratch: Scratch, faults: list[Fault]
) -> tuple[Enforcement, tuple[WayOut, ...]]:
    """Let a confined child try to escape; report where it succeeded."""
    nothing = Enforcement(held=(), is_root=os.getuid() == 0)
    if not IS_LINUX:
        faults.append(_problem(f"anyplug cannot confine programs on {sys.platform} yet", "use Linux"))
        return nothing, ()
    guard = Guard()
    try:
        enforcement, attempts = await escape_test.report(guard, layers, _scene_folder(scratch))
    except NotEnforceable as refusal:
        faults.append(_problem(f"nothing can be confined: {refusal}", refusal.cure))
        return nothing, ()
    except (RuntimeError, OSError) as error:
        faults.append(_problem(f"the escapes could not be tried: {error}", "please report this as a bug of anyplug"))
        return await anyio.to_thread.run_sync(lambda: assessment.tried(Profile(), layers)[0]), ()
    finally:
        await anyio.to_thread.run_sync(guard.close)
    faults += [
        _problem((f"this machine cannot enforce {fall.what}: {fall.why}"), fall.cure)
        for fall in enforcement.shortfalls(Profile())
    ]
    if enforcement.gaps:
        what = f"plugins are confined less than possible: {'; '.join(enforcement.gaps)}"
        faults.append(_warning(what, _cure_of_gaps(layers)))
    ways_out = tuple(_way_out(attempt, enforcement) for attempt in attempts)
    if opened := [way.name for way in ways_out if way.state == "open"]:
        cure = "do not run untrusted plugins here, and please report this as a bug of anyplug"
        faults.append(_problem(f"a confined child escaped: {', '.join(opened)}", cure))
    return enforcement, ways_out


def _scene_folder(scratch: Scratch) -> str:
    """Return where to make the scene: in the home, where no plugin reaches it, if sockets can have so long a path."""
    home = os.path.dirname(os.path.dirname(scratch.path))
    is_short = len(os.fsencode(scratch.path)) + escape_test.LONGEST_NAME <= LONGEST_SOCKET_PATH
    if not os.path.isdir(home) or not is_short or home.startswith("/tmp/"):
        return escape_test.OUTSIDE_TMP
    try:
        return scratch.folder().path
    except OSError:
        return escape_test.OUTSIDE_TMP


def _way_out(attempt: escape_test.Attempt, enforcement: Enforcement) -> WayOut:
    if attempt.blocked:
        return WayOut(name=attempt.name, state="blocked", answer=attempt.how)
    layer = GAPS.get(attempt.name, "")
    is_known = layer != "" and layer not in enforcement.held
    return WayOut(name=attempt.name, state="gap" if is_known else "open", answer="")


def _layers(enforcement: Enforcement, *, namespaces: bool) -> tuple[Layer, ...]:
    found = []
    for name in (*LAYERS, BROKER):
        held = name in enforcement.held
        why, cure = "", ""
        if not held:
            is_unwanted = not namespaces and name in NAMESPACES
            why = "`namespaces = false` in settings.toml" if is_unwanted else enforcement.refused.get(name, "refused")
            cure = _cure_of_gaps(()) if is_unwanted else CURES.get(name, CURES["pids"])
        meaning = MEANINGS[name]
        if name == "cpu" and held:
            meaning = CPU_SHARED[cpu_share.means()]
        found.append(Layer(name=name, held=held, meaning=meaning, why=why, cure=cure))
    return tuple(found)


def _cure_of_gaps(layers: tuple[str, ...]) -> str:
    return CURES["pids"] if "mounts" in layers else "write `namespaces = true` in settings.toml, or remove the line"


def _programs() -> tuple[Installed, ...]:
    found = (("node", toolchain.find_node()), ("uv", toolchain.find_uv()))
    return tuple(Installed(name=name, path=path, version=_version(path) if path else "") for name, path in found)


def _version(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=VERSION_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").strip().removeprefix(f"{os.path.basename(program)} ")


def _of_home(home: Home) -> list[Fault]:
    """Check whether others can read what is private, or write what we trust."""
    private = [home.store, home.secrets, *glob.glob(os.path.join(glob.escape(home.path), "*", "*.log*"))]
    found = []
    for path in (home.path, home.plugins, home.settings, home.bin, *private):
        try:
            state = os.stat(path)
        except OSError:
            continue  # nothing is created before it is needed
        if state.st_uid != os.getuid():
            found.append(
                _warning(f"{path} belongs to another user (uid {state.st_uid})", f"chown -R $USER {home.path}")
            )
        elif state.st_mode & OTHERS_WRITE:
            said = f"other users can write to {path}, and so decide what runs"
            found.append(_warning(said, typed("chmod", "go-w", path)))
        elif path in private and state.st_mode & OTHERS and _can_enter(home.path):
            found.append(_warning(f"other users can read {path}", typed("chmod", "go-rwx", path)))
    return found


def _mode(path: str) -> str:
    return f"{stat.S_IMODE(os.stat(path).st_mode):o}" if os.path.exists(path) else ""


def _can_enter(folder: str) -> bool:
    return bool(os.stat(folder).st_mode & (stat.S_IXGRP | stat.S_IXOTH))


def _of_plugins(catalog: Catalog, entries: tuple[Entry, ...]) -> list[Fault]:
    """Return what keeps plugins from running, as far as can be seen from here; takes 20 ms for each."""
    guard = Guard()
    try:
        return [fault for entry in entries for fault in _of_plugin(catalog, entry, guard)]
    finally:
        guard.close()


def _of_plugin(catalog: Catalog, entry: Entry, guard: Guard) -> list[Fault]:
    """Report what keeps a plugin from running, as far as can be seen from outside."""
    name = entry.name
    if entry.state == "broken":
        problem = next(problem for problem in entry.problems if problem.level == "error")
        return [_warning(f"{name} is broken: {problem.message}", problem.hint, name)]
    found = [_warning(f"{name}: {p.message}", p.hint, name) for p in entry.problems if p.code == NOT_RUNNING]
    if entry.state != "approved" or assessment.switched_off(catalog.settings):
        return found
    shortfalls = assessment.assess(catalog, entry.plugin, entry.standing, guard).shortfalls
    if not shortfalls:
        return found
    reason = NotEnforceable(shortfalls)
    if entry.standing.unconfined:
        what = f"{name} runs although its permissions cannot be enforced, because you allowed it: {reason}"
        return [*found, _problem(what, reason.cure, name)]
    said = PluginNotEnforceable(name, str(reason), reason.cure)
    return [
        *found,
        _problem(f"{name} does not run, because its permissions cannot be enforced: {reason}", said.hint, name),
    ]
