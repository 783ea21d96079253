#!/usr/bin/env python3
"""Says what it is told. Everything that zot's protocol asks of an extension, written out by hand."""

import json
import sys


def send(kind, **fields):
    print(json.dumps({"type": kind, **fields}), flush=True)


def echo(text, loud):
    return text.upper() if loud else text


send("hello", name="echo-ext", version="1.0.0", capabilities=["commands", "tools"])
send("register_command", name="echo", description="show what you type")
send(
    "register_tool",
    name="echo_text",
    description="Give a text back.",
    schema={
        "type": "object",
        "properties": {"text": {"type": "string"}, "loud": {"type": "boolean", "description": "in capitals"}},
        "required": ["text"],
    },
)
send("ready")

for line in sys.stdin:
    try:
        frame = json.loads(line)
        kind = frame.get("type")
    except (ValueError, AttributeError):
        continue  # not a frame
    if kind == "command_invoked":
        send("command_response", id=frame["id"], action="display", display=frame.get("args", ""))
    elif kind == "tool_call":
        args = frame.get("args") or {}
        text, loud = args.get("text"), args.get("loud", False)
        known = isinstance(text, str)
        answer = echo(text, loud) if known else "there is no text to give back"
        send("tool_result", id=frame["id"], content=[{"type": "text", "text": answer}], is_error=not known)
    elif kind == "shutdown":
        send("shutdown_ack")
        break
