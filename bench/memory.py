"""The memory of a host that waits: `python -m bench.memory HOME ROOT` is such a host, and says what it holds."""

import os
import subprocess
import sys
from collections.abc import Iterable

import anyio

from anyplug import Host
from bench import plugins
from bench.measure import Plan, Row

SOME = 1_000
ROLLUP = "/proc/self/smaps_rollup"
KINDS = ("Rss:", "Pss:")  # what is in memory; the same with shared pages counted by their share
SETTLE_S = 0.5  # until the watcher is up


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure a host with a thousand plugins, against one with none."""
    none, some, home = (os.path.join(folder, name) for name in ("none", "some", "home"))
    os.makedirs(none)
    plugins.write_many(some, SOME)
    return compare(f"idle host, {SOME:,} plugins", full=(home, some), idle=(home, none))


def compare(what: str, *, full: tuple[str, str], idle: tuple[str, str]) -> list[Row]:
    """Compare two idle hosts, each given by its home and its root. Only Linux says what is shared."""
    if not os.path.exists(ROLLUP):
        return []
    held, nothing = _held(*full), _held(*idle)
    return [
        Row(
            what=f"{what}, {kind.rstrip(':').upper()}",
            against="with none",
            measured=held[kind] / 1024,
            baseline=nothing[kind] / 1024,
            unit="MB",
        )
        for kind in KINDS
    ]


def of(pids: Iterable[int]) -> float:
    """Give what processes hold together, in MB, with shared pages counted by their share; 0 where nobody says it."""
    held = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                held += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:
            continue  # it has ended
    return held / 1024


def _held(home: str, root: str) -> dict[str, int]:
    """Start an idle host in a process of its own; give what it holds, in KB."""
    said = subprocess.run(
        [sys.executable, "-m", "bench.memory", home, root],
        check=True,
        capture_output=True,
        text=True,
        cwd=os.path.dirname(os.path.dirname(__file__)),
    )
    return {kind: int(size) for kind, size, _ in map(str.split, said.stdout.splitlines())}


async def _idle(home: str, root: str) -> None:
    async with Host(roots=[root], home=home):
        await anyio.sleep(SETTLE_S)
        with open(ROLLUP, encoding="ascii") as file:
            print("".join(line for line in file if line.startswith(KINDS)), end="")


if __name__ == "__main__":
    anyio.run(_idle, sys.argv[1], sys.argv[2])
