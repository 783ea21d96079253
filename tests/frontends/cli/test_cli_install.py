"""`install`, `update` and `remove`, as a person types them. What they do with folders: tests/test_install.py."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess

import pytest

import command_line
import plugin_folders
import processes
import zot_folders
from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import find_home

INSTALLED = {
    "name", "format", "version", "description", "path", "state", "health", "tier", "tools", "commands", "shadowed_by",
    "problems", "commit", "instructions",
}  # fmt: skip
UPDATED = INSTALLED | {"updated", "beside", "kept"}
ONE, TWO = "#!/bin/sh\necho one", "#!/bin/sh\necho two"


@pytest.fixture
def source(tmp_path):
    """Give the source of the plugin `kit`, that says `one`."""
    return plugin_folders.stavrobot(tmp_path / "source", "kit", ONE, instructions="Read me.")


def change(source, run=TWO, **changes):
    plugin_folders.stavrobot(os.path.dirname(source), "kit", run, **changes)


def set_up_by(source, script):
    """Give the source an init script."""
    plugin_folders.stavrobot(os.path.dirname(source), "kit", TWO, init={"entrypoint": "init.sh"})
    plugin_folders.write(f"{source}/init.sh", script, 0o755)


def in_plugins():
    folder = os.path.join(command_line.home(), "plugins")
    return os.listdir(folder) if os.path.isdir(folder) else []


@pytest.mark.requirement("STV-08")
def test_away_from_a_terminal_a_plugin_is_installed_and_not_approved(source):
    done = command_line.ok("install", source)
    assert "kit is installed in" in done.out
    assert "Instructions from the plugin's author, for you:\n\n| Read me." in done.out
    assert "hint: review its permissions with `anyplug approve kit`" in done.err
    assert command_line.listed("kit")["state"] == "new"


def test_what_changed_in_configuration_and_instructions_is_shown(source):
    keys = {"api_key": {"description": "The key."}, "size": {"description": "How many.", "default": 3}}
    change(source, instructions="Read me.\nThen rest.", config=keys)
    command_line.ok("install", source, "--yes")
    keys = {"size": {"description": "How many.", "default": 4, "required": True}, "city": {"description": "Where."}}
    change(source, instructions="Read me.\nThen run." + "x" * 5000, config=keys)
    changes = [
        "config: api_key is not used any more",
        "config: size is now required",
        "config: size now has the default 4, before the default 3",
        "config: city is new (optional): Where.",
        "instructions: - Then rest.",
        "instructions: + Then run.",
        "more characters are in",
    ]
    done = command_line.ok("update", "kit", "--yes")
    assert all(" ".join(change.split()) in " ".join(done.out.split()) for change in changes), done.out
    assert "| Read me." in done.out
    installed = os.path.join(command_line.home(), "plugins", "kit")
    plugin_folders.stavrobot(os.path.dirname(installed), "kit", TWO, instructions="Run.", config=keys)
    done = command_line.ok("approve", "kit", "--yes")
    assert "instructions: + Run." in done.err
    assert "Instructions from the plugin's author, for you:\n| Run." in done.err


def test_a_folder_without_its_manifest_is_broken_and_can_be_removed_or_updated(source):
    command_line.ok("install", source, "--yes", "--always")
    installed = os.path.join(command_line.home(), "plugins", "kit")
    for cure in ("update", "remove"):
        os.remove(f"{installed}/manifest.json")
        entry = command_line.listed("kit")
        assert entry["state"] == "broken"
        assert entry["problems"][0]["message"] == f"{installed} has no manifest"
        assert "has no manifest" in command_line.ok("list").out
        command_line.ok("show", "kit")
        assert "'kit'" in command_line.fails(1, "install", source).err
        command_line.ok(cure, "kit", "--yes")
        assert (command_line.run("call", "kit.act").code == 0) == (cure == "update")
    assert in_plugins() == []
    plugin_folders.stavrobot("data/tools", "own", ONE)
    os.makedirs("data/tools/notes")
    command_line.ok("approve", "own", "--yes")
    own = os.path.abspath("data/tools/own")
    os.rename("data/tools/own/manifest.json", "data/tools/own/manifst.json")
    (entry,) = command_line.ok("list", "--json").json
    assert entry["problems"][0]["hint"] == f"`mv {own}/manifst.json {own}/manifest.json`"
    os.remove("data/tools/own/manifst.json")
    (entry,) = command_line.ok("list", "--json").json
    assert (entry["name"], entry["state"]) == ("own", "broken")
    # Only what was installed has its source elsewhere: no hint deletes what the person wrote.
    assert entry["problems"][0]["hint"] == f"restore its manifest; `anyplug revoke {own}` takes it off the list"
    command_line.ok("remove", os.path.abspath("data/tools/own"), "--yes")
    assert os.listdir("data/tools") == ["notes"]


def test_with_yes_it_is_approved_too(source):
    done = command_line.ok("install", source, "--yes", "--always")
    assert done.out.endswith("kit is approved: it runs without asking\n")
    assert command_line.ok("call", "kit.act").out == "one\n"


def test_in_json_there_is_one_object_at_the_end(source):
    done = command_line.ok("install", source, "--json", "--yes")
    assert set(done.json) == INSTALLED
    assert (done.json["state"], done.json["commit"], done.json["instructions"]) == ("approved", None, "Read me.")
    assert done.err == ""
    change(source)
    done = command_line.ok("update", "kit", "--json", "--yes")
    assert (set(done.json), done.json["state"], done.json["updated"]) == (UPDATED, "approved", True)
    assert command_line.ok("update", "kit", "--json").json["updated"] is False
    change(source, ONE)
    assert command_line.ok("update", "kit", "--json").json["state"] == "changed"


def test_at_a_terminal_a_person_is_asked(source):
    seen = command_line.at_terminal("install", source, answers=[("Approve it? [y/N]", "y")])
    assert seen.code == 0
    assert "network: talk to other machines" in seen.seen
    assert command_line.listed("kit")["state"] == "approved"


def test_one_who_says_no_keeps_the_plugin_but_nothing_runs(source):
    seen = command_line.at_terminal("install", source, answers=[("Approve it?", "n")])
    assert seen.code == 3
    assert command_line.listed("kit")["state"] == "new"


@pytest.mark.requirement("STV-01")
def test_a_repository_is_installed_and_its_commit_named(source):
    words = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    for command in (["init", "--quiet"], ["add", "."], [*words, "commit", "--quiet", "--message", "x"]):
        subprocess.run(["git", "-C", source, *command], check=True)
    head = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert f"kit is installed at {head[:12]} in" in command_line.ok("install", f"file://{source}").out
    assert command_line.ok("update", "kit", "--json").json["commit"] == head.strip()
    assert command_line.ok("update", "kit").out == f"kit is up to date, at {head[:12]}\n"


def test_a_short_name_says_that_it_is_no_folder(monkeypatch):
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")  # nothing is fetched
    plugin_folders.cyclop("here", "kit")
    assert "/here/kit" not in command_line.ok("install", "here/kit").err
    done = command_line.fails(1, "install", "heer/kit")
    said = "there is no folder 'heer/kit' here, so it is fetched from https://github.com/heer/kit; did you mean "
    assert f"{said}{os.path.abspath('here/kit')}?\n" in done.err
    assert "there is no folder 'a/b' here" in command_line.fails(1, "install", "a/b@v1").err.replace("a/b@v1", "a/b")
    assert "no folder" not in command_line.fails(1, "install", "https://github.com/a/b").err


def test_what_cannot_be_installed_is_an_error_with_a_hint_and_leaves_nothing(tmp_path):
    done = command_line.fails(1, "install", "nowhere")
    assert "the folder 'nowhere' does not exist" in done.err
    plugin_folders.write("here/notes.txt", "text")
    assert "'here/notes.txt' is a file, but not an archive" in command_line.fails(1, "install", "here/notes.txt").err
    assert f"did you mean {os.path.abspath('here')}?" in command_line.fails(1, "install", "./her").err
    assert "https://" in done.err
    done = command_line.run("install", "nowhere", "--json")
    plugin_folders.write("here/kit/plugin.json", "{,}")
    cure = f"`python3 -m json.tool {os.path.abspath('here/kit/plugin.json')}` shows where"
    assert cure in command_line.fails(1, "install", "here/kit").err
    assert (done.code, done.json["error"]["code"]) == (1, "install_failed")
    assert "the folder 'ext::" in command_line.fails(1, "install", "ext::touch ran").err
    assert "is not a ref" in command_line.fails(1, "install", f"file://{tmp_path}", "--ref=-x").err
    assert in_plugins() == []
    assert not os.path.exists("ran")


def test_a_set_up_that_fails_leaves_nothing_installed(source):
    set_up_by(source, "#!/bin/sh\necho no luck >&2\nexit 1\n")
    done = command_line.run("install", source, "--yes")
    assert done.code == 1
    assert "Init script failed: no luck" in done.err
    assert "kit was not installed, because its setup failed" in done.err
    assert in_plugins() == []
    done = command_line.run("install", source, "--yes", "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "crashed")
    assert in_plugins() == []


@pytest.mark.requirement("STV-13")
def test_an_update_asks_again_and_keeps_configuration_and_state(source):
    command_line.ok("install", source, "--yes", "--always")
    folder = os.path.join(command_line.home(), "plugins", "kit")
    plugin_folders.write(f"{folder}/config.json", '{"mine": 1}')
    plugin_folders.write(f"{folder}/state.json", "mine")
    change(source)
    seen = command_line.at_terminal("update", "kit", answers=[("Approve it?", "y")])
    assert seen.code == 0
    assert "Changed since it was approved: act/run changed" in seen.seen
    assert command_line.ok("call", "kit.act").out == "two\n"
    assert command_line.read_json(f"{folder}/config.json") == {"mine": 1}
    assert command_line.read(f"{folder}/state.json") == "mine"


@pytest.mark.requirement("STV-08")
def git(folder, *words):
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", folder, *author, *words], check=True, capture_output=True)


def test_an_update_goes_back_to_an_older_version_and_stays_there(source):
    change(source, ONE, config={"api_key": {"description": "The key."}})
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "one"], ["tag", "v1"]):
        git(source, *words)
    change(source, config={"api_key": {"description": "The key."}})
    git(source, "commit", "-q", "-a", "-m", "two")
    command_line.ok("install", f"file://{source}", "--yes")
    command_line.ok("config", "kit", "api_key=mine")
    assert "two" in command_line.ok("call", "kit.act", "text=x", "--yes").out
    assert "needs one plugin" in command_line.fails(2, "update", "--all", "--ref", "v1").err
    assert "no-such" in command_line.fails(1, "update", "kit", "--ref", "no-such", "--yes").err
    command_line.ok("update", "kit", "--ref", "v1", "--yes")
    assert "one" in command_line.ok("call", "kit.act", "text=x", "--yes").out
    assert "mine" in command_line.read(f"{command_line.home()}/plugins/kit/config.json")
    assert "is up to date" in command_line.ok("update", "kit", "--yes").out
    command_line.ok("update", "kit", "--ref", "", "--yes")
    assert "two" in command_line.ok("call", "kit.act", "text=x", "--yes").out
    assert "update" in command_line.fails(2, "rollback", "kit").err
    said = command_line.ok("remove", "kit", "--yes").err
    assert "plugins/kit/config.json, with the values that you set" in said


def test_an_update_shows_the_instructions_of_the_new_version(source):
    command_line.ok("install", source)
    change(source, instructions="Get a *new* key:\n  1. Ask for it.")
    done = command_line.ok("update", "kit")
    assert "Instructions from the plugin's author, for you:\n\n| Get a *new* key:\n|   1. Ask for it.\n" in done.out


def test_one_who_refuses_an_update_keeps_the_version_before(source):
    command_line.ok("install", source, "--yes", "--always")
    change(source)
    seen = command_line.at_terminal("update", "kit", answers=[("Approve it?", "n")])
    assert seen.code == 3
    assert "kit is not updated; the previous version is restored" in seen.seen
    assert command_line.listed("kit")["state"] == "approved"
    assert command_line.ok("call", "kit.act").out == "one\n"
    assert in_plugins() == ["kit"]


def test_an_update_whose_set_up_fails_goes_back_to_the_version_that_works(source):
    command_line.ok("install", source, "--yes", "--always")
    set_up_by(source, "#!/bin/sh\nrm -rf act\necho no luck >&2\nexit 1\n")
    done = command_line.run("update", "kit", "--yes")
    assert done.code == 1
    assert "no luck" in done.err
    assert "the previous version is restored" in done.err
    assert command_line.ok("call", "kit.act").out == "one\n"
    assert in_plugins() == ["kit"]


def test_an_update_without_a_word_from_anybody_waits_to_be_approved(source):
    command_line.ok("install", source, "--yes", "--always")
    change(source)
    done = command_line.ok("update", "kit")
    assert "with `anyplug approve kit`" in done.err
    assert "it changed since it was approved" in command_line.fails(3, "call", "kit.act").err


def test_an_update_that_changes_nothing_asks_nothing(source):
    command_line.ok("install", source, "--yes", "--always")
    seen = command_line.at_terminal("update", "kit")
    assert seen.code == 0
    assert "kit is up to date" in seen.seen
    assert "It asks for" not in seen.seen
    assert "updated" not in seen.seen
    assert command_line.ok("call", "kit.act").out == "one\n"


TODO = """
hello()
tool("add")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        with open("todos.json") as file:
            todos = json.load(file) + [frame["args"]["what"]]
        with open("todos.json", "w") as file:
            json.dump(todos, file)
        say(frame, str(len(todos)))
