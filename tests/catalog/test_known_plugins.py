"""Plugins that are known from an earlier search: what is found is the same as without, whatever happened meanwhile."""

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

import plugin_folders
from anyplug.catalog import discovery, known_plugins
from anyplug.catalog.known_plugins import KnownPlugins

FIXTURES = Path(__file__).parent.parent / "plugins"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
HOUR_NS = 3600 * 10**9


@pytest.fixture
def known(tmp_path, monkeypatch):
    """The folder of what is known; plugins are kept at once."""
    monkeypatch.setattr(known_plugins, "SETTLED_NS", 0)
    return str(tmp_path / "home" / "known")


@pytest.fixture
def many(root):
    """A root with enough plugins to be worth a file."""
    for number in range(known_plugins.LEAST):
        plugin_folders.cyclop(root, f"plugin-{number}")
    return root


def search(root, known):
    """Return what a search finds, and the names of the folders that it read."""
    read = []

    def reading(folder):
        read.append(os.path.basename(folder.found_at))
        return discovery.read(folder)

    plugins = KnownPlugins(known, reading)
    found = [plugins.read(folder) for folder in discovery._folders([], [root])]
    plugins.save()
    return [plugin for plugin in found if plugin is not None], read


def the_file(known):
    (name,) = os.listdir(known)
    return os.path.join(known, name)


def zot(root, name, program="./main", **changes):
    manifest = {"name": name, "version": "1.0.0", "exec": program, **changes}
    plugin_folders.write(f"{root}/{name}/main", "#!/bin/sh\n", 0o755)
    plugin_folders.write(f"{root}/{name}/extension.json", json.dumps(manifest))
    return f"{root}/{name}"


def test_a_second_search_finds_the_same_without_reading_plugins_again(many, known, tmp_path):
    for folder in [*FIXTURES.glob("*/*"), *EXAMPLES.iterdir()]:
        if folder.is_dir():
            name, named = f"{folder.parent.name}-{folder.name}", f"{tmp_path}/{folder.parent.name}/{folder.name}"
            shutil.copytree(folder, f"{many}/{name}", symlinks=True)  # formats that want the manifest's name refuse it
            shutil.copytree(folder, named, symlinks=True)
            os.symlink(named, f"{many}/link-{name}")
    zot(many, "off", enabled=False)
    zot(many, "bare", "node", args=["main.js"])
    odd = {"big": {"minimum": 2**70}, "odd": {"maximum": 1.0, "default": -0.0, "é": "ü"}, "hidden": {"title": "\u200b"}}
    for name, parameter in odd.items():
        schema = {"type": "object", "properties": {"n": parameter}}
        plugin_folders.cyclop(many, name, tools=[{"name": name, "description": "Ö", "input_schema": schema}])
    without = discovery.discover([], [many], {})
    for _ in range(2):  # what fills the file, and what uses it
        assert discovery.discover([], [many], {}, known_in=known) == without
    found, read = search(many, known)
    assert [repr(plugin) for plugin in found] == [repr(plugin) for plugin in without]
    good = {os.path.basename(one.found_at) for one in without if one.format in {"cyclop", "zot"} and not one.problems}
    assert not good & set(read)
    assert {"off", "bare", "odd", "big", "link-examples-word-count", "link-cyclop-well-behaved"} <= good
    assert os.stat(the_file(known)).st_mode & 0o777 == 0o600


def edit_in_place(plugin):
    before = os.stat(f"{plugin}/plugin.json")
    text = Path(f"{plugin}/plugin.json").read_text()
    Path(f"{plugin}/plugin.json").write_text(text.replace("What", "Wham"))
    os.utime(f"{plugin}/plugin.json", ns=(before.st_atime_ns, before.st_mtime_ns))


def link_program(plugin):
    os.rename(f"{plugin}/run", f"{plugin}/../../run")
    os.symlink(f"{plugin}/../../run", f"{plugin}/run")


def link_manifest(plugin):
    os.rename(f"{plugin}/plugin.json", f"{plugin}/../../plugin.json")
    os.symlink(f"{plugin}/../../plugin.json", f"{plugin}/plugin.json")


def swap_plugins(plugin):
    os.rename(plugin, f"{plugin}-aside")
    os.rename(f"{os.path.dirname(plugin)}/plugin-8", plugin)


CHANGES = {
    "edited, of the same size and time": edit_in_place,
    "a program that is not executable": lambda plugin: os.chmod(f"{plugin}/run", 0o644),
    "no program": lambda plugin: os.remove(f"{plugin}/run"),
    "a program that is a link to outside": link_program,
    "a manifest that is a link to outside": link_manifest,
    "no manifest": lambda plugin: os.remove(f"{plugin}/plugin.json"),
    "another plugin's folder": swap_plugins,
    "no folder": shutil.rmtree,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change, many, known):
    _, read = search(many, known)
    assert len(read) == known_plugins.LEAST
    CHANGES[change](f"{many}/plugin-7")
    without = discovery.discover([], [many], {})
    found, read = search(many, known)
    assert found == without
    assert set(read) <= {"plugin-7", "plugin-7-aside"}
    assert discovery.discover([], [many], {}, known_in=known) == without


def test_another_manifest_or_program_in_an_extension_s_folder_is_noticed(many, known):
    both, bare = zot(many, "both"), zot(many, "bare", "node")
    search(many, known)
    plugin_folders.cyclop(many, "both")
    plugin_folders.write(f"{bare}/node", "", 0o755)
    found, read = search(many, known)
    assert found == discovery.discover([], [many], {})
    assert sorted(read) == ["bare", "both"]
    assert {plugin.path: plugin.format for plugin in found}[both] == "cyclop"


def test_a_plugin_that_changed_a_moment_ago_is_not_kept(many, known, monkeypatch):
    monkeypatch.setattr(known_plugins, "SETTLED_NS", HOUR_NS)
    search(many, known)
    assert not os.path.exists(known)
    monkeypatch.setattr(known_plugins, "SETTLED_NS", 0)
    shutil.rmtree(f"{many}/plugin-0")
    search(many, known)
    assert not os.path.exists(known)  # too few to be worth a file


def test_no_content_of_the_file_changes_what_is_found(many, known):
    without = discovery.discover([], [many], {})
    search(many, known)
    file = the_file(known)
    whole = Path(file).read_bytes()
    version, kept = msgspec.json.decode(whole)
    ours = {name: [{**plugin, "is_ours": True}, stamps] for name, (plugin, stamps) in kept.items()}
    mixed = dict.fromkeys(kept, kept["plugin-1"])
    contents = {
        "nothing": b"",
        "half": whole[: len(whole) // 2],
        "noise": os.urandom(10_000),
        "nested": b"[" * 1_000_000,
        "no text": b'["\xff", {}]',
        "another version": msgspec.json.encode([f"{version}0", ours]),
        "records of other types": msgspec.json.encode([version, {key: [1, None] for key in kept}]),
        "nested records": msgspec.json.encode([version, {"plugin-1": msgspec.Raw(b"[" * 900 + b"]" * 900)}]),
        "plugins that would need no approval": msgspec.json.encode([version, ours]),
        "one plugin for all": msgspec.json.encode([version, mixed]),
    }
    for what, content in contents.items():
        Path(file).write_bytes(content)
        assert discovery.discover([], [many], {}, known_in=known) == without, what
        assert search(many, known)[1] == [], what  # it was written again
    os.remove(file)
    os.mkdir(file)
    assert discovery.discover([], [many], {}, known_in=known) == without
    assert os.listdir(known) == [os.path.basename(file)]  # nothing is left of the attempt to write it
