"""Makes plugins: whole folders from a few words, so that a test shows only what it is about."""

import json
import os
from collections.abc import Mapping
from typing import Any

ANSWER = """#!/bin/sh
cat >/dev/null
echo '{"result": "done"}'
"""
NO_PARAMETERS = {"type": "object", "properties": {}}
TEXT = {"text": {"type": "string", "description": "Anything."}}


def write(path: str, text: str | bytes, mode: int = 0o644) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    os.chmod(path, mode)
    return path


def python(body: str) -> str:
    """A script that has read its input as JSON into `given`."""
    return f"#!/usr/bin/env python3\nimport json, os, sys, time\ngiven = json.load(sys.stdin)\n{body}\n"


def cyclop_manifest(name: str, /, **changes: Any) -> dict[str, Any]:
    """A manifest that is right, less what is changed; a value of ... leaves the field out."""
    manifest = {
        "name": name,
        "version": "1.0.0",
        "description": f"What {name} does.",
        "entrypoint": "run",
        "permissions": [],
        "tools": [{"name": name.replace("-", "_"), "description": "Does it.", "input_schema": NO_PARAMETERS}],
        **changes,
    }
    return {field: value for field, value in manifest.items() if value is not ...}


def cyclop(root: Any, name: str = "hello", script: str = ANSWER, **changes: Any) -> str:
    """Write a Cyclop One plugin with one tool, named like the plugin but with underscores; give its path."""
    folder = os.path.join(root, name)
    write(os.path.join(folder, "plugin.json"), json.dumps(cyclop_manifest(name, **changes)))
    write(os.path.join(folder, "run"), script, 0o755)
    return folder


def stavrobot(
    root: Any,
    name: str = "bundle",
    script: str = ANSWER,
    *,
    tools: Mapping[str, str] | None = None,
    parameters: Mapping[str, Any] = TEXT,
    tool: Mapping[str, Any] | None = None,
    **changes: Any,
) -> str:
    """Write a Stavrobot plugin with the tool `act`, or with `tools`; `tool` goes into each tool's manifest."""
    folder = os.path.join(root, name)
    manifest = {"name": name, "description": f"What {name} does.", **changes}
    write(os.path.join(folder, "manifest.json"), json.dumps(manifest))
    for own_name, text in (tools or {"act": script}).items():
        about = {"name": own_name, "description": "Does it.", "entrypoint": "run", "parameters": parameters}
        write(os.path.join(folder, own_name, "manifest.json"), json.dumps(about | dict(tool or {})))
        write(os.path.join(folder, own_name, "run"), text, 0o755)
    return folder


def acme(root: Any, name: str = "acme-tool", script: str = ANSWER, **changes: Any) -> str:
    """Write a plugin of the format that tests/distributions brings, with a tool of its name; give its path."""
    folder = os.path.join(root, name)
    manifest = {"description": f"What {name} does.", "command": "run", **changes}
    write(os.path.join(folder, "acme.json"), json.dumps(manifest))
    write(os.path.join(folder, "run"), script, 0o755)
    return folder


def workbench(
    root: Any,
    name: str = "bench",
    run: str = "() => 'done'",
    /,
    *,
    index: str = "",
    package: Any = {"type": "commonjs"},  # noqa: B006 - never changed
    files: Mapping[str, str] | None = None,
) -> str:
    """Write a Workbench plugin with the tool `NAME.act`, or with its own `index.js`; `package=None` leaves it out."""
    folder = os.path.join(root, name)
    register = f"api.registerTool({{ name: '{name}.act', inputSchema: {{}}, run: {run} }});"
    write(os.path.join(folder, "index.js"), index or f"module.exports.register = (api) => {{\n{register}\n}};\n")
    if package is not None:
        write(os.path.join(folder, "package.json"), package if isinstance(package, str) else json.dumps(package))
    for path, text in (files or {}).items():
        write(os.path.join(folder, path), text)
    return folder
