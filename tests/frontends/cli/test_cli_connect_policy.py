"""`connect opencode --policy`: the gate for OpenCode's own tools, put where OpenCode looks and taken away again."""

import os
import shutil

import pytest

import plugin_folders
from command_line import fails, ok, read

IN_A_PROJECT = os.path.join(".opencode", "plugin", "anyplug-policy.js")


@pytest.fixture
def everywhere(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return str(tmp_path / "config" / "opencode" / "plugin" / "anyplug-policy.js")


@pytest.mark.requirement("CUP-01")
def test_it_is_put_into_the_project_and_taken_away_again():
    done = ok("connect", "opencode", "--policy")
    assert IN_A_PROJECT in done.out
    assert "every tool is refused here: there is no .cupcake" in done.err
    assert "create one with `anyplug policy init --harness opencode`" in done.err
    assert os.environ["ANYPLUG_HOME"] in read(IN_A_PROJECT)
    assert "already exists" in ok("connect", "opencode", "--policy").out
    assert ok("connect", "opencode", "--policy", "--remove", "--json").json[0]["change"] == "removed"
    assert not os.path.exists(IN_A_PROJECT)
    assert "does not exist" in ok("connect", "opencode", "--policy", "--remove").out


@pytest.mark.requirement("CUP-02")
def test_it_is_put_where_all_projects_find_it(everywhere):
    ok("connect", "opencode", "--policy", "--global")
    assert os.path.exists(everywhere)
    assert not os.path.exists(IN_A_PROJECT)
    ok("connect", "opencode", "--policy", "--global", "--remove")
    assert not os.path.exists(everywhere)


def test_it_can_be_printed_and_nothing_is_written():
    assert ok("connect", "opencode", "--policy", "--print").out.startswith("// anyplug-policy: ")
    assert not os.path.exists(IN_A_PROJECT)


def test_policies_that_cannot_be_used_are_said_and_usable_ones_are_not():
    plugin_folders.write(".cupcake/policies/opencode/p.rego", "package")
    done = ok("connect", "opencode", "--policy")
    assert "p.rego:1" in done.err
    assert "`anyplug policy validate`" in done.err
    shutil.rmtree(".cupcake")
    ok("policy", "init")
    assert ok("connect", "opencode", "--policy").err == ""


def test_who_asks_by_a_hook_is_told_so():
    assert "a hook that runs `anyplug eval --harness claude`" in fails(2, "connect", "claude", "--policy").err


@pytest.mark.parametrize("words", [("claude", "--policy"), ("--policy",), ("opencode", "--global")])
def test_what_it_does_not_go_with_is_a_usage_error(words):
    fails(2, "connect", *words)


def test_doctor_names_a_copy_that_opencode_does_not_see(everywhere):
    ok("connect", "opencode", "--policy")
    misplaced = os.path.join(".opencode", "plugin", "cupcake", "anyplug-policy.js")
    os.makedirs(os.path.dirname(misplaced))
    shutil.move(IN_A_PROJECT, misplaced)
    faults = ok("doctor", "--json").json["faults"]
    assert [fault["cure"] for fault in faults if "has no effect" in fault["what"]] == [
        "remove it, then run `anyplug connect opencode --policy`"
    ]
