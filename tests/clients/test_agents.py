"""Agents that nobody here wrote call plugins' tools for real. `make clients` installs them and runs this.

The official TypeScript SDK in both eras, the MCP Inspector's command line, OpenCode with a scripted model, and what
other programs start from our bundles; over pipes through the resident host, and over HTTP.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import opencode
import pytest
from model_server import ModelServer

import anyplug
import daemons
import plugin_folders
import zot_folders
from command_line import last_record, ok
from daemons import resident
from mcp_clients import OURS

CLIENTS = os.environ.get("ANYPLUG_CLIENTS", "")
PATIENCE_S = 120.0

pytestmark = pytest.mark.skipif(not CLIENTS, reason="ANYPLUG_CLIENTS names no folder with the clients")

HELLO = plugin_folders.python("print(json.dumps({'result': 'Hello, ' + given['input'].get('name', 'you')}))")
GREETING = """
hello("commands")
tool("asks")
command("greet")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        say(frame, "it was allowed")
    elif frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="prompt", prompt="Greet " + frame["args"])
"""
NAME = {"type": "object", "properties": {"name": {"type": "string"}}}
TOOLS = [{"name": "hello", "description": "Greets.", "input_schema": NAME}]


@pytest.fixture
def plugins(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two plugins, one of which asks; and the program on the PATH. Gives the program."""
    source = os.path.dirname(os.path.dirname(anyplug.__file__))
    program = f'#!/bin/sh\nPYTHONPATH={source} exec {sys.executable} -m anyplug "$@"\n'
    path = plugin_folders.write(str(tmp_path / "bin" / "anyplug"), program, 0o755)
    programs = os.path.join(os.path.abspath(CLIENTS), "node_modules", ".bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{programs}", prepend=":")
    plugin_folders.cyclop(str(home / "plugins"), "hello", HELLO, tools=TOOLS)
    zot_folders.extension(str(home / "plugins"), "greeter", GREETING)
    ok("approve", "hello", "--yes")
    ok("approve", "greeter", "--yes")
    return path


def run(*words: str, **variables: str) -> str:
    """Run another program to its end; give what it printed."""
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "NO_COLOR": "1", **variables},
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def token() -> str:
    return (Path(os.environ["ANYPLUG_HOME"]) / "http-token").read_text().strip()


@pytest.mark.exercises("@modelcontextprotocol/sdk", "tools", "approvals", "prompts")
@pytest.mark.exercises("@modelcontextprotocol/client", "tools", "approvals", "prompts")
@pytest.mark.parametrize("transport", ["pipes", "http"])
@pytest.mark.parametrize(("sdk", "mode"), [(1, "legacy"), (2, "legacy"), (2, "auto")])
def test_the_typescript_sdk_lists_calls_asks_and_runs_commands(
    plugins: str, tmp_path: Path, sdk: int, mode: str, transport: str
) -> None:
    plugin_folders.write(str(tmp_path / "agent" / "agent.mjs"), (Path(__file__).parent / "agent.mjs").read_text())
    (tmp_path / "agent" / "node_modules").symlink_to(os.path.join(os.path.abspath(CLIENTS), "node_modules"))
    with resident("--http", "127.0.0.1:0"):
        where: dict[str, Any] = {"command": [plugins, "mcp", "--resident"]}
        if transport == "http":
            where = {"url": f"{daemons.status()['url']}/mcp", "token": token()}
        calls = [["hello", {"name": "Ada"}], ["asks", {}], ["nothing", {}]]
        said = json.dumps({"sdk": sdk, "mode": mode, "calls": calls, **where})
        seen = json.loads(run("node", str(tmp_path / "agent" / "agent.mjs"), said))
    assert set(seen["tools"]) == {"hello", "asks", *OURS}
    assert seen["prompts"] == ["greet"]
    greeted, asked, missing = seen["calls"]
    assert greeted["content"] == [{"type": "text", "text": "Hello, Ada"}]
    assert asked["content"] == [{"type": "text", "text": "it was allowed"}]
    assert missing["isError"]
    assert missing["_meta"]["anyplug/error"]["code"] == "not_found"
    assert seen["prompt"]["messages"][0]["content"]["text"] == "Greet Ada"
    assert "May plugin 'greeter' run 'asks'?" in seen["asked"][0]
    if sdk == 2:
        assert seen["version"] == ("2026-07-28" if mode == "auto" else "2025-11-25")


