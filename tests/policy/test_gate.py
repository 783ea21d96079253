"""Policies in our own host: before and after every tool, whatever format its plugin has."""

import json
import os
import stat

import pytest

import command_line
import plugin_folders
import zot_folders
from anyplug.call.consent import Attachment
from anyplug.policy import accepted_copies
from anyplug.policy.event_log import Recordings
from policy_projects import decision, policy, project

pytestmark = pytest.mark.anyio

ECHO = plugin_folders.python("print(json.dumps({'result': json.dumps(given)}))")
TEXT = {"text": {"type": "string", "description": "some"}}


def ours(body, name="anyplug.p", **routing):
    """Write a policy for our own host."""
    project({"p": policy(name, body, **routing)}, harness="anyplug", evaluate=None)


def records(host):
    return [item.record for item in host._audit.calls()]


async def test_without_policies_nothing_is_asked_and_no_rego_is_read(host, cyclop):
    async with host(cyclop()) as h:
        assert not h._gates._policies.is_on(os.getcwd())
        assert (await h.call("hello")).text == "done"
        assert h._gates._policies._engine is None


@pytest.mark.parametrize("format", ["cyclop", "stavrobot"])
async def test_a_policy_denies_a_tool_of_any_format_and_nothing_runs(host, request, format):
    marks = os.path.abspath("ran")
    plugin = request.getfixturevalue(format)("thing", f"#!/bin/sh\ntouch {marks}\n")
    ours(decision("deny", "not today", when=f'input.format == "{format}"', rule="N1"))
    async with host(plugin) as h:
        (tool,) = h.tools
        result = await h.call(tool.name)
        assert (result.error.code, result.error.message) == ("denied", "not today")
        (record,) = records(h)
    assert not os.path.exists(marks)
    assert record.verdict == "denied"
    assert record.by == "policy:N1 .cupcake/policies/anyplug/p.rego:8"


async def test_policies_see_plugin_format_tier_grants_caller_and_arguments(host, cyclop):
    body = """
deny contains {"rule_id": "R", "severity": "HIGH", "reason": json.marshal([input.plugin, input.format, input.tier,
	input.grants, startswith(input.caller, "agent-"), input.tool_name, input.tool_input.text, input.chain])}
"""
    ours(body)
    async with host(cyclop("hello", permissions=["network"])) as h:
        result = await h.call("hello", {"text": "x"}, attachment=Attachment("agent"))
    assert json.loads(result.error.message) == ["hello", "cyclop", 2, ["network"], True, "hello", "x", ["hello"]]


async def test_a_policy_changes_what_a_tool_is_given(host, cyclop):
    changed = 'modify contains {"rule_id": "M", "reason": "quiet", "updated_input": {"text": "changed"}}\n'
    ours(changed)
    async with host(cyclop("hello", ECHO)) as h:
        result = await h.call("hello", {"text": "given", "more": 1})
        (record,) = records(h)
    assert json.loads(result.text)["input"] == {"text": "changed", "more": 1}
    assert any("policy:M" in note for note in record.notes)
    assert [who.partition(" ")[0] for who in record.notes_by] == ["policy:M"]


async def test_a_change_that_the_tool_does_not_take_refuses(host, stavrobot):
    ours('modify contains {"rule_id": "M", "reason": "r", "updated_input": {"text": 7}}\n')
    async with host(stavrobot("bundle", ECHO, parameters=TEXT)) as h:
        result = await h.call("bundle.act", {"text": "x"})
    assert result.error.code == "denied"
    assert "schema" in result.error.message


async def test_context_reaches_whoever_reads_the_result(host, cyclop):
    ours('add_context contains "prices are in euros"\n')
    async with host(cyclop()) as h:
        result = await h.call("hello")
    assert result.text == "done\n[policy] prices are in euros"
    assert result.metadata["policy_context"] == ["prices are in euros"]


async def test_a_result_that_a_policy_refuses_is_seen_by_nobody(host, cyclop):
    when = 'contains(input.tool_response.output, "done")'
    ours(decision("deny", "it leaks", when=when), events=["PostToolUse"])
    async with host(cyclop()) as h:
        result = await h.call("hello")
        (record,) = records(h)
    assert result.error.code == "denied"
    assert "it leaks" in result.error.message
    assert "done" not in result.text
    assert result.error.hint == "decided by policy:R1 .cupcake/policies/anyplug/p.rego:8"
    assert any("withheld" in note for note in record.notes)
    assert record.notes_by == ("policy:R1 .cupcake/policies/anyplug/p.rego:8",)


