"""Confined programs: what real plugins need works, nothing outlives a call or the host, and everything is bounded."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import anyio
import msgspec
import pytest

import processes
import sandbox_script
from anyplug.runtime.processes import run_once
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program
from anyplug.runtime.sandbox import escape_test
from anyplug.runtime.sandbox.enforcement import BROKER, LAYERS, NAMESPACES, NotEnforceable
from anyplug.runtime.sandbox.linux import memory_and_disk, mounts
from anyplug.runtime.sandbox.profile import Limits, Locations, Profile
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn, probe
from anyplug.runtime.session.session import Session
from conditions import until

pytestmark = pytest.mark.anyio

PLENTY = 1 << 24
BURST = 60  # starts at once
BUSY = "too many programs are waiting to be started"
BULK = "x" * 20_000  # in the environment of each, so that few of them fill the socket
WITHOUT_NAMESPACES = tuple(layer for layer in LAYERS if layer not in NAMESPACES)
DAEMON = "(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep {0}; done' </dev/null >/dev/null 2>&1 &) ; sleep 0.2; "


class Confined:
    """A plugin in a scene, and its spawner."""

    def __init__(self, scene, guard, *grants, layers=LAYERS, **changes):
        self.scene, self.guard = scene, guard
        self.place = scene.place
        profile = scene.profile(*grants)
        fields = {name: getattr(profile, name) for name in profile.__struct_fields__} | changes
        self.spawn = ConfinedSpawn(guard, Profile(**fields), layers=layers)

    def program(self, *argv, **changes):
        fields = {
            "argv": argv,
            "cwd": self.place.plugin,
            "env": {"PATH": os.environ["PATH"], "HOME": self.place.data} | self.guard.environment,
            "timeout_s": 60.0,
            "max_stdout": PLENTY,
            "max_stderr": PLENTY,
        }
        return Program(**(fields | changes))

    async def __call__(self, *argv, **changes):
        return await run_once.run(self.program(*argv, **changes), self.spawn)

    async def sh(self, script, **changes):
        return await self("/bin/sh", "-c", script, **changes)

    async def python(self, script, **changes):
        return await self(escape_test.python(), "-c", script, **changes)


@pytest.fixture
def confined():
    """Make confined plugins; afterwards nothing of theirs is left."""
    guard = Guard()
    with contextlib.ExitStack() as stack:
        made = []

        def make(*grants, **changes):
            one = Confined(stack.enter_context(escape_test.scene()), guard, *grants, **changes)
            made.append(one)
            return one

        yield make
        for one in made:
            one.spawn.close()
        guard.close()
        assert processes.tagged(guard._tag) == {}


# What real plugins need.


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/bin/sh", "-c", "echo hi | sed s/i/o/ | tr a-z A-Z"], "HO"),
        (["/bin/bash", "-c", "cat <<<hi | sort"], "hi"),
        (["/usr/bin/env", "python3", "-c", "import ssl, sqlite3, ctypes; print('hi')"], "hi"),
        (["/usr/bin/env", "perl", "-e", "use POSIX; print 'hi'"], "hi"),
        (["/usr/bin/env", "node", "-e", "console.log(require('os').cpus().length > 0)"], "true"),
        (["/usr/bin/env", "node", "-e", "new (require('worker_threads').Worker)('console.log(1)', {eval: true})"], "1"),
        (["/bin/sh", "-c", "date +%Y | grep -c 20; mktemp | cut -c1-5"], "1\n/tmp/"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
async def test_interpreters_and_small_tools_work_without_any_grant(confined, command, said):
    if command[0] == "/usr/bin/env":
        sandbox_script.find(command[1])
    finished = await confined()(*command)
    assert (finished.stdout.decode().strip(), finished.exit_code) == (said, 0), finished.stderr


SCRIPT = """# /// script
# requires-python = ">=3.9"
# dependencies = []
# ///
import os, sys
print(sys.prefix != sys.base_prefix, os.getcwd())
"""


async def test_a_script_of_uvs_runs_from_an_environment_that_uv_makes(confined):
    import uv  # a dependency of ours

    one = confined()
    os.symlink(uv.find_uv_bin(), os.path.join(one.place.home, "bin", "uv"))
    one.spawn.close()
    one.spawn = ConfinedSpawn(one.guard, one.scene.profile())
    with open(os.path.join(one.place.plugin, "script.py"), "w") as file:
        file.write(SCRIPT)
    env = {
        "PATH": f"{one.place.home}/bin:{os.environ['PATH']}",
        "UV_CACHE_DIR": one.place.cache,
        "HOME": one.place.data,
        "UV_OFFLINE": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    finished = await one("/usr/bin/env", "uv", "run", "--script", "script.py", env=env | one.guard.environment)
    assert finished.stdout.decode() == f"True {one.place.plugin}\n", finished.stderr


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_with_a_network_python_and_node_reach_a_server_by_name(confined, name):
    sandbox_script.find("node")
    one = confined("network")
    port = one.scene.facts["port"]
    python = f"import socket; socket.create_connection(('{name}', {port})).close(); print('there')"
    node = f"require('net').connect({port}, '{name}', () => {{ console.log('there'); process.exit() }})"
    for command in ((escape_test.python(), "-c", python), ("/usr/bin/env", "node", "-e", node)):
        finished = await one(*command)
        assert finished.stdout == b"there\n", finished.stderr


# Makes every socket there could be, and says which of them were not refused: the kernel may still know no such family.
SWEEP = """
import errno, json, socket
found = []
for family in range(48):
    for kind in (1, 2, 3, 4, 5, 6, 10):
        for protocol in (0, 1, 2, 6, 9, 15, 16, 17, 33, 58, 132, 136, 255, 256, 262):
            try:
                socket.socket(family, kind, protocol).close()
            except OSError as error:
                if error.errno == errno.EPERM:
                    continue
            found.append((family, kind, protocol))
