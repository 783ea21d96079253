"""Has always one page more."""
from rpc import TOOL, answer, messages, say

pages = 0
for message in messages(answers=("initialize",)):
    if message["method"] == "tools/list":
        answer(message, tools=[{**TOOL, "name": f"act{pages or ''}"}], nextCursor=f"page {pages}")
        pages += 1
    elif message["method"] == "tools/call":
        say(message)
