"""OpenCode's own tools, put to policies by the real engine: in the resident host, and in a process for each call."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import opencode
import pytest
from model_server import ModelServer

import command_line
import plugin_folders
import processes
from anyplug.frontends.daemon.locate import Address
from anyplug.policy import accepted_copies
from anyplug.policy.authoring.starter import EVALUATE
from anyplug.policy.opencode import installation

pytestmark = [
    pytest.mark.skipif(
        not opencode.IS_HERE, reason="ANYPLUG_CLIENTS names no folder with OpenCode; see `make clients`"
    ),
    pytest.mark.xdist_group("opencode"),
]

POLICY = """# METADATA
# scope: package
# custom:
#   routing:
#     required_events: ["PreToolUse"]
#     required_tools: ["Bash"]
package cupcake.policies.opencode.words

import rego.v1

command := input.tool_input.command

deny contains {"rule_id": "NO", "reason": "no such thing", "severity": "HIGH"} if contains(command, "forbidden")

modify contains decision if {
	contains(command, "changed")
	decision := {
		"rule_id": "CHANGE", "reason": "better so", "severity": "LOW", "priority": 50,
		"updated_input": {"command": "echo modified"},
	}
}

add_context contains "mind the gap" if contains(command, "told")
"""
SCRIPT = ("echo fine", "touch forbidden", "echo changed", "rm -rf .cupcake")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("opencode-engine")


@pytest.fixture(scope="module")
def server(scratch: Path) -> Iterator[opencode.Server]:
    with opencode.serving(scratch) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, server: opencode.Server) -> Path:
    folder = gated(tmp_path / "project", server, POLICY)
    accepted_copies.accept(str(server.home), str(folder / ".cupcake"), trusted=True)
    return folder


def gated(folder: Path, server: opencode.Server, policy: str) -> Path:
    plugin_folders.write(str(folder / ".cupcake" / "policies" / "opencode" / "words.rego"), policy)
    plugin_folders.write(str(folder / ".cupcake" / "system" / "evaluate.rego"), EVALUATE)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    installation.install(str(folder), home=str(server.home), program=[sys.executable, "-m", "anyplug"])
    return folder


@pytest.mark.parametrize("is_up", [True, False])
def test_the_engine_decides_about_every_call(
    server: opencode.Server, scratch: Path, project: Path, is_up: bool
) -> None:
    if is_up:
        serving = command_line.start("--home", str(server.home), "serve", env=opencode.environment(scratch))
    address = Address(str(server.home))
    try:
        assert not is_up or processes.until(address.is_held)
        script = [{"tool": "bash", "args": {"command": one, "description": "a step"}} for one in SCRIPT]
        with ModelServer([*script, {"text": "done"}]) as model:
            opencode.prepare(project, "fake", model.url)
            called = server.converse(project)
    finally:
        connection = address.connect()  # the gate may have started one by itself
        if connection is not None:
            connection.close()
            command_line.ok("--home", str(server.home), "stop")
        if is_up:
            command_line.finish(serving)
    told = [part["state"].get("output", part["state"].get("error")) for part in called]
    assert [part["state"]["status"] for part in called] == ["completed", "error", "completed", "error"]
    assert told[:3] == ["fine\n", "❌ Policy Violation\n\nno such thing", told[2]]
    assert told[2].startswith("modified\n")
    assert "an agent may not change the policies that bind it" in told[3]
    assert not (project / "forbidden").exists()
    assert (project / ".cupcake").is_dir()


def test_why_a_broken_policy_refuses_a_prompt_is_on_the_terminal(
    server: opencode.Server, scratch: Path, tmp_path: Path
) -> None:
    project = gated(tmp_path / "project", server, "package x\ndeny contains")  # none was accepted that could decide
    plugin_folders.write(str(project / ".cupcake" / "opencode.json"), '{"timeoutMs": 60000}')
    with ModelServer([{"text": "done"}]) as model:
        opencode.prepare(project, "fake", model.url)
        done = subprocess.run(
            [opencode.PROGRAM, "run", "do it"],
            cwd=project,
            env={**opencode.environment(scratch), "PWD": str(project)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=opencode.PATIENCE_S * 2,
            check=False,
        )
    connection = Address(str(server.home)).connect()
    if connection is not None:
        connection.close()
        command_line.ok("--home", str(server.home), "stop")
    assert done.returncode != 0
    assert "words.rego:2:14: rego_parse_error" in done.stderr
