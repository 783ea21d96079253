"""Extensions that stay up: started when they should be, kept up, started anew, given up, and never left behind."""

import asyncio
import errno
import functools
import gc
import itertools
import json
import os
import signal
import time

import anyio
import anyio.lowlevel
import pytest

import killed_hosts
import plugin_folders
import processes
import zot_folders
from anyplug.call.consent import Attachment
from anyplug.catalog import offers
from anyplug.peers import supervisor
from anyplug.peers.slot import Slot
from anyplug.runtime.processes.guard import TOKEN_VARIABLE
from anyplug.runtime.runner import Runner
from anyplug.runtime.sandbox.enforcement import Enforcement, Shortfall
from anyplug.runtime.sandbox.zygote_client import ZygoteClient
from conditions import until
from zot_folders import heard

pytestmark = pytest.mark.anyio

PATIENCE_S = 20.0
LOOP = "\nfor frame in heard(): pass\n"
YES = Attachment(yes=True)
# Counts its starts beside itself, and calls its tool after the count.
COUNTED = """
starts = int(open("starts.txt").read()) + 1 if os.path.exists("starts.txt") else 1
open("starts.txt", "w").write(str(starts))
"""
MORTAL = (
    COUNTED
    + """
hello()
tool("act")
tool(f"start{starts}")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        if frame["args"].get("die"):
            sys.exit("as you wish")
        say(frame, str(os.getpid()))
"""
)


def starts(folder):
    text = processes.read(os.path.join(folder, "starts.txt"))
    return int(text) if text else 0


def place(h, name):
    return h.peers.of(h.snapshot.plugin(name).plugin)[0]


def names(h):
    return sorted(tool.name for tool in h.tools)


@pytest.fixture
def impatient(monkeypatch):
    """Make the pauses before restarts short: what they are like is seen in one test, with the real ones."""
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.01, 0.02, 0.03))


# Crashes


@pytest.mark.requirement("ZOT-14")
async def test_a_crashed_extension_is_started_again_and_its_registrations_are_read_anew(zot, host):
    folder = zot("mortal", MORTAL)
    async with host(folder) as h:
        first = (await h.call("act")).text
        assert names(h) == ["act", "start1"]
        result = await h.call("act", {"die": True})
        assert (result.error.code, result.metadata["exit_code"]) == ("unavailable", 1)
        assert result.error.message == (
            "extension 'mortal' ended while 'act' was running: it exited with 1: as you wish"
        )
        assert "logs mortal`" in result.error.hint
        second = (await h.call("act")).text  # waits for the one that is on its way
        assert second != first
        await until(lambda: names(h) == ["act", "start2"])
        assert (place(h, "mortal").restarts, place(h, "mortal").health) == (1, "running")


async def test_a_plugin_that_is_being_restarted_is_not_one_that_could_not_be_loaded(zot, host, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES_S", (3600.0,))
    folder = zot("mortal", MORTAL)
    async with host(folder) as h:
        await h.call("act", {"die": True})
        await until(lambda: h.snapshot.plugin("mortal").is_down)
        said = (await h.call("builtin.reload_plugins")).text.splitlines()
        assert said[1:] == ["Plugins that ended and are being restarted: mortal"]
        plugin_folders.write(os.path.join(folder, "run.py"), "#!/bin/sh\nexit 3\n", 0o755)
        said = (await h.call("builtin.reload_plugins", {"plugin": "mortal"})).text.splitlines()
        assert "Plugins that could not be loaded: mortal" in said  # it has not been up since
        assert not any("started again" in line for line in said)


async def test_pauses_grow_and_after_several_crashes_in_a_row_it_is_given_up_with_the_reason(zot, host, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.05, 0.1, 0.2))
    folder = zot("doomed", COUNTED + 'open("times.txt", "a").write(f"{time.time()} ")\nsys.exit("no database")')
    began = time.monotonic()
    async with host(folder) as h:
        assert time.monotonic() - began < PATIENCE_S  # the start of a host does not wait for all attempts
        assert place(h, "doomed").health == "restarting"
        await until(lambda: place(h, "doomed").health == "given_up")
        await until(lambda: any("4 failures" in problem.message for problem in h.plugins[0].problems))
        assert starts(folder) == 4
        at = [float(text) for text in processes.read(os.path.join(folder, "times.txt")).split()]
        gaps = [later - sooner for sooner, later in itertools.pairwise(at)]
        assert all(gap >= pause for gap, pause in zip(gaps, supervisor.PAUSES_S, strict=True))
        (problem,) = h.plugins[0].problems
        assert "not running: 4 failures in a row, the last: extension 'doomed' ended before" in problem.message
        assert "it exited with 1: no database" in problem.message
        await anyio.sleep(0.3)
        assert starts(folder) == 4


