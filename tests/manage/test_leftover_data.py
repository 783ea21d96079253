"""What a removed plugin left goes back to the same plugin, and to no other of that name unless a person gives it."""

import json
import os
import shutil

import pytest

import command_line
import plugin_folders

TOKEN = "a-secret-value-99"
VARIABLE = "NS_TOKEN"
KEEP = """#!/usr/bin/env python3
import os
path = os.environ["HOME"] + "/kept"
kept = open(path).read() if os.path.exists(path) else "none"
open(path, "w").write("mine")
print(kept + "/" + os.environ.get("NS_TOKEN", "unset")[::-1])
"""
WRITE = """#!/usr/bin/env python3
import json, os
state = os.path.join(os.path.dirname(os.path.abspath(__file__)), "state")
kept = os.path.exists(state)
open(state, "w").close()
print(json.dumps({"result": str(kept)}))
"""
STORED = f"mine/{TOKEN[::-1]}"
NOTHING = "none/tesnu"


@pytest.fixture
def sources(tmp_path):
    """Make two plugins of the same name, by different authors."""
    return [plugin_folders.stavrobot(tmp_path / author, "ns", KEEP) for author in ("a", "b")]


def said() -> str:
    return command_line.ok("call", "ns.act", "text=x", "--yes").out.strip()


def use(source: str) -> None:
    """Install a plugin, store a secret for it, let it write data."""
    command_line.ok("install", source, "--yes")
    command_line.ok("secret", "ns", VARIABLE, stdin=TOKEN)
    command_line.ok("grant", "ns", f"env:{VARIABLE}")
    said()
    assert said() == STORED


def left() -> list[dict[str, object]]:
    found: list[dict[str, object]] = command_line.ok("leftovers", "--json").json
    return found


@pytest.mark.claim("data-bound-to-path")
def test_the_same_plugin_gets_its_data_and_secrets_back(sources):
    use(sources[0])
    command_line.ok("remove", "ns", "--yes")
    assert [(one["name"], one["from"], one["secrets"]) for one in left()] == [("ns", sources[0], [VARIABLE])]
    assert f"Kept for it already: {command_line.home()}/data/ns, the secret {VARIABLE}" in " ".join(
        command_line.ok("install", sources[0], "--yes").err.split()
    )
    command_line.ok("grant", "ns", f"env:{VARIABLE}")
    assert said() == STORED
    assert left() == []


@pytest.mark.claim("data-bound-to-path")
@pytest.mark.parametrize("way", ["remove", "by hand"])
def test_another_plugin_of_that_name_gets_neither_data_nor_secrets(sources, way, home):
    use(sources[0])
    if way == "remove":
        command_line.ok("remove", "ns", "--yes")
    else:
        shutil.rmtree(home / "plugins" / "ns")
    asked = " ".join(command_line.ok("install", sources[1], "--yes").err.split())
    assert f"an earlier plugin called ns, from {sources[0]}, left {home}/left/ns/1 and the secret {VARIABLE}" in asked
    assert "This one does not get it, unless you run `anyplug leftovers ns --give 1`" in asked
    command_line.ok("grant", "ns", f"env:{VARIABLE}")
    assert said() == NOTHING
    assert command_line.ok("secret", "ns", "--json").json == []


@pytest.mark.claim("data-bound-to-path")
def test_a_folder_that_is_copied_there_by_hand_gets_nothing_of_a_removed_plugin(sources, home):
    use(sources[0])
    command_line.ok("remove", "ns", "--yes")
    shutil.copytree(sources[1], home / "plugins" / "ns")
    command_line.ok("approve", "ns", "--yes", "--grant", f"env:{VARIABLE}")
    assert said() == NOTHING


@pytest.mark.claim("data-bound-to-path")
def test_what_was_written_over_the_code_does_not_go_to_another_plugin(tmp_path, home):
    for author in "ab":
        plugin_folders.cyclop(tmp_path / author, "ns", WRITE, permissions=["filesystem:write"])
    for author, seen in (("a", "False"), ("a", "True"), ("b", "False")):
        command_line.ok("install", str(tmp_path / author / "ns"), "--yes")
        assert seen in command_line.ok("call", "ns", "--yes").out
        command_line.ok("remove", "ns", "--yes")


def test_another_ref_or_subdir_is_another_place(tmp_path, home):
    folder = plugin_folders.stavrobot(tmp_path, "ns", KEEP)
    command_line.ok("install", folder, "--yes")
    said()
    command_line.ok("remove", "ns", "--yes")
    command_line.ok("install", str(tmp_path), "--subdir", "ns", "--yes")
    assert said() == NOTHING


def test_a_person_gives_it_to_another_plugin(sources, home):
    use(sources[0])
    command_line.ok("remove", "ns", "--yes")
    command_line.ok("install", sources[1], "--yes")
    command_line.ok("grant", "ns", f"env:{VARIABLE}")
    said()  # it has data of its own now
    refused = command_line.at_terminal("leftovers", "ns", "--give", "1", answers=[("Hand it over? [y/N]", "")])
    assert refused.code == 3
    assert command_line.fails(3, "leftovers", "ns", "--give", "1").err.count("this is not a terminal") == 1
    plugin_folders.write(f"{home}/data/ns/home/kept", "its own")
    command_line.ok("leftovers", "ns", "--give", "1", "--yes")
    assert said() == STORED
    assert [(one["from"], one["secrets"]) for one in left()] == [(sources[1], [])]
    assert command_line.read(f"{home}/left/ns/2/data/home/kept") == "its own"


def test_what_was_left_can_be_deleted(sources, home):
    use(sources[0])
    command_line.ok("remove", "ns", "--yes")
    assert TOKEN in command_line.read(f"{home}/secrets.json")
    command_line.ok("leftovers", "ns", "--delete", "1", "--yes")
    assert left() == []
    assert json.loads(command_line.read(f"{home}/secrets.json")) == {}
    assert os.listdir(home / "left") == []
    command_line.fails(2, "leftovers", "ns", "--delete", "1", "--yes")
    command_line.fails(2, "leftovers", "--delete", "1", "--yes")


def test_a_link_that_is_removed_leaves_everything_with_the_folder_that_it_led_to(sources, home):
    os.makedirs(home / "plugins")
    os.symlink(sources[0], home / "plugins" / "ns")
    command_line.ok("approve", "ns", "--yes", "--grant", f"env:{VARIABLE}")
    command_line.ok("secret", "ns", VARIABLE, stdin=TOKEN)
    said()
    command_line.ok("remove", "ns", "--yes")
    assert left() == []
    command_line.ok("install", sources[1], "--yes")
    command_line.ok("grant", "ns", f"env:{VARIABLE}")
    assert said() == NOTHING


def test_a_plugin_is_removed_by_name_only_if_it_was_installed(sources, home):
    shutil.copytree(sources[0], home / "plugins" / "ns.bak")
    refused = command_line.fails(1, "remove", "ns", "--yes").err
    assert "was not installed by anyplug" in refused
    assert f"anyplug remove {home}/plugins/ns.bak" in refused
    assert os.path.isdir(home / "plugins" / "ns.bak")
