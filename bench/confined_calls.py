"""What confinement adds to a call through `Host.call`: two hosts in one process, one of which holds its plugins."""

import os
import sys
from contextlib import AsyncExitStack

from anyplug import Host
from bench import calls, plugins, sessions
from bench.measure import Act, Plan, Row, medians

AIM_C = 2.2
AIM_PYTHON = 1.05
AIM_SESSION = 1.1  # the same bytes through the same pipes
HOSTS = ("confined", "unconfined")
AGAINST = "the same call, unconfined"


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure a program that starts at once, one that takes its time, and one that stays."""
    python = os.path.realpath(sys.executable)
    before = os.environ["PATH"]
    os.environ["PATH"] = os.pathsep.join((os.path.dirname(python), before))  # else it is nobody's interpreter
    what, program = calls.small_program(folder)
    root = os.path.join(folder, "plugins")
    plugins.write(root, "small", program)
    plugins.write(root, "script", calls.PYTHON_SOURCE.format(python=python))
    sessions.write(root, "echo", sessions.ECHO, python)
    try:
        async with AsyncExitStack() as stack:
            hosts = [await stack.enter_async_context(_host(folder, root, name)) for name in HOSTS]
            rounds = max(plan.calls // sessions.BLOCK, 10)
            return [
                _row(f"confined call of {what}", await medians(plan.calls, *_each(hosts, "small")), AIM_C),
                _row(
                    "confined call of a Python script", await medians(plan.scripts, *_each(hosts, "script")), AIM_PYTHON
                ),
                _row("confined call of an extension", await _in_turns(rounds, hosts), AIM_SESSION),
            ]
    finally:
        os.environ["PATH"] = before


def _host(folder: str, root: str, name: str) -> Host:
    home = os.path.join(folder, name)
    plugins.start_cold(home, confinement="on" if name == "confined" else "off")
    plugins.approve_all(home, [root])
    return Host(roots=[root], home=home, watch=False)


def _each(hosts: list[Host], tool: str) -> list[Act]:
    def calling(host: Host) -> Act:
        async def call() -> None:
            result = await host.call(tool, calls.ARGUMENTS)
            assert not result.is_error, result

        return call

    return [calling(host) for host in hosts]


async def _in_turns(rounds: int, hosts: list[Host]) -> list[float]:
    """Measure one call of many: a single one is shorter than what disturbs it."""

    def block(host: Host) -> Act:
        call = sessions.call_of(host)
        return lambda: sessions.in_turn(call)

    return [taken / sessions.BLOCK for taken in await medians(rounds, *map(block, hosts))]


def _row(what: str, times: list[float], aim: float) -> Row:
    measured, baseline = times
    return Row(what=what, against=AGAINST, measured=measured, baseline=baseline, aim=aim)
