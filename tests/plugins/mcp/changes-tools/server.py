"""Has another tool after each call."""
from rpc import TOOL, answer, messages, say, send

count = 0
for message in messages(answers=("initialize",)):
    if message["method"] == "tools/list":
        answer(message, tools=[TOOL, *({**TOOL, "name": f"extra{number}"} for number in range(count))])
    elif message["method"] == "tools/call":
        count += 1
        send(method="notifications/tools/list_changed")
        say(message)
