"""The policy gate inside the real OpenCode, with a scripted model: what runs, what does not, what the model is told.

`make clients` installs OpenCode and runs these; elsewhere they are skipped.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import opencode
import pytest
from model_server import ModelServer, text_of

import plugin_folders
from anyplug.policy.opencode import installation
from daemon_double import ResidentHost

pytestmark = [
    pytest.mark.skipif(
        not opencode.IS_HERE, reason="ANYPLUG_CLIENTS names no folder with OpenCode; see `make clients`"
    ),
    pytest.mark.xdist_group("opencode"),  # one server is enough
]

DONE = {"text": "done"}
SDK_SERVER = str(Path(__file__).parent.parent / "sdk_server.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[opencode.Server]:
    with opencode.serving(tmp_path_factory.mktemp("opencode")) as server:
        yield server


class Gated:
    """A project with the gate, and a program that decides by the words of a command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = folder / "events.jsonl"
        (folder / ".cupcake").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        self.program = str(folder / "bin" / "decider")
        installation.install(str(folder), program=[self.program])

    def decides(self, body: str, name: str = "decider", **options: Any) -> None:
        head = f"#!{sys.executable} -SE\nimport json, os, sys, time\nevent = json.load(sys.stdin)\n"
        head += f"open({str(self.seen)!r}, 'a').write(json.dumps(event) + '\\n')\n"
        head += "kind, tool, args = event['hook_event_name'], event.get('tool'), event.get('args', {})\n"
        head += "say = lambda **decision: print(json.dumps(decision))\n"
        program = plugin_folders.write(str(self.folder / "bin" / name), head + body + "\n", 0o755)
        file = self.folder / ".cupcake" / "opencode.json"
        file.write_text(json.dumps({"cupcakePath": program, **options}))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.seen.read_text().splitlines()]


@pytest.fixture
def project(tmp_path: Path) -> Gated:
    return Gated(tmp_path / "project")


def bash(command: Any) -> dict[str, Any]:
    return {"tool": "bash", "args": {"command": command, "description": "a step"}}


