"""What the README begins with, done as it says: the demo from the built package, and a tool in Claude Code.

`make clients` runs this, because the package's dependencies come from a registry.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CLIENTS = os.environ.get("ANYPLUG_CLIENTS", "")
REPOSITORY = Path(__file__).parent.parent.parent
PATIENCE_S = 300.0

pytestmark = pytest.mark.skipif(not CLIENTS, reason="ANYPLUG_CLIENTS names no folder with the clients")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    [built] = (tmp_path / "dist").glob("*.whl")
    return built


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has uv and Claude Code, and nothing else."""
    user = tmp_path / "newcomer"
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("uv", "uvx"):
        (programs / name).symlink_to(Path(sys.executable).parent / name)
    (programs / "claude").symlink_to(Path(CLIENTS).absolute() / "node_modules" / ".bin" / "claude")
    user.mkdir()
    for name in ("ANYPLUG_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "VIRTUAL_ENV", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("PATH", f"{user}/.local/bin:{programs}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    return user


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        words, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_uvx_runs_the_demo_from_the_built_package(wheel: Path, machine: Path) -> None:
    assert f"uvx --from ./dist/{wheel.name} anyplug demo" in (REPOSITORY / "README.md").read_text()
    shown = run("uvx", "--from", str(wheel), "anyplug", "demo", cwd=machine)
    assert "its chain is intact" in shown
    assert "tier 2: also asks you" in shown


def test_three_commands_put_a_tool_into_claude_code(wheel: Path, machine: Path) -> None:
    run("uv", "tool", "install", str(wheel), cwd=machine)
    run("anyplug", "install", str(REPOSITORY / "examples" / "word-count"), "--yes", cwd=machine)
    said = run("anyplug", "connect", "claude", "--yes", cwd=machine)
    assert "tested: it starts, and offers 1 tool: word_count" in said
    try:
        listed = run("claude", "mcp", "list", cwd=machine)
    finally:
        run("anyplug", "stop", cwd=machine)
    assert re.search(rf"^anyplug: {machine}/\.local/bin/anyplug mcp --resident - .*Connected", listed, re.MULTILINE)