print(json.dumps(found))
"""
INTERNET = (socket.AF_INET, socket.AF_INET6)
IS_TCP = {(family, socket.SOCK_STREAM, protocol) for family in INTERNET for protocol in (0, 6)}
IS_UDP = {(family, socket.SOCK_DGRAM, protocol) for family in INTERNET for protocol in (0, 17)}
ADDRESSES = {(socket.AF_NETLINK, kind, 0) for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM)}
NAMED = {(socket.AF_UNIX, kind, protocol) for kind in (1, 2, 5) for protocol in (0, 1)}
OWN = {(socket.AF_UNIX, kind, protocol) for kind in (1, 5) for protocol in (0, 1)}  # connected by the broker only


@pytest.mark.claim("sockets-exact")
@pytest.mark.parametrize(
    ("grants", "opened"),
    [
        ((), OWN),
        (("network",), IS_TCP | IS_UDP | ADDRESSES | OWN),
        (("network:*:443",), IS_TCP | ADDRESSES),
        (("network:localhost:443",), IS_TCP | ADDRESSES | OWN),
        (("network:unix",), NAMED),
        (("network:*:443", "network:unix"), IS_TCP | ADDRESSES | NAMED),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
async def test_of_all_sockets_there_are_only_those_that_were_granted(confined, grants, opened):
    finished = await confined(*grants).python(SWEEP)
    assert set(map(tuple, json.loads(finished.stdout))) == opened, finished.stderr


LISTENS = """
import ctypes, json, os, socket
def tried(act):
    try:
        act()
        return ""
    except OSError as error:
        return error.strerror
def unbound(family=socket.AF_INET, *options):
    one = socket.socket(family)
    for option in options:
        one.setsockopt(*option)
    one.listen()
def bound(port):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("0.0.0.0", port))
def after_disconnecting(port):
    one = socket.socket()
    one.connect(("127.0.0.1", port))
    ctypes.CDLL(None).connect(one.fileno(), bytes(16), 16)  # AF_UNSPEC
    one.listen()
def accepting():
    socket.socket().accept()
def named():
    one = socket.socket(socket.AF_UNIX)
    one.bind("")
    one.listen()
