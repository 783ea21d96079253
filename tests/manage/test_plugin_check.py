"""`check`: everything that can be seen from outside is named, each with its cure."""

import json
import os
import re
import shutil
import subprocess

import pytest

import command_line
import plugin_folders
import zot_folders
from anyplug.manage import fault_places
from anyplug.manage.plugin_check import examine
from rows import each_row

NOTHING = {"type": "object", "properties": {}}


def found(path):
    """What a check says, as text, after making sure that each problem has a code and a cure."""
    plugin = examine(path)
    assert all(problem.code and problem.message and problem.hint for problem in plugin.problems), plugin.problems
    return [problem.message for problem in plugin.problems]


CYCLOP = """{
  "name": "odd",
  "version": 1,
  "description": "Odd.",
  "permissions": ["network", "odd"],
  "entrypoint": "nowhere.py",
  "tools": [
    {"name": "one", "description": "One.", "input_schema": {"type": "object", "properties": {}}},
    {"name": "one", "description": "One.", "input_schema": {"type": "object", "properties": {}}},
    {"name": "two", "description": 2},
    {"name": "three", "description": "Three.", "input_schema": {"type": "list"}}
  ]
}"""
MCP = """{
  "mcpServers": {
    "good": {"command": "python3"},
    "text": {"command": "python3", "args": "x"},
    "args": {"args": ["text"], "command": 5}
  }
}"""
STAVROBOT_TOOL = """{
  "name": "act",
  "description": "Act.",
  "entrypoint": "run",
  "parameters": {"who": {"type": "string"}}
}"""


@each_row(
    ("place", "text", "begins", "at"),
    [
        ("plugin.json", CYCLOP, "'version' must be a string", (3, '"version"')),
        ("plugin.json", CYCLOP, "unknown permission 'odd'", (5, '"odd"')),
        ("plugin.json", CYCLOP, "Duplicate tool name 'one'", (9, '"one"')),
        ("plugin.json", CYCLOP, "Tool at index 2: 'description'", (10, '"description"')),
        ("plugin.json", CYCLOP, "Tool 'three' input_schema", (11, '"three"')),
        ("mcp.json", MCP, "server 'text' is invalid: 'args'", (4, '"args"')),
        ("mcp.json", MCP, "server 'args' is invalid: 'command'", (5, '"command"')),
        ("extension.json", '{\n"name": "kit",\n"exec": 5}', "'exec' must be a string", (3, '"exec"')),
        ("act/manifest.json", STAVROBOT_TOOL, "parameter 'who' of act", (5, '"who"')),
    ],
)
def test_a_fault_is_placed_where_the_manifest_says_what_it_is_about(tmp_path, place, text, begins, at):
    shutil.rmtree(tmp_path / "odd", ignore_errors=True)
    folder = plugin_folders.stavrobot(tmp_path, "odd") if "/" in place else str(tmp_path / "odd")
    plugin_folders.write(f"{folder}/{place}", text)
    [message] = [one.message for one in fault_places.placed(examine(folder)) if one.message.startswith(begins)]
    line, column = map(int, re.search(r"line (\d+), column (\d+)", message).groups())
    assert (line, text.splitlines()[line - 1][column - 1 :].startswith(at[1])) == (at[0], True), message


TWICE = """{
  "name": "odd",
  "entrypoint": "two",
  "permissions": ["network", "two"],
  "tools": [
    {"description": "two", "name": "network", "input_schema": {"type": "object", "properties": {"a": {"type": "x"}}}},
    {"description": "two", "name": "two",
     "input_schema": {"type": "object", "properties": {"two": {"type": "object", "properties":
       {"b": {"anyOf": [{"type": "string"}, {"type": "x"}]}}}}}},
    {"description": "b", "name": "bash", "input_schema": {"type": "object", "properties": {"network": {"pattern": "("},
       "required": {"type": "string"}}, "required": "network"}}
  ]
}"""


@each_row(
    ("begins", "at"),
    [
        ("unknown permission 'two'", (4, '"two"')),
        ("the tool name 'bash' belongs", (10, '"bash"')),
        ("the input schema of the tool 'network' is invalid: 'properties.a.type': use", (6, '"type": "x"')),
        ("the input schema of the tool 'two' is invalid: 'properties.two.properties.b", (9, '"type": "x"')),
        ("the input schema of the tool 'bash' is invalid: 'required'", (11, '"required": "network"')),
    ],
)
def test_a_word_that_stands_twice_is_found_where_it_is_meant_also_while_the_manifest_is_broken(tmp_path, begins, at):
    plugin_folders.write(f"{tmp_path}/odd/plugin.json", TWICE)
    plugin = examine(f"{tmp_path}/odd")
    assert plugin.is_broken
    [message] = [one.message for one in fault_places.placed(plugin) if one.message.startswith(begins)]
    line, column = map(int, re.search(r"line (\d+), column (\d+)", message).groups())
    assert (line, TWICE.splitlines()[line - 1][column - 1 :].startswith(at[1])) == (at[0], True), message


