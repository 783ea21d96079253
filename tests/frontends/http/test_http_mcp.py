"""MCP over HTTP with the SDK's own client, in both eras: calls, progress, questions, profiles, fairness, the end."""

import json

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from http_mcp import ERAS, NEWER, PATIENCE_S, Inner, serving

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
META = {
    "io.modelcontextprotocol/protocolVersion": NEWER,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("era", ERAS)]


def text(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def listens(up) -> bool:
    try:
        await (await anyio.connect_tcp("127.0.0.1", up.port)).aclose()
    except OSError:
        return False
    return True


async def test_a_client_lists_and_calls_tools(era):
    async with serving(Inner()) as up, up.client(era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["echo", "slow"]
        assert text(await client.call_tool("echo", {"text": "hello"})) == "hello"


async def test_half_a_character_arrives_as_a_mark(era):
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "x\ud83d"}},
    }
    headers: dict[str, str] = {"mcp_method": "tools/call", "mcp_name": "echo", "mcp_protocol_version": era}
    async with serving(Inner()) as up:
        if era == "legacy":
            greeting = await up.post(INITIALIZE)
            headers = {"mcp_session_id": greeting.headers["mcp-session-id"]}
            await up.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
        else:
            call["params"]["_meta"] = META
        answer = await up.post(call, **headers)
    assert answer.status == 200
    said = answer.body.partition(b"data: ")[2].splitlines()[0] if era == "legacy" else answer.body
    assert json.loads(said)["result"]["content"][0]["text"] == "x\ufffd"


async def test_a_client_that_asks_for_missed_events_gets_a_new_stream(era):
    if era != "legacy":
        return  # it has no such streams
    async with serving(Inner()) as up:
        session = (await up.post(INITIALIZE)).headers["mcp-session-id"]
        async with await anyio.connect_tcp("127.0.0.1", up.port) as stream:
            asked = {"accept": "text/event-stream", "mcp_session_id": session, "last_event_id": "a/b"}
            await stream.send(up.request("GET", "/mcp", **asked))
            head = await stream.receive()
    assert head.startswith(b"HTTP/1.1 200"), head
    assert b"text/event-stream" in head


@pytest.mark.parametrize("id", [None, {}, [], True, 1.5])
async def test_an_id_that_is_none_is_answered(era, id):
    headers = {} if era == "legacy" else {"mcp_method": "tools/list", "mcp_protocol_version": era}
    async with serving(Inner()) as up:
        answer = await up.post(
            {"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {"_meta": META}}, **headers
        )
    assert (answer.status, answer.json["id"], answer.json["error"]["code"]) == (400, None, -32600)


async def test_progress_arrives_before_the_result(era):
    heard = []

    async def hear(progress, total, message):
        heard.append((progress, total, message))

    async with serving(Inner()) as up, up.client(era) as client:
        assert text(await client.call_tool("steps", {}, progress_callback=hear)) == "done"
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_a_question_reaches_the_person(era):
    async def answer(context, params):
        return types.ElicitResult(action="accept", content={"sure": True})

    async with serving(Inner()) as up, up.client(era, elicitation_callback=answer) as client:
        assert text(await client.call_tool("ask", {})) == "accept {'sure': True}"


async def test_a_slow_tool_of_one_client_holds_up_nobody_else(era):
    inner = Inner()
    async with serving(inner) as up, up.client(era) as slow, anyio.create_task_group() as group:
        group.start_soon(slow.call_tool, "slow", {})
        with anyio.fail_after(PATIENCE_S):
            await inner.begun.wait()
            async with up.client(era) as fast:
                for number in range(20):
                    assert text(await fast.call_tool("echo", {"text": str(number)})) == str(number)
        assert "slow" not in inner.ended
        inner.go_on.set()


async def test_each_profile_has_its_own_path(era):
    first, second = Inner("first"), Inner("second")
    second.tools = second.tools[:1]
    async with serving(first, second) as up:
        async with up.client(era) as client, up.client(era, "/mcp/p1") as other:
            assert len((await client.list_tools()).tools) == 4
            assert len((await other.list_tools()).tools) == 1
        answer = await up.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, "/mcp/nothing")
        assert (answer.status, answer.error["code"]) == (404, "not_found")


async def test_too_many_calls_are_refused_with_a_time_to_come_back(era):
    inner = Inner()
    async with (
        serving(inner, calls=1) as up,
        up.client(era) as slow,
        up.client(era) as other,
        anyio.create_task_group() as group,
    ):
        group.start_soon(patiently, slow, "slow")
        with anyio.fail_after(PATIENCE_S):
            await inner.begun.wait()
        with pytest.raises(MCPError) as refused:
            await other.call_tool("echo", {"text": "x"})
        assert refused.value.error.data["code"] == "overloaded"
        assert refused.value.error.data["retry_after_s"] > 0
        assert "calls are already running" in refused.value.error.message
        inner.go_on.set()
        with anyio.fail_after(PATIENCE_S):
            assert text(await patiently(other, "echo", {"text": "x"})) == "x"


async def patiently(client, tool, arguments=None):
    """Call until there is a place: one may get free a moment after the answer that held it."""
    while True:
        try:
            return await client.call_tool(tool, arguments or {})
        except MCPError as error:
            if error.error.data["code"] != "overloaded":
                raise
        await anyio.sleep(0.01)


async def test_a_client_that_asks_too_often_is_slowed_down_and_others_are_not(era):
    async with serving(Inner(), requests_per_s=2) as up, up.client(era) as hasty, up.client(era) as calm:

        async def hurry() -> None:
            for _ in range(60):
                await hasty.call_tool("echo", {"text": "x"})

        with pytest.raises(MCPError) as refused:
            await hurry()
        assert refused.value.error.data["code"] == "overloaded"
        assert refused.value.error.data["retry_after_s"] == 1
        assert text(await calm.call_tool("echo", {"text": "x"})) == "x"


async def test_a_call_under_way_may_end_when_the_server_does(era):
    inner, results = Inner(), []

    async def call(client):
        await client.list_tools()  # else it asks for them after the call, to check the result
        results.append(text(await client.call_tool("slow", {})))

    async with serving(inner, grace_s=PATIENCE_S) as up:
        async with up.client(era) as client, anyio.create_task_group() as group:
            group.start_soon(call, client)
            with anyio.fail_after(PATIENCE_S):
                await inner.begun.wait()
                up.end()
                while await listens(up):
                    await anyio.sleep(0.01)
                inner.go_on.set()
        assert results == ["at last"]


async def test_a_call_that_does_not_end_in_time_is_ended_and_its_client_hears_of_it(era):
    inner, failed = Inner(), []

    async def call(client):
        with pytest.raises(MCPError) as error:
            await client.call_tool("slow", {})
        failed.append(error.value.error)

    async with serving(inner, grace_s=0.05) as up:
        async with up.client(era) as client, anyio.create_task_group() as group:
            group.start_soon(call, client)
            with anyio.fail_after(PATIENCE_S):
                await inner.begun.wait()
                up.end()
                await up.has_ended.wait()
        assert inner.ended == ["slow"]
        assert len(failed) == 1
