"""Ten thousand plugins installed and a hundred in use, against a hundred installed.

`python -m bench.many_installed HOME ROOT` is such a host: it calls a hundred plugins, and says what that took.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import anyio

from anyplug import Host
from bench import plugins
from bench.measure import Plan, Row

IN_USE = 100
ROUNDS = 3
STARTS = 5
AIM_CALL = 1.1


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure both, in turns."""
    few, many, home = (os.path.join(folder, name) for name in ("few", "installed", "home"))
    plugins.write_many(few, IN_USE)
    plugins.write_many(many, plan.many)
    plugins.do_not_confine(home)
    plugins.approve_all(home, [few], always=True)
    for number in range(IN_USE):  # the same plugins: approvals belong to paths
        name = f"plugin-{number:05}"
        os.rename(os.path.join(many, name), os.path.join(folder, f"aside-{name}"))
        os.symlink(os.path.join(few, name), os.path.join(many, name))
    taken: dict[str, list[dict[str, float]]] = {few: [], many: []}
    for _ in range(STARTS):
        for root in (few, many):
            taken[root].append(_used(home, root))

    def median(root: str, key: str) -> float:
        return statistics.median(one[key] for one in taken[root][1:])  # the first fills the caches

    what, against = f"{plan.many:,} installed, {IN_USE} in use", f"{IN_USE} installed"
    added = (median(many, "start_ms") - median(few, "start_ms")) / (plan.many - IN_USE) * 1000
    return [
        Row(
            what=f"{what}: a call",
            against=against,
            measured=median(many, "call_ms"),
            baseline=median(few, "call_ms"),
            aim=AIM_CALL,
        ),
        Row(
            what=f"{what}: memory",
            against=against,
            measured=median(many, "rss_mb"),
            baseline=median(few, "rss_mb"),
            unit="MB",
        ),
        Row(
            what=f"{what}: start, for each more",
            against="one `stat`",
            measured=added,
            baseline=_stat_us(many),
            unit="µs",
        ),
    ]


def _stat_us(root: str) -> float:
    with os.scandir(root) as entries:
        paths = [os.path.join(entry.path, "plugin.json") for entry in entries]
    begun = time.perf_counter()
    for path in paths:
        os.stat(path)
    return (time.perf_counter() - begun) / len(paths) * 1e6


def _used(home: str, root: str) -> dict[str, float]:
    said = subprocess.run(
        [sys.executable, "-m", "bench.many_installed", home, root],
        check=True,
        capture_output=True,
        text=True,
        cwd=os.path.dirname(os.path.dirname(__file__)),
    )
    taken: dict[str, float] = json.loads(said.stdout)
    return taken


async def _use(home: str, root: str) -> None:
    begun = time.perf_counter()
    async with Host(roots=[root], home=home) as host:
        started = time.perf_counter() - begun
        times = []
        for _ in range(ROUNDS):
            for number in range(IN_USE):
                before = time.perf_counter()
                result = await host.call(f"plugin_{number:05}", {})
                assert result.error is None, result
                times.append(time.perf_counter() - before)
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        rss = pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
        print(
            json.dumps({"start_ms": started * 1000, "call_ms": statistics.median(times[IN_USE:]) * 1000, "rss_mb": rss})
        )


if __name__ == "__main__":
    anyio.run(_use, sys.argv[1], sys.argv[2])
