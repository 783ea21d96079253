"""`anyplug policy`: for people who write policies."""

import json
import os

import pytest

import command_line
import plugin_folders
from anyplug.frontends.cli.policy_trials import EVENTS
from policy_projects import NO_VERIFY, bash, decision, policy, project

EVENT = '{"tool": "bash", "args": {"command": "git commit --no-verify"}}'


@pytest.mark.parametrize("harness", ["opencode", "claude", "anyplug"])
def test_what_init_writes_can_be_used_as_it_is(harness):
    command_line.ok("policy", "init", "--harness", harness)
    done = command_line.ok("policy", "test", "--json").json
    assert (done["passed"], done["failed"]) == (4, 0)
    assert command_line.ok("policy", "validate", "--json").json["remarks"] == []
    (row,) = command_line.ok("policy", "inspect", "--json").json
    assert (row["harness"], row["verbs"]) == (harness, ["deny", "ask"])


@pytest.mark.parametrize("harness", ["opencode", "anyplug"])
def test_what_init_writes_refuses_publishing_however_it_is_written(harness):
    command_line.ok("policy", "init", "--harness", harness)
    commands = ["'npm' publish", "n\\pm publish", 'npm pub"lish"', "npm --foo publish", "cd x && /usr/bin/npm publish"]
    commands += ["x=publish; npm $x"] if harness == "opencode" else []
    examples = [{"event": {"tool": "bash", "args": {"command": each}}, "decision": "deny"} for each in commands]
    plugin_folders.write(f".cupcake/policies/{harness}/more.test.json", json.dumps(examples))
    assert command_line.ok("policy", "test", "--json").json["failed"] == 0


@pytest.mark.parametrize(
    ("connected", "harness", "said"),
    [
        ([], "opencode", "this is for OpenCode; `anyplug policy init --harness claude"),
        ([["claude", "--policy"]], "claude", "this is for Claude Code and Codex, because it is connected; "),
        ([["codex", "--policy", "--global"]], "claude", "because it is connected"),
        ([["opencode", "--policy"]], "opencode", "this is for OpenCode, because it is connected"),
        ([["claude", "--yes"]], "claude", "because it is connected"),
        ([["claude", "--project", "--yes"], ["claude", "--policy"]], "claude", "because it is connected"),
        ([["claude", "--policy"], ["opencode", "--yes"]], "opencode", "this is for OpenCode; "),
    ],
)
def test_init_is_for_the_agent_that_is_connected(connected, harness, said):
    for words in connected:
        command_line.ok("connect", *words)
    for words in ([], ["--global"]):
        err = command_line.ok("policy", "init", *words).err
        assert said in err
    assert os.listdir(".cupcake/policies") == [harness]
    assert command_line.ok("policy", "init", ".cupcake", "--json").json["harness"] == harness
    assert "this is for" not in command_line.ok("policy", "init", "other", "--harness", harness).err


@pytest.mark.parametrize("scope", [[], ["--global"]])
def test_init_says_where_the_policy_is_in_force_already(scope):
    init = ["policy", "init", "--harness", "claude", *scope]
    assert "puts it into force" in command_line.ok(*init).err
    command_line.ok("connect", "claude", "--policy", *scope)
    err = command_line.ok(*init).err
    assert "it is in force for the tools of Claude Code\n" in err
    assert "puts it into force" not in err
    assert "puts it into force" in command_line.ok("policy", "init", "--harness", "opencode", *scope).err


def test_init_leaves_alone_what_is_there():
    project({"publishing": "mine"})
    assert "publishing.rego" not in command_line.ok("policy", "init").out
    assert command_line.read(".cupcake/policies/opencode/publishing.rego") == "mine"


