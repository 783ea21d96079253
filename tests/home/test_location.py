"""What is in the home folder: for nobody but the user, and each plugin's for nobody but that plugin."""

import os
import stat

import pytest

import command_line
import plugin_folders
from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import find_home

SAY_HOME = '#!/bin/sh\ncat >/dev/null\necho "$HOME"\n'
KEEP = '#!/bin/sh\ncat >/dev/null\ncat "$HOME/kept" 2>/dev/null || echo none; echo mine >"$HOME/kept"\n'


@pytest.mark.anyio
@pytest.mark.claim("data-bound-to-path")
async def test_no_plugin_gets_the_data_of_another_one_of_the_same_name(host, root, tmp_path, home):
    one, other = (
        plugin_folders.stavrobot(root, "weather", KEEP),
        plugin_folders.stavrobot(tmp_path / "b", "weather", KEEP),
    )
    for folder, said in ((one, "none"), (other, "none"), (one, "mine"), (other, "mine")):
        async with host(folder) as h:
            assert (await h.call("weather.act")).text.split() == [said]
    names = sorted(os.listdir(home / "data"))
    assert names[0] == "weather"
    assert names[1].startswith("weather@")


@pytest.mark.anyio
@pytest.mark.claim("data-bound-to-path")
async def test_a_named_folder_does_not_get_an_installed_plugins_data_even_if_it_runs_first(host, home, tmp_path):
    plugin_folders.stavrobot(home / "plugins", "weather", SAY_HOME)
    plugin_folders.write(f"{home}/data/weather/home/kept", "of an older version, which wrote no claims")
    async with host(plugin_folders.stavrobot(tmp_path / "b", "weather", SAY_HOME)) as h:
        assert (await h.call("weather.act")).text.strip().startswith(f"{home}/data/weather@")
    async with host(str(home / "plugins" / "weather")) as h:
        assert (await h.call("weather.act")).text.strip() == f"{home}/data/weather/home"


def test_show_says_whose_the_folder_is(home, tmp_path):
    plugin_folders.stavrobot(home / "plugins", "weather", SAY_HOME)
    folder = plugin_folders.stavrobot(tmp_path / "b", "weather", SAY_HOME)
    said = command_line.ok("--plugin", folder, "show", "weather").out.replace("\n", "").replace(" ", "")
    assert f"{home}/data/weather@" in said
    assert f"(data/weatherbelongsto{home}/plugins/weather)" in said


def test_purging_frees_the_name(home, tmp_path, root):
    ours = find_home()
    plugins = [plugin_folders.stavrobot(tmp_path / name, "weather") for name in "ab"]
    first, second = (Catalog(ours, explicit=[folder], roots=[]).load().plugin("weather").plugin for folder in plugins)
    ours.claim(first)
    assert ours.own_name(second).startswith("weather@")
    ours.disclaim(second)  # which has nothing to give up
    assert ours.own_name(second).startswith("weather@")
    ours.disclaim(first)
    ours.claim(second)
    assert (ours.own_name(second), ours.own_name(first).startswith("weather@")) == ("weather", True)


@pytest.mark.claim("home-is-private")
@pytest.mark.parametrize(
    "command",
    [("install", "{plugin}"), ("--plugin", "{plugin}", "call", "weather.act"), ("list",), ("status",)],
    ids=lambda command: command[-1] if command[0] != "install" else "install",
)
def test_the_home_is_private_whoever_makes_it(command, tmp_path, monkeypatch):
    before = os.umask(0o022)
    try:
        folder = plugin_folders.stavrobot(tmp_path / "b", "weather")
        home = tmp_path / "new" / "home"
        monkeypatch.setenv("ANYPLUG_HOME", str(home))
        command_line.run(*(word.format(plugin=folder) for word in command))
        made = [home.parent, home, *home.rglob("*")] if home.exists() else []
        code = [home / "plugins" / "weather", *home.glob("snapshots/*/files")]  # as their authors left them
        folders = [path for path in made if path.is_dir() and not any(map(path.is_relative_to, code))]
        assert [path for path in folders if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    finally:
        os.umask(before)


@pytest.mark.claim("other-homes-hidden")
def test_the_plugins_of_one_home_neither_see_nor_change_another_home(tmp_path, root):
    other = tmp_path / "other"
    script = (
        "#!/usr/bin/env python3\nimport json, os\n"
        f"seen = [os.path.exists({str(other / 'anyplug.db')!r})]\n"
        f"try:\n    open({str(other / 'settings.toml')!r}, 'w').close()\nexcept OSError:\n    seen.append('refused')\n"
        "print(json.dumps({'result': str(seen)}))\n"
    )
    folder = plugin_folders.cyclop(
        tmp_path / "nosy", "nosy", script, permissions=["filesystem:read", "filesystem:write"]
    )
    command_line.ok("--home", str(other), "--plugin", plugin_folders.cyclop(tmp_path / "b", "hello"), "call", "hello")
    plugin_folders.write(f"{other}/anyplug.db", "")
    command_line.ok("--plugin", folder, "call", "nosy", "--yes")
    assert not os.path.exists(other / "settings.toml")
    assert "False" in command_line.ok("--plugin", folder, "call", "nosy", "--yes").out