PORT = int(os.environ["PORT"])
ways = {
    "unbound": unbound,
    "unbound, IPv6": lambda: unbound(socket.AF_INET6),
    "fast open": lambda: unbound(socket.AF_INET, (6, 23, 5)),
    "shared port": lambda: unbound(socket.AF_INET, (1, 15, 1)),
    "bound": lambda: bound(0),
    "bound to the granted port": lambda: bound(PORT),
    "after disconnecting": lambda: after_disconnecting(PORT),
    "accept": accepting,
    "unix": named,
}
print(json.dumps({name: tried(way) for name, way in ways.items()}))
"""


@pytest.mark.claim("ports-never-listen")
async def test_who_was_granted_ports_listens_on_nothing_also_with_sockets_of_this_machine(confined):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        one = confined(f"network:*:{port}", "network:unix")
        env = {"PATH": os.environ["PATH"], "PORT": str(port)} | one.guard.environment
        finished = await one.python(LISTENS, env=env)
    found = json.loads(finished.stdout)
    assert all(found.values()), found


async def test_multiprocessing_has_its_shared_memory(confined):
    script = (
        "import multiprocessing as m\n"
        "def f(x): return x * 2\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('fork').Pool(2) as pool: print(pool.map(f, [1, 2]))\n"
    )
    finished = await confined().python(script)
    assert finished.stdout == b"[2, 4]\n", finished.stderr


async def test_it_writes_its_data_its_cache_and_a_tmp_of_its_own(confined):
    one = confined()
    finished = await one.sh(f"echo 1 > ~/a; echo 2 > {one.place.cache}/b; echo 3 > /tmp/c; cat ~/a /tmp/c; ls /tmp")
    assert finished.stdout.decode() == "1\n3\nc\n", finished.stderr
    assert sorted(os.listdir(one.place.data)) == ["a"]
    assert os.listdir(one.place.cache) == ["b"]
    assert not os.path.exists("/tmp/c")


async def test_each_call_can_have_a_tmp_of_its_own(confined, tmp_path):
    one = confined()
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        finished = await one.sh(f"ls /tmp; echo {name} > /tmp/{name}", tmp=str(tmp_path / name))
        assert (finished.stdout, finished.stderr) == (b"", b"")
        assert os.listdir(tmp_path / name) == [name]


async def test_many_calls_with_folders_of_their_own_are_not_let_down(confined, tmp_path):
    one = confined()
    for number in range(70):  # more than rules are kept for
        (tmp_path / str(number)).mkdir()
        finished = await one.sh("echo 1 > /tmp/x", tmp=str(tmp_path / str(number)))
        assert finished.exit_code == 0, finished.stderr


async def test_a_plugin_in_tmp_is_seen_and_its_neighbours_are_not(confined):
    with escape_test.scene("/tmp") as scene:
        guard = Guard()
        one = Confined(scene, guard)
        try:
            finished = await one.sh(f"cat main.py; cat {scene.facts['other']}; ls /tmp; echo 1 > main.py; echo 1 > ~/x")
        finally:
            one.spawn.close()
            guard.close()
        assert finished.stdout.decode().split() == ["secret", scene.facts["abstract"]]
        assert os.listdir(scene.place.data) == ["x"]
        assert processes.read(scene.facts["code"]) == b"secret\n"


async def test_a_run_can_be_given_a_folder_of_its_own(confined, tmp_path):
    with escape_test.scene() as other:
        folder = os.path.join(other.place.user, "for-this-run")
        os.mkdir(folder)
        one = confined(layers=WITHOUT_NAMESPACES)
        assert (await one.sh(f"echo 1 > {folder}/x")).exit_code != 0
        assert (await one.sh(f"echo 1 > {folder}/x", writable=(folder,))).exit_code == 0


@pytest.mark.parametrize(
    "attack", ["echo x > lib/a.py", "rm lib/a.py", "mv lib old", "mv lib/a.py b", "ln -sf x lib/a.py"]
)
async def test_a_plugin_that_writes_beside_itself_cannot_change_its_code(confined, attack):
    guard = Guard()
    with escape_test.scene() as scene:
        plugin = scene.place.plugin
        os.mkdir(f"{plugin}/lib")
        code = f"{plugin}/lib/a.py"
        with open(code, "w") as file:
            file.write("approved")
        fields = {name: getattr(scene.place, name) for name in Locations.__struct_fields__}
        writing = escape_test.Scene(
            Locations(**(fields | {"writes_beside_itself": True, "code": (code,)})), scene.facts
        )
        one = Confined(writing, guard)
        try:
            finished = await one.sh(f"echo 1 > state.json && echo 2 > lib/state.json && echo fine; {attack}")
        finally:
            one.spawn.close()
            guard.close()
        assert finished.stdout == b"fine\n"
        assert finished.exit_code != 0
        assert processes.read(code) == b"approved"


async def test_a_program_that_may_not_be_run_says_so(confined):
    finished = await confined()(sandbox_script.find("git"), "--version")
    assert finished.ending == "not_started"
    assert "permissions do not allow it to execute" in finished.reason


async def test_a_request_that_makes_no_sense_harms_no_other(confined):
    one = confined()
    for _ in range(2):
        assert (await one.sh("echo \0")).ending == "not_started"
        assert (await one("/no/such/program")).ending == "not_started"
        assert (await one.sh("echo fine")).stdout == b"fine\n"


async def test_a_working_folder_that_it_may_not_see_is_no_obstacle(confined, tmp_path):
    (tmp_path / "secret").write_text("x")
    finished = await confined().sh("pwd; ls", cwd=str(tmp_path))
    assert finished.stdout.decode() == f"{tmp_path}\n"


async def test_a_confined_session_answers(confined):
    one = confined()
    script = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    ended, answers = [], []
    session = Session(
        one.program(escape_test.python(), "-c", script, timeout_s=0.0),
        one.spawn,
        receive=answers.append,
        ended=ended.append,
        log=lambda _: None,
    )
    session.send({"hello": 1})
    with anyio.fail_after(processes.PATIENCE_S):
        while not answers:
            await anyio.sleep(0.01)
    pid = session.pid
    assert "for line in sys.stdin" in processes.read(f"/proc/{pid}/cmdline").decode()
    await session.stop()
    assert answers == [{"hello": 1}]
    assert not processes.is_running(pid)


async def test_who_may_write_everywhere_still_turns_no_switch_of_the_kernel_and_sees_nothing_of_ours(confined):
    one = confined("filesystem:write:/", "filesystem:read:/")
    script = (
        f"cat /etc/hostname; (: >> /proc/sys/kernel/core_pattern); cat {one.scene.facts['store']}; echo x >> main.py"
    )
    finished = await one.sh(script)
    assert finished.stdout
    assert finished.stderr.count(b"\n") == 3, finished.stderr


@pytest.mark.parametrize("layers", [LAYERS, WITHOUT_NAMESPACES], ids=["namespaces", "without"])
async def test_a_path_whose_links_were_followed_is_left_out_if_it_leads_elsewhere_by_now(confined, layers):
    one = confined()
    path = os.path.join(one.place.user, "meant")
    os.symlink("notes", path)
    os.mkdir(os.path.join(one.place.user, "notes"))
    with open(os.path.join(path, "one"), "w", encoding="ascii") as file:
        file.write("secret\n")
    profile = one.scene.profile(f"filesystem:read:{path}")
    for exact, said in (((path,), b""), ((), b"secret\n")):
        one.spawn.close()
        one.spawn = ConfinedSpawn(one.guard, msgspec.structs.replace(profile, exact=exact), layers=layers)
        assert (await one.sh(f"cat {path}/one")).stdout == said


@pytest.mark.parametrize("layers", [LAYERS, WITHOUT_NAMESPACES], ids=["namespaces", "without"])
async def test_the_root_folder_is_files_and_neither_devices_nor_the_kernels_own_switches(confined, layers):
    one = confined("filesystem:write:/", layers=layers)
    tries = (
        "import json, os\n"
        "def tried(path):\n"
        "    try: os.close(os.open(path, os.O_WRONLY))\n"
        "    except OSError as error: return error.strerror\n"
        "paths = ['/dev/tty', '/proc/sys/kernel/core_pattern', '/proc/self/mem', '/dev/null']\n"
        "print(json.dumps({path: tried(path) for path in paths} | {'/dev': len(os.listdir('/dev')) > 3}))\n"
    )
    finished = await one.python(tries)
    tried = json.loads(finished.stdout)
    assert tried.pop("/dev/null") is None
    assert tried.pop("/dev")
    assert set(tried.values()) <= {"Permission denied", "Read-only file system"}, tried
    assert tried["/dev/tty"] == "Permission denied"  # else that there is none
    assert (await one.sh(f"echo x >> {one.scene.facts['plain']}")).exit_code == 0


async def test_a_plugin_whose_processes_are_all_used_up_says_so_and_comes_back(confined):
    one = confined(limits=Limits(processes=310, open_files=64))
    full, over = (os.path.join(one.place.data, name) for name in ("full", "over"))
    stays = (
        "open(os.environ['HOME'] + '/full', 'w')\n"
        "    while not os.path.exists(os.environ['HOME'] + '/over'): time.sleep(0.05)\n    print"
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.python, BOMB.replace("print", stays))
        with anyio.fail_after(2 * processes.PATIENCE_S):
            while not os.path.exists(full):
                await anyio.sleep(0.02)
        finished = await one.sh("echo fine", tmp=one.place.cache)
        with open(over, "w"):  # now it may end
            pass
        assert finished.ending == "not_started" or finished.exit_code != 0, finished
    assert (await one.sh("echo fine")).stdout == b"fine\n"


# Nothing stays.


@pytest.mark.parametrize("layers", [LAYERS, WITHOUT_NAMESPACES], ids=["namespaces", "none"])
async def test_what_a_call_leaves_behind_is_gone_when_it_ends(confined, layers):
    one = confined(layers=layers)
    finished = await one.sh(DAEMON.format(801) + "sleep 802 & echo done")
    assert finished.stdout == b"done\n"
    assert not [
        command for command in processes.tagged(one.guard._tag).values() if "80" in command and "sleep" in command
    ]


@pytest.mark.parametrize("layers", [LAYERS, WITHOUT_NAMESPACES], ids=["namespaces", "none"])
async def test_what_one_call_leaves_behind_is_gone_while_another_still_runs(confined, layers):
    one = confined(layers=layers)
    seen = []

    async def first():
        seen.append((await one.sh("sleep 1.5; echo first")).stdout)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await anyio.sleep(0.2)
        finished = await one.sh(DAEMON.format(803) + "echo second")
        commands = list(processes.tagged(one.guard._tag).values())
        assert finished.stdout == b"second\n"
        assert any("sleep 1.5" in command for command in commands)
        assert not any("sleep 803" in command for command in commands)
    assert seen == [b"first\n"]


async def test_the_end_of_a_call_ends_nothing_of_another_plugins(confined):
    one, other = confined(layers=WITHOUT_NAMESPACES), confined(layers=WITHOUT_NAMESPACES)
    seen = []

    async def first():
        seen.append(await one.sh("sleep 1.5; echo first"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await anyio.sleep(0.2)
        assert (await other.sh(DAEMON.format(806) + "echo second")).stdout == b"second\n"
    assert (seen[0].exit_code, seen[0].stdout) == (0, b"first\n")


HOST = """
import os, sys, anyio, contextlib
from anyplug.runtime.processes import run_once as process
from anyplug.runtime.sandbox import escape_test as escapes
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program

