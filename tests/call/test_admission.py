"""Before each call a plugin's files are looked at: what changed is seen, however few looks there are."""

import os
import signal
import sys
import time

import anyio
import pytest

from anyplug.call import admission
from anyplug.call.consent import Attachment
from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import find_home
from anyplug.runtime.inotify import PathWatch
from conditions import until

pytestmark = pytest.mark.anyio

YES = Attachment(yes=True)
QUIET = """
hello()
tool("act")
emit("ready")
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "shutdown":
        break
    if frame["type"] == "tool_call":
        say(frame, "done")
"""
DISABLE = """
import sys
from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import find_home
catalog = Catalog(find_home(), roots=[sys.argv[1]])
catalog.approvals.enable(catalog.load().plugin("quiet").plugin, on=False)
catalog.close()
"""


@pytest.fixture
def quiet(zot, root):
    """Give an approved extension that leaves its folder alone."""
    folder = zot("quiet", QUIET)
    os.mkdir(os.path.join(folder, "lib"))
    with open(os.path.join(folder, "lib", "part.py"), "w", encoding="utf-8") as file:
        file.write("PART = 1\n")
    catalog = Catalog(find_home(), roots=[root])
    plugin = catalog.load().plugin("quiet").plugin
    catalog.approvals.approve(
        plugin, catalog.digest(plugin), plugin.permissions, always=True, follow=False, unconfined=False
    )
    catalog.close()
    return folder


@pytest.fixture
def looked(monkeypatch):
    """Count the looks at files."""
    seen = []
    look = admission.Admission._look

    async def counted(self, plugin):
        seen.append(plugin.name)
        return await look(self, plugin)

    monkeypatch.setattr(admission.Admission, "_look", counted)
    return seen


async def code(h):
    result = await h.call("act", attachment=YES)
    return result.error.code if result.error else "done"


async def test_what_each_call_starts_anew_is_looked_at_each_time(host, cyclop, looked):
    async with host(cyclop()) as h:
        looked.clear()
        for _ in range(3):
            assert not (await h.call("hello")).is_error
    assert looked == ["hello"] * 3


async def test_of_what_stays_up_a_look_holds_while_nothing_stirs(host, root, quiet, looked, monkeypatch):
    monkeypatch.setattr(admission, "LASTS_S", 60.0)
    async with host(roots=(root,)) as h:
        assert [await code(h) for _ in range(3)] == ["done"] * 3
        looked.clear()
        assert [await code(h) for _ in range(20)] == ["done"] * 20
    assert looked == []


async def process_of(place):
    """Wait until it is up; give its process."""
    found = []
    await until(lambda: place.peer is not None and found.append(place.peer.session.pid) is None and found[-1])
    return found[-1]


def edit(folder):
    with open(os.path.join(folder, "run.py"), "a", encoding="utf-8") as file:
        file.write("# one more line\n")


def edit_below(folder):
    with open(os.path.join(folder, "lib", "part.py"), "w", encoding="utf-8") as file:
        file.write("PART = 2\n")


def add(folder):
    with open(os.path.join(folder, "more.py"), "w", encoding="utf-8") as file:
        file.write("MORE = 1\n")


def replace_folder(folder):
    os.rename(os.path.join(folder, "lib"), os.path.join(os.path.dirname(folder), ".old"))
    os.mkdir(os.path.join(folder, "lib"))


@pytest.mark.parametrize("change", [edit, edit_below, add, replace_folder])
async def test_what_changed_is_refused_by_the_very_next_call(change, host, root, quiet, monkeypatch):
    monkeypatch.setattr(admission, "LASTS_S", 60.0)
    async with host(roots=(root,)) as h:
        assert [await code(h) for _ in range(5)] == ["done"] * 5
        change(quiet)
        assert await code(h) == "not_approved"


async def test_a_decision_in_another_process_counts_for_the_very_next_call(host, root, quiet, monkeypatch):
    monkeypatch.setattr(admission, "LASTS_S", 60.0)
    async with host(roots=(root,)) as h:
        assert [await code(h) for _ in range(5)] == ["done"] * 5
        await anyio.run_process([sys.executable, "-c", DISABLE, root])
        assert await code(h) == "disabled"


async def test_a_decision_here_counts_for_the_very_next_call(host, root, quiet, monkeypatch):
    monkeypatch.setattr(admission, "LASTS_S", 60.0)
    async with host(roots=(root,)) as h:
        assert [await code(h) for _ in range(5)] == ["done"] * 5
        h.catalog.approvals.enable(h.snapshot.plugin("quiet").plugin, on=False)
        assert await code(h) == "disabled"


