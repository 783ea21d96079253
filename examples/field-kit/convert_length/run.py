#!/usr/bin/env -S uv run
# /// script
# requires-python = ">=3.9"
# dependencies = []
# ///
"""Converts lengths."""

import json
import sys

METRES = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "mi": 1609.344}

asked = json.load(sys.stdin)
result = asked["value"] * METRES[asked["unit"]] / METRES[asked["to"]]
json.dump({"value": round(result, 4), "unit": asked["to"]}, sys.stdout)
