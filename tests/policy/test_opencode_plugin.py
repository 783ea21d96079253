"""The OpenCode plugin by its protocol: every option, every decision, every way to fail, driven under Node."""

import json
import re
import time
from pathlib import Path

import pytest
from opencode_driver import ALLOW, TOOL_NAMES, Project, after, before, needs_node

pytestmark = needs_node

NOTE = (
    "Note: This operation requires manual approval. To proceed, review the policy and temporarily disable it if "
    "appropriate, then re-run the command."
)
OPEN_WARNING = "[cupcake-plugin] WARN: Allowing operation in fail-open mode."


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def configured(project: Project, **options: object) -> None:
    """Add options to those that name the program."""
    file = project.folder / ".cupcake" / "opencode.json"
    project.configure(**{**json.loads(file.read_text()), **options})


def deciding(project: Project, **decision: object) -> None:
    project.decides(f"print(json.dumps({decision!r}))")


# ------------------------------------------------------------------------------------------------------------ decisions


@pytest.mark.requirement("CUP-06", "CUP-13", "CUP-16")
def test_an_allowed_call_passes_and_the_event_is_as_the_guide_has_it(project: Project) -> None:
    project.decides(ALLOW)
    driven = project.drive(before(command="git status"))
    assert driven.threw == [None]
    assert driven.toasts == []
    assert driven.err == ""
    [given] = project.events
    assert given["words"] == ["eval", "--harness", "opencode"]
    assert given["cwd"] == str(project.folder)
    assert given["event"] == {
        "hook_event_name": "PreToolUse",
        "session_id": "ses_1",
        "cwd": str(project.folder),
        "tool": "bash",
        "args": {"command": "git status"},
        "call_id": "call_1",
    }


@pytest.mark.requirement("CUP-13", "CUP-18", "CUP-19")
@pytest.mark.parametrize("verb", ["deny", "block", "halt"])
@pytest.mark.parametrize("mode", ["closed", "open"])
def test_a_denied_call_is_refused_in_both_fail_modes(project: Project, verb: str, mode: str) -> None:
    deciding(project, decision=verb, reason="hooks must run")
    configured(project, failMode=mode)
    driven = project.drive(before())
    assert driven.threw == ["❌ Policy Violation\n\nhooks must run"]
    [toast] = driven.toasts
    assert toast == {"title": "Policy Violation", "message": "hooks must run", "variant": "error", "duration": 5000}


@pytest.mark.requirement("CUP-19")
def test_a_denial_without_a_reason_has_one(project: Project) -> None:
    deciding(project, decision="deny")
    assert project.drive(before()).threw == ["❌ Policy Violation\n\nOperation blocked by policy"]


def test_rule_and_severity_follow_the_reason(project: Project) -> None:
    deciding(project, decision="deny", reason="no", rule_id="R1", severity="HIGH")
    assert project.drive(before()).threw == ["❌ Policy Violation\n\nno\n(Rule: R1, Severity: HIGH)"]


@pytest.mark.requirement("CUP-29")
def test_ask_ends_with_the_note_where_no_dialog_can_be_opened(project: Project) -> None:
    deciding(project, decision="ask", reason="pushes are seen by others")
    driven = project.drive(before())
    assert driven.threw == [f"⚠️  Approval Required\n\npushes are seen by others\n\n{NOTE}"]
    assert [(toast["title"], toast["variant"]) for toast in driven.toasts] == [("Approval Required", "warning")]


@pytest.mark.parametrize("verb", ["allow", "modify"])
def test_modify_changes_the_arguments_in_place(project: Project, verb: str) -> None:
    deciding(project, decision=verb, updated_input={"command": "git push --dry-run"}, context=["made a dry run"])
    [result] = project.drive(before(command="git push", timeout=5)).results
    assert result["isSameObject"]
    assert result["output"]["args"] == {"command": "git push --dry-run", "timeout": 5}


