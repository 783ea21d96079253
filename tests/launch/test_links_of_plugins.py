"""A link that one plugin put in the place of what another was granted leads that one nowhere."""

import os
import tempfile

import pytest

import plugin_folders
from anyplug.call.consent import Attachment

pytestmark = pytest.mark.anyio

MOVES = plugin_folders.python(
    "given = given['input']\nos.rename(given['path'], given['path'] + '.old')\nos.symlink(given['to'], given['path'])\n"
    "print(json.dumps({'result': 'moved'}))"
)
READS = plugin_folders.python("print(json.dumps({'result': open(given['input']['path']).read()}))")
SHOWS = plugin_folders.python("print(json.dumps({'text': open(given['file']).read()}))")
FILE = {"file": {"type": "file", "description": "A file."}}
YES = Attachment(yes=True)


@pytest.fixture
def usual(monkeypatch):
    """Give a user's home with a key, a project with notes, and the project as the current folder."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="anyplug-user-") as folder:
        monkeypatch.setenv("HOME", folder)
        monkeypatch.setenv("ANYPLUG_HOME", f"{folder}/.local/share/anyplug")
        for name, text in ((".ssh/id", "the key"), ("private/id", "the key"), ("work/notes/id", "a note")):
            plugin_folders.write(f"{folder}/{name}", text)
        monkeypatch.chdir(f"{folder}/work")
        yield folder


async def approve(host, name, *granted):
    await host.approve(host.snapshot.plugin(name).plugin, granted=granted, always=True)


def tool(name):
    return [{"name": name, "description": "Does it.", "input_schema": {"type": "object"}}]


@pytest.mark.combinations
@pytest.mark.claim("links-of-plugins")
@pytest.mark.parametrize("to", [".ssh", "private"])
@pytest.mark.parametrize("scope", ["notes", "notes/id"])
async def test_no_file_is_taken_through_it(scope, to, usual, host):
    root = f"{usual}/elsewhere"
    plugin_folders.stavrobot(root, "takes", SHOWS, parameters=FILE)
    plugin_folders.cyclop(root, "moves", MOVES, permissions=["filesystem:write:."], tools=tool("moves"))
    async with host(roots=(root,)) as h:
        await approve(h, "takes", f"filesystem:read:{scope}")
        await approve(h, "moves", "filesystem:write:.")
        assert "a note" in (await h.call("takes.act", {"file": "notes/id"}, attachment=YES)).text
        moved = await h.call("moves", {"path": f"{usual}/work/notes", "to": f"{usual}/{to}"}, attachment=YES)
        assert moved.text == "moved"
        result = await h.call("takes.act", {"file": "notes/id"}, attachment=YES)
    assert result.error.code == "invalid_arguments"
    assert "the key" not in result.text


@pytest.mark.combinations
@pytest.mark.claim("links-of-plugins")
@pytest.mark.parametrize("to", [".ssh", "private"])
@pytest.mark.parametrize("writes", ["filesystem:write:.", "filesystem:write"])
async def test_no_grant_follows_it(writes, to, usual, host):
    root = f"{usual}/elsewhere"
    plugin_folders.cyclop(root, "reads", READS, tools=tool("reads"))
    plugin_folders.cyclop(root, "moves", MOVES, tools=tool("moves"))
    path = {"path": f"{usual}/work/notes/id"}
    async with host(roots=(root,)) as h:
        await approve(h, "reads", "filesystem:read:notes")
        await approve(h, "moves", writes)
        assert (await h.call("reads", path, attachment=YES)).text == "a note"
        moved = await h.call("moves", {"path": f"{usual}/work/notes", "to": f"{usual}/{to}"}, attachment=YES)
        assert moved.text == "moved"
        result = await h.call("reads", path, attachment=YES)
    assert result.error.code == "not_enforceable"
    assert "so that plugin could redirect it" in result.error.message
    assert "the key" not in result.text


async def test_a_link_that_no_plugin_can_change_is_followed(usual, host):
    root = f"{usual}/elsewhere"
    plugin_folders.cyclop(root, "reads", READS, tools=tool("reads"))
    os.symlink(f"{usual}/private", f"{usual}/work/linked")
    async with host(roots=(root,)) as h:
        await approve(h, "reads", "filesystem:read:linked")
        assert (await h.call("reads", {"path": f"{usual}/work/linked/id"}, attachment=YES)).text == "the key"
