"""Trust: every state, what makes an approval hold, what a person is told when it does not."""

import json
import os
import subprocess
import sys
import time

import pytest

import plugin_folders
from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import find_home
from anyplug.model.errors import NotApproved, StoreError

DECIDE = """
import sys
from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import find_home
catalog = Catalog(find_home(), roots=[sys.argv[1]])
plugin = catalog.load().plugin("hello").plugin
match sys.argv[2]:
    case "approve":
        how = {"always": False, "follow": False, "unconfined": False}
        catalog.approvals.approve(plugin, catalog.digest(plugin), plugin.permissions, **how)
    case "revoke":
        assert catalog.approvals.revoke(plugin)
    case "deny":
        catalog.approvals.deny(plugin)
    case "disable":
        catalog.approvals.enable(plugin, on=False)
    case "enable":
        catalog.approvals.enable(plugin, on=True)
catalog.close()
"""


@pytest.fixture
def catalog(root):
    found = Catalog(find_home(), roots=[root])
    yield found
    found.close()


def plugin_of(catalog, name="hello"):
    return catalog.load().plugin(name).plugin


def approve(catalog, name="hello", granted=None, **how):
    plugin = plugin_of(catalog, name)
    how = {"always": False, "follow": False, "unconfined": False} | how
    catalog.approvals.approve(plugin, catalog.digest(plugin), plugin.permissions if granted is None else granted, **how)
    return plugin


def standing(catalog, name="hello"):
    return catalog.load().plugin(name).standing


def elsewhere(root, decision):
    """Decide in another process."""
    subprocess.run([sys.executable, "-c", DECIDE, root, decision], check=True)


def test_what_nobody_decided_about_is_new_and_its_files_are_not_even_hashed(catalog, root, cyclop, home):
    cyclop()
    assert standing(catalog).state == "new"
    assert not os.path.exists(home / "anyplug.db")


@pytest.mark.requirement("CYC-34")
def test_an_approved_plugin_is_approved_also_in_the_next_process(catalog, root, cyclop):
    cyclop()
    approve(catalog)
    assert standing(catalog).state == "approved"
    again = Catalog(find_home(), roots=[root])
    assert standing(again).state == "approved"
    again.close()


def test_a_denied_plugin_is_denied_until_it_is_approved_after_all(catalog, cyclop):
    cyclop()
    catalog.approvals.deny(plugin_of(catalog))
    assert standing(catalog).state == "denied"
    approve(catalog)
    assert standing(catalog).state == "approved"


@pytest.mark.requirement("CYC-34")
def test_a_revoked_approval_is_forgotten(catalog, cyclop):
    cyclop()
    plugin = approve(catalog)
    assert catalog.approvals.revoke(plugin)
    assert standing(catalog).state == "new"
    assert not catalog.approvals.revoke(plugin)


def test_a_disabled_plugin_keeps_its_approval(catalog, cyclop):
    cyclop()
    plugin = approve(catalog)
    catalog.approvals.enable(plugin, on=False)
    assert standing(catalog).state == "disabled"
    catalog.approvals.enable(plugin, on=True)
    assert standing(catalog).state == "approved"


def test_a_broken_plugin_is_broken_whatever_was_decided(catalog, cyclop):
    folder = cyclop()
    approve(catalog)
    plugin_folders.write(f"{folder}/plugin.json", "{")
    assert standing(catalog).state == "broken"


@pytest.mark.requirement("CYC-42")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: plugin_folders.write(f"{f}/run", "#!/bin/sh\n", 0o755), ("run changed",)),
        (lambda f: plugin_folders.write(f"{f}/lib/new.py", ""), ("lib/new.py is new",)),
        (lambda f: os.unlink(f"{f}/notes.txt"), ("notes.txt is gone",)),
        (lambda f: os.chmod(f"{f}/notes.txt", 0o755), ("a file's execute permission changed",)),
        (lambda f: os.rename(f"{f}/notes.txt", f"{f}/other.txt"), ("other.txt is new", "notes.txt is gone")),
    ],
)
def test_a_change_is_named(change, told, catalog, cyclop):
    folder = cyclop()
    plugin_folders.write(f"{folder}/notes.txt", "x")
    approve(catalog)
    change(folder)
    now = standing(catalog)
    assert (now.state, now.changes) == ("changed", told)


def test_changed_permissions_are_named_first(catalog, cyclop):
    cyclop(permissions=["network", "clipboard"])
    approve(catalog)
    cyclop(permissions=["network", "shell:exec"])
    now = standing(catalog)
    assert now.state == "changed"
    assert now.changes == ("it now asks for shell:exec", "it no longer asks for clipboard", "plugin.json changed")