def test_a_modification_that_is_no_object_denies(project: Project) -> None:
    deciding(project, decision="allow", updated_input="rm -rf /")
    assert project.drive(before()).threw == ["Policy returned arguments that are no object"]
    deciding(project, decision="allow", updated_input={"command": "ls"})
    step = before()
    step["output"]["args"] = ["rm", "-rf", "/"]
    [threw] = project.drive(step).threw
    assert threw == "❌ Policy Violation\n\nThe arguments cannot be modified: they are no object"


@pytest.mark.requirement("CUP-18")
@pytest.mark.parametrize(
    "answer", ["{}", '{"decision": "perhaps"}', '{"decision": "constructor"}', '{"decision": null}']
)
def test_an_unknown_decision_denies_unless_open(project: Project, answer: str) -> None:
    project.decides(f"print({answer!r})")
    driven = project.drive(before())
    [threw] = driven.threw
    assert threw is not None
    assert threw.startswith("Policy returned unknown decision: ")
    assert [toast["title"] for toast in driven.toasts] == ["Unknown Decision"]
    configured(project, failMode="open")
    opened = project.drive(before())
    assert opened.threw == [None]
    assert OPEN_WARNING in opened.err


# ----------------------------------------------------------------------------------------------------------- fail modes

FAILURES = {
    "exit code": ("print('policy.rego:3: no', file=sys.stderr); sys.exit(1)", "Cupcake exited with code 1"),
    "no JSON": ("print('not json')", "Policy evaluation gave no valid JSON: "),
    "nothing": ("pass", "Policy evaluation gave no valid JSON: "),
    "a list": ("print('[1]')", "Policy evaluation gave no valid JSON: "),
    "crash": ("os.kill(os.getpid(), 9)", "Cupcake exited with code SIGKILL"),
    "two answers": ("print('{}{}')", "Policy evaluation gave no valid JSON: "),
    "timeout": (
        "time.sleep(60)",
        "Policy evaluation timed out after 400ms. Consider optimizing policies or increasing timeout.",
    ),
}


@pytest.mark.requirement("CUP-10", "CUP-11", "CUP-21", "CUP-22", "CUP-23")
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_denies_when_closed_and_allows_when_open(project: Project, failure: str) -> None:
    body, message = FAILURES[failure]
    project.decides(body)
    options = {"timeoutMs": 400} if failure == "timeout" else {}
    configured(project, **options)
    closed = project.drive(before())
    [threw] = closed.threw
    assert threw is not None
    assert threw.startswith(message)
    assert [toast["title"] for toast in closed.toasts] == ["Policy Error"]
    configured(project, failMode="open", **options)
    opened = project.drive(before())
    assert opened.threw == [None]
    assert f"[cupcake-plugin] ERROR: {message}" in opened.err
    assert opened.err.endswith(OPEN_WARNING + "\n")


@pytest.mark.requirement("CUP-06")
def test_a_missing_program_denies_when_closed_and_allows_when_open(project: Project) -> None:
    project.configure(cupcakePath="/nowhere/cupcake")
    [threw] = project.drive(before()).threw
    assert threw is not None
    assert threw.startswith("Cannot start /nowhere/cupcake: ")
    assert "cupcakePath" in threw
    configured(project, failMode="open")
    opened = project.drive(before())
    assert opened.threw == [None]
    assert OPEN_WARNING in opened.err


def test_the_guides_cupcake_is_anyplug_where_no_such_program_is_installed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.decides('print(\'{"decision": "deny", "reason": "by anyplug"}\')', name="anyplug")
    project.configure(cupcakePath="cupcake")
    driven = project.drive(before())
    assert "by anyplug" in (driven.threw[0] or "")
    assert "INFO: There is no program 'cupcake' in the PATH, so anyplug decides in its place" in driven.err
    project.decides('print(\'{"decision": "deny", "reason": "by cupcake"}\')', name="cupcake")
    project.configure(cupcakePath="cupcake")
    monkeypatch.setenv("PATH", str(project.folder / "bin"), prepend=":")
    driven = project.drive(before())
    assert "by cupcake" in (driven.threw[0] or "")
    assert "in its place" not in driven.err


