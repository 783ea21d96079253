"""Whatever a plugin writes into its manifest, its files, its answers: no command prints a line or an order of its."""

import ast
import contextlib
import io
import json
import os
import re
import unicodedata

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import command_line
import plugin_folders
from anyplug.frontends import cli
from anyplug.frontends.cli import main
from random_examples import at_most

FORGED = "FORGED: Approve it? [y/N]"
FRAGMENTS = [
    f"\n{FORGED}",
    f"\r{FORGED}",
    f"\r\n{FORGED}",
    f"\u2028{FORGED}",
    f"\x85{FORGED}",
    f"\x0b{FORGED}",
    f"\x1b[2K\x1b[1G{FORGED}",
    "\x1b]8;;http://x\x07",
    "\x1b[31m",
    "\x9b2J",
    "\u202e",
    "\u2066",
    "\u200f",
    "\b" * 9,
    "\x00",
    "\x7f",
    "\ufeff",
    "\U000e0041",
    "[bold]",
    "[link=http://x]y[/link]",
    " " * 90 + FORGED,
    "x" * 77 + " " + FORGED,
    "漢" * 45 + FORGED,
    "y" * 3000,
    "\t",
    "plain",
]
hostile = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).map("".join)
PROGRESS = re.compile(r"\r\x1b\[K(?:[-|/\\] parsing its scripts)?")  # of our own, erased when it ends
OURS = frozenset("\n")


class Screen(io.StringIO):
    """A terminal that is narrow enough to break lines."""

    def isatty(self) -> bool:
        return True