async def test_what_a_tool_gives_as_data_is_judged_as_its_text_is(host, stavrobot):
    when = 'input.tool_response.structured.key == "sk-1"'
    ours(decision("deny", "it leaks", when=when), events=["PostToolUse"])
    async with host(stavrobot("bundle", plugin_folders.python("print(json.dumps({'key': 'sk-1'}))"))) as h:
        result = await h.call("bundle.act")
    assert (result.error.code, result.structured) == ("denied", None)


async def test_a_call_that_failed_is_judged_too(host, cyclop):
    when = "input.result.success == false"
    ours(f'add_context contains "try again" if {{ {when} }}\n', events=["PostToolUse"])
    async with host(cyclop("hello", "#!/bin/sh\nexit 3\n")) as h:
        result = await h.call("hello")
    assert (result.error.code, result.metadata["policy_context"]) == ("crashed", ["try again"])


def asking(*answers):
    """Give an attachment that answers so, and what it was asked."""
    asked = []
    left = list(answers)

    async def ask(question):
        asked.append(question)
        return left.pop(0)

    return Attachment("test", ask=ask), asked


async def test_a_question_goes_to_the_person_and_says_who_asks(host, cyclop):
    ours(decision("ask", "really?", rule="Q"))
    async with host(cyclop()) as h:
        attachment, asked = asking("once", "no")
        assert (await h.call("hello", {"text": "x"}, attachment=attachment)).text == "done"
        result = await h.call("hello", attachment=attachment)
        assert (result.error.code, records(h)[1].by) == ("denied", "person")
    assert len(asked) == 2
    assert "really?" in asked[0].warning
    assert "policy:Q" in asked[0].warning
    assert asked[0].arguments == {"text": "x"}


async def test_yes_for_this_attachment_is_asked_once_and_not_for_others(host, cyclop):
    ours(decision("ask"))
    async with host(cyclop()) as h:
        attachment, asked = asking("attachment")
        for _ in range(3):
            assert not (await h.call("hello", attachment=attachment)).is_error
        assert len(asked) == 1
        other, asked = asking("no")
        assert (await h.call("hello", attachment=other)).is_error
        assert len(asked) == 1


async def test_a_yes_counts_for_the_reason_that_the_person_was_told(host, cyclop):
    body = 'ask contains {"rule_id": "R", "severity": "HIGH", "reason": sprintf("%v?", [input.tool_input.text])}'
    ours(body)
    async with host(cyclop()) as h:
        attachment, asked = asking("attachment", "no")
        for _ in range(2):
            assert not (await h.call("hello", {"text": "harmless"}, attachment=attachment)).is_error
        assert (await h.call("hello", {"text": "harmful"}, attachment=attachment)).is_error
    assert [question.arguments["text"] for question in asked] == ["harmless", "harmful"]


async def test_always_lasts_until_the_policies_change(host, cyclop, home):
    ours(decision("ask"))
    plugin = cyclop()
    async with host(plugin) as h:
        attachment, _ = asking("always")
        assert not (await h.call("hello", attachment=attachment)).is_error
    async with host(plugin) as h:
        assert not (await h.call("hello", attachment=Attachment("later"))).is_error
    kept = home / "policy-answers.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    ours(decision("ask", "another"))
    async with host(plugin) as h:
        assert (await h.call("hello", attachment=Attachment("later"))).is_error


