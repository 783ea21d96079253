"""Test the sandbox by really trying to escape: a scene with secrets, sockets and other plugins, and a confined child.

For `doctor`, which reports what this machine enforces, and for the tests.
"""

import glob
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.untrusted_files import HeldFolder
from anyplug.runtime.processes import run_once
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program, Spawn
from anyplug.runtime.sandbox import system_paths
from anyplug.runtime.sandbox.enforcement import BROKER, LAYERS, Enforcement
from anyplug.runtime.sandbox.linux import syscall_table, syscalls
from anyplug.runtime.sandbox.profile import Locations, Profile, draw
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

PROBE = os.path.join(os.path.dirname(__file__), "escape_probe.py")
OUTSIDE_TMP = "/var/tmp"  # a private /tmp would hide the scene, and nothing else would be tested
PREFIX = "anyplug-scene-"
LONGEST_NAME = len(f"/{PREFIX}12345678/datagram")  # bytes of a socket's path below the folder
TIME_S = 60.0
GRANTED = ("filesystem:write:.", "filesystem:write")  # the grants with which protected paths are tried
MOST_OUTPUT = 1 << 20
IPC_PRIVATE, IPC_RMID = 0, 0


class Attempt(msgspec.Struct, frozen=True):
    """One attempt to escape."""

    name: str
    blocked: bool
    how: str = ""  # the kernel's answer


class Scene(msgspec.Struct, frozen=True):
    """A place to escape from, and what there is to reach."""

    place: Locations
    facts: dict[str, str | int]

    def profile(self, *granted: str) -> Profile:
        """Build the profile of a plugin in this scene."""
        around = system_paths.survey(_search_path(), os.path.join(self.place.home, "bin"), self.place.user)
        return draw(granted, self.place, around, system_paths.program_files)


@contextmanager
def scene(folder: str = OUTSIDE_TMP) -> Iterator[Scene]:
    """Create a scene, with sockets that this process listens on; all of it is removed at the end."""
    with ExitStack() as stack:
        top = os.path.realpath(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
        stack.callback(shutil.rmtree, top, ignore_errors=True)
        held = stack.enter_context(untrusted_files.hold(top))  # some plugins can write here, and swap it for a link
        home, user = os.path.join(top, "home"), os.path.join(top, "user")
        place = Locations(
            plugin=os.path.join(home, "plugins", "p"),
            data=os.path.join(home, "data", "p"),
            cache=os.path.join(home, "cache", "p"),
            home=home,
            user=user,
            project=os.path.join(top, "project"),
            # Hidden inside something hidden, like the folders of other plugins that have a configuration.
            others=(os.path.join(home, "data", "other"), os.path.join(user, ".password-store", "ssh")),
        )
        for name in (".git/hooks", "sub", "other"):
            held.make_folders(f"project/{name}").close()
        files = {
            "key": os.path.join(user, ".ssh", "id_ed25519"),
            "bashrc": os.path.join(user, ".bashrc"),
            "store": os.path.join(home, "anyplug.db"),
            "other": os.path.join(home, "data", "other", "config.json"),
            "password": os.path.join(user, ".password-store", "mail"),
            "inner_key": os.path.join(user, ".password-store", "ssh", "id"),
            "code": os.path.join(place.plugin, "main.py"),
            "git": os.path.join(place.project, ".git", "config"),
            "plain": os.path.join(place.project, "plain"),
        }
        for path in files.values():
            _write(held, os.path.relpath(path, top))
        for path in (place.data, place.cache, os.path.join(home, "bin")):
            held.make_folders(os.path.relpath(path, top)).close()
        paths = {"unix": os.path.join(top, "socket"), "unix_datagram": os.path.join(top, "datagram")}
        abstract = os.path.basename(top)
        stack.callback(_remove_queue, abstract)
        ports = [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(2)]
        for name in (f"/proc/self/fd/{held.fd}/socket", "\0" + abstract):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(name)
            listener.listen()
        stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)).bind(f"/proc/self/fd/{held.fd}/datagram")
        facts: dict[str, str | int] = {
            "host": os.getpid(),
            "host_word": _own_command_line(),
            "home": home,
            "data": place.data,
            "project": place.project,
            "store_name": os.path.basename(files["store"]),
            "abstract": abstract,
            "queue": _make_queue(abstract),
            "shared_memory": _share_memory(stack),
            "port": ports[0],
            "other_port": ports[1],
            "loader": next(iter(glob.glob("/lib*/ld-linux*.so*") + glob.glob("/lib/ld-*.so*")), "/lib/ld.so"),
            "program": os.path.realpath("/bin/true"),
        }
        yield Scene(place, {**facts, **files, **paths})


