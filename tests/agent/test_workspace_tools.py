"""The chat's own tools: confined like any plugin, seen by policies, and offered to nobody else."""

import json
import os

import pytest

from anyplug.agent import conversation_events as events
from anyplug.agent.conversation_tools import offered
from anyplug.call.consent import Attachment
from anyplug.catalog.profiles import View
from anyplug.model.types import Result, Text
from conversations import conversation, turn
from model_servers import call, model_server, say
from policy_projects import decision, policy, project

pytestmark = pytest.mark.anyio


async def done(host, *calls, word="attachment"):
    """Have a model make calls, one after another; return how each ended, and what was asked."""
    script = [call(one) for one in calls]
    with model_server(*script, say("done")) as server:
        async with host() as h, conversation(h, server.model, word=word) as told:
            await turn(told, "go")
    asked = [event.question.permissions for event in told.of(events.Asked)]
    return [event.result for event in told.of(events.ToolEnded)], asked


async def test_files_are_written_edited_and_read_after_one_question(host):
    results, asked = await done(
        host,
        ("write", {"path": "sub/a.txt", "content": "one\ntwo\n"}),
        ("edit", {"path": "sub/a.txt", "oldText": "two", "newText": "three"}),
        ("read", {"path": "sub/a.txt"}),
        ("read", {"path": "sub"}),
        ("edit", {"path": "sub/a.txt", "oldText": "nowhere", "newText": ""}),
    )
    assert [result.is_error for result in results] == [False, False, False, False, True]
    assert results[2].text == "     1\tone\n     2\tthree"
    assert results[3].text == "a.txt"
    assert len(asked) == 1


async def test_a_command_is_confined_and_says_how_it_ended(host, tmp_path):
    (tmp_path / "user" / "private").mkdir()
    outside = tmp_path / "user" / "private" / "x"
    results, _ = await done(
        host,
        ("bash", {"command": "echo hello; exit 3"}),
        ("bash", {"command": f"echo x > {outside}"}),
        ("bash", {"command": "sleep 60", "timeout": 0.2}),
        ("bash", {"command": "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'"}),
    )
    assert (results[0].text, results[0].metadata["exit_code"]) == ("hello\n(exit 3)", 3)
    assert not outside.exists()
    assert "ended after 0.2 s" in results[2].text
    assert results[3].is_error


async def test_what_goes_beyond_the_grants_is_a_question_of_its_own(host, tmp_path):
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    os.makedirs(".git/hooks")
    results, asked = await done(
        host,
        ("write", {"path": ".git/hooks/pre-commit", "content": "x"}),
        ("write", {"path": str(outside / "new.txt"), "content": "x"}),
        ("write", {"path": str(outside / "other.txt"), "content": "x"}),
        ("bash", {"command": "true", "network": True}),
        ("write", {"path": ".envrc", "content": "x"}),
        ("bash", {"command": "echo x > .npmrc; touch .gdbinit", "paths": [".npmrc"]}),
    )
    assert [result.is_error for result in results] == [False] * 5 + [True]
    wanted = [".git/hooks", outside, ".envrc", ".npmrc"]
    hooks, elsewhere, *missing = (f"filesystem:write:{os.path.realpath(path)}" for path in wanted)
    assert asked[1:] == [(hooks,), (elsewhere,), ("network",), *((one,) for one in missing)]
    assert [os.path.exists(path) for path in (".envrc", ".npmrc", ".gdbinit")] == [True, True, False]


async def test_a_no_is_a_denial_that_the_model_reads(host):
    results, _ = await done(host, ("bash", {"command": "true"}), word="no")
    assert results[0].error is not None
    assert results[0].error.code == "denied"


async def test_skills_are_listed_and_loaded(host):
    os.makedirs(".agents/skills/greet")
    with open(".agents/skills/greet/SKILL.md", "w") as file:
        file.write("---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n")
    results, _ = await done(host, ("skill", {}), ("skill", {"name": "greet"}), ("skill", {"name": "other"}))
    assert results[0].text == "greet: How to greet."
    assert "Say hello." in results[1].text
    assert results[2].is_error


async def test_policies_see_them_as_agents_own_tools(host):
    body = decision("deny", "no removal", when='input.tool_name == "Bash"; contains(input.tool_input.command, "rm ")')
    project({"p": policy("p", body, tools=["Bash"])}, harness="anyplug", evaluate=None)
    results, _ = await done(host, ("bash", {"command": "rm -rf x"}), ("bash", {"command": "echo fine"}))
    assert results[0].error is not None
    assert "no removal" in results[0].error.message
    assert results[1].text == "fine"


async def test_others_see_them_only_if_their_profile_names_them(host, settings):
    settings('[profiles.coder]\nplugins = ["workspace-tools"]\n[profiles.all]\ntools = ["*"]\n')
    async with host() as h, conversation(h):
        for profile, sees in (("", False), ("all", False), ("coder", True)):
            view = View(h.catalog.home, profile)
            assert any(tool.name == "bash" for tool, _ in view.tools(h.snapshot)) is sees
            agent = Attachment("mcp", view=view, yes=True)
            result = await h.call("bash", {"command": "echo hi"}, attachment=agent)
            assert (result.text == "hi") is sees
    async with host() as h:
        assert "bash" in {tool.name for tool in h.tools}  # a profile names them
    settings("")
    async with host() as h:
        assert "bash" not in {tool.name for tool in h.tools}


async def test_a_denied_plugin_is_off_and_always_is_kept(host):
    async with host() as h, conversation(h, word="always") as told:
        await turn(told, "call bash command=pwd")
    async with host() as h, conversation(h, word=None) as told:
        await turn(told, "call bash command=pwd")
        assert told.of(events.Asked) == []
        h.catalog.approvals.deny(h.snapshot.plugin("workspace-tools").plugin)
        await h.look_again()
        assert "bash" not in {tool.name for tool in h.tools}


def test_a_result_that_is_meant_for_a_model_is_marked():
    assert offered(Result(structured={"prompt": "Summarise this"})) == "Summarise this"
    assert offered(Result(content=(Text("rows"),), metadata={"suggestedRole": "analyst"})) == "rows"
    assert offered(Result(content=(Text("rows"),))) == ""
    assert json.dumps(offered(Result(is_error=True, structured={"prompt": "x"}))) == '""'
