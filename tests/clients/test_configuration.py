"""The clients themselves read what `connect` and `export` wrote. `make clients` installs them and runs this.

None of them is logged in. They list servers, start them and look at bundles; a small stand-in is what they start.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import anyplug
import plugin_folders

CLIENTS = os.environ.get("ANYPLUG_CLIENTS", "")
PATIENCE_S = 120.0  # for one command of a client, the first of which unpacks itself

pytestmark = pytest.mark.skipif(not CLIENTS, reason="ANYPLUG_CLIENTS names no folder with the clients")

# The program itself, but for `mcp`: there it is a server with one tool, which leaves nothing behind.
STAND_IN = f"""#!{sys.executable}
import json, sys
if "mcp" not in sys.argv:
    sys.path.insert(0, {os.path.dirname(os.path.dirname(anyplug.__file__))!r})
    from anyplug.frontends.cli.main import main
    main()
for line in sys.stdin:
    asked = json.loads(line)
    answer = {{}}
    if asked.get("method") == "initialize":
        version = asked["params"]["protocolVersion"]
        about = {{"name": "anyplug", "version": "0"}}
        answer = {{"protocolVersion": version, "capabilities": {{"tools": {{}}}}, "serverInfo": about}}
    if asked.get("method") == "tools/list":
        answer = {{"tools": [{{"name": "hello", "inputSchema": {{"type": "object"}}}}]}}
    if "id" in asked:
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": answer}}), flush=True)
"""

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the program or a client, in a home where nobody has been; give what it printed."""
    plugin_folders.write(str(tmp_path / "bin" / "anyplug"), STAND_IN, 0o755)
    programs = os.path.join(os.path.abspath(CLIENTS), "node_modules", ".bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{programs}", prepend=":")
    monkeypatch.delenv("ANYPLUG_HOME")
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "GEMINI_CLI_TRUST_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "OPENCODE_DISABLE_AUTOUPDATE", "NO_COLOR"):
        monkeypatch.setenv(name, "1")

    def run(*words: str) -> str:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + (done.stderr if words[0] == "gemini" else ""))

    return run


def trust_for_codex() -> None:
    plugin_folders.write(
        os.path.expanduser("~/.codex/config.toml"), f'[projects."{os.getcwd()}"]\ntrust_level = "trusted"\n'
    )


def test_claude_code_starts_the_server_and_forgets_it(run: Run):
    run("anyplug", "connect", "claude", "--yes")
    assert re.search(r"^anyplug: \S*anyplug mcp --resident - .*Connected", run("claude", "mcp", "list"), re.MULTILINE)
    kept = json.loads(Path("~/.claude.json").expanduser().read_text())  # the client has written much to it by now
    assert len(kept) > 1
    run("anyplug", "connect", "claude", "--remove", "--yes")
    assert "anyplug" not in run("claude", "mcp", "list")
    kept.pop("mcpServers")
    assert kept.items() <= json.loads(Path("~/.claude.json").expanduser().read_text()).items()


def test_claude_code_finds_the_projects_server_and_asks_for_it(run: Run):
    plugin_folders.write(
        os.path.expanduser("~/.local/share/anyplug/settings.toml"), '[profiles.work]\nplugins = ["hello"]\n'
    )
    run("anyplug", "connect", "claude", "--project", "--profile", "work", "--yes")
    assert re.search(
        r"anyplug-work: \S*anyplug mcp --resident --profile work - ⏸ Pending approval", run("claude", "mcp", "list")
    )


def test_codex_lists_the_server_and_forgets_it(run: Run):
    trust_for_codex()
    before = Path("~/.codex/config.toml").expanduser().read_bytes()
    run("anyplug", "connect", "codex", "--yes", "--surface", "search")
    [server] = json.loads(run("codex", "mcp", "list", "--json"))
    assert (server["name"], server["enabled"]) == ("anyplug", True)
    assert os.path.isabs(server["transport"]["command"])
    assert server["transport"]["args"] == ["mcp", "--resident", "--surface", "search"]
    run("anyplug", "connect", "codex", "--remove", "--yes")
    assert json.loads(run("codex", "mcp", "list", "--json")) == []
    assert Path("~/.codex/config.toml").expanduser().read_bytes() == before