async def test_a_look_waits_also_for_what_another_look_is_starting(zot, host, root):
    zot("slow", "time.sleep(0.5)\n" + MORTAL)
    async with host(roots=(root,)) as h, anyio.create_task_group() as tasks:
        plugin = h.snapshot.plugin("slow").plugin
        digest = h.catalog.digest(plugin)
        h.catalog.approvals.approve(plugin, digest, plugin.permissions, always=True, follow=False, unconfined=False)
        tasks.start_soon(h.look_again)
        await until(lambda: h.peers.of(plugin))
        await h.look_again()
        assert place(h, "slow").health == "running"


async def test_one_that_was_given_up_is_started_again_on_request(zot, host, impatient):
    folder = zot("doomed", "if not os.path.exists('mended'): sys.exit('not yet')\n" + MORTAL)
    async with host(folder) as h:
        await until(lambda: place(h, "doomed").health == "given_up")
        result = await h.call("doomed/act")
        assert result.error.code == "not_found"
        assert "plugin 'doomed': it is not running: " in result.error.message
        assert "plugin 'doomed': it is not running: " in (await h.run_command("/act")).error.message
        plugin_folders.write(os.path.join(folder, "mended"), "")
        await h.reload("doomed")
        assert (place(h, "doomed").health, place(h, "doomed").restarts) == ("running", 0)
        assert not (await h.call("act")).is_error
        assert h.problems == []


async def test_the_tools_of_one_that_was_given_up_stay_known_and_answer_unavailable(zot, host, impatient):
    folder = zot("fragile", COUNTED + "if starts > 1: sys.exit('broken for good')\n" + MORTAL.partition("hello()")[1]
                 + MORTAL.partition("hello()")[2])  # fmt: skip
    async with host(folder) as h:
        await h.call("act", {"die": True})
        await until(lambda: place(h, "fragile").health == "given_up")
        result = await h.call("act")
        assert (result.error.code, "broken for good" in result.error.message) == ("unavailable", True)
        assert "logs fragile`" in result.error.hint
        assert "anyplug reload fragile" in result.error.hint


async def test_a_call_during_a_restart_waits_for_the_next_attempt_and_no_longer(zot, host, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.3, 0.3, 0.3))
    folder = zot("fragile", COUNTED + "if starts in (2, 3): sys.exit('not yet')\n" + MORTAL)
    async with host(folder) as h:
        await h.call("act", {"die": True})
        await until(lambda: place(h, "fragile").health == "restarting")
        assert (await h.call("act")).error.code == "unavailable"
        await until(lambda: place(h, "fragile").health == "running")


async def test_a_run_of_some_length_forgives_the_crashes_before_it(zot, host, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.01,))
    monkeypatch.setattr(supervisor, "STEADY_S", 0.0)
    async with host(zot("mortal", MORTAL)) as h:
        for count in range(1, 5):
            await h.call("act", {"die": True})
            await until(lambda count=count: place(h, "mortal").restarts == count)
            await until(lambda: place(h, "mortal").health == "running")
        assert (place(h, "mortal").restarts, place(h, "mortal").crashes) == (4, 1)


