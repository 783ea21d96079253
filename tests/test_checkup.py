"""`check`: everything that can be seen from outside is named, each with its cure."""

import json
import os

import pytest

import making
from anyplug.checkup import examine

NOTHING = {"type": "object", "properties": {}}


def found(path):
    """What a check says, as text, after making sure that each problem has a code and a cure."""
    plugin = examine(path)
    assert all(problem.code and problem.message and problem.hint for problem in plugin.problems), plugin.problems
    return [problem.message for problem in plugin.problems]


@pytest.mark.parametrize("make", [making.cyclop, making.stavrobot])
def test_a_good_plugin_has_no_problems(make, root):
    assert found(make(root, "good")) == []


def test_a_plugin_is_checked_through_a_link_and_a_relative_path(root):
    making.cyclop(root, "good")
    os.symlink(os.path.join(root, "good"), "good")
    assert found("good") == found("./good/") == []


@pytest.mark.parametrize("change", [
    {"name": ...}, {"version": ...}, {"description": ...}, {"entrypoint": ...}, {"permissions": ...}, {"tools": ...},
    {"tools": []}, {"name": "Odd Name"}, {"name": "another"}, {"version": "one"}, {"permissions": ["odd"]},
    {"permissions": "network"}, {"entrypoint": "../run"}, {"entrypoint": "/bin/sh"}, {"entrypoint": "nowhere"},
    {"tools": [{"name": "x"}]}, {"tools": [{"name": "x", "description": "x", "input_schema": {}}]},
    {"tools": [{"name": "x", "description": "x", "input_schema": {"type": "array"}}]},
    {"tools": ["x"]},
    {"tools": [{"name": "x", "description": "x", "input_schema": NOTHING}] * 2},
    {"tools": [{"name": "bash", "description": "x", "input_schema": NOTHING}]},
    {"tools": [{"name": "mcp.x", "description": "x", "input_schema": NOTHING}]},
    {"tools": [{"name": "x", "description": "x", "input_schema": NOTHING | {"properties": {"a": {"type": "odd"}}}}]},
    {"tools": [{"name": "x", "description": "x", "input_schema": NOTHING | {"$ref": "file:///etc/passwd"}}]},
])  # fmt: skip
def test_every_fault_of_a_cyclop_one_manifest_is_found(root, change):
    folder = making.cyclop(root, "hello")
    making.write(f"{folder}/plugin.json", json.dumps(making.cyclop_manifest("hello", **change)))
    assert len(found(folder)) >= 1


@pytest.mark.parametrize("change", [
    {"description": 1}, {"name": "Odd"}, {"name": 1}, {"instructions": 1}, {"init": {}}, {"init": None},
    {"init": {"entrypoint": "nowhere"}}, {"init": {"entrypoint": "/bin/sh"}}, {"config": []}, {"config": {"x": "y"}},
    {"tool": {"name": "odd"}}, {"tool": {"description": None}}, {"tool": {"entrypoint": "../../x"}},
    {"tool": {"entrypoint": "nowhere"}}, {"tool": {"parameters": []}}, {"tool": {"parameters": {"x": "y"}}},
    {"tool": {"parameters": {"x": {"type": "string"}}}}, {"tools": {}, "config": {"permissions": {}}},
])  # fmt: skip
def test_every_fault_of_a_stavrobot_manifest_is_found(root, change):
    folder = os.path.join(root, "kit")
    making.stavrobot(root, "kit", **{key: value for key, value in change.items() if key != "name"})
    if "name" in change:
        making.write(f"{folder}/manifest.json", json.dumps({"name": change["name"], "description": ""}))
    assert len(found(folder)) >= 1


@pytest.mark.parametrize(
    ("script", "mode", "message"),
    [
        ("#!/bin/sh\n", 0o644, "no execute permission"),
        ("#!/bin/sh\r\n", 0o755, "CRLF"),
        ("#!/no/such/interpreter\n", 0o755, "/no/such/interpreter"),
        ("#!/usr/bin/env no-such-interpreter\n", 0o755, "no-such-interpreter"),
        ("echo x\n", 0o755, "shebang"),
        ("", 0o755, ""),
    ],
)
def test_a_program_that_cannot_run_is_named_with_the_reason(root, script, mode, message):
    folder = making.cyclop(root, "hello")
    making.write(f"{folder}/run", script, mode)
    (problem,) = found(folder)
    assert "run" in problem
    assert message in problem


def test_all_tools_are_looked_at(root):
    scripts = {"one": "#!/no/such\n", "two": "#!/bin/sh\r\n", "three": making.ANSWER}
    problems = found(making.stavrobot(root, "kit", tools=scripts))
    assert len(problems) == 2
    assert any("one/run" in problem for problem in problems)
    assert any("two/run" in problem for problem in problems)


def test_several_faults_are_all_said_and_none_twice(root):
    problems = found(making.cyclop(root, "hello", version=..., description=..., permissions=..., tools=[]))
    assert len(problems) == len(set(problems)) == 4


@pytest.mark.parametrize("kind", ["nowhere", "file", "empty", "pipe", "half", "huge", "dangling"])
def test_what_is_no_plugin_is_a_problem_and_no_exception(root, kind):
    path = os.path.join(root, kind)
    if kind == "file":
        making.write(path, "x")
    elif kind == "dangling":
        os.symlink("nothing", path)
    elif kind != "nowhere":
        os.mkdir(path)
    if kind == "pipe":
        os.mkfifo(f"{path}/plugin.json")
    elif kind == "half":
        making.write(f"{path}/manifest.json", '{"name": ')
    elif kind == "huge":
        with open(f"{path}/plugin.json", "wb") as file:
            file.truncate(100 << 20)
    assert len(found(path)) == 1
