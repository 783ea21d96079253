"""A plugin's configuration file: merged, never destroyed, never the way to somebody else's file."""

import json
import os
import threading

import pytest

import command_line
import plugin_folders
from anyplug.catalog import discovery
from anyplug.formats.shared.contract import Folder
from anyplug.home import plugin_config
from anyplug.model.errors import ConfigError, UsageError
from anyplug.secrets import secret_names

KEYS = {
    "api_key": {"description": "", "required": True},
    "city": {"description": "", "required": True},
    "size": {"description": "", "required": True, "default": 3},
    "nothing": {"description": "", "default": None},
}


@pytest.fixture
def plugin(tmp_path):
    return load(plugin_folders.stavrobot(tmp_path / "plugins", "kit", config=KEYS))


@pytest.fixture
def path(plugin):
    return os.path.join(plugin.path, "config.json")


def load(folder):
    return discovery.read(Folder(folder, folder))


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api_key", True), ("apiKey", True), ("TOKEN", True), ("password", True), ("session_cookie", True),
        ("client_secret", True), ("city", False), ("username", False), ("keywords", False), ("max_tokens", False),
        ("OAUTH", True), ("SIGNING_PRIV", True), ("PINCODE", True), ("CONN_STRING", True), ("AUTHOR", False),
    ],
)  # fmt: skip
def test_a_secret_is_known_by_its_name(name, secret):
    assert secret_names.looks_like_one(name) == secret


def test_a_manifest_can_say_what_is_secret(tmp_path):
    keys = {"api_key": {"secret": False}, "pin": {"secret": True}, "token": {"secret": "yes"}}
    plugin = load(plugin_folders.stavrobot(tmp_path, "kit", config=keys))
    assert {key.name: key.secret for key in plugin.config} == {"api_key": False, "pin": True, "token": False}


def test_no_file_is_no_values(plugin):
    assert plugin_config.read(plugin) == {}


@pytest.mark.parametrize("text", ['{"city": "Paris"}', '\ufeff{"city": "Paris"}', ' \n{"city":"Paris"}\n'])
def test_what_people_and_editors_write_is_read(plugin, path, text):
    plugin_folders.write(path, text)
    assert plugin_config.read(plugin) == {"city": "Paris"}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', b"\xff\xfe{}", "{'a': 1}", "[" * 100_000, '{"a": NaN}'])
def test_what_cannot_be_understood_is_an_error_and_stays(plugin, path, text):
    plugin_folders.write(path, text)
    for change in (plugin_config.read, lambda plugin: plugin_config.change(plugin, {"city": "x"}, [])):
        with pytest.raises(ConfigError, match=r"config\.json") as caught:
            change(plugin)
        assert "it was not changed" in caught.value.hint
    with open(path, "rb") as file:
        assert file.read() == (text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize("kind", ["pipe", "folder", "flood", "loop"])
def test_what_is_no_ordinary_file_is_an_error_at_once(plugin, path, kind):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "loop":
        os.symlink("config.json", path)
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(ConfigError, match=r"cannot read .*config\.json: \w"):
        plugin_config.read(plugin)


def test_an_empty_string_is_no_value(plugin):
    assert plugin_config.missing(plugin, {}) == ["api_key", "city"]
    assert plugin_config.missing(plugin, {"api_key": "", "city": None}) == ["api_key", "city"]
    assert plugin_config.missing(plugin, {"api_key": 0, "city": "x", "size": ""}) == []


def test_defaults_are_written_once_and_only_where_nothing_is(plugin, path):
    assert plugin_config.fill_in_defaults(plugin, {"size": 5, "other": 1}) == {"size": 5, "other": 1, "nothing": None}
    before = os.stat(path).st_mtime_ns, os.stat(path).st_ino
    plugin_config.fill_in_defaults(plugin, plugin_config.read(plugin))
    assert (os.stat(path).st_mtime_ns, os.stat(path).st_ino) == before


def test_a_change_is_merged_with_what_tools_wrote_meanwhile(plugin, path):
    plugin_config.change(plugin, {"city": "Paris"}, [])
    plugin_folders.write(path, json.dumps(plugin_config.read(plugin) | {"session": [1]}))
    assert plugin_config.change(plugin, {"city": "Rome"}, []) == {"city": "Rome", "session": [1]}
    assert plugin_config.change(plugin, {}, ["city", "api_key"]) == {"session": [1]}


def test_the_order_of_keys_is_kept(plugin, path):
    plugin_folders.write(path, '{"z": 1, "city": "x", "a": 2}')
    plugin_config.change(plugin, {"city": "y", "api_key": "k"}, [])
    assert list(command_line.read_json(path)) == ["z", "city", "a", "api_key"]


def test_unknown_keys_and_permissions_cannot_be_set(plugin, path):
    for given, unset in (({"odd": "x"}, []), ({}, ["odd"]), ({"permissions": "[]"}, []), ({}, ["permissions"])):
        with pytest.raises(UsageError, match="has no configuration value"):
            plugin_config.change(plugin, given, unset)
    assert not os.path.exists(path)


def test_a_value_that_is_no_text_is_refused(plugin, path):
    with pytest.raises(UsageError, match="not UTF-8 text"):
        plugin_config.change(plugin, {"city": os.fsdecode(b"\xff")}, [])
    assert os.listdir(plugin.path).count("config.json") == 0


def test_a_link_in_the_files_place_is_refused_and_not_followed(plugin, path, tmp_path):
    (tmp_path / "precious").write_text("{}")
    os.symlink(tmp_path / "precious", path)
    with pytest.raises(ConfigError, match="it is a link"):
        plugin_config.change(plugin, {"city": "Paris"}, [])
    assert (tmp_path / "precious").read_text() == "{}"
    assert os.path.islink(path)


def test_a_reader_never_sees_half_a_file(plugin):
    plugin_config.change(plugin, {"city": "x" * 10_000}, [])
    seen = []
    done = threading.Event()

    def look():
        while not done.is_set():
            seen.append(len(plugin_config.read(plugin)["city"]))

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(200):
        plugin_config.change(plugin, {"city": "x" * 10_000}, [])
    done.set()
    reader.join()
    assert set(seen) == {10_000}


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ({}, None),
        ({"permissions": []}, set()),
        ({"permissions": ["*"]}, None),
        ({"permissions": ["*", "act"]}, None),
        ({"permissions": ["act"]}, {"act"}),
        ({"permissions": ["act", {}, "other"]}, {"act", "other"}),
        ({"permissions": "odd"}, None),
    ],
)
def test_permissions_in_the_file_are_honoured(values, allowed):
    assert plugin_config.allowed(values) == allowed
