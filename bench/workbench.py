"""A call of a Workbench tool, against a bare echo of JSON lines in Node; many plugins, and what each of them holds."""

import os
import statistics
import time

from anyplug import Host
from anyplug.runtime.processes.toolchain import find_node
from bench import memory
from bench.measure import Act, Plan, Row, medians
from bench.sessions import BLOCK, EACH, IN_FLIGHT, Bare, approved_host, at_once, call_of, in_turn

AIM = 2.0
MANY = 50
MODULES, FILES = 300, 10  # of a plugin with usual dependencies
PSS = "Pss:"

PLUGIN = """
let calls = 0;
module.exports.register = (api) => {
  api.registerTool({
    name: '%s.greet',
    description: 'Greets.',
    inputSchema: {
      type: 'object',
      properties: { name: { type: 'string' }, count: { type: 'number' } },
      required: ['name'],
    },
    run: async (input) => ({ content: `Hello ${input.name}`, metadata: { calls: ++calls } }),
  });
};
"""

BARE = """#!%s
'use strict';
let rest = '';
let calls = 0;
process.stdin.setEncoding('utf8');
process.stdin.on('data', (text) => {
  const lines = (rest + text).split('\\n');
  rest = lines.pop();
  for (const line of lines) {
    const { id, args } = JSON.parse(line);
    const frame = { type: 'tool_result', id, content: `Hello ${args.name}`, metadata: { calls: ++calls } };
    process.stdout.write(`${JSON.stringify(frame)}\\n`);
  }
});
process.stdin.on('end', () => process.exit(0));
process.stdout.write('{"type":"ready"}\\n');
"""


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure calls, one after the other and many at once, the start of many plugins, and their memory."""
    node = find_node()
    if node is None:
        return []
    bare = os.path.join(folder, "bare.js")
    with open(bare, "w", encoding="utf-8") as file:
        file.write(BARE % node)
    os.chmod(bare, 0o755)
    return [*await _calls(folder, bare, plan), *await _starts(folder, bare, plan)]


async def _calls(folder: str, program: str, plan: Plan) -> list[Row]:
    _write(os.path.join(folder, "one"), "echo")
    _write(os.path.join(folder, "large"), "echo", MODULES)
    async with (
        approved_host(folder, "one") as host,
        approved_host(folder, "large") as large_host,
        Bare(program) as bare,
    ):
        call, large_call = call_of(host, "echo.greet"), call_of(large_host, "echo.greet")
        acts: list[Act] = [
            lambda: in_turn(call),
            lambda: in_turn(bare.call),
            lambda: at_once(call),
            lambda: at_once(bare.call),
            lambda: in_turn(large_call),
        ]
        times = await medians(max(plan.calls // BLOCK, 10), *acts)
    counts = (BLOCK, BLOCK, IN_FLIGHT * EACH, IN_FLIGHT * EACH, BLOCK)
    turn, bare_turn, flight, bare_flight, large = (taken * 1000 / n for taken, n in zip(times, counts, strict=True))
    measured = (
        ("call of a Workbench tool", "bare echo in Node", turn, bare_turn, AIM),
        (f"the same, {IN_FLIGHT} in flight, each", f"bare echo, {IN_FLIGHT}", flight, bare_flight, AIM),
        (f"call, {MODULES * FILES:,} files beside it", "call without them", large, turn, None),
    )
    return [
        Row(what=what, against=against, measured=taken, baseline=baseline, unit="µs", aim=aim)
        for what, against, taken, baseline, aim in measured
    ]


async def _starts(folder: str, program: str, plan: Plan) -> list[Row]:
    """Measure how long a host takes until many plugins are ready, and what one of their processes holds."""
    root = os.path.join(folder, "many")
    for number in range(MANY):
        _write(root, f"plugin-{number:02}")
    hosts: list[float] = []
    bares: list[float] = []
    held: list[float] = []
    held_bare: list[float] = []
    host = approved_host(folder, "many")
    for _ in range(max(plan.loads // 10, 2)):
        begun = time.perf_counter()
        async with host:
            hosts.append((time.perf_counter() - begun) * 1000)
            assert len(host.tools) == MANY, host.problems
            held += _pids_hold(_pids(host))
        begun = time.perf_counter()
        children = [Bare(program) for _ in range(MANY)]
        for child in children:
            await child.__aenter__()
        bares.append((time.perf_counter() - begun) * 1000)
        held_bare += _pids_hold([child.pid for child in children])
        for child in children:
            await child.__aexit__()
    found = [
        Row(
            what=f"start, {MANY} Workbench plugins",
            against=f"{MANY} bare Nodes",
            measured=statistics.median(hosts),
            baseline=statistics.median(bares),
        )
    ]
    if held:
        found.append(
            Row(
                what="memory of each plugin, PSS",
                against="a bare Node",
                measured=statistics.median(held),
                baseline=statistics.median(held_bare),
                unit="MB",
            )
        )
    return found


def _pids(host: Host) -> list[int]:
    return [peer.session.pid for peer in host.peers.up if peer.session.pid is not None]


def _pids_hold(pids: list[int]) -> list[float]:
    """Give what processes hold, in MB, with shared pages counted by their share. Only Linux says so."""
    if not os.path.exists(memory.ROLLUP):
        return []
    held = []
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            held += [int(line.split()[1]) / 1024 for line in file if line.startswith(PSS)]
    return held


def _write(root: str, name: str, modules: int = 0) -> None:
    place = os.path.join(root, name)
    os.makedirs(place)
    for module in range(modules):
        folder = os.path.join(place, "node_modules", f"module-{module}", "lib")
        os.makedirs(folder)
        for number in range(FILES):
            with open(os.path.join(folder, f"{number}.js"), "w", encoding="utf-8") as code:
                code.write("module.exports = 1;\n")
    with open(os.path.join(place, "index.js"), "w", encoding="utf-8") as file:
        file.write(PLUGIN % name)
    with open(os.path.join(place, "package.json"), "w", encoding="utf-8") as file:
        file.write('{ "type": "commonjs" }\n')