async def test_always_that_cannot_be_kept_counts_for_now_and_says_so(host, cyclop, zot, home):
    ours(decision("ask"))
    (home / "policy-answers.json").mkdir()  # nothing can be put in its place
    script = """
hello()
command("greet")
emit("ready")
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="display", display="hi")
"""
    async with host(cyclop(), zot("greeter", script)) as h:
        attachment, asked = asking("always", "always")
        result = await h.call("hello", attachment=attachment)
        assert (result.text, result.is_error) == ("done", False)
        (warning,) = result.metadata["warnings"]
        assert 'the answer "always" could not be stored, so it applies only now: cannot write to' in warning
        assert "check the disk's free space" in warning
        assert "warnings" not in (await h.call("hello", attachment=attachment)).metadata
        outcome = await h.run_command("/greet", attachment=attachment)
        assert outcome.display == "hi"
        assert ['answer "always" could not be stored' in note.message for note in outcome.notes] == [True]
        assert [record.outcome for record in records(h)] == ["done"] * 3
    assert len(asked) == 2
    assert [name for name in os.listdir(home) if name.startswith("policy-answers")] == ["policy-answers.json"]


async def test_where_nobody_can_be_asked_it_is_a_denial_that_says_so(host, cyclop):
    ours(decision("ask", "really?"))
    async with host(cyclop()) as h:
        for attachment in (Attachment("mute"), Attachment("mute", yes=True)):
            result = await h.call("hello", attachment=attachment)
            assert result.error.code == "denied"
            assert "nobody can confirm it" in result.error.message


async def test_the_persons_own_policies_hold_in_every_project(host, cyclop, home):
    plugin_folders.write(str(home / "policy" / "mine.rego"), policy("mine", decision("deny", "mine")))
    async with host(cyclop()) as h:
        assert (await h.call("hello")).error.message == "mine"


async def test_policies_that_cannot_be_used_refuse_and_say_what_to_do(host, cyclop):
    project({"p": "package"}, harness="anyplug", evaluate=None)
    async with host(cyclop()) as h:
        result = await h.call("hello")
    assert result.error.code == "denied"
    assert "p.rego:1" in result.error.message
    assert result.error.hint.startswith("decided by policy:POLICY_ERROR; `anyplug policy validate` shows what is wrong")


async def test_a_rule_that_fails_refuses_and_says_what_to_do(host, cyclop):
    ours('deny contains {"rule_id": p, "reason": "r", "severity": "LOW"}\np := 1\np := 2 if input.tool\n')
    async with host(cyclop()) as h:
        result = await h.call("hello")
    assert "p.rego:10: " in result.error.message
    assert "p.rego:10; `anyplug policy explain` shows" in result.error.hint


@pytest.mark.parametrize("place", ["project", "home"])
async def test_policies_that_cannot_be_seen_refuse(host, cyclop, home, place):
    path = {"project": ".cupcake/policies/anyplug", "home": str(home / "policy")}[place]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink("nowhere", path)
    async with host(cyclop()) as h:
        result = await h.call("hello")
    assert result.error.code == "denied"
    assert "it cannot be listed" in result.error.message


async def test_fail_mode_open_lets_pass_and_notes_it(host, cyclop, settings):
    settings('[policy]\nfail_mode = "open"\n')
    project({"p": "package"}, harness="anyplug", evaluate=None)
    async with host(cyclop()) as h:
        result = await h.call("hello")
        assert result.text == "done"
        assert any("allowed" in note for note in records(h)[0].notes)
        assert set(records(h)[0].notes_by) == {"policy"}
    (warning,) = result.metadata["warnings"]  # who relies on policies learns that none was asked
    assert "p.rego:1" in warning


async def test_fail_mode_open_is_no_pardon_for_what_policies_did_decide(host, cyclop, settings):
    settings('[policy]\nfail_mode = "open"\n')
    fails = 'ask contains {"rule_id": p, "reason": "r", "severity": "LOW"}\np := 1\np := 2 if input.tool\n'
    ours(fails + decision("deny", "clear"))
    async with host(cyclop()) as h:
        assert (await h.call("hello")).error.message == "clear"
    ours(fails)
    async with host(cyclop()) as h:
        assert (await h.call("hello")).text == "done"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ('echo \'{"decision": "deny", "reason": "theirs"}\'', "theirs"),
        ('echo \'{"decision": "block"}\'', "refused"),
        ("echo oops >&2; exit 3", "it exited with 3: oops"),
        ("echo nonsense", "nonsense"),
        ("echo '{}'", "its answer is invalid"),
        ("sleep 600", "did not answer within 1 s"),
    ],
)
async def test_another_program_decides_and_its_failures_refuse(host, cyclop, settings, script, says):
    program = plugin_folders.write(os.path.abspath("gate/cupcake"), f"#!/bin/sh\ncat >/dev/null\n{script}\n", 0o755)
    settings(f'[policy]\nprogram = "{program}"\ntimeout_s = 1\n')
    async with host(cyclop()) as h:
        result = await h.call("hello")
    assert result.error.code == "denied"
    assert says in result.error.message


