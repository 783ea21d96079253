"""Whatever a plugin swaps under the host's hands, nothing of anybody else's is read out, moved, deleted or created."""

import os
import random
import subprocess
import sys
import threading
from contextlib import suppress

import anyio
import anyio.to_thread
import pytest

import plugin_folders
from anyplug.home import plugin_config
from anyplug.manage import carry_over, plugin_check
from anyplug.model.errors import AnyplugError
from anyplug.runtime.sandbox.linux import memory_and_disk

pytestmark = pytest.mark.anyio

NAME = "anyplug-test-swaps"
SECRET = "a secret that no plugin may read"
ROUNDS = 8
MOST_ROUNDS = 40 * ROUNDS  # until a call got through between two swaps
SEED = 20_240_517

# Swaps what has a name in the plugin's places for something else, as fast as it can, until its stdin closes.
SWAPPER = r"""
import glob, os, random, select, shutil, socket, stat, sys

canary, seed, *places = sys.argv[1:]
chance = random.Random(int(seed))

def made(path): return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755), "wb")  # through no link
def file(path): made(path).write(b"#!/bin/sh\necho swapped\n")
def giant(path): made(path).truncate(3 << 30)
def link(path): os.symlink(canary, path)
def file_link(path): os.symlink(canary + "/key", path)
def hard(path): os.link(canary + "/key", path)
def up(path): os.symlink("..", path)
def root(path): os.symlink("/proc/self/root" + canary, path)
def dangling(path): os.symlink("nowhere", path)
def folder(path): os.mkdir(path); file(path + "/inner.py"); link(path + "/out")
def pipe(path): os.mkfifo(path, 0o777)
def device(path): os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
def bound(path): socket.socket(socket.AF_UNIX).bind(path[-100:])
def locked(path): os.mkdir(path, 0)
def nothing(path): pass

KINDS = [file, giant, link, file_link, hard, up, root, dangling, folder, pipe, device, bound, locked, nothing]

def clear(path):
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)

swaps = 0
while not select.select([0], [], [], chance.random() / 500)[0]:
    place = chance.choice(places)
    above, path = chance.choice(glob.glob(os.path.dirname(place)) or ["/nowhere"]), os.path.basename(place)
    try:
        held = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # or we would be led astray ourselves
        os.fchdir(held)
        os.close(held)
        clear(path)
        chance.choice(KINDS)(path)
        swaps += 1
    except OSError:
        pass
print(swaps)
"""

# The same from inside of a call, as far as the sandbox lets it.
ACT = plugin_folders.python(f"""
import random, shutil, stat
chance = random.Random(given["seed"])
top = "/tmp/{NAME}"
def put(path):
    kind = chance.randrange(8)
    if kind == 0: open(path, "w").write("output")
    elif kind == 1: os.symlink(given["canary"], path)
    elif kind == 2: os.symlink(given["canary"] + "/key", path)
    elif kind == 3: os.mkfifo(path)
    elif kind == 4: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 3 << 30)
    elif kind == 5: os.mkdir(path); os.symlink(given["canary"], path + "/in")
    elif kind == 6: os.link(given["canary"] + "/key", path)
    elif kind == 7: os.symlink("/proc/self/root" + given["canary"], path)
for _ in range(60):
    path = top if chance.random() < 0.2 else top + "/" + chance.choice("abcd")
    try:
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    except OSError:
        pass
    try:
        put(path)
    except OSError:
        pass
print("{{}}")
""")


def everything(folder):
    """All that is in a folder: names, modes and contents."""
    found = {}
    for inside, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(inside, name)
            mode = os.lstat(path).st_mode
            with open(path if name in files else os.devnull, "rb") as file:
                found[os.path.relpath(path, folder)] = (mode, file.read())
    return found


@pytest.fixture
def canary(home):
    """Give a folder of the user's that must stay as it is."""
    folder = os.path.expanduser("~/.ssh")
    plugin_folders.write(f"{folder}/key", SECRET, 0o600)
    plugin_folders.write(f"{folder}/deeper/key", SECRET, 0o600)
    os.mkdir(f"{folder}/empty")
    return folder


def swapping(canary, places):
    """Start what swaps; it ends when its stdin is closed."""
    command = [sys.executable, "-c", SWAPPER, canary, str(SEED), *places]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def look_at_everything(h, plugin, folder):
    """Do to a plugin's files what commands and the host do between calls; each may refuse, and none may hang."""

    def look():
        for work in (
            lambda: h.catalog.digest(plugin),
            lambda: plugin_config.read(plugin),
            lambda: plugin_config.change(plugin, {}, []),
            lambda: plugin_check.examine(folder),
            lambda: carry_over.written(folder, {}, 0.0),
            lambda: memory_and_disk.measure(h.catalog.home.data(plugin), 1 << 40),
            h.catalog.find,
        ):
            with suppress(OSError, AnyplugError):
                work()

    await anyio.to_thread.run_sync(look)


PLACES = {
    "beside the plugin": ("{plugin}/state", "{plugin}/config.json", "{plugin}/extra.py", "{plugin}/more"),
    "data and cache": ("{data}/home", "{data}/x", "{cache}/tmp", "{cache}/go-build", "{plugin}/state"),
    "its tmp": ("{scratch}/*/{name}", "{scratch}/*/{name}/a", "{scratch}/*/{name}/b", "{scratch}/*/x"),
}


@pytest.mark.claim("host-follows-no-swap")
@pytest.mark.parametrize("where", PLACES)
async def test_swaps_during_calls_lead_the_host_nowhere(where, host, root, home, canary, tmp_path):
    parameters = {"seed": {"type": "integer", "description": "x"}, "canary": {"type": "string", "description": "x"}}
    swapped = plugin_folders.stavrobot(root, NAME, ACT, parameters=parameters, config={"token": {"description": "a"}})
    bystander = plugin_folders.cyclop(tmp_path / "others", "bystander")
    before = everything(canary)
    chance, codes = random.Random(SEED), set()
    async with host(swapped, bystander) as h:
        plugin = h.snapshot.plugin(NAME).plugin
        assert (await h.call("bystander")).text
        outside = sorted(os.listdir(os.path.expanduser("~")))
        data, cache = h.catalog.home.data(plugin), h.catalog.home.cache(plugin)
        os.makedirs(data, exist_ok=True)
        known = {"plugin": swapped, "data": data, "cache": cache, "scratch": h._runner._scratch.path, "name": NAME}
        swapper = swapping(canary, [place.format(**known) for place in PLACES[where]])
        try:
            for number in range(MOST_ROUNDS):
                if number >= ROUNDS and (where == "beside the plugin" or "" in codes):
                    break
                with anyio.fail_after(120):  # a hang, and not a measure of speed
                    given = {"seed": chance.randrange(1 << 30), "canary": canary}
                    result = await h.call(f"{NAME}.act", given)
                    codes.add(result.error.code if result.error else "")
                    assert SECRET not in repr(result)
                    assert not (await h.call("bystander")).is_error
                    await look_at_everything(h, plugin, swapped)
        finally:
            swaps, _ = await anyio.to_thread.run_sync(swapper.communicate)
    assert int(swaps)
    assert where == "beside the plugin" or "" in codes
    assert everything(canary) == before
    assert sorted(os.listdir(os.path.expanduser("~"))) == outside
    for inside, _, files in os.walk(os.path.join(home, "files")):
        for name in files:
            with open(os.path.join(inside, name), "rb") as file:
                assert SECRET.encode() not in file.read()
    assert threading.active_count() < 100