def test_validate_names_file_and_line_of_everything():
    body = 'deny contains {"reason": "x"} if input.tool\nask := true\n'
    project({"p": policy("opencode.p", body, events=["PreTolUse"], signals=["gone"]), "q": policy("q", "x := 1\n")})
    done = command_line.run("policy", "validate")
    assert done.code == 1
    for said in (
        "p.rego:9: error: a decision of `deny` lacks severity and rule_id (malformed_decision)",
        "p.rego:10: warning: `ask` is not a set",
        "p.rego:1: warning: no agent sends PreTolUse",
        "p.rego:1: error: the rulebook has no signal `gone`",
        "q.rego:6: warning: it has no rule named after a verb",
    ):
        assert said in done.out
    project({"p": "package cupcake.policies.p\nimport rego.v1\ndeny contains x if { y }\n"})
    done = command_line.run("policy", "validate", "--json")
    assert (done.code, done.json["valid"]) == (1, False)
    assert done.json["remarks"][0]["file"].endswith("p.rego")


def test_without_policies_every_action_says_what_to_do():
    for action in ("validate", "inspect", "test"):
        assert "policy init" in command_line.fails(1, "policy", action).err
    project()
    command_line.fails(2, "policy", "test")
    command_line.fails(2, "policy", "explain")
    command_line.fails(2, "policy", "replay")
    command_line.fails(2, "policy", "explain", "{")
    command_line.fails(2, "policy", "explain", "[]")
    wrong = command_line.fails(2, "policy", "explain", '{"tool_name": "Bash"}', "--harness", "opencode").err
    assert "takes events of Claude Code" in wrong
    for harness, example in EVENTS.items():
        command_line.ok("policy", "init", "--harness", harness)
        hint = command_line.fails(2, "policy", "explain", '{"x": 1}', "--harness", harness).err
        assert f"write it like `{example}`" in hint
        command_line.ok("policy", "explain", example, "--harness", harness)
    command_line.fails(2, "policy", "replay", "x.rego", "--since", "yesterday")


def test_examples_that_are_not_as_expected_are_shown():
    project({"p": policy("opencode.p", NO_VERIFY)})
    examples = [
        {"name": "right", "event": json.loads(EVENT), "decision": "deny", "rule": "GIT_NO_VERIFY", "reason": "hooks"},
        {"name": "wrong", "event": json.loads(EVENT), "decision": "allow"},
        {"name": "another reason", "event": json.loads(EVENT), "decision": "deny", "reason": "tests"},
        {"name": "no event", "event": {"hook_event_name": "x"}, "decision": "deny"},
    ]
    plugin_folders.write(".cupcake/policies/opencode/p.test.json", json.dumps(examples))
    done = command_line.run("policy", "test")
    assert done.code == 1
    assert "p.test.json: wrong: expected allow, got deny: hooks must run" in done.out
    assert "another reason: the reason is: hooks must run" in done.out
    assert "no event: hook_event_name must be one of" in done.out
    assert "1 of 4 examples as expected." in done.out


def test_examples_say_what_signals_answer():
    body = decision("deny", when='input.signals.branch == "main"')
    project({"p": policy("opencode.p", body, signals=["branch"])}, rulebook="signals: {branch: exit 1}")
    cases = [("main", "deny"), ("feature", "allow")]
    plugin_folders.write(
        ".cupcake/p.test.yml",
        "".join(
            f"- {{event: {{tool: bash}}, signals: {{branch: {name}}}, decision: {word}}}\n" for name, word in cases
        ),
    )
    assert "2 of 2" in command_line.ok("policy", "test").out


@pytest.mark.parametrize(
    "text", ["{}", "- 1", "- {event: {}}", "- {event: {}, decision: no}", "- {event: {}, x: 1}", "["]
)
def test_examples_that_cannot_be_read_are_a_fault(text):
    project({"p": policy("opencode.p", NO_VERIFY)})
    plugin_folders.write(".cupcake/p.test.yml", text)
    assert "p.test.yml" in command_line.fails(1, "policy", "test").err


def test_all_faulty_examples_are_named_with_their_lines():
    project({"p": policy("opencode.p", NO_VERIFY)})
    text = "# mine\n- event: {}\n  decision: no\n- {event: {}, decision: deny}\n- event: {}\n  decison: deny\n"
    plugin_folders.write(".cupcake/p.test.yml", text)
    said = command_line.fails(1, "policy", "test").err
    assert "p.test.yml:2: example 1: decision must be one of allow, " in said
    assert "p.test.yml:5: example 3: `decison` is unknown here; did you mean `decision`?" in said
    assert "updated_input" in said


