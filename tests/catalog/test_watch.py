"""Watching: a change anywhere in a plugin is seen, a broken edit hides nothing, calls under way finish."""

import contextlib
import os
import threading
import time
from itertools import pairwise

import anyio
import pytest
import watchfiles

import plugin_folders
import processes
import shortages
import zot_folders
from anyplug.catalog.catalog import Catalog
from anyplug.home import digest
from anyplug.home.settings import find_home
from anyplug.host.loading import RETRY_S
from anyplug.model.errors import StoreError
from conditions import until

pytestmark = pytest.mark.anyio

SOON_S = 5.0  # is what happens within a second, on a machine that has much else to do


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr("anyplug.catalog.watch.LOOK_AGAIN_MS", 300)


async def settled(host):
    """Wait until the watcher is up: it sees a file come and go beside the plugins."""
    before = host.snapshot
    root = host.catalog.roots[0]
    with anyio.fail_after(processes.PATIENCE_S):
        while host.snapshot is before:
            plugin_folders.write(os.path.join(root, "noise"), "")
            await anyio.sleep(0.05)
            os.unlink(os.path.join(root, "noise"))
            await anyio.sleep(0.05)
    while True:  # and until it has seen all of that
        last = host.snapshot
        await anyio.sleep(0.3)
        if host.snapshot is last:
            return


def approve(host, name, **how):
    plugin = host.snapshot.plugin(name).plugin
    how = {"always": True, "follow": False, "unconfined": False} | how
    host.catalog.approvals.approve(plugin, host.catalog.digest(plugin), plugin.permissions, **how)


def description(host, name="hello"):
    return host.snapshot.plugin(name).plugin.description


