"""What `policy validate` says of policies and rulebooks that can be used, and probably are not what was meant."""

import json

import pytest

import command_line
import plugin_folders
from policy_projects import NO_VERIFY, bash, decision, policy, project
from rows import each_row

FINE = '{"rule_id": "R", "severity": "HIGH", "reason": "r"}'


def said(body=NO_VERIFY, *, rulebook="", harness="opencode", **routing):
    """Validate one policy; give what is said of it."""
    project({"p": policy(f"{harness}.p", body, **routing)}, rulebook=rulebook, harness=harness)
    return command_line.run("policy", "validate").out


@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        (f"deny contains {FINE.replace('HIGH', 'HIHG')}\n", 8, "warning: `HIHG` is not a severity"),
        (
            'deny contains {"rule_id": "R", "severity": "HIGH", "reason": 7}\n',
            8,
            "error: `reason` in a decision of `deny` must be a string",
        ),
        ('deny contains "no"\n', 8, "warning: a decision of `deny` is not an object"),
        ("add_context contains 7\n", 8, "error: `add_context` must contain strings"),
        (
            'modify contains {"rule_id": "M", "reason": "r", "updated_input": "x"}\n',
            8,
            "error: `updated_input` in a decision of `modify` must be an object",
        ),
        (f"denny contains {FINE}\n", 8, "warning: `denny` is not a verb"),
        (f"denny contains {FINE}\n", 8, "did you mean `deny`?"),
        (decision("deny", when='input.tool_name == "bash"'), 8, "warning: policies know the tool `bash` as `Bash`"),
        (decision("deny", when='input.toolname == "Bash"'), 8, "did you mean `tool_name`?"),
        (decision("deny", when='input.command == "ls"'), 8, "write input.tool_input.command"),
        (decision("deny", when='input.signals.branch == "main"'), 8, "warning: it reads the signal `branch`"),
    ],
)
def test_a_slip_in_a_rule_is_named_with_its_line(body, line, says):
    (found,) = [row for row in said(body).splitlines() if says in row]
    assert f"p.rego:{line}: " in found


def test_what_is_meant_is_no_slip():
    body = f"""
helper contains {FINE}
deny contains each if {{ some each in helper; input.tool_name == "Bash"; input.prompt != input.anything_else }}
add_context contains sprintf("%v", [input.signals.branch])
deny contains each if {{ each := object.union({{"reason": "r"}}, {FINE}) }}
"""
    done = said(body, tools=["Bash", "mcp__*"], signals=["branch"], rulebook="signals: {branch: git branch}")
    assert done.startswith("1 policy is valid.")


def test_a_slip_in_the_routing_is_named():
    assert "`bash` as `Bash`, so no event is decided because of it" in said(tools=["bash"])
    text = policy("opencode.p", NO_VERIFY, tools=["Bash"]).replace("required_tools", "required_tool")
    plugin_folders.write(".cupcake/policies/opencode/p.rego", text)
    done = command_line.ok("policy", "validate").out
    assert "`required_tool` is unknown in routing; did you mean `required_tools`?" in done
    assert "opencode sends none of Stop" in said(events=["Stop"])
    assert "sends none" not in said(events=["Stop", "PreToolUse"])


def test_plugins_call_their_tools_what_they_like():
    assert said(decision("deny"), tools=["bash"], harness="anyplug").startswith("1 policy is valid.")


def test_metadata_that_is_no_yaml_is_reported_with_its_own_line():
    text = policy("opencode.p", NO_VERIFY, tools=["Bash"])
    for broken in (text.replace("#     required_tools", "#    required_tools"), text.replace("_tools", "_events")):
        project({"p": broken})
        assert "p.rego:6: error: yaml: " in command_line.run("policy", "validate").out


