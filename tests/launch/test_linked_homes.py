"""Links on the way to our home change nothing, and what cannot be set up is not run with less."""

import json
import os
import tempfile

import pytest

import command_line
import plugin_folders
from anyplug.home.settings import find_home
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.sandbox.enforcement import Shortage
from anyplug.runtime.sandbox.profile import Profile, Shown
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

NAMESPACES = ("mnt", "pid", "net", "ipc")
LOOKS = plugin_folders.python(
    f"found = [os.readlink('/proc/self/ns/' + kind) for kind in {NAMESPACES}]\n"
    "changed = []\n"
    "for path in given['input']['paths']:\n"
    "    try: os.chmod(path, 0o777); changed.append(path)\n"
    "    except OSError: pass\n"
    "print(json.dumps({'result': json.dumps([found, changed])}))"
)
TOOLS = [{"name": "looks", "description": "Looks.", "input_schema": {"type": "object"}}]
LINKS = {
    "the folder above the user's": ("real", "user-above", "{top}/user-above/u"),
    "the user's folder": ("real/u", "user", "{top}/user"),
    "~/.local": ("elsewhere/local", "real/u/.local", "{top}/real/u"),
    "~/.local/share": ("elsewhere/share", "real/u/.local/share", "{top}/real/u"),
    "the home": ("elsewhere/home", "real/u/.local/share/anyplug", "{top}/real/u"),
    "the snapshots": ("elsewhere/snapshots", "real/u/.local/share/anyplug/snapshots", "{top}/real/u"),
    "the data": ("elsewhere/data", "real/u/.local/share/anyplug/data", "{top}/real/u"),
    "the cache": ("elsewhere/cache", "real/u/.local/share/anyplug/cache", "{top}/real/u"),
    "the plugins": ("elsewhere/plugins", "real/u/.local/share/anyplug/plugins", "{top}/real/u"),
    "XDG_DATA_HOME": ("elsewhere/xdg", "xdg", "{top}/real/u"),
    "ANYPLUG_HOME": ("elsewhere/ours", "ours", "{top}/real/u"),
}


@pytest.fixture
def top(monkeypatch):
    """A folder outside /tmp, which plugins have for themselves; the usual variables are unset."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="anyplug-linked-") as folder:
        monkeypatch.delenv("ANYPLUG_HOME")
        yield folder


def link(top, where, monkeypatch):
    """Make the link, and a user whose home is reached through it; give the user's folder."""
    target, at, user = LINKS[where]
    os.makedirs(f"{top}/real/u")
    os.makedirs(f"{top}/{target}", mode=0o700, exist_ok=True)
    os.makedirs(os.path.dirname(f"{top}/{at}"), mode=0o700, exist_ok=True)
    os.symlink(f"{top}/{target}", f"{top}/{at}")
    user = user.format(top=top)
    monkeypatch.setenv("HOME", user)
    if where.isupper():
        monkeypatch.setenv(where, f"{top}/{at}")
    return user


@pytest.mark.combinations
@pytest.mark.claim("no-silent-fallback")
@pytest.mark.parametrize("permissions", [[], ["filesystem:write"]], ids=["no grant", "all files"])
@pytest.mark.parametrize("where", LINKS)
def test_a_link_on_the_way_to_the_home_takes_no_layer_away(where, permissions, top, tmp_path, monkeypatch):
    user = link(top, where, monkeypatch)
    folder = plugin_folders.cyclop(tmp_path / "p", "looks", LOOKS, permissions=permissions, tools=TOOLS)
    command_line.ok("install", folder, "--yes")
    plugin_folders.write(f"{user}/note", "")
    plugin_folders.write(f"{user}/.ssh/key", "")
    home = find_home().path
    assert home == os.path.realpath(home)
    theirs = [f"{user}/.ssh", f"{user}/.ssh/key", home, f"{home}/anyplug.db", f"{user}/.bashrc", f"{user}/.bash_x"]
    plugin_folders.write(f"{user}/.bashrc", "")
    plugin_folders.write(f"{user}/.bash_x", "")
    paths = theirs if permissions else [*theirs, f"{user}/note", user]
    said = command_line.ok("call", "looks", "--args", json.dumps({"paths": paths}), "--yes").out
    namespaces, changed = json.loads(said)
    assert [kind for kind in NAMESPACES if os.readlink(f"/proc/self/ns/{kind}") in namespaces] == []
    assert changed == []
    shown = json.loads(command_line.ok("show", "looks", "--json").out)["confinement"]
    (record,) = json.loads(command_line.ok("audit", "--kind", "call", "--json", "-n", "1").out)
    assert set(shown["layers"]) == set(record["held_by"]["layers"])
    assert {"mounts", "pids", "network", "ipc", "read-only", "snapshot"} <= set(shown["layers"])


UNCOVERABLE = "its sandbox could not be set up"


@pytest.mark.claim("no-silent-fallback")
@pytest.mark.parametrize("tolerant", [False, True])
@pytest.mark.parametrize("wrong", ["a link on the way to the snapshot", "a snapshot that is gone", "a hidden path"])
def test_what_cannot_be_set_up_is_a_failed_start_and_never_one_with_less(wrong, tolerant, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "real" / "files").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("real")
    snapshot = "linked/files" if "link" in wrong else "gone"
    shown = Shown(own=str(own), snapshot=str(tmp_path / snapshot), work=str(tmp_path / "real"))
    # What is mounted on the root folder covers nothing that a path leads to.
    profile = Profile(hidden=("/",)) if wrong == "a hidden path" else Profile(shown=shown)
    guard = Guard()
    try:
        with pytest.raises(Shortage, match=UNCOVERABLE) as refusal:
            ConfinedSpawn(guard, profile, tolerant=tolerant).close()
    finally:
        guard.close()
    assert "anyplug doctor" in refusal.value.cure


@pytest.mark.claim("no-silent-fallback")
def test_a_plugin_whose_sandbox_cannot_be_set_up_does_not_run_and_show_and_doctor_say_so(tmp_path, home):
    folder = plugin_folders.cyclop(tmp_path / "p", "looks", LOOKS, permissions=["filesystem:write"], tools=TOOLS)
    command_line.ok("install", folder, "--yes")
    (home / "data" / "looks" / "other").mkdir(parents=True)
    (home / "data" / "looks" / "beside").symlink_to("other")  # as the plugin itself could do it
    called = command_line.run("call", "looks", "--args", '{"paths": []}', "--yes")
    assert (called.code != 0, called.out) == (True, "")
    assert f"was not run: {UNCOVERABLE}" in called.err
    shown = json.loads(command_line.ok("show", "looks", "--json").out)["confinement"]
    assert shown["state"] == "refused"
    assert UNCOVERABLE in command_line.run("doctor").out