@pytest.mark.requirement("CUP-23")
def test_a_failing_program_is_quoted(project: Project) -> None:
    project.decides(FAILURES["exit code"][0])
    assert project.drive(before()).threw == ["Cupcake exited with code 1\n\npolicy.rego:3: no"]


@pytest.mark.requirement("CUP-22")
def test_a_parse_error_carries_the_raw_output_cut_at_2000_characters(project: Project) -> None:
    project.decides("print('é' * 5000)")
    [threw] = project.drive(before()).threw
    assert threw is not None
    assert threw.endswith("\n\nRaw output:\n" + "é" * 2000)


@pytest.mark.requirement("CUP-09")
def test_what_the_program_started_ends_with_it_at_the_timeout(project: Project, tmp_path: Path) -> None:
    done = tmp_path / "done"
    project.decides(f"import subprocess; subprocess.run(['sh', '-c', 'sleep 1.5; touch {done}'])")
    configured(project, timeoutMs=500)
    project.drive(before())
    until = time.monotonic() + 2
    while time.monotonic() < until:
        assert not done.exists()
        time.sleep(0.1)


def test_a_program_that_does_not_read_its_event_may_decide(project: Project) -> None:
    program = project.decides(ALLOW)
    Path(program).write_text('#!/bin/sh\nexec 0<&-\necho \'{"decision": "allow"}\'\n')
    assert project.drive(before(content="x" * 300_000)).threw == [None]


# -------------------------------------------------------------------------------------------------------------- options


@pytest.mark.requirement("CUP-05")
def test_a_disabled_plugin_has_no_hooks(project: Project) -> None:
    project.configure(enabled=False)
    assert project.drive().hooks == [[]]


@pytest.mark.requirement("CUP-07")
def test_the_harness_is_passed_on(project: Project) -> None:
    project.decides(ALLOW)
    configured(project, harness="claude")
    project.drive(before())
    assert project.events[0]["words"] == ["eval", "--harness", "claude"]


@pytest.mark.requirement("CUP-24")
def test_debug_says_what_the_guide_shows(project: Project) -> None:
    project.decides(ALLOW)
    configured(project, logLevel="debug")
    assert project.drive(before(command="git status")).err == (
        "[cupcake-plugin] DEBUG: Evaluating PreToolUse event\n"
        '[cupcake-plugin] DEBUG: Tool: Bash, Args: {"command": "git status"}\n'
        '[cupcake-plugin] DEBUG: Response: {"decision": "allow"}\n'
    )


def test_debug_also_says_what_the_program_said(project: Project) -> None:
    project.decides("print('one policy is odd', file=sys.stderr); " + ALLOW)
    configured(project, logLevel="debug")
    assert "[cupcake-plugin] DEBUG: one policy is odd\n" in project.drive(before()).err


@pytest.mark.requirement("CUP-08")
def test_a_higher_log_level_hides_the_lower_ones(project: Project) -> None:
    project.decides("sys.exit(1)")
    configured(project, failMode="open", logLevel="error")
    assert project.drive(before()).err == "[cupcake-plugin] ERROR: Cupcake exited with code 1\n"


@pytest.mark.requirement("CUP-15")
def test_tool_names_are_normalised_and_unknown_ones_stay(project: Project) -> None:
    shown = {**TOOL_NAMES, "task": "Task", "websearch": "websearch", "x": "x"}
    project.decides(ALLOW)
    configured(project, logLevel="debug")
    said = project.drive(*(before(tool) for tool in shown)).err
    assert re.findall(r"Tool: (\w+), Args", said) == list(shown.values())
    assert [given["event"]["tool"] for given in project.events] == list(shown)


def test_toasts_can_be_switched_off_and_timed(project: Project) -> None:
    deciding(project, decision="deny")
    configured(project, showToasts=False)
    assert project.drive(before()).toasts == []
    configured(project, showToasts=True, toastDurationMs=1234)
    assert [toast["duration"] for toast in project.drive(before()).toasts] == [1234]


