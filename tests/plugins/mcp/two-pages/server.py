"""Lists its tools on two pages."""
from rpc import TOOL, answer, messages, say

for message in messages(answers=("initialize",)):
    if message["method"] == "tools/list":
        if message.get("params", {}).get("cursor") == "two":
            answer(message, tools=[{**TOOL, "name": "other"}])
        else:
            answer(message, tools=[TOOL], nextCursor="two")
    elif message["method"] == "tools/call":
        say(message, message["params"]["name"])
