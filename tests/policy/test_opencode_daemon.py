"""The OpenCode plugin and the resident host: one connection, a start where there is none, a process where it fails."""

import json
from pathlib import Path
from typing import Any

import pytest
from opencode_driver import ALLOW, Project, before, needs_node

from anyplug.policy.opencode import installation
from daemon_double import ResidentHost

pytestmark = needs_node


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a project whose program is named anyplug, so that a resident host may answer in its place."""
    project = Project(tmp_path / "project")
    project.decides(ALLOW, "anyplug")
    return project


def options(project: Project, **changes: object) -> None:
    file = project.folder / ".cupcake" / "opencode.json"
    project.configure(**{**json.loads(file.read_text()), **changes})


def decision(request: dict[str, Any], verb: str = "allow", **others: Any) -> dict[str, Any]:
    return {
        "id": request["id"],
        "result": {"exit": 0, "decision": {"decision": verb, "reason": "r"}, "said": [], **others},
    }


def test_all_calls_share_one_connection_and_start_no_process(project: Project, home: Path) -> None:
    with ResidentHost(home, decision) as host:
        driven = project.drive(before(), before(call="call_2"), {"together": [before(), before()]})
    assert driven.threw[:2] == [None, None]
    assert [result.get("threw") for result in driven.results[2]] == [None, None]
    [attached] = host.attached
    assert attached["kind"] == "policy"
    assert attached["cwd"] == str(project.folder)
    assert attached["environment"]["ANYPLUG_HOME"] == str(home)
    assert len(host.requests) == 4
    request = host.requests[0]
    assert {key: request[key] for key in ("do", "harness", "project")} == {
        "do": "eval",
        "harness": "opencode",
        "project": str(project.folder),
    }
    assert request["event"]["args"] == {"command": "git status"}
    assert project.events == []


def test_a_decision_of_the_host_is_obeyed(project: Project, home: Path) -> None:
    with ResidentHost(home, lambda request: decision(request, "deny")):
        assert project.drive(before()).threw == ["❌ Policy Violation\n\nr"]


def test_answers_find_their_calls_in_any_order(project: Project, home: Path) -> None:
    held: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> bytes | None:
        held.append(request)
        if len(held) < 2:
            return None
        verbs = {"yes": "allow", "no": "deny"}
        answers = [decision(one, verbs[one["event"]["args"]["command"]]) for one in reversed(held)]
        return b"".join(json.dumps(one).encode() + b"\n" for one in answers)

    with ResidentHost(home, answer):
        [results] = project.drive({"together": [before(command="no"), before(command="yes")]}).results
    assert [result.get("threw") for result in results] == ["❌ Policy Violation\n\nr", None]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"error": {"code": "bad_config", "message": "safety.rego:3: no", "hint": "fix it"}},
            "safety.rego:3: no\nhint: fix it",
        ),
        ({"result": {"exit": 1, "said": ["error: no policies"]}}, "Cupcake exited with code 1\n\nerror: no policies"),
        ({"result": {"exit": 0, "decision": "allow"}}, "Policy evaluation gave no valid JSON: it is no JSON object"),
        ({"result": {"exit": 0, "decision": {}}}, "Policy returned unknown decision: undefined"),
        ({}, "Policy evaluation gave no valid JSON: it has no result"),
    ],
)
@pytest.mark.parametrize("mode", ["closed", "open"])
def test_a_host_that_gives_no_decision_is_a_failure(
    project: Project, home: Path, answer: dict[str, Any], message: str, mode: str
) -> None:
    options(project, failMode=mode)
    with ResidentHost(home, lambda request: {"id": request["id"], **answer}):
        driven = project.drive(before())
    if mode == "closed":
        assert driven.threw[0] is not None
        assert driven.threw[0].startswith(message)
    else:
        assert driven.threw == [None]
        assert f"[cupcake-plugin] ERROR: {message}" in driven.err
    assert project.events == []


def test_a_line_that_is_no_json_is_a_failure_with_the_line(project: Project, home: Path) -> None:
    with ResidentHost(home, lambda _: b"y" * 5000 + b"\n"):
        [threw] = project.drive(before()).threw
    assert threw is not None
    assert threw.endswith("Raw output:\n" + "y" * 2000)


def test_a_host_that_does_not_answer_in_time_denies(project: Project, home: Path) -> None:
    options(project, timeoutMs=300)
    with ResidentHost(home, lambda _: None):
        [threw] = project.drive(before()).threw
    assert threw == "Policy evaluation timed out after 300ms. Consider optimizing policies or increasing timeout."


def test_a_host_that_hangs_is_left_alone_and_a_process_decides(project: Project, home: Path) -> None:
    options(project, timeoutMs=3000)
    with ResidentHost(home, lambda _: None) as host:
        first, second = project.drive(before(), before()).threw
    assert first is not None
    assert second is None
    assert len(host.requests) == 1
    assert [given["words"][0] for given in project.events if given["event"]] == ["eval"]


def test_a_host_that_dies_under_a_call_is_replaced_by_a_process_and_started_anew(project: Project, home: Path) -> None:
    with ResidentHost(home, lambda _: "hang up"):
        driven = project.drive(before(), {"until": str(project.seen)})
    assert driven.threw == [None, None]
    assert ["eval", "--harness", "opencode"] in [given["words"] for given in project.events]


def test_a_connection_that_broke_is_made_again(project: Project, home: Path) -> None:
    answers = iter(["hang up"])
    with ResidentHost(home, lambda request: next(answers, None) or decision(request)) as host:
        assert project.drive(before(), before(), before()).threw == [None] * 3
    assert len(host.attached) == 2
    assert len(host.requests) == 3


def test_without_a_host_one_is_started_in_the_background_and_only_once(project: Project, home: Path) -> None:
    started = project.folder / "started"
    project.decides(f"if words[0] == 'serve': open({str(started)!r}, 'w').close()\nelse: {ALLOW}", "anyplug")
    assert project.drive(before(), before(), {"until": str(started)}).threw == [None] * 3
    words = sorted(" ".join(given["words"]) for given in project.events)
    assert words == ["eval --harness opencode", "eval --harness opencode", "serve --detach"]


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"socket": 5}', '{"socket": "/nowhere/s"}'])
def test_a_record_that_leads_nowhere_is_no_host(project: Project, home: Path, record: str) -> None:
    (home / "resident.json").write_text(record)
    assert project.drive(before()).threw == [None]
    assert any(given["event"] for given in project.events)


def test_another_program_is_asked_itself_even_if_a_host_is_up(project: Project, home: Path) -> None:
    project.decides(ALLOW, "cupcake")
    with ResidentHost(home, decision) as host:
        assert project.drive(before()).threw == [None]
    assert host.attached == []
    assert [given["words"] for given in project.events] == [["eval", "--harness", "opencode"]]


def test_the_installed_program_and_home_are_used_where_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path / "project")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = project.decides(ALLOW, "anyplug")
    (project.folder / ".cupcake" / "opencode.json").unlink()
    installation.install(str(project.folder), home=str(elsewhere), program=[program])
    monkeypatch.delenv("ANYPLUG_HOME")
    assert project.drive(before()).threw == [None]
    assert any(given["event"] for given in project.events)
    with ResidentHost(elsewhere, decision) as host:
        assert project.drive(before()).threw == [None]
    assert len(host.requests) == 1


@pytest.mark.requirement("CUP-12")
@pytest.mark.parametrize("kept", [True, False])
def test_decisions_are_kept_by_the_host_alone_and_only_if_that_is_wanted(
    project: Project, home: Path, kept: bool
) -> None:
    options(project, cacheDecisions=kept)
    with ResidentHost(home, decision) as host:
        project.drive(before(), before())
    assert [request["cache"] for request in host.requests] == [kept, kept]


@pytest.mark.requirement("CUP-12")
def test_decisions_of_a_process_are_never_kept(project: Project) -> None:
    project.decides(ALLOW, "cupcake")
    options(project, cacheDecisions=True)
    project.drive(before(), before())
    assert len(project.events) == 2
