"""Plugins with bad habits that stay up: hosts of some of them, calls of them, and whether the answer is as expected."""

import os
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio

from anyplug import Host
from anyplug.model.types import Result

PATIENCE_S = 30.0  # for what comes by itself, a moment later, on a machine that has much else to do

# The code of a call's answer (empty: it succeeded), what stands in its text, and what `problems` says of it.
Expected = tuple[str, str, str]


def hosts(folder: str, short: dict[str, str], host: Callable[..., Host], settings: Callable[[str], object]):
    """Make hosts of some habits, each with the settings that keep the test short."""

    def make(*names: str, **others: object) -> Host:
        settings("".join(f"[plugins.{name}]\n{text}\n" for name, text in short.items()))
        return host(*(os.path.join(folder, name) for name in names), **others)

    return make


async def calls(h: Host, tool: str, count: int = 1) -> list[Result]:
    """Call a tool so many times at once."""
    results = []

    async def call() -> None:
        results.append(await h.call(tool))

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(call)
    return results


async def together(habits: Iterable[str], call: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
    """Call all of them at once; give what each answered."""
    answers = {}

    async def one(habit: str) -> None:
        answers[habit] = await call(habit)

    async with anyio.create_task_group() as tasks:
        for habit in habits:
            tasks.start_soon(one, habit)
    return answers


async def appears(h: Host, tool: str) -> None:
    """Wait until a tool is there."""
    with anyio.move_on_after(PATIENCE_S):
        while all(tool != known.name for known in h.tools):
            await anyio.sleep(0.01)


def check(habit: str, expected: Expected, result: Result, h: Host) -> None:
    code, text, problem = expected
    assert (result.error.code if result.error else "") == code, result
    assert re.search(text, result.error.message if result.error else result.text, re.DOTALL), result
    said = "\n".join(f"{entry.name}: {one.message} ({one.hint})" for entry in h.plugins for one in entry.problems)
    assert re.search(f"{habit}: .*{problem}" if problem else "", said, re.DOTALL), said