async def test_good_answers_forgive_the_crashes_before_them(zot, host, impatient):
    async with host(zot("mortal", MORTAL)) as h:
        for count in range(1, 2 * len(supervisor.PAUSES_S) + 2):
            for _ in range(supervisor.STEADY_ANSWERS):
                assert not (await h.call("act")).is_error
            await h.call("act", {"die": True})
            await until(lambda count=count: place(h, "mortal").restarts == count)
            assert not (await h.call("act")).is_error
        assert place(h, "mortal").crashes == 1


async def test_one_that_was_given_up_is_tried_again_after_a_cool_down(zot, host, impatient, monkeypatch):
    monkeypatch.setattr(supervisor, "COOL_DOWNS_S", (0.3, 0.1, 3600.0))
    folder = zot("doomed", COUNTED + "if not os.path.exists('mended'): sys.exit('not yet')\n" + MORTAL)
    async with host(folder) as h:
        await until(lambda: place(h, "doomed").cool_downs == 3)
        assert starts(folder) == len(supervisor.PAUSES_S) + 3  # the tries after the cool-downs were one each
        await until(lambda: "; the next try is at " in h.plugins[0].problems[0].message)
        assert place(h, "doomed").health == "given_up"


async def test_a_cure_is_noticed_after_the_cool_down(zot, host, impatient, monkeypatch):
    monkeypatch.setattr(supervisor, "COOL_DOWNS_S", (0.05,))
    folder = zot("doomed", "if not os.path.exists('mended'): sys.exit('not yet')\n" + MORTAL)
    async with host(folder) as h:
        await until(lambda: place(h, "doomed").cool_downs > 1)
        plugin_folders.write(os.path.join(folder, "mended"), "")
        await until(lambda: place(h, "doomed").health == "running")
        assert not (await h.call("act")).is_error


async def test_a_death_before_ready_keeps_what_was_known_of_it(zot, host, impatient):
    folder = zot("fragile", COUNTED + "if starts > 1:\n    hello()\n    sys.exit('half way')\n"
                 + MORTAL.partition("hello()")[1] + MORTAL.partition("hello()")[2])  # fmt: skip
    async with host(folder) as h:
        await h.call("act", {"die": True})
        await until(lambda: place(h, "fragile").health == "given_up")
        assert "act" in names(h)


async def test_an_extension_that_leaves_by_itself_with_success_is_started_again_too(zot, host):
    folder = zot("brief", COUNTED + "hello()\ntool('act')\nemit('ready')\nif starts == 1: sys.exit(0)" + LOOP)
    async with host(folder) as h:
        await until(lambda: starts(folder) == 2 and place(h, "brief").health == "running")


# Starting


async def test_a_host_starts_them_at_once_or_when_they_are_first_needed(zot, host, root):
    folder, watcher = zot("lazy", MORTAL), zot("watcher", COUNTED + "hello()\nemit('subscribe', events=['a'])\n"
                                               "emit('ready')" + LOOP)  # fmt: skip
    async with host(roots=(root,)) as h:
        for name in ("lazy", "watcher"):
            await h.approve(h.snapshot.plugin(name).plugin, follow=True)
        assert (starts(folder), starts(watcher)) == (1, 1)
    async with host(roots=(root,), eager=False) as h:
        assert names(h) == ["act", "start1"]  # as it was the last time
        assert (starts(folder), starts(watcher)) == (1, 2)  # who watches has to be up
        assert place(h, "lazy").health == "idle"
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(lambda: h.call("act", attachment=YES))
        assert starts(folder) == 2
        await until(lambda: names(h) == ["act", "start2"])
    async with host(roots=(root,)) as h:
        assert starts(folder) == 3


@pytest.mark.requirement("ZOT-02")
async def test_what_nobody_approved_is_never_started(zot, host, root):
    folder = zot("stranger", MORTAL)
    async with host(roots=(root,)) as h:
        assert [entry.state for entry in h.plugins] == ["new"]
        assert h.tools == []
    assert starts(folder) == 0