def test_codex_lists_the_projects_server_once_the_project_is_trusted(run: Run):
    run("anyplug", "connect", "codex", "--project", "--yes")
    assert json.loads(run("codex", "mcp", "list", "--json")) == []
    trust_for_codex()
    assert [server["name"] for server in json.loads(run("codex", "mcp", "list", "--json"))] == ["anyplug"]


@pytest.mark.parametrize("options", [(), ("--project",)])
def test_opencode_starts_the_server(run: Run, options: tuple[str, ...]):
    run("anyplug", "connect", "opencode", "--yes", *options)
    said = run("opencode", "mcp", "list")
    assert re.search(r"✓ anyplug\s+connected", said)
    assert "anyplug mcp --resident" in said
    run("anyplug", "connect", "opencode", "--remove", "--yes", *options)
    assert "anyplug mcp" not in run("opencode", "mcp", "list")


@pytest.mark.exercises("@google/gemini-cli", "connect")
@pytest.mark.parametrize("options", [(), ("--project",)])
def test_gemini_cli_starts_the_server_where_it_trusts_the_folder(
    run: Run, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    run("anyplug", "connect", "gemini", "--yes", *options)
    assert re.search(r"anyplug: \S*anyplug mcp --resident \(stdio\) - Disabled", run("gemini", "mcp", "list"))
    monkeypatch.setenv("GEMINI_CLI_TRUST_WORKSPACE", "true")
    assert re.search(r"✓ anyplug: \S*anyplug mcp --resident \(stdio\) - Connected", run("gemini", "mcp", "list"))


@pytest.mark.exercises("@anthropic-ai/mcpb", "connect")
def test_the_mcpb_program_accepts_our_bundles(run: Run, root: str):
    for folder in (plugin_folders.cyclop(root, "hello"), plugin_folders.stavrobot(root, "bundle")):
        name = os.path.basename(folder)
        run("anyplug", "--plugin", folder, "export", name, "--to", "mcpb", "--output", f"{name}.mcpb")
        run("mcpb", "unpack", f"{name}.mcpb", f"{name}-unpacked")
        assert "validation passes" in run("mcpb", "validate", os.path.join(f"{name}-unpacked", "manifest.json"))
        programs = list(Path(f"{name}-unpacked", "plugin", name).rglob("run"))
        assert [os.access(program, os.X_OK) for program in programs] == [True]


def test_claude_code_accepts_our_bundles_and_starts_what_is_in_them(run: Run, root: str):
    for folder in (plugin_folders.cyclop(root, "hello"), plugin_folders.stavrobot(root, "bundle")):
        name, output = os.path.basename(folder), os.path.abspath(f"{os.path.basename(folder)}-plugin")
        words = ("--to", "claude-plugin", "--author", "Ada", "--output", output)
        run("anyplug", "--plugin", folder, "export", name, *words)
        assert "Validation passed" in run("claude", "plugin", "validate", "--strict", output)
        said = run("claude", "--plugin-dir", output, "mcp", "list")
        assert f"anyplug --no-discover --plugin {output}/plugin/{name} mcp - ✔ Connected" in said


def test_codex_installs_our_agent_plugin(run: Run, root: str):
    plugin_folders.cyclop(root, "hello")
    market = os.path.abspath("market")
    run("anyplug", "--plugin", f"{root}/hello", "export", "hello", "--to", "agent-plugin", "--output", "market/hello")
    offer = {
        "name": "hello",
        "source": {"source": "local", "path": "./hello"},
        "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
        "category": "Productivity",
    }
    plugin_folders.write(
        f"{market}/.agents/plugins/marketplace.json", json.dumps({"name": "local", "plugins": [offer]})
    )
    os.makedirs(os.path.expanduser("~/.codex"), exist_ok=True)
    run("codex", "plugin", "marketplace", "add", market)
    run("codex", "plugin", "add", "hello@local")
    [server] = json.loads(run("codex", "mcp", "list", "--json"))
    arguments = server["transport"]["args"]
    assert (server["transport"]["command"], arguments[:2], arguments[3:]) == (
        "anyplug", ["--no-discover", "--plugin"], ["mcp"],
    )  # fmt: skip
    assert os.path.exists(os.path.join(arguments[2], "plugin.json"))
