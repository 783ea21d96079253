"""Calls are bounded and take fair turns: a flood delays others by one turn at most, and what cannot wait is refused."""

import os

import anyio
import pytest

import plugin_folders
import processes
from anyplug.call.call_places import Places
from anyplug.call.consent import Attachment
from anyplug.home.settings import CallSettings, PluginSettings
from anyplug.model.errors import Overloaded
from command_line import ok
from conditions import until
from consoles import console, with_token

pytestmark = pytest.mark.anyio
OWN = PluginSettings()
WAITS = 'hello()\ntool("wait")\nemit("ready")\nfor frame in heard(): pass\n'
# Runs until a file of that name exists in its data folder, and leaves a trace at its start.
GATED = """#!/bin/sh
read -r line
name=${line##*\\"n\\":\\"}; name=${name%%\\"*}
cd "$CYCLOPONE_DATA_DIR"
touch "began-$name"
while [ ! -e open ]; do sleep 0.02; done
echo '{"result": "done"}'
"""


class Scene:
    """Calls that begin and end on request; `order` is that in which they began."""

    def __init__(self, tasks, **limits):
        self.places = Places()
        self.places.follow(CallSettings(**limits))
        self.tasks, self.order, self.refused, self.ends = tasks, [], [], {}

    async def call(self, name, plugin="p", line="c", own=OWN, depth=1):
        self.ends[name] = end = anyio.Event()

        async def run():
            try:
                async with self.places.place(plugin, plugin, line, own, depth=depth):
                    self.order.append(name)
                    await end.wait()
            except Overloaded as error:
                self.refused.append((name, error.metadata["retry_after_ms"]))

        self.tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()

    async def end(self, name):
        self.ends[name].set()
        await anyio.wait_all_tasks_blocked()


async def test_a_flood_of_one_delays_another_by_one_turn():
    async with anyio.create_task_group() as tasks:
        scene = Scene(tasks, at_once=4, per_plugin=2)
        for number in range(20):
            await scene.call(f"flood-{number}", line="greedy")
        assert scene.order == ["flood-0", "flood-1"]
        await scene.call("other plugin", plugin="q")  # there is room for it, although others wait
        assert scene.order[2:] == ["other plugin"]
        await scene.call("other caller", line="modest")
        await scene.end("flood-1")
        await scene.end("flood-0")
        assert scene.order[3:] == ["flood-2", "other caller"]
        assert (scene.places.running, scene.places.waiting) == (3, 17)
        tasks.cancel_scope.cancel()
    assert (scene.places.running, scene.places.waiting) == (0, 0)


async def test_no_plugin_and_no_caller_holds_more_than_it_leaves_free():
    async with anyio.create_task_group() as tasks:
        scene = Scene(tasks, at_once=16, per_plugin=16)
        for number in range(20):
            await scene.call(f"a{number}", plugin="a", line="one")
        first = len(scene.order)
        for number in range(20):
            await scene.call(f"b{number}", plugin="b", line="one")
        second = len(scene.order) - first
        await scene.call("late", plugin="c", line="two")
        assert (first, second, scene.order[-1]) == (9, 4, "late")
        for number in range(8):  # what ends makes room for the one that has less
            await scene.end(f"a{number}")
        assert sum(name.startswith("b") for name in scene.order) > second
        tasks.cancel_scope.cancel()


async def test_what_cannot_wait_is_refused_and_others_may_still_wait():
    async with anyio.create_task_group() as tasks:
        scene = Scene(tasks, at_once=1, per_plugin=1, waiting=10)
        for number in range(10):
            await scene.call(f"flood-{number}", line="greedy")
        assert scene.places.waiting == 6
        assert [name for name, _ in scene.refused] == ["flood-7", "flood-8", "flood-9"]
        assert all(wait % 1000 == 0 and wait >= 1000 for _, wait in scene.refused)
        await scene.call("modest", line="other")
        assert (scene.places.waiting, len(scene.refused)) == (7, 3)
        tasks.cancel_scope.cancel()


async def test_inner_calls_do_not_wait_for_the_places_of_those_that_made_them():
    async with anyio.create_task_group() as tasks:
        scene = Scene(tasks, at_once=1, per_plugin=1)
        await scene.call("outer")
        await scene.call("inner", depth=2)
        assert scene.order == ["outer", "inner"]
        tasks.cancel_scope.cancel()