async def test_offers_are_kept_by_digest(zot, host, root):
    zot("known", MORTAL)
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("known").plugin
        await h.approve(plugin)
        digest = h.catalog.digest(plugin).value
        offer = offers.stored(h.catalog.store, plugin, digest)[""]
        assert [tool.name for tool in offer.tools] == ["act", "start1"]
        assert offers.stored(h.catalog.store, plugin, "another") == {}


async def test_a_tool_of_one_that_may_not_run_says_why_and_is_not_unknown(zot, host, root):
    folder = zot("mortal", MORTAL)
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("mortal").plugin
        await h.approve(plugin)
        h.catalog.approvals.enable(plugin, on=False)
    async with host(roots=(root,)) as h:
        assert (await h.call("act")).error.code == "disabled"
        h.catalog.approvals.enable(plugin, on=True)
    plugin_folders.write(f"{folder}/more.py", "")
    async with host(roots=(root,)) as h:
        assert (await h.call("act")).error.code == "not_approved"
        assert h.peers.places == []


async def test_a_schema_nested_too_deeply_to_be_kept_keeps_nobody_from_working(zot, host, root):
    script = 'hello()\nprint(\'{"type": "register_tool", "name": "deep", "schema": \' + \'{"a":\' * 900 + \'1\' + '
    folder = zot("deep", script + "'}' * 900 + '}', flush=True)\ntool('act')\nemit('ready')" + LOOP)
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("deep").plugin)
        assert "act" in names(h)
        assert place(h, "deep").health == "running"
    assert heard(folder, "shutdown")


# Changes


def rewrite(folder, script):
    plugin_folders.write(os.path.join(folder, "run.py"), zot_folders.PRELUDE + script, 0o755)


async def seen(folder, script, is_so):
    """Change the code until it is noticed: a watcher needs a moment before it sees anything."""
    for n in range(int(PATIENCE_S)):
        rewrite(folder, f"{script}\n# {n}\n")
        with anyio.move_on_after(1.5):
            await until(is_so)
            return
    raise TimeoutError


async def test_a_change_of_its_code_starts_an_explicit_extension_anew(zot, host):
    folder = zot("edited", MORTAL)
    async with host(folder, watch=True) as h:
        pid = h.peers.up[0].session.pid
        await seen(folder, MORTAL.replace('"act"', '"better"'), lambda: "better" in names(h))
        assert "act" not in names(h)
        assert not processes.is_running(pid)
        assert place(h, "edited").restarts == 0


@pytest.mark.parametrize("follow", [True, False])
async def test_a_change_starts_a_followed_extension_anew_and_stops_an_approved_one(follow, zot, host, root):
    folder = zot("edited", MORTAL)
    async with host(roots=(root,), watch=True) as h:
        await h.approve(h.snapshot.plugin("edited").plugin, follow=follow)
        pid = h.peers.up[0].session.pid
        better = MORTAL.replace('"act"', '"better"')
        if follow:
            await seen(folder, better, lambda: "better" in names(h))
        else:
            await seen(folder, better, lambda: [entry.state for entry in h.plugins] == ["changed"])
            assert h.peers.places == []
            assert starts(folder) == 1
            assert (await h.call("act", attachment=YES)).error.code in {"not_found", "not_approved"}
        await until(lambda: not processes.is_running(pid))


@pytest.mark.parametrize("how", ["crash", "reload"])
async def test_code_that_nobody_approved_is_not_started_after_a_crash_or_by_a_reload(how, zot, host, root, impatient):
    folder = zot("edited", MORTAL)
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("edited").plugin)
        pid = h.peers.up[0].session.pid
        rewrite(folder, "open('evil.txt', 'w')" + MORTAL)
        if how == "crash":
            os.killpg(pid, signal.SIGKILL)
            await until(lambda: place(h, "edited").health == "given_up")
            assert "it changed since it was approved" in place(h, "edited").reason
        else:
            await h.reload("edited")
            assert h.peers.places == []
    assert not os.path.exists(os.path.join(folder, "evil.txt"))