async def test_what_the_kernel_does_not_tell_of_is_seen_soon(host, root, quiet, tmp_path):
    part = os.path.join(quiet, "lib", "part.py")
    os.link(part, tmp_path / "the-same")
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("quiet").plugin, always=True)
        assert [await code(h) for _ in range(5)] == ["done"] * 5
        (tmp_path / "the-same").write_text("PART = 2\n")
        with anyio.fail_after(30):
            while await code(h) != "not_approved":
                await anyio.sleep(admission.LASTS_S / 5)


async def test_a_plugin_with_too_many_folders_is_looked_at_each_time(host, root, quiet, looked, monkeypatch):
    monkeypatch.setattr(admission, "MOST_WATCHED", 1)
    async with host(roots=(root,)) as h:
        await code(h)
        looked.clear()
        assert [await code(h) for _ in range(3)] == ["done"] * 3
    assert looked == ["quiet"] * 3


async def test_what_is_put_right_runs_again_with_the_very_next_call(host, root, quiet):
    part = os.path.join(quiet, "lib", "part.py")
    async with host(roots=(root,)) as h:
        assert await code(h) == "done"
        with open(part, encoding="utf-8") as file:
            before = file.read()
        edit_below(quiet)
        assert await code(h) == "not_approved"
        with open(part, "w", encoding="utf-8") as file:
            file.write(before)
        assert await code(h) == "done"


async def test_a_look_while_somebody_decides_does_not_last(host, root, quiet, monkeypatch):
    monkeypatch.setattr(admission, "LASTS_S", 60.0)
    async with host(roots=(root,)) as h:
        assert [await code(h) for _ in range(5)] == ["done"] * 5
        other = Catalog(find_home(), roots=[root])
        plugin = other.load().plugin("quiet").plugin
        with other.store.writing() as transaction:
            transaction.execute("INSERT INTO disabled VALUES (?)", (plugin.path,))
            transaction.execute("UPDATE decisions SET count = ?", (other.approvals.mark.grow(),))
            mine = h.snapshot.plugin("quiet").plugin
            # The mark has grown, and nothing is committed yet.
            assert (h._admission._known(mine) or await h._admission._looked(mine)).state == "approved"
        assert await code(h) == "disabled"
        other.close()


async def test_what_starts_is_looked_at_then_and_not_a_moment_ago(host, root, quiet, tmp_path, monkeypatch):
    monkeypatch.setattr(admission, "LASTS_S", 60.0)
    monkeypatch.setattr(admission, "LASTS_AT_MOST_S", 60.0)
    os.link(os.path.join(quiet, "run.py"), tmp_path / "the-same")
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("quiet").plugin, always=True)
        (place,) = h.peers.places
        os.kill(await process_of(place), signal.SIGKILL)
        await until(lambda: place.restarts == 1)
        second = await process_of(place)
        with open(tmp_path / "the-same", "a", encoding="utf-8") as file:  # which the kernel does not tell of
            file.write("# changed\n")
        os.kill(second, signal.SIGKILL)
        await until(lambda: place.health == "given_up" or (place.restarts > 1 and place.peer is not None))
        assert "it changed since it was approved" in place.reason


async def test_no_look_lasts_for_long_however_long_it_took(host, root, quiet, monkeypatch):
    look = admission.Admission._look

    async def slow(self, plugin):
        await anyio.sleep(0.3)
        return await look(self, plugin)

    async with host(roots=(root,)) as h:
        await code(h)
        monkeypatch.setattr(admission.Admission, "_look", slow)
        await code(h)
        (lasting,) = h._admission._lasting.values()
        assert lasting.until - time.monotonic() <= admission.LASTS_AT_MOST_S


async def test_what_cannot_be_watched_is_tried_once(host, root, quiet, looked, monkeypatch):
    os.symlink("nowhere", os.path.join(quiet, "lib", "dangling"))
    tried = []
    watch = PathWatch.watch

    def counted(self, paths):
        tried.append(paths)
        return watch(self, paths)

    monkeypatch.setattr(PathWatch, "watch", counted)
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("quiet").plugin, always=True)
        looked.clear()
        assert [await code(h) for _ in range(5)] == ["done"] * 5
    assert len(tried) == 1
    assert looked == ["quiet"] * 5


async def test_running_a_plugin_leaves_no_mark_on_its_folder(host, root, quiet):
    before = os.stat(quiet)
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("quiet").plugin, always=True)
        assert await code(h) == "done"
    after = os.stat(quiet)
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    assert os.listxattr(quiet) == []
