"""What the servers beside this file share: JSON-RPC in lines, a greeting, and one tool that is called `act`."""

import json
import os
import sys

HEARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "heard.jsonl")  # a server writes only beside itself

GREETING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "habit", "version": "1"},
}
TOOL = {"name": "act", "description": "Does it.", "inputSchema": {"type": "object"}}


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request, **result):
    send(id=request["id"], result=result)


def say(request, text="done", **more):
    answer(request, content=[{"type": "text", "text": text}], **more)


def refuse(request, code, message):
    send(id=request["id"], error={"code": code, "message": message})


def messages(tools=(TOOL,), answers=("initialize", "tools/list"), writes_down=True):
    """Yield every message that is not answered here; `writes_down` all of them, which the host sees in its folder."""
    writes_down = writes_down and os.access(os.path.dirname(HEARD), os.W_OK)
    with open(HEARD if writes_down else os.devnull, "a") as log:
        for line in sys.stdin:
            log.write(line)
            log.flush()
            message = json.loads(line)
            method = message.get("method")
            if method not in answers:
                if method != "notifications/initialized":
                    yield message
            elif method == "initialize":
                answer(message, **GREETING)
            else:
                answer(message, tools=list(tools))


def calls(**others):
    return (message for message in messages(**others) if message.get("method") == "tools/call")