@pytest.mark.requirement("ZOT-09")
async def test_state_written_beside_the_extension_leaves_it_in_peace(zot, host, root):
    folder = zot("writer", MORTAL)
    async with host(roots=(root,), watch=True) as h:
        await h.approve(h.snapshot.plugin("writer").plugin)
        pid = h.peers.up[0].session.pid
        for n in range(5):
            plugin_folders.write(os.path.join(folder, "todos.json"), json.dumps(list(range(n))))
            await anyio.sleep(0.1)
        assert h.peers.up[0].session.pid == pid
        said = (await h.call("act", attachment=YES)).text
        assert processes.outside(int(said), os.environ[TOKEN_VARIABLE]) == pid


async def test_enabled_in_the_manifest_is_a_switch_and_no_part_of_the_digest(zot, host, root):
    folder = zot("switch", MORTAL)
    path = os.path.join(folder, "extension.json")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    async with host(roots=(root,), watch=True) as h:
        await h.approve(h.snapshot.plugin("switch").plugin)
        before = h.catalog.digest(h.snapshot.plugin("switch").plugin).value
        plugin_folders.write(path, json.dumps({**manifest, "enabled": False}))
        await until(lambda: [entry.state for entry in h.plugins] == ["disabled"])
        assert h.peers.places == []
        assert h.catalog.digest(h.snapshot.plugin("switch").plugin).value == before
        plugin_folders.write(path, json.dumps({**manifest, "enabled": True}))
        await until(lambda: h.peers.up and names(h))
        assert not (await h.call("act", attachment=YES)).is_error


# Reloading


@pytest.mark.requirement("ZOT-55")
async def test_reload_reads_manifests_again_and_respawns_explicit_ones_too(zot, host):
    one, two = zot("one", MORTAL), zot("two", MORTAL.replace('"act"', '"other"').replace("start{", "begin{"))
    async with host(one, two) as h:
        zot_folders.write_manifest(one, {"name": "one", "version": "2.0", "exec": "./run.py"})
        await h.reload()
        assert [entry.plugin.version for entry in h.plugins] == ["2.0", "1.0.0"]
        assert (starts(one), starts(two)) == (2, 2)
        await h.reload("two")
        assert (starts(one), starts(two)) == (2, 3)
        assert not (await h.call("act")).is_error
    assert len(heard(one, "shutdown")) == 2


async def test_an_extension_that_is_still_starting_can_be_reloaded_and_stopped(zot, host, settings, root):
    settings("[plugins.slow]\nhello_s = 20\n")
    slow = zot("slow", COUNTED + "time.sleep(600)")
    async with host(roots=(root,)) as h:
        tag = h._runner.guard._tag
        plugin = h.snapshot.plugin("slow").plugin
        h.catalog.approvals.approve(
            plugin, h.catalog.digest(plugin), plugin.permissions, always=False, follow=True, unconfined=False
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.reload)
            await until(lambda: starts(slow) == 1)
            rewrite(slow, MORTAL)
            await h.reload("slow")
            await until(lambda: names(h) == ["act", "start2"])
        running = [command for command in processes.tagged(tag).values() if "run.py" in command]
        assert len(running) == 1
    assert processes.tagged(tag) == {}


async def test_leaving_while_one_is_starting_leaves_nothing(zot, host, root):
    slow = zot("slow", COUNTED + "time.sleep(600)")
    zot("other")
    files = len(os.listdir("/proc/self/fd"))
    with anyio.move_on_after(20):
        async with anyio.create_task_group() as tasks:

            async def enter():
                async with host(slow):
                    pass

            tasks.start_soon(enter)
            await until(lambda: starts(slow) == 1)
            tasks.cancel_scope.cancel()
    assert len(os.listdir("/proc/self/fd")) == files


# Names


