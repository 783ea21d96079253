"""The CPU: a plugin's programs give way, count as one however many they are, and cannot change that."""

import contextlib
import json
import os

import anyio
import pytest

import sandbox_script
from anyplug.runtime.processes import run_once
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program
from anyplug.runtime.sandbox import escape_test
from anyplug.runtime.sandbox.linux import cpu_share
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from conditions import until

PLENTY = 1 << 20
LOOK = """
import json, os
def tried(act):
    try:
        act()
        return ""
    except OSError as error:
        return error.strerror
def scheduling(policy, pid=0):
    return lambda: os.sched_setscheduler(pid, policy, os.sched_param(1 if policy in (1, 2) else 0))
print(json.dumps({
    "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "policy": os.sched_getscheduler(0),
    "group": open("/proc/self/autogroup").read().split(" ")[0],
    "cgroup": open("/proc/self/cgroup").read(),
    "raise": tried(lambda: os.setpriority(os.PRIO_PROCESS, 0, 0)),
    "real time": tried(scheduling(os.SCHED_FIFO)),
    "hold up its spawner": tried(scheduling(os.SCHED_IDLE, os.getppid())),
    "lower": tried(lambda: os.setpriority(os.PRIO_PROCESS, 0, 19)),
}))
"""
# Each opens a session, in which it would count as one more, and spins.
SPIN = """
import os
for _ in range(12):
    if not os.fork():
        os.setsid()
        while True: pass
print("spinning", flush=True)
while True: pass
"""
SESSION = "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(600)\ntime.sleep(600)"
IN_A_CGROUP = """
import json, os, sys, anyio
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
from anyplug.runtime.sandbox.linux import cpu_share
import test_cpu_share
print(json.dumps([cpu_share.means(), anyio.run(test_cpu_share.look)]))
"""


@contextlib.contextmanager
def plugin(guard):
    with escape_test.scene() as scene:
        spawn = ConfinedSpawn(guard, scene.profile())
        try:
            yield spawn, scene
        finally:
            spawn.close()


@pytest.fixture
def guard():
    made = Guard()
    yield made
    made.close()


def program(scene, code, **changes):
    fields = {"env": {"PATH": os.defpath}, "timeout_s": 60.0, "max_stdout": PLENTY, "max_stderr": PLENTY}
    return Program(argv=(escape_test.python(), "-c", code), cwd=scene.place.data, **(fields | changes))


async def look():
    """What a confined program sees of its own priority, and may do about it."""
    guard = Guard()
    try:
        with plugin(guard) as (spawn, scene):
            assert "cpu" in spawn.enforcement.held
            finished = await run_once.run(program(scene, LOOK), spawn)
            assert finished.exit_code == 0, finished.stderr
            return json.loads(finished.stdout)
    finally:
        guard.close()


@pytest.mark.claim("cpu-priority-kept")
@pytest.mark.parametrize("user", sandbox_script.USERS)
def test_a_plugin_has_a_low_priority_and_cannot_raise_it(user):
    folder = os.path.dirname(os.path.abspath(__file__))
    code = f"import json, sys; sys.path[:0] = [{folder!r}, {os.path.dirname(sandbox_script.__file__)!r}]\n"
    code += (
        "import os, anyio, test_cpu_share\nprint(json.dumps([os.getpriority(0, 0), anyio.run(test_cpu_share.look)]))"
    )
    before, seen = json.loads(sandbox_script.run(user, code))
    assert seen["nice"] == min(before + cpu_share.NICE, cpu_share.LAST_NICE)
    assert seen["lower"] == ""
    assert {seen["raise"], seen["real time"], seen["hold up its spawner"]} <= {
        "Operation not permitted",
        "Permission denied",
    }