async def main():
    guard = Guard()
    with escapes.scene() as scene:
        spawn = ConfinedSpawn(guard, scene.profile())
        print(guard._tag, spawn._process.pid, os.path.dirname(scene.place.home), flush=True)
        program = Program(argv=("/bin/sh", "-c", sys.argv[1]), cwd="/", env=guard.environment | {"PATH": os.defpath},
                          timeout_s=60, max_stdout=99, max_stderr=99)
        await process.run(program, spawn)

anyio.run(main)
"""


@pytest.mark.parametrize("victim", ["host", "spawner"])
@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_nothing_survives_the_sudden_end_of_host_or_spawner(user, victim):
    script = DAEMON.format(804) + "sleep 805"
    host = subprocess.Popen(
        [sandbox_script.interpreter(user), "-c", HOST, script],
        **sandbox_script.as_user(user),
        env=sandbox_script.environment(),
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    )
    tag, spawner, folder = host.stdout.readline().split()
    tag, spawner = int(tag), int(spawner)
    try:
        assert processes.until(lambda: any("sleep 805" in command for command in processes.tagged(tag).values()))
        os.kill(host.pid if victim == "host" else spawner, signal.SIGKILL)
        gone = processes.until(lambda: not [c for c in processes.tagged(tag).values() if "sleep" in c])
        assert gone, processes.tagged(tag)
        host.communicate(timeout=processes.PATIENCE_S)
        assert processes.until(lambda: not processes.tagged(tag))
    finally:
        host.kill()
        host.wait()
        shutil.rmtree(folder, ignore_errors=True)


# Everything is bounded.

BOMB = """
import os, time
made = 0
try:
    while made < 10_000:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        made += 1
