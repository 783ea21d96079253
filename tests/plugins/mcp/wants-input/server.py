"""Speaks the protocol of 2026, and answers a call with questions first."""
import json

from rpc import TOOL, answer, messages, refuse, say

VERSION = "2026-07-28"
for message in messages(answers=()):
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        refuse(message, -32601, "Method not found")
    elif method == "server/discover":
        answer(
            message, supportedVersions=[VERSION], capabilities={"tools": {}}, ttlMs=0, cacheScope="public",
            resultType="complete",
        )
    elif method == "tools/list":
        answer(message, tools=[TOOL], ttlMs=0, cacheScope="public", resultType="complete")
    elif method == "tools/call":
        if "inputResponses" in params and not params["arguments"].get("forever"):
            say(message, json.dumps([params["requestState"], params["inputResponses"]]), resultType="complete")
            continue
        question = {"method": "roots/list"}
        if params["arguments"].get("person"):
            question = {
                "method": "elicitation/create",
                "params": {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
            }
        answer(message, inputRequests={"q": question}, requestState="s1", resultType="input_required")
