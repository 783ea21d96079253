"""The contract of `cupcake eval`: the same answers, the same words, the same refusals; and Claude Code's shapes."""

import json
import os

import pytest

import command_line
import plugin_folders
import policy_projects
from anyplug.policy.shell import reading_time
from policy_projects import answer, ask, bash, decision, event, policy, project
from rows import each_row

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("CUP-19")
async def test_a_rule_that_holds_denies_with_its_reason():
    project({"safety": policy("opencode.safety", policy_projects.NO_VERIFY, tools=["Bash"])})
    assert await answer(bash("git  commit   --no-verify")) == {"decision": "deny", "reason": "hooks must run"}
    assert await answer(bash("git status")) == {"decision": "allow"}


@pytest.mark.requirement("CUP-18")
@pytest.mark.parametrize(
    ("verb", "printed"),
    [
        ("halt", {"decision": "block", "reason": "because"}),
        ("deny", {"decision": "deny", "reason": "because"}),
        ("block", {"decision": "block", "reason": "because"}),
        ("ask", {"decision": "ask", "reason": "because"}),
    ],
)
async def test_each_verb_is_printed_as_the_original_prints_it(verb, printed):
    project({"p": policy("opencode.p", decision(verb))})
    assert await answer(bash("ls")) == printed


@pytest.mark.requirement("CUP-20")
async def test_context_and_modifications_are_allowed_with_what_they_say():
    changed = 'modify contains {"rule_id": "M", "reason": "quieter", "updated_input": {"command": "ls -q"}}'
    project({"p": policy("opencode.p", 'add_context contains "mind the gap"\n')})
    assert await answer(bash("ls")) == {"context": ["mind the gap"], "decision": "allow"}
    project({"q": policy("opencode.q", changed)})
    made = await answer(bash("ls", timeout=5))
    assert made["decision"] == "allow"
    assert made["context"][0] == "quieter"
    assert made["updated_input"] == {"command": "ls -q", "timeout": 5}


async def test_several_violations_are_listed_as_in_the_original():
    body = decision("deny", "one", rule="A") + decision("deny", "two", rule="B") + decision("deny", "x", severity="LOW")
    project({"p": policy("opencode.p", body)})
    reason = (await answer(bash("ls")))["reason"]
    assert reason == "Multiple high-severity policy violations detected: [A] one; [B] two"


async def test_policies_see_the_original_names_and_ours():
    body = """
deny contains {"rule_id": "R", "reason": json.marshal(seen), "severity": "HIGH"}
seen := [input.tool, input.tool_name, input.args.filePath, input.tool_input.filePath, input.session_id, input.call_id,
	input.hook_event_name, input.resolved_file_path, input.original_file_path, input.is_symlink]
"""
    here = project({"p": policy("opencode.p", body)})
    seen = json.loads((await answer(event("edit", filePath="x.py")))["reason"])
    assert seen == [
        "edit", "Edit", "x.py", "x.py", "ses_1", "call_1", "PreToolUse", os.path.join(os.path.realpath(here), "x.py"),
        "x.py", False,
    ]  # fmt: skip


@pytest.mark.requirement("CUP-14", "CUP-17")
async def test_results_of_tools_are_judged_after_them():
    body = decision("block", "leaks", when='contains(input.tool_response.output, "done")')
    project({"p": policy("opencode.p", body, events=["PostToolUse"])})
    assert await answer(event("bash", "PostToolUse", command="x")) == {"decision": "block", "reason": "leaks"}
    assert await answer(event("bash", command="x")) == {"decision": "allow"}


async def test_a_request_for_a_permission_is_decided_and_left_to_the_person_where_no_policy_speaks():
    given = {
        "hook_event_name": "PermissionRequest", "session_id": "s", "cwd": os.getcwd(), "permission_id": "p",
        "permission_type": "bash", "title": "run", "metadata": {"command": "rm -rf /"},
    }  # fmt: skip
    project({"p": policy("opencode.p", policy_projects.NO_VERIFY, tools=["Bash"])})
    assert (await answer(given))["decision"] == "ask"
    body = decision("deny", "no", when='contains(input.tool_input.command, "rm")')
    project({"q": policy("opencode.q", body, events=["PermissionRequest"], tools=["Bash"])})
    assert (await answer(given))["decision"] == "deny"


