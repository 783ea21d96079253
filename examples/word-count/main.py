#!/usr/bin/env python3
"""Counts what is in a text."""

import collections
import json
import sys


def count(text, top):
    words = text.split()
    frequent = collections.Counter(word.strip(".,;:!?").lower() for word in words).most_common(top)
    summary = f"{len(text.splitlines())} lines, {len(words)} words, {len(text)} characters"
    if frequent:
        summary += "; most frequent: " + ", ".join(f"{word} ({times})" for word, times in frequent)
    return summary


request = json.load(sys.stdin)
arguments = request["input"]
if "text" in arguments:
    answer = {"result": count(arguments["text"], arguments.get("top", 3)), "is_error": False}
else:
    answer = {"result": "there is no text to count", "is_error": True}
json.dump(answer, sys.stdout)
