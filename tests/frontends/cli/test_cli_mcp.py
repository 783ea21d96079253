"""The command line with MCP servers: list, tools, show, check, approve, call, and what is never shown."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import plugin_folders
import processes
from command_line import at_terminal, fails, listed, ok, run
from conftest import HABITS

COUNTED = """
open("starts.txt", "a").write("x")
from rpc import TOOL, calls, say
tool = {**TOOL, "title": "Act now", "inputSchema": {"type": "object", "properties": {"n": {"type": "number"}}}}
for call in calls(tools=[tool]): say(call, repr(call["params"]["arguments"]))
"""
SECRET = "sk-0123456789abcdef"


@pytest.fixture
def folder(home):
    """Put a plugin of two servers where plugins are found."""
    path = str(home / "plugins" / "pair")
    plugin_folders.write(f"{path}/server.py", COUNTED)
    shutil.copy(os.path.join(HABITS, "mcp", "rpc.py"), path)
    entry = {"command": "python3", "args": ["server.py"]}
    servers = {"one": {**entry, "env": {"API_KEY": SECRET, "MODE": "fast"}}, "two": entry}
    plugin_folders.write(f"{path}/mcp.json", json.dumps({"mcpServers": servers}))
    return path


def starts(folder):
    return len(processes.read(os.path.join(folder, "starts.txt")))


def test_servers_are_listed_approved_called_and_shown(folder):
    assert listed("pair")["state"] == "new"
    assert "MCP" in ok("list").out
    assert starts(folder) == 0
    said = ok("approve", "pair", "--yes").err
    assert "pair (MCP) in" in said
    assert "  one: python3 server.py (with API_KEY=********, MODE=fast)" in said
    assert "  two: python3 server.py" in said
    before = starts(folder)
    assert [tool["name"] for tool in ok("tools", "--json").json] == ["mcp.one.act", "mcp.two.act"]
    assert starts(folder) == before  # what is known need not be started
    assert ok("call", "mcp.two.act", "n=3", "--yes").out.strip() == "{'n': 3}"
    assert starts(folder) == before + 1  # only the one that was needed
    assert fails(3, "call", "mcp.two.act").code == 3  # tier 2 asks
    about = ok("tools", "mcp.one.act").out
    assert "Act now" in about
    assert "mcp_one_act" in about


def test_show_gives_every_server_and_its_health_and_no_secret(folder):
    ok("approve", "pair", "--yes")
    shown = ok("show", "pair")
    words = " ".join(shown.out.split())
    assert "one: running, pid" in words
    assert "two: running, pid" in words
    assert "API_KEY" in shown.out
    shape = ok("show", "pair", "--json")
    assert SECRET not in shown.out + shape.out
    assert {name: each["health"] for name, each in shape.json["process"]["processes"].items()} == {
        "one": "running",
        "two": "running",
    }
    assert shape.json["servers"][0] == {
        "name": "one",
        "command": ["python3", "server.py"],
        "cwd": None,
        "environment": {"API_KEY": "********", "MODE": "fast"},
        "url": None,
        "headers": [],
    }


WITH_SECRETS = (
    ({"command": "x", "args": ["--api-key", "hunter2hunter2", "on"]}, "x --api-key ******** on"),
    ({"command": "x", "args": ["--token=hunter2hunter2"]}, "x --token=********"),
    ({"command": "x", "args": ["--token=${TOKEN}"]}, "x --token=${TOKEN}"),
    ({"command": "x", "args": [SECRET]}, "x ********"),
    ({"command": "x", "args": ["--header", "Authorization: Bearer hunter2hunter2"]}, "Bearer ********"),
    ({"url": "https://ada:hunter2hunter2@x.org/mcp"}, "https://********@x.org/mcp"),
    ({"url": "https://x.org/mcp?key=hunter2hunter2&v"}, "https://x.org/mcp?key=********&v"),
    ({"url": "https://x.org", "headers": {"Authorization": "hunter2hunter2"}}, "https://x.org (with Auth"),
    ({"command": "x", "env": {"DB_PASSWORD": "hunter2hunter2"}}, "x (with DB_PASSWORD=********)"),
    ({"command": "x", "env": {"URL": "https://a:hunter2hunter2@x"}}, "x (with URL=********)"),
)  # entries of servers, and how they are shown


def test_what_looks_like_a_secret_is_not_shown(home):
    servers = {f"s{number}": entry for number, (entry, _) in enumerate(WITH_SECRETS)}
    plugin_folders.write(str(home / "plugins" / "kit" / "mcp.json"), json.dumps({"mcpServers": servers}))
    for words in (("show", "kit"), ("show", "kit", "--json"), ("list",), ("approve", "kit")):
        done = run(*words)
        assert "hunter2" not in done.out + done.err
        assert SECRET not in done.out + done.err
    said = run("show", "kit").out
    for number, (_, shown) in enumerate(WITH_SECRETS):
        assert re.search(f"s{number}: .*{re.escape(shown)}", said), said


def test_one_server_that_is_down_is_told_apart_from_one_that_is_up(folder):
    config = json.loads(processes.read(f"{folder}/mcp.json"))
    config["mcpServers"]["two"]["args"] = ["-c", "import sys; sys.exit('no licence')"]
    plugin_folders.write(f"{folder}/mcp.json", json.dumps(config))
    ok("approve", "pair", "--yes")
    shown = ok("show", "pair").out
    assert "one: running, pid" in " ".join(shown.split())
    assert "no licence" in shown
    assert ok("call", "mcp.one.act", "--yes").out.strip() == "{}"
    tools = ok("tools")
    assert "mcp.one.act" in tools.out
    assert "no licence" in tools.err


def test_check_works_for_a_folder(folder, tmp_path):
    assert ok("check", folder).out.strip() == "pair: MCP plugin (it reports its tools when it runs), no problems"
    plugin_folders.write(
        str(tmp_path / "loose" / "mcp.json"), '{"mcpServers": {"a": {"command": "npx", "args": ["some"]}}}'
    )
    done = run("check", str(tmp_path / "loose"))
    assert done.code == 1
    assert "hint: name the version, like some@1.2.3" in done.out


def test_a_person_sees_the_commands_and_the_warnings_before_they_agree(home):
    servers = {"loose": {"command": "npx", "args": ["-y", "some-server"]}, "far": {"url": "https://x.org/mcp"}}
    plugin_folders.write(str(home / "plugins" / "kit" / "mcp.json"), json.dumps({"mcpServers": servers}))
    terminal = at_terminal("approve", "kit", answers=[("Approve it?", "n")])
    said = " ".join(terminal.seen.split())
    assert "loose: npx -y some-server" in said
    assert "far: https://x.org/mcp" in said
    assert "the digest does not cover what runs" in said


def test_another_programs_configuration_is_used_where_it_is_and_never_removed(settings):
    path = Path(os.environ["HOME"]) / ".client.json"
    entry = {
        "command": "python3",
        "args": [os.path.join(HABITS, "mcp", "well-behaved", "server.py")],
        "env": {"PYTHONPATH": os.path.join(HABITS, "mcp")},
    }
    plugin_folders.write(str(path), json.dumps({"mcpServers": {"toy": entry}}))
    settings('[mcp]\nclient = "~/.client.json"\n')
    assert listed("client")["path"] == str(path)
    ok("approve", "client", "--yes", "--always")
    assert ok("call", "client/act").out.strip() == "done"
    assert str(path) in ok("show", "client").out
    for words in (("remove", "client", "--yes"), ("remove", str(path), "--yes")):
        assert "belongs to another program" in fails(1, *words).err
    assert path.exists()
    assert run("--no-discover", "list", "--json").json == []


def test_a_plugin_is_installed_under_the_name_of_its_folder(folder, home):
    shutil.copytree(folder, "somewhere/my-kit")
    assert ok("install", "somewhere/my-kit", "--yes", "--json").json["name"] == "my-kit"
    assert (home / "plugins" / "my-kit" / "mcp.json").exists()
    os.makedirs("whole/inner")
    shutil.copytree("somewhere/my-kit", "whole/inner/deep-kit")
    ok("install", "whole", "--subdir", "inner/deep-kit/", "--yes")
    assert listed("deep-kit")["state"] == "approved"


def test_settings_that_are_no_paths_are_refused(settings):
    settings("[mcp]\nclient = 3\n")
    assert "settings.toml" in fails(1, "list").err