@each_row(
    ("rulebook", "line", "says"),
    [
        ("signals:\n\tbranch: x\n", 2, "error: found character"),
        ("- a\n", 1, "error: it must be a mapping"),
        ("builtins: {}\nsignals:\n  one: x\n  two: {cmd: x}\n", 4, "error: the signal `two` must have a command"),
        (
            "signals:\n  one:\n    command: x\n    timeout_seconds: 99\n",
            4,
            "error: timeout_seconds of the signal `one`",
        ),
        ("signals:\n  one: {command: x, timeout: 9}\n", 2, "warning: `timeout` of the signal `one` is unknown"),
        ("\nsignal: {}\n", 2, "warning: `signal` is unknown here; did you mean `signals`?"),
        ("builtins:\n  git_no_verify: {enabled: true}\n", 2, "warning: there is no builtin `git_no_verify`"),
        ("builtins:\n  git_block_noverify: {enabled: true}\n", 2, "did you mean `git_block_no_verify`?"),
        ("builtins:\n  protected_paths: {paths: [x]}\n", 2, "warning: the builtin `protected_paths` is off"),
        (
            "builtins:\n  protected_paths:\n    enabled: true\n    paths: [x]\n    mesage: y\n",
            5,
            "warning: `mesage` of the builtin `protected_paths` is unknown; did you mean `message`?",
        ),
        ("builtins:\n  protected_paths:\n    enabled: true\n    paths: x\n", 4, "error: `paths` of the builtin"),
        ("builtins:\n  protected_paths:\n    enabled: yes please\n", 3, "error: `enabled` of the builtin"),
        (
            "builtins:\n  always_inject_on_prompt:\n    enabled: true\n    context: [{comand: x}]\n",
            4,
            "error: each entry of `context`",
        ),
        ("builtins: {}\nsignals: {}\nbuiltins: {}\n", 3, "error: the key `builtins` occurs twice"),
        ("signals: {one: x, one: y}\n", 1, "error: the key `one` occurs twice"),
    ],
)
def test_a_slip_in_the_rulebook_is_named_with_its_line(rulebook, line, says):
    (found,) = [row for row in said(rulebook=rulebook).splitlines() if says in row]
    assert found.startswith(f".cupcake/rulebook.yml:{line}: ")


def test_a_key_that_is_merged_in_may_be_given_anew():
    book = "builtins:\n  protected_paths: &one {enabled: true, paths: [a]}\n  system_protection: {<<: *one, paths: []}"
    assert "error" not in said(rulebook=book)


def test_a_builtin_that_the_project_brings_for_another_agent_is_no_slip():
    plugin_folders.write(".cupcake/policies/claude/builtins/mine.rego", policy("claude.mine", NO_VERIFY))
    assert "warning" not in said(rulebook="builtins: {mine: {enabled: true}}").replace("policies/claude", "")


def test_a_signal_that_cannot_be_executed_is_named():
    plugin_folders.write(".cupcake/signals/branch.sh", "#!/bin/sh\n")
    assert ".cupcake/signals/branch.sh:1: warning: it is not executable" in said()


def test_a_file_that_cannot_be_read_is_one_error_and_no_more():
    project({"p": policy("opencode.p", NO_VERIFY)})
    plugin_folders.write(".cupcake/policies/opencode/q.rego", b"\xff\xfe")
    remarks = command_line.run("policy", "validate", "--json").json["remarks"]
    assert [(remark["file"], remark["message"]) for remark in remarks] == [
        (".cupcake/policies/opencode/q.rego", "it cannot be read: it is not UTF-8")
    ]


def test_explain_says_which_signals_had_no_answer_and_what_is_wrong_with_those_given():
    body = decision("deny", when='input.signals.branch == "main"')
    project({"p": policy("opencode.p", body, signals=["branch"])}, rulebook="signals: {branch: exit 1}")
    event = json.dumps(bash("ls"))
    done = command_line.ok("policy", "explain", event)
    assert "have no answer: branch; --signals JSON provides them" in done.err
    assert command_line.ok("policy", "explain", event, "--signals", '{"branch": "main"}').err == ""
    for wrong in ("[]", "main", "{"):
        assert (
            "--signals must be a JSON object"
            in command_line.fails(2, "policy", "explain", event, "--signals", wrong).err
        )


