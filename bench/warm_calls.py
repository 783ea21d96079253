"""What starting interpreters ahead saves: two hosts in one process, one of which does. Both confine and record."""

import asyncio
import json
import os
import statistics
import sys
import time
from contextlib import AsyncExitStack

from anyplug import Host
from anyplug.runtime.processes.toolchain import find_node
from bench import calls, plugins
from bench.measure import Plan, Row

AIM_PYTHON, AIM_NODE, AIM_MODULE, AIM_UV = 0.25, 0.35, 0.5, 0.15
AIM_SAME = 1.05
AIM_FIRST, AIM_ALL, FIRST, BURST = 0.4, 1.0, 10, 50
HOSTS = ("warm", "cold")
AGAINST = "the same call, started cold"
PAUSE_S = 0.06  # between calls, as an agent makes them: another is started meanwhile
SETTLE_S = 1.5  # after steady use, until as many wait as that makes likely
STEADY = 24  # calls before a burst

NODE_SOURCE = """#!{node}
const chunks = [];
process.stdin.on("data", (chunk) => chunks.push(chunk));
process.stdin.on("end", () => {{
  const request = JSON.parse(Buffer.concat(chunks));
  console.log(JSON.stringify({{ result: "Hello " + request.input.name, is_error: false }}));
}});
"""
MODULE_SOURCE = """#!{node}
import {{ readFileSync }} from "node:fs";

const request = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify({{ result: `Hello ${{request.input.name}}`, is_error: false }}));
"""
PARAMETERS = {"name": {"type": "string", "description": "Whose name it is."},
              "count": {"type": "integer", "description": "Any number."}}  # fmt: skip
UV_SOURCE = """#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.8"
# dependencies = []
# ///
import json
import sys

given = json.load(sys.stdin)
print(json.dumps("Hello " + given["name"]))
"""
BASH_SOURCE = '#!/bin/bash\nread -r request\nprintf \'%s\' \'{"result":"ok","is_error":false}\'\n'


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure each kind of script, and what is never started ahead."""
    root = os.path.join(folder, "plugins")
    python, node = os.path.realpath(sys.executable), find_node()
    before = os.environ["PATH"]
    os.environ["PATH"] = os.pathsep.join((os.path.dirname(python), before))  # else it is nobody's interpreter
    script = calls.PYTHON_SOURCE.format(python=python)
    what, program = calls.small_program(folder)
    kinds: list[tuple[str, str, float, int]] = [("a Python script", "python", AIM_PYTHON, plan.scripts)]
    plugins.write(root, "python", script)
    if node is not None:
        plugins.write(root, "node", NODE_SOURCE.format(node=node))
        _as_module(plugins.write(root, "module", MODULE_SOURCE.format(node=node)))
        kinds += [
            ("a Node script", "node", AIM_NODE, plan.scripts),
            ("a Node module", "module", AIM_MODULE, plan.scripts),
        ]
    _with_dependencies(os.path.join(root, "uv"))
    kinds += [("a script that uv runs", "uv.act", AIM_UV, plan.scripts)]
    plugins.write(root, "shell", BASH_SOURCE)
    plugins.write(root, "small", program)
    kinds += [("a Bash script", "shell", AIM_SAME, plan.calls // 4), (what, "small", AIM_SAME, plan.calls)]
    try:
        async with AsyncExitStack() as stack:
            hosts = [await stack.enter_async_context(_host(folder, root, name)) for name in HOSTS]
            found = []
            for title, tool, aim, rounds in kinds:
                pause = PAUSE_S if tool not in {"shell", "small"} else 0.0
                measured, baseline = await _in_turns(rounds, hosts, tool, pause)
                found.append(_row(f"call of {title}", measured, baseline, aim))
            return found + await _bursts(hosts, max(plan.scripts // 15, 3))
    finally:
        os.environ["PATH"] = before


def _as_module(folder: str) -> None:
    os.rename(os.path.join(folder, "main"), os.path.join(folder, "main.mjs"))
    path = os.path.join(folder, "plugin.json")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(manifest | {"entrypoint": "main.mjs"}, file)


def _with_dependencies(folder: str) -> None:
    """Write a Stavrobot plugin, whose dependencies are resolved once."""
    about = {"name": "act", "description": "Greets.", "entrypoint": "run.py", "parameters": PARAMETERS}
    os.makedirs(os.path.join(folder, "act"))
    for name, text in (
        ("manifest.json", json.dumps({"name": "uv", "description": "Greets."})),
        ("act/manifest.json", json.dumps(about)),
        ("act/run.py", UV_SOURCE),
    ):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    os.chmod(os.path.join(folder, "act", "run.py"), 0o755)


def _host(folder: str, root: str, name: str) -> Host:
    home = os.path.join(folder, name)
    if name == "cold":
        os.makedirs(home)
        with open(os.path.join(home, "settings.toml"), "w", encoding="utf-8") as settings:
            settings.write("[warm]\nenabled = false\n")
    plugins.approve_all(home, [root], always=True)
    return Host(roots=[root], home=home, watch=False)


async def _in_turns(rounds: int, hosts: list[Host], tool: str, pause: float) -> list[float]:
    """Call in turns, with a pause before each call; return the medians."""
    for host in hosts:
        await _call(host, tool)  # the first pays for the sandbox
    times: list[list[float]] = [[] for _ in hosts]
    for _ in range(rounds):
        for taken, host in zip(times, hosts, strict=True):
            await asyncio.sleep(pause)
            taken.append(await _call(host, tool))
    return [statistics.median(taken) for taken in times]


async def _bursts(hosts: list[Host], rounds: int) -> list[Row]:
    """Measure calls that come at once, after some of steady use: until the first are done, and until all are."""
    first: list[list[float]] = [[] for _ in hosts]
    total: list[list[float]] = [[] for _ in hosts]
    for _ in range(rounds):
        for number, host in enumerate(hosts):
            for _ in range(STEADY):
                await _call(host, "python")
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(SETTLE_S)
            begun = time.perf_counter()
            ends: list[float] = []
            await asyncio.gather(*(_noted(host, begun, ends) for _ in range(BURST)))
            first[number].append(statistics.median(sorted(ends)[:FIRST]))
            total[number].append(max(ends))
    (warm, cold), (all_warm, all_cold) = (map(statistics.median, times) for times in (first, total))
    return [
        _row(f"the first {FIRST} of {BURST} calls at once", warm, cold, AIM_FIRST),
        _row(f"all of {BURST} calls at once", all_warm, all_cold, AIM_ALL),
    ]


async def _noted(host: Host, begun: float, ends: list[float]) -> None:
    await _call(host, "python")
    ends.append((time.perf_counter() - begun) * 1000)


async def _call(host: Host, tool: str) -> float:
    """Call once; return how long it took, in ms."""
    begun = time.perf_counter()
    result = await host.call(tool, calls.ARGUMENTS)
    assert not result.is_error, result
    return (time.perf_counter() - begun) * 1000


def _row(what: str, measured: float, baseline: float, aim: float) -> Row:
    return Row(what=what, against=AGAINST, measured=measured, baseline=baseline, aim=aim)