async def test_another_program_is_given_the_event_and_allows(host, cyclop, settings):
    script = '#!/bin/sh\necho "$@" > args; cat > event\necho \'{"decision": "allow"}\'\n'
    program = plugin_folders.write(os.path.abspath("gate/cupcake"), script, 0o755)
    settings(f'[policy]\nprogram = "{program}"\n')
    async with host(cyclop()) as h:
        assert (await h.call("hello", {"text": "x"})).text == "done"
    with open("args") as file:
        assert file.read().split() == ["eval", "--harness", "opencode"]
    with open("event") as file:
        assert json.load(file)["hook_event_name"] == "PostToolUse"


async def test_a_program_that_is_not_there_refuses(host, cyclop, settings):
    settings('[policy]\nprogram = "/nonexistent/cupcake"\n')
    async with host(cyclop()) as h:
        assert (await h.call("hello")).error.code == "denied"


async def test_calls_are_recorded_without_secrets_where_policies_are_in_force(host, cyclop, home):
    ours(decision("ask", when="false"))
    plugin = cyclop()
    async with host(plugin) as h:
        given = {
            "command": "curl -H 'Authorization: Bearer abcdef123456' --password hunter22 X_TOKEN=deadbeef99",
            "password": "correct-horse",
            "plain": "kept",
        }
        await h.call("hello", given)
    found = list(Recordings(str(home), 7).since(0))
    text = "".join(map(str, found))
    assert [record.event["hook_event_name"] for record in found] == ["PreToolUse", "PostToolUse"]
    assert "kept" in text
    for secret in ("abcdef123456", "hunter22", "deadbeef99", "correct-horse"):
        assert secret not in text
    (file,) = (home / "recordings").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_nothing_is_recorded_where_the_person_does_not_want_it(host, cyclop, home, settings):
    settings("[policy]\nrecord_days = 0\n")
    ours(decision("ask", when="false"))
    async with host(cyclop()) as h:
        await h.call("hello")
    assert not (home / "recordings").exists()


async def test_old_recordings_go(host, cyclop, home):
    plugin_folders.write(str(home / "recordings" / "2020-01-01.jsonl"), "{}\n")
    ours(decision("ask", when="false"))
    async with host(cyclop()) as h:
        await h.call("hello")
    assert "2020-01-01.jsonl" not in os.listdir(home / "recordings")


async def test_a_projects_commands_run_only_where_the_person_trusts_it(host, cyclop, home):
    marks = os.path.abspath("ran")
    text = policy("anyplug.p", decision("deny", "asked", when='input.signals.s == "yes"'), signals=["s", "t"])
    book = f"signals: {{s: 'touch {marks}; echo yes', t: echo}}"
    project({"p": text}, harness="anyplug", evaluate=None, rulebook=book, trust=False)
    plugin = cyclop()
    async with host(plugin) as h:
        result = await h.call("hello")
    assert result.error.message.count("have not trusted") == 1
    assert "the signals 's', 't' did not answer" in result.error.message
    assert f"`anyplug policy trust {os.getcwd()}`" in result.error.hint
    assert not os.path.exists(marks)
    accepted_copies.accept(str(home), ".cupcake", trusted=True)
    async with host(plugin) as h:
        assert (await h.call("hello")).error.message == "asked"


async def test_the_persons_own_commands_run_everywhere(host, cyclop, home):
    text = policy("p", decision("deny", "asked", when='input.signals.s == "yes"'), signals=["s"])
    plugin_folders.write(str(home / "policy" / "p.rego"), text)
    plugin_folders.write(str(home / "policy" / "rulebook.yml"), "signals: {s: echo yes}")
    async with host(cyclop()) as h:
        assert (await h.call("hello")).error.message == "asked"


