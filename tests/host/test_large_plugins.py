"""A plugin with huge files or very many of them holds up nobody else, and is refused with what to do."""

import os

import anyio
import anyio.lowlevel
import pytest

import plugin_folders
from anyplug.catalog.catalog import Catalog
from anyplug.home import digest
from anyplug.home.settings import find_home
from anyplug.home.untrusted_files import TooMuch
from anyplug.model.errors import NotApproved

pytestmark = pytest.mark.anyio


def sparse(path, size):
    with open(path, "wb") as file:
        file.truncate(size)


@pytest.mark.claim("no-stall")
@pytest.mark.parametrize("watch", [False, True])
async def test_anothers_call_ends_before_the_look_at_a_huge_plugin_does(watch, host, root):
    huge, small = plugin_folders.stavrobot(root, "huge"), plugin_folders.cyclop(root, "small")
    ended = []

    async def call(h, name):
        result = await h.call(name)
        ended.append((name, result.error.code if result.error else ""))

    async with host(huge, small, watch=watch) as h:
        await call(h, "small")
        await call(h, "huge.act")
        ended.clear()
        for number in range(1):
            sparse(f"{huge}/{number}.py", digest.LARGEST_FILE - 4096)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, h, "huge.act")
            await anyio.lowlevel.checkpoint()
            await call(h, "small")
            await call(h, "small")
        assert ended == [("small", ""), ("small", ""), ("huge.act", "")]


@pytest.mark.claim("no-stall")
async def test_sparse_giants_are_refused_with_the_file_and_the_cure(host, root):
    huge = plugin_folders.stavrobot(root, "huge")
    async with host(huge) as h:
        for number in range(15):
            sparse(f"{huge}/{number}.py", 2 << 30)
        result = await h.call("huge.act")
    assert result.error.code == "not_approved"
    assert "plugin 'huge' may not run: its files cannot be checked" in result.error.message
    assert ".py: it has 2 GiB; the limit for one file is 512 MiB" in result.error.message
    assert result.error.hint.startswith(f"delete {huge}/")
    assert "or move it out of the plugin's folder" in result.error.hint


async def test_a_plugin_that_shrinks_runs_again(host, root):
    huge = plugin_folders.stavrobot(root, "huge")
    async with host(huge) as h:
        sparse(f"{huge}/giant.py", 2 << 30)
        assert (await h.call("huge.act")).is_error
        os.unlink(f"{huge}/giant.py")
        assert not (await h.call("huge.act")).is_error


async def test_a_giant_that_is_no_code_is_nobodys_business(host, root):
    huge = plugin_folders.stavrobot(root, "huge")
    async with host(huge) as h:
        sparse(f"{huge}/state.db", 1 << 40)
        assert not (await h.call("huge.act")).is_error


def test_an_approval_of_what_cannot_be_checked_is_refused(root):
    huge = plugin_folders.stavrobot(root, "huge")
    sparse(f"{huge}/giant.py", 2 << 30)
    catalog = Catalog(find_home(), roots=[root])
    plugin = catalog.load().plugin("huge").plugin
    with pytest.raises(TooMuch, match="the limit for one file is 512 MiB"):
        catalog.digest(plugin)
    catalog.close()


async def test_a_person_who_approves_it_is_told_what_to_do(host, root):
    huge = plugin_folders.stavrobot(root, "huge")
    sparse(f"{huge}/giant.py", 2 << 30)
    async with host(roots=(root,)) as h:
        with pytest.raises(NotApproved) as refused:
            await h.approve(h.snapshot.plugin("huge").plugin)
    assert f"delete {huge}/giant.py" in refused.value.hint


@pytest.mark.parametrize(
    ("bound", "value", "why"),
    [
        ("MOST_ENTRIES", 10, "more than 10 files and folders"),
        ("MOST_BYTES", 100, "more than 100 bytes together"),
        ("MOST_SECONDS", -1.0, "takes longer than -1 seconds"),
    ],
)
def test_a_digest_stops_at_every_bound(bound, value, why, root, monkeypatch):
    folder = plugin_folders.cyclop(root)
    for number in range(20):
        plugin_folders.write(f"{folder}/lib/{number}.py", "x" * 50)
    monkeypatch.setattr(digest, bound, value)
    monkeypatch.setattr(digest, "LARGEST_FILE", 100)
    with pytest.raises(TooMuch, match=why):
        digest.take(folder, every_file=True, before=None)


def test_a_plugin_with_a_large_node_modules_is_read(root):
    folder = plugin_folders.cyclop(root)
    for number in range(6_000):
        plugin_folders.write(f"{folder}/node_modules/p{number % 300}/{number}.js", "")
    reading = digest.take(folder, every_file=True, before=None)
    assert len(reading.as_digest().files) == 6_002
    assert not reading.is_small
    assert digest.take(folder, every_file=True, before=reading) is reading


async def test_a_large_extension_is_up_when_the_host_is(host, root, zot):
    folder = zot("large")
    for number in range(digest.QUICK_ENTRIES + 10):
        plugin_folders.write(f"{folder}/node_modules/p{number % 100}/{number}.js", "")
    async with host(folder) as h:
        (place,) = h.peers.places
        assert place.health == "running"
        assert h.snapshot.plugin("large").state == "approved"