def test_explain_says_what_eval_says_of_an_event_that_lacks_something():
    project({"p": policy("opencode.p", NO_VERIFY)})
    done = command_line.ok("policy", "explain", EVENT)
    refused = command_line.run("eval", "--harness", "opencode", stdin=EVENT)
    assert (refused.code, refused.out) == (1, "")
    assert "hook_event_name must be one of" in done.err
    assert refused.err.splitlines()[0] in done.err
    whole = json.dumps(bash("git commit --no-verify"))
    assert command_line.ok("policy", "explain", whole).err == ""
    shown = command_line.ok("policy", "explain", "-", "--json", stdin=EVENT).json
    assert "hook_event_name" in shown["eval_refuses"]


@pytest.mark.parametrize("event", ["{", "[]", '"x"', '{"tool": 1}', '{"tool": "bash", "session_id": 1}'])
def test_explain_takes_nothing_that_is_no_event(event):
    project({"p": policy("opencode.p", NO_VERIFY)})
    command_line.fails(2, "policy", "explain", "-", stdin=event)
    assert command_line.run("eval", "--harness", "opencode", stdin=event).code == 1


def test_explain_says_when_what_was_accepted_decides_otherwise_than_the_files():
    project({"p": policy("opencode.p", NO_VERIFY)})
    event = json.dumps(bash("git commit --no-verify"))
    assert "in force now" not in command_line.ok("policy", "explain", event).err
    project({"p": policy("opencode.p", decision("deny", when="false"))}, trust=False)
    done = command_line.ok("policy", "explain", event)
    assert done.out.startswith("allow")
    assert "in force now: deny: hooks must run" in done.err
    assert "`anyplug policy trust` accepts these files" in done.err
    shown = command_line.ok("policy", "explain", event, "--json").json
    assert (shown["decision"], shown["in_force"]["decision"]) == ("allow", "deny")
    command_line.ok("policy", "trust", "--yes")
    assert "in force now" not in command_line.ok("policy", "explain", event).err


def test_explain_says_when_a_change_of_calls_is_not_accepted_yet():
    project({"p": policy("opencode.p", decision("deny", when="false"))})
    body = 'modify contains {"rule_id": "M", "reason": "m", "severity": "LOW", "updated_input": {"command": "true"}}\n'
    project({"p": policy("opencode.p", body)}, trust=False)
    done = command_line.ok("policy", "explain", json.dumps(bash("ls")))
    assert done.out.startswith("modify")
    assert "in force now: deny: " in done.err


def test_explain_says_for_whom_it_decided_where_several_agents_have_policies():
    command_line.ok("policy", "init", "--harness", "opencode")
    assert "decided as an event of" not in command_line.ok("policy", "explain", EVENT).err
    command_line.ok("policy", "init", "--harness", "anyplug")
    said = "decided as an event of opencode; `--harness anyplug` uses the policies of anyplug\n"
    assert said in command_line.ok("policy", "explain", EVENT).err
    assert "decided as an event of" not in command_line.ok("policy", "explain", EVENT, "--harness", "opencode").err


def test_explain_shows_which_rules_held_and_who_was_not_asked():
    project(
        {
            "p": policy("opencode.p", NO_VERIFY, tools=["Bash"]),
            "q": policy("opencode.q", decision("deny", when='input.tool_name == "Edit"'), tools=["Edit"]),
            "r": policy("opencode.r", decision("ask"), events=["PostToolUse"]),
        }
    )
    done = command_line.ok("policy", "explain", EVENT).out
    assert done.startswith("deny: ")
    assert ".cupcake/policies/opencode/p.rego:10: deny GIT_NO_VERIFY (HIGH)" in done
    assert "q.rego: it asks for the tools Edit" in done
    assert "r.rego: it asks for PostToolUse; it was evaluated with those that the event concerns" in done
    shown = command_line.ok("policy", "explain", "-", "--json", stdin=EVENT).json
    assert shown["fired"]
    assert shown["input"]["tool_name"] == "Bash"
    assert shown["policies"][1] == {
        "policy": "cupcake.policies.opencode.q", "file": ".cupcake/policies/opencode/q.rego", "asked": False,
        "why": "it asks for the tools Edit",
    }  # fmt: skip