@pytest.mark.requirement("CUP-26")
async def test_policies_are_found_from_the_events_project_upwards(tmp_path):
    here = project({"p": policy("opencode.p", decision("deny", "outer"))}, folder=str(tmp_path / "outer"))
    inner = os.path.join(here, "a", "b")
    os.makedirs(inner)
    assert (await answer(bash("ls", cwd=inner)))["reason"] == "outer"
    project({"p": policy("opencode.p", decision("deny", "inner"))}, folder=inner)
    both = (await answer(bash("ls", cwd=inner)))["reason"]  # an inner folder can only make things stricter
    assert both == "Multiple high-severity policy violations detected: [R1] inner; [R1] outer"


async def test_policies_beside_the_process_hold_where_the_event_has_none(tmp_path):
    project({"p": policy("opencode.p", decision("deny", "mine"))})
    assert (await answer(bash("ls", cwd="/nonexistent/folder")))["reason"] == "mine"


async def test_a_policy_dir_is_read_as_the_original_reads_it(tmp_path):
    here = project({"p": policy("opencode.p", decision("deny", "there"))}, folder=str(tmp_path / "there"))
    for given in (here, os.path.join(here, ".cupcake"), os.path.join(here, "policies")):
        assert (await answer(bash("ls"), policy_dir=given))["reason"] == "there"


@pytest.mark.requirement("CUP-28")
@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "there is no"),
        ({"system/evaluate.rego": policy_projects.EVALUATE}, "policies/opencode"),
        ({"policies/opencode/p.rego": "package x\nimport rego.v1\ndeny contains {"}, "p.rego:3"),
        ({"policies/opencode/p.rego": policy("opencode.p", decision("deny"))}, "evaluate.rego"),
        ({"policies/opencode/p.rego": "package cupcake.policies.p\nimport rego.v1\n" + decision("deny")}, "METADATA"),
        ({"policies/opencode/p.rego": policy("p", decision("deny"), events=[], tools=["Bash"])}, "required_events"),
        ({"policies/opencode/.keep": "", "rulebook.yml": "builtins: {protected_paths: {enabled: true}}"}, "`paths`"),
        ({"policies/opencode/.keep": "", "rulebook.yml": "signals: [1]"}, "signals"),
        ({"policies/opencode/.keep": "", "rulebook.yml": "a: [b"}, "rulebook.yml:2"),
        (
            {
                "system/evaluate.rego": policy_projects.EVALUATE,
                "policies/opencode/p.rego": policy("p", "deny contains x if { x := http.send({}) }"),
            },
            "p.rego:8",
        ),
        ({"policies/opencode/p.rego": b"\xff\xfe"}, "UTF-8"),
    ],
)
async def test_without_usable_policies_there_is_no_decision_and_the_reason_names_file_and_line(files, says):
    for name, text in files.items():
        plugin_folders.write(os.path.join(".cupcake", name), text)
    made = await ask(bash("ls"))
    assert (made["exit"], made["decision"]) == (1, None)
    assert says in "\n".join(made["said"])


async def test_what_keeps_policies_from_being_used_is_followed_by_the_cure():
    assert (await ask(bash("ls")))["said"][-1] == "hint: create one with `anyplug policy init --harness opencode`"
    project({"p": "package"})
    assert (await ask(bash("ls")))["said"][-1].startswith("hint: `anyplug policy validate` shows what is wrong")
    assert "full path" in (await ask(bash("ls"), global_config="here"))["said"][-1]


@pytest.mark.parametrize("arguments", [{}, {"command": "ls", "workdir": 7}, {"x": [None, 7]}])
@pytest.mark.parametrize("tool", ["bash", "edit", "apply_patch", "anything"])
async def test_arguments_of_any_shape_are_decided_about(tool, arguments):
    project({"p": policy("opencode.p", policy_projects.NO_VERIFY)})
    project({"p": policy("claude.p", policy_projects.NO_VERIFY)}, harness="claude")
    assert await answer({**policy_projects.event(tool), "args": arguments}) == {"decision": "allow"}
    told = {**CLAUDE, "hook_event_name": "PreToolUse", "tool_name": tool.title(), "tool_input": arguments}
    assert await answer(told, "claude") == {}


@pytest.mark.parametrize("arguments", [None, True, 7, "ls", ["ls"]])
async def test_arguments_that_are_no_object_get_no_decision(arguments):
    project({"p": policy("opencode.p", policy_projects.NO_VERIFY)})
    made = await ask({**policy_projects.event("anything"), "args": arguments})
    assert made["decision"] is None
    assert made["exit"] != 0
    assert "args must be an object" in made["said"][0]


def test_what_is_no_event_is_said_in_words_for_people():
    project({"p": policy("opencode.p", policy_projects.NO_VERIFY)})
    assert "but is missing" in command_line.run("eval", "--harness", "opencode", stdin="{}").err
    assert "it is not UTF-8" in command_line.run("eval", "--harness", "opencode", stdin=b"\xff").err