def test_a_screen_that_fails_changes_nothing(project: Project) -> None:
    deciding(project, decision="deny", reason="no")
    assert project.drive(before(), brokenScreen=True).threw == ["❌ Policy Violation\n\nno"]


@pytest.mark.requirement("CUP-04", "CUP-30")
def test_without_a_configuration_the_defaults_hold(project: Project) -> None:
    driven = project.drive(before())
    assert driven.threw == ["Cupcake exited with code 9"]  # what the program of the installation does
    assert "WARN" not in driven.err
    assert "DEBUG" not in driven.err


@pytest.mark.requirement("CUP-09", "CUP-30")
def test_without_a_time_of_its_own_an_evaluation_has_five_seconds(project: Project) -> None:
    project.decides("time.sleep(60)")
    [threw] = project.drive(before()).threw
    assert threw is not None
    assert threw.startswith("Policy evaluation timed out after 5000ms.")


@pytest.mark.requirement("CUP-04")
def test_a_configuration_that_is_no_json_is_said_and_the_defaults_hold(project: Project) -> None:
    file = project.folder / ".cupcake" / "opencode.json"
    file.write_text("{")
    driven = project.drive()
    first, second = driven.err.splitlines()
    assert first.startswith(f"[cupcake-plugin] WARN: Failed to load config from {file}: ")
    assert second == "[cupcake-plugin] WARN: Using default configuration"
    assert "tool.execute.before" in driven.hooks[0]


@pytest.mark.requirement("CUP-08")
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("failMode", "opne"),
        ("failMode", None),
        ("enabled", "false"),
        ("timeoutMs", 0),
        ("timeoutMs", "5s"),
        ("logLevel", "loud"),
        ("showToasts", 0),
        ("toastDurationMs", -1),
        ("cacheDecisions", "no"),
    ],
)
def test_a_value_that_means_nothing_is_said_and_fails_closed(project: Project, option: str, value: object) -> None:
    project.decides("sys.exit(3)")
    configured(project, **{option: value})
    driven = project.drive(before())
    assert f"{option} cannot be {json.dumps(value)}" in driven.err
    assert driven.threw == ["Cupcake exited with code 3"]


@pytest.mark.requirement("CUP-04")
def test_the_configuration_is_found_from_a_folder_below(project: Project) -> None:
    project.decides(ALLOW)
    below = project.folder / "src" / "deep"
    below.mkdir(parents=True)
    driven = project.drive(before(), directory=str(below), worktree=str(project.folder))
    assert driven.threw == [None]
    [given] = project.events
    assert given["cwd"] == str(project.folder)
    assert given["event"]["cwd"] == str(below)


# -------------------------------------------------------------------------------------------------- context and results


@pytest.mark.requirement("CUP-20")
def test_context_reaches_the_model_with_the_tools_output(project: Project) -> None:
    project.decides(
        'print(json.dumps({"decision": "allow", "context": ["use the staging branch", "be brief"]}'
        ' if event["hook_event_name"] == "PreToolUse" else {"decision": "allow"}))'
    )
    _, result = project.drive(before(), after({"title": "", "output": "clean", "metadata": {"exit": 0}})).results
    assert result["output"]["output"] == "clean\n\nPolicy context:\nuse the staging branch\nbe brief"


def test_context_of_a_call_that_failed_stands_beside_its_error(project: Project) -> None:
    deciding(project, decision="allow", context=["use the staging branch"])
    part = {"type": "tool", "sessionID": "ses_1", "callID": "call_1", "state": {"status": "error", "error": "boom"}}
    other = {**part, "callID": "call_2"}
    text = {"type": "text", "text": "hello"}
    transform = {
        "hook": "experimental.chat.messages.transform",
        "output": {"messages": [{"info": {}, "parts": [text, part, other]}]},
    }
    *_, result = project.drive(before(), transform).results
    parts = result["output"]["messages"][0]["parts"]
    assert parts[1]["state"]["error"] == "boom\n\nPolicy context:\nuse the staging branch"
    assert parts[2]["state"]["error"] == "boom"


