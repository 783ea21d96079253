#!/usr/bin/env -S uv run
# /// script
# requires-python = ">=3.9"
# dependencies = []
# ///
"""A tool of the plugin PLUGIN_NAME, for Stavrobot and anyplug: parameters on stdin, an answer on stdout, both JSON.

Packages that it imports are named in `dependencies` above. A second tool is a second folder with its own
manifest.json. What a person has to set, such as an API key, is declared as "config" in ../manifest.json and read from
../config.json.
"""

import json
import sys

words = json.load(sys.stdin)["text"].split()
if not words:
    sys.exit("there is no text to count")  # exit code 1: it failed, and the agent reads this
json.dump({"words": len(words)}, sys.stdout)
