"""Calls that are served by interpreters started ahead: in the same sandbox, and as decided for each call."""

import json
import os
import shutil
import signal
import tempfile

import anyio
import pytest

import plugin_folders
import processes
from anyplug.formats.shared import scripts
from anyplug.launch import warm_starts
from anyplug.runtime.processes.program import Program
from anyplug.runtime.runner import Runner
from anyplug.runtime.warm import pool
from anyplug.runtime.warm.gate_folder import GATES

pytestmark = pytest.mark.anyio

# Whether it was started ahead shows in one place, which nothing else can change.
PROBE = """
ahead = b"_ANYPLUG_WARM" in open("/proc/self/environ", "rb").read()
answer = {"ahead": ahead, "pid": os.getpid(), "given": given}
"""
ANSWER = "print(json.dumps({'result': json.dumps(answer)}))"
PYTHON = plugin_folders.python(PROBE + ANSWER)
NODE = """#!/usr/bin/env node
const fs = require("fs");
const ahead = fs.readFileSync("/proc/self/environ", "latin1").includes("_ANYPLUG_WARM");
console.log(JSON.stringify({ result: JSON.stringify({ ahead, given: JSON.parse(fs.readFileSync(0, "utf8")) }) }));
"""


async def called(host, tool, **arguments):
    result = await host.call(tool, arguments)
    assert not result.is_error, result
    return json.loads(result.text)


async def until_waiting(host, least=1):
    """Wait until interpreters wait."""
    with anyio.fail_after(60):
        while sum(kept.waiting.is_waiting for line in host._pool._lines.values() for kept in line.kept) < least:
            await anyio.sleep(0.01)


async def until_settled(host):
    """Wait until nothing is being started."""
    with anyio.fail_after(60):
        while host._pool._starting:
            await anyio.sleep(0.01)


def waiting_pids(host):
    return [kept.waiting._child.pid for line in host._pool._lines.values() for kept in line.kept]


@pytest.mark.parametrize("script", [PYTHON, NODE], ids=["python", "node"])
async def test_calls_after_the_first_find_an_interpreter_that_waits(host, root, script):
    async with host(plugin_folders.cyclop(root, "hello", script)) as h:
        assert not (await called(h, "hello", n=1))["ahead"]
        for number in range(3):
            await until_waiting(h)
            answer = await called(h, "hello", n=number)
            assert answer["ahead"]
            assert answer["given"]["input"] == {"n": number}


@pytest.mark.usefixtures("unconfined")
async def test_what_is_not_confined_waits_as_well(host, root):
    async with host(plugin_folders.cyclop(root, "hello", PYTHON)) as h:
        await called(h, "hello")
        await until_waiting(h)
        assert (await called(h, "hello"))["ahead"]
        await until_waiting(h)
        waiting = waiting_pids(h)
        assert all(map(processes.is_running, waiting))
    assert not any(map(processes.is_running, waiting))


async def test_a_taken_tmp_ends_only_what_would_have_waited(home, tmp_path):
    taken = tempfile.mkdtemp(prefix="anyplug-test-", dir="/tmp")
    plugin_folders.write(f"{taken}/of-the-user", "kept")
    script = plugin_folders.write(f"{tmp_path}/script", PYTHON, 0o755)
    runner, tried = Runner(home), []

    def make_tmp():
        tried.append(taken)
        return runner.private_tmp(os.path.basename(taken), is_shared=True)

    try:
        async with anyio.create_task_group() as tasks:
            waiting = pool.Pool(tasks, enabled=True, budget=1 << 30)
            program = Program(argv=(script,), cwd=str(tmp_path), env=dict(os.environ))
            source = pool.Source("group", runner.direct, lambda: True, make_tmp)
            assert waiting.begin("key", program, runner.direct, lambda: source) is None
            await waiting.end(None)
            while waiting._starting:
                await anyio.sleep(0.01)
            assert (waiting.count, tried) == (0, [taken])  # and not again and again
            await waiting.close()
    finally:
        runner.close()
        shutil.rmtree(taken)


