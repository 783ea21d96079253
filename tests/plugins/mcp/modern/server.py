"""Speaks the protocol of 2026 and no other: no `initialize`, a version in each request, streams of changes."""
from rpc import TOOL, answer, messages, refuse, say, send

VERSION = "2026-07-28"
KEY = "io.modelcontextprotocol/"
DONE = {"resultType": "complete"}
listening, tools = None, [TOOL]
for message in messages(answers=()):
    method, meta = message.get("method"), message.get("params", {}).get("_meta", {})
    if method == "initialize":
        error = {"code": -32022, "message": "not here", "data": {"supported": [VERSION], "requested": "2025-11-25"}}
        send(id=message["id"], error=error)
    elif "id" in message and meta.get(f"{KEY}protocolVersion") != VERSION:
        refuse(message, -32602, "no version")
    elif method == "server/discover":
        capabilities = {"tools": {"listChanged": True}}
        answer(
            message, supportedVersions=[VERSION], capabilities=capabilities, ttlMs=0, cacheScope="public", **DONE
        )
    elif method == "tools/list":
        answer(message, tools=tools, ttlMs=0, cacheScope="public", **DONE)
    elif method == "subscriptions/listen":
        listening = {f"{KEY}subscriptionId": message["id"]}
        wanted = message["params"]["notifications"]
        send(
            method="notifications/subscriptions/acknowledged", params={"notifications": wanted, "_meta": listening}
        )
    elif method == "tools/call":
        tools.append({**TOOL, "name": f"extra{len(tools)}"})
        say(message, **DONE)
        if listening:
            send(method="notifications/tools/list_changed", params={"_meta": listening})