async def test_of_two_extensions_of_one_name_the_first_in_root_order_runs(zot, host, tmp_path, root):
    other = tmp_path / "other"
    hidden = zot_folders.extension(other, "same", MORTAL.replace('"act"', '"hidden"'))
    shown = zot("same", MORTAL)
    async with host(roots=(root, str(other))) as h:
        for entry in h.plugins:
            if entry.state == "new":
                await h.approve(entry.plugin)
        assert [(entry.state, entry.shadowed_by) for entry in h.plugins] == [("approved", ""), ("shadowed", shown)]
        assert names(h) == ["act", "start1"]
    assert starts(hidden) == 0
    async with host(hidden, roots=(root,)) as h:
        assert [entry.path for entry in h.plugins if entry.state == "approved"] == [hidden]


async def test_of_two_tools_of_one_name_the_first_in_sorted_order_wins_each_time(zot, host, root):
    for name in ("beta", "alpha", "gamma"):
        slow = "time.sleep(0.2)" if name == "alpha" else ""
        script = f"{slow}\nhello()\ntool('shared', description='{name}')\nemit('ready')\n"
        zot(name, script + "for frame in heard():\n    if frame['type'] == 'tool_call': say(frame, NAME)\n")
    async with host(roots=(root,)) as h:
        for entry in h.plugins:
            await h.approve(entry.plugin)
    for _ in range(2):
        async with host(roots=(root,)) as h:
            assert [(tool.name, tool.description) for tool in h.tools] == [("shared", "alpha")]
            assert (await h.call("shared", attachment=YES)).text == "alpha"
            for name in ("alpha", "beta", "gamma"):  # PLUGIN/TOOL always works
                assert (await h.call(f"{name}/shared", attachment=YES)).text == name
            assert [problem.message for problem in h.problems] == [
                f"{name}: Duplicate tool name 'shared' from plugin '{name}': the name belongs to plugin 'alpha'"
                for name in ("beta", "gamma")
            ]


# The end


@pytest.mark.requirement("ZOT-15")
async def test_all_are_told_goodbye_and_gone_when_the_host_leaves(zot, host):
    folders = [zot(f"e{n}", zot_folders.ECHO) for n in range(5)]
    async with host(*folders) as h:
        pids = [extension.session.pid for extension in h.peers.up]
        assert len(pids) == 5
    assert not any(processes.is_running(pid) for pid in pids)
    assert all(len(heard(folder, "shutdown")) == 1 for folder in folders)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_a_host_that_was_killed(number, zot):
    folder = zot("orphan", "import subprocess; subprocess.Popen(['sleep', '611'])\n" + MORTAL)
    killed_hosts.leaves_nothing(folder, number, "sleep 611")


async def test_hosts_come_and_go_without_leaving_files_or_tasks(zot, host):
    import asyncio  # only here

    folder = zot("echo")
    async with host(folder):
        pass
    files, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
    for _ in range(3):
        async with host(folder) as h:
            await h.call("echo")
            await h.reload()
    assert (len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())) == (files, tasks)


async def test_a_store_that_cannot_be_read_is_not_the_end_of_the_host(zot, host, home, impatient):
    folder = zot("mortal", MORTAL)
    async with host(folder, zot("echo")) as h:
        h.catalog.store.run("DROP TABLE approvals")
        h.catalog.approvals._version = -1
        os.killpg(next(e.session.pid for e in h.peers.up if e.plugin.name == "mortal"), signal.SIGKILL)
        await until(lambda: place(h, "mortal").restarts > 0)
        assert len(h.peers.up) >= 1


# What is replaced, and who waits for it

SLOW = (
    "hello()\ntool('act')\ncommand('slow')\nemit('ready')\nopen(f'alive-{os.getpid()}', 'w').close()\n"
    "for frame in heard():\n"
    "    if frame['type'] == 'command_invoked':\n        time.sleep(0.6)\n"
    "        emit('command_response', id=frame['id'], action='display', display='done')\n"
    "    elif frame['type'] == 'tool_call':\n        time.sleep(0.6)\n        say(frame, str(os.getpid()))\n"
    "time.sleep(0.2)\nos.unlink(f'alive-{os.getpid()}')\n"
)