def test_replay_lists_what_a_candidate_would_decide_otherwise(tmp_path):
    project({"p": policy("opencode.p", NO_VERIFY, tools=["Bash"])})
    for command in ("git commit --no-verify", "git push --force", "ls"):
        command_line.run("eval", "--harness", "opencode", stdin=json.dumps(bash(command)))
    elsewhere = project({"p": policy("opencode.p", NO_VERIFY)}, folder=str(tmp_path / "elsewhere"))
    command_line.run("eval", "--harness", "opencode", stdin=json.dumps(bash("ls", cwd=elsewhere)))
    candidate = policy("opencode.p", NO_VERIFY.replace("--no-verify", "--force"), tools=["Bash"])
    path = plugin_folders.write(os.path.abspath("candidate/p.rego"), candidate)
    done = command_line.ok("policy", "replay", path, "--since", "1d", "--json").json
    assert (done["events"], done["elsewhere"]) == (3, 1)
    assert [(one["about"], one["before"], one["after"]) for one in done["changes"]] == [
        ("git commit --no-verify", "deny", "allow"),
        ("git push --force", "allow", "deny"),
    ]
    assert "2 of 3 recorded calls would be decided differently." in command_line.ok("policy", "replay", path).out
    beside = plugin_folders.write(
        os.path.abspath("candidate/q.rego"), policy("opencode.q", decision("ask"), tools=["Bash"])
    )
    changes = command_line.ok("policy", "replay", beside, "--json").json["changes"]
    assert [one["after"] for one in changes] == ["ask", "ask"]
    broken = plugin_folders.write(os.path.abspath("candidate/r.rego"), "package")
    assert "r.rego:1" in command_line.fails(1, "policy", "replay", broken).err


USES = """
import data.cupcake.helpers.acme
deny contains {"rule_id": "H", "reason": "by the helper", "severity": "HIGH"} if acme.is_bad
"""
HELPER = """package cupcake.helpers.acme
import rego.v1
is_bad if contains(input.tool_input.command, "publish")
"""


def _with_helper(helper: str = HELPER, rulebook: str = "builtins: {git_block_no_verify: {enabled: true}}", **more):
    more.setdefault("trust", False)
    return project(
        {"p": policy("opencode.p", USES, tools=["Bash"])}, rulebook=rulebook, **{"helpers/acme.rego": helper}, **more
    )


def _replayed(*arguments: str) -> list[tuple[str, str, str]]:
    changes = command_line.ok("policy", "replay", *arguments, "--json").json["changes"]
    return [(one["about"], one["before"], one["after"]) for one in changes]


def test_replay_tries_changed_helpers_and_rulebooks():
    _with_helper(trust=True)
    for command in ("npm publish", "git commit --no-verify -m publish", "ls"):
        command_line.run("eval", "--harness", "opencode", stdin=json.dumps(bash(command)))
    assert _replayed(".cupcake") == _replayed(".cupcake/policies/opencode/p.rego") == []
    assert "it is the same as what you accepted" in command_line.ok("policy", "replay", ".cupcake").err
    weaker = HELPER.replace("publish", "nothing")
    lost = ("npm publish", "deny", "allow")
    assert lost in _replayed(plugin_folders.write(os.path.abspath("candidate/acme.rego"), weaker))
    _with_helper(weaker)
    for given in (".cupcake", ".", ".cupcake/helpers/acme.rego", ".cupcake/policies/opencode/p.rego"):
        assert lost in _replayed(given)
    assert "helpers/acme.rego" in command_line.ok("policy", "replay", ".cupcake").err
    _with_helper(rulebook="builtins: {}")
    assert _replayed(".cupcake")[0][1:] == ("deny", "deny")
    assert "rulebook.yml" in command_line.ok("policy", "replay", ".cupcake/policies/opencode/p.rego").err
    _with_helper()
    other = _with_helper(weaker, folder="other")
    assert _replayed(other)[0] == lost


