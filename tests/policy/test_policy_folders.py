"""The person's own policies for all projects: `anyplug policy` sees them as the gates do."""

import json
import os

import pytest

import command_line
import plugin_folders
from policy_projects import GLOBAL_EVALUATE, NO_VERIFY, bash, decision, policy, project

LONG = decision("deny", "too long", when="count(input.tool_input.text) > 9", rule="SHORT")
EVENT = '{"tool": "count", "args": {"text": "0123456789"}}'
COMMIT = '{"tool": "bash", "args": {"command": "git commit --no-verify"}}'


@pytest.fixture(autouse=True)
def _usual_configuration(monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def ours(body=LONG, name="short", *, file="short.rego"):
    """Write a policy of the person for the tools of all plugins; give its path."""
    return plugin_folders.write(os.path.join(os.environ["ANYPLUG_HOME"], "policy", file), policy(name, body))


def for_opencode(body=NO_VERIFY, *, harness="opencode", rulebook=""):
    """Write a policy of the person for all projects; give its path."""
    root = os.path.join(os.environ["HOME"], ".config", "cupcake")
    plugin_folders.write(os.path.join(root, "policies", harness, "system", "evaluate.rego"), GLOBAL_EVALUATE)
    if rulebook:
        plugin_folders.write(os.path.join(root, "rulebook.yml"), rulebook)
    return plugin_folders.write(os.path.join(root, "policies", harness, "mine.rego"), policy("mine", body))


def test_validate_and_inspect_show_everything_that_is_in_force_and_where():
    home, cupcake = ours(), for_opencode(rulebook="builtins: {git_block_no_verify: {enabled: true}}")
    folder = project({"p": policy("opencode.p", NO_VERIFY)})
    places = {
        ("opencode", os.path.join(folder, ".cupcake")): 1,
        ("opencode", os.path.dirname(os.path.dirname(os.path.dirname(cupcake)))): 2,
        ("anyplug", os.path.dirname(home)): 1,
    }
    said = command_line.ok("policy", "validate", "--json").json
    assert {(place["harness"], place["place"]): place["policies"] for place in said["places"]} == places | {
        ("claude", os.path.dirname(os.path.dirname(os.path.dirname(cupcake)))): 1  # the builtin holds for all agents
    }
    shown = command_line.ok("policy", "validate").out
    assert "5 policies are valid." in shown
    for harness, place in places:
        assert f"for {harness}, in {place}\n" in shown
    files = {row["file"] for row in command_line.ok("policy", "inspect", "--json").json}
    assert {home, cupcake, ".cupcake/policies/opencode/p.rego"} <= files
    table = command_line.ok("policy", "inspect").out
    assert f"opencode  {os.path.dirname(os.path.dirname(os.path.dirname(cupcake)))}" in table
    (row,) = command_line.ok("policy", "inspect", "--harness", "anyplug", "--json").json
    assert (row["file"], row["place"]) == (home, os.path.dirname(home))


@pytest.mark.parametrize("write", [ours, for_opencode])
def test_a_broken_policy_of_ones_own_is_reported_with_file_and_line_with_and_without_a_project(write):
    path = write("deny contains x if { y }\n")
    for _ in range(2):
        done = command_line.run("policy", "validate")
        assert done.code == 1
        assert f"{path}:8: error: " in done.out
        assert f"{path}:8" in command_line.fails(1, "policy", "inspect").err
        project({"p": policy("opencode.p", NO_VERIFY)})


def test_every_place_that_is_broken_is_reported():
    paths = [ours("x y"), for_opencode("x y")]
    project({"p": "package"})
    said = command_line.run("policy", "validate").out
    for path in (*paths, ".cupcake/policies/opencode/p.rego"):
        assert path in said


def test_ones_own_policies_can_be_explained_and_tested_where_there_is_no_project():
    path = ours()
    done = command_line.ok("policy", "explain", EVENT).out
    assert done.startswith("deny: too long\n")
    assert f"{path}:8: deny SHORT (HIGH)" in done
    assert "there are no examples" in command_line.fails(2, "policy", "test").err
    examples = plugin_folders.write(
        path.replace(".rego", ".test.json"), json.dumps([{"event": json.loads(EVENT), "decision": "deny"}])
    )
    assert "1 of 1" in command_line.ok("policy", "test").out
    project({"p": policy("opencode.p", NO_VERIFY)})
    plugin_folders.write(".cupcake/p.test.json", json.dumps([{"event": json.loads(COMMIT), "decision": "deny"}] * 2))
    assert "2 of 2" in command_line.ok("policy", "test").out
    assert "1 of 1" in command_line.ok("policy", "test", examples).out
    assert "1 of 1" in command_line.ok("policy", "test", os.path.dirname(examples)).out


def test_whose_events_are_meant_follows_from_what_is_there():
    project({"p": policy("anyplug.p", decision("deny", "ours"))}, harness="anyplug")
    assert "deny: ours" in command_line.ok("policy", "explain", EVENT).out
    command_line.fails(1, "policy", "explain", EVENT, "--harness", "opencode")
    assert command_line.ok("policy", "replay", ".cupcake/policies/anyplug/p.rego", "--json").json["events"] == 0


def test_a_candidate_of_ones_own_is_tried_on_what_happened_in_all_projects(root, tmp_path, monkeypatch):
    path = ours()
    plugin = plugin_folders.cyclop(root, "count")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for text in ("0123456789", "0123"):
            command_line.run("--plugin", plugin, "call", "count", f"text={text}")
    monkeypatch.chdir(tmp_path)
    candidate = plugin_folders.write(str(tmp_path / "candidate.rego"), policy("short", LONG.replace("> 9", "> 3")))
    done = command_line.ok("policy", "replay", candidate, "--json").json
    assert [(os.path.basename(one["cwd"]), one["before"], one["after"]) for one in done["changes"]] == [
        ("one", "allow", "deny"),
        ("two", "allow", "deny"),
    ]
    assert path in command_line.ok("policy", "replay", candidate).err  # in whose place it stood
    moved = policy("short", LONG).replace("cupcake.policies", "cupcake.global.policies")
    for same in (path, plugin_folders.write(str(tmp_path / "moved.rego"), moved)):
        assert command_line.ok("policy", "replay", same, "--json").json["changes"] == []


def test_policies_for_all_projects_decide_alone_where_a_project_has_none(tmp_path, monkeypatch):
    for_opencode()
    (tmp_path / "bare").mkdir()
    monkeypatch.chdir(tmp_path / "bare")
    event = json.dumps(bash("git commit --no-verify"))
    assert command_line.ok("eval", "--harness", "opencode", stdin=event).json["decision"] == "deny"
    assert command_line.run("eval", "--harness", "claude", stdin=event).code == 2
    os.makedirs(".cupcake")
    assert command_line.run("eval", "--harness", "opencode", stdin=event).code == 1  # a project without policies for it


def test_ones_own_no_is_final_and_explained_as_such():
    for_opencode()
    project({"p": policy("opencode.p", NO_VERIFY)})
    done = command_line.ok("policy", "explain", COMMIT).out
    assert ".cupcake/policies/opencode/p.rego: your own policies refused it before" in done


@pytest.mark.parametrize("harness", ["opencode", "claude", "anyplug"])
def test_what_init_writes_for_all_projects_can_be_used_as_it_is(harness):
    written = command_line.ok("policy", "init", "--global", "--harness", harness, "--json").json["written"]
    assert all(os.path.isabs(path) for path in written)
    assert "4 of 4" in command_line.ok("policy", "test").out
    said = command_line.ok("policy", "validate", "--json").json
    assert (said["policies"], said["remarks"]) == (1, [])
    assert "nothing to write" in command_line.ok("policy", "init", "--global", "--harness", harness).err
    command_line.fails(2, "policy", "init", "folder", "--global")
    command_line.fails(1, "policy", "init", "--global", "--global-config", "/nonexistent")


def test_a_place_that_is_not_there_is_named():
    assert "/nonexistent" in command_line.fails(1, "policy", "validate", "--policy-dir", "/nonexistent").err
    project({"p": policy("opencode.p", NO_VERIFY)})
    assert "/nonexistent" in command_line.fails(1, "policy", "validate", "--global-config", "/nonexistent").err
    for folder in (".", ".cupcake", ".cupcake/policies", ".cupcake/policies/opencode"):
        assert "1 policy" in command_line.ok("policy", "validate", "--policy-dir", folder).out
    command_line.fails(2, "policy", "validate", ".cupcake/policies/opencode/p.rego")


def test_policies_that_lie_where_nobody_looks_are_named():
    for_opencode(harness="anyplug")
    project({"p": policy("opencode.p", NO_VERIFY)})
    project({"q": policy("opencode.q", NO_VERIFY)}, harness="open_code")
    plugin_folders.write(".cupcake/policies/r.rego", policy("opencode.r", NO_VERIFY))
    done = command_line.ok("policy", "validate").out
    assert ".cupcake/policies/open_code:1: warning: no agent is called open_code" in done
    assert ".cupcake/policies/r.rego:1: warning: it is not in an agent's folder" in done
    assert "cupcake/policies/anyplug:1: warning: policies for plugins in all projects" in done


def test_an_agent_without_policies_in_this_project_is_a_warning_for_who_has_some_for_all():
    for_opencode(harness="claude")
    project({"p": policy("opencode.p", NO_VERIFY)})
    assert "every event of claude is refused in this project" in command_line.ok("policy", "validate").out
    assert command_line.run("policy", "validate", "--harness", "claude").code == 1
