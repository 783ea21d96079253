"""Plugins of other agents, archives, marketplaces and repositories with several plugins become plugins of ours."""

import io
import json
import os
import tarfile
import zipfile

import pytest
from test_installer import commit, git

import command_line
import plugin_folders
from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import find_home
from anyplug.manage import plugin_sources, zip_sources
from anyplug.manage.bundles import marketplaces
from anyplug.manage.installer import Installer
from anyplug.manage.plugin_sources import Source
from anyplug.manage.source_contents import SeveralPlugins
from anyplug.model.errors import InstallError
from foreign_folders import claude_plugin, write

COMPRESSIONS = {"gz": "gz", "xz": "xz", "bz2": "bz2", "tar": ""}


@pytest.fixture
def installer():
    catalog = Catalog(find_home())
    yield Installer(catalog)
    catalog.close()


def test_a_claude_plugin_keeps_its_servers_commands_and_skills(installer, tmp_path):
    done = installer.install(Source(location=claude_plugin(tmp_path / "up")))
    plugin = done.plugin
    assert (plugin.name, plugin.format, plugin.version, plugin.description) == ("greeter", "mcp", "1.2.0", "Greets.")
    assert [endpoint.name for endpoint in plugin.endpoints] == ["greeter", "greeter-texts"]
    assert plugin.endpoints[0].arguments == (f"{plugin.path}/bundle/server/main.py",)
    assert plugin.endpoints[0].environment["PLACE"] == f"{plugin.path}/bundle/data"
    assert plugin.permissions == ("network", "shell:exec")
    assert done.record.kind == "Claude Code plugin"
    assert done.record.left_out == ("hook, not run: PostToolUse of Write: fmt.sh", "subagents, not used: critic")
    texts = command_line.read_json(f"{plugin.path}/texts.json")
    assert texts["prompts"] == {"greet": "commands/greet.md", "git:log": "commands/git/log.md"}
    assert texts["skills"] == {"tea": "skills/tea"}