@pytest.mark.parametrize(
    "body",
    [
        'rules := {"deny": [{"rule_id": "H", "reason": "hidden", "severity": "HIGH"}]}\n',
        'found[verb] contains {"rule_id": "H", "reason": "hidden", "severity": "HIGH"} if some verb in ["deny"]\n',
    ],
)
async def test_decisions_that_hide_in_values_are_found_without_an_evaluate_too(host, cyclop, home, body):
    ours(body)
    async with host(cyclop()) as h:
        assert (await h.call("hello")).error.message == "hidden"
    os.unlink(".cupcake/policies/anyplug/p.rego")
    plugin_folders.write(str(home / "policy" / "p.rego"), policy("p", body))
    async with host(cyclop()) as h:
        assert (await h.call("hello")).error.message == "hidden"


def test_a_person_at_a_terminal_sees_who_asks_and_why(root):
    ours(decision("ask", "this sends mail", rule="ASK-MAIL"))
    plugin = plugin_folders.cyclop(root)
    with command_line.Terminal("--plugin", plugin, "call", "hello", "text=to all") as person:
        person.sees('with: {"text":"to all"}')
        person.sees("this sends mail (asked by policy:ASK-MAIL .cupcake/policies/anyplug/p.rego:8)")
        person.sees("[N]o:")
        person.types("y")
        person.sees("done")
    assert person.code == 0
    refused = command_line.run("--plugin", plugin, "call", "hello", "--yes", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (3, "denied")


# Slash commands

TELLS = """
hello("commands")
command("tell")
emit("ready")
for frame in heard():
    if frame["type"] == "command_invoked":
        action = frame["args"].split(" ")[0]
        words = {action: frame["args"]} if action != "open_panel" else {"open_panel": {"id": "p", "lines": ["a"]}}
        emit("command_response", id=frame["id"], action=action, **words)
"""


@pytest.fixture
def tells(zot):
    """Give an extension whose command does what it is told."""
    return zot("tells", TELLS)


def invoked(folder):
    return zot_folders.heard(folder, "command_invoked")


async def test_a_policy_denies_a_slash_command_and_it_is_not_told(host, tells):
    ours(
        decision("deny", "not today", when='input.tool_name == "/tell"; input.tool_input.args == "prompt x"', rule="N")
    )
    async with host(tells) as h:
        outcome = await h.run_command("/tell prompt x")
        assert (outcome.error.code, outcome.error.message) == ("denied", "not today")
        assert invoked(tells) == []
        assert (await h.run_command("/tell prompt y")).prompt == "prompt y"
        first, second = records(h)
    assert (first.tool, first.verdict, first.outcome) == ("/tell", "denied", "denied")
    assert first.by == "policy:N .cupcake/policies/anyplug/p.rego:8"
    assert (second.verdict, second.outcome) == ("allowed", "done")


async def test_a_policy_asks_about_a_slash_command(host, tells):
    ours(decision("ask", "really?", rule="Q"), tools=["/tell"])
    async with host(tells) as h:
        attachment, asked = asking("no", "once")
        assert (await h.run_command("/tell prompt x", attachment=attachment)).error.code == "denied"
        assert invoked(tells) == []
        assert (await h.run_command("/tell prompt x", attachment=attachment)).prompt == "prompt x"
        assert [question.tool for question in asked] == ["/tell", "/tell"]
        assert (await h.run_command("/tell prompt x")).error.code == "denied"


async def test_a_policy_changes_what_a_slash_command_is_given_and_adds_what_the_model_should_know(host, tells):
    ours(
        'modify contains {"rule_id": "M", "reason": "r", "updated_input": {"args": "prompt less"}}\n'
        'add_context contains "mind the gap"\n'
    )
    async with host(tells) as h:
        outcome = await h.run_command("/tell prompt all")
    assert outcome.prompt == "prompt less\n[policy] mind the gap"


@pytest.mark.parametrize("action", ["prompt", "display", "insert", "open_panel"])
async def test_what_a_slash_command_gave_can_be_withheld(host, tells, action):
    ours(decision("deny", "it leaks"), events=["PostToolUse"])
    async with host(tells) as h:
        outcome = await h.run_command(f"/tell {action} x")
        assert (outcome.error.code, outcome.text) == ("denied", "")
        assert "it leaks" in outcome.error.message
        assert h.panels.open == []
        assert len(invoked(tells)) == 1
