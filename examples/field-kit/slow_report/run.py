#!/usr/bin/env python3
"""Takes its time."""

import json
import sys
import time

seconds = json.load(sys.stdin).get("seconds", 1)
steps = ["looked around", "took notes", "wrote them down"]
for _ in steps:
    time.sleep(seconds / len(steps))
json.dump({"report": steps, "seconds": seconds}, sys.stdout)