async def test_a_reload_lets_a_slash_command_end_first(zot, host):
    async with host(zot("slow", SLOW)) as h:
        outcomes = []

        async def run():
            outcomes.append(await h.run_command("/slow"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.sleep(0.2)
            await h.reload("slow")
    assert [(outcome.display, outcome.error) for outcome in outcomes] == [("done", None)]


async def test_changes_during_a_call_never_lead_to_two_processes_at_once(zot, host):
    folder = zot("slow", SLOW)
    async with host(folder) as h:
        most = 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.call, "act")
            await anyio.sleep(0.1)
            for _ in range(3):
                tasks.start_soon(h.reload, "slow")
                await anyio.sleep(0.05)
            with anyio.move_on_after(2.0):
                while True:
                    most = max(most, sum(name.startswith("alive-") for name in os.listdir(folder)))
                    await anyio.sleep(0.01)
        assert not (await h.call("act")).is_error
    assert most == 1


async def test_a_call_that_waits_for_a_plugin_waits_also_for_what_replaces_it(zot, host):
    async with host(zot("late", "time.sleep(0.4)\n" + zot_folders.ECHO), eager=False) as h:
        results = []

        async def call():
            results.append(await h.call("late"))

        await h.hear_out("late")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.reload)
            await anyio.sleep(0.1)
            tasks.start_soon(call)
            await anyio.sleep(0.1)
            tasks.start_soon(h.reload)
    assert [result.text for result in results] == ["{}"]


async def test_calls_and_reloads_at_the_same_time_get_on(zot, host):
    async with host(zot()) as h:
        texts = set()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(h.reload)
            for _ in range(30):
                texts.add((await h.call("echo")).text)
                await anyio.sleep(0.01)
    assert texts == {"{}"}


async def test_what_is_asked_right_after_a_crash_waits_for_the_next_start(zot, host):
    async with host(zot("mortal", MORTAL)) as h:
        first, second = (await h.call("act", {"die": True})), (await h.call("act"))
        third = await h.call("act")
    assert (first.is_error, second.is_error) == (True, False)
    assert second.text == third.text


async def test_of_two_looks_at_once_the_later_one_counts(zot, host, root, monkeypatch):
    zot()
    async with host(roots=(root,)) as h:
        find, is_slow = h.catalog.find, [True]

        def slowly(*given):
            found = find(*given)
            if is_slow.pop() if is_slow else False:
                time.sleep(0.5)
            return found

        monkeypatch.setattr(h.catalog, "find", slowly)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.look_again)
            await anyio.sleep(0.2)
            zot("new")
            tasks.start_soon(h.look_again)
        assert [entry.name for entry in h.plugins] == ["echo", "new"]


async def test_a_fault_of_ours_with_one_plugin_ends_no_other(zot, host, monkeypatch):
    healthy, odd = zot(), zot("odd")
    take = Slot.take

    def failing(self, offer):
        if self.plugin.name == "odd":
            raise ZeroDivisionError
        take(self, offer)

    monkeypatch.setattr(Slot, "take", failing)
    said = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["exception"]))
    async with host(healthy, odd) as h:
        assert not (await h.call("echo")).is_error
        assert place(h, "odd").health == "given_up"
        assert "anyplug itself failed while running it: ZeroDivisionError()" in place(h, "odd").reason
    assert [type(error) for error in said] == [ZeroDivisionError]


async def test_reloads_leave_no_places_behind(zot, host):
    async with host(zot(), eager=False) as h:
        await h.hear_out("echo")
        for _ in range(5):
            await h.reload()
        gc.collect()
        assert sum(isinstance(one, Slot) for one in gc.get_objects()) <= 2


# Rights, shortages and looks


@pytest.fixture
def short_of_processes(monkeypatch):
    """Have the kernel refuse the next so many spawners."""
    make, refusals = ZygoteClient.make_spawner, []

    def refusing(nursery, end):
        if refusals:
            raise refusals.pop()
        make(nursery, end)

    monkeypatch.setattr(ZygoteClient, "make_spawner", refusing)
    return lambda times: refusals.extend([OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))] * times)


