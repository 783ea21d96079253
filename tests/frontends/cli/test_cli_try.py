"""`try` keeps nothing; `outdated` and `update` alone change nothing; `approve --all` asks about each."""

import os
from pathlib import Path

import command_line
import plugin_folders
from foreign_folders import SERVER


def kept():
    """List what lies in the home, except for the audit and empty folders."""
    found = [path for path in Path(command_line.home()).rglob("*") if path.is_file() or path.is_symlink()]
    names = {str(path.relative_to(command_line.home())) for path in found}
    return {name for name in names if not name.startswith(("audit-", "anyplug.db", "journal/", "bin/", "daemon"))}


def test_a_tool_is_tried_once_confined_and_nothing_is_kept(tmp_path):
    folder = plugin_folders.cyclop(tmp_path / "here", "peek")
    before = sorted(os.listdir(folder))
    done = command_line.fails(3, "try", folder, "peek")
    assert "--yes` runs it without asking" in done.err
    assert f"(Cyclop One) from {folder}\n" in done.err
    schema = {"type": "object", "properties": {"of": {"type": "string", "description": "What to look at."}}}
    longer = plugin_folders.cyclop(tmp_path / "here", "longer", tools=[
        {"name": "longer", "description": "d", "input_schema": schema}
    ])  # fmt: skip
    done = command_line.fails(3, "try", longer, "longer")
    assert f"that models read: `anyplug --plugin {longer} tools longer` shows all" in done.err
    terminal = command_line.at_terminal("try", folder, "peek", answers=[("Run it once?", "n")])
    assert "'peek' was not run" in terminal.seen
    command_line.run("try", folder, "peek", "--yes")
    assert sorted(os.listdir(folder)) == before
    server = plugin_folders.write(f"{tmp_path}/server.py", SERVER)
    done = command_line.ok("try", f"python3 {server}", "count", "text=a b", "--yes")
    assert (done.out, "It asks for:" in done.err) == ("words: 2\n", True)
    done = command_line.ok("try", f"python3 {server}", "--yes")
    assert "count  Count the words of a text." in done.out
    assert kept() == set()
    tried = command_line.ok("audit", "--kind", "trust", "--json").json[-1]
    assert (tried["tool"], tried["plugin"]) == ("try", "server")
    command_line.ok("install", folder, "--yes")
    assert "is kept in" not in command_line.run("try", folder, "peek", "--yes").err  # nothing is
    assert "put it into quotes" in command_line.fails(2, "try", "python3", server, "--yes").err


def test_outdated_and_update_alone_say_what_would_be_done(tmp_path):
    one, two = (plugin_folders.cyclop(tmp_path / "up", name) for name in ("one", "two"))
    for folder in (one, two):
        command_line.ok("install", folder, "--yes")
    assert command_line.ok("outdated").out == "2 plugins up to date\n"
    with open(f"{one}/run", "a", encoding="utf-8") as file:
        file.write("# more\n")
    for command in ("outdated", "update"):
        done = command_line.ok(command)
        assert "one" in done.out
        assert "1 file" in done.out
        assert "1 plugin up to date" in done.out
        assert "`anyplug update --all` updates it" in done.err
    found = {shape["name"]: shape["outdated"] for shape in command_line.ok("outdated", "--json").json}
    assert found == {"one": True, "two": False}
    assert command_line.listed("one")["state"] == "approved"  # nothing was moved
    command_line.ok("update", "--all", "--yes")
    os.rename(two, f"{tmp_path}/gone")
    done = command_line.run("outdated")
    assert done.code == 1
    assert "two: the folder it was installed from no longer exists" in done.err


def test_all_that_wait_are_approved_one_after_the_other(tmp_path):
    for name in ("one", "two", "three"):
        plugin_folders.cyclop(f"{command_line.home()}/plugins", name)
    assert "`anyplug approve --all` asks about each of" in command_line.fails(2, "approve").err
    with command_line.Terminal("approve", "--all") as terminal:
        for number, answer in enumerate(("y", "n", "y"), 1):
            terminal.sees_times("Approve it?", number)
            terminal.types(answer)
        assert "2 of 3 plugins approved" in terminal.end()
    done = command_line.ok("approve", "--all", "--yes", "--json")
    assert {shape["state"] for shape in done.json} == {"approved"}
    assert command_line.ok("approve", "--all").out == "No plugin is waiting for approval.\n"
