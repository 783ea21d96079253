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


@pytest.mark.combinations
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


COMMANDS = {  # a configuration, and the file in `tools` that git runs or reads because of it
    "an operator without blanks": ('[filter "x"]\nclean = ./tools/a.sh|cat\n', "a.sh"),
    "operators before it": ('[filter "x"]\nclean = "true;tools/b.sh"\n', "b.sh"),
    "a variable": ('[filter "x"]\nclean = $PWD/tools/c.sh\n', "c.sh"),
    "another variable": ('[filter "x"]\nclean = \\"${ROOT:-.}/tools/d.sh\\"\n', "d.sh"),
    "another folder": ('[filter "x"]\nclean = "cd tools; ./e.sh"\n', "e.sh"),
    "another folder of an alias": ('[alias]\nx = "!cd tools && ./f.sh"\n', "f.sh"),
    "folder by folder": ('[alias]\nx = "!cd tools && cd deep && ./g.sh"\n', "deep/g.sh"),
    "a command in a command": ("[core]\nfsmonitor = `git rev-parse --show-toplevel`/tools/h.sh\n", "h.sh"),
    "quotes inside": ('[core]\nsshCommand = "tools/\\"i\\".sh"\n', "i.sh"),
    "quotes around blanks": ('[diff]\nexternal = \\"tools/j k.sh\\"\n', "j k.sh"),
    "an option": ("[core]\neditor = node --require=./tools/l.js\n", "l.js"),
    "a short option": ("[core]\npager = node -r./tools/m.js\n", "m.js"),
    "a module": ("[core]\nsshCommand = python3 -m tools.n\n", "n.py"),
    "a pattern": ('[alias]\nx = "!sh tools/o*.bash"\n', "o1.bash"),
    "braces": ('[alias]\nx = "!sh tools/{p,q}.sh"\n', "p.sh"),
    "a hook for unused objects": ("[gc]\nrecentObjectsHook = tools/r.sh\n", "r.sh"),
    "a tunnel": ('[imap]\ntunnel = "tools/s.sh --quiet"\n', "s.sh"),
    "a shell in a shell": ("[credential]\nhelper = \"!sh -c 'cd tools && exec sh t.sh'\"\n", "t.sh"),
    "a setting of the future": ("[novel]\nthing = tools/u.sh\n", "u.sh"),
    "a folder of programs": ('[alias]\nx = "!PATH=tools/bin:$PATH cmd"\n', "bin/cmd"),
}
MISSING = {
    "a command": ('[filter "x"]\nclean = sh ./tools/a1.sh|cat\n', "tools/a1.sh"),
    "a command in the root": ('[filter "x"]\nclean = python3 clean.py\n', "clean.py"),
    "a variable": ('[filter "x"]\nsmudge = $PWD/tools/b1.sh\n', "tools/b1.sh"),
    "a command in a command": ("[core]\npager = $(git rev-parse --show-toplevel)/tools/c1.sh\n", "tools/c1.sh"),
    "a folder that exists": ('[alias]\nx = "!cd tools && ./d1.sh"\n', "tools/d1.sh"),
    "a folder that does not": ('[alias]\nx = "!cd new-tools/ && ./e1.sh"\n', "new-tools/e1.sh"),
    "a module": ("[core]\neditor = python3 -m tools.deep.f1\n", "tools/deep/f1/__main__.py"),
    "a program": ('[alias]\nx = "!PATH=new-bin:$PATH cmd"\n', "new-bin/cmd"),
    "a hook of a push": ("[core]\nhooksPath = pushed\n", ".git/pushed/pre-receive"),
}


@pytest.mark.anyio
@pytest.mark.claim("protected-paths")
async def test_the_files_of_commands_are_not_written_however_a_shell_would_find_them(project, host, cyclop):
    plugin_folders.write(str(project / ".git" / "config"), "".join(text for text, _ in COMMANDS.values()))
    plugin_folders.write(str(project / ".git" / "config.worktree"), "".join(text for text, _ in MISSING.values()))
    existing = {what: project / "tools" / name for what, (_, name) in COMMANDS.items()}
    missing = {f"missing, {what}": project / name for what, (_, name) in MISSING.items()}
    free = [project / name for name in ("tools/free.sh", "src/a.py", ".git/HEAD", ".git/refs/heads/main", "log")]
    for path in existing.values():
        plugin_folders.write(str(path), "")
    plugin = cyclop("writes", WRITES, permissions=["filesystem:write:."], tools=TOOLS)
    async with host(plugin) as h:
        paths = [str(path) for path in (*existing.values(), *missing.values(), *free)]
        said = json.loads((await h.call("writes", {"paths": paths}, attachment=Attachment(yes=True))).text)
    guarded = (*existing, *missing)
    assert [what for what, refused in zip(guarded, said, strict=False) if not refused] == []
    assert said[len(guarded) :] == [""] * len(free)


@pytest.mark.anyio
@pytest.mark.claim("protected-paths")
async def test_names_are_relative_to_a_work_tree_that_lies_elsewhere(project, host, cyclop):
    text = '[core]\nworktree = ../../work\nhooksPath = tools/hooks\n[filter "x"]\nclean = tools/clean.sh\n'
    plugin_folders.write(str(project / "dots" / ".git" / "config"), text)
    plugin_folders.write(str(project / "work" / "tools" / "clean.sh"), "")
    plugin = cyclop("writes", WRITES, permissions=["filesystem:write:."], tools=TOOLS)
    async with host(plugin) as h:
        names = ("work/tools/hooks/pre-commit", "work/tools/clean.sh", "dots/tools/hooks/pre-commit", "work/tools/free")
        said = await h.call(
            "writes", {"paths": [str(project / name) for name in names]}, attachment=Attachment(yes=True)
        )
    *refused, free = json.loads(said.text)
    assert (all(refused), free) == (True, ""), said.text


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
