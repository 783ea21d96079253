"""The plugins of the soak: one of each format that echoes its text, and misbehaves when the text asks for it."""

import json
import os
import shutil

import plugin_folders
import zot_folders
from plugin_folders import python

# In Python, for formats that run it: what the text asks for instead of an answer.
MISBEHAVE = """
def misbehave(text):
    if text.startswith("hang"): time.sleep(60)
    if text.startswith("exit"): os._exit(3)
    if text.startswith("flood"): os.write(1, b"x" * (24 << 20))
    if text.startswith("garbage"): os.write(1, b'{"half": \\n\\xff\\n'); time.sleep(60)
"""
CYCLOP = python(MISBEHAVE + 'text = given["input"]["text"]\nmisbehave(text)\nprint(json.dumps({"result": text}))')
STAVROBOT = python(MISBEHAVE + 'text = given["text"]\nmisbehave(text)\nprint(json.dumps({"said": text}))')
SHELL = """#!/bin/sh
read -r line
text=${line##*\\"text\\":\\"}; text=${text%%\\"*}
case $text in hang*) sleep 60;; exit*) exit 3;; flood*) yes | head -c 25000000;; garbage*) echo '{';; esac
printf '{"result": "%s"}' "$text"
"""
ZOT = f"""
{MISBEHAVE}
hello()
tool("echo_zot")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        misbehave(frame["args"]["text"])
        say(frame, frame["args"]["text"])
"""
MCP = f"""
{MISBEHAVE}
for call in calls():
    misbehave(call["params"]["arguments"]["text"])
    say(call, call["params"]["arguments"]["text"])
"""
WORKBENCH = """async ({ text }) => {
  if (text.startsWith("hang")) await new Promise((done) => setTimeout(done, 60000));
  if (text.startsWith("exit")) process.exit(3);
  if (text.startsWith("flood")) return "x".repeat(4 << 20);
  if (text.startsWith("garbage")) process.stdout.write("{half\\n");
  return text;
}"""
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TIMEOUT_S = 8  # for each call; what hangs must not hold up the soak
# The plugin, the tool as agents call it, and the files that a change of the plugin touches.
TOOLS = {
    "cyclop": "echo_cyclop",
    "shell": "echo_shell",
    "stavrobot": "stavrobot_act",
    "zot": "echo_zot",
    "mcp": "mcp_mcp_act",
    "workbench": "workbench_act",
}
SETTINGS = "".join(f"[plugins.{name}]\ntimeout_s = {TIMEOUT_S}\n" for name in TOOLS)
STAYING = ("zot", "mcp", "workbench")  # have processes that can be killed and stopped


def write(root: str) -> dict[str, str]:
    """Write all of them; return their folders."""

    def tools(name: str) -> list[dict[str, object]]:
        return [{"name": f"echo_{name}", "description": "Echoes.", "input_schema": TEXT}]

    mcp = os.path.join(root, "mcp")
    plugin_folders.write(os.path.join(mcp, "server.py"), "import json, os, sys, time\nfrom rpc import *\n" + MCP)
    shutil.copy(os.path.join(os.path.dirname(__file__), "..", "plugins", "mcp", "rpc.py"), mcp)
    server = {"mcp": {"command": "python3", "args": ["server.py"]}}
    plugin_folders.write(os.path.join(mcp, "mcp.json"), json.dumps({"mcpServers": server}))
    return {
        "cyclop": plugin_folders.cyclop(root, "cyclop", CYCLOP, tools=tools("cyclop")),
        "shell": plugin_folders.cyclop(root, "shell", SHELL, tools=tools("shell")),
        "stavrobot": plugin_folders.stavrobot(root, "stavrobot", STAVROBOT),
        "zot": zot_folders.extension(root, "zot", ZOT),
        "mcp": mcp,
        "workbench": plugin_folders.workbench(root, "workbench", WORKBENCH),
    }
