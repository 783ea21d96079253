"""What a plugin runs from: the snapshot of the digest that was looked at, and what it writes there."""

import os

import pytest

import plugin_folders
from anyplug.catalog.catalog import Catalog
from anyplug.home.code_snapshots import Changed
from anyplug.home.settings import Home
from anyplug.launch.own_folder import OwnFolders
from plugin_folders import cyclop, write


def test_a_reload_between_the_look_and_the_copy_does_not_count_as_a_change(tmp_path):
    folder = cyclop(tmp_path / "plugins", "mine")
    catalog = Catalog(Home(str(tmp_path / "home")), roots=[str(tmp_path / "plugins")])
    (entry,) = catalog.load().entries
    folders, value = OwnFolders(catalog), catalog.digest(entry.plugin).value
    catalog.hash([entry.plugin])  # as a reload does: what was read of plugins that nobody approved is dropped
    assert catalog.last_reading(entry.plugin) is None
    folders.keep(entry.plugin, value)
    assert folders.has_snapshot(value)

    write(f"{folder}/more.py", "print()")
    with pytest.raises(Changed, match="changed while it was being started"):
        folders.keep(entry.plugin, value)
    catalog.close()


JS = """({ n }) => {
  const file = require("node:path").join(__dirname, "todos.json"), fs = require("node:fs");
  const todos = [...(fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, "utf8")) : []), n];
  fs.writeFileSync(file, JSON.stringify(todos));
  return String(todos.length);
}"""
PYTHON = """#!/usr/bin/env python3
import json, os, sys
file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "todos.json")
todos = (json.load(open(file)) if os.path.exists(file) else []) + [1]
json.dump(todos, open(file, "w"))
print(json.dumps({"result": str(len(todos))}))
"""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "write"),
    [
        ("todo.act", lambda root: plugin_folders.workbench(root, "todo", JS)),
        ("todo", lambda root: plugin_folders.cyclop(root, "todo", PYTHON, permissions=["filesystem:write"])),
    ],
)
async def test_what_a_plugin_writes_beside_its_code_lasts_and_changes_nothing_of_it(tool, write, host, root):
    folder = write(root)
    for first in (1, 3):  # the second time in another host
        async with host(roots=(root,)) as h:
            if first == 1:
                await h.approve("todo", always=True)
            for number in (first, first + 1):
                result = await h.call(tool, {"n": number})
                assert (result.text, result.is_error) == (str(number), False)
            assert h.plugins[0].state == "approved"
    assert "todos.json" not in os.listdir(folder)
