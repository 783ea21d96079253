"""What running from a snapshot adds to a confined call, against a host that runs plugins where they lie."""

import json
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from anyplug import Host
from anyplug.launch.sandbox_rooms import Rooms
from bench import calls, plugins
from bench.measure import Act, Plan, Row, medians

AIM_LATER = 1.1  # the mounts are made once
AIM_BESIDE = 1.5  # an overlay for each start
FIRST = 5  # first calls of each kind
MODULES = 300  # files of a plugin that is not small
HOSTS = ("snapshot", "in place")
AGAINST = "the same call, from its own folder"
TOOL = "#!/bin/sh\ncat >/dev/null\nprintf ok\n"


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure first and later calls of a plugin that is shown read-only, and of one that writes beside its code."""
    what, program = calls.small_program(folder)
    root = os.path.join(folder, "plugins")
    large = plugins.write(root, "small", program)
    for number in range(MODULES):
        _write(os.path.join(large, "lib", f"part{number}.py"), "pass\n" * 100)
    _bundle(root)
    first = [await _first(folder, root, name) for name in HOSTS]
    async with AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(_hosting(folder, root, name)) for name in HOSTS]
        later = await medians(plan.calls, *(_calling(host, "small") for host in hosts))
        beside = await medians(plan.calls, *(_calling(host, "bundle.act") for host in hosts))
    return [
        _row(f"first call ever of {what} among {MODULES} files", first, None),
        _row(f"later call of {what} from a snapshot", later, AIM_LATER),
        _row("later call of a bundle, its code laid over its folder", beside, AIM_BESIDE),
    ]


async def _first(folder: str, root: str, name: str) -> float:
    """Measure the first call of a host in an empty home, which makes the snapshot."""
    taken = []
    for number in range(FIRST):
        async with _hosting(folder, root, name, f"-{number}") as host:
            begun = time.perf_counter()
            await _call(host, "small")
            taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


class _InPlace(Rooms):
    def _runs_from_snapshot(self, *_: object) -> bool:
        return False


@asynccontextmanager
async def _hosting(folder: str, root: str, name: str, suffix: str = "") -> AsyncIterator[Host]:
    home = os.path.join(folder, name.replace(" ", "-") + suffix)
    plugins.approve_all(home, [root], always=True)
    async with Host(roots=[root], home=home, watch=False) as host:
        if name != HOSTS[0]:
            host._provisions._confinement.__class__ = _InPlace  # noqa: SLF001 - no setting switches it off
        yield host


async def _call(host: Host, tool: str) -> None:
    result = await host.call(tool, calls.ARGUMENTS if tool == "small" else {})
    assert not result.is_error, result


def _calling(host: Host, tool: str) -> Act:
    return lambda: _call(host, tool)


def _bundle(root: str) -> None:
    _write(os.path.join(root, "bundle", "manifest.json"), json.dumps({"name": "bundle", "description": "Answers."}))
    about = {"name": "act", "description": "Answers.", "entrypoint": "run", "parameters": {}}
    _write(os.path.join(root, "bundle", "act", "manifest.json"), json.dumps(about))
    _write(os.path.join(root, "bundle", "act", "run"), TOOL)
    os.chmod(os.path.join(root, "bundle", "act", "run"), 0o755)


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _row(what: str, times: list[float], aim: float | None) -> Row:
    measured, baseline = times
    return Row(what=what, against=AGAINST, measured=measured, baseline=baseline, aim=aim)
