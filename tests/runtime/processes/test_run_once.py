"""Running one program: fed, drained, bounded, ended; directly and by way of the spawner."""

import errno
import os
import signal
import subprocess
import sys

import anyio
import pytest

import plugin_folders
import processes
from anyplug.runtime.processes import run_once
from anyplug.runtime.processes.program import Program
from anyplug.runtime.runner import Runner

pytestmark = pytest.mark.anyio

PLENTY = 1 << 24


@pytest.fixture(params=["direct", "namespaced"])
async def run(request, tmp_path):
    """Run a shell script in each of the two ways."""
    runner = Runner(str(tmp_path))
    cover = tmp_path / "cover"
    cover.mkdir()

    async def run_it(script, **changes):
        fields = {
            "argv": ("/bin/sh", "-c", script),
            "cwd": "/",
            "env": {"PATH": os.environ["PATH"]} | runner.environment,
            "stdin": b"",
            "timeout_s": 30.0,
            "max_stdout": PLENTY,
            "max_stderr": PLENTY,
        }
        if request.param == "namespaced":
            async with runner.private_tmp("x") as given:
                if not given.cover:
                    pytest.skip(f"no namespaces here: {runner.namespaces_refused}")
            fields |= {"tmp": str(cover), "visible": (str(tmp_path),)}
        return await runner(Program(**(fields | changes)))

    run_it.tag = runner.guard._tag
    run_it.folder = tmp_path
    yield run_it
    await anyio.to_thread.run_sync(runner.close)
    assert processes.tagged(runner.guard._tag) == {}


async def test_it_gives_exit_code_and_both_streams(run):
    finished = await run("echo out; echo err >&2; exit 3")
    assert (finished.ending, finished.exit_code, finished.stdout, finished.stderr) == ("exited", 3, b"out\n", b"err\n")


async def test_a_death_by_signal_is_negative(run):
    assert (await run("kill -9 $$")).exit_code == -9


async def test_stdin_of_any_size_arrives_and_ends(run):
    for size in (0, 1, 65_536, 65_537, 3_000_000):
        assert (await run("wc -c", stdin=b"x" * size)).stdout.split() == [str(size).encode()]


async def test_a_slow_reader_gets_everything(run):
    finished = await run("sleep 0.1; head -c 100000 | wc -c; sleep 0.1; wc -c", stdin=b"x" * 1_000_000)
    assert finished.stdout.split() == [b"100000", b"900000"]


async def test_input_and_output_larger_than_any_pipe_pass_each_other(run):
    data = os.urandom(2_000_000)
    assert (await run("cat", stdin=data)).stdout == data


async def test_one_that_never_reads_is_no_error(run):
    finished = await run("exec <&-; echo fine", stdin=b"x" * 1_000_000)
    assert (finished.exit_code, finished.stdout) == (0, b"fine\n")


async def test_too_much_stdout_ends_it_and_the_limit_is_kept(run):
    finished = await run("yes", max_stdout=1000)
    assert finished.ending == "too_large"
    assert finished.stdout == (b"y\n" * 500)


async def test_too_much_stdout_is_noticed_after_the_exit_too(run):
    assert (await run("printf 12345678901", max_stdout=10)).ending == "too_large"
    assert (await run("printf 1234567890", max_stdout=10)).ending == "exited"


async def test_stderr_beyond_its_limit_is_read_and_dropped(run):
    finished = await run("yes | head -c 1000000 >&2; echo done", max_stderr=100)
    assert (finished.ending, len(finished.stderr), finished.stdout) == ("exited", 100, b"done\n")


async def test_a_timeout_keeps_what_was_said_also_after_sigterm(run):
    script = "trap 'echo last words; exit 0' TERM; echo first; while :; do sleep 0.05; done"
    finished = await run(script, timeout_s=0.5)
    assert (finished.ending, finished.stdout) == ("timed_out", b"first\nlast words\n")