async def test_every_fault_of_every_file_is_said():
    project({"one": "package", "two": "package cupcake.policies.two\nimport rego.v1\n"})
    said = "\n".join((await ask(bash("ls")))["said"])
    assert "one.rego:1" in said
    assert "two.rego:1" in said


CLAUDE = {"session_id": "s", "cwd": "", "transcript_path": "/t", "permission_mode": "auto"}


def claude(name, **more):
    return {**CLAUDE, "cwd": os.getcwd(), "hook_event_name": name, **more}


def bash_of_claude(name="PreToolUse"):
    return claude(name, tool_name="Bash", tool_input={"command": "ls", "timeout": 3}, tool_response={})


@pytest.mark.parametrize("verb", ["halt", "deny", "block", "ask"])
async def test_claude_is_answered_in_its_own_words_before_a_tool(verb):
    project({"p": policy("claude.p", decision(verb))}, harness="claude")
    kind = "ask" if verb == "ask" else "deny"
    assert await answer(bash_of_claude(), "claude") == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse", "permissionDecision": kind, "permissionDecisionReason": "because",
        }
    }  # fmt: skip


async def test_claude_is_told_nothing_where_nothing_is_to_be_said():
    project({"p": policy("claude.p", decision("deny", when="false"))}, harness="claude")
    assert await answer(bash_of_claude(), "claude") == {}


async def test_claude_gets_the_whole_changed_input():
    changed = 'modify contains {"rule_id": "M", "reason": "r", "updated_input": {"command": "pwd"}}'
    project({"p": policy("claude.p", changed)}, harness="claude")
    made = (await answer(bash_of_claude(), "claude"))["hookSpecificOutput"]
    assert (made["permissionDecision"], made["updatedInput"]) == ("allow", {"command": "pwd", "timeout": 3})


@pytest.mark.parametrize(
    ("name", "more", "printed"),
    [
        ("PostToolUse", None, {"decision": "block", "reason": "because"}),
        ("Stop", {}, {"decision": "block", "reason": "because"}),
        ("SubagentStop", {}, {"decision": "block", "reason": "because"}),
        ("UserPromptSubmit", {"prompt": "x"}, {"decision": "block", "reason": "because"}),
        ("SessionStart", {}, {"continue": False, "stopReason": "because"}),
        (
            "PermissionRequest",
            None,
            {
                "hookSpecificOutput": {
                    "hookEventName": "PermissionRequest", "decision": {"behavior": "deny", "message": "because"},
                }
            },
        ),
    ],
)  # fmt: skip
async def test_claudes_other_events_have_shapes_of_their_own(name, more, printed):
    project({"p": policy("claude.p", decision("block"), events=[name])}, harness="claude")
    given = bash_of_claude(name) if more is None else claude(name, **more)
    assert await answer(given, "claude") == printed


async def test_claude_gets_context_where_it_takes_any():
    project(
        {"p": policy("claude.p", 'add_context contains "a"\n', events=["UserPromptSubmit", "Stop"])}, harness="claude"
    )
    made = await answer(claude("UserPromptSubmit", prompt="x"), "claude")
    assert made == {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "a"}}
    assert await answer(claude("Stop"), "claude") == {}


async def test_a_missing_decision_stops_claude_too():
    assert (await ask({}, "claude"))["exit"] == 2


@pytest.mark.parametrize("harness", ["cursor", "factory", "", "x"])
async def test_other_agents_are_refused(harness):
    assert (await ask(bash("ls"), harness))["decision"] is None


@pytest.mark.requirement("CUP-06", "CUP-25", "CUP-31")
def test_the_program_is_a_stand_in_for_cupcake():
    project({"safety": policy("opencode.safety", policy_projects.NO_VERIFY, tools=["Bash"])})
    given = json.dumps(bash("git commit --no-verify"), indent=2)
    done = command_line.run("eval", "--harness", "opencode", stdin=given)
    assert (done.code, done.out, done.err) == (0, '{"decision":"deny","reason":"hooks must run"}\n', "")
    done = command_line.run("--log-level", "debug", "eval", "--harness=opencode", "--strict", stdin=given)
    assert (done.code, done.json["decision"]) == (1, "deny")
    assert "safety.rego:10: deny GIT_NO_VERIFY" in done.err
    done = command_line.run("eval", "--harness", "opencode", "--log-level", "debug", stdin=given)
    assert (done.code, done.json["decision"]) == (0, "deny")
    assert "safety.rego:10: deny GIT_NO_VERIFY" in done.err
    done = command_line.run("eval", "--harness", "opencode", stdin="{")
    assert (done.code, done.out) == (1, "")
    assert "not JSON" in done.err
    done = command_line.run("eval", "--harness", "claude", stdin=b"\xff")
    assert (done.code, done.out) == (2, "")