def shapes(called: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Give of each call whether it was completed, and what the model was told of it."""
    states = [part["state"] for part in called]
    return [(state["status"], state.get("output", state.get("error"))) for state in states]


DECIDING = """
command = args.get('command', '')
if kind == 'PostToolUse':
    say(decision='block', reason='it holds a key') if 'sk-' in event['result']['output'] else say(decision='allow')
elif 'forbidden' in command:
    say(decision='deny', reason='no such thing')
elif 'changed' in command:
    say(decision='allow', updated_input={'command': 'echo modified'}, context=['the command was replaced'])
elif 'told' in command:
    say(decision='allow', context=['mind the gap'])
else:
    say(decision='allow')
"""


@pytest.mark.exercises("opencode-ai", "policies")
def test_calls_run_are_refused_and_modified_as_the_decision_says(server: opencode.Server, project: Gated) -> None:
    project.decides(DECIDING)
    script = [
        bash("echo fine"),
        bash("touch forbidden"),
        bash("echo changed"),
        bash("echo told"),
        bash("echo sk-1"),
        DONE,
    ]
    with ModelServer(script) as model:
        opencode.prepare(project.folder, "fake", model.url)
        called = server.converse(project.folder)
    assert shapes(called) == [
        ("completed", "fine\n"),
        ("error", "❌ Policy Violation\n\nno such thing"),
        ("completed", "modified\n\n\nPolicy context:\nthe command was replaced"),
        ("completed", "told\n\n\nPolicy context:\nmind the gap"),
        ("error", "❌ Policy Violation\n\nit holds a key"),
    ]
    assert model.tool_results == [told for _, told in shapes(called)]
    assert not (project.folder / "forbidden").exists()
    first, after = project.events[:2]
    assert first == {
        "hook_event_name": "PreToolUse",
        "session_id": called[0]["sessionID"],
        "cwd": str(project.folder),
        "tool": "bash",
        "args": {"command": "echo fine", "description": "a step"},
        "call_id": "call_1",
        "agent": "build",
    }
    assert after["result"] == {"success": True, "output": "fine\n", "exit_code": 0}


def test_context_of_a_tool_that_failed_and_of_a_prompt_reaches_the_model(
    server: opencode.Server, project: Gated
) -> None:
    project.decides("say(decision='allow', context=['for ' + (tool or 'the prompt')])", "anyplug")
    script = [{"tool": "read", "args": {"filePath": str(project.folder / "nothing")}}, DONE]
    with ModelServer(script) as model:
        opencode.prepare(project.folder, "fake", model.url)
        [called] = server.converse(project.folder)
    assert called["state"]["status"] == "error"
    assert model.tool_results == [f"{called['state']['error']}\n\nPolicy context:\nfor read"]
    users = [text_of(message) for message in model.requests[0]["messages"] if message["role"] == "user"]
    assert "Policy context:\nfor the prompt" in users[-1]
    assert "do it" in users[-1]


def held(request: dict[str, Any]) -> str:
    """Find the request that the model was told about last."""
    told = [text_of(message) for message in request["messages"] if message["role"] == "tool"]
    return re.findall(r'"request": "(\w+)"', "\n".join(told))[-1]


ASKING = "say(decision='ask', reason='pushes are seen') if kind == 'PreToolUse' else say(decision='allow')"
ASK_FOR_IT = {"tool": "policy_approval", "args": {"request": held}}


@pytest.mark.parametrize("reply", ["once", "reject"])
def test_ask_opens_opencodes_own_dialog(server: opencode.Server, project: Gated, reply: str) -> None:
    project.decides(ASKING)
    with ModelServer([bash("touch pushed"), ASK_FOR_IT, bash("touch pushed"), bash("touch pushed"), DONE]) as model:
        opencode.prepare(project.folder, "fake", model.url)
        conversation = server.begin(project.folder)
        dialog = conversation.dialog()
        assert not (project.folder / "pushed").exists()
        conversation.reply(dialog, reply)
        first, asked, *others = shapes(conversation.end())
    assert "policy_approval" in model.offered
    assert dialog["permission"] == "policy_approval: bash: touch pushed (pushes are seen)"
    assert first[1].startswith("⚠️  Approval Required\n\npushes are seen\n\nTo ask the person, call the tool")
    if reply == "once":
        assert asked == ("completed", "The person approved it. Repeat the call unchanged.")
        assert others[0][0] == "completed"
        assert others[1][1].startswith("⚠️  Approval Required")
    else:
        assert asked == ("error", "The user rejected permission to use this specific tool call.")
    assert (project.folder / "pushed").exists() == (reply == "once")


@pytest.mark.parametrize("rules", [{"permission": "allow"}, {"agent": {"build": {"permission": {"*": "allow"}}}}])
def test_the_dialog_opens_even_where_everything_else_is_allowed(
    server: opencode.Server, project: Gated, rules: dict[str, Any]
) -> None:
    project.decides(ASKING)
    with ModelServer([bash("touch pushed"), ASK_FOR_IT, DONE]) as model:
        opencode.prepare(project.folder, "fake", model.url, **rules)
        conversation = server.begin(project.folder)
        conversation.reply(conversation.dialog(), "reject")
        conversation.end()
    assert not (project.folder / "pushed").exists()


def test_the_resident_host_decides_over_one_connection(server: opencode.Server, project: Gated) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        is_forbidden = "forbidden" in str(request["event"].get("args"))
        decision = {"decision": "deny", "reason": "no"} if is_forbidden else {"decision": "allow"}
        return {"id": request["id"], "result": {"exit": 0, "decision": decision, "said": []}}

    project.decides("sys.exit(5)", "anyplug")
    together = {"tools": [bash("echo one"), bash("touch forbidden")]}
    with ModelServer([together, bash("echo two"), DONE]) as model, ResidentHost(server.home, answer) as host:
        opencode.prepare(project.folder, "fake", model.url)
        called = server.converse(project.folder)
        server.ask("POST", "/instance/dispose", project.folder)  # the gate lets go of the connection
    assert sorted(shapes(called)) == [
        ("completed", "one\n"),
        ("completed", "two\n"),
        ("error", "❌ Policy Violation\n\nno"),
    ]
    assert [attached["cwd"] for attached in host.attached] == [str(project.folder)]
    assert not project.seen.exists()


FAILURES = {
    "timeout": ("time.sleep(30)", "Policy evaluation timed out after 700ms. Consider optimizing policies or "),
    "crash": ("os.kill(os.getpid(), 11)", "Cupcake exited with code SIGSEGV"),
    "broken policy": ("sys.exit('safety.rego:3: rego_parse_error')", "Cupcake exited with code 1\n\nsafety.rego:3: "),
    "no JSON": ("print('oops')", "Policy evaluation gave no valid JSON: "),
}


@pytest.mark.parametrize("mode", ["closed", "open"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failing_evaluation_denies_when_closed_and_allows_when_open(
    server: opencode.Server, project: Gated, failure: str, mode: str
) -> None:
    body, message = FAILURES[failure]
    project.decides(body, failMode=mode, timeoutMs=700 if failure == "timeout" else 20000)
    with ModelServer([bash("touch ran"), DONE]) as model:
        opencode.prepare(project.folder, "fake", model.url)
        [(status, told)] = shapes(server.converse(project.folder))
    assert (project.folder / "ran").exists() == (mode == "open")
    assert status == ("completed" if mode == "open" else "error")
    assert mode == "open" or told.startswith(message)


def test_a_missing_program_denies(server: opencode.Server, project: Gated) -> None:
    project.decides("")
    (project.folder / "bin" / "decider").unlink()
    with ModelServer([bash("touch ran"), DONE]) as model:
        opencode.prepare(project.folder, "fake", model.url)
        [(status, told)] = shapes(server.converse(project.folder))
    assert (status, told.startswith("Cannot start ")) == ("error", True)
    assert not (project.folder / "ran").exists()


def test_the_person_sees_a_refusal_on_the_screen(server: opencode.Server, project: Gated) -> None:
    project.decides(DECIDING, toastDurationMs=1500)
    with ModelServer([bash("touch forbidden"), DONE]) as model:
        opencode.prepare(project.folder, "fake", model.url)
        with server.listening(project.folder) as heard:
            server.converse(project.folder)
    toasts = [event["properties"] for event in heard if event["type"] == "tui.toast.show"]
    assert toasts == [{"title": "Policy Violation", "message": "no such thing", "variant": "error", "duration": 1500}]


@pytest.fixture
def copy_for_all(server: opencode.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(server.config))
    yield installation.install(program=["/nowhere/anyplug"]).path
    installation.remove()


@pytest.mark.parametrize("own", ["whole", "broken", "none"])
def test_one_copy_gates_whichever_of_two_can_be_loaded(
    server: opencode.Server, project: Gated, copy_for_all: str, own: str
) -> None:
    project.decides(DECIDING)
    [copy] = [
        Path(found.path) for found in installation.installed_copies(str(project.folder)) if found.scope == "project"
    ]
    if own == "broken":
        copy.write_text(copy.read_text() + "}")
    if own == "none":
        copy.unlink()
    with ModelServer([bash("touch forbidden"), bash("echo fine"), DONE]) as model:
        opencode.prepare(project.folder, "fake", model.url)
        called = server.converse(project.folder)
    assert shapes(called) == [("error", "❌ Policy Violation\n\nno such thing"), ("completed", "fine\n")]
    assert [event["hook_event_name"] for event in project.events] == ["PreToolUse", "PreToolUse", "PostToolUse"]


def test_tools_of_a_subagent_pass_the_gate(server: opencode.Server, project: Gated) -> None:
    project.decides(DECIDING)
    task = {"tool": "task", "args": {"description": "d", "prompt": "p", "subagent_type": "general"}}
    with ModelServer([task, bash("touch forbidden"), DONE, DONE]) as model:
        opencode.prepare(project.folder, "fake", model.url)
        outer, inner = server.converse(project.folder)
    assert outer["tool"] == "task"
    assert inner["sessionID"] != outer["sessionID"]
    assert shapes([inner]) == [("error", "❌ Policy Violation\n\nno such thing")]
    assert not (project.folder / "forbidden").exists()
    assert [event["agent"] for event in project.events if event["tool"] == "bash"] == ["general"]


PATCH = "*** Begin Patch\n*** Add File: secret.txt\n+hello\n*** End Patch"


def test_apply_patch_passes_the_gate_whole(server: opencode.Server, project: Gated) -> None:
    """Models of this kind get it in place of `edit` and `write`."""
    project.decides("say(decision='deny', reason='secrets stay') if 'secret' in str(args) else say(decision='allow')")
    with ModelServer([{"tool": "apply_patch", "args": {"patchText": PATCH}}, DONE]) as model:
        opencode.prepare(project.folder, "gpt-5-fake", model.url)
        called = server.converse(project.folder)
    assert "write" not in model.offered
    assert shapes(called) == [("error", "❌ Policy Violation\n\nsecrets stay")]
    assert project.events[0]["args"] == {"patchText": PATCH}
    assert not (project.folder / "secret.txt").exists()


def test_a_tool_of_an_mcp_server_passes_the_gate_with_its_parts(server: opencode.Server, project: Gated) -> None:
    project.decides("say(decision='allow', updated_input={'b': 40}) if kind == 'PreToolUse' else say(decision='allow')")
    command = [sys.executable, SDK_SERVER, "stdio"]
    with ModelServer([{"tool": "my_numbers_add", "args": {"a": 2, "b": 2}}, DONE]) as model:
        numbers = {"type": "local", "command": command, "enabled": True, "timeout": 30000}
        opencode.prepare(project.folder, "fake", model.url, mcp={"my numbers": numbers})
        [(status, told)] = shapes(server.converse(project.folder))
    assert (status, told) == ("completed", "42")
    first, after = project.events
    assert first["mcp"] == {"server": "my numbers", "tool": "add"}
    assert after["result"] == {"success": True, "output": "42"}


def test_where_nobody_can_be_asked_the_call_does_not_run(tmp_path: Path, project: Gated) -> None:
    """`opencode run` rejects every question by itself."""
    project.decides(ASKING)
    with ModelServer([bash("touch pushed"), ASK_FOR_IT, bash("touch pushed"), DONE]) as model:
        opencode.prepare(project.folder, "fake", model.url)
        done = subprocess.run(
            [opencode.PROGRAM, "run", "--format", "json", "do it"],
            cwd=project.folder,
            env={**opencode.environment(tmp_path / "scratch"), "PWD": str(project.folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=opencode.PATIENCE_S,
            check=False,
        )
    assert "The user rejected permission to use this specific tool call." in done.stdout
    assert not (project.folder / "pushed").exists()