ODD_ITEMS = {"who": {"type": "array", "description": "Who.", "required": True, "items": {"type": "x"}}}


def test_a_tool_of_a_bundle_with_the_name_of_the_bundle_is_placed_in_its_own_manifest(tmp_path):
    folder = plugin_folders.stavrobot(tmp_path, "act", parameters=ODD_ITEMS)
    [problem] = [one for one in fault_places.placed(examine(folder)) if one.code == "bad_schema"]
    assert "of the tool 'act' is invalid" in problem.message
    assert f"in {os.path.join('act', 'manifest.json')}, line 1, column" in problem.message


def test_a_broken_plugin_offers_no_tools(root):
    plugin_folders.cyclop(root, "odd", description=...)
    plugin_folders.stavrobot(root, "kit", init={})
    entries = command_line.ok("list", "--json").json
    assert [(entry["state"], entry["tools"]) for entry in entries] == [("broken", [])] * len(entries)


def test_a_fault_of_a_bundle_hides_none_of_its_tools(tmp_path):
    folder = plugin_folders.stavrobot(tmp_path, "odd", description=1, init={}, tool={"description": None})
    messages = "\n".join(found(folder))
    assert all(word in messages for word in ("'description' must be a string", "'init'", f"{folder}/act/manifest.json"))


def test_a_manifest_that_stops_too_early_is_placed_at_its_end(tmp_path):
    plugin_folders.write(f"{tmp_path}/kit/mcp.json", '{"mcpServers": {\n  "kit": {\n')
    [message] = found(f"{tmp_path}/kit")
    assert "mcp.json, line 2, column 11: " in message


def test_what_is_missing_has_no_place(tmp_path):
    plugin_folders.write(f"{tmp_path}/odd/plugin.json", CYCLOP.replace('  "description": "Odd.",\n', ""))
    found = fault_places.placed(examine(f"{tmp_path}/odd"))
    [message] = [one.message for one in found if "missing required field 'description'" in one.message]
    assert "line" not in message


@pytest.mark.parametrize("make", [plugin_folders.cyclop, plugin_folders.stavrobot])
def test_a_good_plugin_has_no_problems(make, root):
    assert found(make(root, "good")) == []


def test_a_plugin_is_checked_through_a_link_and_a_relative_path(root):
    plugin_folders.cyclop(root, "good")
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
    folder = plugin_folders.cyclop(root, "hello")
    plugin_folders.write(f"{folder}/plugin.json", json.dumps(plugin_folders.cyclop_manifest("hello", **change)))
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
    plugin_folders.stavrobot(root, "kit", **{key: value for key, value in change.items() if key != "name"})
    if "name" in change:
        plugin_folders.write(f"{folder}/manifest.json", json.dumps({"name": change["name"], "description": ""}))
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
    folder = plugin_folders.cyclop(root, "hello")
    plugin_folders.write(f"{folder}/run", script, mode)
    (problem,) = found(folder)
    assert "run" in problem
    assert message in problem


def test_all_tools_are_looked_at(root):
    scripts = {"one": "#!/no/such\n", "two": "#!/bin/sh\r\n", "three": plugin_folders.ANSWER}
    problems = found(plugin_folders.stavrobot(root, "kit", tools=scripts))
    assert len(problems) == 2
    assert any("one/run" in problem for problem in problems)
    assert any("two/run" in problem for problem in problems)


def test_several_faults_are_all_said_and_none_twice(root):
    problems = found(plugin_folders.cyclop(root, "hello", version=..., description=..., permissions=..., tools=[]))
    assert len(problems) == len(set(problems)) == 4


@pytest.mark.parametrize("kind", ["nowhere", "file", "empty", "pipe", "half", "huge", "dangling"])
def test_what_is_no_plugin_is_a_problem_and_no_exception(root, kind):
    path = os.path.join(root, kind)
    if kind == "file":
        plugin_folders.write(path, "x")
    elif kind == "dangling":
        os.symlink("nothing", path)
    elif kind != "nowhere":
        os.mkdir(path)
    if kind == "pipe":
        os.mkfifo(f"{path}/plugin.json")
    elif kind == "half":
        plugin_folders.write(f"{path}/manifest.json", '{"name": ')
    elif kind == "huge":
        with open(f"{path}/plugin.json", "wb") as file:
            file.truncate(100 << 20)
    assert len(found(path)) == 1


