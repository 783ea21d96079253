"""A confined start against an unconfined one and against bubblewrap; the calls of a confined session."""

import os
import shutil
import sys
from typing import Any

import anyio
import anyio.to_thread

from anyplug.runtime import process
from anyplug.runtime.confine import system
from anyplug.runtime.confine.profile import Place, Profile, draw
from anyplug.runtime.confine.spawn import ConfinedSpawn
from anyplug.runtime.guard import Guard
from anyplug.runtime.program import Program, Spawn
from anyplug.runtime.session import Session
from anyplug.runtime.spawn import DirectSpawn
from bench import calls, plugins
from bench.measure import Act, Plan, Row, medians

AIM_C = 2.2
AIM_PYTHON = 1.05
AIM_SESSION = 1.1  # the same bytes through the same pipes: what differs is the filter, on each system call
AIM_BUBBLEWRAP = 0.5
TIME_S, PLENTY = 60.0, 1 << 20
ECHO = "import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n    sys.stdout.flush()\n"


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure a program that starts at once, one that takes its time, and one that stays."""
    place = _place(folder)
    what, source = calls.small_program(folder)
    python = os.path.realpath(sys.executable)
    small = plugins.write(place.plugin, "small", source)
    script = plugins.write(place.plugin, "script", calls.PYTHON_SOURCE.format(python=python))
    search_path = os.pathsep.join((os.path.dirname(python), os.environ["PATH"]))
    profile = draw((), place, system.survey(search_path, place.home, place.user), system.program_files)
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
            await _bubblewrap(what, main, (confined, direct), profile, plan.scripts),
        ]
    finally:
        await anyio.to_thread.run_sync(confined.close)
        await anyio.to_thread.run_sync(guard.close)
    return found


def _place(folder: str) -> Place:
    home = os.path.join(folder, "home")
    place = Place(
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
        finished = await process.run(program, spawn)
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

    def asking(number: int) -> Act:
        async def ask() -> None:
            answer = sessions[number].expect("echo")
            sessions[number].send({"from": number})
            await answer

        return ask

    measured, baseline = await medians(rounds, *map(asking, range(len(sessions))))
    for session in sessions:
        await session.stop()
    return Row(
        what="call of a confined session",
        against="unconfined",
        measured=measured,
        baseline=baseline,
        aim=AIM_SESSION,
    )


async def _bubblewrap(
    what: str, argv: tuple[str, ...], spawns: tuple[Spawn, Spawn], profile: Profile, rounds: int
) -> Row:
    """Compare with `bwrap` on the same paths, where it is installed."""
    name = f"confined run of {what}"
    confined, direct = spawns
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        (measured,) = await medians(rounds, _run(argv, confined))
        return Row(what=name, against="bubblewrap (not here)", measured=measured, baseline=None, aim=AIM_BUBBLEWRAP)
    command = [bwrap, "--unshare-all", "--cap-drop", "ALL", "--new-session", "--die-with-parent"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for option, paths in (("--ro-bind-try", (*profile.readable, *profile.executable)), ("--bind", profile.writable)):
        command += [word for path in paths for word in (option, path, path)]
    measured, baseline = await medians(rounds, _run(argv, confined), _run((*command, "--", *argv), direct))
    return Row(what=name, against="bubblewrap", measured=measured, baseline=baseline, aim=AIM_BUBBLEWRAP)