@pytest.mark.exercises("@modelcontextprotocol/inspector", "tools")
@pytest.mark.parametrize("transport", ["pipes", "http"])
def test_the_inspector_lists_and_calls(plugins: str, transport: str) -> None:
    with resident("--http", "127.0.0.1:0"):
        target = [plugins, "--home", os.environ["ANYPLUG_HOME"], "mcp", "--resident"]  # it hands on few variables
        if transport == "http":
            target = [f"{daemons.status()['url']}/mcp", "--header", f"Authorization: Bearer {token()}"]
        inspect = ("mcp-inspector", "--cli", *target)
        listed = json.loads(run(*inspect, "--method", "tools/list"))
        assert {tool["name"] for tool in listed["tools"]} == {"hello", "asks", *OURS}
        words = ("--method", "tools/call", "--tool-name", "hello", "--tool-arg", "name=Ada")
        called = json.loads(run(*inspect, *words))
        assert called["content"] == [{"type": "text", "text": "Hello, Ada"}]
        assert daemons.status()["calls"] == 1


@pytest.mark.exercises("@anthropic-ai/claude-code", "connect")
@pytest.mark.exercises("@openai/codex", "connect")
def test_claude_code_and_codex_see_the_real_server(plugins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    with resident():
        ok("connect", "claude", "--yes")
        ok("connect", "codex", "--yes")
        assert re.search(r"^anyplug: .*mcp --resident - .*Connected", run("claude", "mcp", "list"), re.MULTILINE)
        [server] = json.loads(run("codex", "mcp", "list", "--json"))
        assert (server["name"], server["enabled"]) == ("anyplug", True)
        # What Codex would start, started.
        started = [server["transport"]["command"], *server["transport"]["args"]]
        listed = json.loads(run("mcp-inspector", "--cli", *started, "--method", "tools/list"))
        assert "hello" in {tool["name"] for tool in listed["tools"]}


@pytest.mark.exercises("opencode-ai", "connect", "tools")
def test_opencode_calls_a_plugins_tool_through_what_connect_wrote(
    plugins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "scratch" / "config"))
    script = [{"tool": "anyplug_hello", "args": {"name": "Ada"}}, {"text": "done"}]
    with resident(), ModelServer(script) as model:
        opencode.prepare(project, "fake", model.url)
        ok("connect", "opencode", "--project", "--yes")
        done = subprocess.run(
            [opencode.PROGRAM, "run", "--format", "json", "greet Ada"],
            cwd=project,
            env={
                **opencode.environment(tmp_path / "scratch"),
                **{name: os.environ[name] for name in ("ANYPLUG_HOME", "HOME")},
                "PWD": str(project),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert model.tool_results == ["Hello, Ada"], done.stdout + done.stderr
        assert {"anyplug_hello", "anyplug_asks"} <= model.offered
        record = last_record()
    assert (record["tool"], record["outcome"]) == ("hello", "done")
    assert record["attachment"].startswith("mcp-")


@pytest.mark.parametrize("kind", ["mcpb", "claude-plugin", "agent-plugin"])
def test_a_tool_is_called_through_an_exported_bundle(plugins: str, root: str, kind: str) -> None:
    folder = plugin_folders.cyclop(root, "exported", HELLO, tools=[{**TOOLS[0], "name": "exported"}])
    output = os.path.abspath("bundle.mcpb" if kind == "mcpb" else "bundle")
    ok("--plugin", folder, "export", "exported", "--to", kind, "--author", "Ada", "--output", output)
    if kind == "mcpb":
        run("mcpb", "unpack", output, "unpacked")
        output = os.path.abspath("unpacked")
        server = json.loads(Path(output, "manifest.json").read_text())["server"]["mcp_config"]
    else:
        file = Path(output, ".mcp.json" if kind == "claude-plugin" else "mcp.json")
        [server] = json.loads(file.read_text())["mcpServers"].values()
    words = [server["command"], *server["args"]]
    started = [re.sub(r"\$\{\w+\}", output, word) for word in words]
    called = run(
        "mcp-inspector",
        "--cli",
        *started,
        "--method",
        "tools/call",
        "--tool-name",
        "exported",
        "--tool-arg",
        "name=Ada",
    )
    assert json.loads(called)["content"] == [{"type": "text", "text": "Hello, Ada"}]
