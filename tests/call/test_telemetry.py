"""OpenTelemetry, seen by a collector: one span for each call with its phases, metrics, and the caller's trace."""

import itertools

import anyio
import pytest

import plugin_folders
from anyplug.call import trace_context
from collectors import attributes, collector
from command_line import ok
from consoles import console, with_token
from mcp_clients import client

pytestmark = pytest.mark.anyio
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
TELLS = plugin_folders.python("print(json.dumps({'result': os.environ.get('TRACEPARENT', 'none')}))")
PHASES = ["gate", "queue", "spawn", "run", "record"]
# Calls the other tool for anybody who calls it.
CALLS = """
hello("call_tool")
tool("outer")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        asked = frame
        emit("call_tool", id="inner", parent_id=frame["id"], name="tells", args={})
    elif frame["type"] == "tool_result":
        say(asked, "done")
"""


@pytest.mark.parametrize("text", ["", "00-x", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", "00" * 99])
def test_an_invalid_trace_context_is_none(text):
    assert trace_context.read({"traceparent": text}) == {}
    assert trace_context.read({"TRACEPARENT": TRACEPARENT, "TRACESTATE": "a=1"}) == {
        "traceparent": TRACEPARENT,
        "tracestate": "a=1",
    }


async def test_nothing_is_loaded_or_passed_on_while_it_is_off(host, cyclop):
    async with host(cyclop("tells", TELLS)) as up, client(up, "older") as agent:
        said = await agent.call_tool("tells", {}, meta={"traceparent": TRACEPARENT})
    assert said.content[0].text == "none"
    assert ok("--plugin", plugin_folders.cyclop(".", "tells", TELLS), "call", "tells").out == "none\n"


@pytest.mark.parametrize("is_fast", [True, False])
async def test_a_call_is_a_span_with_its_phases_in_the_callers_trace(is_fast, era, host, cyclop, zot, settings):
    with collector() as seen:
        settings(f'[telemetry]\nenabled = true\nendpoint = "{seen.address}"\n')
        async with host(cyclop("tells", TELLS), zot()) as up:
            async with client(up, era, is_fast=is_fast) as agent:
                said = (await agent.call_tool("tells", {}, meta={"traceparent": TRACEPARENT})).content[0].text
                await agent.call_tool("echo", {"text": "a"})
            failed = await up.call("tells", {}, attachment=None)
            assert failed.error is None
            assert (await up.call("nothing")).error.code == "not_found"
    span = next(one for one in seen.spans if one.name == "execute_tool tells" and one.parent_span_id)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert said == f"00-{TRACE}-{span.span_id.hex()}-01"
    about = attributes(span)
    assert about["gen_ai.operation.name"] == "execute_tool"
    assert (about["gen_ai.tool.name"], about["anyplug.plugin"], about["anyplug.format"]) == ("tells", "tells", "cyclop")
    children = [one for one in seen.spans if one.parent_span_id == span.span_id]
    assert [one.name for one in children] == PHASES
    assert children[0].start_time_unix_nano == span.start_time_unix_nano
    assert children[-1].end_time_unix_nano == span.end_time_unix_nano
    for before, after in itertools.pairwise(children):
        assert before.end_time_unix_nano == after.start_time_unix_nano
    echo = seen.of("execute_tool echo")
    assert [one.name for one in seen.spans if one.parent_span_id == echo.span_id] == PHASES
    missing = seen.of("execute_tool nothing")
    assert (attributes(missing)["error.type"], missing.status.code) == ("not_found", 2)
    assert [one.name for one in seen.spans if one.parent_span_id == missing.span_id] == ["gate", "record"]
    assert sum(point.as_int for point in seen.metrics["anyplug.calls"].sum.data_points) == 4
    (errors,) = seen.metrics["anyplug.call.errors"].sum.data_points
    assert (errors.as_int, attributes(errors)["error.type"]) == (1, "not_found")
    durations = seen.metrics["gen_ai.client.operation.duration"].histogram.data_points
    assert sum(point.count for point in durations) == 4
    assert {"anyplug.queue.length", "anyplug.processes", "anyplug.warm.hits", "anyplug.warm.misses"} <= set(
        seen.metrics
    )


async def test_a_call_inside_a_call_is_its_child(host, cyclop, zot, settings):
    with collector() as seen:
        settings(f'[telemetry]\nenabled = true\nendpoint = "{seen.address}"\n')
        async with host(cyclop("tells", TELLS), zot("outer", CALLS)) as up:
            with anyio.fail_after(30):
                assert (await up.call("outer")).text == "done"
    assert seen.of("execute_tool tells").parent_span_id == seen.of("execute_tool outer").span_id


def test_http_headers_bring_the_trace_too(root, settings):
    with collector() as seen:
        settings(f'[telemetry]\nenabled = true\nendpoint = "{seen.address}"\n')
        ok("install", plugin_folders.cyclop(root, "tells", TELLS), "--yes")
        with console():
            headers = {"traceparent": TRACEPARENT}
            said = with_token().ask("POST", "/tools/tells/call", {"arguments": {}}, headers)
            assert said.json["text"].startswith(f"00-{TRACE}-")
    assert seen.of("execute_tool tells").parent_span_id.hex() == PARENT


async def test_a_collector_that_is_away_delays_no_call(host, cyclop, settings):
    settings('[telemetry]\nenabled = true\nendpoint = "http://127.0.0.1:9"\n')
    async with host(cyclop("tells", TELLS)) as up:
        assert (await up.call("tells")).error is None