def test_its_texts_are_served_as_prompts_and_resources(installer, tmp_path):
    folder = claude_plugin(tmp_path / "up")
    os.unlink(f"{folder}/.mcp.json")
    folded = "---\nname: pot\ndescription: >-\n  How to warm\n  the pot.\n---\nWarm it.\n"
    plugin_folders.write(f"{folder}/skills/pot/SKILL.md", folded)
    plugin = installer.install(Source(location=folder)).plugin
    assert (plugin.permissions, plugin.tier) == ((), 1)  # texts need nothing
    asked = [
        ("initialize", {}),
        ("prompts/list", {}),
        ("prompts/get", {"name": "greet", "arguments": {"arguments": "Ada"}}),
        ("resources/list", {}),
        ("resources/read", {"uri": "skill://tea/temperatures.txt"}),
        ("resources/read", {"uri": "skill://tea/../../../.mcp.json"}),
    ]
    lines = [
        {"jsonrpc": "2.0", "id": number, "method": name, "params": params}
        for number, (name, params) in enumerate(asked)
    ]
    import subprocess

    done = subprocess.run(
        ["python3", f"{plugin.path}/texts.py"],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    greeted, prompts, prompt, resources, resource, outside = map(json.loads, done.stdout.splitlines())
    assert greeted["result"]["capabilities"].keys() >= {"prompts", "resources"}
    assert [one["name"] for one in prompts["result"]["prompts"]] == ["git:log", "greet"]
    assert prompt["result"]["messages"][0]["content"]["text"] == "Say hello to Ada."
    assert [one["uri"] for one in resources["result"]["resources"]] == [
        "skill://pot/SKILL.md",
        "skill://tea/SKILL.md",
        "skill://tea/temperatures.txt",
    ]
    assert resources["result"]["resources"][0]["description"] == "How to warm the pot."
    assert resource["result"]["contents"][0]["text"] == "green 80\n"
    assert "no resource" in outside["error"]["message"]


def test_a_marketplace_lists_its_plugins_and_installs_the_named_one(installer, tmp_path):
    elsewhere = plugin_folders.cyclop(tmp_path / "elsewhere", "hello")
    git(elsewhere, "init", "--quiet")
    commit(elsewhere)
    claude_plugin(tmp_path / "market/plugins/greeter")
    market = write(
        tmp_path / "market",
        {
            ".claude-plugin/marketplace.json": {
                "name": "m",
                "owner": {"name": "o"},
                "plugins": [
                    {"name": "greeter", "source": "./plugins/greeter", "description": "Greets people"},
                    {"name": "hello", "source": {"source": "url", "url": f"file://{elsewhere}"}},
                    {"name": "inline", "source": "./", "strict": False, "mcpServers": {"i": {"command": "python3"}}},
                    {"name": "old", "source": {"source": "npm", "package": "x"}},
                    {"name": "out", "source": "./../../etc"},
                    {"name": "far", "source": {"source": "git-subdir", "url": "ada/tools", "path": "kit", "ref": "v1"}},
                ],
            }
        },
    )
    with pytest.raises(SeveralPlugins, match="6 plugins: greeter, hello, inline, old, out, far"):
        installer.install(Source(location=market))
    done = installer.install(Source(location=market, part="greeter"))
    assert (done.plugin.name, done.record.source.part) == ("greeter", "greeter")
    plugin_folders.write(f"{market}/plugins/greeter/commands/new.md", "More.\n")
    with installer.update(done.plugin) as updated:
        assert updated.is_new
    hello = installer.install(Source(location=market, part="hello"))
    assert (hello.plugin.format, hello.record.source.location) == ("cyclop", f"file://{elsewhere}")
    assert [one.name for one in installer.install(Source(location=market, part="inline")).plugin.endpoints] == ["i"]
    far = next(one for one in marketplaces.read(market) if one.name == "far").elsewhere
    assert (far.location, far.subdir, far.ref) == ("https://github.com/ada/tools", "kit", "v1")
    for name in ("old", "out"):
        with pytest.raises(InstallError, match="cannot be installed"):
            installer.install(Source(location=market, part=name))
    with pytest.raises(InstallError, match="none is named so"):
        installer.install(Source(location=market, part="nobody"))


def test_an_agent_plugin_and_an_mcp_bundle_become_mcp_plugins(installer, tmp_path):
    agent = write(
        tmp_path / "agent",
        {
            "plugin.json": {"$schema": "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json", "name": "a.kit"},
            "mcp.json": {"mcpServers": {"kit": {"type": "stdio", "command": "./run", "args": ["${PLUGIN_DATA}/x"]}}},
            "run": "#!/usr/bin/env python3\n",
            "skills/tea/SKILL.md": "Tea.\n",
            "com.example.client/hooks/x.json": {},
        },
    )
    done = installer.install(Source(location=agent))
    assert [endpoint.name for endpoint in done.plugin.endpoints] == ["kit", "a.kit-texts"]
    assert os.access(done.plugin.endpoints[0].command, os.X_OK)
    assert done.record.left_out == ("for one client only, not used: com.example.client",)

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        manifest = {
            "manifest_version": "0.3",
            "name": "My Files",
            "version": "2.0.0",
            "server": {
                "type": "node",
                "entry_point": "server/index.js",
                "mcp_config": {
                    "command": "node",
                    "args": ["${__dirname}/server/index.js", "${user_config.folder}"],
                    "env": {"KEY": "${user_config.api_key}"},
                    "platform_overrides": {"linux": {"env": {"KEY": "${user_config.api_key}", "ON": "linux"}}},
                },
            },
            "user_config": {
                "api_key": {"type": "string", "title": "Key", "sensitive": True, "required": True},
                "folder": {"type": "directory", "title": "Folder", "default": "${HOME}/Notes"},
            },
        }
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("server/index.js", "process.stdin.resume()\n")
        archive.writestr("server/node_modules/x/index.js", "\n")
    path = tmp_path / "files.mcpb"
    path.write_bytes(content.getvalue())
    done = installer.install(Source(location=str(path)))
    [endpoint] = done.plugin.endpoints
    assert (done.plugin.name, done.plugin.version) == ("My-Files", "2.0.0")
    assert endpoint.arguments[0] == f"{done.plugin.path}/bundle/server/index.js"
    assert endpoint.arguments[1] == f"${{FOLDER:-{os.path.expanduser('~')}/Notes}}"
    assert endpoint.environment == {"KEY": "${API_KEY}", "ON": "linux"}
    assert set(done.plugin.permissions) >= {"network", "shell:exec", "env:API_KEY", "env:FOLDER"}
    assert [(value.variable, value.required) for value in done.values] == [("API_KEY", True), ("FOLDER", False)]
    assert os.path.exists(f"{done.plugin.path}/bundle/server/node_modules/x/index.js")


def test_values_of_an_mcp_bundle_are_references_with_all_their_defaults(installer, tmp_path):
    user = os.path.expanduser("~")
    folder = write(
        tmp_path / "bundle",
        {
            "manifest.json": {
                "manifest_version": "0.3",
                "name": "files",
                "server": {
                    "type": "binary",
                    "mcp_config": {
                        "command": "python3",
                        "args": ["${user_config.folders}", "--size=${user_config.size}"],
                        "env": {"NOTES": "${DOCUMENTS}/notes", "NICK": "${user_config.nick}"},
                    },
                },
                "user_config": {
                    "folders": {"type": "directory", "multiple": True, "default": ["${HOME}/Desktop", "${DOWNLOADS}"]},
                    "size": {"type": "number", "default": 10},
                    "nick": {"type": "string"},
                },
                "compatibility": {"platforms": ["win32"]},
            }
        },
    )
    done = installer.install(Source(location=folder))
    [endpoint] = done.plugin.endpoints
    assert endpoint.arguments == (
        f"${{FOLDERS:-{user}/Desktop}}",
        f"${{FOLDERS_2:-{user}/Downloads}}",
        "--size=${SIZE:-10}",
    )
    assert endpoint.environment == {"NOTES": f"{user}/Documents/notes", "NICK": "${NICK:-}"}
    reads = {name for name in done.plugin.permissions if name.startswith("filesystem:read:")}
    assert reads == {f"filesystem:read:~/{name}" for name in ("Desktop", "Downloads", "Documents/notes")}
    assert any("win32" in line for line in done.record.left_out)


def test_what_we_exported_is_installed_without_a_host_around_it(installer, tmp_path):
    folder = plugin_folders.cyclop(tmp_path / "here", "hello")
    for kind, name in (("mcpb", "x.mcpb"), ("claude-plugin", "c"), ("agent-plugin", "a")):
        where = str(tmp_path / name)
        command_line.ok("--plugin", folder, "export", "hello", "--to", kind, "--output", where)
        done = installer.install(Source(location=where))
        assert (done.plugin.name, done.plugin.format) == ("hello", "cyclop")
        installer.remove(done.plugin, purge=True)


def test_a_tarball_is_unpacked_and_its_tricks_are_refused(installer, tmp_path):
    folder = plugin_folders.cyclop(tmp_path / "here", "hello")

    def packed(name, *more):
        with tarfile.open(tmp_path / name, f"w:{COMPRESSIONS[name.rpartition('.')[2]]}") as archive:
            archive.add(folder, "repo-main/kit")
            for entry in more:
                archive.addfile(entry)
        return str(tmp_path / name)

    link = tarfile.TarInfo("repo-main/kit/link")
    link.type, link.linkname = tarfile.SYMTYPE, "plugin.json"
    done = installer.install(Source(location=packed("ok.tar.gz", link)))
    assert (done.plugin.name, done.record.source.subdir) == ("hello", "kit")
    assert os.access(f"{done.plugin.path}/run", os.X_OK)
    installer.remove(done.plugin, purge=True)
    for name in ("ok.tar.xz", "ok.tar.bz2", "ok.tar"):
        installer.remove(installer.install(Source(location=packed(name))).plugin, purge=True)

    for change, said in (
        ({"name": "../out"}, "unsafe name"),
        ({"name": "/etc/x"}, "unsafe name"),
        ({"name": "a/link", "type": tarfile.SYMTYPE, "linkname": "../../out"}, "link that leads out"),
        ({"name": "a/link", "type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "link that leads out"),
        ({"name": "a/hard", "type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}, "hard link or device"),
        ({"name": "a/pipe", "type": tarfile.FIFOTYPE}, "hard link or device"),
    ):
        entry = tarfile.TarInfo()
        for field, value in change.items():
            setattr(entry, field, value)
        with pytest.raises(InstallError, match=said):
            installer.install(Source(location=packed("bad.tar.gz", entry)))
    (tmp_path / "junk.tar.gz").write_bytes(b"\x1f\x8bjunk")
    with pytest.raises(InstallError, match="cannot be read"):
        installer.install(Source(location=str(tmp_path / "junk.tar.gz")))
    assert not [name for name in os.listdir(find_home().plugins) if not name.startswith(".lock")]


def test_a_tarball_that_grows_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(zip_sources, "LARGEST", 1 << 20)
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("big")
        entry.size = 4 << 20
        archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    (tmp_path / "into").mkdir()
    with pytest.raises(InstallError, match="holds more than 1 MiB"):
        zip_sources.unpack(str(tmp_path / "bomb.tar.gz"), str(tmp_path / "into"))


def test_a_web_page_names_a_branch_with_slashes_and_a_folder(tmp_path, monkeypatch):
    folder = plugin_folders.cyclop(tmp_path / "repo/plugins", "hello")
    repository = str(tmp_path / "repo")
    git(repository, "init", "--quiet", "--initial-branch=main")
    commit(repository)
    git(repository, "branch", "feature/new")
    config = plugin_folders.write(
        f"{tmp_path}/gitconfig", f'[url "file://{repository}"]\n insteadOf = https://github.com/ada/tools\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", config)
    done = command_line.ok(
        "install", "https://github.com/ada/tools/tree/feature/new/plugins/hello", "--yes", "--json"
    ).json
    assert (done["name"], done["state"], len(done["commit"])) == ("hello", "approved", 40)
    command_line.ok("remove", "hello", "--yes", "--purge")
    named = plugin_sources.with_ref(Source(location="https://github.com/ada/tools"), "feature/new/plugins/hello")
    assert (named.ref, named.subdir) == ("feature/new", "plugins/hello")
    named = plugin_sources.with_ref(Source(location="https://github.com/ada/tools"), f"{'a' * 40}/plugins")
    assert (named.ref, named.subdir) == ("a" * 40, "plugins")
    os.rename(folder, f"{repository}/hello")
    commit(repository)
    assert command_line.ok("install", "ada/tools", "--yes", "--json").json["name"] == "hello"  # the only one in it
    command_line.ok("remove", "hello", "--yes")
    command_line.ok("install", "github:ada/tools/plugins/hello@feature/new", "--yes")