def tool_named(name):
    return [{"name": name, "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}]


@pytest.mark.requirement("CYC-04")
async def test_a_new_folder_appears_and_a_removed_one_goes(host, root, cyclop):
    cyclop("first")
    async with host(roots=(root,), watch=True) as h:
        await settled(h)
        cyclop("second")
        await until(lambda: [entry.name for entry in h.plugins if entry.state == "new"] == ["first", "second"])
        os.rename(os.path.join(root, "first"), os.path.join(os.path.dirname(root), "away"))
        await until(lambda: [entry.name for entry in h.plugins] == ["second"])


async def test_what_changes_while_a_host_starts_is_seen(host, root, tmp_path, cyclop):
    waits = "open('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    slow = zot_folders.extension(tmp_path / "elsewhere", "slow", waits + zot_folders.ECHO)

    async def install():
        await until(lambda: os.path.exists(f"{slow}/begun"))
        cyclop("second")
        plugin_folders.write(f"{slow}/go", "")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(install)
        async with host(slow, roots=(root,), watch=True) as h:
            await until(lambda: "second" in [entry.name for entry in h.plugins])


@pytest.mark.requirement("CYC-42")
async def test_a_change_of_the_manifest_is_seen(host, root, cyclop):
    cyclop()
    async with host(roots=(root,), watch=True) as h:
        await settled(h)
        cyclop(description="Another.", tools=tool_named("renamed"))
        await until(lambda: description(h) == "Another." and "renamed" in h.snapshot.owners)


@pytest.mark.parametrize("format", ["cyclop", "stavrobot"])
async def test_a_change_deep_inside_an_approved_plugin_is_seen(format, host, root, request):
    folder = request.getfixturevalue(format)("hello")
    plugin_folders.write(f"{folder}/lib/deep/code.py", "")
    async with host(roots=(root,), watch=True) as h:
        approve(h, "hello")
        await h.reload()
        assert h.plugins[0].state == "approved"
        await settled(h)
        plugin_folders.write(f"{folder}/lib/deep/code.py", "changed = True\n")
        await until(lambda: h.plugins[0].state == "changed")
        assert h.plugins[0].standing.changes == ("lib/deep/code.py changed",)


async def test_a_change_that_could_not_be_looked_at_is_looked_at_later(host, root, cyclop):
    cyclop()
    async with host(roots=(root,), watch=True) as h:
        await settled(h)
        tried = []
        find = h.catalog.find
        h.catalog.find = lambda *given: tried.append(1) or find(*given)
        with shortages.files():
            os.rename(f"{root}/hello", f"{root}/renamed")
            await until(lambda: tried)
            await anyio.sleep(0.3)
            assert h.plugins[0].path.endswith("hello")
        await until(lambda: h.plugins[0].path.endswith("renamed"))


async def test_a_change_that_a_call_saw_first_still_reaches_the_list(host, root, cyclop):
    cyclop()
    async with host(roots=(root,), watch=True) as h:
        approve(h, "hello", follow=True)
        await h.reload()
        await settled(h)
        cyclop(description="Another.")
        await h.call("hello")  # looks at the files before the watcher does
        await until(lambda: description(h) == "Another.")


async def test_a_plugin_that_writes_its_state_beside_itself_is_left_in_peace(host, root, stavrobot):
    folder = stavrobot("hello")
    async with host(roots=(root,), watch=True) as h:
        approve(h, "hello")
        await h.reload()
        await settled(h)
        before = h.snapshot
        plugin_folders.write(f"{folder}/state.json", "{}")
        plugin_folders.write(f"{folder}/cache/x.txt", "")
        await anyio.sleep(0.6)
        assert h.snapshot is before


async def test_a_plugin_that_never_stops_writing_gets_a_part_of_the_time_and_no_more(
    host, root, stavrobot, monkeypatch
):
    folder = stavrobot("restless")
    looks = []

    def look(*given, **named):
        begun = time.monotonic()
        time.sleep(0.1)  # as a folder of many thousand files takes
        found = take(*given, **named)
        looks.append((begun, time.monotonic()))
        return found

    take = digest.take
    async with host(roots=(root,), watch=True) as h:
        approve(h, "restless")
        await h.reload()
        await settled(h)
        monkeypatch.setattr(digest, "take", look)
        with anyio.fail_after(processes.PATIENCE_S):
            while len(looks) < 3:
                plugin_folders.write(f"{folder}/state.json", str(time.monotonic()))
                await anyio.sleep(0.005)
    for before, after in pairwise(looks):
        assert after[0] - before[1] > 5 * (before[1] - before[0])


LINGERS = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hello()
tool(NAME)
emit("ready")
for line in sys.stdin:
    pass
time.sleep(60)
"""


@contextlib.asynccontextmanager
async def leaving(host, root, zot, *, follow):
    """Give a host, the place of an extension that has just been changed and takes seconds to leave, and its program."""
    program = os.path.join(zot("lingers", LINGERS), "run.py")
    async with host(roots=(root,), watch=True) as h:
        approve(h, "lingers", follow=follow)
        await h.reload()
        await settled(h)
        (place,) = h.peers.places
        plugin_folders.write(program, zot_folders.PRELUDE + LINGERS + "# another\n", 0o755)
        await until(lambda: place not in h.peers.places)
        yield h, place, program


async def test_what_takes_its_time_to_leave_hides_nothing_that_changes_meanwhile(host, root, zot, cyclop):
    async with leaving(host, root, zot, follow=True) as (h, place, _):
        assert not place.over.is_set()  # it has some seconds to leave
        cyclop("second")
        with anyio.fail_after(SOON_S):
            await until(lambda: "second" in [entry.name for entry in h.plugins])
        assert not place.over.is_set()
        await until(place.over.is_set)
        cyclop("third")
        with anyio.fail_after(SOON_S):
            await until(lambda: "third" in [entry.name for entry in h.plugins])


async def test_what_is_as_it_was_again_before_it_has_left_is_started_again_once_it_has(host, root, zot):
    async with leaving(host, root, zot, follow=False) as (h, place, program):
        plugin_folders.write(program, zot_folders.PRELUDE + LINGERS, 0o755)
        await until(lambda: h.peers.up)
        assert place.over.is_set()  # never are there two of one


@pytest.fixture
def hashing(monkeypatch):
    """Say of each look that found something to hash whether it was made on the event loop."""
    take, on_the_loop = digest.take, []

    def look(*given, before, **named):
        found = take(*given, before=before, **named)
        if found is not before:
            on_the_loop.append(threading.current_thread() is threading.main_thread())
        return found

    monkeypatch.setattr(digest, "take", look)
    return on_the_loop


async def test_what_changes_is_hashed_beside_the_event_loop(host, root, stavrobot, hashing):
    folder = stavrobot("hello")
    async with host(roots=(root,), watch=True) as h:
        approve(h, "hello", follow=True)
        await h.reload()
        await settled(h)
        del hashing[:]
        plugin_folders.write(f"{folder}/large.py", "changed = True\n")
        await until(lambda: hashing)
        await h.reload()
        plugin_folders.write(f"{folder}/large.py", "changed = 'again'\n")
        await h.reload()
    assert not any(hashing)


async def test_what_changed_before_a_host_started_is_hashed_beside_the_event_loop(host, root, stavrobot, hashing):
    folder = stavrobot("hello")
    async with host(roots=(root,)) as h:
        approve(h, "hello")
    plugin_folders.write(f"{folder}/large.py", "changed = True\n")
    del hashing[:]
    async with host(roots=(root,)) as h:
        assert h.plugins[0].state == "changed"
    assert hashing
    assert not any(hashing)


async def test_a_folder_that_was_named_is_hashed_beside_the_event_loop(host, stavrobot, hashing):
    async with host(stavrobot("hello")):
        pass
    assert hashing
    assert not any(hashing)


async def test_what_changed_while_nobody_had_approved_it_starts_when_somebody_does_elsewhere(host, root, zot):
    folder = zot("echo")
    async with host(roots=(root,), watch=True) as h:
        approve(h, "echo")
        await h.reload()
        await settled(h)
        with contextlib.closing(Catalog(find_home(), roots=[root])) as elsewhere:
            elsewhere.approvals.revoke(elsewhere.load().plugin("echo").plugin)
            await until(lambda: h.plugins[0].state == "new" and not h.peers.up)
            plugin_folders.write(f"{folder}/run.py", zot_folders.PRELUDE + zot_folders.ECHO + "# another\n", 0o755)
            await settled(h)
            plugin = elsewhere.load().plugin("echo").plugin
            how = {"always": True, "follow": False, "unconfined": False}
            elsewhere.approvals.approve(plugin, elsewhere.digest(plugin), plugin.permissions, **how)
        await until(lambda: h.peers.up and h.plugins[0].state == "approved")  # the snapshot follows the start


async def test_switching_a_plugin_off_in_its_configuration_is_seen(host, root, stavrobot):
    folder = stavrobot("hello")
    async with host(folder, roots=(root,), watch=True) as h:
        await settled(h)
        plugin_folders.write(f"{folder}/config.json", '{"permissions": []}')
        await until(lambda: h.plugins[0].state == "disabled")


async def test_a_broken_edit_keeps_the_last_good_definition_and_names_the_problem(host, root, cyclop):
    folder = cyclop()
    async with host(folder, roots=(root,), watch=True) as h:
        await settled(h)
        plugin_folders.write(f"{folder}/plugin.json", "{ half")
        await until(lambda: h.problems != [])
        (entry,) = h.plugins
        assert (entry.state, entry.plugin.description) == ("approved", "What hello does.")
        assert "is not valid JSON" in entry.problems[0].message
        assert (await h.call("hello")).text == "done"
        cyclop(description="Mended.")
        await until(lambda: h.problems == [] and description(h) == "Mended.")


async def test_a_broken_edit_of_an_approved_plugin_does_not_run(host, root, cyclop):
    folder = cyclop()
    async with host(roots=(root,), watch=True) as h:
        approve(h, "hello")
        await h.reload()
        await settled(h)
        plugin_folders.write(f"{folder}/plugin.json", "{ half")
        await until(lambda: h.problems != [])
        assert h.plugins[0].state == "changed"
        assert [tool.name for tool in h.plugins[0].tools] == ["hello"]
        assert (await h.call("hello")).error.code == "not_approved"


async def test_calls_under_way_finish_on_the_old_definition(host, root, cyclop):
    script = (
        "#!/bin/sh\n"
        'touch "$CYCLOPONE_DATA_DIR/started"\n'
        'while [ ! -e "$CYCLOPONE_DATA_DIR/go" ]; do sleep 0.02; done\n'
        'echo \'{"result": "old"}\'\n'
    )
    folder = cyclop(script=script)
    results = []
    async with host(folder, roots=(root,), watch=True) as h, anyio.create_task_group() as tasks:
        await settled(h)

        async def call():
            results.append(await h.call("hello"))

        tasks.start_soon(call)
        data = os.path.join(h.catalog.home.path, "data", "hello")
        await until(lambda: os.path.exists(f"{data}/started"))
        cyclop(tools=tool_named("renamed"))
        await until(lambda: "renamed" in h.snapshot.owners)
        assert (await h.call("hello")).error.code in {"", "not_found"}
        plugin_folders.write(f"{data}/go", "")
    assert [(result.text, result.tool) for result in results] == [("old", "hello")]


async def test_a_folder_outside_the_roots_is_watched_too(host, root, cyclop, tmp_path):
    elsewhere = plugin_folders.cyclop(tmp_path / "elsewhere")
    os.symlink(elsewhere, os.path.join(root, "hello"))
    async with host(roots=(root,), watch=True) as h:
        await settled(h)
        plugin_folders.cyclop(tmp_path / "elsewhere", description="Another.")
        await until(lambda: description(h) == "Another.")


async def test_a_root_that_comes_later_is_found(host, tmp_path):
    async with host(roots=(str(tmp_path / "later"),), watch=True) as h:
        await anyio.sleep(0.1)
        plugin_folders.cyclop(tmp_path / "later")
        await until(lambda: [entry.name for entry in h.plugins] == ["hello"])


async def follows_a_root_that_goes_and_comes_back(host, root, cyclop, tmp_path):
    cyclop()
    async with host(roots=(root,), watch=True) as h:
        await settled(h)
        os.rename(root, tmp_path / "away")
        await until(lambda: h.plugins == [])
        os.rename(tmp_path / "away", root)
        await until(lambda: [entry.name for entry in h.plugins] == ["hello"])
        cyclop(description="Another.")
        await until(lambda: description(h) == "Another.")


async def test_a_root_that_goes_and_comes_back_does_not_stop_the_watching(host, root, cyclop, tmp_path):
    await follows_a_root_that_goes_and_comes_back(host, root, cyclop, tmp_path)


async def test_what_changes_before_a_new_watch_is_set_is_seen(host, root, cyclop, tmp_path, monkeypatch):
    watch = watchfiles.awatch

    async def after_a_while(*folders, **options):
        await anyio.sleep(0.5)
        async for batch in watch(*folders, **options):
            yield batch

    monkeypatch.setattr("watchfiles.awatch", after_a_while)
    await follows_a_root_that_goes_and_comes_back(host, root, cyclop, tmp_path)


async def test_a_host_that_leaves_does_not_wait_for_its_watching_thread(host, root, cyclop, monkeypatch):
    monkeypatch.setattr("anyplug.catalog.watch.LOOK_AGAIN_MS", 60_000)
    async with host(cyclop(), roots=(root,), watch=True) as h:
        await settled(h)
        began = anyio.current_time()
    assert anyio.current_time() - began < 30


async def test_a_folder_that_may_not_be_read_does_not_stop_the_watching(host, root, cyclop):
    cyclop()
    os.chmod(cyclop("closed"), 0)
    try:
        async with host(roots=(root,), watch=True) as h:
            await settled(h)
            cyclop(description="Another.")
            await until(lambda: description(h) == "Another.")
    finally:
        os.chmod(os.path.join(root, "closed"), 0o700)


async def test_watching_that_fails_is_taken_up_again(host, root, cyclop, monkeypatch):
    import watchfiles  # to make it fail

    real, failures = watchfiles.awatch, [OSError("no more watches"), RuntimeError("watcher"), OSError("gone")]

    def awatch(*folders, **how):
        if failures:
            raise failures.pop()
        return real(*folders, **how)

    monkeypatch.setattr(watchfiles, "awatch", awatch)
    cyclop()
    async with host(roots=(root,), watch=True) as h:
        await until(lambda: not failures)
        await settled(h)
        cyclop(description="Another.")
        await until(lambda: description(h) == "Another.")


# Settings


async def test_settings_that_change_are_followed(host, cyclop, settings):
    slow = cyclop("slow", plugin_folders.python("time.sleep(60)"))
    async with host(slow, watch=True) as h:
        settings("[plugins.slow]\ntimeout_s = 0.2\n")
        await until(lambda: h.catalog.settings.of("slow").timeout_s)
        assert (await h.call("slow")).error.code == "timed_out"


async def test_a_reload_reads_settings_again_also_where_nobody_watches(host, cyclop, settings):
    told = []
    async with host(cyclop("hello"), tell=told.append) as h:
        settings('[plugins.nosuchguard]\nguard = "required"\n')
        assert not (await h.call("hello")).is_error
        await h.reload()
        assert (await h.call("hello")).error.code == "denied"
        settings("no settings")
        await h.reload()
        assert (await h.call("hello")).error.code == "denied"
        assert told == [h.catalog.settings_fault]
        assert "the last good ones stay in effect" in told[0]
        settings('confinement = "off"\nnamespaces = false\n')
        await h.reload()
        assert not (await h.call("hello")).is_error
        assert h.catalog.settings_fault == ""
        settings('[policy]\nprogram = "/nowhere/cupcake"\n')
        await h.reload()
        assert "policies could not decide" in (await h.call("hello")).text


async def test_settings_that_could_not_be_taken_over_are_taken_over_by_the_next_look(
    host, cyclop, settings, monkeypatch
):
    async with host(cyclop("hello")) as h:
        settings('[plugins.nosuchguard]\nguard = "required"\n')
        monkeypatch.setattr(h.catalog, "snapshot", failing_once(h.catalog.snapshot, StoreError("busy", "")))
        with pytest.raises(StoreError):
            await h.reload()
        assert h.catalog.has_other_settings
        await h.reload()
        assert not h.catalog.has_other_settings


async def test_no_attempt_to_list_plugins_outlives_the_host(host, root, zot, monkeypatch):
    attempts = []

    def fail(*_given, **_named):
        attempts.append(anyio.current_time())
        raise StoreError("busy", "")

    async with leaving(host, root, zot, follow=True) as (h, _, _):
        monkeypatch.setattr(h.catalog, "snapshot", fail)
        h.peers.changed()
        await until(lambda: h.peers.up)  # which is said to two who then fail: who waited for it, and who lists tools
        await anyio.sleep(0.1)
    made = len(attempts)
    await anyio.sleep(2 * RETRY_S)
    assert made > 1
    assert len(attempts) == made


def failing_once(function, error):
    failures = [error]

    def call(*given, **named):
        if failures:
            raise failures.pop()
        return function(*given, **named)

    return call