@pytest.mark.claim("cpu-priority-kept")
def test_a_plugin_has_no_real_time_priority_of_its_host():
    if os.geteuid():
        pytest.skip("only root may give one")
    folder = os.path.dirname(os.path.abspath(__file__))
    code = f"import json, sys; sys.path[:0] = [{folder!r}, {os.path.dirname(sandbox_script.__file__)!r}]\n"
    code += "import os, anyio, test_cpu_share\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n"
    code += "print(json.dumps(anyio.run(test_cpu_share.look)))"
    assert json.loads(sandbox_script.run("root", code))["policy"] == os.SCHED_OTHER


def groups(pids):
    return {tuple(text.split()) for pid in pids if (text := cpu_share._read(f"/proc/{pid}/autogroup"))}


def below(pid):
    """The processes that one started, and those that these did."""
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
        children = " ".join(cpu_share._read(f"/proc/{pid}/task/{thread}/children") for thread in threads)
        return [each for child in map(int, children.split()) for each in (child, *below(child))]
    return []


@pytest.mark.anyio
async def test_a_session_that_a_program_opens_has_hardly_any_weight(guard):
    if cpu_share.means() != cpu_share.SESSIONS:
        pytest.skip("the kernel does not group by session here")
    with plugin(guard) as (spawn, scene):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_once.run, program(scene, SESSION), spawn)
            wanted = {("nice", "0"), ("nice", str(cpu_share.LAST_NICE))}
            await until(lambda: {group[1:] for group in groups(below(spawn._process.pid))} == wanted)
            tasks.cancel_scope.cancel()


@pytest.mark.claim("cpu-shared")
@pytest.mark.anyio
async def test_a_plugin_that_spins_lets_others_go_on(guard):
    with plugin(guard) as (greedy, scene), plugin(guard) as (other, its_scene):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_once.run, program(scene, SPIN, timeout_s=600.0), greedy)
            await until(lambda: len(below(greedy._process.pid)) > 12)
            for _ in range(5):
                finished = await run_once.run(program(its_scene, "print('done')"), other)
                assert finished.stdout == b"done\n", finished.stderr
            assert len(below(greedy._process.pid)) > 12  # it spins all the while
            tasks.cancel_scope.cancel()


def test_where_a_cgroup_divides_the_cpu_each_plugin_has_one():
    outer = f"{cpu_share.CGROUPS}/cpu/anyplug-test-{os.getpid()}"
    try:
        os.mkdir(outer)
    except OSError:
        pytest.skip("no cgroup can be made here")
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        code = f"import sys; sys.path[:0] = [{folder!r}, {os.path.dirname(sandbox_script.__file__)!r}]\n{IN_A_CGROUP}"
        how, seen = json.loads(sandbox_script.run("root", code, outer))
        assert how == cpu_share.CGROUP
        assert f"cpu:{outer.removeprefix(cpu_share.CGROUPS + '/cpu')}/{cpu_share.PREFIX}" in seen["cgroup"]
    finally:
        for path, folders, _ in os.walk(outer, topdown=False):
            for name in folders:
                os.rmdir(os.path.join(path, name))
        os.rmdir(outer)


def tree(folder, *paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("cpu memory\n")


@pytest.mark.parametrize(
    ("files", "outermost", "parent"),
    [
        (("cgroup.controllers",), True, ""),
        (("cgroup.controllers", "a/cpu.weight"), False, ""),
        (("cgroup.controllers", "a/cgroup.subtree_control", "a/cgroup.procs", "a/b/cpu.weight"), False, "a"),
        ((), False, ""),
    ],
    ids=["nothing divides it", "not ours to divide", "delegated", "not mounted"],
)
def test_which_cgroup_is_ours_to_divide(files, outermost, parent, tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_share, "CGROUPS", str(tmp_path))
    tree(tmp_path, *files)
    own = str(tmp_path / "a" / "b")
    assert cpu_share._is_outermost(own, "cpu.weight") == outermost
    assert cpu_share._parent(own, "cpu.weight") == (str(tmp_path / parent) if parent else "")