async def test_each_of_many_calls_at_once_has_its_own_process(host, root):
    async with host(plugin_folders.cyclop(root, "hello", PYTHON)) as h:
        for _ in range(6):
            await called(h, "hello")
        await until_waiting(h, 2)
        answers = []

        async def call(number):
            answers.append((number, await called(h, "hello", n=number)))

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(call, number)
        assert all(answer["given"]["input"] == {"n": number} for number, answer in answers)
        assert len({answer["pid"] for _, answer in answers}) == 12
        assert any(answer["ahead"] for _, answer in answers)


async def test_a_changed_script_is_not_run_by_what_waits(host, root):
    folder = plugin_folders.cyclop(root, "hello", PYTHON)
    async with host(folder) as h:
        await called(h, "hello")
        await until_waiting(h)
        plugin_folders.write(f"{folder}/run", PYTHON.replace('"given": given', '"given": "new"'), 0o755)
        answer = await called(h, "hello")
        assert answer["given"] == "new"
        assert not answer["ahead"]
        await until_waiting(h)
        assert (await called(h, "hello"))["given"] == "new"


async def test_a_new_value_of_a_variable_is_seen_by_the_next_call(host, root):
    script = plugin_folders.python(PROBE + "answer['seen'] = os.environ.get('COLOR')\n" + ANSWER)
    async with host(plugin_folders.cyclop(root, "hello", script)) as h:
        h._users.variables = dict(os.environ, COLOR="red")
        assert (await called(h, "hello"))["seen"] == "red"
        await until_waiting(h)
        h._users.variables = dict(os.environ, COLOR="blue")
        h._users.made.clear()
        answer = await called(h, "hello")
        assert (answer["seen"], answer["ahead"]) == ("blue", False)


async def test_nothing_waits_for_a_plugin_that_is_no_longer_approved(host, root):
    folder = plugin_folders.cyclop(root, "hello", PYTHON)
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin(folder).plugin)
        await called(h, "hello")
        await until_waiting(h)
        waiting = waiting_pids(h)
        h.catalog.approvals.deny(h.snapshot.plugin(folder).plugin)
        await h.look_again()
        assert h.waiting == 0
        await anyio.to_thread.run_sync(processes.until, lambda: not any(map(processes.is_running, waiting)))
        result = await h.call("hello")
        assert result.error.code in {"not_approved", "denied", "not_found"}


async def test_what_waits_follows_use_grants_and_configuration_and_ends_when_idle(host, root, monkeypatch):
    text = '{"ahead": ahead, "config": open("../config.json").read()}'
    script = plugin_folders.python(PROBE + f"print(json.dumps({text}))")
    folder = plugin_folders.stavrobot(root, "bundle", script, config={"word": {"description": "A word."}})
    plugin_folders.write(f"{folder}/config.json", '{"word": "first"}')
    async with host(roots=(root,)) as h:

        async def call():
            result = await h.call("bundle.act", {"text": "x"})
            assert not result.is_error, result
            await until_settled(h)
            return result.structured

        await h.approve(h.snapshot.plugin("bundle").plugin, always=True)
        assert h.waiting == 0
        assert not (await call())["ahead"]
        assert h.waiting == 1
        for _ in range(6):
            await call()
        await until_waiting(h, 3)
        plugin_folders.write(f"{folder}/config.json", '{"word": "second"}')
        answer = await call()
        assert "second" in answer["config"]
        waiting = waiting_pids(h)
        await h.approve(h.snapshot.plugin("bundle").plugin, granted=("filesystem:read",), always=True)
        assert not (await call())["ahead"]
        await anyio.to_thread.run_sync(processes.until, lambda: not any(map(processes.is_running, waiting)))
        assert (await call())["ahead"]
        waiting = waiting_pids(h)
        assert waiting
        monkeypatch.setattr(pool, "IDLE_S", 0.0)
        h._pool._look()
        assert h.waiting == 0
        await anyio.to_thread.run_sync(processes.until, lambda: not any(map(processes.is_running, waiting)))


@pytest.mark.parametrize("text", ["[warm]\nenabled = false\n", "[warm]\nbudget_mb = 0\n"])
async def test_one_setting_turns_it_off(host, root, settings, text):
    folder = plugin_folders.cyclop(root, "hello", PYTHON)
    settings(text)
    async with host(folder) as h:
        for _ in range(2):
            assert not (await called(h, "hello"))["ahead"]
        await until_settled(h)
        assert h.waiting == 0


