"""What a configuration of git names is protected, though it lies in a folder that a plugin may write to."""

import json
import os
import subprocess

import pytest

import plugin_folders
from anyplug.call.consent import Attachment
from anyplug.launch import git_settings
from rows import each_row

CLEAN = {"PATH": os.defpath, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nonexistent"}
WRITES = plugin_folders.python(
    "found = []\nfor path in given['input']['paths']:\n"
    "    try:\n        os.makedirs(os.path.dirname(path), exist_ok=True)\n        open(path, 'w').close()\n"
    "        found.append('')\n"
    "    except OSError as error: found.append(error.strerror)\nprint(json.dumps({'result': json.dumps(found)}))"
)
TOOLS = [{"name": "writes", "description": "Writes.", "input_schema": {"type": "object"}}]
NAMED = {
    "hooks": ("[core]\n\thooksPath = tools/hooks\n", "tools/hooks/pre-commit"),
    "hooks on the line of the section": ('[CORE] HooksPath="tools/my hooks" ; why\n', "tools/my hooks/pre-push"),
    "hooks in the root": ("[core]\nhooksPath = .\n", "post-checkout"),
    "a line that goes on": ("[core]\n\thooksPath = tools/\\\nhooks # why\n", "tools/hooks/post-commit"),
    "an included file": ("[include]\n\tpath = ../shared.cfg\n", "shared.cfg"),
    "a file that is included if": ('[includeIf "gitdir:~/[x] \\"y"]\n\tpath = ../if.cfg\n', "if.cfg"),
    "hooks of an included file": ("[include]\n\tpath = ../kept.cfg\n", "from-kept/pre-commit"),
    "a filter": ('[filter "x"]\n\tclean = "sh ./tools/clean.sh" --all\n', "tools/clean.sh"),
    "an alias": ("[alias]\n\tgo = !tools/clean.sh\n", "tools/clean.sh"),
    "a monitor": ("[core]\n\tfsmonitor = tools/clean.sh\n", "tools/clean.sh"),
}


@pytest.fixture
def project(tmp_path):
    """A repository with files that a configuration can name; the host runs in it."""
    folder = tmp_path / "work"
    for name, text in (("tools/clean.sh", ""), ("kept.cfg", "[core]\nhooksPath = from-kept\n"), ("free", "")):
        plugin_folders.write(str(folder / name), text)
    (folder / ".git").mkdir()
    for name, text in (("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n\tbare = false\n")):
        plugin_folders.write(str(folder / ".git" / name), text)
    return folder


@pytest.mark.anyio
@pytest.mark.claim("protected-paths")
@pytest.mark.parametrize("permission", ["filesystem:write:.", "filesystem:write"])
@pytest.mark.parametrize("what", NAMED)
async def test_what_a_configuration_of_git_names_is_not_written(what, permission, project, host, cyclop):
    text, path = NAMED[what]
    plugin_folders.write(str(project / ".git" / "config"), text)
    plugin = cyclop("writes", WRITES, permissions=[permission], tools=TOOLS)
    async with host(plugin) as h:
        paths = [str(project / name) for name in (path, "free", "new/file")]
        said = await h.call("writes", {"paths": paths}, attachment=Attachment(yes=True))
    refused, *free = json.loads(said.text)
    assert (bool(refused), free) == (True, ["", ""]), said.text


@pytest.mark.anyio
@pytest.mark.claim("protected-paths")
@pytest.mark.parametrize("layout", ["a worktree", "a bare repository", "the user's own settings", "a repository above"])
async def test_so_it_is_however_the_repository_lies(layout, project, tmp_path, host, cyclop):
    hooks = "[core]\nhooksPath = tools/hooks\n"
    folder, granted = project, "filesystem:write:."
    if layout == "a worktree":
        (project / ".git").rename(tmp_path / "kept")
        plugin_folders.write(str(tmp_path / "kept" / "worktrees" / "w" / "commondir"), "../..\n")
        plugin_folders.write(str(tmp_path / "kept" / "config"), hooks)
        plugin_folders.write(str(project / ".git"), f"gitdir: {tmp_path}/kept/worktrees/w\n")
    elif layout == "a bare repository":
        folder = project / "deep" / "bare.git"
        plugin_folders.write(str(folder / "config"), hooks)
    elif layout == "a repository above":
        plugin_folders.write(str(project / ".git" / "config"), hooks)
        granted = "filesystem:write:tools"
    else:
        plugin_folders.write(str(tmp_path / "user" / ".gitconfig"), hooks)
    plugin = cyclop("writes", WRITES, permissions=[granted], tools=TOOLS)
    async with host(plugin) as h:
        paths = [str(folder / "tools" / "hooks" / "pre-commit"), str(project / "tools" / "free")]
        said = await h.call("writes", {"paths": paths}, attachment=Attachment(yes=True))
    refused, free = json.loads(said.text)
    assert (bool(refused), free) == (True, ""), said.text


@pytest.mark.anyio
async def test_a_change_of_the_configuration_counts_from_the_next_call_on(project, host, cyclop):
    plugin = cyclop("writes", WRITES, permissions=["filesystem:write:."], tools=TOOLS)
    paths = {"paths": [str(project / "tools" / "hooks" / "pre-commit")]}
    async with host(plugin) as h:
        before = await h.call("writes", paths, attachment=Attachment(yes=True))
        plugin_folders.write(str(project / ".git" / "new"), "[core]\nhooksPath = tools/hooks\n")
        (project / ".git" / "new").rename(project / ".git" / "config")
        after = await h.call("writes", paths, attachment=Attachment(yes=True))
    assert (json.loads(before.text), bool(json.loads(after.text)[0])) == ([""], True)


@each_row(
    "text",
    [
        "[core]\n\thooksPath = a b  # c\n", '[core]\nx="a;b" ; c\n', "[a.b]\nk\n[c]k=1\n", "[a]\nx = a\\\n b\\tc\n",
        '[a "b\\"c]"]\nX = \\"q\\"\n', "# x\n; y\n[a]\n\n k = v \n", "[a]\r\nk = v\r\n", '[a]\nk = "x  y"  z\n',
    ],
)  # fmt: skip
def test_a_configuration_is_read_as_git_reads_it(text, tmp_path):
    path = tmp_path / "config"
    path.write_bytes(text.encode())
    said = subprocess.run(
        ["git", "config", "--file", path, "--list", "-z"], env=CLEAN, capture_output=True, check=True, text=True
    ).stdout
    lines = [entry.partition("\n") for entry in said.split("\0") if entry]
    expected = [(key.split(".")[0], key.rpartition(".")[2], value) for key, _, value in lines]
    assert git_settings.entries(text) == expected


@each_row("text", ["[", '["', "[a", "[a]\nk = \\", '[a]\nk = "', "=", "\0", "[a]\n= v\n", "k = v", "\\", "[]]\n[\n]"])
def test_what_is_no_configuration_harms_nobody(text):
    assert isinstance(git_settings.entries(text), list)