except OSError as error:
    print(made, error.strerror)
"""
AS_USER = """
import json, os, sys, anyio
from anyplug.runtime.processes import run_once as process
from anyplug.runtime.sandbox import escape_test as escapes
from anyplug.runtime.sandbox.profile import Limits
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program
import msgspec

async def main():
    guard = Guard()
    with escapes.scene() as scene:
        limits = msgspec.convert(json.loads(sys.argv[1]), Limits)
        spawn = ConfinedSpawn(guard, msgspec.structs.replace(scene.profile(), limits=limits))
        program = Program(argv=(escapes.python(), "-c", sys.argv[2]), cwd=scene.place.data, timeout_s=30,
                          env=guard.environment | {"PATH": os.defpath}, max_stdout=9999, max_stderr=9999)
        finished = await process.run(program, spawn)
        said = [finished.stdout.decode(), finished.stderr.decode()[-300:]]
        print(json.dumps([finished.exit_code, *said, finished.reason]))
        spawn.close()
    guard.close()

anyio.run(main)
"""


ME = "root" if os.getuid() == 0 else "ordinary"


def bounded(user, script, **limits):
    return json.loads(sandbox_script.run(user, AS_USER, json.dumps(limits), script))


@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_ten_thousand_forks_stop_early_and_go_away(user):
    code, out, err, reason = bounded(user, BOMB, processes=400)
    assert out, (code, err, reason)
    assert 100 < int(out.split()[0]) < 420


async def test_the_machines_own_limit_of_processes_stays_as_it_is(confined):
    before = processes.read("/proc/sys/kernel/pid_max")
    await confined().sh("true")
    assert processes.read("/proc/sys/kernel/pid_max") == before


@pytest.mark.parametrize("release", ["6.13.9-generic", "5.15.0", "4.18.0-553.el8", "unknown"])
def test_a_kernel_with_one_limit_for_the_whole_machine_is_left_alone(release, tmp_path, monkeypatch):
    pid_max = tmp_path / "pid_max"
    pid_max.write_text("4194304")
    monkeypatch.setattr(mounts, "PID_MAX", str(pid_max))
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", release, "1", "x86_64")))
    mounts.limit_processes(512)
    assert pid_max.read_text() == "4194304"


@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_a_process_gets_no_more_memory_than_it_may(user):
    code, _, err, _ = bounded(user, "x = bytearray(64 << 30)")
    assert code == 1
    assert "MemoryError" in err


def test_shared_memory_and_the_sum_of_many_processes_are_watched():
    shared = "import mmap, time\nm = mmap.mmap(-1, 1 << 30)\nfor i in range(0, 1 << 30, 4096): m[i] = 1\ntime.sleep(20)"
    code, _, _, reason = bounded(ME, shared, memory=256 << 20)
    assert (code, reason) == (-9, "its processes together used more than 256 MiB of memory")


def test_a_file_has_a_largest_size():
    script = "f = open('x', 'wb', 0)\nfor _ in range(100): f.write(bytes(1 << 20))"
    code, _, _, _ = bounded(ME, script, file_size=10 << 20)
    assert code in {1, -signal.SIGXFSZ}


FILLING = {
    "many files": "open(f'x{n}', 'wb', 0).write(bytes(4 << 20))",
    "files that have no name any more": (
        "kept.append(open('x', 'wb', 0)); kept[-1].write(bytes(4 << 20)); os.unlink('x')"
    ),
    "folders in folders": "os.mkdir('d' * 250); os.chdir('d' * 250); open('x', 'wb', 0).write(bytes(4 << 20))",
}


@pytest.mark.combinations
@pytest.mark.parametrize("user", ["root", "ordinary"])
@pytest.mark.parametrize("how", FILLING)
def test_the_disk_is_not_filled(how, user):
    script = f"import os, time\nkept = []\nfor n in range(200):\n    {FILLING[how]}\n    time.sleep(0.02)\n"
    code, _, err, reason = bounded(user, script, disk=100 << 20)
    assert code == -9, err
    assert "contains more than 100 MiB" in reason


def test_a_folder_is_measured_with_all_that_takes_room_and_each_file_once(tmp_path):
    top = tmp_path / "top"
    for name in ("a", "b", "c"):
        (top / name).mkdir(parents=True)
    folders = memory_and_disk.measure(str(top), 1 << 40)
    assert folders == sum(os.stat(top / name).st_blocks * 512 for name in ("a", "b", "c"))
    (top / "a" / "file").write_bytes(bytes(1 << 20))
    one = memory_and_disk.measure(str(top), 1 << 40)
    os.link(top / "a" / "file", top / "b" / "again")
    os.symlink("/", top / "c" / "everything")
    assert one - folders >= 1 << 20
    assert memory_and_disk.measure(str(top), 1 << 40) == one
    assert memory_and_disk.measure(str(top), 1 << 19) > 1 << 19


async def test_a_tmp_of_its_own_has_a_size_too(confined, tmp_path):
    one = confined(limits=Limits(tmp=100 << 20))
    cover = tmp_path / "cover"
    cover.mkdir()
    script = "for n in $(seq 200); do head -c 4194304 /dev/zero > /tmp/$n; sleep 0.02; done"
    finished = await one.sh(script, tmp=str(cover))
    assert (finished.exit_code, finished.reason) == (-9, "its /tmp contains more than 100 MiB")
    assert (await one.sh("echo fine > /tmp/x && cat /tmp/x", tmp=str(tmp_path))).stdout == b"fine\n"


LEFT_BEHIND = """
import os, resource, sys, anyio
resource.setrlimit(resource.RLIMIT_RSS, (8 << 30, 8 << 30))
from anyplug.runtime.processes import run_once as process
from anyplug.runtime.sandbox import escape_test as escapes
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program