@pytest.mark.requirement("CUP-14", "CUP-17")
@pytest.mark.parametrize(
    ("output", "result"),
    [
        (
            {"title": "t", "output": "hi", "metadata": {"exit": 0}},
            {"success": True, "output": "hi", "exit_code": 0},
        ),
        (
            {"title": "t", "output": "hi", "metadata": {"exit": 2}},
            {"success": False, "output": "hi", "exit_code": 2},
        ),
        ({"title": "t", "output": "text", "metadata": {}}, {"success": True, "output": "text"}),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]},
            {"success": True, "output": "a\nb"},
        ),
        (
            {"content": [{"type": "text", "text": "a"}], "isError": True},
            {"success": False, "output": "a", "error": "a"},
        ),
    ],
)
def test_what_a_tool_gave_is_evaluated(project: Project, output: dict[str, object], result: object) -> None:
    project.decides(ALLOW)
    assert project.drive(after(output)).threw == [None]
    [given] = project.events
    assert given["event"]["hook_event_name"] == "PostToolUse"
    assert given["event"]["args"] == {"command": "git status"}
    assert given["event"]["result"] == result


@pytest.mark.requirement("CUP-14")
def test_a_denied_result_does_not_reach_the_model(project: Project) -> None:
    deciding(project, decision="block", reason="it holds a key")
    assert project.drive(after({"output": "sk-123"})).threw == ["❌ Policy Violation\n\nit holds a key"]


def test_ask_after_a_call_tells_the_model(project: Project) -> None:
    deciding(project, decision="ask", reason="the linter complains")
    driven = project.drive(after({"content": []}))
    text = driven.results[0]["output"]["content"][0]["text"]
    assert text == "⚠️  Approval Required\n\nthe linter complains\n\nThe tool has run already."
    assert [toast["title"] for toast in driven.toasts] == ["Approval Required"]


def prompt(*texts: str) -> dict[str, object]:
    parts = [{"id": f"prt_{number}", "type": "text", "text": text} for number, text in enumerate(texts)]
    return {
        "hook": "chat.message",
        "input": {"sessionID": "ses_1"},
        "output": {"message": {"id": "msg_1"}, "parts": [*parts, {"id": "prt_9", "type": "file"}]},
    }


def test_context_for_a_prompt_reaches_the_model_beside_it(project: Project) -> None:
    project.decides('print(json.dumps({"decision": "allow", "context": ["it is Friday"]}))', "anyplug")
    [result] = project.drive(prompt("deploy", "now")).results
    assert result["output"]["parts"][-1] == {
        "id": "prt_90",
        "messageID": "msg_1",
        "sessionID": "ses_1",
        "type": "text",
        "synthetic": True,
        "text": "Policy context:\nit is Friday",
    }
    [event] = [given["event"] for given in project.events if given["event"]]
    assert event == {
        "hook_event_name": "UserPromptSubmit",
        "session_id": "ses_1",
        "cwd": str(project.folder),
        "prompt": "deploy\nnow",
    }


def test_a_denied_prompt_is_refused(project: Project) -> None:
    project.decides('print(json.dumps({"decision": "block", "reason": "no keys in prompts"}))', "anyplug")
    assert project.drive(prompt("sk-123")).threw == ["❌ Policy Violation\n\nno keys in prompts"]


def test_why_a_prompt_is_refused_is_said_on_the_terminal(project: Project) -> None:
    project.decides('print(json.dumps({"decision": "block", "reason": "no keys in prompts"}))', "anyplug")
    assert "[cupcake-plugin] ERROR: Prompt refused: no keys in prompts" in project.drive(prompt("sk-123")).err


