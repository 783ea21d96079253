"""Nothing outlives its host: not after an orderly end, not after SIGKILL, not in a session of its own."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

import plugin_folders
import processes
from anyplug.runtime.processes.guard import Guard, signal_name

# What a host runs: a plain sleeper, a child of its own, and a daemon with its own session and an empty environment.
BUSY = """#!/bin/sh
sleep 701 &
env -i setsid sleep 702 </dev/null >/dev/null 2>&1 &
(setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 703; done' </dev/null >/dev/null 2>&1 &)
sleep 0.3
touch "${CYCLOPONE_DATA_DIR:-$HOME}/busy-$1"
exec sleep 704
"""
# A daemon whose first thread ends while another runs on: the kernel shows it as a zombie.
HEADLESS = """
import ctypes, os, threading, time
if not os.fork():
    os.setsid()
    def run():
        while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        open(os.environ["CYCLOPONE_DATA_DIR"] + "/headless", "w").close()
        time.sleep(705)
    threading.Thread(target=run).start()
    ctypes.CDLL(None).syscall(EXIT, 0)
time.sleep(706)
"""
EXIT = {"x86_64": 60, "aarch64": 93}  # the call that ends one thread
HOST = """
import sys, anyio
from anyplug import Host

async def main():
    async with Host(sys.argv[1:], roots=[], watch=False) as h:
        print(h._runner.guard._tag, h._runner._scratch.path, flush=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.call, "busy")
            tasks.start_soon(h.call, "bundle.act")
            await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
            tasks.cancel_scope.cancel()

anyio.run(main)
"""


@pytest.fixture
def busy(cyclop, stavrobot, home):
    """Start a host in a process of its own, wait until its plugins are busy; give it with its mark and its scratch."""
    folders = [cyclop("busy", BUSY), stavrobot("bundle", BUSY)]
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, *folders], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    tag, scratch = host.stdout.readline().split()
    marks = [str(home / "data" / "busy" / "busy-"), str(home / "data" / "bundle" / "home" / "busy-")]
    assert processes.until(lambda: all(map(os.path.exists, marks)))
    yield host, int(tag), scratch
    host.kill()
    host.communicate()


def test_the_plugins_are_as_busy_as_the_test_needs(busy):
    assert {"sleep 701 ", "sleep 702 ", "sleep 703 ", "sleep 704 "} <= set(processes.tagged(busy[1]).values())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT])
def test_nothing_survives_a_host_that_dies(busy, number):
    host, tag, scratch = busy
    assert os.path.isdir(scratch)
    host.send_signal(number)
    host.wait(processes.PATIENCE_S)
    assert processes.until(lambda: not processes.tagged(tag)), processes.tagged(tag)
    assert processes.until(lambda: not os.path.exists(scratch))


@pytest.mark.skipif(os.uname().machine not in EXIT, reason="the number of the call is not known here")
@pytest.mark.parametrize("namespaces", ["true", "false"])
def test_a_process_whose_main_thread_has_ended_does_not_survive(cyclop, home, settings, namespaces):
    settings(f"namespaces = {namespaces}\n")
    folder = cyclop("busy", plugin_folders.python(HEADLESS.replace("EXIT", str(EXIT[os.uname().machine]))))
    program = HOST.replace('tasks.start_soon(h.call, "bundle.act")', "pass")
    host = subprocess.Popen(
        [sys.executable, "-c", program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    tag = int(host.stdout.readline().split()[0])
    assert processes.until(lambda: os.path.exists(home / "data" / "busy" / "headless"))
    host.kill()
    host.communicate()
    assert processes.until(lambda: not processes.tagged(tag)), processes.tagged(tag)


def test_nothing_survives_when_the_hosts_whole_group_is_killed(cyclop, home):
    folder = cyclop("busy", BUSY)
    program = HOST.replace('tasks.start_soon(h.call, "bundle.act")', "pass")
    host = subprocess.Popen(
        [sys.executable, "-c", program, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    tag = int(host.stdout.readline().split()[0])
    assert processes.until(lambda: os.path.exists(home / "data" / "busy" / "busy-"))
    os.killpg(host.pid, signal.SIGKILL)
    host.communicate()
    assert processes.until(lambda: not processes.tagged(tag)), processes.tagged(tag)


def test_an_orderly_end_takes_everything_along_before_the_host_has_left(busy):
    host, tag, scratch = busy
    host.communicate(timeout=processes.PATIENCE_S)
    assert host.returncode == 0
    assert processes.tagged(tag) == {}
    assert not os.path.exists(scratch)


def test_a_guardian_that_somebody_killed_is_replaced(tmp_path):
    guard = Guard()
    try:
        with guard:
            pass
        first = guard._process
        first.kill()
        first.wait()
        with guard:
            child = subprocess.Popen(["sleep", "705"])
        assert guard._process.pid != first.pid
    finally:
        guard.close()
    assert child.wait(processes.PATIENCE_S) == -signal.SIGKILL


def test_a_guardian_that_somebody_killed_is_replaced_before_anything_else_starts(tmp_path):
    async def main():
        guard = Guard()
        guard.watch(asyncio.get_running_loop())
        try:
            with guard:
                child = subprocess.Popen(["sleep", "706"])  # noqa: ASYNC220
            first = guard._process
            await asyncio.sleep(0)
            first.kill()
            while guard._process is first:
                await asyncio.sleep(0.01)
            assert guard._process.poll() is None
        finally:
            await asyncio.to_thread(guard.close)
        return child

    assert asyncio.run(main()).wait(processes.PATIENCE_S) == -signal.SIGKILL


def test_what_the_embedding_program_starts_itself_is_left_alone():
    guard = Guard()
    with guard:
        ours = subprocess.Popen(["sleep", "706"])
    theirs = subprocess.Popen(["sleep", "707"])
    guard.close()
    try:
        assert ours.wait(processes.PATIENCE_S) == -signal.SIGKILL
        assert theirs.poll() is None
    finally:
        theirs.kill()
        theirs.wait()


def test_nothing_is_started_that_nobody_would_end():
    import threading  # only here

    guard, other = Guard(), Guard()
    said = []

    def spawn() -> None:
        try:
            with guard:
                said.append("started")
        except OSError as error:
            said.append(error.strerror)

    threads = [threading.Thread(target=spawn), threading.Thread(target=guard.close)]
    with other:  # one mark at a time: both wait
        for thread in threads:
            thread.start()
            thread.join(0.1)
    for thread in threads:
        thread.join()
    other.close()
    assert said in (["started"], ["the host has ended"])
    assert guard._process is None
    with pytest.raises(OSError, match="the host has ended"), guard:
        pass


def test_two_threads_that_start_at_once_get_one_guardian():
    import threading  # only here

    for _ in range(5):
        guard = Guard()
        ready, started = threading.Barrier(4), []

        def enter(guard=guard, ready=ready, started=started):
            ready.wait()
            with guard:
                started.append(guard._process.pid)

        threads = [threading.Thread(target=enter) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        guard.close()
        assert len(set(started)) == 1


def test_a_closed_guard_can_be_closed_again():
    guard = Guard()
    guard.close()
    guard.close()


def test_signals_have_names():
    assert signal_name(9) == "SIGKILL"
    assert signal_name(63) == "signal 63"


def test_a_killed_host_leaves_no_scratch_folder(busy, home):
    host, _, _ = busy
    host.kill()
    host.wait()
    assert processes.until(lambda: os.listdir(home / "scratch") == [])


def test_plugins_see_the_guards_word_and_a_host_inside_a_plugin_keeps_it():
    outer = os.environ["ANYPLUG_GUARD"]
    guard = Guard()
    assert guard.environment["ANYPLUG_GUARD"] == f"{outer},{guard._token}"
