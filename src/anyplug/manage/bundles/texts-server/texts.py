#!/usr/bin/env python3
"""Offers the texts of a plugin that was written for another agent: commands as prompts, skills as resources.

anyplug wrote this file beside the plugin's own, in `bundle`. It reads them, starts nothing, and needs no permission.
"""

import json
import os
import re
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
LARGEST = 1 << 20  # bytes of one file
MOST = 1000  # files
INVALID = -32602

with open(os.path.join(FOLDER, "texts.json"), encoding="utf-8") as file:
    TEXTS = json.load(file)


def read(path):
    path = os.path.realpath(os.path.join(FOLDER, "bundle", path))
    if not path.startswith(os.path.realpath(os.path.join(FOLDER, "bundle")) + os.sep):
        raise LookupError("it is outside the plugin")
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(LARGEST)


def front(text):
    """Tell the lines between --- at the top, as names and values, and the rest."""
    found = re.match(r"---\r?\n(.*?)\r?\n---\r?\n?", text, re.DOTALL)
    if not found:
        return {}, text
    values = re.findall(r"(?m)^([A-Za-z_-]+):[ \t]*(.*(?:\n[ \t]+.*|\n(?=\n*[ \t]))*)$", found[1].replace("\r", ""))
    return {name: one_line(value) for name, value in values}, text[found.end() :]


def one_line(value):
    """Join the lines of a value that YAML folds, as in `description: >-`."""
    first, *more = value.strip().splitlines() or [""]
    words = more if re.fullmatch(r"[|>][-+0-9]*", first.strip()) else [first, *more]
    return " ".join(" ".join(words).split()).strip("\"'")


def prompts():
    for name, path in sorted(TEXTS["prompts"].items())[:MOST]:
        fields, body = front(read(path))
        wanted = fields.get("argument-hint", "")
        takes = wanted or re.search(r"\$(ARGUMENTS|[1-9])", body)
        arguments = [{"name": "arguments", "description": wanted or "What the prompt is about", "required": False}]
        yield {
            "name": name,
            "description": fields.get("description") or body.strip().partition("\n")[0].lstrip("# "),
            "arguments": arguments if takes else [],
        }


def prompt(params):
    path = TEXTS["prompts"].get(params.get("name"))
    if path is None:
        raise LookupError(f"there is no prompt {params.get('name')}")
    fields, body = front(read(path))
    given = str((params.get("arguments") or {}).get("arguments", ""))
    words = given.split()
    text = re.sub(r"\$([1-9])", lambda found: words[int(found[1]) - 1] if int(found[1]) <= len(words) else "", body)
    text = text.replace("$ARGUMENTS", given)
    if given and text == body:
        text = f"{body.rstrip()}\n\n{given}\n"
    return {
        "description": fields.get("description", ""),
        "messages": [{"role": "user", "content": {"type": "text", "text": text.strip()}}],
    }


def resources():
    for skill, folder in sorted(TEXTS["skills"].items()):
        fields, _ = front(read(f"{folder}/SKILL.md"))
        for path in files(folder):
            own = os.path.relpath(path, folder)
            is_skill = own == "SKILL.md"
            yield {
                "uri": f"skill://{skill}/{own}",
                "name": skill if is_skill else f"{skill}/{own}",
                "mimeType": "text/markdown" if own.endswith(".md") else "text/plain",
                **({"description": fields["description"]} if is_skill and fields.get("description") else {}),
            }


def files(folder):
    found = []
    for place, folders, names in os.walk(os.path.join(FOLDER, "bundle", folder)):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "node_modules"]
        found += [os.path.relpath(os.path.join(place, name), os.path.join(FOLDER, "bundle")) for name in names]
    return sorted(found)[:MOST]


def resource(params):
    uri = str(params.get("uri"))
    skill, _, own = uri.removeprefix("skill://").partition("/")
    folder = TEXTS["skills"].get(skill)
    if folder is None or f"{folder}/{own}" not in files(folder):
        raise LookupError(f"there is no resource {uri}")
    mime = "text/markdown" if own.endswith(".md") else "text/plain"
    return {"contents": [{"uri": uri, "mimeType": mime, "text": read(f"{folder}/{own}")}]}


METHODS = {
    "initialize": lambda params: {
        "protocolVersion": "2025-06-18",
        "capabilities": {"prompts": {}, "resources": {}, "tools": {}},
        "serverInfo": {"name": TEXTS["name"], "version": TEXTS["version"] or "0"},
    },
    "ping": lambda params: {},
    "tools/list": lambda params: {"tools": []},
    "prompts/list": lambda params: {"prompts": list(prompts())},
    "prompts/get": prompt,
    "resources/list": lambda params: {"resources": list(resources())},
    "resources/templates/list": lambda params: {"resourceTemplates": []},
    "resources/read": resource,
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    method = METHODS.get(message["method"])
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        if method is None:
            answer["error"] = {"code": -32601, "message": f"there is no method {message['method']}"}
        else:
            answer["result"] = method(message.get("params") or {})
    except (LookupError, OSError) as error:
        answer["error"] = {"code": INVALID, "message": str(error)}
    print(json.dumps(answer), flush=True)
