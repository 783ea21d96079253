"""`connect opencode --policy`: the gate for OpenCode's own tools, put where OpenCode looks and taken away again."""

import json
import os
import shutil
import subprocess

import pytest

import plugin_folders
from anyplug.manage.connect import jsonc, policy_hooks
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
    assert "every tool is refused here until this is fixed: there is no .cupcake" in done.err
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
    assert ok("connect", "opencode", "--policy").err == "warning: OpenCode does not seem to be installed here\n"


HOOKS = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}
OTHERS = """{
  // mine
  "model": "opus",
  "hooks": {
    "PreToolUse": [
      {"matcher": "Edit", "hooks": [{"type": "command", "command": "lint"}]}
    ]
  }
}
"""


def decided(command, tool_input):
    """What a hook answers about a shell command, as its agent runs it."""
    event = {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": os.getcwd(), "tool_name": "Bash"}
    given = json.dumps({**event, "tool_input": tool_input})
    done = subprocess.run(["sh", "-c", command], input=given, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "{}").get("hookSpecificOutput", {}).get("permissionDecision", "")


@pytest.mark.parametrize("agent", HOOKS)
def test_hooks_are_added_beside_others_decide_and_go_without_a_trace(agent):
    path = plugin_folders.write(HOOKS[agent], OTHERS)
    ok("policy", "init", "--harness", "claude")
    done = ok("connect", agent, "--policy")
    assert "your policies apply to" in done.out
    assert done.err.endswith(" does not seem to be installed here\n")
    assert done.err.count("\n") == 1
    entries = jsonc.read(read(path))["hooks"]
    assert [entry["matcher"] for entry in entries["PreToolUse"]] == ["Edit", "*"]
    assert set(entries) == {"PreToolUse", "PostToolUse", "UserPromptSubmit"}
    assert "// mine" in read(path)
    assert "already has the hooks" in ok("connect", agent, "--policy").out
    command = entries["PreToolUse"][1]["hooks"][0]["command"]
    assert os.path.isabs(command.split()[0])
    assert decided(command, {"command": "npm publish"}) == (0, "deny")
    assert decided(command, {"command": "git push --force"}) == (0, "deny" if agent == "codex" else "ask")
    assert decided(command, {"command": "ls"}) == (0, "")
    # An agent goes on after any other failure than this one, so every failure must be this one.
    assert decided(command, "no object") == (2, "")
    assert decided(command.replace(command.split()[0], "/nowhere/anyplug"), {"command": "ls"}) == (2, "")
    assert [record["agent"] for record in ok("audit", "--by", "NO-PUBLISHING", "--json").json] == [agent]
    assert policy_hooks.problems(os.getcwd()) == []
    kept = read(path)
    plugin_folders.write(path, kept.replace(command.split()[0], "/nowhere/anyplug"))
    ((broken),) = policy_hooks.problems(os.getcwd())
    assert "runs /nowhere/anyplug, which does not exist" in broken.message
    assert broken.hint == f"`anyplug connect {agent} --policy`"
    plugin_folders.write(path, kept)
    assert "are removed from" in ok("connect", agent, "--policy", "--remove").out
    assert read(path) == OTHERS
    assert "has no hooks of anyplug" in ok("connect", agent, "--policy", "--remove").out


@pytest.mark.parametrize("agent", HOOKS)
def test_a_file_for_hooks_is_made_and_goes_with_them(agent):
    assert "every tool is refused here" in ok("connect", agent, "--policy").err
    assert ok("connect", agent, "--policy", "--remove", "--json").json[0]["change"] == "removed"
    assert not os.path.exists(os.path.dirname(HOOKS[agent]))
    ok("connect", agent, "--policy", "--global")
    own = os.path.join(os.path.expanduser("~"), HOOKS[agent])
    assert json.loads(ok("connect", agent, "--policy", "--print").out) == json.loads(read(own))
    plugin_folders.write(HOOKS[agent], '{"hooks": {"PreToolUse": 1}}')
    assert "is not a list" in fails(1, "connect", agent, "--policy").err


def test_agents_without_a_gate_are_said_to_have_none():
    assert "policies cannot decide about the own tools of 'zed'" in fails(2, "connect", "zed", "--policy").err
    assert "needs an agent" in fails(2, "connect", "--policy").err


@pytest.mark.parametrize("words", [("gemini", "--policy"), ("--policy",), ("opencode", "--global")])
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


def test_an_agent_is_not_taken_for_a_folder():
    done = fails(2, "policy", "init", "claude")
    assert "`anyplug policy init --harness claude`" in done.err
    assert not os.path.exists("claude")