async def test_waiting_has_an_end_and_limits_can_change_meanwhile():
    async with anyio.create_task_group() as tasks:
        scene = Scene(tasks, at_once=1, wait_s=0.05)
        await scene.call("long")
        await scene.call("impatient")
        await until(lambda: scene.refused)
        scene.places.follow(CallSettings(at_once=1, wait_s=60))
        await scene.call("patient")
        scene.places.follow(CallSettings(at_once=2))
        await anyio.wait_all_tasks_blocked()
        assert scene.order == ["long", "patient"]
        tasks.cancel_scope.cancel()


async def test_130_hanging_calls_of_one_plugin_keep_no_other_waiting(host, cyclop):
    async with host(cyclop("hangs", GATED), cyclop("quick")) as up, anyio.create_task_group() as tasks:
        for number in range(130):
            tasks.start_soon(up.call, "hangs", {"n": str(number)})
        await until(lambda: up.places.waiting > 60)
        assert (await up.call("quick")).text == "done"
        tasks.cancel_scope.cancel()
    assert (up.places.running, up.places.waiting) == (0, 0)


async def test_the_callers_of_a_plugin_take_turns_and_a_cancelled_one_frees_its_place(host, cyclop, settings):
    settings("[plugins.gated]\ncalls = 1\n")
    folder = cyclop("gated", GATED)
    async with host(folder) as up, anyio.create_task_group() as tasks:
        data = os.path.join(up.catalog.home.path, "data", "gated")
        greedy, modest = Attachment("mcp"), Attachment("mcp")
        scopes = []

        async def call(name, caller):
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await up.call("gated", {"n": name}, attachment=caller)

        def began(name):
            return os.path.exists(os.path.join(data, f"began-{name}"))

        tasks.start_soon(call, "g0", greedy)
        await until(lambda: began("g0"))
        for number in range(1, 5):
            tasks.start_soon(call, f"g{number}", greedy)
        await until(lambda: up.places.waiting == 4)
        tasks.start_soon(call, "m", modest)
        await until(lambda: up.places.waiting == 5)
        scopes[1].cancel()
        await until(lambda: up.places.waiting == 4)
        scopes[0].cancel()
        await until(lambda: began("m") or began("g2"))
        tasks.start_soon(call, "m2", modest)
        await anyio.to_thread.run_sync(plugin_folders.write, os.path.join(data, "open"), "")
    assert not began("g1")
    assert [row.record.outcome for row in up.audit.calls()].count("cancelled") == 2


async def test_the_library_is_bounded_too_and_says_when_to_come_back(host, zot, settings):
    settings("[calls]\nat_once = 1\nper_plugin = 1\nwaiting = 0\n[plugins.wait]\ncalls = 1\n")
    folder = zot("wait", WAITS)
    async with host(folder) as up, anyio.create_task_group() as tasks:
        tasks.start_soon(up.call, "wait")
        await until(lambda: up.places.running == 1)
        refused = await up.call("wait")
        assert refused.error.code == "overloaded"
        seconds = refused.metadata["retry_after_ms"] // 1000
        assert f"try again in {seconds} s" in refused.error.hint
        tasks.cancel_scope.cancel()


def test_over_http_it_is_a_429_and_who_hangs_up_frees_the_place(root, home, settings):
    settings("[calls]\nwaiting = 0\n[plugins.gated]\ncalls = 1\n")
    plugin_folders.cyclop(root, "gated", GATED)
    ok("install", os.path.join(root, "gated"), "--yes")
    began = home / "data" / "gated"
    with console():
        agent = with_token()
        first = agent.begin("POST", "/tools/gated/call", {"arguments": {"n": "1"}})
        assert processes.until((began / "began-1").exists)
        refused = agent.ask("POST", "/tools/gated/call", {"arguments": {"n": "2"}})
        assert (refused.status, refused.code) == (429, "overloaded")
        assert f"try again in {refused.headers['retry-after']} s" in refused.json["error"]["hint"]
        assert refused.json["error"]["retry_after_s"] == int(refused.headers["retry-after"])
        first.close()
        assert processes.until(lambda: agent.get("/calls")["items"] == [])
