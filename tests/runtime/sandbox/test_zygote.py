"""Spawners come from one process, share nothing but its memory, and outlive it; it leaves nothing behind."""

import asyncio
import os
import signal
import socket
import sys
import threading

import anyio
import pytest

import processes
import sandbox_script
from anyplug.runtime.sandbox import zygote_client

if sys.platform != "linux":
    pytest.skip("confinement is for Linux", allow_module_level=True)

from anyplug.runtime.helpers import Helpers
from anyplug.runtime.processes import run_once
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program
from anyplug.runtime.runner import Runner
from anyplug.runtime.sandbox import escape_test
from anyplug.runtime.sandbox.enforcement import LAYERS
from anyplug.runtime.sandbox.profile import Profile
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

SLEEPER = Program(argv=("/bin/sleep", "811"), cwd="/", env={}, timeout_s=60, max_stdout=99, max_stderr=99)


@pytest.fixture
def guard():
    made = Guard()
    yield made
    made.close()
    assert processes.until(lambda: not processes.tagged(made._tag)), processes.tagged(made._tag)


@pytest.fixture
def spawn(guard):
    """Makes spawners, all for one plugin."""
    made = []
    with escape_test.scene() as scene:

        def make():
            made.append(ConfinedSpawn(guard, scene.profile("shell:exec")))
            return made[-1]

        yield make
        for one in made:
            one.close()


def parent(pid):
    return int(processes.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])


def sockets(pid):
    folder = f"/proc/{pid}/fd"
    return [link for fd in os.listdir(folder) if (link := os.readlink(f"{folder}/{fd}")).startswith("socket:")]


def zygote_of(guard):
    return guard.zygote._zygote


def test_all_spawners_of_a_host_are_forks_of_one_process_and_have_no_socket_but_their_own(guard, spawn):
    spawners = [spawn()._process.pid for _ in range(3)]
    assert {parent(pid) for pid in spawners} == {zygote_of(guard).pid}
    assert [len(sockets(pid)) for pid in spawners] == [1, 1, 1]
    assert len({sockets(pid)[0] for pid in spawners}) == 3
    assert len(sockets(zygote_of(guard).pid)) == 1


def test_what_has_ended_is_taken_leave_of(guard, spawn):
    for _ in range(3):
        spawn().close()
    zygote = zygote_of(guard).pid
    assert processes.until(lambda: not processes.read(f"/proc/{zygote}/task/{zygote}/children"))


@pytest.mark.anyio
async def test_a_nurse_that_somebody_killed_is_replaced_and_its_spawners_go_on(guard, spawn):
    before = spawn()
    killed = zygote_of(guard)
    killed.kill()
    killed.wait()
    after = spawn()
    assert zygote_of(guard).pid != killed.pid
    for one in (before, after):
        said = Program(argv=("/bin/echo", "said"), cwd="/", env={}, timeout_s=60, max_stdout=99, max_stderr=99)
        finished = await run_once.run(said, one)
        assert (finished.exit_code, finished.stdout) == (0, b"said\n"), finished


def sleep_in(one):
    """Let a spawner start something that nobody waits for."""
    pipes = [os.pipe() for _ in range(3)]
    one(SLEEPER, pipes[0][0], pipes[1][1], pipes[2][1]).close()
    for pipe in pipes:
        for fd in pipe:
            os.close(fd)


def sleepers(guard):
    return sum("sleep 811" in line for line in processes.tagged(guard._tag).values())


def test_a_host_that_ends_takes_the_nurse_and_all_spawners_along(guard, spawn):
    for _ in range(2):
        sleep_in(spawn())
    assert processes.until(lambda: sleepers(guard) == 2)
    guard.close()
    assert processes.until(lambda: not processes.tagged(guard._tag)), processes.tagged(guard._tag)


def test_threads_that_ask_at_once_get_one_nurse_and_a_spawner_each(guard):
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(ConfinedSpawn(guard, Profile(), tolerant=True))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One that is process 1 of a namespace has another parent until that has ended.
    assert processes.until(lambda: {parent(one._process.pid) for one in made} == {zygote_of(guard).pid})
    assert len({one._process.pid for one in made}) == 4
    for one in made:
        one.close()


def test_a_nurse_that_does_not_answer_is_dismissed_and_the_next_does(guard, spawn, monkeypatch):
    monkeypatch.setattr(zygote_client, "START_S", 0.5)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        zygote_client.zygote_of(guard).make_spawner(theirs)
        first = zygote_of(guard)
        first.send_signal(signal.SIGSTOP)
        with pytest.raises(zygote_client.ZygoteGone, match="timed out"):
            zygote_client.zygote_of(guard).make_spawner(theirs)
    assert first.poll() == -signal.SIGKILL
    second = spawn()
    zygote_of(guard).send_signal(signal.SIGSTOP)
    assert spawn().is_alive, "the next attempt has another zygote"
    assert second.is_alive