def seen():
    found = []
    for pid in os.listdir("/proc"):
        try:
            found.append(open(f"/proc/{pid}/cmdline", errors="replace").read())
        except OSError:
            continue
    return any("8071" in line and "sleep" in line for line in found if "LEFT" not in line)

async def main():
    guard = Guard()
    with escapes.scene() as scene:
        spawn = ConfinedSpawn(guard, scene.profile())
        program = Program(argv=("/bin/sh", "-c", sys.argv[1]), cwd=scene.place.data, timeout_s=30,
                          env=guard.environment | {"PATH": os.defpath}, max_stdout=9999, max_stderr=9999)
        finished = await process.run(program, spawn)
        print(finished.exit_code, seen())  # LEFT
        spawn.close()
    guard.close()

anyio.run(main)
"""


@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_a_limit_of_the_persons_own_keeps_nothing_from_being_found(user):
    assert sandbox_script.run(user, LEFT_BEHIND, DAEMON.format("8071")) == "0 False\n"


async def test_a_machine_without_memory_ends_a_plugin_first(confined):
    assert int((await confined().sh("cat /proc/self/oom_score_adj")).stdout) >= 500


MANY_ORPHANS = """
import os, socket
from anyplug.runtime.sandbox.linux.apply import Confinement
from anyplug.runtime.sandbox.linux.enforced_order import Order
from anyplug.runtime.sandbox.spawner import REAPED_AT_ONCE, Spawner, has_children