def printed(*words: str, terminal: bool) -> str:
    """What a command prints, in this process, because there are many."""
    out, err = (Screen(), Screen()) if terminal else (io.StringIO(), io.StringIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        main.run([*words])
    return PROGRESS.sub("", out.getvalue() + err.getvalue())


def check(text: str, *, width: int = 0) -> None:
    raw = {char for char in text if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - OURS
    assert not raw, (raw, text)
    assert not [line for line in text.split("\n") if line.startswith("FORGED")], text
    if width:  # what the terminal would break; below an error nobody is asked
        ends = {
            line: sum(1 + (ord(char) >= 0x1100) for char in line[: max(line.rfind("FORGED"), 0)])
            for line in text.split("\n")
        }
        assert not [line for line, end in ends.items() if end >= width and not line.startswith(("error: ", "hint: "))]


def write_plugins(text: str) -> None:
    """One of each format, with a text in every field."""
    schema = {
        "type": "object",
        "properties": {text: {"type": "string", "description": text, "enum": [text], "default": text}},
    }
    about = {"name": "tool", "description": text, "input_schema": schema, "title": text}
    plugin_folders.cyclop(
        "plugins",
        "one",
        version=text,
        description=text,
        permissions=[text, f"filesystem:read:{text}"],
        entrypoint="run",
        tools=[about, about | {"name": text}, about | {"name": "other", "entrypoint": text}],
    )
    plugin_folders.write("plugins/odd/plugin.json", json.dumps({"name": text, "permissions": text, "tools": text}))
    plugin_folders.stavrobot(
        "plugins",
        "two",
        description=text,
        instructions=text,
        config={text: {"description": text, "required": True}},
        parameters={text: {"type": text, "description": text}},
        tool={"description": text},
        permissions=[text],
    )
    extension = {
        "name": "three",
        "version": text,
        "description": text,
        "exec": "./run",
        "args": [text, text],
        "language": text,
    }
    plugin_folders.write("plugins/three/extension.json", json.dumps(extension))
    plugin_folders.write("plugins/three/run", "#!/bin/sh\n", 0o755)
    servers = {
        "four": {"command": text, "args": [text], "env": {"SOME": text, text: "x"}, "cwd": text},
        text: {"url": text},
        "five": {"url": f"https://example.com/{text}", "headers": {text: text}},
        "six": {"command": "npx", "args": [text], "type": text},
    }
    plugin_folders.write("plugins/mcp/mcp.json", json.dumps({"mcpServers": servers}))
    plugin_folders.workbench(
        "plugins", "bench", package={"type": "commonjs", "name": text, "description": text, "version": text}
    )
    name = text.replace("/", "_").replace("\0", "")[:60].encode("utf-8", "ignore")[:200].decode("utf-8", "ignore")
    with contextlib.suppress(OSError):
        plugin_folders.cyclop("plugins", name or "x")
        plugin_folders.write(f"plugins/one/{name}.py", "pass")


COMMANDS = [
    ("list",),
    ("tools", "--all"),
    ("tools", "tool"),
    ("tools", "one"),
    ("check", "plugins/one"),
    ("check", "plugins/odd"),
    ("check", "plugins/two"),
    ("check", "plugins/three"),
    ("check", "plugins/mcp"),
    ("config", "two"),
    ("audit",),
    ("jobs",),
    *((command, name) for command in ("show", "approve") for name in ("one", "odd", "two", "three", "mcp", "bench")),
    ("remove", "plugins/three"),
    ("grant", "one", "network"),
    ("run",),
    ("logs", "one"),
    ("doctor", "--help"),
    ("secret", "two"),
    ("export", "one", "--to", "mcpb", "--output", "made.zip"),
    ("--json", "list"),
    ("--json", "show", "two"),
]


@pytest.mark.claim("text-people")
@pytest.mark.parametrize("terminal", [False, True])
@settings(max_examples=at_most(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=hostile)
def test_no_text_of_a_plugin_forges_a_line_or_orders_the_terminal(tmp_path, monkeypatch, terminal, text):
    folder = tmp_path / str(len(os.listdir(tmp_path)))
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ANYPLUG_HOME", str(folder / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    write_plugins(text)
    for words in COMMANDS:
        check(printed(*words, terminal=terminal))
    check(printed("call", text.replace("\0", ""), terminal=terminal))
    check(printed("show", text.replace("\0", ""), terminal=terminal))


@pytest.mark.claim("text-people")
@settings(max_examples=at_most(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=hostile)
@example(text="漢" * 45 + "FORGED: Approve it? [y/N]")
def test_the_terminal_breaks_no_line_of_an_approval(tmp_path, monkeypatch, text):
    folder = tmp_path / str(len(os.listdir(tmp_path)))
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ANYPLUG_HOME", str(folder / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    write_plugins(text)
    for name in ("one", "two", "three", "mcp"):
        check(printed("approve", name, terminal=True), width=80)


RUNNING = """#!/usr/bin/env python3
import json, sys
text = TEXT
def emit(**frame):
    print(json.dumps(frame), flush=True)
emit(type="hello", name="three", version=text, capabilities=["tools", "commands"])
sys.stderr.write(text + chr(10))
sys.stderr.flush()
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "hello_ack":
        emit(type="register_tool", name="shout", description=text, schema={"type": "object", "title": text})
        emit(type="register_tool", name=text, description=text, schema={})
        emit(type="register_command", name="go", description=text)
        emit(type="ready")
    elif frame["type"] == "command_invoked":
        emit(type="notify", level=text, message=text)
        emit(type="command_response", id=frame["id"], action="display", display=text, error=text)
    elif frame["type"] == "tool_call":
        emit(type="tool_result", id=frame["id"], content=[{"type": "text", "text": text}], is_error=True)
    elif frame["type"] == "shutdown":
        break
"""


@pytest.mark.claim("text-people")
def test_nothing_that_a_running_plugin_says_forges_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "".join(FRAGMENTS[:13]) + "end"
    plugin_folders.write(
        "three/extension.json", json.dumps({"name": "three", "version": "1", "description": "d", "exec": "./run"})
    )
    plugin_folders.write("three/run", RUNNING.replace("TEXT", repr(text)), 0o755)
    crash = f"#!/usr/bin/env python3\nimport sys\nsys.stderr.write({text!r})\nsys.exit(3)\n"
    plugin_folders.cyclop(".", "crash", crash)
    for words in (
        ("-e", "three", "show", "three"),
        ("-e", "three", "tools", "shout"),
        ("-e", "three", "call", "shout"),
        ("-e", "three", "run", "/go"),
        ("-e", "crash", "call", "crash"),
        ("-e", "crash", "logs", "crash"),
    ):
        done = command_line.run(*words)
        check(done.err)
        if words[2] not in {"call", "logs", "run"}:  # where all of stdout is what the plugin said
            check(done.out)
        seen = command_line.at_terminal(*words).seen.replace("\r\n", "\n")
        check(seen)


def test_the_command_line_prints_through_render_alone():
    folder = os.path.dirname(cli.__file__)
    allowed = {"render.py", "terminal.py", "main.py", "parsing.py", "eval.py"}  # our own words, or a program's
    for name in sorted(set(os.listdir(folder)) - allowed):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                tree = ast.parse(file.read())
            calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
            assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"], name