def test_after_its_host_nothing_is_made_any_more():
    guard = Guard()
    guard.close()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, pytest.raises(OSError, match="the host has ended"):
        zygote_client.zygote_of(guard).make_spawner(theirs)
    assert zygote_client.zygote_of(guard)._zygote is None


NO_PROCESS = """
import resource
from anyplug.runtime.sandbox.enforcement import NotEnforceable
from anyplug.runtime.sandbox.profile import Profile
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from anyplug.runtime.processes.guard import Guard

guard = Guard()
ConfinedSpawn(guard, Profile(), tolerant=True).close()
resource.prlimit(guard.zygote._zygote.pid, resource.RLIMIT_NPROC, (0, 0))
try:
    ConfinedSpawn(guard, Profile())
except NotEnforceable as refusal:
    print(refusal)
guard.close()
"""


def test_a_nurse_that_cannot_fork_says_why():
    said = sandbox_script.run("ordinary", NO_PROCESS)
    assert "the spawner cannot be started: Resource temporarily unavailable" in said


DAEMON = "(setsid sleep 812 >/dev/null 2>&1 </dev/null &) ; echo started"


@pytest.mark.anyio
@pytest.mark.parametrize("without", [(), ("pids",), ("mounts", "pids", "network", "ipc", "read-only")])
async def test_an_orderly_end_leaves_no_daemon_of_a_program_with_or_without_a_pid_namespace(guard, without):
    layers = tuple(layer for layer in LAYERS if layer not in without)
    argv, env = ("/bin/sh", "-c", DAEMON), {"PATH": "/usr/bin:/bin", **guard.environment}
    program = Program(argv=argv, cwd="/", env=env, timeout_s=60, max_stdout=99, max_stderr=99)
    with escape_test.scene() as scene:
        one = ConfinedSpawn(guard, scene.profile("shell:exec"), layers=layers, tolerant=True)
        finished = await run_once.run(program, one)
        assert finished.stdout == b"started\n", finished
        one.close()
        guard.close()
    assert not processes.tagged(guard._tag), "everything has ended when `close` returns"
    assert guard.must_sweep is ("pids" not in one.enforcement.held)


@pytest.mark.parametrize("without", [(), ("pids",)])
def test_nothing_that_a_spawner_started_is_left_when_close_returns(guard, without):
    layers = tuple(layer for layer in LAYERS if layer not in without)
    with escape_test.scene() as scene:
        one = ConfinedSpawn(guard, scene.profile("shell:exec"), layers=layers, tolerant=True)
        sleep_in(one)
        assert processes.until(lambda: sleepers(guard) == 1)
        one.close()
        assert sleepers(guard) == 0
        assert not one.is_alive


def test_a_spawner_that_was_told_to_end_starts_nothing_more(guard, spawn):
    one = spawn()
    one.hang_up()
    assert not one.is_alive
    with pytest.raises(OSError, match="Broken pipe"):
        sleep_in(one)


def test_helpers_that_nobody_waits_for_end_by_themselves_and_leave_no_program(tmp_path):
    helpers = Helpers(str(tmp_path), waits=False)
    helpers.begin()
    with escape_test.scene() as scene:
        one = ConfinedSpawn(helpers.guard, scene.profile("shell:exec"))
        sleep_in(one)
        assert processes.until(lambda: sleepers(helpers.guard) == 1)
        one.close()
        guardian, zygote = helpers.guard._process, zygote_of(helpers.guard).pid
        helpers.close()
        assert sleepers(helpers.guard) == 0
    assert processes.until(lambda: guardian.returncode == 0)  # a thread waits for it, and for the zygote
    assert processes.until(lambda: zygote not in processes.children())
    assert not processes.tagged(helpers.guard._tag)


def test_helpers_that_were_started_ahead_are_those_that_the_host_uses_and_watches(tmp_path):
    helpers = Helpers(str(tmp_path))
    try:
        helpers.begin()
        helpers._starting.join()
        zygote, guardian = zygote_of(helpers.guard), helpers.guard._process
        assert processes.tagged(helpers.guard._tag).keys() == {zygote.pid}
        runner = Runner(str(tmp_path), helpers=helpers)
        assert runner.guard is helpers.guard
        one = ConfinedSpawn(runner.guard, Profile(), tolerant=True)
        assert parent(one._process.pid) == zygote.pid
        one.close()

        async def is_replaced():
            runner.guard.watch(asyncio.get_running_loop())
            guardian.kill()
            with anyio.fail_after(processes.PATIENCE_S):
                while runner.guard._process is guardian:
                    await anyio.sleep(0.01)

        anyio.run(is_replaced)
        runner.close()
        assert zygote.returncode == 0
    finally:
        helpers.close()


def test_helpers_that_nobody_needs_end_with_the_command(tmp_path):
    helpers = Helpers(str(tmp_path))
    helpers.begin()
    helpers.close()
    assert processes.tagged(helpers.guard._tag) == {}
    assert zygote_of(helpers.guard) is None