def test_replay_refuses_a_file_that_no_policy_would_use():
    _with_helper(trust=True)
    stray = plugin_folders.write(os.path.abspath("stray.rego"), "package acme.rules\nimport rego.v1\nx := 1\n")
    for given in (stray, ".cupcake/rulebook.yml"):
        assert "anyplug policy replay FOLDER" in command_line.fails(2, "policy", "replay", given).err


def test_examples_of_another_project_are_tried_on_its_own_policies(tmp_path, monkeypatch):
    project({"p": policy("opencode.p", NO_VERIFY)})
    other = project({"p": policy("claude.p", decision("ask"))}, folder="other", harness="claude")
    event = {"tool_name": "Bash", "tool_input": {"command": "git commit --no-verify"}}
    path = os.path.join(other, ".cupcake/policies/claude/p.test.json")
    plugin_folders.write(path, json.dumps([{"event": event, "decision": "ask"}]))
    for given in (other, os.path.join(other, ".cupcake/policies"), path):
        assert "1 of 1" in command_line.ok("policy", "test", given).out
    monkeypatch.chdir(tmp_path)
    assert "1 of 1" in command_line.ok("policy", "test", other).out


def test_strict_validation_fails_on_warnings():
    command_line.ok("policy", "init")
    command_line.ok("policy", "validate", "--strict")
    project({"p": policy("opencode.p", NO_VERIFY, tools=["bash"])}, evaluate=None)
    command_line.ok("policy", "validate")
    assert "1 warning" in command_line.run("policy", "validate", "--strict").err
    assert command_line.run("policy", "validate", "--strict", "--json").code == 1


def test_examples_give_signals_only_to_policies_that_require_them():
    body = decision("deny", when='input.signals.freeze == "on"')
    rulebook = "signals: {freeze: echo on}"
    example = "- {event: {tool: bash}, signals: {freeze: on}, decision: deny}\n"
    project({"p": policy("opencode.p", body)}, rulebook=rulebook, **{"p.test.yml": example})
    assert "no policy has the signal `freeze` in required_signals" in command_line.run("policy", "test").out
    event = json.dumps(bash("ls"))
    done = command_line.ok("policy", "explain", event, "--signals", '{"freeze": "on"}')
    assert done.out.startswith("allow")
    assert "required_signals" in done.err
    project({"p": policy("opencode.p", body, signals=["freeze"])}, rulebook=rulebook)
    command_line.ok("policy", "test")
    plugin_folders.write(".cupcake/p.test.yml", example.replace("freeze", "freez"))
    assert "no signal `freez`; did you mean `freeze`?" in command_line.run("policy", "test").out


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"tool": "bash", "command": "git commit --no-verify"}, "`command` belongs in `args`"),
        ({"tool": "bash", "arg": {"command": "x"}}, "events have no `arg`; did you mean `args`?"),
        ({"tool": "bash", "tool_input": {"command": "x"}}, "write `args` instead of `tool_input`"),
    ],
)
def test_a_misplaced_key_of_an_event_is_named(event, said):
    project({"p": policy("opencode.p", NO_VERIFY)})
    assert said in command_line.ok("policy", "explain", json.dumps(event)).err
    plugin_folders.write(".cupcake/p.test.json", json.dumps([{"event": event, "decision": "allow"}]))
    assert said in command_line.run("policy", "test").out


def test_changed_arguments_are_shown_and_can_be_expected():
    body = 'modify contains {"rule_id": "M", "reason": "m", "severity": "LOW", "updated_input": {"command": "true"}}\n'
    project({"p": policy("opencode.p", body)})
    assert 'changed arguments: {"command":"true"}' in command_line.ok("policy", "explain", json.dumps(bash("ls"))).out
    example = {"event": {"tool": "bash", "args": {"command": "ls"}}, "decision": "modify"}
    for command in ("true", "false"):
        given = json.dumps([{**example, "updated_input": {"command": command}}])
        plugin_folders.write(".cupcake/p.test.json", given)
        assert command_line.run("policy", "test").code == (command != "true")