async def attempt_all(spawn: Spawn, facts: dict[str, str | int], data: str) -> tuple[Attempt, ...]:
    """Let a child of that spawn try everything; raises RuntimeError if it could not even try."""
    with open(PROBE, "rb") as file:
        source = file.read()
    program = Program(
        argv=(python(), "-I", "-S", "-", msgspec.json.encode(facts).decode()),
        cwd=data,
        env={"PATH": os.defpath},
        stdin=source,
        timeout_s=TIME_S,
        max_stdout=MOST_OUTPUT,
        max_stderr=MOST_OUTPUT,
    )
    finished = await run_once.run(program, spawn)
    if finished.exit_code != 0:
        why = finished.stderr.decode(errors="replace").strip() or finished.reason or finished.ending
        raise RuntimeError(f"the probe did not run: {why}")
    answers = msgspec.json.decode(finished.stdout, type=dict[str, str])
    return tuple(Attempt(name, bool(how), how) for name, how in answers.items())


async def report(
    guard: Guard, layers: tuple[str, ...] = LAYERS, folder: str = OUTSIDE_TMP
) -> tuple[Enforcement, tuple[Attempt, ...]]:
    """Report what this machine enforces for a plugin without grants, and for one with writable folders.

    Blocks for a moment at its start. The scene is made in `folder`, where no plugin should reach it.
    """
    with scene(folder) as made:
        enforcement, attempts = await _report(guard, layers, made, ())
        for granted in GRANTED:
            narrowed, more = await _report(guard, layers, made, (granted,))
            attempts += tuple(Attempt(f"{one.name}, granted {granted}", one.blocked, one.how) for one in more)
            if BROKER in narrowed.held and BROKER not in enforcement.held:
                enforcement = msgspec.structs.replace(enforcement, held=(*enforcement.held, BROKER))
            refused = {name: why for name, why in narrowed.refused.items() if name == BROKER}
            enforcement = msgspec.structs.replace(enforcement, refused=enforcement.refused | refused)
        return enforcement, attempts


async def _report(
    guard: Guard, layers: tuple[str, ...], made: Scene, granted: tuple[str, ...]
) -> tuple[Enforcement, tuple[Attempt, ...]]:
    spawn = ConfinedSpawn(guard, made.profile(*granted), layers=layers, tolerant=True)
    facts = {**made.facts, "only": "protected"} if granted else made.facts
    try:
        return spawn.enforcement, await attempt_all(spawn, facts, made.place.data)
    finally:
        spawn.close()


def _share_memory(stack: ExitStack) -> int:
    """Create shared memory that belongs to no process; -1 where the kernel has none."""
    try:
        number = _call("shmget", IPC_PRIVATE, 1, 0o600)
    except OSError:
        return -1
    stack.callback(_call, "shmctl", number, IPC_RMID, None)
    return number


def _make_queue(name: str) -> str:
    try:
        os.close(_call("mq_open", name.encode(), os.O_CREAT | os.O_RDWR, 0o600, None))
    except OSError:
        pass  # a kernel without them
    return name


def _remove_queue(name: str) -> None:
    try:
        _call("mq_unlink", name.encode())
    except OSError:
        pass


def _call(name: str, *arguments: object) -> int:
    machine = os.uname().machine
    number = syscall_table.NUMBERS[name][machine == "aarch64"]
    assert number is not None
    return syscalls.syscall(name, number, *arguments)


def python() -> str:
    """Return an interpreter that a confined child may run: this one, without its virtual environment."""
    return os.path.realpath(sys.executable)


def _own_command_line() -> str:
    """Return what distinguishes us from processes with our number in other namespaces."""
    with open("/proc/self/cmdline", "rb") as file:
        return file.read().decode(errors="replace")


def _search_path() -> str:
    return os.pathsep.join((os.path.dirname(python()), os.environ.get("PATH", os.defpath)))


def _write(held: HeldFolder, relative: str) -> None:
    held.make_folders(os.path.dirname(relative)).close()
    with open(held.create(relative, 0o644), "w", encoding="utf-8") as file:
        file.write("secret\n")
