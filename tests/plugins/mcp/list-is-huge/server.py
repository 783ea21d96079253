"""Fills every page of every list with megabytes."""
from collections import Counter

from rpc import GREETING, TOOL, answer, messages, say

LONG = "d" * (3 << 20)
GREETING["capabilities"] |= {"resources": {}, "prompts": {}}
pages = Counter()
for message in messages(answers=("initialize",)):
    method = message["method"]
    if method == "tools/call":
        say(message)
    elif method.endswith("/list"):
        page = pages[method]
        name = f"act{page or ''}" if method == "tools/list" else f"{method}{page}"
        entry = {**TOOL, "name": name, "uri": f"x:{page}", "uriTemplate": f"x:{page}", "description": LONG if page else "x"}
        key = "resourceTemplates" if "templates" in method else method.partition("/")[0]
        answer(message, **{key: [entry]}, nextCursor=f"page {page}")
        pages[method] += 1