async def test_turning_it_off_ends_what_waits(host, root, settings):
    async with host(plugin_folders.cyclop(root, "hello", PYTHON)) as h:
        await called(h, "hello")
        await until_waiting(h)
        settings("[warm]\nenabled = false\n")
        await h.look_again()
        assert h.waiting == 0
        assert not (await called(h, "hello"))["ahead"]


async def test_the_budget_holds_for_all_plugins_together(host, root, settings):
    settings("[warm]\nbudget_mb = 26\n")
    folders = [plugin_folders.cyclop(root, name, PYTHON) for name in ("one", "two")]
    async with host(*folders) as h:
        for _ in range(12):
            for tool in ("one", "two"):
                await called(h, tool)
            await until_settled(h)
            lines = h._pool._lines.values()
            assert sum(kept.waiting.bytes for line in lines for kept in line.kept) <= 26 << 20
        assert 0 < h.waiting <= 3


async def test_a_waiting_interpreter_that_was_killed_does_not_fail_a_call(host, root):
    async with host(plugin_folders.cyclop(root, "hello", PYTHON)) as h:
        await called(h, "hello")
        await until_waiting(h)
        for pid in waiting_pids(h):
            os.kill(pid, signal.SIGKILL)
        assert (await called(h, "hello"))["given"]


async def test_a_cancelled_call_leaves_no_interpreter_behind(host, root):
    script = plugin_folders.python("time.sleep(60)")
    async with host(plugin_folders.cyclop(root, "hello", script)) as h:
        for _ in range(2):
            with anyio.move_on_after(0.5):
                await h.call("hello")
        assert h._pool._calls == 0
        await until_waiting(h)


async def test_stavrobot_calls_have_a_tmp_and_a_state_of_their_own(host, root):
    script = """#!/usr/bin/env python3
import json, os
given = json.load(open(0))
path = "../state.json"
count = json.load(open(path)) + 1 if os.path.exists(path) else 1
with open(path + ".new", "w") as file:
    json.dump(count, file)
os.rename(path + ".new", path)
before = sorted(os.listdir("/tmp/bundle"))
open("/tmp/bundle/mine", "w").write("x")
ahead = b"_ANYPLUG_WARM" in open("/proc/self/environ", "rb").read()
print(json.dumps({"count": count, "before": before, "ahead": ahead, "cwd": os.getcwd()}))
"""
    async with host(plugin_folders.stavrobot(root, "bundle", script)) as h:
        for number in range(1, 6):
            result = await h.call("bundle.act", {"text": "x"})
            assert not result.is_error, result
            seen = result.structured
            assert seen == {"count": number, "before": [], "ahead": number > 1, "cwd": f"{root}/bundle/act"}
            await until_waiting(h, 2 if number > 2 else 1)


@pytest.mark.parametrize(
    "line", ["#!/usr/bin/env -S python3 -I", "#!/usr/bin/env -S python3 -E", "#!/usr/bin/env -S python3 -S", "#!{own}"]
)
async def test_a_script_never_runs_without_a_call(host, root, tmp_path, monkeypatch, line):
    """Neither with a flag that skips the gate, nor with an interpreter that drops what leads there."""
    own = plugin_folders.write(f"{root}/hello/python3", '#!/bin/sh\nexec env -u PYTHONPATH python3 "$@"\n', 0o755)
    script = f"""{line.format(own=own)}
import json, os, sys
with open(os.environ["CYCLOPONE_DATA_DIR"] + "/runs", "a") as file:
    file.write("x")
sys.stdin.read()
print(json.dumps({{"result": "done"}}))
"""
    folder = plugin_folders.cyclop(root, "hello", script)
    async with host(folder) as h:
        for _ in range(3):
            result = await h.call("hello")
            assert not result.is_error, result
            await until_settled(h)
        data = h.catalog.home.data(h.snapshot.plugin(folder).plugin)
        assert h.waiting == 0
        with open(f"{data}/runs") as file:
            assert file.read() == "xxx"


