"""The host's tools in agents built on the real packages, with scripted model servers on loopback."""

import json
import subprocess
import sys

import pytest

from anyplug import Attachment, Host, SyncHost
from anyplug.integrations.offered_tools import OfferedTools
from model_servers import call, model_server, say
from plugin_folders import cyclop, python, write

# ruff: noqa: SIM117 - the hosts end before the servers
# Each test imports the packages that it uses: they take seconds, and every worker imports this file.

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("adapters")]  # one worker imports them

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKJSVFT0YK"
ECHO = python("print(json.dumps({'result': 'said ' + given['input'].get('text', '')}))")
FAILS = python("sys.exit('the lamp is broken')")
CAMERA = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        about = {"name": "c", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "1.photo", "description": "Take a photo.", "inputSchema": {
            "type": "object", "anyOf": [{"required": ["of"]}, {}], "properties": {"of": {"type": "string"}}}}]}
    else:
        result = {"content": [
            {"type": "text", "text": "a photo"}, {"type": "image", "mimeType": "image/png", "data": "%s"},
            {"type": "resource", "resource": {"uri": "x:/d.pdf", "mimeType": "application/pdf", "blob": "%s"}},
            {"type": "image", "mimeType": "image/tiff", "data": "AAAA"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
SAID = "said hello"
BROKEN = "the lamp is broken"
PHOTO = "mcp_camera_1_photo"
CALLS = (("echo", {"text": "hello"}), (PHOTO, {"of": "a"}), ("lamp", {}), ("careful", {}), ("nothing_such", {}))


@pytest.fixture
def options(tmp_path):
    """Make a host with plain tools, one that fails, one that returns images, and one that asks a person."""
    write(str(tmp_path / "camera" / "server.py"), CAMERA % (PNG, PDF))
    servers = {"camera": {"command": "python3", "args": ["server.py"]}}
    write(str(tmp_path / "camera" / "mcp.json"), json.dumps({"mcpServers": servers}))
    cyclop(tmp_path / "root", "careful", permissions=["network"])
    named = [cyclop(tmp_path, "echo", ECHO), cyclop(tmp_path, "lamp", FAILS), str(tmp_path / "camera")]
    return {"plugins": named, "roots": [tmp_path / "root"]}


@pytest.fixture
def asked():
    return []


@pytest.fixture
def ask(asked):
    def answer(question):
        asked.append(question.tool)
        return "once"

    return answer


async def recorded(host):
    return host.audit.calls(20)


async def approve(host):
    await host.approve(next(entry.plugin for entry in host.plugins if entry.name == "careful"))


def checked(results: dict[str, str]) -> None:
    """Check what the model was told of each call, by the call's place."""
    said = list(results.values())
    assert said[0] == SAID
    assert BROKEN in said[2]
    assert said[3] == "done"
    assert "(not_found)" in said[4]


@pytest.mark.exercises("openai", "tools", "failures", "images", "approvals")
async def test_openai_chat_completions(options, ask, asked):
    import openai

    from anyplug.integrations import openai as for_openai

    with model_server(call(*CALLS), say("all", " done")) as served:
        async with Host(**options) as host, openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="k") as client:
            await approve(host)
            tools = for_openai.HostTools(host, ask=ask)
            said = [{"role": "user", "content": "go"}]
            while True:
                answer = await client.chat.completions.create(model="m", messages=said, tools=tools.for_chat())
                message = answer.choices[0].message
                said.append(message)
                if not message.tool_calls:
                    break
                said += await tools.answer_chat(message)
    assert message.content == "all done"
    assert asked == ["careful"]
    offered = {one["function"]["name"]: one["function"] for one in served.asked[0]["tools"]}
    assert {"echo", "lamp", PHOTO, "careful"} <= offered.keys()
    assert "anyOf" not in offered[PHOTO]["parameters"]
    assert "anyOf" in offered[PHOTO]["description"]
    sent = served.asked[1]["messages"][2:]
    checked({one["tool_call_id"]: one["content"] for one in sent[:5]})
    assert [part["type"] for part in sent[5]["content"]] == ["text", "image_url", "file"]
    assert sent[5]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    assert "image/tiff" in sent[1]["content"]


async def test_openai_responses_in_plain_code(options, ask, asked):
    import openai

    from anyplug.integrations import openai as for_openai

    script = (call(*CALLS, ("mine", {})), call(("echo", '{"text": ')), say("done"))
    with model_server(*script) as served, SyncHost(**options, ask=ask) as host:
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="k") as client:
            host.run(approve, host.host)
            tools = for_openai.HostTools(host, ask=ask)
            items = [{"role": "user", "content": "go"}]
            while True:
                response = client.responses.create(model="m", input=items, tools=tools.for_responses())
                items += response.output
                answers = host.run(tools.answer_response, response, own={"mine"})
                if not answers:
                    break
                items += answers
            records = host.run(recorded, host.host)
    assert response.output_text == "done"
    sent = [one for one in served.asked[1]["input"] if one.get("type") == "function_call_output"]
    assert [one["call_id"] for one in sent] == ["c0", "c1", "c2", "c3", "c4"]
    assert [part["type"] for part in sent[1]["output"]] == ["input_text", "input_image", "input_file", "input_text"]
    checked({one["call_id"]: one["output"] for one in sent})
    assert asked == ["careful"]
    broken = [one for one in served.asked[2]["input"] if one.get("type") == "function_call_output"][-1]
    assert "(invalid_arguments)" in broken["output"]  # it was not JSON, and is on record
    assert any(one.record.outcome == "invalid_arguments" for one in records)


@pytest.mark.exercises("anthropic", "tools", "failures", "images", "approvals")
async def test_anthropic_messages(options, ask, asked):
    import anthropic

    from anyplug.integrations import anthropic as for_anthropic

    with model_server(call(*CALLS), say("done")) as served:
        async with Host(**options) as host, anthropic.AsyncAnthropic(base_url=served.url, api_key="k") as client:
            await approve(host)
            tools = for_anthropic.HostTools(host, ask=ask)
            said = [{"role": "user", "content": "go"}]
            while True:
                message = await client.messages.create(
                    model="m", max_tokens=100, messages=said, tools=tools.definitions()
                )
                said.append({"role": "assistant", "content": message.content})
                if not (answers := await tools.answer(message)):
                    break
                said += answers
    assert message.content[0].text == "done"
    results = served.asked[1]["messages"][-1]["content"]
    assert [one["is_error"] for one in results] == [False, False, True, False, True]
    assert [block["type"] for block in results[1]["content"]] == ["text", "image", "document", "text"]
    assert results[1]["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}
    checked({one["tool_use_id"]: one["content"] for one in results})
    assert asked == ["careful"]


async def test_anthropics_own_loop(options):
    import anthropic

    from anyplug.integrations import anthropic as for_anthropic

    turns = (call(("echo", {"text": "hello"}), ("lamp", {})), say("done"))
    with model_server(*turns) as served:
        async with Host(**options) as host, anthropic.AsyncAnthropic(base_url=served.url, api_key="k") as client:
            tools = for_anthropic.HostTools(host).runnable()
            runner = client.beta.messages.tool_runner(
                model="m", max_tokens=100, tools=tools, messages=[{"role": "user", "content": "go"}]
            )
            assert (await runner.until_done()).content[0].text == "done"
    told = served.asked[1]["messages"][-1]["content"]
    assert (told[0]["content"], told[0].get("is_error", False)) == (SAID, False)
    assert told[1]["is_error"]
    with model_server(*turns) as served, SyncHost(**options) as host:
        with anthropic.Anthropic(base_url=served.url, api_key="k") as client:
            tools = for_anthropic.HostTools(host).sync_runnable()
            runner = client.beta.messages.tool_runner(
                model="m", max_tokens=100, tools=tools, messages=[{"role": "user", "content": "go"}]
            )
            assert runner.until_done().content[0].text == "done"
    assert served.asked[1]["messages"][-1]["content"] == told


@pytest.mark.exercises("langchain-core", "tools", "failures", "images", "approvals")
@pytest.mark.exercises("langchain", "tools", "failures", "images", "approvals")
@pytest.mark.exercises("langchain-openai", "tools", "failures", "images", "approvals")
@pytest.mark.parametrize("is_plain", [False, True])
async def test_langchain(options, ask, asked, is_plain):
    import httpx
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    from anyplug.integrations import langchain as for_langchain

    async with httpx.AsyncClient() as web:
        with model_server(call(*CALLS[:4]), say("done")) as served, httpx.Client() as plain_web:
            model = ChatOpenAI(
                model="m", base_url=f"{served.url}/v1", api_key="k", http_client=plain_web, http_async_client=web
            )
            question = {"messages": [HumanMessage("go")]}
            if is_plain:
                with SyncHost(**options) as host:
                    host.run(approve, host.host)
                    messages = create_agent(model, for_langchain.HostTools(host, ask=ask).tools()).invoke(question)
            else:
                async with Host(**options) as host:
                    await approve(host)
                    agent = create_agent(model, for_langchain.HostTools(host, ask=ask).tools())
                    messages = await agent.ainvoke(question)
    assert messages["messages"][-1].text == "done"
    told = [one for one in messages["messages"] if isinstance(one, ToolMessage)]
    assert [one.status for one in told] == ["success", "success", "error", "success"]
    assert [block["type"] for block in told[1].content][:3] == ["text", "image", "file"]
    assert BROKEN in told[2].content
    assert told[2].artifact.is_error
    assert told[0].content == SAID
    assert asked == ["careful"]


@pytest.mark.exercises("pydantic-ai-slim", "tools", "failures", "images", "approvals")
async def test_pydantic_ai(options, ask, asked):
    import openai
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from anyplug.integrations import pydantic_ai as for_pydantic

    with model_server(call(*CALLS[:4]), say("done")) as served:
        async with Host(**options) as host, openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="k") as client:
            await approve(host)
            model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
            agent = Agent(model, toolsets=[for_pydantic.HostToolset(host, ask=ask)])
            assert (await agent.run("go")).output == "done"
    assert PNG in served.said()
    assert BROKEN in served.said()
    assert asked == ["careful"]


async def test_pydantic_ai_on_another_event_loop_than_the_hosts(options):
    import openai
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from anyplug.integrations import pydantic_ai as for_pydantic

    with model_server(call(*CALLS[:1]), say("done")) as served, SyncHost(**options) as host:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="k") as client:
            model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
            agent = Agent(model, toolsets=[for_pydantic.HostToolset(host)])
            assert (await agent.run("go")).output == "done"
    assert SAID in served.said()


