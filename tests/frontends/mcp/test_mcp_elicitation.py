"""Tier 2's question over MCP: by a request in the older era, by ending the call in the newer; answered once."""

import json

import anyio
import mcp_types as types
import msgspec
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

import mcp_clients
import plugin_folders
import zot_folders
from anyplug.call.consent import Question
from anyplug.frontends.mcp import consent_elicitation, result_content
from anyplug.frontends.mcp.mcp_server import make_server
from mcp_clients import View, answering, approve, client, find_home, last, raw_call

pytestmark = pytest.mark.anyio

YES = {consent_elicitation.KEY: types.ElicitResult(action="accept", content={"answer": "once"})}


@pytest.fixture
async def asks(root, host):
    """Give a host with an extension that a person approved, and that asks; and the extension's folder."""
    folder = zot_folders.extension(root, "echo")
    async with host(roots=(root,)) as up:
        await approve(up, "echo")
        yield up, folder


def code(result):
    return result.meta[result_content.ERROR]["code"]


def ran(folder):
    return len(zot_folders.heard(folder, "tool_call"))


async def test_once_is_for_one_call(era, is_fast, asks):
    up, folder = asks
    person, asked = answering("once")
    async with client(up, era, is_fast=is_fast, elicitation_callback=person) as agent:
        for number in (1, 2):
            result = await agent.call_tool("echo", {"n": number})
            assert json.loads(result.content[0].text) == {"n": number}
            assert len(asked) == ran(folder) == number
    assert "May plugin 'echo' run 'echo'?" in asked[0].message
    assert 'With: {"n":1}' in asked[0].message
    assert "run other programs" in asked[0].message
    assert asked[0].requested_schema["properties"]["answer"]["enum"] == ["once", "session", "no"]
    assert [(one.verdict, one.by, one.reason) for one in last(up, 1)] == [("allowed", "person", "once")]


async def test_for_this_session_is_for_this_client_and_no_other(era, is_fast, asks):
    up, _ = asks
    person, asked = answering("session")
    async with client(up, era, is_fast=is_fast, elicitation_callback=person) as agent:
        for _ in range(3):
            assert not (await agent.call_tool("echo", {})).is_error
        assert len(asked) == 1
        async with client(up, era, is_fast=is_fast, elicitation_callback=person) as other:
            await other.call_tool("echo", {})
    assert len(asked) == 2
    standing = up.catalog.standing(up.snapshot.plugin("echo").plugin)
    assert not standing.always


@pytest.mark.combinations
@pytest.mark.parametrize("answer", ["no", "decline", "cancel", "always", "yes"])
async def test_whatever_is_no_clear_yes_is_a_no_and_nothing_runs(era, asks, answer):
    up, folder = asks
    person, asked = answering(answer)
    async with client(up, era, elicitation_callback=person) as agent:
        result = await agent.call_tool("echo", {})
    assert (result.is_error, code(result), ran(folder), len(asked)) == (True, "denied", 0, 1)


async def test_a_client_that_cannot_ask_hears_what_its_user_can_do(era, is_fast, asks):
    up, folder = asks
    async with client(up, era, is_fast=is_fast) as agent:
        result = await agent.call_tool("echo", {})
    said = "\n".join(block.text for block in result.content)
    assert (code(result), ran(folder)) == ("denied", 0)
    assert "this client cannot ask its user" in said
    assert "anyplug approve echo --always" in said
    assert [one.outcome for one in last(up, 1)] == ["denied"]


@pytest.mark.parametrize("is_fast", [True, False])
async def test_a_question_that_nobody_answers_ends_before_the_client_gives_up(asks, monkeypatch, is_fast):
    monkeypatch.setattr(consent_elicitation, "ANSWER_S", 0.2)
    up, folder = asks
    person, asked = answering("never")
    async with client(up, is_fast=is_fast, elicitation_callback=person) as agent:
        result = await agent.call_tool("echo", {})
    assert (code(result), ran(folder), len(asked)) == ("denied", 0, 1)
    assert "the user did not answer" in result.content[0].text


@pytest.mark.parametrize("is_fast", [True, False])
async def test_an_answer_that_is_none_is_a_no_that_says_so(asks, is_fast):
    up, folder = asks
    async with mcp_clients.lines(up, is_fast=is_fast) as agent:
        await agent.ask(
            mcp_clients.request(0, "initialize", {**mcp_clients.HELLO, "capabilities": {"elicitation": {}}})
        )
        agent.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        agent.send(mcp_clients.request(1, "tools/call", {"name": "echo", "arguments": {}}))
        while (message := await agent.receive()).get("method") != "elicitation/create":
            pass
        agent.send({"jsonrpc": "2.0", "id": message["id"], "result": {"action": 5, "content": 5}})
        while (message := await agent.receive()).get("id") != 1:
            pass
    said = message["result"]["content"][0]["text"]
    assert "the client could not ask its user: its answer is invalid" in said
    assert "ElicitResult" not in said
    assert ran(folder) == 0


