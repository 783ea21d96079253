"""`learn`: a call of a real plugin, watched, and the permissions that it needed."""

import os
import shlex
import socket

import pytest

import command_line
import plugin_folders
import zot_folders
from anyplug.runtime.processes.toolchain import find_node

KEYS = {
    "tool", "plugin", "open", "needs", "add", "remove", "keep", "optional", "never", "commands", "result",
}  # fmt: skip


def python(body):
    """Write a script that looks nowhere for modules but where Python has its own, whatever PYTHONPATH says."""
    return plugin_folders.python(body).replace("env python3", "env -S python3 -I", 1)


READS = python("""
try:
    found = open(os.path.expanduser("~/notes.txt")).read()
    print(json.dumps({"result": found}))
except OSError as error:
    print(json.dumps({"result": error.strerror, "is_error": True}))
""")


@pytest.fixture(autouse=True)
def notes(home):
    """What the user has, and a project that is not in it."""
    with open(os.path.expanduser("~/notes.txt"), "w", encoding="utf-8") as file:
        file.write("mine")


def learned(*words):
    done = command_line.run("learn", *words, "--yes", "--json")
    assert set(done.json) == KEYS, done
    return done.json


def reader(**changes):
    plugin_folders.cyclop("plugins", "reader", READS, **changes)
    command_line.ok("approve", "reader", "--yes")


def test_a_person_is_told_that_it_really_happens_before_it_does():
    plugin_folders.cyclop(
        "plugins", "hello", f'#!/bin/sh\ntouch {command_line.home()}/x; echo \'{{"result": "done"}}\''
    )
    command_line.ok("approve", "hello", "--yes")
    with command_line.Terminal("learn", "hello") as terminal:
        seen = terminal.sees("Run it? [y/N]")
        assert "This really runs hello of hello: what it changes, sends or deletes is not undone." in seen
        assert "It succeeded" not in seen
        terminal.types("y")
    assert terminal.code == 0
    assert "It succeeded in" in terminal.seen
    said = command_line.at_terminal("learn", "hello", answers=[("Run it?", "n")])
    assert said.code == 3
    assert "nothing has changed" in said.seen


def test_with_nobody_to_ask_nothing_runs():
    reader()
    done = command_line.fails(3, "learn", "reader")
    assert "this is not a terminal" in done.err
    assert [record["tool"] for record in command_line.ok("audit", "--kind", "call", "--json").json] == []


def test_what_was_missing_is_proposed_as_commands_that_make_the_call_succeed():
    reader()
    lesson = learned("reader")
    assert lesson["result"]["is_error"]
    assert lesson["add"] == ["filesystem:read:~/notes.txt"]
    assert lesson["needs"][0] == {
        "permission": "filesystem:read:~/notes.txt",
        "because": ["read ~/notes.txt"],
        "refused": True,
    }
    (command,) = lesson["commands"]
    assert command == "anyplug grant reader 'filesystem:read:~/notes.txt'"
    command_line.ok("grant", "reader", "filesystem:read:~/notes.txt")
    assert command_line.ok("call", "reader", "--yes").out == "mine\n"
    again = learned("reader")
    assert (again["add"], again["remove"], again["commands"]) == ([], [], [])
    assert "Its grants are exactly what this call needs." in command_line.ok("learn", "reader", "--yes").out


def test_what_was_granted_and_not_needed_is_taken_away_and_what_is_wide_gets_narrow():
    reader(permissions=["filesystem:read", "network"])
    lesson = learned("reader")
    assert lesson["result"]["text"] == "mine"
    assert (lesson["add"], lesson["remove"]) == (["filesystem:read:~/notes.txt"], ["filesystem:read", "network"])
    shown = command_line.ok("learn", "reader", "--yes").out
    for line in ("  + filesystem:read:~/notes.txt", "  - network", "  anyplug ungrant reader filesystem:read network"):
        assert line in shown


def test_open_lets_it_do_everything_for_this_one_call_and_grants_nothing():
    script = python("""
import subprocess
open(os.path.expanduser("~/notes.txt")).read()
open("made-by-it", "w").close()
subprocess.run(["git", "--version"], check=True, stdout=2)
print(json.dumps({"result": "done"}))
""")
    plugin_folders.cyclop("plugins", "busy", script.replace('open("made', f'open("{os.getcwd()}/made'))
    if not os.path.exists("/usr/bin/git"):
        pytest.skip("no git here")
    command_line.ok("approve", "busy", "--yes")
    confined = learned("busy")
    assert confined["add"] == ["filesystem:read:~/notes.txt"], "it stopped at the first refusal"
    opened = learned("busy", "--open")
    assert opened["result"]["text"] == "done"
    assert {"shell:exec:git", "filesystem:read:~/notes.txt", "filesystem:write:."} <= set(opened["add"])
    assert os.path.exists("made-by-it"), "it really happened"
    assert command_line.run("call", "busy", "--json").code == 1
    assert command_line.ok("audit", "--kind", "call", "--json").json[1]["attachment"].startswith("learn-open-")