async def test_refusals_many_tools_and_deferred_ones(tmp_path, options):
    async with Host(**options) as host:
        await approve(host)
        tools = OfferedTools(host)
        assert (await tools.call("careful", {})).error.code == "denied"
        assert (await OfferedTools(host, yes=True).call("careful", {})).text == "done"
        own = OfferedTools(host, attachment=Attachment("mine", yes=True))
        assert (await own.call("careful", {})).text == "done"
        tools.view._surface = "search"
        assert [one.name for one in tools.offered()] == ["find_tools", "describe_tool", "call_tool"]
        assert "echo" in (await tools.call("find_tools", {"query": "echo"})).text
        assert "Arguments" in (await tools.call("describe_tool", {"name": "echo"})).text
        assert (await tools.call("describe_tool", {})).error.code == "invalid_arguments"
        assert (await tools.call("call_tool", {"name": "echo", "arguments": {"text": "x"}})).text == "said x"
        assert (await tools.call("call_tool", {})).is_error


async def test_what_is_no_message_is_refused_and_does_not_pass_for_one_without_calls():
    import openai

    from anyplug.integrations import anthropic as for_anthropic
    from anyplug.integrations import openai as for_openai

    with model_server(say("done")) as served:
        async with Host(roots=[]) as host, openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="k") as client:
            completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}])
            ours, theirs = for_openai.HostTools(host), for_anthropic.HostTools(host)
            assert await ours.answer_chat(completion.choices[0].message) == []
            with pytest.raises(TypeError, match=r"a message \(completion.choices\[0\].message\) is needed, not ChatC"):
                await ours.answer_chat(completion)
            with pytest.raises(TypeError, match="a response of the Responses API is needed, not ChatCompletion"):
                await ours.answer_response(completion)
            with pytest.raises(TypeError, match=r"what messages.create returned.* is needed, not NoneType"):
                await theirs.answer(None)


@pytest.mark.parametrize(
    ("adapter", "package", "line"),
    [
        ("openai", "openai", "pip install openai"),
        ("anthropic", "anthropic", "pip install anthropic"),
        ("langchain", "langchain_core", "pip install langchain-core"),
        ("pydantic_ai", "pydantic_ai", "pip install pydantic-ai-slim"),
    ],
)
def test_without_its_package_an_adapter_says_how_to_install_it(adapter, package, line):
    script = (
        "import sys, importlib.abc\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {package!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import anyplug\n"
        "assert 'Host' in dir(anyplug) and 'SyncHost' in dir(anyplug)\n"
        f"assert {package!r} not in sys.modules\n"
        f"import anyplug.integrations.{adapter}\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f"{line}\n" in done.stderr
