"""The fast lane: the same conversations with and without it, line by line; and clients that send what they like."""

import json

import anyio
import pytest

import mcp_clients
import zot_folders
from anyplug.frontends.mcp import json_lines
from anyplug.frontends.mcp.fast_path import FastPath
from conditions import until
from mcp_clients import HELLO, last, lines, modern, request

pytestmark = pytest.mark.anyio

SCRIPT = """
hello("tool_cancel")
tool("echo", schema={"type": "object", "properties": {"n": {"type": "integer"}, "odd": True}, "required": []})
tool("wait", description="")
tool("fail")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call" and frame["name"] == "echo":
        say(frame, json.dumps(frame["args"]))
    elif frame["type"] == "tool_call" and frame["name"] == "fail":
        say(frame, "out of luck", is_error=True)
"""
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
VERSION = "io.modelcontextprotocol/protocolVersion"
LATE = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}}

# Each is sent on its own and answered before the next; None means that no answer may come.
PLAIN = [
    ("tools/list", {}),
    ("tools/list", None),
    ("tools/list", {"cursor": None}),
    ("tools/list", {"cursor": "nonsense"}),
    ("tools/list", {"cursor": 5}),
    ("tools/list", {"other": 5}),
    ("tools/call", {"name": "echo", "arguments": {"n": 1, "deep": {"a": [None, True, 1.5, "ä", 10**20]}}}),
    ("tools/call", {"name": "echo"}),
    ("tools/call", {"name": "echo", "arguments": None}),
    ("tools/call", {"name": "echo", "arguments": []}),
    ("tools/call", {"name": "echo", "arguments": "text"}),
    ("tools/call", {"name": 5}),
    ("tools/call", {"arguments": {}}),
    ("tools/call", None),
    ("tools/call", {"name": "echo", "arguments": {"n": "x"}, "extra": 1}),
    ("tools/call", {"name": "echo", "arguments": {}, "task": {"ttl": 1}}),
    ("tools/call", {"name": "fail", "arguments": {}}),
    ("tools/call", {"name": "nothing", "arguments": {}}),
    ("tools/call", {"name": "builtin_reload_plugins", "arguments": {"plugin": "nobody"}}),
    ("ping", {}),
    ("ping", None),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("no/such/method", {}),
]
METAS = [{"progressToken": "p"}, {"progressToken": 7}, {"progressToken": None}, {"progressToken": 1.5}, {"x": 1}, {}]


def older():
    """A conversation of the older era."""
    yield request(0, "initialize", HELLO)
    yield {"jsonrpc": "2.0", "method": "notifications/initialized"}, None
    for number, (method, params) in enumerate(PLAIN, 1):
        yield request(number, method, params)
    for number, meta in enumerate(METAS, 100):
        yield request(number, "tools/call", {"name": "echo", "arguments": {}, "_meta": meta})
    for name in ("text", "7", 10**30, ""):
        yield request(name, "ping")
    yield modern(200, "tools/list")
    yield LATE, None
    yield request(201, "initialize", {**HELLO, "protocolVersion": "2024-11-05"})
    yield {"jsonrpc": "2.0", "method": "notifications/initialized"}, None
    yield request(202, "tools/call", {"name": "echo", "arguments": {}})


def newer():
    """A conversation of the newer era."""
    yield modern(0, "server/discover")
    for number, (method, params) in enumerate(PLAIN, 1):
        yield modern(number, method, params)
    for number, meta in enumerate(METAS, 100):
        yield modern(number, "tools/call", {"name": "echo", "arguments": {}}, **meta)
    for number, envelope in enumerate(
        (
            {VERSION: "2026-07-28"},
            {VERSION: "2099-01-01", CAPABILITIES: {}},
            {VERSION: 5, CAPABILITIES: {}},
            {VERSION: "2026-07-28", CAPABILITIES: []},
            {VERSION: "2026-07-28", CAPABILITIES: {"elicitation": 5}},
            {VERSION: "2026-07-28", CAPABILITIES: {"elicitation": {}}},
            {VERSION: "2026-07-28", CAPABILITIES: {}, "io.modelcontextprotocol/clientInfo": {"name": "x"}},
            {VERSION: "2026-07-28", CAPABILITIES: {}, "io.modelcontextprotocol/clientInfo": None},
            {VERSION: "2026-07-28", CAPABILITIES: {}, LOG_LEVEL: "loud"},
        ),
        200,
    ):
        yield request(number, "tools/list", {"_meta": envelope})
    yield request(300, "tools/list")
    yield request(301, "initialize", HELLO)
    yield LATE, None
    yield modern(302, "tools/call", {"name": "echo", "arguments": {}})


def waits(folder):
    return sum(frame["name"] == "wait" for frame in zot_folders.heard(folder, "tool_call"))