@pytest.mark.requirement("CUP-25")
def test_the_programs_own_grammar_knows_eval_too():
    project({"safety": policy("opencode.safety", policy_projects.NO_VERIFY, tools=["Bash"])})
    given = json.dumps(bash("ls"))
    assert command_line.ok("--quiet", "eval", "--harness", "opencode", stdin=given).json == {"decision": "allow"}
    assert command_line.run("eval", stdin=given).code == 2
    assert "--harness" in command_line.ok("eval", "--help").out


async def test_codex_gets_only_answers_that_it_obeys():
    patch = "*** Begin Patch\n*** Update File: locked.txt\n@@\n-a\n+b\n*** End Patch"
    body = decision("ask", "sure?", rule="Q", when='contains(input.tool_input.command, "push")')
    body += decision("deny", "locked", when='input.tool_name == "Edit"; endswith(input.tool_input.file_path, ".txt")')
    changed = 'modify contains {"rule_id": "M", "reason": "quieter", "updated_input": {"command": "ls -q"}} '
    body += changed + 'if input.tool_input.command == "ls"\n'
    project({"p": policy("claude.p", body)}, harness="claude")

    def about(tool, command, name="PreToolUse"):
        made = {"hook_event_name": name, "session_id": "s", "cwd": os.getcwd(), "turn_id": "t"}
        return {**made, "tool_name": tool, "tool_input": {"command": command}}

    def said(made):
        return made["hookSpecificOutput"]

    assert said(await answer(about("Bash", "git push"), "codex"))["permissionDecision"] == "deny"
    assert "Codex cannot ask" in said(await answer(about("Bash", "git push"), "codex"))["permissionDecisionReason"]
    assert said(await answer(about("Bash", "ls"), "codex"))["updatedInput"] == {"command": "ls -q"}
    assert await answer(about("Bash", "pwd"), "codex") == {}
    assert said(await answer(about("apply_patch", patch), "codex"))["permissionDecisionReason"] == "locked"
    assert (await ask({"hook_event_name": "Nothing"}, "codex"))["exit"] == 2


# Refusals on record


def refusals():
    return [
        {key: record[key] for key in ("attachment", "tool", "format", "verdict", "by", "reason", "outcome")}
        for record in json.loads(command_line.ok("audit", "--kind", "call", "--json").out)
    ]


def test_questions_changes_and_where_they_are_wanted_allowed_calls_are_on_record_too():
    changed = 'modify contains {"rule_id": "M", "reason": "quieter", "updated_input": {"command": "ls -q"}} '
    body = decision("ask", "sure?", rule="Q", when='contains(input.tool_input.command, "push")')
    body += changed + 'if contains(input.tool_input.command, "ls")\n'
    project({"p": policy("opencode.p", body)})
    for command in ("git push", "ls", "pwd"):
        command_line.run("eval", "--harness", "opencode", stdin=json.dumps(bash(command)))
    assert [(record["verdict"], record["outcome"]) for record in refusals()] == [
        ("asked", "asked"), ("modified", "modified")
    ]  # fmt: skip
    plugin_folders.write(os.path.join(command_line.home(), "settings.toml"), "[audit]\nagent_calls = true\n")
    command_line.run("eval", "--harness", "opencode", stdin=json.dumps(bash("pwd")))
    found = command_line.ok(
        "audit", "--kind", "call", "--json", "--agent", "opencode", "--project", ".", "--by", "policy"
    ).json
    assert [record["outcome"] for record in found] == ["asked", "modified", "allowed"]
    assert [record["number"] for record in command_line.ok("audit", "--kind", "call", "--json", "--by", "Q").json] == [
        1
    ]


@pytest.mark.claim("eval-recorded")
@pytest.mark.parametrize("verb", ["halt", "deny", "block"])
def test_a_refusal_of_an_agents_own_tool_is_on_record(verb):
    project({"p": policy("opencode.p", decision(verb, "because", rule="R"))})
    given = json.dumps(bash("curl --password hunter2 x"))
    command_line.run("eval", "--harness", "opencode", stdin=given)
    (record,) = refusals()
    assert record == {
        "attachment": "opencode:ses_1", "tool": "Bash", "format": "opencode", "verdict": "denied",
        "by": "policy:R .cupcake/policies/opencode/p.rego:8", "reason": "because", "outcome": "denied",
    }  # fmt: skip
    assert "hunter2" not in command_line.ok("audit", "--kind", "call", "--json").out
    assert "   curl --password *" in command_line.ok("audit", "--by", "policy:R").out
    assert command_line.ok("audit", "--verify").out == "1 record, the chain is intact\n"


