"""Changes a plugin's files while it is called, and tells what ran: `python swap_script.py CASES` prints JSON.

A case is {"format", "way", "calls"}: a process of its own replaces the plugin's code with foreign code and puts the
right code back, in that way, without a pause, while a host calls the plugin. The answer counts what each call came to:
the word that the code said, or the code of the error. Runs as whoever runs it.
"""

import collections
import json
import os
import signal
import sys
import tempfile
import time
from typing import Any

import anyio

import plugin_folders
import zot_folders

NAME = "victim"
OURS, FOREIGN = "WORD = 'ours   '\n", "WORD = 'foreign'\n"
SHADOW = "WORD = 'foreign'\n"  # of a module that the plugin expects elsewhere, or nowhere
WAYS = ("in place", "renamed over", "folder swapped", "module added")
PYTHON = """
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
def word():
    import colorsys  # of the standard library, and a module beside the script comes first
    import helper
    return getattr(colorsys, "WORD", helper.WORD).strip()
"""
ONCE = "#!/usr/bin/env python3\nimport json\n" + PYTHON + "{answer}\n"
CYCLOP = "print(json.dumps({'result': word()}))"
STAVROBOT = "print(json.dumps(word()))"
# Looks anew at each call, as one does that loads modules when it needs them.
STAYS_UP = (
    PYTHON
    + """
hello()
tool("victim")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        for name in ("helper", "colorsys"):
            sys.modules.pop(name, None)
        say(frame, word())
"""
)
NODE = """
const path = require('node:path');
function word() {
  delete require.cache[path.join(__dirname, 'helper.js')];
  const found = require('./helper.js').WORD.trim();
  try { return require('colorsys').WORD.trim(); } catch { return found; }
}
module.exports.register = (api) => api.registerTool({ name: 'victim.act', inputSchema: {}, run: word });
"""


def write(format: str, root: str) -> tuple[str, str, str, str]:
    """Write the plugin; give the name of its tool, and the paths of its helper, of a new module, and of its folder."""
    folder = os.path.join(root, NAME)
    if format == "cyclop":
        plugin_folders.cyclop(root, NAME, ONCE.format(answer=CYCLOP))
        tool, place = NAME, folder
    elif format == "stavrobot":
        plugin_folders.stavrobot(root, NAME, ONCE.format(answer=STAVROBOT), parameters={})
        tool, place = f"{NAME}.act", os.path.join(folder, "act")
    elif format == "zot":
        zot_folders.extension(root, NAME, STAYS_UP)
        tool, place = NAME, folder
    else:
        plugin_folders.workbench(root, NAME, index=NODE, files={"helper.js": f"exports.{OURS}"})
        return "victim.act", f"{folder}/helper.js", f"{folder}/node_modules/colorsys.js", folder
    plugin_folders.write(os.path.join(place, "helper.py"), OURS)
    return tool, os.path.join(place, "helper.py"), os.path.join(place, "colorsys.py"), folder


def swap(way: str, helper: str, added: str, folder: str) -> None:
    """Put foreign code in the place of the right one and back, until somebody ends us."""
    with open(helper, encoding="utf-8") as file:
        ours = file.read()
    foreign, beside = ours.replace("ours   ", "foreign"), f"{folder}.foreign"
    if way == "folder swapped":
        import shutil

        shutil.copytree(folder, beside, symlinks=True)
        plugin_folders.write(beside + helper[len(folder) :], foreign)
    scratch = os.path.dirname(folder) + ".scratch"
    os.makedirs(scratch, exist_ok=True)
    while True:
        for text in (foreign, ours):
            if way == "in place":
                with open(helper, "r+", encoding="utf-8") as file:
                    file.write(text)
            elif way == "renamed over":
                plugin_folders.write(f"{scratch}/new", text)
                os.replace(f"{scratch}/new", helper)
            elif way == "folder swapped":
                os.rename(folder, f"{folder}.aside")
                os.rename(beside, folder)
                os.rename(f"{folder}.aside", beside)
            elif text is foreign:
                plugin_folders.write(f"{scratch}/new", SHADOW if added.endswith(".py") else f"exports.{SHADOW}")
                os.makedirs(os.path.dirname(added), exist_ok=True)
                os.replace(f"{scratch}/new", added)
            else:
                os.unlink(added)
            time.sleep(0.002)  # a call takes longer, and must begin with the right code


async def attempt(case: dict[str, Any]) -> dict[str, int]:
    """Call a plugin whose code is swapped meanwhile; count what came of it."""
    from anyplug import Host  # after the path is set, by whoever starts this
    from anyplug.call.consent import Attachment

    with tempfile.TemporaryDirectory(prefix="anyplug-swapping-", dir=case.get("below")) as place:
        work, root = os.path.join(place, "work"), os.path.join(place, "work", "plugins")
        for folder in (root, os.path.join(place, "user")):
            os.makedirs(folder)
        tool, *paths = write(case["format"], root)
        os.environ.update(HOME=os.path.join(place, "user"), ANYPLUG_HOME=os.path.join(place, "home"))
        os.chdir(work)
        found: collections.Counter[str] = collections.Counter()
        try:
            async with Host(roots=[root], watch=False) as host:
                plugin = host.snapshot.plugin(NAME).plugin
                await host.approve(plugin, granted=("filesystem:read:.",), always=True)
                yes = Attachment(yes=True)
                first = await host.call(tool, {}, attachment=yes)
                assert first.text.strip() == "ours", first
                swapper = os.fork()
                if swapper == 0:
                    try:
                        swap(case["way"], *paths)
                    finally:
                        os._exit(1)
                try:
                    for _ in range(case["calls"]):
                        result = await host.call(tool, {}, attachment=yes)
                        found[result.error.code if result.error else result.text.strip()] += 1
                finally:
                    os.kill(swapper, signal.SIGKILL)
                    os.waitpid(swapper, 0)  # noqa: ASYNC222 - it was killed
        finally:
            os.chdir("/")
        return dict(found)


async def main() -> None:
    print(json.dumps([await attempt(case) for case in json.loads(sys.argv[1])]))


if __name__ == "__main__":
    anyio.run(main)