"""


@pytest.mark.requirement("ZOT-09")
def test_what_an_extension_added_to_a_file_of_its_own_outlives_updates(tmp_path):
    source = zot_folders.extension(tmp_path / "source", "todo", TODO)
    plugin_folders.write(f"{source}/todos.json", '["example"]')
    command_line.ok("install", source, "--yes", "--always")
    for number, what in ((2, "tea"), (3, "milk")):
        assert command_line.ok("call", "add", f"what={what}").out == f"{number}\n"
    folder = os.path.join(command_line.home(), "plugins", "todo")
    assert command_line.ok("update", "todo").out == "todo is up to date\n"
    plugin_folders.write(f"{source}/run.py", zot_folders.PRELUDE + TODO + "# more", 0o755)
    done = command_line.ok("update", "todo", "--yes")
    assert "todos.json" not in done.err
    assert command_line.ok("call", "add", "what=bread").out == "4\n"
    assert command_line.read_json(f"{folder}/todos.json") == ["example", "tea", "milk", "bread"]
    plugin_folders.write(f"{source}/todos.json", '["another example"]')
    done = command_line.ok("update", "todo", "--yes")
    assert "todos.json is unchanged; the new version of it is next to it, as todos.json.new" in done.err
    assert command_line.read_json(f"{folder}/todos.json") == ["example", "tea", "milk", "bread"]
    assert command_line.read_json(f"{folder}/todos.json.new") == ["another example"]


def test_an_extension_that_switches_itself_off_is_installed_with_a_word_about_it(tmp_path):
    source = zot_folders.extension(tmp_path / "source", "todo", enabled=False)
    done = command_line.ok("install", source, "--yes")
    path = os.path.join(command_line.home(), "plugins", "todo", "extension.json")
    cure = f'hint: it is turned off: set "enabled" to true in {path}'
    assert f"{cure}; then `anyplug approve todo`\n" in done.err
    command_line.ok("approve", "todo", "--yes")
    assert command_line.ok("update", "todo").err.endswith(f"{cure}\n")


def test_of_an_extension_that_builds_itself_at_its_first_start_is_said_that_it_changed(tmp_path):
    building = "if not os.path.exists('built.sh'):\n    os.close(os.open('built.sh', os.O_CREAT, 0o755))\n"
    done = command_line.ok(
        "install", zot_folders.extension(tmp_path / "source", "web", building + zot_folders.ECHO), "--yes"
    )
    assert "warning: web has changed its own code since it was approved: built.sh is new" in done.err
    assert "`anyplug approve web` allows that" in done.err
    assert "it does not run before that" not in done.err
    command_line.ok("approve", "web", "--yes", "--always")
    assert command_line.ok("call", "web").out == "{}\n"


def test_where_an_update_keeps_what_has_no_place_in_the_new_version_is_said(source):
    command_line.ok("install", source, "--yes", "--always")
    plugin_folders.write(f"{command_line.home()}/plugins/kit/act/run", "#!/bin/sh\necho mine", 0o755)
    change(source)
    kept = f"{command_line.home()}/kept/kit/1/act/run"
    done = command_line.ok("update", "kit", "--yes")
    assert f"act/run was changed here and is not in the new version; it is kept as {kept}" in done.err
    assert command_line.read(kept).endswith("echo mine")
    plugin_folders.write(f"{command_line.home()}/plugins/kit/act/run", "#!/bin/sh\necho mine", 0o755)
    change(source, ONE)
    assert command_line.ok("update", "kit", "--yes", "--json").json["kept"] == [
        f"{command_line.home()}/kept/kit/2/act/run"
    ]


def test_an_update_does_not_widen_what_was_granted(tmp_path):
    source = plugin_folders.cyclop(tmp_path / "source", "hello", permissions=["network", "clipboard"])
    command_line.ok("install", source, "--yes", "--grant", "clipboard", "--always")
    plugin_folders.cyclop(
        tmp_path / "source", "hello", plugin_folders.ANSWER + "#", permissions=["network", "clipboard"]
    )
    command_line.ok("update", "hello", "--yes")
    assert command_line.ok("show", "hello", "--json").json["permissions"]["granted"] == ["clipboard"]
    assert command_line.ok("call", "hello").out == "done\n"


def test_what_a_person_follows_is_set_up_anew_without_a_question(source):
    command_line.ok("install", source, "--yes", "--always", "--follow")
    set_up_by(source, "#!/bin/sh\necho set up > made-by-init\n")
    command_line.ok("update", "kit")
    assert command_line.ok("call", "kit.act").out == "two\n"
    assert "made-by-init" in os.listdir(os.path.join(command_line.home(), "plugins", "kit"))


def test_a_plugin_of_the_project_cannot_be_updated():
    plugin_folders.cyclop("plugins", "hello")
    assert "was not installed by anyplug" in command_line.fails(1, "update", "hello").err


def test_who_refused_first_and_installs_again_is_told_how_to_approve(source):
    refused = command_line.at_terminal("install", source, answers=[("Approve it?", "n")])
    assert (refused.code, "`anyplug approve kit` asks again" in refused.seen) == (3, True)
    assert "hint: it waits for `anyplug approve kit`" in command_line.fails(1, "install", source).err
    command_line.ok("approve", "kit", "--yes")
    assert "hint: run `anyplug update kit`" in command_line.fails(1, "install", source).err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_set_up_leaves_nothing_installed(source, number):
    set_up_by(source, "#!/bin/sh\nexec sleep 60\n")
    process = command_line.start("install", source, "--yes")
    assert processes.until(command_line.waits)
    process.send_signal(number)
    done = command_line.finish(process)
    assert done.code == 128 + number
    assert "kit was not installed, because it was interrupted" in done.err
    assert in_plugins() == []
    assert not command_line.waits()


def test_an_interrupted_fetch_leaves_neither_folder_nor_process():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        process = command_line.start("install", address)
        connection, _ = silent.accept()
        process.terminate()
        assert command_line.finish(process).code == 128 + signal.SIGTERM
        connection.close()
    assert in_plugins() == []
    assert processes.until(
        lambda: not processes.processes(lambda pid: address.encode() in processes.read(f"/proc/{pid}/cmdline"))
    )


def test_removing_asks_and_says_what_goes_and_what_stays(source):
    command_line.ok("install", source, "--yes")
    command_line.ok("call", "kit.act", "--yes")
    folder = os.path.join(command_line.home(), "plugins", "kit")
    plugin_folders.write(os.path.join(command_line.home(), "data", "kit", "home", "note"), "")
    left = os.path.join(command_line.home(), "left", "kit", "1")
    seen = command_line.at_terminal("remove", "kit", answers=[("Remove it? [y/N]", "n")])
    assert seen.code == 3
    assert f"This removes:\n  {folder}\n" in seen.seen
    assert f"This stays (--purge removes it too):\n  {left}\n" in seen.seen
    assert os.path.isdir(folder)
    assert command_line.at_terminal("remove", "kit", answers=[("Remove it?", "y")]).code == 0
    assert not os.path.exists(folder)
    assert os.path.isfile(os.path.join(left, "data", "home", "note"))


def test_removing_needs_somebody_or_a_yes(source):
    command_line.ok("install", source, "--yes")
    done = command_line.fails(3, "remove", "kit")
    assert "this is not a terminal" in done.err
    assert done.err.endswith("hint: `anyplug remove kit --yes` removes it without asking\n")
    done = command_line.ok("remove", "kit", "--yes", "--json")
    assert done.json == {"name": "kit", "removed": done.json["removed"]}
    assert done.json["removed"][0] == os.path.join(command_line.home(), "plugins", "kit")
    assert command_line.run("call", "kit.act").code == 4


def test_purging_removes_data_files_and_log(source):
    command_line.ok("install", source, "--yes")
    command_line.ok("call", "kit.act", "--yes")
    plugin_folders.write(os.path.join(command_line.home(), "logs", "kit.log"), "x")
    assert command_line.ok("remove", "kit", "--yes", "--purge").out == "kit is removed\n"
    left = [name for folder, _, names in os.walk(command_line.home()) for name in (folder, *names) if "kit" in name]
    assert left == []


def test_a_folder_that_anyplug_did_not_make_is_removed_only_by_its_path():
    folder = plugin_folders.cyclop("plugins", "hello")
    done = command_line.fails(1, "remove", "hello", "--yes")
    assert "was not installed by anyplug" in done.err
    assert f"anyplug remove {os.path.abspath(folder)}" in done.err
    assert os.path.isdir(folder)
    command_line.ok("remove", "./plugins/hello/", "--yes")
    assert not os.path.exists(folder)


def test_a_broken_plugin_can_be_removed_and_updated(source):
    command_line.ok("install", source, "--yes", "--always")
    folder = os.path.join(command_line.home(), "plugins", "kit")
    plugin_folders.write(f"{folder}/manifest.json", "{")
    assert command_line.listed("kit")["state"] == "broken"
    command_line.ok("update", "kit")
    assert command_line.ok("call", "kit.act").out == "one\n"
    plugin_folders.write(f"{folder}/manifest.json", "{")
    command_line.ok("remove", "kit", "--yes")
    assert in_plugins() == []


def test_one_that_is_shadowed_is_installed_with_a_warning(source):
    plugin_folders.stavrobot("plugins", "kit", ONE)
    done = command_line.ok("install", source, "--yes")
    assert f"another plugin of the same name takes precedence: {os.path.abspath('plugins/kit')}" in done.err


@pytest.mark.requirement("STV-13")
def test_a_repositorys_own_configuration_is_left_behind_with_a_warning(source):
    plugin_folders.write(f"{source}/config.json", '{"permissions": []}')
    done = command_line.ok("install", source)
    assert "its config.json was not copied: set values with `anyplug config kit`" in done.err
    assert command_line.listed("kit")["state"] == "new"


# Killed in the middle of it


@pytest.fixture
def other(tmp_path):
    """Give the source of another plugin."""
    return plugin_folders.cyclop(tmp_path / "source", "other")


def killed_at_the_question(source):
    """Update a plugin that is approved, and kill the process while it asks; give the folder that it leaves."""
    command_line.ok("install", source, "--yes", "--always")
    change(source)
    with command_line.Terminal("update", "kit") as terminal:
        terminal.sees("Approve it?")
        terminal.signal(signal.SIGKILL)
        terminal.end()
    (left,) = (name for name in in_plugins() if name.startswith(".staging-"))
    return os.path.join(command_line.home(), "plugins", left)


@pytest.mark.parametrize("words", [("update", "kit", "--yes"), ("remove", "kit", "--yes"), ("install", "OTHER")])
@pytest.mark.parametrize("moment", ["in place", "between"])
def test_after_an_update_that_was_killed_the_version_before_comes_back(source, other, words, moment):
    left = killed_at_the_question(source)
    if moment == "between":
        os.rename(os.path.join(command_line.home(), "plugins", "kit"), os.path.join(left, "kit"))
    done = command_line.ok(*(other if word == "OTHER" else word for word in words))
    assert "an update of kit was interrupted; the previous version is restored" in done.err
    there = {"update": ["kit"], "remove": [], "install": ["kit", "other"]}[words[0]]
    assert sorted(in_plugins()) == there
    if there:
        assert command_line.ok("call", "kit.act").out == ("two\n" if words[0] == "update" else "one\n")


def test_what_a_killed_update_that_was_done_left_is_taken_away(source, other):
    left = killed_at_the_question(source)
    command_line.ok("install", other)
    command_line.ok("update", "kit", "--yes")
    with contextlib.closing(sqlite3.connect(os.path.join(command_line.home(), "anyplug.db"))) as store:
        ((path, text),) = store.execute("SELECT path, record FROM installs WHERE path LIKE '%/kit'").fetchall()
    plugin_folders.write(f"{left}/.swap.json", json.dumps({"path": path, "about": base64.b64encode(text).decode()}))
    plugin_folders.write(f"{left}/.before/act/manifest.json", "{}")  # half of it is gone already
    done = command_line.ok("remove", "other", "--yes")
    assert "cut short" not in done.err
    assert in_plugins() == ["kit"]
    assert command_line.ok("call", "kit.act").out == "two\n"


def test_an_update_that_is_under_way_is_left_alone(source, other):
    command_line.ok("install", source, "--yes", "--always")
    change(source)
    with command_line.Terminal("update", "kit") as terminal:
        terminal.sees("Approve it?")
        assert "cut short" not in command_line.ok("install", other).err
        terminal.types("y")
        terminal.end()
        assert terminal.code == 0
    assert sorted(in_plugins()) == ["kit", "other"]
    assert command_line.ok("call", "kit.act").out == "two\n"


def test_who_removes_a_required_guard_is_told_what_that_means(settings):
    plugin_folders.cyclop("source", "hello")
    command_line.ok("install", "source/hello", "--yes")
    settings('[plugins.hello]\nguard = "required"\n')
    assert (
        "every call is now refused, because hello is a required guard"
        in command_line.ok("remove", "hello", "--yes").err
    )


@pytest.fixture
def three(tmp_path):
    """Give the sources of three installed plugins: `kit`, `new` and `gone`; the last one is deleted since."""
    sources = {name: plugin_folders.stavrobot(tmp_path / "sources", name, ONE) for name in ("kit", "new", "gone")}
    for path in sources.values():
        command_line.ok("install", path, "--yes", "--always")
    shutil.rmtree(sources.pop("gone"))
    plugin_folders.stavrobot(os.path.dirname(sources["new"]), "new", TWO)
    return sources


def test_all_plugins_are_updated_and_one_that_cannot_be_does_not_stop_the_others(three):
    done = command_line.run("update", "--all", "--yes")
    assert done.code == 1
    assert "3 plugins: 1 updated, 1 up to date, 1 not updated" in done.out
    assert "Changed since it was approved: act/run changed" in done.err
    assert "gone: the folder it was installed from no longer exists" in done.err
    assert "kit is up to date" in done.out
    assert command_line.ok("call", "new.act").out == "two\n"
    assert command_line.ok("call", "gone.act").out == "one\n"
    again = command_line.run("update", "--all", "--yes", "--json").json
    assert [(one["name"], one.get("updated")) for one in again] == [("gone", None), ("kit", False), ("new", False)]
    assert set(again[1]) == UPDATED
    assert again[0]["error"]["code"] == "install_failed"


def test_what_one_plugin_was_approved_with_is_not_given_to_the_next(three):
    folder = os.path.dirname(three["kit"])
    command_line.ok("install", plugin_folders.stavrobot(folder, "zzz", ONE), "--yes")
    for name in ("kit", "zzz"):
        plugin_folders.stavrobot(folder, name, TWO)
    command_line.run("update", "--all", "--yes")
    catalog = Catalog(find_home())
    try:
        given = {one.plugin.name: one.standing.always for one in catalog.load().entries}
    finally:
        catalog.close()
    assert (given["kit"], given["zzz"]) == (True, False)


def test_an_update_of_nothing_in_particular_changes_nothing():
    assert "so there is nothing to update" in command_line.ok("update").out
    plugin_folders.cyclop("sources", "kit")
    command_line.ok("install", "sources/kit", "--yes")
    assert command_line.ok("update").out == "1 plugin up to date\n"


def test_an_update_that_waits_for_approval_shows_what_changed(source):
    command_line.ok("install", source, "--yes", "--always")
    change(source)
    assert "Changed since it was approved:\n  act/run changed" in command_line.ok("update", "kit").out
