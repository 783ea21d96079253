#!/usr/bin/env python3
"""Blocks or rewrites tool calls whose arguments match a rule.

A rule of rules.json has a `pattern`, a regular expression that is looked for in every text of the arguments, and
either `block` with the reason or `replace` with what to put there instead. `tool` limits it to tools of that name,
in which * stands for anything. The file is read at each call, so that a change counts at once; while it cannot be
read, everything is blocked.
"""

import fnmatch
import json
import os
import re

from anyplug_ext import Extension, block, rewrite

RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rules.json")

ext = Extension("careful", version="1.0.0")


def rules():
    with open(RULES, encoding="utf-8") as file:
        return json.load(file)


def texts(value):
    """Give every text in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from texts(one)


def replaced(value, pattern, replacement):
    """Give a JSON value with the pattern replaced in every text but the keys."""
    if isinstance(value, str):
        return re.sub(pattern, replacement, value)
    if isinstance(value, list):
        return [replaced(one, pattern, replacement) for one in value]
    if isinstance(value, dict):
        return {key: replaced(one, pattern, replacement) for key, one in value.items()}
    return value


@ext.intercept_tool_call
def guard(name, args):
    wanted, reasons = args, []
    for rule in rules():
        if not fnmatch.fnmatchcase(name, rule.get("tool", "*")):
            continue
        if not any(re.search(rule["pattern"], text) for text in texts(wanted)):
            continue
        if "block" in rule:
            return block(f"careful: {rule['block']}")
        wanted = replaced(wanted, rule["pattern"], rule["replace"])
        reasons.append(rule.get("why", f"careful replaced {rule['pattern']}"))
    return rewrite(wanted, "; ".join(reasons)) if reasons else None


@ext.command("careful", "show what is blocked and rewritten")
def show():
    lines = []
    for rule in rules():
        deed = f"block: {rule['block']}" if "block" in rule else f"replace with {rule['replace']}"
        lines.append(f"{rule.get('tool', '*')}  {rule['pattern']}\n    {deed}")
    return "\n".join(lines)


if __name__ == "__main__":
    ext.run()
