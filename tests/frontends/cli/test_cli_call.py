"""`call`: arguments from words, results and exit codes."""

import base64
import json
import os
import re
import shlex
import subprocess

import pytest

import command_line
import plugin_folders
from anyplug.catalog import discovery
from anyplug.formats.shared.contract import Folder
from anyplug.frontends.cli.call import arguments
from anyplug.model.errors import UsageError

ECHO = "#!/bin/sh\ncat"
CALL = {"tool", "plugin", "format", "is_error", "content", "text", "structured", "metadata", "error", "duration_ms"}
KINDS = {
    kind: {"type": kind, "description": ""}
    for kind in ("string", "integer", "number", "boolean", "array", "object", "file", "string|null", "anything")
}


@pytest.fixture
def echo():
    """Give a plugin whose tool answers with its arguments, one of each type."""
    return plugin_folders.stavrobot(
        "here",
        "echo",
        ECHO,
        parameters={
            **KINDS,
            "numbers": {"type": "array", "description": "", "items": {"type": "number"}},
            "choice": {"type": "string", "description": "", "enum": ["a", "b"]},
        },
    )


@pytest.fixture
def read(echo):
    """Read words as `call` does for that tool."""
    tool = discovery.read(Folder(os.path.abspath(echo), os.path.abspath(echo))).tools[0]
    return lambda *words, args=None: arguments(list(words), args, tool.input_schema)


def given(echo, *words, **others):
    return command_line.ok("-e", echo, "call", "echo.act", "--json", *words, **others).json["structured"]


@pytest.mark.requirement("ZOT-56")
def test_call_has_exactly_the_promised_shape(echo):
    done = command_line.ok("-e", echo, "call", "echo.act", "--json", "string=x").json
    assert set(done) == CALL
    assert done["duration_ms"] > 0
    assert done | {"duration_ms": 0} == {
        "tool": "echo.act",
        "plugin": "echo",
        "format": "stavrobot",
        "is_error": False,
        "content": [{"type": "text", "text": '{"string":"x"}'}],
        "text": '{"string":"x"}',
        "structured": {"string": "x"},
        "metadata": {},
        "error": None,
        "duration_ms": 0,
    }


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("string=12", "12"),
        ("string=", ""),
        ("string=a=b=c", "a=b=c"),
        ("string=null", "null"),
        ("string= spaces ", " spaces "),
        ("string=ünï\ncode", "ünï\ncode"),
        ("integer=-12", -12),
        ("number=1.5e3", 1500.0),
        ("number=7", 7),
        ("boolean=true", True),
        ("boolean=False", False),
        ('object={"a": [1, null]}', {"a": [1, None]}),
        ('array=["a", 2]', ["a", 2]),
        ("array=one", ["one"]),
        ("array=[half", ["[half"]),
        ("string|null=null", None),
        ("string|null=text", "text"),
        ("anything=12", "12"),
        ("numbers=1.5", [1.5]),
    ],
)
def test_a_word_is_typed_by_the_tools_schema(read, word, value):
    assert read(word) == {word.partition("=")[0]: value}


def test_words_reach_the_tool_as_what_they_are(echo):
    words = ["string=12", "integer=-12", "number=1.5", "boolean=true", 'object={"a": null}', "array=x", "array=y"]
    assert given(echo, *words, "string|null=null") == {
        "string": "12",
        "integer": -12,
        "number": 1.5,
        "boolean": True,
        "object": {"a": None},
        "array": ["x", "y"],
        "string|null": None,
    }


def test_a_list_is_made_of_repeated_words(read):
    assert read("array=a", 'array=["b", "c"]', "array=d") == {"array": ["a", "b", "c", "d"]}
    assert read("numbers=1", "numbers=2.5") == {"numbers": [1, 2.5]}


def test_of_a_value_that_is_no_list_the_last_word_counts(read):
    assert read("string=a", "string=b") == {"string": "b"}


