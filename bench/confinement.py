"""A confined start against an unconfined one and against bubblewrap; the calls of a confined session."""

import os
import shutil
import statistics
import sys
import time
from typing import Any

import anyio
import anyio.to_thread

from anyplug.runtime.processes import run_once
from anyplug.runtime.processes.direct_spawn import DirectSpawn
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program, Spawn
from anyplug.runtime.sandbox import system_paths
from anyplug.runtime.sandbox.profile import Locations, Profile, draw
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from anyplug.runtime.session.session import Session
from bench import calls, plugins
from bench.measure import Act, Plan, Row, medians

AIM_C = 2.2
AIM_PYTHON = 1.05
AIM_SESSION = 1.1  # the same bytes through the same pipes: what differs is the filter, on each system call
AIM_BUBBLEWRAP = 0.5
AIM_BESIDE_SPINNING = 4.0  # both get the same share, and what is left is waiting for a core
TRIES = 5  # calls of a session of which the fastest counts: one is shorter than what disturbs it
TIME_S, PLENTY = 60.0, 1 << 20
SPINNING = 16  # processes
SPIN = (
    f"import os, sys\nfor _ in range({SPINNING}):\n    if not os.fork():\n        while True: pass\n"
    "print('{}', flush=True)\nsys.stdin.read()\n"
)
FILES = 200
CREATE = (
    "import os, sys\nos.chdir(sys.argv[1])\n"
    f"for n in range({FILES}): os.close(os.open(str(n), os.O_CREAT | os.O_WRONLY))\n"
    f"for n in range({FILES}): os.unlink(str(n))\n"
)
ECHO = "import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n    sys.stdout.flush()\n"


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure a program that starts at once, one that takes its time, and one that stays."""
    place = _place(folder)
    what, source = calls.small_program(folder)
    python = os.path.realpath(sys.executable)
    small = plugins.write(place.plugin, "small", source)
    script = plugins.write(place.plugin, "script", calls.PYTHON_SOURCE.format(python=python))
    search_path = os.pathsep.join((os.path.dirname(python), os.environ["PATH"]))
    profile = draw((), place, system_paths.survey(search_path, place.home, place.user), system_paths.program_files)
    guard = Guard()
    direct = DirectSpawn(guard)
    confined = await anyio.to_thread.run_sync(ConfinedSpawn, guard, profile)
    try:
        cover = os.path.join(folder, "cover")
        os.mkdir(cover)
        main = (os.path.join(small, "main"),)
        found = [
            *await _starts(what, main, (confined, direct), plan.calls, AIM_C),
            *await _starts(f"{what}, with a /tmp for each call", main, (confined, direct), plan.calls, None, tmp=cover),
            *await _starts(
                "a Python script", (os.path.join(script, "main"),), (confined, direct), plan.scripts, AIM_PYTHON
            ),
            await _sessions((python, "-c", ECHO), (confined, direct), plan.calls),
            await _beside_spinning(what, main, (python, "-c", SPIN), (guard, profile, confined), plan.scripts),
            *await _bubblewraps(what, main, (confined, direct), (profile, place), plan.scripts),
        ]
        found.append(await _created(python, place, (guard, confined, search_path), plan.scripts))
    finally:
        await anyio.to_thread.run_sync(confined.close)
        await anyio.to_thread.run_sync(guard.close)
    return found


async def _created(python: str, place: Locations, around: tuple[Guard, Spawn, str], rounds: int) -> Row:
    """Create files in a granted folder, where a broker makes them; and in its own, as a plugin without such a grant."""
    guard, without, search_path = around
    granted = os.path.join(place.user, "granted")
    os.mkdir(granted)
    found = system_paths.survey(search_path, place.home, place.user)
    profile = draw((f"filesystem:write:{granted}",), place, found, system_paths.program_files)
    spawn = await anyio.to_thread.run_sync(ConfinedSpawn, guard, profile)
    try:
        create = (python, "-I", "-S", "-c", CREATE)
        measured, baseline = await medians(
            rounds, _run((*create, granted), spawn), _run((*create, place.data), without)
        )
    finally:
        await anyio.to_thread.run_sync(spawn.close)
    return Row(
        what=f"a program that creates and removes {FILES} files in a granted folder",
        against="in its own folder, without a broker",
        measured=measured,
        baseline=baseline,
    )


def _place(folder: str) -> Locations:
    home = os.path.join(folder, "home")
    place = Locations(
        plugin=os.path.join(home, "plugins"),
        data=os.path.join(home, "data"),
        cache=os.path.join(home, "cache"),
        home=home,
        user=folder,
    )
    for path in (place.plugin, place.data, place.cache):
        os.makedirs(path)
    return place


def _run(argv: tuple[str, ...], spawn: Spawn, tmp: str = "") -> Act:
    program = Program(
        argv=argv,
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        stdin=calls.REQUEST,
        timeout_s=TIME_S,
        max_stdout=PLENTY,
        max_stderr=PLENTY,
        tmp=tmp,
    )

    async def run() -> None:
        finished = await run_once.run(program, spawn)
        assert finished.exit_code == 0, finished

    return run


async def _starts(
    what: str, argv: tuple[str, ...], spawns: tuple[Spawn, Spawn], rounds: int, aim: float | None, tmp: str = ""
) -> list[Row]:
    confined, direct = spawns
    measured, baseline = await medians(rounds, _run(argv, confined, tmp), _run(argv, direct))
    return [Row(what=f"confined run of {what}", against="unconfined", measured=measured, baseline=baseline, aim=aim)]


async def _sessions(argv: tuple[str, ...], spawns: tuple[Spawn, Spawn], rounds: int) -> Row:
    """Send a frame, and wait for the same frame."""
    sessions: list[Session] = []
    program = Program(argv=argv, cwd="/", env={"PATH": os.environ["PATH"]})

    def receive(frame: dict[str, Any]) -> None:
        sessions[frame["from"]].answer("echo", frame)

    sessions += [Session(program, spawn, receive=receive, ended=lambda _: None, log=lambda _: None) for spawn in spawns]

    async def ask(number: int) -> float:
        begun = time.perf_counter()
        answer = sessions[number].expect("echo")
        sessions[number].send({"from": number})
        await answer
        return (time.perf_counter() - begun) * 1000

    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(rounds):
        for number, taken in enumerate(times):
            taken.append(min([await ask(number) for _ in range(TRIES)]))
    measured, baseline = map(statistics.median, times)
    for session in sessions:
        await session.stop()
    return Row(
        what="call of a confined session",
        against="unconfined",
        measured=measured,
        baseline=baseline,
        aim=AIM_SESSION,
    )


async def _beside_spinning(
    what: str,
    argv: tuple[str, ...],
    greedy: tuple[str, ...],
    confined_by: tuple[Guard, Profile, Spawn],
    rounds: int,
) -> Row:
    """Measure what is left for a plugin while another one takes all the CPU that it gets."""
    guard, profile, confined = confined_by
    (alone,) = await medians(rounds, _run(argv, confined))
    other = await anyio.to_thread.run_sync(ConfinedSpawn, guard, profile)
    sessions: list[Session] = []
    program = Program(argv=greedy, cwd="/", env={"PATH": os.environ["PATH"]})

    def receive(frame: dict[str, Any]) -> None:
        sessions[0].answer("spins", frame)

    try:
        session = Session(
            program,
            other,
            receive=receive,
            ended=lambda _: None,
            log=lambda _: None,
        )
        sessions.append(session)
        await session.expect("spins")
        (beside,) = await medians(rounds, _run(argv, confined))
        await session.stop()
    finally:
        await anyio.to_thread.run_sync(other.close)
    return Row(
        what=f"confined run of {what} beside a plugin that spins in {SPINNING} processes",
        against="alone",
        measured=beside,
        baseline=alone,
        aim=AIM_BESIDE_SPINNING,
    )


async def _bubblewraps(
    what: str, argv: tuple[str, ...], spawns: tuple[Spawn, Spawn], confined_to: tuple[Profile, Locations], rounds: int
) -> list[Row]:
    """Compare with `bwrap`, where it is installed: on the same paths, and as people use it, on whole folders."""
    name = f"confined run of {what}"
    confined, direct = spawns
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        (measured,) = await medians(rounds, _run(argv, confined))
        return [Row(what=name, against="bwrap (not here)", measured=measured, baseline=None, aim=AIM_BUBBLEWRAP)]
    alone = (bwrap, "--unshare-all", "--cap-drop", "ALL", "--new-session", "--die-with-parent")
    rows = []
    for how, paths in (("same paths", _same_paths(confined_to[0])), ("whole folders", _whole_folders(confined_to[1]))):
        wrapped = (*alone, *paths, "--", *argv)
        measured, baseline = await medians(rounds, _run(argv, confined), _run(wrapped, direct))
        against = f"bwrap, {how}"
        rows.append(Row(what=name, against=against, measured=measured, baseline=baseline, aim=AIM_BUBBLEWRAP))
    return rows


def _same_paths(profile: Profile) -> list[str]:
    """Give the options by which `bwrap` shows what the profile does, each path by itself."""
    binds = (("--ro-bind-try", (*profile.readable, *profile.executable)), ("--bind", profile.writable))
    given = [word for option, paths in binds for path in paths for word in (option, path, path)]
    return ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *given]


def _whole_folders(place: Locations) -> list[str]:
    """Give the options by which it shows the whole system, less what is the user's and ours: less than we hold."""
    own = [word for path in (place.plugin,) for word in ("--ro-bind", path, path)]
    own += [word for path in (place.data, place.cache) for word in ("--bind", path, path)]
    return ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", place.user, *own]
