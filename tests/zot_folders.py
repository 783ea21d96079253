"""Makes zot extensions: whole folders from a few lines of Python, and reads what they were told."""

import json
import os
from typing import Any

import plugin_folders

PRELUDE = '''#!/usr/bin/env -S python3 -I -S
import json, os, signal, sys, threading, time

NAME = os.path.basename(os.path.dirname(os.path.abspath(__file__)))

def emit(type, **fields):
    sys.stdout.write(json.dumps({"type": type, **fields}) + "\\n")
    sys.stdout.flush()

def hello(*capabilities, name=NAME):
    emit("hello", name=name, version="1", capabilities=list(capabilities))

def tool(name, **more):
    emit("register_tool", **({"name": name, "description": "Does it.", "schema": {"type": "object"}} | more))

def command(name, description="Does it."):
    emit("register_command", name=name, description=description)

def say(frame, text, **more):
    emit("tool_result", id=frame["id"], content=[{"type": "text", "text": text}], **more)

def heard():
    """Every frame, also written down for the test; ends with the goodbye."""
    with open("heard.jsonl", "a") as log:
        for line in sys.stdin:
            log.write(line)
            log.flush()
            frame = json.loads(line)
            if frame["type"] == "shutdown":
                emit("shutdown_ack")
                return
            yield frame
'''

ECHO = """
hello()
tool(NAME.replace("-", "_"))
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        say(frame, json.dumps(frame["args"]))
"""


def extension(root: Any, name: str = "echo", script: str = ECHO, /, **changes: Any) -> str:
    """Write an extension, by default with one tool that echoes, named like it but with underscores; give its path."""
    folder = os.path.join(root, name)
    manifest = {"name": name, "version": "1.0.0", "exec": "./run.py", "description": f"What {name} does.", **changes}
    write_manifest(folder, {field: value for field, value in manifest.items() if value is not ...})
    plugin_folders.write(os.path.join(folder, "run.py"), PRELUDE + script, 0o755)
    return folder


def write_manifest(folder: str, manifest: Any) -> None:
    plugin_folders.write(os.path.join(folder, "extension.json"), json.dumps(manifest))


def heard(folder: str, kind: str = "") -> list[dict[str, Any]]:
    """What an extension was told so far, of one kind or of all."""
    try:
        with open(os.path.join(folder, "heard.jsonl"), encoding="utf-8") as file:
            frames = [json.loads(line) for line in file]
    except FileNotFoundError:
        return []
    return [frame for frame in frames if not kind or frame["type"] == kind]


def read_answer(folder: str) -> str:
    """What an extension wrote down for the test."""
    with open(os.path.join(folder, "answer"), encoding="utf-8") as file:
        return file.read()