def test_a_broken_policy_refuses_everything_and_the_reason_is_on_the_terminal(project: Project) -> None:
    project.decides('print("p.rego:3:1: error: var x is unsafe", file=sys.stderr); sys.exit(1)', "anyplug")
    driven = project.drive(prompt("hello"), before(), before())
    assert all("p.rego:3:1: error: var x is unsafe" in (text or "") for text in driven.threw)
    assert driven.err.count("[cupcake-plugin] ERROR: Cupcake exited with code 1") == 1
    assert "p.rego:3:1: error: var x is unsafe" in driven.err


def test_a_program_that_knows_no_prompts_is_not_asked_about_them(project: Project) -> None:
    project.decides("sys.exit(1)", "cupcake")
    assert project.drive(prompt("hello")).threw == [None]
    assert project.events == []


# ---------------------------------------------------------------------------------------------- what an event also says


def test_a_tool_of_an_mcp_server_comes_with_its_parts(project: Project) -> None:
    project.decides(ALLOW)
    servers = {"my docs": {}, "my": {}, "other": {}}
    project.drive(before("my_docs_search", q="x"), before("my_find"), before("third_one"), servers=servers)
    assert [given["event"].get("mcp") for given in project.events] == [
        {"server": "my docs", "tool": "search"},
        {"server": "my", "tool": "find"},
        None,
    ]


def test_apply_patch_is_passed_on_whole(project: Project) -> None:
    project.decides(ALLOW)
    patch = "*** Begin Patch\n*** Add File: .cupcake/x\n+hi\n*** End Patch"
    project.drive(before("apply_patch", patchText=patch))
    assert project.events[0]["event"]["tool"] == "apply_patch"
    assert project.events[0]["event"]["args"] == {"patchText": patch}


def test_the_agent_is_named_once_it_is_known(project: Project) -> None:
    project.decides(ALLOW)
    params = [{"hook": "chat.params", "input": {"sessionID": "ses_1", "agent": agent}} for agent in ("build", "title")]
    project.drive(*params, before())
    assert project.events[0]["event"]["agent"] == "build"


@pytest.mark.parametrize("args", [None, [], "text", 5])
def test_arguments_of_any_kind_are_passed_on(project: Project, args: object) -> None:
    project.decides(ALLOW)
    step = before()
    step["output"]["args"] = args
    assert project.drive(step).threw == [None]
    assert project.events[0]["event"]["args"] == ({} if args is None else args)


# ------------------------------------------------------------------------------------------------------------- approval

ASKING = {"hook": "config", "input": {}}
HELD = "⚠️  Approval Required\n\n"


def test_a_held_call_says_how_the_person_can_be_asked(project: Project) -> None:
    deciding(project, decision="ask", reason="pushes are seen")
    _, threw = project.drive(ASKING, before(command="git push")).threw
    assert threw is not None
    how = (
        r'To ask the person, call the tool policy_approval with {"request": "\w+"}\. '
        "If they approve, repeat this call unchanged."
    )
    assert re.fullmatch(re.escape(HELD + "pushes are seen\n\n") + how, threw)


@pytest.mark.requirement("CUP-29")
def test_once_lets_the_same_call_of_the_same_session_pass_once(project: Project) -> None:
    deciding(project, decision="ask", reason="pushes are seen", rule_id="PUSH")
    push = before(command="git push")
    others = [before(command="git push -f"), before(command="git push", session="other")]
    driven = project.drive(ASKING, push, {"reply": "once"}, *others, push, push)
    _, _, approved, *_ = driven.results
    assert approved["gave"] == "The person approved it. Repeat the call unchanged."
    assert approved["asked"] == {
        "permission": "policy_approval: bash: git push (pushes are seen (Rule: PUSH))",
        "patterns": ["bash: git push (pushes are seen (Rule: PUSH))"],
        "always": ["bash: git push (pushes are seen (Rule: PUSH))"],
        "metadata": {"tool": "bash", "input": {"command": "git push"}, "reason": "pushes are seen\n(Rule: PUSH)"},
    }
    *_, other_command, other_session, passed, again = driven.threw
    assert passed is None
    assert all(threw and threw.startswith(HELD) for threw in (other_command, other_session, again))


