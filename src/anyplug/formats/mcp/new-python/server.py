#!/usr/bin/env python3
"""The MCP server PLUGIN_NAME. It needs nothing but Python: one JSON message in each line, on stdin and stdout.

Any MCP client can start it; mcp.json tells anyplug how. What goes to stderr is the log: `anyplug -e . logs PLUGIN_NAME`.
"""

import json
import sys


def count(text=""):
    words = text.split()
    if not words:
        raise ValueError("there is no text to count")  # the agent reads this
    return f"words: {len(words)}"


TOOLS = {"count": count}  # a second tool stands here and in LIST
LIST = [
    {
        "name": "count",
        "description": "Count the words of a text. Returns their number.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The text to look at"}},
            "required": ["text"],
        },
    }
]


def initialize(params):
    return {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "PLUGIN_NAME", "version": "0.1.0"},
    }


def call(params):
    tool = TOOLS.get(params["name"])
    if tool is None:
        return {"content": [{"type": "text", "text": f"there is no tool {params['name']}"}], "isError": True}
    try:
        said, failed = tool(**params.get("arguments", {})), False
    except (TypeError, ValueError) as error:
        said, failed = str(error), True
    return {"content": [{"type": "text", "text": said}], "isError": failed}


METHODS = {
    "initialize": initialize,
    "ping": lambda params: {},
    "tools/list": lambda params: {"tools": LIST},
    "tools/call": call,
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue  # a notification, which nobody answers
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    method = METHODS.get(message["method"])
    if method is None:
        answer["error"] = {"code": -32601, "message": f"there is no method {message['method']}"}
    else:
        answer["result"] = method(message.get("params", {}))
    print(json.dumps(answer), flush=True)