async def test_a_client_that_answers_with_an_error_has_said_no(asks):
    up, folder = asks

    async def broken(context, params):
        return types.ErrorData(code=types.INTERNAL_ERROR, message="the window is gone")

    async with client(up, elicitation_callback=broken) as agent:
        result = await agent.call_tool("echo", {})
    assert (code(result), ran(folder)) == ("denied", 0)
    assert "the window is gone" in result.content[0].text


async def test_an_answer_never_approves_a_plugin(era, root, host):
    plugin_folders.cyclop(root, "fresh", permissions=["network"])
    person, asked = answering("session")
    async with host(roots=(root,)) as up, client(up, era, elicitation_callback=person) as agent:
        assert code(await agent.call_tool("fresh", {})) == "not_approved"
    assert asked == []


async def test_commands_ask_too(era, root, host):
    script = """
hello()
command("greet")
emit("ready")
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="prompt", prompt="hi")
"""
    folder = zot_folders.extension(root, "greeter", script)
    async with host(roots=(root,)) as up:
        await approve(up, "greeter")
        person, asked = answering("no", "once")
        async with client(up, era, elicitation_callback=person) as agent:
            with pytest.raises(MCPError) as refused:
                await agent.get_prompt("greet", {"args": "Ada"})
            assert refused.value.error.data["code"] == "denied"
            assert zot_folders.heard(folder, "command_invoked") == []
            assert (await agent.get_prompt("greet", {"args": "Ada"})).messages[0].content.text == "hi"
    assert len(asked) == 2


@pytest.mark.parametrize("is_fast", [True, False])
async def test_the_call_ends_as_input_required_before_anything_ran(asks, is_fast):
    up, folder = asks
    person, _ = answering("once")
    async with client(up, "newer", is_fast=is_fast, elicitation_callback=person) as agent:
        ended = await raw_call(agent.session, "echo", {"n": 1})
        assert isinstance(ended, types.InputRequiredResult)
        assert code(ended) == "needs_answer"
        # Records name the question, and whoever may read them could answer in place of this agent.
        assert ended.request_state != ended.meta[result_content.QUESTION]
        assert (ran(folder), last(up, 1)[0].outcome) == (0, "needs_answer")
        asked = ended.input_requests[consent_elicitation.KEY]
        assert (asked.method, asked.params.mode) == ("elicitation/create", "form")
        done = await raw_call(agent.session, "echo", {"n": 1}, input_responses=YES, request_state=ended.request_state)
        assert json.loads(done.content[0].text) == {"n": 1}
    assert ran(folder) == 1


class Refused:
    """What a state that leads nowhere is answered with."""

    @staticmethod
    async def is_what_comes(agent, name, arguments, state, responses=YES):
        with pytest.raises(MCPError) as refused:
            await raw_call(agent.session, name, arguments, input_responses=responses, request_state=state)
        assert refused.value.error.code == types.INVALID_PARAMS
        assert refused.value.error.data["code"] == "denied"


async def test_an_answer_counts_once(asks):
    up, folder = asks
    person, _ = answering("once")
    async with client(up, "newer", elicitation_callback=person) as agent:
        ended = await raw_call(agent.session, "echo", {"n": 1})
        await raw_call(agent.session, "echo", {"n": 1}, input_responses=YES, request_state=ended.request_state)
        await Refused.is_what_comes(agent, "echo", {"n": 1}, ended.request_state)
    assert ran(folder) == 1


@pytest.mark.parametrize("change", ["arguments", "tool", "state", "client"])
async def test_an_answer_is_for_the_same_call_of_the_same_client(asks, zot, change):
    up, folder = asks
    person, _ = answering("once")
    async with (
        client(up, "newer", elicitation_callback=person) as agent,
        client(up, "newer", elicitation_callback=person) as other,
    ):
        state = (await raw_call(agent.session, "echo", {"n": 1})).request_state
        given = {
            "arguments": (agent, "echo", {"n": 2}, state),
            "tool": (agent, "echo/echo", {"n": 1}, state),
            "state": (agent, "echo", {"n": 1}, state[:-1] + ("0" if state[-1] != "0" else "1")),
            "client": (other, "echo", {"n": 1}, state),
        }[change]
        await Refused.is_what_comes(*given)
    assert ran(folder) == 0


async def test_an_answer_comes_too_late(asks, monkeypatch):
    up, folder = asks
    monkeypatch.setattr(consent_elicitation, "KEPT_S", -1.0)
    person, _ = answering("once")
    async with client(up, "newer", elicitation_callback=person) as agent:
        ended = await raw_call(agent.session, "echo", {})
        await Refused.is_what_comes(agent, "echo", {}, ended.request_state)
    assert ran(folder) == 0


