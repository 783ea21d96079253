"""Runs code as a plugin that was granted a project folder: `python broker_script.py CASE` prints JSON.

A case is {"code", "granted"} and maybe {"without", "files", "beside", "kill", "sockets"}: on these, by name, somebody
outside listens, and the answer tells which were reached.
The code finds the project in `PROJECT` (and as its working folder)
and its own folder in `DATA`; what it prints last is JSON. The answer has that, how it ended, what was held, and all
that is in the project afterwards.
"""

import json
import os
import signal
import socket
import sys
from typing import Any

import anyio

import processes
import sandbox_script

PRELUDE = """
import errno, json, os, stat, subprocess, sys, threading, time
PROJECT, DATA, USER = sys.argv[1:4]
def write(path, text="x", mode="w"):
    with open(path, mode) as file:
        file.write(text)
def tried(**attempts):
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            found[name] = ""
        except OSError as error:
            found[name] = errno.errorcode.get(error.errno, str(error.errno))
    print(json.dumps(found))
"""


async def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run one case in a scene of its own."""
    import msgspec  # after the path is set, by whoever starts this

    from anyplug.runtime.processes import run_once
    from anyplug.runtime.processes.guard import Guard
    from anyplug.runtime.processes.program import Program
    from anyplug.runtime.sandbox import escape_test
    from anyplug.runtime.sandbox.enforcement import LAYERS
    from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

    guard = Guard()
    try:
        with escape_test.scene() as scene:
            project = os.path.join(os.path.dirname(scene.place.home), "work")
            os.makedirs(os.path.join(project, ".git", "hooks"))
            for path, text in {".git/config": "[core]\n", "kept": "old\n", **case.get("files", {})}.items():
                os.makedirs(os.path.dirname(os.path.join(project, path)), exist_ok=True)
                if path.endswith("/"):
                    continue
                with open(os.path.join(project, path), "w", encoding="utf-8") as file:
                    file.write(text)
            own = os.path.join(project, ".zot", "extensions", "p")
            place = msgspec.structs.replace(scene.place, project=project)
            if case.get("beside"):
                place = msgspec.structs.replace(place, plugin=own, writes_beside_itself=True)
            profile = msgspec.structs.replace(scene, place=place).profile(*case["granted"])
            layers = tuple(layer for layer in LAYERS if layer not in case.get("without", ()))
            spawn = ConfinedSpawn(guard, profile, layers=layers)
            program = Program(
                argv=(escape_test.python(), "-I", "-S", "-", project, scene.place.data, scene.place.user),
                cwd=project,
                env={"PATH": os.defpath, "HOME": scene.place.data},
                stdin=(PRELUDE + case["code"]).encode(),
                timeout_s=100,
                max_stdout=1 << 20,
                max_stderr=1 << 20,
            )
            folders = {"project": project, "data": scene.place.data, "user": scene.place.user}
            listeners = {name: listener(name.format(**folders)) for name in case.get("sockets", ())}
            try:
                async with anyio.create_task_group() as tasks:
                    if case.get("kill"):
                        tasks.start_soon(kill_broker, spawn, os.path.join(project, "ready"))
                    finished = await run_once.run(program, spawn)
                again = await run_once.run(msgspec.structs.replace(program, stdin=b"open('again', 'w')"), spawn)
            finally:
                spawn.close()
            lines = finished.stdout.decode().splitlines()
            return {
                "said": json.loads(lines[-1]) if lines else None,
                "code": finished.exit_code,
                "reason": finished.reason,
                "again": again.exit_code,
                "stderr": finished.stderr.decode()[-2000:],
                "held": spawn.enforcement.held,
                "reached": [name for name, one in listeners.items() if is_reached(one)],
                "left": {name: read(os.path.join(project, name)) for name in tree(project)},
                "user": tree(scene.place.user),
            }
    finally:
        guard.close()


async def kill_broker(spawn: Any, ready: str) -> None:
    """Kill the broker of a spawner once a file is there."""
    while not os.path.exists(ready):
        await anyio.sleep(0.01)
    spawner = spawn._process.pid
    threads = os.listdir(f"/proc/{spawner}/task")
    children = [pid for thread in threads for pid in processes.read(f"/proc/{spawner}/task/{thread}/children").split()]
    (broker,) = [int(pid) for pid in children if b"zygote" in processes.read(f"/proc/{int(pid)}/cmdline")]
    os.kill(broker, signal.SIGKILL)


def listener(path: str) -> socket.socket:
    """Listen on a path, as a service of the user's does."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.chdir(os.path.dirname(path))  # the path may be too long for an address
    one = socket.socket(socket.AF_UNIX)
    one.bind(os.path.basename(path))
    one.listen(1000)
    one.setblocking(False)
    return one


def is_reached(one: socket.socket) -> bool:
    """Return whether somebody has connected."""
    try:
        one.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def tree(folder: str) -> list[str]:
    """All that is in a folder, folders with a slash behind."""
    found = []
    for place, folders, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(place, name), folder) + "/" for name in folders]
        found += [os.path.relpath(os.path.join(place, name), folder) for name in names]
    return sorted(found)


def read(path: str) -> str | None:
    if not os.path.isfile(path) or os.path.islink(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(200)


def outcome(user: str, code: str, *granted: str, **more: Any) -> dict[str, Any]:
    """Run code as a plugin of that user's."""
    case = {"code": code, "granted": granted or ("filesystem:write:.",), **more}
    return json.loads(sandbox_script.run(user, "", json.dumps(case), script=__file__))


async def main() -> None:
    print(json.dumps(await run(json.loads(sys.argv[1]))))


if __name__ == "__main__":
    anyio.run(main)