async def test_one_that_ignores_sigterm_is_killed(run, monkeypatch):
    monkeypatch.setattr(run_once, "TERM_GRACE_S", 0.1)
    finished = await run("trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.2)
    assert (finished.ending, finished.exit_code) == ("timed_out", -9)


@pytest.mark.requirement("CYC-23", "CYC-41")
async def test_the_whole_group_is_ended(run, monkeypatch):
    monkeypatch.setattr(run_once, "TERM_GRACE_S", 0.1)
    path = run.folder / "pids"
    await run(f"sleep 603 & echo $! >> {path}; (trap '' TERM; sleep 603) & echo $! >> {path}; wait", timeout_s=0.3)
    pids = [int(word) for word in path.read_text().split()]
    assert len(pids) == 2
    assert processes.until(lambda: not any(processes.is_running(pid) for pid in pids))


async def test_a_grandchild_that_keeps_the_pipes_keeps_nobody(run):
    finished = await run("sleep 604 & echo done")
    assert (finished.ending, finished.stdout) == ("exited", b"done\n")


async def test_a_grandchild_that_goes_on_writing_from_a_session_of_its_own_keeps_nobody(run):
    finished = await run("setsid sh -c 'while :; do echo x; sleep 0.01; done' & sleep 0.1; echo done >&2")
    assert (finished.ending, finished.stderr) == ("exited", b"done\n")


@pytest.mark.parametrize("how", ["missing", "no x bit", "a folder", "no shebang", "missing interpreter"])
async def test_what_cannot_be_started_says_why(run, how):
    path = str(run.folder / "program")
    if how == "a folder":
        os.mkdir(path)
    elif how != "missing":
        text = {"missing interpreter": "#!/no/such\n", "no shebang": "exit 0\n"}.get(how, "#!/bin/sh\n")
        plugin_folders.write(path, text, 0o644 if how == "no x bit" else 0o755)
    finished = await run("", argv=(path,))
    expected = {"missing": errno.ENOENT, "missing interpreter": errno.ENOENT, "no shebang": errno.ENOEXEC}
    assert (finished.ending, finished.errno) == ("not_started", expected.get(how, errno.EACCES))
    assert finished.reason


async def test_a_missing_working_folder_is_not_started(run):
    assert (await run("true", cwd="/no/such/folder")).ending == "not_started"


async def test_a_cancelled_run_leaves_nothing(run):
    path = run.folder / "pid"
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, f"echo $$ > {path}; exec sleep 605")
            while not (text := processes.read(str(path)).strip()):
                await anyio.sleep(0.01)
            scope.cancel()
    assert not processes.is_running(int(text))


async def test_signals_that_python_ignores_have_their_own_meaning_again(run):
    finished = await run("yes | head -1; grep SigIgn /proc/self/status")
    assert finished.stdout.split()[0] == b"y"
    ignored = int(finished.stdout.split()[-1], 16)
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT))


async def test_no_descriptor_of_the_host_is_open_in_the_program(run):
    with open(os.devnull, "rb") as ours:
        os.set_inheritable(ours.fileno(), True)
        finished = await run("ls -l /proc/self/fd")
    shown = [line.split()[-3] for line in finished.stdout.decode().splitlines() if "->" in line]
    assert set(shown) <= {"0", "1", "2", "3"}  # 3 is the folder that `ls` reads


async def test_no_descriptor_is_left_open_in_the_host(run):
    await run("true")
    before = len(os.listdir("/proc/self/fd"))
    for script in ("echo x", "exit 1", "kill -9 $$", "yes | head -c 200000"):
        await run(script)
    await run("sleep 9", timeout_s=0.05)
    await run("", argv=("/no/such/program",))
    assert len(os.listdir("/proc/self/fd")) == before


async def test_many_at_once(run):
    finished = []

    async def one(number):
        finished.append((await run(f"echo {number}; sleep 0.1")).stdout)

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(one, number)
    assert sorted(map(int, finished)) == list(range(100))


async def test_many_starts_with_large_environments_do_not_stumble_over_a_full_socket(run):
    endings = []

    async def one():
        finished = await run("echo ${#BIG}", env={"PATH": os.environ["PATH"], "BIG": "x" * 60_000})
        endings.append((finished.ending, finished.stdout, finished.reason))

    async with anyio.create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(one)
    assert set(endings) == {("exited", b"60000\n", "")}


async def test_a_spawner_that_somebody_killed_fails_its_calls_at_once_and_is_replaced(tmp_path):
    runner = Runner(str(tmp_path))
    program = Program(
        argv=("/bin/sh", "-c", "sleep 606"), cwd="/", env={}, stdin=b"", timeout_s=60, max_stdout=99, max_stderr=99
    )
    endings = []

    async def call(script):
        async with runner.private_tmp("x") as given:
            if not given.cover:
                pytest.skip("no namespaces here")
            changed = {"argv": ("/bin/sh", "-c", script), "tmp": given.cover}
            endings.append(
                (await runner(Program(**{f: getattr(program, f) for f in program.__struct_fields__} | changed))).ending
            )

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "sleep 606")
            while not any("sleep 606" in command for command in processes.tagged(runner.guard._tag).values()):
                await anyio.sleep(0.02)
            runner._namespaced._process.kill()
        await call("exit 0")
    finally:
        await anyio.to_thread.run_sync(runner.close)
    assert endings == ["lost", "exited"]
    assert processes.tagged(runner.guard._tag) == {}


def test_the_programs_beside_the_host_need_nothing_but_the_standard_library():
    code = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "import anyplug.runtime.processes.guardian, anyplug.runtime.sandbox.zygote\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    packages = os.path.join(os.path.dirname(run_once.__file__), "..", "..", "..")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, packages], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= {*sys.stdlib_module_names, "__main__", "anyplug"}