# Extensions

MAIN = "#!/usr/bin/env python3\nprint('never')\n"


def extension(root, script=MAIN, **changes):
    """Make an extension that `main.py` is the program of."""
    folder = os.path.join(root, "ext")
    manifest = {"name": "ext", "exec": "./main.py"} | changes
    zot_folders.write_manifest(folder, {field: value for field, value in manifest.items() if value is not ...})
    plugin_folders.write(f"{folder}/main.py", script, 0o755)
    return folder


def told(path):
    return [(problem.level, problem.message, problem.hint) for problem in examine(path).problems]


def test_a_good_extension_has_no_problems_whatever_it_has_of_its_own(root):
    own = {"author": "me", "tags": [], "minVersion": "1", "api_version": 2, "description_de": "x", "homepage": "x"}
    assert told(extension(root, language="python", theme={}, skills=["x"], Enabled=True, **own)) == []
    assert told(extension(root, exec="python3", args=["-u", "main.py", "--out", "made.py"])) == []
    assert told(extension(root, description="x", descriptions={"de": "x"})) == []
    assert told(extension(root, exec="./main.py", args=["chart.js"])) == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("descripton", "description"),
        ("Desciptoin", "description"),
        ("enable", "enabled"),
        ("arg", "args"),
        ("verison", "version"),
    ],
)
def test_a_key_that_is_nearly_a_known_one_is_named(root, key, meant):
    (problem,) = told(extension(root, **{key: False}))
    assert problem == ("warning", f"'{key}' in extension.json is unknown", f'did you mean "{meant}"?')


@pytest.mark.parametrize(("field", "key"), [("exec", "exce"), ("exec", "Exe"), ("name", "nmae")])
def test_a_required_key_that_is_misspelt_is_said_once_with_the_key(root, field, key):
    (problem,) = told(extension(root, **{field: ..., key: "./main.py"}))
    assert problem[0] == "error"
    assert f"{field} is required" in problem[1]
    assert problem[2] == f'rename "{key.lower()}" to "{field}"'


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"author": ..., "autor": "me"}, ("warning", "'autor' in plugin.json is unknown", 'did you mean "author"?')),
        ({"entrypoint": ..., "entryPoint": "run"}, ("error", "", 'rename "entryPoint" to "entrypoint"')),
        ({"permissions": ..., "permission": []}, ("error", "", 'rename "permission" to "permissions"')),
        ({"tools": ..., "tool": []}, ("error", "plugin.json declares no tools", 'rename "tool" to "tools"')),
        (
            {"tools": [{"name": "a_b", "description": "Does it.", "inputSchema": NOTHING}]},
            ("error", "Tool 'a_b' has an empty input_schema", 'rename "inputSchema" to "input_schema"'),
        ),
        (
            {"tools": [{"nmae": "a_b", "desciption": "Does it.", "input_schema": NOTHING}]},
            ("error", "", 'rename "nmae" to "name"; rename "desciption" to "description"'),
        ),
        (
            {"tools": [{"name": "a_b", "description": "x", "input_schema": NOTHING, "entry_point": "run"}]},
            ("warning", "'entry_point' in the tool 'a_b' is unknown", 'did you mean "entrypoint"?'),
        ),
    ],
)
def test_a_misspelt_key_of_a_cyclop_one_manifest_is_said_once(root, change, said):
    ((level, message, hint),) = told(plugin_folders.cyclop(root, **change))
    assert (level, hint) == (said[0], said[2])
    assert message.startswith(said[1])


def test_a_misspelt_key_of_a_bundle_or_of_its_tool_is_said_once(root):
    assert told(plugin_folders.stavrobot(root, "one", instuctions="Sign in.")) == [
        ("warning", "'instuctions' in manifest.json is unknown", 'did you mean "instructions"?')
    ]
    assert told(plugin_folders.stavrobot(root, "two", tool={"asnyc": True})) == [
        ("warning", "'asnyc' in act/manifest.json is unknown", 'did you mean "async"?')
    ]
    bundle = plugin_folders.stavrobot(root, "three", tools={"act": "", "other": ""})
    about = {"name": "act", "description": "Does it.", "entryPoint": "run", "parameters": {}}
    plugin_folders.write(f"{bundle}/act/manifest.json", json.dumps(about))
    assert told(bundle)[0][2] == 'rename "entryPoint" to "entrypoint"'


