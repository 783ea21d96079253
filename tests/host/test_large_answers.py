"""An answer of very many values, or one that takes long to mask, holds up nobody else."""

import json
import threading

import pytest

import plugin_folders
from anyplug.host import host as hosts
from anyplug.model.json_values import MOST_VALUES
from anyplug.secrets.mask import Mask
from mcp_clients import mcp_plugin

pytestmark = [pytest.mark.anyio, pytest.mark.claim("no-stall")]

MANY = MOST_VALUES + 1
SHAPES = """
made = {
    "fine": {"content": [{"type": "text", "text": "a,[{" * 1_000_000}]},
    "table": {"content": [], "structuredContent": {"rows": [[1] * 10] * 15_000}},
    "blocks": {"content": [{"type": "text", "text": "a"}] * 500_000},
    "fewer blocks": {"content": [{"type": "text", "text": "a"}] * 10_000},
    "no blocks": {"content": [{}] * 100_000},
    "keys": {"content": [], "structuredContent": {str(key): key for key in range(900_000)}},
    "lists": {"content": [], "structuredContent": {"a": [[]] * 3_000_000}},
    "notes": {"content": [], "_meta": {"a": [1] * 100_000}},
}
for call in calls():
    send(method="notifications/message", params={"level": "info", "data": [{}] * 100_000})
    answer(call, **made[call["params"]["arguments"]["shape"]])
"""
SECRET = """
for call in calls():
    say(call, "&amp;" * call["params"]["arguments"]["many"] + os.environ["API_TOKEN"])
"""
ZOT = """
hello()
tool("counts")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        emit("tool_result", id=frame["id"], content=[{"type": "text", "text": "a"}] * frame["args"]["many"])
"""


async def test_an_mcp_server_that_answers_with_very_many_values_is_refused(host, root):
    async with host(mcp_plugin(root, SHAPES)) as h:
        said = {}
        for shape in ("blocks", "fewer blocks", "no blocks", "keys", "lists", "notes", "fine", "table"):
            result = await h.call("mcp.kit.act", {"shape": shape})
            said[shape] = result.error.message if result.error else ""
    assert said.pop("fine") == said.pop("table") == ""
    assert [shape for shape, text in said.items() if not text] == []
    assert "sent a line of more than 200,000 values, which was skipped" in said["blocks"]
    assert "answered 'act' with an invalid result: it has more than 20,000 values" in said["fewer blocks"]


async def test_so_are_plugins_of_other_formats(host, root, zot, workbench, settings):
    settings(f"[plugins.one]\nmax_output_bytes = {16 << 20}\n")
    answers = plugin_folders.python(f"print(json.dumps({{'result': [1] * {MANY}}}))")
    one = plugin_folders.cyclop(root, "one", answers)
    text = plugin_folders.stavrobot(root, "text", f"#!/bin/sh\npython3 -c 'print([1] * {MANY})'\n")
    bench = workbench("bench", f"() => ({{ content: 'a', metadata: {{ a: Array({MANY}).fill(1) }} }})")
    async with host(one, text, bench, zot("counts", ZOT)) as h:
        refused = [await h.call("one"), await h.call("bench.act"), await h.call("counts", {"many": MANY // 2})]
        blocks = await h.call("counts", {"many": hosts.MOST_BLOCKS + 1})
        few = await h.call("counts", {"many": hosts.MOST_BLOCKS})
        whole = await h.call("text.act", {"text": ""})
    assert [result.error and result.error.code for result in refused] == ["too_large"] * 3
    assert all("200,000 values" in result.error.message for result in refused)
    assert "it has more than 5,000 blocks" in blocks.error.message
    assert not few.is_error
    assert (whole.is_error, whole.structured, whole.text.count("1")) == (False, None, MANY)


async def test_a_long_answer_is_masked_outside_the_event_loop(host, root, monkeypatch):
    threads = []
    masked = Mask.result

    def noting(mask, result):
        threads.append(threading.current_thread())
        return masked(mask, result)

    monkeypatch.setattr(Mask, "result", noting)
    folder = mcp_plugin(root, SECRET)
    server = {"command": "python3", "args": ["server.py"], "env": {"API_TOKEN": "xyzzy-plugh-plover-23"}}
    plugin_folders.write(f"{folder}/mcp.json", json.dumps({"mcpServers": {"kit": server}}))
    async with host(folder) as h:
        long = await h.call("mcp.kit.act", {"many": 100_000})
        short = await h.call("mcp.kit.act", {"many": 1})
    assert short.text == "&amp;•••"
    assert long.text.removeprefix("&amp;" * 100_000) == "•••"
    assert [thread is threading.main_thread() for thread in threads] == [False, True]
