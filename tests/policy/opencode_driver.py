"""Drives the OpenCode plugin under Node, with stand-ins for what decides: a program, and a resident host."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import plugin_folders
from anyplug.policy.opencode import installation

DRIVER = Path(__file__).parent / "opencode_driver.mjs"
NODE = shutil.which("node") or ""
PATIENCE_S = 60

# The guide's names of OpenCode's tools in policies.
TOOL_NAMES = {
    "bash": "Bash", "edit": "Edit", "write": "Write", "read": "Read", "grep": "Grep", "glob": "Glob", "list": "List",
    "patch": "Patch", "todowrite": "TodoWrite", "todoread": "TodoRead", "webfetch": "WebFetch",
}  # fmt: skip
ALLOW = 'print(json.dumps({"decision": "allow"}))'


class Project:
    """A folder that OpenCode is open in, with the plugin, its configuration and a program that decides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = folder / "events.jsonl"
        (folder / ".cupcake").mkdir(parents=True, exist_ok=True)
        # Node asks what kind of module a file is, and older ones do not find out; Bun knows.
        (folder.parent / "package.json").write_text('{"type": "module"}')
        # Never the real program, which would start a host that stays.
        idle = plugin_folders.write(str(folder / "bin" / "anyplug"), "#!/bin/sh\nexit 9\n", 0o755)
        self.plugin = installation.install(str(folder), program=[idle]).path

    def configure(self, **options: Any) -> None:
        (self.folder / ".cupcake" / "opencode.json").write_text(json.dumps(options))

    def decides(self, body: str, name: str = "decider") -> str:
        """Write the program that decides: `event` is what it was given, and `words` how it was called."""
        text = (
            f"#!{sys.executable} -SE\n"
            "import json, os, sys, time\n"
            "words = sys.argv[1:]\n"
            "event = json.loads(sys.stdin.read()) if words[:1] == ['eval'] else None\n"
            f"with open({str(self.seen)!r}, 'a') as file:\n"
            "    file.write(json.dumps({'words': words, 'cwd': os.getcwd(), 'event': event}) + '\\n')\n" + body + "\n"
        )
        path = plugin_folders.write(str(self.folder / "bin" / name), text, 0o755)
        self.configure(cupcakePath=path)
        return path

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the program was given, call by call."""
        if not self.seen.exists():
            return []
        return [json.loads(line) for line in self.seen.read_text().splitlines()]

    def drive(self, *steps: dict[str, Any], **others: Any) -> "Driven":
        script = {"plugins": [self.plugin], "directory": str(self.folder), "steps": steps, **others}
        done = subprocess.run(
            [NODE, str(DRIVER)],
            input=json.dumps(script),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            cwd=self.folder.parent,
        )
        assert done.returncode == 0, done.stderr
        return Driven(json.loads(done.stdout), done.stderr)


class Driven:
    """What came of a drive: of each step, on the screen, and on stderr."""

    def __init__(self, told: dict[str, Any], err: str) -> None:
        self.results: list[Any] = told["results"]
        self.toasts: list[dict[str, Any]] = told["toasts"]
        self.hooks: list[list[str]] = told["hooks"]
        self.err = err

    @property
    def threw(self) -> list[str | None]:
        return [result.get("threw") if isinstance(result, dict) else None for result in self.results]


def before(tool: str = "bash", call: str = "call_1", session: str = "ses_1", **args: Any) -> dict[str, Any]:
    """Say that a tool is about to run."""
    if not args:
        args = {"command": "git status"}
    ids = {"tool": tool, "sessionID": session, "callID": call}
    return {"hook": "tool.execute.before", "input": ids, "output": {"args": args}}


def after(output: dict[str, Any], tool: str = "bash", call: str = "call_1", **args: Any) -> dict[str, Any]:
    """Say that a tool has run."""
    ids = {"tool": tool, "sessionID": "ses_1", "callID": call, "args": args or {"command": "git status"}}
    return {"hook": "tool.execute.after", "input": ids, "output": output}


needs_node = pytest.mark.skipif(not NODE, reason="the plugin is driven by Node, which is not here")