def test_a_file_is_named_by_its_path(echo, tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(b"\x89PNG\0")
    script = plugin_folders.python("print(json.dumps([given['f'], open(given['f'], 'rb').read().hex()]))")
    plugin = plugin_folders.stavrobot("here", "filer", script, parameters={"f": {"type": "file", "description": ""}})
    done = command_line.ok("-e", plugin, "call", "filer.act", f"f={path}", "--json").json
    assert done["structured"] == ["/tmp/filer/photo.png", b"\x89PNG\0".hex()]
    assert len(done["content"]) == 1
    inside = json.dumps({"f": {"filename": "x.txt", "data": base64.b64encode(b"hi").decode()}})
    assert (
        command_line.ok("-e", plugin, "call", "act", "--args", inside, "--json").json["structured"][0]
        == "/tmp/filer/x.txt"
    )
    assert "cannot read nowhere: No such file" in command_line.fails(2, "-e", plugin, "call", "act", "f=nowhere").err
    assert "cannot read /: Is a directory" in command_line.fails(2, "-e", plugin, "call", "act", "f=/").err
    assert "exceed the maximum" in command_line.fails(2, "-e", plugin, "call", "act", "f=/dev/zero").err


def test_a_file_that_a_tool_wrote_is_printed_as_its_path():
    plugin = plugin_folders.stavrobot("here", "maker", "#!/bin/sh\necho made; echo data > /tmp/maker/out.txt")
    done = command_line.ok("-e", plugin, "call", "maker.act")
    text, path = done.out.splitlines()
    assert (text, command_line.read(path)) == ("made", "data\n")
    assert "out.txt (text/plain)" in done.err


def test_arguments_can_be_given_as_json_and_mended_by_words(echo):
    assert given(echo, "--args", '{"string": "x", "array": [1]}', "array=2", "integer=3") == {
        "string": "x",
        "array": [1, "2"],
        "integer": 3,
    }
    assert given(echo, "--args", "-", stdin='{"object": {}}') == {"object": {}}
    assert given(echo, "--args", "{}") == {}


@pytest.mark.parametrize(
    ("words", "args", "message"),
    [
        (["novalue"], None, "'novalue' is not of the form KEY=VALUE"),
        (["=x"], None, "'=x' is not of the form KEY=VALUE"),
        ([], "{", "--args is not valid JSON"),
        ([], "", "--args is not valid JSON"),
        (["string=x"], "null", "--args must be an object"),
        ([], "[" * 5000, "--args is not valid JSON"),
        (["array=y"], '{"array": "x"}', "'array' is a list"),
    ],
)
def test_words_that_cannot_be_read_are_a_usage_error(read, words, args, message):
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        read(*words, args=args)
    assert caught.value.hint


def test_arguments_that_do_not_fit_are_refused_all_at_once_and_nothing_runs(echo):
    words = ["integer=1.5", "boolean=yes", "object=" + "[" * 5000, "choice=c", "number=x"]
    done = command_line.fails(2, "-e", echo, "call", "echo.act", *words, "--args", '{"file": 5, "unknown": 1}')
    for message in (
        'Unknown parameter: "unknown"',
        'Parameter "integer" must be of type "integer"',
        'Parameter "boolean" must be of type "boolean"',
        'Parameter "object" must be of type "object"',
        'Parameter "choice" must be one of ["a","b"]',
        'Parameter "number" must be of type "number"',
        'Parameter "file" must be of type "file"',
        "hint: `anyplug --plugin here/echo tools echo.act` shows its parameters",
    ):
        assert message in done.err
    assert "must be an object, not list" in command_line.fails(2, "-e", echo, "call", "echo.act", "--args", "[1]").err
    assert "not of the form" in command_line.fails(2, "-e", echo, "call", "echo.act", "novalue").err


def test_bytes_that_are_no_text_are_refused(echo):
    for word in (b"string=\xff", b"integer=\xff", b'--args={"string": "\xff"}'):
        done = subprocess.run(
            [*command_line.PROGRAM, "-e", echo, "call", "echo.act", word], capture_output=True, check=False
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (2, False), done
    assert "not valid JSON" in command_line.fails(2, "-e", echo, "call", "echo.act", "--args", "-", stdin=b"\xff{}").err


def test_a_number_too_large_for_json_libraries_is_no_traceback(echo):
    done = command_line.run("-e", echo, "call", "echo.act", "--args", '{"number": 123456789012345678901234567890}')
    assert done.code in {0, 2}


@pytest.mark.requirement("CYC-46")
def test_a_cyclop_one_plugin_decides_itself_about_its_arguments():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    script = plugin_folders.python("print(json.dumps({'result': json.dumps(given['input'])}))")
    plugin = plugin_folders.cyclop(
        "here", "hello", script, tools=[{"name": "hi", "description": "x", "input_schema": schema}]
    )
    done = command_line.ok("-e", plugin, "call", "hi", "n=2")
    assert (json.loads(done.out), done.err) == ({"n": 2}, "")
    done = command_line.ok("-e", plugin, "call", "hi", "n=two", "--args", '{"more": "1"}')
    assert json.loads(done.out) == {"n": "two", "more": "1"}
    assert "warning: n: " in done.err


def test_data_goes_to_stdout_and_all_else_to_stderr():
    script = '#!/bin/sh\necho noise >&2\nprintf \'{"result": "line one\\\\nline two"}\''
    plugin = plugin_folders.cyclop("here", "hello", script)
    done = command_line.ok("-e", plugin, "call", "hello")
    assert (done.out, done.err) == ("line one\nline two\n", "")


ORDERS = "\x1b[31mred\x1b[0m \x1b]52;c;ZXZpbA==\x07 \x1b[2J \u009b31m \u202eback\r\n"
SHOWN = "\\x1b[31mred\\x1b[0m \\x1b]52;c;ZXZpbA==\\x07 \\x1b[2J \\x9b31m \\u202eback"


def test_what_a_plugin_gives_orders_a_terminal_about_in_no_way():
    script = (
        "#!/usr/bin/env python3\nimport json, sys\n"
        f"said = {ORDERS!r}\nsys.stderr.write(said)\nprint(json.dumps({{'result': said}}))"
    )
    plugin_folders.cyclop("plugins", "orders", script)
    command_line.ok("approve", "orders", "--yes")
    piped = command_line.ok("call", "orders")
    assert (piped.out, piped.err) == (ORDERS, "")  # what programs read is what was said
    assert "\u009b" not in command_line.ok("call", "orders", "--json").out
    assert command_line.ok("call", "orders", "--json").json["text"] == ORDERS
    for words, shown in (
        (("call", "orders"), SHOWN),
        (("logs", "orders"), SHOWN.replace("\\x1b[31mred\\x1b[0m", "red")),
    ):
        seen = command_line.at_terminal(*words).seen  # where colours are not wanted
        assert shown in seen
        assert not [order for order in ("\x1b]", "\x07", "\x1b[2J", "\u009b", "\u202e") if order in seen]


def test_a_failure_of_the_tools_own_exits_with_1_and_is_said_once():
    plugin = plugin_folders.stavrobot("here", "kit", "#!/bin/sh\necho half; echo broken >&2; exit 3")
    done = command_line.run("-e", plugin, "call", "kit.act")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("broken") == 1
    said = command_line.run("-e", plugin, "call", "kit.act", "--json")
    assert (said.code, said.json["is_error"], said.json["error"]["code"]) == (1, True, "tool_error")
    assert said.json["metadata"]["exit_code"] == 3


def test_what_a_plugin_said_before_it_was_ended_is_data():
    plugin = plugin_folders.cyclop("here", "slow", "#!/bin/sh\necho before\nexec sleep 60")
    plugin_folders.write(os.path.join(command_line.home(), "settings.toml"), "[plugins.slow]\ntimeout_s = 0.5\n")
    done = command_line.run("-e", plugin, "call", "slow")
    assert (done.code, done.out) == (1, "before\n")
    assert "error: Plugin timed out after 0.5s" in done.err
    assert "hint: " in done.err


def test_every_exit_code(echo):
    plugin_folders.cyclop("plugins", "hello")
    plugin_folders.stavrobot("plugins", "kit", config={"key": {"description": "", "required": True}})
    assert command_line.run("call", "nobody").code == 4
    assert command_line.run("call", "hello").code == 3
    command_line.ok("approve", "hello", "--yes")
    assert command_line.run("call", "hello").code == 0
    command_line.ok("disable", "hello")
    assert command_line.run("call", "hello").code == 3
    command_line.ok("approve", "kit", "--yes")
    assert command_line.run("call", "kit.act").code == 3
    assert command_line.run("call", "kit.act", "--yes").code == 1
    assert command_line.run("call", "kit.act", "--yes", "--args", '{"odd": 1}').code == 2
    outcomes = [record["outcome"] for record in command_line.ok("audit", "--kind", "call", "--json").json]
    assert outcomes == [
        "not_found", "not_approved", "done", "disabled", "denied", "config_missing", "invalid_arguments",
    ]  # fmt: skip


def test_with_json_the_object_is_printed_for_all_of_them():
    plugin_folders.stavrobot("plugins", "kit")
    for words, code, exit_code in (
        (["nobody"], "not_found", 4),
        (["kit.act"], "not_approved", 3),
    ):
        done = command_line.run("call", *words, "--json")
        assert (done.code, done.err, set(done.json)) == (exit_code, "", CALL)
        assert done.json["error"]["code"] == code
        assert done.json["error"]["hint"]


def test_an_unknown_tool_offers_near_ones_and_names_broken_plugins():
    plugin_folders.cyclop("plugins", "hello")
    plugin_folders.write("plugins/half/plugin.json", "{")
    assert "hint: did you mean hello?" in command_line.fails(4, "call", "helo").err
    one = plugin_folders.cyclop("more", "hello")
    assert "hint: did you mean hello?\n" in command_line.fails(4, "-e", one, "call", "hell").err
    assert "to read a file, write `--args - < 'a b'`" in command_line.fails(2, "call", "hello", "--args", "@a b").err
    done = command_line.fails(4, "call", "something-else")
    assert "no tool is named 'something-else': these plugins could not be loaded: half" in done.err
    assert "hint: if it is from 'half': `python3 -m json.tool " in done.err
    bare = plugin_folders.cyclop("more", "bare", tools=...)
    done = command_line.fails(4, "-e", bare, "call", "something-else")
    assert "'something-else': plugin 'bare' is broken: plugin.json declares no tools\n" in done.err


def test_an_argument_that_the_tool_does_not_name_is_an_error_with_a_suggestion():
    schema = {"type": "object", "properties": {"url": {"type": "string"}}}
    show = plugin_folders.python("print(json.dumps({'result': json.dumps(given['input'])}))")
    tools = [{"name": name, "description": "d", "input_schema": schema} for name in ("get", "open")]
    tools[1]["input_schema"] = {**schema, "additionalProperties": {"type": "number"}}
    plugin_folders.cyclop("here", "web", show, tools=tools)
    plugin_folders.stavrobot("here", "kit")
    call = ("-e", "here/web", "-e", "here/kit", "call")
    done = command_line.fails(2, *call, "get", "ulr=x")
    assert done.err == "error: the tool has no argument 'ulr'\nhint: did you mean url?\n"
    done = command_line.fails(2, *call, "get", "x=a b")
    assert 'hint: it takes url; --args \'{"x":"a b"}\' passes it anyway' in done.err
    assert "hint: did you mean text?" in command_line.fails(2, *call, "kit.act", "txt=x").err
    assert json.loads(command_line.ok(*call, "get", "--args", '{"ulr": "x"}').out) == {"ulr": "x"}
    assert json.loads(command_line.ok(*call, "open", "ulr=x").out) == {"ulr": "x"}


def test_what_the_system_refuses_is_json_if_that_was_asked_for(tmp_path):
    gone = tmp_path / "gone"
    script = f"mkdir {gone}; cd {gone}; rmdir {gone}; exec {shlex.join(command_line.PROGRAM)} list"
    for option in ("", " --json"):
        done = subprocess.run(["sh", "-c", script + option], capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done
        if option:
            assert json.loads(done.stdout)["error"] == {
                "code": "os_error",
                "message": "the current folder no longer exists",
                "hint": "change to another one, then try again",
            }
        else:
            assert "error: the current folder no longer exists\n" in done.stderr


def test_a_missing_value_is_named_before_anything_runs():
    plugin_folders.stavrobot("here", "kit", f"#!/bin/sh\ntouch {os.path.abspath('ran')}", config={
        "key": {"description": "", "required": True}})  # fmt: skip
    done = command_line.fails(1, "-e", "here/kit", "call", "kit.act")
    assert "needs the configuration value 'key'" in done.err
    assert "anyplug --plugin here/kit config kit key`" in done.err
    assert not os.path.exists("ran")


@pytest.mark.claim("text-people")
def test_the_name_of_a_file_is_one_line_whatever_is_in_it():
    script = "#!/bin/sh\nmkdir -p /tmp/kit\nprintf x > '/tmp/kit/a\nb'\necho '{}'\n"
    plugin_folders.stavrobot("here", "kit", script)
    for done in (
        command_line.at_terminal("-e", "here/kit", "call", "kit.act").seen,
        command_line.ok("-e", "here/kit", "call", "kit.act").out,
    ):
        assert [line for line in done.splitlines() if line.endswith("/a\\nb")], done
        assert "b" not in done.splitlines()