async def conversation(host, steps, *, is_fast):
    """Have a conversation; give all that came back."""
    heard = []
    async with lines(host, is_fast=is_fast) as agent:
        for step in steps:
            message, answer = step if isinstance(step, tuple) else (step, ...)
            agent.send(message)
            if answer is not None:
                heard.append(await agent.receive())
        agent.send(modern("end", "tools/list") if "_meta" in json.dumps(message) else request("end", "ping"))
        heard.append(await agent.receive())
    return heard


@pytest.mark.parametrize("steps", [older, newer])
async def test_nobody_can_tell_who_answered(zot, host, steps, monkeypatch):
    taken = []
    takes = FastPath.takes

    def counted(lane, line):
        answer = takes(lane, line)
        taken.append(answer)
        return answer

    monkeypatch.setattr(FastPath, "takes", counted)
    async with host(zot("kit", SCRIPT)) as up:
        fast = await conversation(up, steps(), is_fast=True)
        slow = await conversation(up, steps(), is_fast=False)
    assert fast == slow
    assert sum(taken) >= 10  # else nothing was compared


async def test_what_fails_fails_alike_for_those_who_want_log_messages(zot, host):
    asked = [
        ("resources/read", {"uri": "nothing://a"}),
        ("prompts/get", {"name": "nothing"}),
        ("tools/call", {"name": "echo", "arguments": {}, "requestState": "nothing"}),
        ("tools/call", {"name": "fail", "arguments": {}}),
    ]
    async with host(zot("kit", SCRIPT)) as up, lines(up) as agent:
        for method, params in asked:
            plain = await agent.ask(modern(1, method, params))
            assert await agent.ask(modern(1, method, params, **{LOG_LEVEL: "debug"})) == plain
            assert plain.get("error", {}).get("code") != -32603, plain


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("make", [request, modern])
async def test_a_cancelled_request_is_never_answered_and_its_id_may_be_used_again(zot, host, is_fast, make):
    folder = zot("kit", SCRIPT)
    async with host(folder) as up, lines(up, is_fast=is_fast) as agent:
        if make is request:
            await agent.greet()
            await agent.ask(request("first", "tools/list"))
        else:
            await agent.ask(modern("first", "tools/list"))
        for count, (name, cancelled) in enumerate(((5, "5"), ("6", 6), ("seven", "seven")), 1):
            agent.send(make(name, "tools/call", {"name": "wait"}))
            await until(lambda: waits(folder) == count)  # noqa: B023 - done before the next
            agent.send({**LATE, "params": {"requestId": cancelled, "reason": "enough"}})
            await until(lambda: len(zot_folders.heard(folder, "tool_cancel")) == count)  # noqa: B023 - likewise
            answer = await agent.ask(make(name, "tools/call", {"name": "echo", "arguments": {}}))
            assert (answer["id"], answer["result"]["isError"]) == (name, False)
        assert [one.outcome for one in last(up, 2)] == ["cancelled", "done"]


@pytest.mark.parametrize("is_fast", [True, False])
async def test_a_connection_that_ends_cancels_its_calls_and_records_them(zot, host, is_fast):
    folder = zot("kit", SCRIPT)
    async with host(folder) as up:
        async with lines(up, is_fast=is_fast) as agent:
            await agent.greet()
            await agent.ask(request(1, "ping"))
            agent.send(request(2, "tools/call", {"name": "wait"}))
            await until(lambda: zot_folders.heard(folder, "tool_call"))
            agent.leave()
        assert [one.outcome for one in last(up, 1)] == ["cancelled"]
        await until(lambda: zot_folders.heard(folder, "tool_cancel"))


@pytest.mark.parametrize("is_fast", [True, False])
async def test_requests_run_side_by_side_also_with_one_id(zot, host, is_fast):
    folder = zot("kit", SCRIPT)
    async with host(folder) as up, lines(up, is_fast=is_fast) as agent:
        await agent.greet()
        await agent.ask(request(0, "ping"))
        agent.send(request(1, "tools/call", {"name": "wait"}))
        await until(lambda: zot_folders.heard(folder, "tool_call"))
        answer = await agent.ask(request(1, "tools/call", {"name": "echo", "arguments": {"n": 1}}))
        assert answer["result"]["content"][0]["text"] == '{"n": 1}'
        assert (await agent.ask(request(2, "ping")))["result"] == {}


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        (b"nonsense", -32700, None),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"', -32700, None),
        (b"\xff\xfe\x00", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'{"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": NaN}}', -32700, None),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": -Infinity}}', -32700, None),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', -32700, None),
        (b"null", -32600, None),
        (b"5", -32600, None),
        (b"[]", -32600, None),
        (json.dumps([request(1, "ping"), request(2, "ping")]).encode(), -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc": "1.0", "id": 4, "method": "ping"}', -32600, 4),
        (b'{"jsonrpc": "2.0", "id": "x", "method": 5}', -32600, "x"),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping", "params": []}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "tools/call", "params": {"name": "x"}}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "method": "ping", "i\\u0064": null}', -32600, None),
    ],
)
async def test_what_is_no_message_is_answered_and_the_connection_goes_on(host, line, code, name):
    async with host() as up, lines(up) as agent:
        for _ in range(2):  # before the greeting, and behind it
            answer = await agent.ask(line)
            assert (answer["error"]["code"], answer["id"]) == (code, name)
            agent.send(b"")
            agent.send(b"  \r")
            await agent.greet()
            assert (await agent.ask(request(9, "ping")))["id"] == 9