def test_explain_names_self_protection_and_the_policies_that_were_asked_beside_it():
    project({"p": policy("opencode.p", decision("ask"))})
    event = json.dumps({"tool": "bash", "args": {"command": "rm -r .cupcake"}})
    done = command_line.ok("policy", "explain", event).out
    assert "ANYPLUG-SELF-PROTECTION" in done
    assert "policies that decided:\n  .cupcake/policies/opencode/p.rego" in done


@pytest.mark.parametrize("call", ['regex.match("(?<=a)b", "ab")', 'regex.replace("x", `[`, "") == ""'])
def test_a_pattern_that_is_none_is_an_error_and_explained(call):
    (found,) = [row for row in said(decision("deny", when=call)).splitlines() if "bad_pattern" in row]
    assert "p.rego:8: error: " in found
    done = command_line.ok("policy", "explain", '{"tool": "bash"}').out
    assert "calls that failed and have no value:\n  .cupcake/policies/opencode/p.rego:8: " in done


def test_a_verb_that_is_an_object_is_named_and_its_finding_has_a_place():
    assert "p.rego:8: warning: this makes `deny` an object" in said('deny[reason] if { reason := "no" }\n')
    assert "no_decision" not in command_line.ok("policy", "validate").out
    done = command_line.ok("policy", "explain", '{"tool": "bash"}').out
    assert "  .cupcake/policies/opencode/p.rego:8: deny P (HIGH)" in done


def test_explain_shows_what_policies_print():
    said(decision("deny", when='print("looked at", input.tool_name, input.nothing)'))
    done = command_line.ok("policy", "explain", '{"tool": "bash"}').out
    assert "printed:\n  looked at Bash <undefined>\n" in done
    assert command_line.ok("policy", "explain", '{"tool": "bash"}', "--json").json["printed"] == [
        "looked at Bash <undefined>"
    ]


def test_what_is_no_event_or_no_policy_is_said_with_the_cure_that_helps():
    project({"p": policy("opencode.p", NO_VERIFY)})
    event = '{"tool_name": "Bash", "tool_input": {}}'
    assert "`--harness claude` takes events of Claude Code" in command_line.fails(2, "policy", "explain", event).err
    plugin_folders.write("./candidate.rego", "package")
    done = command_line.fails(1, "policy", "replay", "candidate.rego")
    assert "the candidate is invalid:\n  | candidate.rego:1" in done.err
    assert "validate" not in done.err


@pytest.mark.parametrize(
    "when",
    [
        "count(5) > 1",
        "startswith(input.tool_name, 5)",
        '"a" + 1 == 2',
        "regex.match(5, input.tool_name)",
        'lower(["x"]) == "x"',
    ],
)
def test_an_operand_of_the_wrong_type_is_named(when):
    project({"p": policy("opencode.p", decision("deny", when=when))})
    assert "(type_error)" in command_line.ok("policy", "validate").out


def test_operands_of_the_right_type_are_not_named():
    project(
        {
            "p": policy(
                "opencode.p", decision("deny", when='count([1]) > 1; 1 + 2 == 3; startswith("a", "b"); {1} - {2}')
            )
        }
    )
    assert "type_error" not in command_line.ok("policy", "validate").out


def test_actions_that_are_not_run_are_named():
    project({"p": policy("opencode.p", decision("deny"))}, rulebook="actions: {by_rule_id: {R1: [{command: x}]}}")
    assert "`actions` do not run here" in command_line.ok("policy", "validate").out


@pytest.mark.parametrize("command", ["./scripts/nope.sh", "nosuchprogram --x", ""])
def test_a_signal_whose_program_is_missing_is_named(command):
    body = policy("opencode.p", decision("deny", when='input.signals.s == "x"'), signals=["s"])
    project({"p": body}, rulebook=f'signals: {{s: "{command}"}}')
    assert "(signal_cannot_run)" in command_line.ok("policy", "validate").out


def test_a_modify_of_an_unknown_event_is_not_called_too_late():
    body = 'modify contains {"rule_id": "M", "reason": "m", "updated_input": {"command": "true"}}\n'
    assert "too_late" in said(body, events=["PostToolUse"])
    misspelled = said(body, events=["PreToolUs"])
    assert "too_late" not in misspelled
    assert "no agent sends PreToolUs, so no event is decided because of it" in misspelled