@pytest.mark.claim("eval-recorded")
def test_a_refusal_because_policies_are_broken_is_on_record():
    project({"p": "package cupcake.policies.opencode.p\nthis is not Rego"})
    assert command_line.run("eval", "--harness", "opencode", stdin=json.dumps(bash("ls"))).code == 1
    (record,) = refusals()
    assert (record["tool"], record["by"], record["outcome"]) == ("bash", "policy", "denied")


@pytest.mark.claim("eval-recorded")
def test_a_refusal_because_there_is_no_event_is_on_record_without_a_tool():
    project({"p": "package cupcake.policies.opencode.p\nthis is not Rego"})
    said = command_line.run("eval", "--harness", "opencode", stdin="\n").err
    assert "there is no event: nothing was passed" in said
    (record,) = refusals()
    assert (record["tool"], record["by"]) == ("", "policy")
    assert command_line.ok("audit", "summary", "--json").json["by"]["tool"] == {"-": 1}


def test_what_is_asked_about_or_changed_is_on_record_and_what_is_allowed_is_not():
    changing = 'modify contains {"rule_id": "M", "reason": "try", "updated_input": {"command": "make -n"}} if {%s}'
    rules = decision("ask", "sure?", when='input.args.command == "rm x"') + changing % 'input.args.command == "make"'
    project({"p": policy("opencode.p", rules)})
    for command in ("ls", "rm x", "make"):
        command_line.ok("eval", "--harness", "opencode", stdin=json.dumps(bash(command)))
    asked, modified = json.loads(command_line.ok("audit", "--kind", "call", "--json").out)
    assert (asked["verdict"], asked["outcome"], asked["reason"]) == ("asked", "asked", "sure?")
    assert asked["notes"] == ["rm x"]
    assert (modified["verdict"], modified["reason"]) == ("modified", "try")
    assert modified["notes"] == ["make", "changed to: make -n"]
    assert command_line.ok("audit", "--by", "M", "--outcome", "modified").out.count("because: try") == 1


def test_a_refusal_that_cannot_be_recorded_stays_one_and_is_said():
    project({"p": policy("opencode.p", decision("deny", "because"))})
    database = os.path.join(command_line.home(), "anyplug.db")
    for path in (database, f"{database}-wal", f"{database}-shm"):
        if os.path.exists(path):
            os.unlink(path)
    os.mkdir(database)
    done = command_line.run("eval", "--harness", "opencode", stdin=json.dumps(bash("ls")))
    assert json.loads(done.out)["decision"] == "deny"
    assert "this decision is not in the audit" in done.err


@pytest.mark.claim("eval-bounded")
@each_row(
    "part",
    [
        "cd a{0} || cd b{0}", "git checkout HEAD -- 'a*{0}'", "git -C d{0} clean", "ls /*/*{0}",
        "ln -s a{0} b{0}; rm b{0}/x",
        "find . -name a{0} -exec rm {{}} +", "rm @(a|b)*(c|d){0}",
    ],
)  # fmt: skip
async def test_whatever_a_long_command_consists_of_the_time_to_read_it_is_limited(part, monkeypatch):
    monkeypatch.setattr(reading_time, "MOST_S", 0.05)
    project({"p": policy("opencode.p", decision("deny", when="false"))})
    said = await ask(bash("; ".join(part.format(number) for number in range(1_500))))
    assert said["verb"] == "deny"
    assert "the command takes too long to read" in json.dumps(said["decision"])


@pytest.mark.claim("eval-bounded")
@pytest.mark.parametrize("harness", ["opencode", "claude"])
async def test_a_command_that_takes_too_long_to_read_is_refused_as_a_decision(harness, monkeypatch):
    monkeypatch.setattr(reading_time, "MOST_S", 0.05)
    project({"p": policy(f"{harness}.p", decision("deny", when="false"))}, harness=harness)
    line = "; ".join(f"cd a{number} || cd b{number}" for number in range(500))
    given = claude("PreToolUse", tool_name="Bash", tool_input={"command": line})
    said = await ask(given if harness == "claude" else bash(line), harness)
    assert said["verb"] == "deny"
    assert "the command takes too long to read" in json.dumps(said["decision"])
