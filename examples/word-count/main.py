#!/usr/bin/env python3
"""Counts what is in a text."""

import collections
import json
import sys


def say(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def count(text, top):
    words = text.split()
    counts = (len(text.splitlines()), "line"), (len(words), "word"), (len(text), "character")
    frequent = collections.Counter(word.strip(".,;:!?").lower() for word in words).most_common(top)
    summary = ", ".join(say(number, noun) for number, noun in counts)
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