spawner = Spawner(socket.socketpair()[0], Confinement(Order(layers=())))
for _ in range(REAPED_AT_ONCE + 10):
    if os.fork() == 0:
        os._exit(0)
def has_ended(pid):
    with open("/proc/%s/stat" % pid) as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"

with open("/proc/self/task/%d/children" % os.getpid()) as file:
    children = file.read().split()
while not all(map(has_ended, children)):
    pass
spawner.reap()
print(has_children())
spawner.reap()
print(has_children())
"""


def test_who_makes_orphans_faster_than_they_are_taken_keeps_nobody_waiting():
    assert sandbox_script.run(ME, MANY_ORPHANS) == "True\nFalse\n"


NO_PROCESS_LEFT = """
import resource
from anyplug.runtime.sandbox.enforcement import NotEnforceable
from anyplug.runtime.sandbox.profile import Profile
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from anyplug.runtime.processes.guard import Guard

resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    ConfinedSpawn(Guard(), Profile())
except NotEnforceable as refusal:
    print(refusal)
    print(refusal.cure)
"""


def test_a_machine_without_a_process_to_give_is_said_to_have_none():
    said, cure = sandbox_script.run("ordinary", NO_PROCESS_LEFT).splitlines()
    assert "the spawner cannot be started: Resource temporarily unavailable" in said
    assert "try again" in cure


def test_its_tmp_has_a_size():
    script = "f = open('/tmp/x', 'wb', 0)\nfor _ in range(64): assert f.write(bytes(1 << 20)) == 1 << 20"
    code, _, err, _ = bounded(ME, script, tmp=16 << 20)
    assert code == 1
    assert "No space left" in err or "AssertionError" in err


def test_a_busy_loop_is_ended():
    begun = time.monotonic()
    code, _, _, _ = bounded(ME, "while True: pass", cpu_s=1)
    assert code == -signal.SIGXCPU
    assert time.monotonic() - begun < 25


def test_it_has_no_more_files_open_than_it_may():
    script = (
        "import os\nx = []\n"
        "try:\n    while True: x.append(os.dup(0))\n"
        "except OSError as e: print(len(x) < 64, e.strerror)"
    )
    assert bounded(ME, script, open_files=64)[1] == "True Too many open files\n"


# It fails closed.


@pytest.mark.parametrize("missing", ["landlock", "seccomp", "limits", "capabilities"])
def test_a_profile_that_cannot_be_held_is_refused_with_a_cure(missing):
    if missing == "capabilities" and os.getuid() != 0:
        pytest.skip("only root has capabilities to drop")
    guard = Guard()
    try:
        with pytest.raises(NotEnforceable) as raised:
            ConfinedSpawn(guard, Profile(), layers=tuple(layer for layer in LAYERS if layer != missing))
        assert len(raised.value.shortfalls) == 1
        assert raised.value.cure
        tolerant = ConfinedSpawn(
            guard, Profile(), layers=tuple(layer for layer in LAYERS if layer != missing), tolerant=True
        )
        assert missing not in tolerant.receipt.layers
        tolerant.close()
    finally:
        guard.close()


def test_without_a_network_namespace_a_grant_for_one_host_is_not_held_and_says_what_would_be():
    guard = Guard()
    without = tuple(layer for layer in LAYERS if layer != "network")
    with escape_test.scene() as scene:
        wanted = scene.profile("network:api.example.com:443")
        try:
            with pytest.raises(NotEnforceable, match="the proxy for it needs a network namespace") as raised:
                ConfinedSpawn(guard, wanted, layers=without)
            tolerant = ConfinedSpawn(guard, wanted, layers=without, tolerant=True)
            tolerant.close()
        finally:
            guard.close()
    assert "allow user namespaces" in raised.value.cure
    assert "network:*:443" in raised.value.cure
    assert tolerant.profile.network == "all"
    assert (tolerant.receipt.hosts, "proxy" in tolerant.receipt.layers) == ((), False)


SHORT_OF_FILES = """
import gc, os, resource
from anyplug.runtime.sandbox.profile import Profile
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn, NotEnforceable
from anyplug.runtime.processes.guard import Guard
guard, profile = Guard(), Profile(network="hosts", hosts=("network:example.org:443",))
ConfinedSpawn(guard, profile).close()
for room in range(20):
    gc.collect()  # a loop that could only be made in part
    used = os.dup(0)
    os.close(used)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, 4096))
    try:
        spawn = ConfinedSpawn(guard, profile)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
        print("proxy" if "proxy" in spawn.receipt.layers else "not held")
        spawn.close()
    except NotEnforceable as error:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
        print("too many files" if "oo many" in str(error) else error)