@pytest.mark.parametrize("is_fast", [True, False])
async def test_a_request_with_half_a_character_is_answered_and_recorded(zot, host, is_fast):
    half = b"\\ud83d"
    asked = [
        b'{"name": "echo", "arguments": {"x": "%s"}}' % half,
        b'{"name": "echo", "arguments": {"x%s": "\\\\ud83d \\ud83d\\ude00"}}' % half,
        b'{"name": "echo%s", "arguments": {}}' % half,
        b'{"name": "echo", "arguments": {}, "_meta": {"x": "%s"}}' % half,
    ]
    async with host(zot("echo", SCRIPT)) as up, lines(up, is_fast=is_fast) as agent:
        await agent.greet()
        said = []
        for number, params in enumerate(asked):
            answer = await agent.ask(
                b'{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": %s}' % (number, params)
            )
            assert answer["id"] == number
            said.append(answer["result"]["content"][0]["text"])
        tools = [record.tool for record in last(up, 4)]
    assert [json.loads(text) for text in (said[0], said[1], said[3])] == [
        {"x": "\ufffd"}, {"x\ufffd": "\\ud83d \U0001f600"}, {}
    ]  # fmt: skip
    assert tools[2] == "echo\ufffd"
    assert tools[:2] + tools[3:] == ["echo"] * 3


async def test_a_line_that_is_too_long_is_skipped_and_nothing_else(host, monkeypatch):
    monkeypatch.setattr(json_lines, "LONGEST_LINE", 100_000)
    async with host() as up, lines(up) as agent:
        await agent.greet()
        long = json.dumps(request(1, "ping", {"x": "y" * 300_000})).encode()
        assert (await agent.ask(long))["error"]["code"] == -32600
        fits = json.dumps(request(2, "no/such", {"x": "y" * 90_000})).encode()
        assert (await agent.ask(fits))["id"] == 2


async def test_requests_before_the_greeting_are_refused(host):
    async with host() as up, lines(up) as agent:
        refused = await agent.ask(request(1, "tools/list"))
        assert refused["error"]["code"] == -32602
        assert (await agent.ask(request(2, "ping")))["result"] == {}
        assert (await agent.greet())["result"]["serverInfo"]["name"] == "anyplug"
        assert (await agent.ask(request(3, "tools/list")))["result"]["tools"]


async def test_answers_to_questions_that_nobody_asked_are_dropped(host):
    async with host() as up, lines(up) as agent:
        await agent.greet()
        agent.send({"jsonrpc": "2.0", "id": 99, "result": {}})
        agent.send({"jsonrpc": "2.0", "id": 98, "error": {"code": 1, "message": "no"}})
        agent.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}})
        agent.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": None}})
        agent.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": True}})
        agent.send({"jsonrpc": "2.0", "method": "notifications/cancelled"})
        assert (await agent.ask(request(1, "ping")))["id"] == 1


async def test_a_client_that_does_not_read_holds_up_nobody_else_and_is_given_up(zot, host, monkeypatch):
    monkeypatch.setattr(json_lines, "STALL_S", 2.0)
    async with host(zot("kit", SCRIPT)) as up, lines(up) as deaf, lines(up) as agent:
        await deaf.greet()
        deaf.stop_reading()
        for number in range(300):
            if number == 40:  # by now its answers fill all buffers, unless they are still on their way
                await until(lambda: len(last(up, 40)) >= 15)
                await anyio.sleep(1.0)
            deaf.send(request(number, "tools/call", {"name": "echo", "arguments": {"text": "x" * 10_000}}))
        before = -1
        while before != (before := len(last(up, 1_000))):
            await anyio.sleep(0.3)
        assert 0 < before < 300  # what it sends is not even read while it does not take its answers
        await agent.greet()
        with anyio.fail_after(mcp_clients.PATIENCE_S):
            answer = await agent.ask(request(1, "tools/call", {"name": "echo", "arguments": {"n": 1}}))
        assert answer["result"]["isError"] is False


async def test_a_client_may_send_in_pieces_and_many_at_once(zot, host):
    async with host(zot("kit", SCRIPT)) as up, mcp_clients.served(up) as (reader, writer):
        agent = mcp_clients.Lines(reader, writer)
        await agent.greet()
        line = json.dumps(request(1, "tools/call", {"name": "echo", "arguments": {"n": 1}})).encode()
        for piece in (line[:10], line[10:11], line[11:] + b"\n" + line.replace(b'"id": 1', b'"id": 2') + b"\n"):
            writer.write(piece)
            await writer.drain()
            await anyio.sleep(0.01)
        assert {(await agent.receive())["id"], (await agent.receive())["id"]} == {1, 2}