@pytest.mark.parametrize("granted", [True, False])
def test_a_port_that_it_connects_to_is_learned(granted):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = python(f"""
import socket
try:
    socket.create_connection(("127.0.0.1", {port})).close()
    print(json.dumps({{"result": "there"}}))
except OSError as error:
    print(json.dumps({{"result": error.strerror, "is_error": True}}))
""")
        plugin_folders.cyclop("plugins", "caller", script)
        command_line.ok(
            "approve", "caller", "--yes", *(["--grant", "network"] if granted else ["--grant", "env:NOTHING"])
        )
        lesson = learned("caller")
    if granted:
        assert (lesson["add"], lesson["remove"]) == ([f"network:*:{port}"], ["network"])
    else:
        assert (lesson["add"], lesson["needs"][0]["refused"]) == (["network"], True)


def test_what_was_refused_and_not_missed_is_not_proposed():
    script = python("""
try:
    open(os.path.expanduser("~/notes.txt"))
except OSError:
    pass
print(json.dumps({"result": "well enough"}))
""")
    plugin_folders.cyclop("plugins", "modest", script)
    command_line.ok("approve", "modest", "--yes")
    lesson = learned("modest")
    assert (lesson["add"], lesson["optional"], lesson["commands"]) == ([], ["filesystem:read:~/notes.txt"], [])
    assert "Refused, and it continued without:" in command_line.ok("learn", "modest", "--yes").out


def test_what_no_grant_opens_is_said():
    script = python(f"""
try:
    open("{command_line.home()}/anyplug.db")
except OSError:
    pass
print(json.dumps({{"result": "done"}}))
""")
    plugin_folders.cyclop("plugins", "curious", script)
    command_line.ok("approve", "curious", "--yes")
    assert learned("curious")["never"] == [f"read anyplug's own files: {command_line.home()}/anyplug.db"]


def test_a_stavrobot_tool_with_a_tmp_of_its_own_is_watched_too():
    script = '#!/usr/bin/env python3\nimport os\nopen("/tmp/scratch", "w")\nprint(open(os.environ["NOTES"]).read())\n'
    plugin_folders.stavrobot(
        "plugins", "kit", script.replace('os.environ["NOTES"]', repr(os.path.expanduser("~/notes.txt")))
    )
    command_line.ok("approve", "kit", "--yes")
    lesson = learned("kit.act")
    assert (lesson["add"], lesson["remove"]) == (["filesystem:read:~/notes.txt"], ["network"])


def test_an_extension_is_watched_from_its_start():
    zot_folders.extension(
        "plugins",
        "ext",
        """
hello()
tool("ext_read")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        say(frame, open(frame["args"]["path"]).read())
""",
    )
    command_line.ok("approve", "ext", "--yes")
    lesson = learned("ext_read", f"path={os.path.expanduser('~/notes.txt')}")
    assert lesson["result"]["text"] == "mine"
    assert lesson["add"] == ["filesystem:read:~/notes.txt"]
    assert "network" in lesson["remove"]


def test_a_workbench_plugin_is_watched_too():
    if find_node() is None:
        pytest.skip("no Node here")
    path = os.path.expanduser("~/notes.txt")
    plugin_folders.write(
        "plugins/bench/index.js",
        "exports.register = (api) => api.registerTool({ name: 'bench.read', description: 'Reads.', "
        "inputSchema: { type: 'object', properties: {} }, "
        f"run: async () => ({{ content: require('fs').readFileSync({path!r}, 'utf8') }}) }});\n",
    )
    plugin_folders.write("plugins/bench/package.json", '{"name": "bench", "version": "1.0.0"}')
    command_line.ok("approve", "bench", "--yes")
    lesson = learned("bench.read")
    assert lesson["result"]["text"] == "mine", lesson
    assert lesson["add"] == ["filesystem:read:~/notes.txt"]


def test_a_folder_that_was_named_gets_the_approval_that_it_would_need():
    folder = plugin_folders.cyclop("here", "reader", READS, permissions=["filesystem:read", "network"])
    done = command_line.run("-e", folder, "learn", "reader", "--yes", "--json")
    [command] = done.json["commands"]
    assert command == f"anyplug install {os.path.realpath(folder)} --grant 'filesystem:read:~/notes.txt'"
    command_line.ok(*shlex.split(command)[1:], "--yes")
    assert command_line.ok("call", "reader", "--yes").out == "mine\n"


def test_what_nobody_approved_is_not_run_and_an_unknown_tool_is_not_found():
    plugin_folders.cyclop("plugins", "hello")
    assert "it is not approved yet" in command_line.fails(3, "learn", "hello", "--yes").err
    assert "did you mean hello" in command_line.fails(4, "learn", "helo", "--yes").err


def test_while_confinement_is_off_nothing_can_be_learned(monkeypatch):
    reader()
    monkeypatch.setenv("ANYPLUG_CONFINEMENT", "off")
    assert "while ANYPLUG_CONFINEMENT" in command_line.fails(2, "learn", "reader", "--yes").err


def test_a_call_that_is_refused_says_so_and_teaches_nothing():
    plugin_folders.cyclop("plugins", "far", permissions=["network:example.org:443", "network:*:80"])
    command_line.ok("approve", "far", "--yes")
    done = command_line.run("learn", "far", "--yes")
    assert done.code == 3
    assert "its permissions cannot be enforced" in done.err
    assert done.out == ""