def test_a_program_that_args_names_and_that_is_not_there_is_named(root):
    ((level, message, hint),) = told(extension(root, exec="python3", args=["-u", "mian.py"]))
    assert (level, message) == ("warning", "'args' names mian.py, which does not exist")
    assert hint == "did you mean main.py?"
    ((_, message, hint),) = told(extension(root, exec="node", args=["dist/index.js"]))
    assert "dist/index.js" in message
    assert "relative to the extension's folder" in hint


@pytest.mark.parametrize("how", ["program", "argument", "no-suffix"])
@pytest.mark.parametrize(
    ("line", "said"),
    [("def f(:", "invalid syntax"), ("return 1", "'return' outside function"), ("  x = 1", "unexpected indent")],
)
def test_a_program_that_is_no_python_is_an_error_with_the_line(root, how, line, said):
    folder = extension(root, f"{MAIN}{line}\n")
    if how == "argument":
        extension(root, f"{MAIN}{line}\n", exec="python3", args=["main.py"])
    elif how == "no-suffix":
        extension(root, f"{MAIN}{line}\n", exec="./main")
        os.rename(f"{folder}/main.py", f"{folder}/main")
    ((level, message, _),) = told(folder)
    assert level == "error"
    assert message == f"main{'' if how == 'no-suffix' else '.py'}, line 3: {said}"


@pytest.mark.parametrize(
    "script",
    [
        b"#!/usr/bin/env python3\nx = '\0'\n",
        b"#!/usr/bin/env python3\n# coding: no-such-coding\n",
        b"#!/usr/bin/env python3\nx = '\xff'\n",
    ],
)
def test_what_python_cannot_even_read_is_an_error_too(root, script):
    folder = extension(root)
    plugin_folders.write(f"{folder}/main.py", script, 0o755)
    assert [level for level, _, _ in told(folder)] == ["error"]


@pytest.mark.parametrize("script", ["(" * 5000, "-" * 100_000 + "1", "x" + ".x" * 50_000, "if 1:\n" * 300])
def test_no_program_ends_a_check(root, script):
    told(extension(root, MAIN + script))


def test_a_program_in_python_two_is_not_read_as_three(root):
    folder = extension(root, "#!/usr/bin/env python2\nprint 'x'\n")
    assert not [message for _, message, _ in told(folder) if "line" in message]


@pytest.mark.parametrize(
    "line", ["from anyplug_ext import Extension", "import json, anyplug_ext", "import anyplug_ext as e"]
)
def test_an_sdk_that_is_imported_and_does_not_lie_beside_is_named_with_the_copy(root, line):
    folder = extension(root, f"{MAIN}{line}\n")
    ((level, message, hint),) = told(folder)
    assert (level, message) == ("warning", "main.py imports anyplug_ext, but there is no anyplug_ext.py next to it")
    subprocess.run(hint.split(), check=True)
    assert told(folder) == []


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    import anyplug_ext\nexcept ImportError: pass",
        "import sys\nsys.path.insert(0, 'lib')\nimport anyplug_ext",
        "# /// script\n# dependencies = []\n# ///\nimport anyplug_ext",
        "from . import anyplug_ext",
        "import anyplug_extra",
    ],
)
def test_one_that_may_come_from_elsewhere_is_not(root, code):
    assert told(extension(root, f"{MAIN}{code}\n")) == []


def test_arguments_in_exec_are_told_where_they_belong(root):
    ((_, message, hint),) = told(extension(root, exec="python3 main.py"))
    assert message == "there is no program 'python3 main.py' in the PATH"
    assert hint == 'in extension.json, keep only the program there, and move the words after it to "args"'
    ((_, message, hint),) = told(extension(root, exec="./main.py --fast"))
    assert "does not exist" in message
    assert 'name only main.py; if the format has "args", the words after it belong there' in hint


def test_a_byte_order_mark_is_named_and_no_missing_shebang(root):
    ((_, message, hint),) = told(extension(root, "\ufeff" + MAIN))
    assert "byte order mark" in message
    assert "without" in hint
    assert len(told(extension(root, "\ufeffprint(1)\n"))) == 2
    messages = [message for _, message, _ in told(extension(root, "\ufeff#!/bin/sh\r\n"))]
    assert any("CRLF" in message for message in messages)


def test_a_check_of_an_extension_runs_nothing(root):
    ran = os.path.join(root, "ran")
    folder = extension(root, f"{MAIN}open({ran!r}, 'w')\nimport anyplug_ext\n")
    told(folder)
    told(extension(root, f"{MAIN}open({ran!r}, 'w')\n", exec="python3", args=["main.py"]))
    assert not os.path.exists(ran)
    assert sorted(os.listdir(folder)) == ["extension.json", "main.py"]
