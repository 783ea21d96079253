"""Claude Code and Codex themselves obey the policies, by the hooks that `connect --policy` wrote. See `make clients`.

None of them is logged in: a scripted model on loopback tells them which commands to run.
"""

import os
import subprocess
from pathlib import Path

import pytest
from scripted_agents import ScriptedModel

import plugin_folders
from command_line import ok

CLIENTS = os.environ.get("ANYPLUG_CLIENTS", "")
PATIENCE_S = 120.0

pytestmark = pytest.mark.skipif(not CLIENTS, reason="ANYPLUG_CLIENTS names no folder with the clients")

SCRIPT = ["npm publish --dry-run", "touch allowed", "git push --force"]


def agent(name: str, *words: str, **variables: str) -> str:
    """Run an agent to its end; give what it said."""
    program = os.path.join(os.path.abspath(CLIENTS), "node_modules", ".bin", name)
    done = subprocess.run(
        [program, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "NO_COLOR": "1", **variables},
    )
    return f"{done.stdout}\n{done.stderr}"


@pytest.fixture(autouse=True)
def policies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "CLAUDECODE"):
        monkeypatch.delenv(name, raising=False)
    subprocess.run(["git", "init", "--quiet", "."], check=True)
    ok("policy", "init", "--harness", "claude")


def outcomes(name: str) -> list[tuple[str, str]]:
    return [
        (r["outcome"], r["by"].split()[0])
        for r in ok("audit", "--kind", "call", "--json", "--agent", name, "--tool", "Bash").json
    ]


@pytest.mark.exercises("@anthropic-ai/claude-code", "policies")
def test_claude_code_runs_what_policies_allow_and_nothing_else():
    ok("connect", "claude", "--policy")
    with ScriptedModel(SCRIPT) as model:
        said = agent(
            "claude", "--print", "--model", "scripted", "--permission-mode", "bypassPermissions", "go on",
            ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="none", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            IS_SANDBOX="1",
        )  # fmt: skip
    assert "done" in said, said
    assert "publishing is done by people" in model.told
    assert Path("allowed").exists()
    assert outcomes("claude") == [("denied", "policy:NO-PUBLISHING"), ("asked", "policy:ASK-FORCE-PUSH")]


@pytest.mark.exercises("@openai/codex", "policies")
def test_codex_runs_what_policies_allow_and_refuses_what_it_cannot_ask_about():
    ok("connect", "codex", "--policy")
    with ScriptedModel(SCRIPT) as model:
        plugin_folders.write(
            os.path.expanduser("~/.codex/config.toml"),
            f"""model = "scripted"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "{model.url}/v1"
wire_api = "responses"
[projects."{os.getcwd()}"]
trust_level = "trusted"
""",
        )
        said = agent(
            "codex", "exec", "--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox", "go on"
        )
    assert "done" in said, said
    assert "publishing is done by people" in model.told
    assert "Codex cannot ask" in model.told
    assert Path("allowed").exists()
    assert outcomes("codex") == [("denied", "policy:NO-PUBLISHING"), ("asked", "policy:ASK-FORCE-PUSH")]