guard.close()
"""


def test_where_too_many_files_are_open_for_the_proxy_that_is_said():
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_FILES], capture_output=True, text=True, check=False, timeout=60
    )
    said = done.stdout.splitlines()
    assert (len(said), set(said)) == (20, {"too many files", "proxy"}), done.stderr


def test_what_this_machine_holds_is_found_by_doing():
    guard = Guard()
    try:
        enforcement = probe(guard)
    finally:
        guard.close()
    assert set(enforcement.held) <= {*LAYERS, BROKER}
    assert {*enforcement.held, BROKER} | set(enforcement.refused) == {*LAYERS, BROKER}


async def test_the_receipt_says_what_was_in_force(confined):
    receipt = confined(limits=Limits(memory=1 << 30)).spawn.receipt
    assert set(receipt.layers) == {*LAYERS, BROKER}
    assert receipt.landlock > 0
    assert len(receipt.filter) == 64
    assert receipt.limits["memory"] == 1 << 30


@contextlib.asynccontextmanager
async def burst(plugin):
    """Stop a plugin's spawner, and start so much that its socket is full; gives what has ended."""
    ended = []

    async def start(number):
        bulky = {"PATH": os.environ["PATH"], "BULK": BULK} | plugin.guard.environment
        ended.append(await plugin.sh(f"echo {number}", env=bulky))

    os.kill(plugin.spawn._process.pid, signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:
        for number in range(BURST):
            tasks.start_soon(start, number)
        await anyio.sleep(0.1)
        yield ended


async def test_a_burst_of_starts_waits_for_a_spawner_that_stands_still_and_holds_up_nobody(confined):
    plugin = confined()
    async with burst(plugin) as ended:
        assert not ended
        os.kill(plugin.spawn._process.pid, signal.SIGCONT)
    assert sorted(int(finished.stdout) for finished in ended) == list(range(BURST))


async def test_a_start_that_is_too_large_to_be_asked_for_takes_no_other_along(confined):
    plugin = confined()
    huge = {"PATH": os.environ["PATH"]} | {f"BULK_{number}": "x" * 100_000 for number in range(10)}
    others = []

    async def start(env):
        others.append(await plugin.sh("echo after", env=env | plugin.guard.environment))

    async with burst(plugin) as ended, anyio.create_task_group() as tasks:
        for env in (huge, {"PATH": os.environ["PATH"]}):
            tasks.start_soon(start, env)
            await anyio.sleep(0.1)
        os.kill(plugin.spawn._process.pid, signal.SIGCONT)
    assert sorted(int(finished.stdout) for finished in ended) == list(range(BURST))
    assert sorted(finished.stdout for finished in others) == [b"", b"after\n"]


async def test_of_starts_that_wait_there_are_only_so_many_and_the_next_is_told_so(confined, monkeypatch):
    monkeypatch.setattr("anyplug.runtime.sandbox.outbox.MOST", 3)
    plugin = confined()
    async with burst(plugin) as ended:
        await until(lambda: ended)
        refused = list(ended)
        os.kill(plugin.spawn._process.pid, signal.SIGCONT)
    assert len(refused) < len(ended) == BURST
    assert {(one.ending, one.reason) for one in refused} == {("not_started", BUSY)}


async def test_starts_that_wait_end_with_their_spawner(confined):
    plugin = confined()
    before = len(os.listdir("/proc/self/fd"))
    async with burst(plugin) as ended:
        os.kill(plugin.spawn._process.pid, signal.SIGKILL)
    assert {finished.ending for finished in ended} == {"lost"}
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_spawner_that_is_gone_is_said_to_be(confined):
    one = confined()

    async def kill():
        await anyio.sleep(0.3)
        one.spawn._process.kill()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill)
        finished = await one.sh("sleep 806")
    assert finished.ending == "lost"
    assert processes.until(lambda: not one.spawn.is_alive)
    assert processes.until(lambda: not any("sleep 806" in c for c in processes.tagged(one.guard._tag).values()))


if sys.platform != "linux":
    pytest.skip("confinement is for Linux", allow_module_level=True)