async def test_bytecode_that_a_plugin_writes_does_not_run_while_an_interpreter_waits(host, root, home):
    """Its cache holds the bytecode of all modules, those of the gate, too, if it put some there."""
    gate = f"{GATES}/sitecustomize.py"
    script = plugin_folders.python(
        f"""
import importlib.util, marshal
found = os.stat({gate!r})
place = importlib.util.cache_from_source({gate!r})
os.makedirs(os.path.dirname(place), exist_ok=True)
mark = os.environ["CYCLOPONE_DATA_DIR"] + "/ran"
code = compile("open(%r, 'a').write('x')" % mark, {gate!r}, "exec")
with open(place, "wb") as file:
    file.write(importlib.util.MAGIC_NUMBER + bytes(4) + int(found.st_mtime).to_bytes(4, "little"))
    file.write((found.st_size & 0xFFFFFFFF).to_bytes(4, "little") + marshal.dumps(code))
"""
        + PROBE
        + "answer['place'] = place\n"
        + ANSWER
    )
    folder = plugin_folders.cyclop(root, "hello", script)
    async with host(folder) as h:
        assert str(home) in (await called(h, "hello"))["place"]
        await until_waiting(h)
        assert (await called(h, "hello"))["ahead"]
        assert not os.path.exists(h.catalog.home.data(h.snapshot.plugin(folder).plugin) + "/ran")


async def test_modules_that_a_plugin_puts_into_its_home_keep_it_from_waiting(host, root):
    script = """#!/usr/bin/env python3
import json, os, site, sys
sys.stdin.read()
os.makedirs(site.getusersitepackages(), exist_ok=True)
with open(site.getusersitepackages() + "/x.pth", "w") as file:
    file.write("import os; open(os.path.expanduser('~/ran'), 'a').write('x')\\n")
print(json.dumps(os.path.exists(os.path.expanduser("~/ran")) and len(open(os.path.expanduser("~/ran")).read())))
"""
    folder = plugin_folders.stavrobot(root, "bundle", script)
    async with host(folder) as h:
        seen = []
        for _ in range(3):
            seen.append((await h.call("bundle.act", {"text": "x"})).structured)
            await until_settled(h)
        assert seen == [False, 1, 2]
        assert h.waiting == 0
        with open(h.catalog.home.log(h.snapshot.plugin(folder).plugin)) as log:
            assert "not started ahead" in log.read()


async def test_a_plugin_can_neither_see_nor_end_what_waits_for_another(host, root):
    script = plugin_folders.python(
        PROBE
        + """
answer["others"] = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (1, os.getpid())]
answer["killed"] = []
for pid in given["input"].get("pids", []):
    try:
        os.kill(pid, 9)
        answer["killed"].append(pid)
    except OSError:
        pass
"""
        + ANSWER
    )
    async with host(plugin_folders.cyclop(root, "one", PYTHON), plugin_folders.cyclop(root, "two", script)) as h:
        await called(h, "one")
        await until_waiting(h)
        waiting = waiting_pids(h)
        answer = await called(h, "two", pids=waiting)
        assert answer["killed"] == [] or all(map(processes.is_running, waiting))
        assert all(map(processes.is_running, waiting))


UV = """#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.8"
# dependencies = []
# ///
import json, os, sys
given = json.load(sys.stdin)
ahead = b"_ANYPLUG_WARM" in open("/proc/self/environ", "rb").read()
if given["text"] == "tamper":
    import site
    with open(site.getsitepackages()[0] + "/x.pth", "w") as file:
        file.write("import os; open(os.path.expanduser('~/ran'), 'a').write('x')\\n")
print(json.dumps({"ahead": ahead, "prefix": sys.prefix, "text": given["text"]}))
"""


async def test_scripts_of_uv_wait_in_the_environment_that_it_resolved_as_long_as_nobody_changes_it(host, root):
    folder = plugin_folders.stavrobot(root, "bundle", tools={"act": UV, "other": UV})
    async with host(folder) as h:

        async def call(text, tool="act"):
            result = await h.call(f"bundle.{tool}", {"text": text})
            assert not result.is_error, result
            await until_settled(h)
            return result.structured

        for tool in ("act", "other"):
            assert not (await call("first", tool))["ahead"]
            assert (await call("second", tool))["ahead"]
        tampering = await call("tamper")
        assert tampering["ahead"]
        assert "environments" in tampering["prefix"]
        for tool in ("act", "other"):
            assert not (await call("third", tool))["ahead"]
        assert h.waiting == 0
        with open(h.catalog.home.log(h.snapshot.plugin(folder).plugin)) as log:
            assert "changed after uv resolved it" in log.read()


