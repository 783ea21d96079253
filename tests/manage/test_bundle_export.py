"""A plugin becomes a bundle: with its files and without its secrets, the same bytes each time."""

import json
import os
import re
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import command_line
import plugin_folders
from anyplug.manage.bundle_export import KINDS, bundle_name, bundle_version

AGENT_PLUGIN_FIELDS = {"$schema", "name", "version", "description", "author"}
AGENT_PLUGIN_NAME = re.compile(r"(?!.*(--|\.\.))[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
CLAUDE_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


def export(folder: str, kind: str, *options: str) -> Any:
    return command_line.ok("--no-discover", "--plugin", folder, "export", folder, "--to", kind, "--json", *options).json


def unpacked(path: str) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_mcpb_starts_our_host_for_this_plugin_alone(root: str):
    folder = plugin_folders.cyclop(root, "hello")
    done = export(folder, "mcpb", "--author", "Ada")
    assert done["path"] == "hello-1.0.0.mcpb"
    files = unpacked(done["path"])
    assert list(files) == ["manifest.json", "plugin/hello/plugin.json", "plugin/hello/run"]
    manifest = json.loads(files["manifest.json"])
    config = manifest["server"]["mcp_config"]
    assert [config["command"], *config["args"]] == [
        "anyplug", "--no-discover", "--plugin", "${__dirname}/plugin/hello", "mcp",
    ]  # fmt: skip
    assert manifest["tools"] == [{"name": "hello", "description": "Does it."}]
    assert manifest["author"] == {"name": "Ada"}


def test_an_mcpb_lets_the_client_ask_for_the_variables_that_a_plugin_asks_for(root: str):
    servers = {"weather": {"command": "false", "env": {"TOKEN": "${WEATHER_TOKEN}"}}}
    plugin_folders.write(os.path.join(root, "weather", "mcp.json"), json.dumps({"mcpServers": servers}))
    done = export(os.path.join(root, "weather"), "mcpb")
    manifest = json.loads(unpacked(done["path"])["manifest.json"])
    assert manifest["server"]["mcp_config"]["env"] == {"WEATHER_TOKEN": "${user_config.WEATHER_TOKEN}"}
    assert manifest["user_config"]["WEATHER_TOKEN"]["sensitive"] is True
    assert (manifest["tools"], manifest["tools_generated"]) == ([], True)  # nobody could ask it what it has


def test_a_claude_plugin_has_its_files_where_the_client_looks(root: str):
    done = export(plugin_folders.stavrobot(root), "claude-plugin")
    where = Path(done["path"])
    assert where.name == "bundle-claude-plugin"
    manifest = json.loads((where / ".claude-plugin" / "plugin.json").read_text())
    assert CLAUDE_NAME.fullmatch(manifest["name"])
    assert SEMVER.fullmatch(manifest["version"])
    servers = json.loads((where / ".mcp.json").read_text())["mcpServers"]
    assert servers["bundle"]["args"][2] == "${CLAUDE_PLUGIN_ROOT}/plugin/bundle"
    assert os.access(where / "plugin" / "bundle" / "act" / "run", os.X_OK)


def test_an_agent_plugin_has_only_what_its_closed_schema_allows(root: str):
    where = Path(export(plugin_folders.cyclop(root, "hello"), "agent-plugin")["path"])
    manifest = json.loads((where / "plugin.json").read_text())
    assert set(manifest) <= AGENT_PLUGIN_FIELDS
    servers = json.loads((where / "mcp.json").read_text())
    assert set(servers) == {"$schema", "mcpServers"}
    assert manifest["$schema"].rpartition("/")[0] == servers["$schema"].rpartition("/")[0]
    [entry] = servers["mcpServers"].values()
    assert entry == {
        "type": "stdio",
        "command": "anyplug",
        "args": ["--no-discover", "--plugin", "${PLUGIN_ROOT}/plugin/hello", "mcp"],
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_inside_runs_as_the_plugin_does(kind: str, root: str, tmp_path: Path):
    folder = plugin_folders.cyclop(root, "hello")
    path = str(tmp_path / "out.zip")
    export(folder, kind, "--output", path)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "there")
        for info in archive.infolist():
            os.chmod(tmp_path / "there" / info.filename, stat.S_IMODE(info.external_attr >> 16))
    inside = str(tmp_path / "there" / "plugin" / "hello")
    assert command_line.ok("--no-discover", "--plugin", inside, "call", "hello").out.strip() == "done"


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_plugin_gives_the_same_bytes(kind: str, root: str, tmp_path: Path):
    folder = plugin_folders.cyclop(root, "hello")
    export(folder, kind, "--output", str(tmp_path / "one.zip"))
    for name in os.listdir(folder):
        os.utime(os.path.join(folder, name), (1, 1))
    os.chmod(os.path.join(folder, "run"), 0o700)
    export(folder, kind, "--output", str(tmp_path / "two.zip"))
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_history_configuration_and_what_holds_secrets_stay_out(root: str):
    folder = plugin_folders.stavrobot(root, config={"api_key": {"description": "A key.", "required": True}})
    for path in (".git/config", "act/__pycache__/x.pyc", ".env", ".env.local", "act/.netrc", "tls.key", "config.json"):
        plugin_folders.write(os.path.join(folder, path), "{}")
    plugin_folders.write(os.path.join(folder, ".env.example"), "KEY=")
    plugin_folders.write(os.path.join(folder, "act", "config.json"), "{}")  # only the one at the top is the person's
    done = export(folder, "mcpb")
    assert done["left_out"] == [".env", ".env.local", "act/.netrc", "config.json", "tls.key"]
    assert [name for name in done["files"] if "plugin/" in name] == [
        "plugin/bundle/.env.example",
        "plugin/bundle/act/config.json",
        "plugin/bundle/act/manifest.json",
        "plugin/bundle/act/run",
        "plugin/bundle/manifest.json",
    ]


def test_a_file_that_holds_a_stored_secret_is_not_bundled(root: str):
    folder = plugin_folders.stavrobot(root, config={"api_key": {"description": "A key.", "required": True}})
    plugin_folders.write(os.path.join(folder, "config.json"), '{"api_key": "correct-horse-battery"}')
    plugin_folders.write(os.path.join(folder, "act", "notes.txt"), "the key is correct-horse-battery")
    done = command_line.fails(1, "--no-discover", "--plugin", folder, "export", "bundle", "--to", "mcpb")
    assert "act/notes.txt contains a secret" in done.err
    assert os.listdir() == []


def test_links_inside_are_followed_and_links_out_are_refused(root: str):
    folder = plugin_folders.cyclop(root, "hello")
    plugin_folders.write(os.path.join(folder, "lib", "words.txt"), "words")
    os.symlink("words.txt", os.path.join(folder, "lib", "same.txt"))
    os.symlink("..", os.path.join(folder, "lib", "up"))
    os.makedirs(os.path.join(folder, "node_modules", ".bin"))
    os.symlink("../../run", os.path.join(folder, "node_modules", ".bin", "hello"))
    done = export(folder, "mcpb")
    files = unpacked(done["path"])
    assert files["plugin/hello/lib/same.txt"] == b"words"
    assert done["left_out"] == ["lib/up"]
    assert not any(".bin" in name for name in files)
    os.symlink("/etc/hostname", os.path.join(folder, "lib", "out"))
    refused = command_line.fails(1, "--plugin", folder, "export", "hello", "--to", "agent-plugin")
    assert "lib/out is a link that leads outside the plugin's folder" in refused.err


def test_nothing_is_overwritten(root: str):
    folder = plugin_folders.cyclop(root, "hello")
    plugin_folders.write(os.path.abspath("hello-1.0.0.mcpb"), "mine")
    done = command_line.fails(1, "--plugin", folder, "export", "hello", "--to", "mcpb")
    assert "already exists" in done.err
    assert command_line.read("hello-1.0.0.mcpb") == "mine"
    assert (
        "does not end in .mcpb"
        in command_line.fails(1, "--plugin", folder, "export", "hello", "--to", "mcpb", "--output", "other").err
    )


def test_what_is_broken_or_no_folder_is_refused(root: str, settings: Any, tmp_path: Path):
    folder = plugin_folders.cyclop(root, "hello", tools="none")
    assert "is broken" in command_line.fails(1, "--plugin", folder, "export", folder, "--to", "mcpb").err
    client = plugin_folders.write(str(tmp_path / "mcp.json"), '{"mcpServers": {"x": {"command": "x"}}}')
    settings(f'[mcp]\ncursor = "{client}"\n')
    assert "not a folder" in command_line.fails(1, "export", "cursor", "--to", "mcpb").err
    command_line.fails(4, "export", "nobody", "--to", "mcpb")


@given(st.text(max_size=80))
def test_every_name_and_version_becomes_one_that_the_formats_allow(text: str):
    assert AGENT_PLUGIN_NAME.fullmatch(bundle_name(text, "agent-plugin"))
    assert len(bundle_name(text, "agent-plugin")) <= 64
    assert CLAUDE_NAME.fullmatch(bundle_name(text, "claude-plugin"))
    assert SEMVER.fullmatch(bundle_version(text, "0123456789abcdef"))


@pytest.mark.parametrize(
    ("given_version", "becomes"),
    [("1.2.3", "1.2.3"), ("v2", "2.0.0"), ("1.02", "1.2.0"), ("1.0.0-rc.1", "1.0.0-rc.1"), ("", "0.0.0+abc")],
)
def test_versions_become_semantic_ones(given_version: str, becomes: str):
    assert bundle_version(given_version, "abc") == becomes