def test_of_many_changes_the_first_are_named_and_the_rest_counted(catalog, cyclop):
    folder = cyclop()
    approve(catalog)
    for number in range(20):
        plugin_folders.write(f"{folder}/f{number:02}", "")
    assert standing(catalog).changes[-1] == "and 12 more"
    assert len(standing(catalog).changes) == 9


def test_a_change_that_is_taken_back_is_none(catalog, cyclop):
    folder = cyclop()
    approve(catalog)
    plugin_folders.write(f"{folder}/run", "#!/bin/sh\n", 0o755)
    assert standing(catalog).state == "changed"
    plugin_folders.write(f"{folder}/run", plugin_folders.ANSWER, 0o755)
    assert standing(catalog).state == "approved"


def test_touching_a_file_is_no_change(catalog, cyclop):
    folder = cyclop()
    approve(catalog)
    os.utime(f"{folder}/run", (1, 1))
    assert standing(catalog).state == "approved"


def test_an_edit_of_the_same_size_and_time_is_a_change_all_the_same(catalog, cyclop):
    folder = cyclop()
    approve(catalog)
    time.sleep(0.02)  # the kernel's own clock for files goes in steps of some milliseconds
    before = os.stat(f"{folder}/run")
    plugin_folders.write(f"{folder}/run", plugin_folders.ANSWER.replace("done", "evil"), 0o755)
    os.utime(f"{folder}/run", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert standing(catalog).changes == ("run changed",)


def test_a_followed_plugin_may_change_its_code_but_not_what_it_asks_for(catalog, cyclop):
    folder = cyclop()
    approve(catalog, follow=True)
    plugin_folders.write(f"{folder}/run", "#!/bin/sh\n", 0o755)
    plugin_folders.write(f"{folder}/more.py", "")
    assert standing(catalog).state == "approved"
    cyclop(permissions=["network"])
    now = standing(catalog)
    assert (now.state, now.changes[0]) == ("changed", "it now asks for network")


def test_a_followed_plugin_may_not_change_its_tools(catalog, cyclop):
    cyclop()
    approve(catalog, follow=True)
    tool = {"name": "hello", "description": "Something else entirely.", "input_schema": plugin_folders.NO_PARAMETERS}
    cyclop(tools=[tool])
    assert standing(catalog).state == "changed"


def test_always_and_what_was_granted_are_kept(catalog, cyclop):
    cyclop(permissions=["network", "shell:exec"])
    plugin = approve(catalog, granted=("network",), always=True)
    now = standing(catalog)
    assert (now.granted, now.always) == (("network",), True)
    catalog.approvals.regrant(plugin, catalog.approvals.of(plugin), ("shell:exec",))
    now = standing(catalog)
    assert (now.state, now.granted, now.always) == ("approved", ("shell:exec",), True)


def test_an_approval_belongs_to_a_place_and_not_to_a_name(catalog, cyclop, root, tmp_path):
    folder = cyclop()
    approve(catalog)
    os.rename(folder, tmp_path / "away")
    plugin_folders.cyclop(tmp_path / "other", "hello")
    os.symlink(tmp_path / "other" / "hello", folder)
    assert standing(catalog).state == "new"


def test_a_folder_that_was_forgotten_is_new_again(catalog, cyclop):
    cyclop()
    plugin = approve(catalog)
    catalog.approvals.enable(plugin, on=False)
    catalog.approvals.forget(plugin.path)
    assert standing(catalog).state == "new"


def test_a_folder_that_the_person_named_is_approved_as_it_is(root, cyclop):
    folder = cyclop(permissions=["network"])
    catalog = Catalog(find_home(), explicit=[folder], roots=[])
    assert standing(catalog).state == "approved"
    assert standing(catalog).granted == ("network",)
    plugin_folders.write(f"{folder}/run", "#!/bin/sh\n", 0o755)
    assert standing(catalog).state == "approved"
    catalog.approvals.enable(plugin_of(catalog), on=False)
    assert standing(catalog).state == "approved"
    catalog.close()


@pytest.mark.anyio
async def test_a_decision_in_another_process_takes_effect_at_the_next_call(host, cyclop, root):
    cyclop()
    async with host(roots=(root,)) as h:
        expected = {
            "approve": "",
            "disable": "disabled",
            "enable": "",
            "deny": "not_approved",
            "revoke": "not_approved",
        }
        for decision, code in expected.items():
            elsewhere(root, decision)
            result = await h.call("hello")
            assert (result.error.code if result.error else "") == code, decision


@pytest.mark.anyio
async def test_a_change_between_two_calls_is_seen_without_any_watching(host, cyclop, root):
    folder = cyclop()
    elsewhere(root, "approve")
    async with host(roots=(root,)) as h:
        assert not (await h.call("hello")).is_error
        plugin_folders.write(f"{folder}/run", plugin_folders.ANSWER + "#\n", 0o755)
        result = await h.call("hello")
        assert result.error.code == "not_approved"
        assert result.error.message == "plugin 'hello' may not run: it changed since it was approved (run changed)"
        assert result.metadata["changes"] == ["run changed"]


@pytest.mark.anyio
async def test_a_stavrobot_plugin_may_keep_data_beside_its_code(host, stavrobot, root):
    folder = stavrobot(script="#!/bin/sh\ndate +%N > ../state.json\nmkdir -p ../cache; date > ../cache/x.txt\n")
    catalog = Catalog(find_home(), roots=[root])
    approve(catalog, "bundle", always=True)
    catalog.close()
    async with host(roots=(root,)) as h:
        for _ in range(3):
            assert not (await h.call("bundle.act")).is_error
        plugin_folders.write(f"{folder}/helper.py", "")
        assert (await h.call("bundle.act")).error.message.endswith("(helper.py is new)")


def test_the_stored_decision_is_readable_json(catalog, cyclop):
    cyclop()
    approve(catalog)
    ((record,),) = catalog.store.rows("SELECT record FROM approvals")
    assert json.loads(record)["name"] == "hello"


@pytest.mark.anyio
async def test_what_changes_while_a_person_looks_at_it_is_not_approved(host, cyclop, root):
    folder = cyclop()
    async with host(roots=(root,)) as h:
        entry = h.snapshot.plugin("hello")
        seen = h.catalog.digest(entry.plugin).value
        plugin_folders.write(f"{folder}/more.py", "print()")
        with pytest.raises(NotApproved, match="while you were reviewing it"):
            await h.approve(entry.plugin, seen=seen)
        assert h.catalog.standing(entry.plugin).state == "new"


@pytest.mark.anyio
async def test_a_decision_that_cannot_be_read_refuses_calls_with_the_reason(host, cyclop, root):
    cyclop()
    async with host(roots=(root,)) as h:
        await h.approve(h.plugins[0].plugin)
        with h.catalog.approvals._changing(None) as transaction:
            transaction.execute("INSERT INTO approvals VALUES ('/elsewhere', ?)", (b'{"name": 1}',))
        error = (await h.call("hello")).error
        assert (error.code, "a decision in" in error.message) == ("denied", True)


@pytest.mark.anyio
async def test_each_decision_is_one_record_with_what_it_allows(host, cyclop, root):
    cyclop(permissions=["network"])
    async with host(roots=(root,)) as h:
        plugin, approvals = h.plugins[0].plugin, h.catalog.approvals
        await h.approve(plugin)
        approvals.regrant(plugin, approvals.of(plugin), ("network", "clipboard"))
        approvals.regrant(plugin, approvals.of(plugin), ("clipboard",))
        approvals.always(plugin)
        approvals.enable(plugin, on=False)
        approvals.enable(plugin, on=True)
        approvals.deny(plugin)
        approvals.revoke(plugin)
        approvals.revoke(plugin)  # there is nothing left to revoke
        records = [item.record for item in h.audit.records()]
        assert h.audit.verify()[1] == []
    assert [record.tool for record in records] == [
        "approve", "grant", "ungrant", "approve", "disable", "enable", "deny", "revoke",
    ]  # fmt: skip
    assert {(record.kind, record.plugin, record.by, record.attachment) for record in records} == {
        ("trust", plugin.name, "person", "library")
    }
    assert [record.notes[0] for record in records[:4]] == [
        "granted network", "granted clipboard", "no longer granted network", "calls no longer ask",
    ]  # fmt: skip


@pytest.mark.anyio
async def test_a_decision_that_cannot_be_recorded_is_not_made(host, cyclop, root):
    cyclop()
    async with host(roots=(root,)) as h:
        plugin, approvals = h.plugins[0].plugin, h.catalog.approvals
        with h.catalog.store.writing() as transaction:
            transaction.execute("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(FAIL, 'full'); END")
        with pytest.raises(StoreError):
            approvals.deny(plugin)
        assert approvals.of(plugin) is None
