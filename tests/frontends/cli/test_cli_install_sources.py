"""From a paste to a call in two commands: snippets, command lines, plugins of other agents; and several at once."""

import json
import os
import subprocess
from pathlib import Path

import command_line
import plugin_folders
import zot_folders
from foreign_folders import SERVER, claude_plugin

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


def test_a_snippet_a_command_and_a_claude_plugin_are_called_with_the_second_command(tmp_path):
    server = plugin_folders.write(f"{tmp_path}/kit/server.py", SERVER.replace("PLUGIN_NAME", "kit"))
    snippet = {"mcpServers": {"counter": {"command": "python3", "args": [server], "env": {"API_KEY": KEY}}}}
    done = command_line.ok("install", "-", "--yes", stdin=json.dumps(snippet))
    assert "It asks for:" in done.err
    assert f"filesystem:read:{tmp_path}/kit" in done.err
    assert KEY not in done.err + done.out
    assert command_line.ok("call", "mcp.counter.count", "text=a b", "--yes").out == "words: 2\n"
    assert [row["name"] for row in command_line.ok("secret", "counter", "--json").json] == ["API_KEY"]
    home = find_text(command_line.home(), KEY)
    assert [os.path.basename(path) for path in home] == ["secrets.json"]

    done = command_line.ok("install", "--yes", "python3", server, "--flag", "x")
    assert f"server: python3 {server} --flag x" in done.err
    assert command_line.ok("call", "mcp.server.count", "text=a b c", "--yes").out == "words: 3\n"
    assert "is up to date" in command_line.ok("update", "server").out

    done = command_line.ok("install", claude_plugin(tmp_path / "greeter"), "--yes")
    assert "note: hook, not run: PostToolUse of Write: fmt.sh" in done.err
    assert command_line.ok("call", "mcp.greeter.count", "text=a", "--yes").out == "words: 1\n"
    assert "hook, not run: PostToolUse" in command_line.ok("show", "greeter").out


def repository(folder):
    """Put a folder under git, with one commit; give its address."""
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qmx"]):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return f"file://{folder}"


def test_from_git_an_extension_takes_two_commands_and_a_stavrobot_plugin_with_a_secret_three(tmp_path):
    command_line.ok("install", repository(zot_folders.extension(tmp_path, "hush")), "--yes")
    assert command_line.ok("call", "hush", "text=x", "--yes").out == '{"text": "x"}\n'

    script = "#!/bin/sh\ngrep -q sk-47 ../config.json && echo '{\"n\": 1}'\n"
    config = {"api_key": {"description": "d", "required": True}}
    done = command_line.ok(
        "install", repository(plugin_folders.stavrobot(tmp_path, "kit", script, config=config)), "--yes"
    )
    assert "`anyplug config kit api_key` asks for it" in done.err
    command_line.ok("config", "kit", "api_key", stdin="sk-47\n")
    assert command_line.ok("call", "kit.act", "--yes").out == '{"n": 1}\n'


def test_a_snippet_whose_values_another_program_asks_for_says_how_to_give_them(tmp_path, monkeypatch):
    monkeypatch.delenv("KIT_API_KEY", raising=False)
    server = plugin_folders.write(f"{tmp_path}/server.py", SERVER.replace("PLUGIN_NAME", "kit"))
    entry = {"command": "python3", "args": [server], "env": {"KIT_API_KEY": "${input:kit-key}"}}
    snippet = {"inputs": [{"id": "kit-key", "type": "promptString"}], "servers": {"kit": entry}}
    done = command_line.ok("install", "-", "--yes", stdin=json.dumps(snippet))
    assert "it needs KIT_API_KEY: `anyplug secret kit KIT_API_KEY` asks for it" in done.err
    failed = command_line.run("call", "mcp.kit.count", "text=a", "--yes")
    assert "`anyplug secret kit KIT_API_KEY`" in failed.err
    command_line.ok("secret", "kit", "KIT_API_KEY", stdin=KEY)
    assert command_line.ok("call", "mcp.kit.count", "text=a b", "--yes").out == "words: 2\n"


def test_fields_of_a_pasted_server_that_are_not_understood_are_named(tmp_path):
    server = plugin_folders.write(f"{tmp_path}/server.py", SERVER.replace("PLUGIN_NAME", "kit"))
    entry = {"command": "python3", "args": [server], "name": "Kit", "disabled": False, "type": "stdio"}
    assert "without these fields" not in command_line.ok("install", json.dumps({"kit": entry})).err
    entry |= {"envFile": "${workspaceFolder}/.env", "alwaysAllow": ["count"]}
    done = command_line.ok("install", "-", "--name", "other", stdin=json.dumps({"mcpServers": {"kit": entry}}))
    assert "the server 'other' is used without these fields of its entry: envFile, alwaysAllow\n" in done.err
    assert 'hint: write the variables that it needs into "env"' in done.err


def find_text(folder, text):
    """Find the files that contain a text."""
    return [str(path) for path in Path(folder).rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_an_option_of_ours_behind_a_command_is_named_and_not_lost_silently(tmp_path):
    server = plugin_folders.write(f"{tmp_path}/server.py", SERVER)
    done = command_line.ok("install", "python3", server, "--yes")
    assert "--yes is passed to the server; what is meant for anyplug stands before its command: " in done.err
    assert f"`anyplug install --yes python3 {server}`" in done.err
    done = command_line.ok("install", "--name", "b", "--", "python3", server, "--yes")
    assert "is passed to the server" not in done.err


def test_a_container_is_shown_as_not_confined_by_us():
    done = command_line.run("install", "--json", "docker", "run", "-i", "--rm", "mcp/fetch")
    assert done.code == 0, done
    assert done.json["name"] == "fetch"
    [problem] = [one for one in done.json["problems"] if one["code"] == "not_sandboxed"]
    assert "outside anyplug's sandbox" in problem["message"]
    assert "network:unix" in command_line.ok("show", "fetch", "--json").json["permissions"]["asked"]


def test_several_plugins_are_listed_and_taken_by_name_or_all(tmp_path):
    for name in ("one", "two", "three"):
        plugin_folders.cyclop(tmp_path / "many/plugins", name)
    many = str(tmp_path / "many")
    done = command_line.fails(1, "install", many, "--yes")
    assert "has 3 plugins: one, three, two" in done.err
    assert f"`anyplug install {many} one`" in done.err
    assert "it has one, three, two" in command_line.fails(1, "install", many, "four", "--yes").err
    assert "1 of 1 plugin installed" in command_line.ok("install", many, "two", "--yes").out
    done = command_line.run("install", many, "--all", "--yes", "--json")
    assert done.code == 1  # `two` is there already, and does not stop the others
    assert sorted(one.get("name", "-") for one in done.json) == ["-", "one", "three"]
    assert command_line.listed("three")["state"] == "approved"


def test_questions_about_a_paste_are_asked_at_the_terminal(tmp_path):
    command = ["install", "python3", plugin_folders.write(f"{tmp_path}/server.py", SERVER)]
    terminal = command_line.at_terminal(*command, answers=[("Approve it?", "y")])
    assert "server is approved" in terminal.seen