async def test_what_could_not_be_confined_for_a_moment_comes_up_by_itself(zot, host, short_of_processes):
    short_of_processes(1)
    async with host(zot("echo")) as h:
        await until(lambda: h.peers.places[0].health == "running")
        assert h.peers.places[0].restarts == 1
        assert (await h.call("echo")).text == "{}"


async def test_who_still_looks_while_the_host_ends_has_nothing_started(zot, host):
    folder = zot("echo")
    async with host(folder) as h:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(h.peers.stop_all, at_once=True))
            await anyio.lowlevel.checkpoint()
            await h._loading.again()  # as a watch does that saw something just before
        assert h.peers.places == []
    assert len(heard(folder, "hello_ack")) == 1


async def test_who_waits_for_a_slow_start_hears_of_it(zot, host, monkeypatch):
    monkeypatch.setattr(supervisor, "SLOW_S", 0.3)
    said = []
    slow = zot("slow", "time.sleep(1)\n" + zot_folders.ECHO)
    async with host(zot("quick"), slow, tell=said.append) as h:
        assert {tool.name for tool in h.tools} == {"quick", "slow"}
    assert said == ["slow is still starting; `anyplug logs slow -f` shows its output"]


async def test_a_call_in_the_very_turn_in_which_an_extension_has_come_up_finds_its_tool(zot, host, short_of_processes):
    short_of_processes(1)
    async with host(zot("echo")) as h:
        with anyio.fail_after(PATIENCE_S):
            while h.peers.places[0].health != "running":
                await anyio.lowlevel.checkpoint()
        assert (await h.call("echo")).text == "{}"


async def test_a_one_shot_call_for_which_the_machine_is_short_fails_for_this_time(cyclop, host, short_of_processes):
    async with host(cyclop()) as h:
        short_of_processes(1)
        error = (await h.call("hello")).error
        assert error.code == "unavailable"
        assert error.message.startswith("plugin 'hello' cannot be confined right now and was not run: the spawner")
        assert not (await h.call("hello")).is_error


async def test_a_private_tmp_that_cannot_be_had_now_can_be_had_later(tmp_path, short_of_processes):
    runner = Runner(str(tmp_path / "locks"))
    try:
        short_of_processes(1)
        assert await runner._spawner() is None
        assert (await runner._spawner() is not None) or runner.namespaces_refused
    finally:
        runner.close()


async def test_to_allow_it_unconfined_and_to_withdraw_that_counts_at_once(zot, host, root, monkeypatch):
    lacking = Shortfall("which files it reads", "this kernel has no Landlock", "use another")
    monkeypatch.setattr(Enforcement, "shortfalls", lambda *_: (lacking,))
    zot("echo")
    async with host(roots=(root,)) as h:

        async def approve_and_call(*, unconfined):
            await h.approve(h.snapshot.plugin("echo").plugin, always=True, unconfined=unconfined)
            return await h.call("echo")

        assert (await approve_and_call(unconfined=False)).is_error
        assert (await approve_and_call(unconfined=True)).text == "{}"
        assert (await approve_and_call(unconfined=False)).error.code == "not_enforceable"


RELOADS = """
hello("call_tool")
tool("act")
emit("ready")
def reload(frame):
    emit("call_tool", id=str(time.time()), name="builtin.reload_plugins", args={"plugin": NAME}, parent_id=frame["id"])
for frame in heard():
    if frame["type"] == "tool_call":
        call, answers = frame, 0
        reload(call)
    elif frame["type"] == "tool_result":
        answers += 1
        reload(call) if answers < 3 else say(call, "reloaded")
"""


async def test_a_tool_may_have_its_own_plugin_reloaded_several_times(zot, host):
    async with host(zot("asks", RELOADS)) as h:
        with anyio.fail_after(supervisor.DRAIN_S / 2):
            assert (await h.call("act")).text == "reloaded"
