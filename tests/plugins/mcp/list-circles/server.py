"""Lists the same page again and again."""
from rpc import TOOL, answer, messages, say

for message in messages(answers=("initialize",)):
    if message["method"] == "tools/list":
        answer(message, tools=[TOOL], nextCursor="again")
    elif message["method"] == "tools/call":
        say(message)