async def test_a_state_without_an_answer_is_a_no(asks):
    up, folder = asks
    person, _ = answering("once")
    async with client(up, "newer", elicitation_callback=person) as agent:
        ended = await raw_call(agent.session, "echo", {})
        result = await raw_call(agent.session, "echo", {}, request_state=ended.request_state)
    assert (code(result), ran(folder)) == ("denied", 0)


async def test_an_answer_without_a_state_is_none(asks):
    up, folder = asks
    person, _ = answering("once")
    async with client(up, "newer", elicitation_callback=person) as agent:
        ended = await raw_call(agent.session, "echo", {}, input_responses=YES)
    assert isinstance(ended, types.InputRequiredResult)
    assert ran(folder) == 0


async def test_an_answer_about_a_plugin_that_changed_since_is_asked_for_anew():
    asked = []
    before = Question(
        id="1", plugin="p", tool="t", arguments={"n": 1}, permissions=(), warning="", digest="then", chain=()
    )
    kept = consent_elicitation.Questions()
    state = kept.keep(before, "me", "t", {"n": 1})
    known = kept.take(state, "me", "t", {"n": 1})
    ask = consent_elicitation.by_ending(asked.append, known, "once", can_ask=True)
    assert await ask(before) == "once"
    with pytest.raises(consent_elicitation.NeedsAnswer):
        await ask(Question(id="2", plugin="p", tool="t", arguments={"n": 1}, permissions=(), warning="", digest="now"))
    with pytest.raises(consent_elicitation.NeedsAnswer):  # a guard rewrote the arguments to others than the person saw
        await ask(Question(id="3", plugin="p", tool="t", arguments={"n": 2}, permissions=(), warning="", digest="then"))
    with pytest.raises(consent_elicitation.Denied):
        await ask(
            Question(id="4", plugin="p", tool="t", arguments={}, permissions=(), warning="", digest="", chain=("a",))
        )
    assert [question.id for question in asked] == ["2", "3"]


async def test_questions_that_nobody_answers_are_forgotten_in_the_end(monkeypatch):
    monkeypatch.setattr(consent_elicitation, "MOST_KEPT", 2)
    kept = consent_elicitation.Questions()
    question = Question(id="1", plugin="p", tool="t", arguments={}, permissions=(), warning="")
    states = [kept.keep(question, "me", "t", {}) for _ in range(3)]
    assert [kept.take(state, "me", "t", {}) is not None for state in states] == [False, True, True]


async def test_requests_without_a_session_are_asked_about_one_call_only(asks):
    up, folder = asks
    person, asked = answering("session")
    server = make_server(up, View(find_home()))
    async with Client(server, mode="auto", elicitation_callback=person) as agent:
        for _ in range(2):
            assert not (await agent.call_tool("echo", {})).is_error
    assert len(asked) == ran(folder) == 2
    assert asked[0].requested_schema["properties"]["answer"]["enum"] == ["once", "no"]


def test_whoever_cannot_ask_is_told_how_the_user_can_answer():
    question = Question(id="1", plugin="p", tool="t", arguments={}, permissions=(), warning="")
    assert "anyplug approve p --always" in consent_elicitation.unable(question).hint
    of_policy = msgspec.structs.replace(question, asker="policy:R a.rego:1")
    assert "policy:R a.rego:1" in consent_elicitation.unable(of_policy).message
    assert "anyplug call t" in consent_elicitation.unable(of_policy).hint


ASK_ABOUT_INNER = """# METADATA
# scope: package
# custom:
#   routing:
#     required_events: ["PreToolUse"]
#     required_tools: ["inner"]
package cupcake.policies.anyplug.inner
import rego.v1
ask contains {"rule_id": "Q", "severity": "HIGH", "reason": "really?"}
"""


@pytest.mark.parametrize("asker", ["tier", "policy"])
async def test_a_tool_in_a_tool_asks_in_the_older_era_and_is_refused_in_the_newer(era, asker, root, host):
    outer = """
hello("call_tool")
tool("outer")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        emit("call_tool", id="1", name="inner", args={}, parent_id=frame["id"])
        asked = frame
    elif frame["type"] == "tool_result":
        say(asked, frame["content"][0]["text"])
"""
    zot_folders.extension(root, "outer", outer)
    inner = zot_folders.extension(root, "inner")
    if asker == "policy":
        plugin_folders.write(".cupcake/policies/anyplug/inner.rego", ASK_ABOUT_INNER)
    async with host(roots=(root,)) as up:
        await approve(up, "outer", always=True)
        await approve(up, "inner", always=asker == "policy")
        person, asked = answering("once")
        async with client(up, era, elicitation_callback=person) as agent:
            with anyio.fail_after(mcp_clients.PATIENCE_S):
                result = await agent.call_tool("outer", {})
    assert len(asked) == ran(inner) == (1 if era == "older" else 0), result
    assert era == "older" or "a question cannot be asked" in result.content[0].text