def test_always_lets_the_same_call_pass_until_opencode_ends(project: Project) -> None:
    deciding(project, decision="ask", reason="r")
    push = before(command="git push")
    driven = project.drive(
        ASKING, push, {"reply": "always"}, push, before(command="git push", session="other"), before(command="git pull")
    )
    *_, first, second, other = driven.threw
    assert (first, second) == (None, None)
    assert other is not None
    assert other.startswith(HELD)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"reply": "reject"}, "rejected"),
        ({"reply": "once", "unseen": True}, f"{HELD}r\n\n{NOTE}"),  # no dialog was opened: nobody said yes
        ({"reply": "once", "session": "other"}, "No call is held under "),
        ({"reply": "once", "request": "nothing"}, 'No call is held under "nothing".'),
    ],
)
def test_without_a_yes_of_the_person_the_call_stays_held(project: Project, step: dict[str, object], said: str) -> None:
    deciding(project, decision="ask", reason="r")
    *_, answer, again = project.drive(ASKING, before(), step, before()).threw
    assert answer is not None
    assert answer.startswith(said)
    assert again is not None
    assert again.startswith(HELD)


def test_a_denial_that_comes_later_beats_an_approval(project: Project) -> None:
    flag = str(project.folder / "stricter")
    project.decides(f'print(json.dumps({{"decision": "deny" if os.path.exists({flag!r}) else "ask", "reason": "r"}}))')
    driven = project.drive(ASKING, before(), {"reply": "always"}, before(), {"write": flag, "text": ""}, before())
    assert [driven.threw[3], driven.threw[5]] == [None, "❌ Policy Violation\n\nr"]


def test_another_tool_does_not_pass_for_the_one_that_asks(project: Project) -> None:
    deciding(project, decision="deny", reason="no")
    calls = [before("policy_approval", request="nothing"), before("policy_approval", command="rm -rf /")]
    assert project.drive(ASKING, *calls).threw[1:] == ["❌ Policy Violation\n\nno"] * 2


RULE = {"policy_approval*": "ask"}


@pytest.mark.parametrize(
    ("given", "arranged"),
    [
        ({}, {"permission": RULE}),
        ({"permission": "allow"}, {"permission": {"*": "allow", **RULE}}),
        ({"permission": {"bash": "ask"}}, {"permission": {"bash": "ask", **RULE}}),
        (
            {"agent": {"plan": {"permission": {"*": "deny"}}, "build": {}}},
            {"agent": {"plan": {"permission": {"*": "deny", **RULE}}, "build": {}}, "permission": RULE},
        ),
        ({"permission": {"policy_approval": "deny"}}, {"permission": {"policy_approval": "deny"}}),
    ],
)
def test_opencode_is_told_to_ask_about_approvals(project: Project, given: object, arranged: object) -> None:
    [result] = project.drive({"hook": "config", "input": given}).results
    assert result["input"] == arranged
    assert json.dumps(result["input"], sort_keys=True) == json.dumps(arranged, sort_keys=True)


# ------------------------------------------------------------------------------------------------------ starting at all


def test_a_plugin_that_cannot_start_refuses_every_call_and_says_so(project: Project) -> None:
    driven = project.drive(before(), noInput=True)
    [threw] = driven.threw
    assert threw is not None
    assert threw.startswith("The policy gate could not start: ")
    assert "No tool runs until this is mended" in threw
    assert "[cupcake-plugin] ERROR: The policy gate could not start: " in driven.err
    assert {toast["title"] for toast in driven.toasts} == {"Policy Error"}


def test_calls_at_the_same_time_are_decided_each_for_itself(project: Project) -> None:
    project.decides(
        'print(json.dumps({"decision": "deny" if event["args"]["command"] == "no" else "allow", "reason": "r"}))'
    )
    calls = [before(command=command) for command in ("yes", "no", "yes", "no")]
    [results] = project.drive({"together": calls}).results
    assert [result.get("threw") for result in results] == [None, "❌ Policy Violation\n\nr"] * 2
