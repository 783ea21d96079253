#!/usr/bin/env python3
"""The plugin PLUGIN_NAME, for Cyclop One and anyplug: one request on stdin, one answer on stdout.

plugin.json says which tools there are, and what they need: "permissions": ["network"], for instance. What goes to
stderr is the log: `anyplug -e . logs PLUGIN_NAME`.
"""

import json
import sys


def count(text=""):
    words = text.split()
    if not words:
        raise ValueError("there is no text to count")  # the agent reads this
    return f"words: {len(words)}"


TOOLS = {"TOOL_NAME": count}  # a second tool stands here and in plugin.json

request = json.load(sys.stdin)  # request["context"]["data_dir"] is a folder for what should last
try:
    answer = {"result": TOOLS[request["tool"]](**request["input"]), "is_error": False}
except ValueError as error:
    answer = {"result": str(error), "is_error": True}
json.dump(answer, sys.stdout)
