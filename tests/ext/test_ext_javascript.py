"""The SDK for JavaScript, as authors use it: in Node behind the real host, and frame by frame as in zot."""

import json
import subprocess
from pathlib import Path

import pytest

import anyplug.ext
import plugin_folders
from anyplug import Host
from anyplug.runtime.processes.toolchain import find_node

SDK = Path(anyplug.ext.__file__).parent / "javascript" / "anyplug-ext.mjs"
NODE = find_node()
MAIN = """\
#!/usr/bin/env node
import { Extension, Failed, block, rewrite, prompt } from "./anyplug-ext.mjs";
const ext = new Extension("kit", { version: "1.0.0", callsTools: true });
const panel = ext.panel("p", { title: "Panel", lines: "one\\ntwo" });
console.log("this goes to the log");
ext.tool("add", "Add numbers.", { numbers: "number[]: what to add", unit: "string?", kind: ["sum", "mean"] },
  async ({ numbers, unit = "", kind }) => {
    const sum = numbers.reduce((a, b) => a + b, 0);
    return `${kind === "sum" ? sum : sum / numbers.length}${unit}`;
  });
ext.tool("fail", "Fail.", {}, () => { throw new Failed("on purpose"); });
ext.tool("json", "Return JSON.", { type: "object", properties: {} }, () => ({ a: [1] }));
ext.tool("blocks", "Return blocks.", {}, () => ["a", { type: "text", text: "b" }]);
ext.tool("wait", "Wait.", {}, (_, { signal }) => new Promise((done) => signal.addEventListener("abort", done)));
ext.tool("outer", "Call another.", {}, async (_, { callTool }) =>
  (await callTool("add", { numbers: [1, 2], kind: "sum" })).text);
ext.command("say", "Say it.", (text) => prompt(`say ${text}`));
ext.command("panel", "Open it.", () => panel);
ext.interceptToolCall((name, args) =>
  args.numbers?.length === 3 ? block("three are too many")
    : args.unit === "cm" ? rewrite({ ...args, unit: "mm" }) : undefined);
ext.on("turn_end", ({ stop }) => ext.notify(`ended: ${stop}`, "success"));
panel.onKey = (key) => { panel.lines = [key]; panel.render(); };
ext.onStart(() => ext.command("late", ext.host.cwd ? "Late." : "No cwd.", () => "shown"));
ext.run();
"""

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(NODE is None, reason="needs Node")]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "kit"
    plugin_folders.write(f"{path}/extension.json", '{"name": "kit", "exec": "./main.mjs"}')
    plugin_folders.write(f"{path}/main.mjs", MAIN, 0o755)
    plugin_folders.write(f"{path}/anyplug-ext.mjs", SDK.read_text())
    return path


async def test_an_extension_runs_behind_the_host(folder):
    async with Host(plugins=[folder], roots=[], watch=False) as host:
        await host.hear_out("/late")
        [entry] = host.plugins
        assert sorted(tool.own_name for tool in entry.tools) == ["add", "blocks", "fail", "json", "outer", "wait"]
        schema = host.snapshot.tool("add")[0].input_schema
        assert schema["required"] == ["numbers", "kind"]
        assert schema["properties"]["kind"]["enum"] == ["sum", "mean"]

        async def said(name, **arguments):
            result = await host.call(name, arguments)
            return result.error.message if result.error else result.text

        assert await said("add", numbers=[1, 3], kind="mean") == "2"
        assert await said("add", numbers=[1], kind="sum", unit="cm") == "1mm"  # rewritten by its guard
        assert "three are too many" in await said("add", numbers=[1, 2, 3], kind="sum")
        assert "numbers is missing" in await said("add", kind="sum")
        assert "kind must be sum or mean" in await said("add", numbers=[1], kind="max")
        assert "on purpose" in await said("fail")
        assert await said("json") == '{"a":[1]}'
        assert "a" in await said("blocks")
        assert await said("outer") == "3"


def test_it_speaks_as_zot_expects_older_and_newer(folder):
    """As zot does it: hello first, then registrations, ready; unknown frames are ignored; a shutdown ends it."""
    process = subprocess.Popen([NODE, "main.mjs"], cwd=folder, stdin=-1, stdout=-1, stderr=-1, text=True)

    def send(**frame):
        process.stdin.write(json.dumps(frame) + "\n")
        process.stdin.flush()

    def take(kind):
        while True:
            frame = json.loads(process.stdout.readline())
            if frame["type"] == kind:
                return frame

    with process:
        hello = json.loads(process.stdout.readline())
        assert (hello["type"], hello["name"], hello["version"]) == ("hello", "kit", "1.0.0")
        assert {"tools", "commands", "events", "tool_cancel", "call_tool"} <= set(hello["capabilities"])
        send(type="hello_ack", protocol_version=1, zot_version="0.0.9", cwd="/x", extension_dir="/y", data_dir="/y")
        assert take("subscribe") | {"type": ""} == {"type": "", "events": ["turn_end"], "intercept": ["tool_call"]}
        assert take("register_command")["description"] == "Late."
        take("ready")
        process.stdin.write("\n{broken\nnull\n")
        send(type="of_the_future", id="1")
        send(type="tool_call", id="t1", name="add")  # zot omits empty arguments
        assert take("tool_result")["is_error"] is True
        send(type="tool_call", id="t2", name="nobody", args={})
        assert "no tool" in take("tool_result")["content"][0]["text"]
        send(type="tool_call", id="t3", name="outer", args={})  # an older host does not grant it
        assert "runs no tools" in take("tool_result")["content"][0]["text"]
        send(type="command_invoked", id="c1", name="say", args="it")
        assert take("command_response") == {
            "type": "command_response",
            "id": "c1",
            "action": "prompt",
            "prompt": "say it",
        }
        send(type="command_invoked", id="c2", name="panel")
        assert take("command_response")["open_panel"]["lines"] == ["one", "two"]
        send(type="panel_key", panel_id="p", key="up")
        assert take("panel_render")["lines"] == ["up"]
        send(type="event_intercept", id="i1", event="tool_call", tool_name="add", tool_args={"numbers": [1, 2, 3]})
        assert take("event_intercept_response") == {
            "type": "event_intercept_response", "id": "i1", "block": True, "reason": "three are too many",
        }  # fmt: skip
        send(type="event", event="turn_end", stop="end")
        assert take("notify")["message"] == "ended: end"
        send(type="tool_call", id="t4", name="wait", args={})
        send(type="tool_cancel", id="t4")
        send(type="shutdown")
        take("shutdown_ack")
        assert process.wait(20) == 0
        assert "this goes to the log" in process.stderr.read()