def test_a_home_that_hides_whether_it_has_modules_counts_as_one_that_has(tmp_path):
    user = str(tmp_path)
    assert not warm_starts._may_have_modules(user)
    plugin_folders.write(f"{user}/.local/lib/note", "")
    assert not warm_starts._may_have_modules(user)
    os.makedirs(f"{user}/.local/lib/python3.11/site-packages")
    assert warm_starts._may_have_modules(user)
    os.rename(f"{user}/.local/lib", f"{user}/.local/other")
    plugin_folders.write(f"{user}/.local/lib", "cannot be listed, as a folder without the right to read it")
    assert warm_starts._may_have_modules(user)
    os.unlink(f"{user}/.local/lib")
    os.symlink("nowhere", f"{user}/.local/lib")
    assert warm_starts._may_have_modules(user)


@pytest.mark.parametrize(
    ("name", "text", "runs"),
    [
        ("_virtualenv.pth", "import _virtualenv\n", False),
        ("folders.pth", "../elsewhere\n", False),
        ("evil.pth", "# a path\n import evil\n", True),
        ("large.pth", "a\n" * 100_000 + "import evil\n", True),
        ("sitecustomize.py", "", True),
        ("usercustomize.pyc", "", True),
    ],
)
def test_what_dependencies_run_at_each_start_runs_in_calls_only(name, text, runs, tmp_path):
    script, notes, cache = str(tmp_path / "act"), str(tmp_path / "notes"), str(tmp_path / "cache")
    plugin_folders.write(script, UV)
    os.mkdir(notes)
    plugin_folders.write(f"{cache}/environments-v2/run/lib/python3.11/site-packages/{name}", text)
    scripts.remember(script, cache, notes)
    why = scripts.why_unsure(script, {"UV_CACHE_DIR": cache}, notes)
    assert (f"({name})" in why) == runs, why


@pytest.mark.parametrize("moved", ["", "run", "run/bin", "run/lib", "run/lib/python3.11"])
def test_an_old_part_that_a_plugin_moves_into_the_environment_of_uv_counts_as_a_change(moved, tmp_path):
    script, notes, cache = str(tmp_path / "act"), str(tmp_path / "notes"), str(tmp_path / "cache")
    environment = {"UV_CACHE_DIR": cache}
    plugin_folders.write(script, UV)
    os.mkdir(notes)
    for top in ("environments-v2", "old"):
        plugin_folders.write(f"{cache}/{top}/run/lib/python3.11/site-packages/x.pth", "")
        plugin_folders.write(f"{cache}/{top}/run/bin/python", "")
    scripts.remember(script, cache, notes)
    assert not scripts.why_unsure(script, environment, notes)
    before = scripts.resolved_at(script, environment, notes)
    (note,) = (tmp_path / "notes").iterdir()
    while (tmp_path / "cache").stat().st_ctime_ns <= note.stat().st_mtime_ns:  # until the kernel's clock has ticked
        plugin_folders.write(f"{cache}/now", "")
        os.unlink(f"{cache}/now")
    os.rename(f"{cache}/environments-v2/{moved}".rstrip("/"), f"{cache}/away")
    os.rename(f"{cache}/old/{moved}", f"{cache}/environments-v2/{moved}".rstrip("/"))
    assert scripts.why_unsure(script, environment, notes) == "its environment was changed after uv resolved it"
    assert scripts.resolved_at(script, environment, notes) != before


async def test_nothing_waits_within_tight_limits(host, root, settings):
    settings("[plugins.hello.limits]\nprocesses = 20\n")
    async with host(plugin_folders.cyclop(root, "hello", PYTHON)) as h:
        for _ in range(2):
            assert not (await called(h, "hello"))["ahead"]
            await until_settled(h)
        assert h.waiting == 0
