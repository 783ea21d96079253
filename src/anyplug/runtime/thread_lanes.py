"""Threads for work that a plugin can make long, such as hashing or removing its files.

Each owner has its own lane, so that only the owner waits for its long work.
"""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WIDTH = 2  # concurrent pieces of work per owner

_lanes: RunVar[dict[str, anyio.CapacityLimiter]] = RunVar("lanes")  # for each event loop


async def run(owner: str, work: Callable[[*Ts], T], *given: *Ts) -> T:
    """Run something in a thread of an owner's lane; returns and raises what it does."""
    lanes = _lanes.get({})
    _lanes.set(lanes)
    lane = lanes.get(owner)
    if lane is None:
        lane = lanes[owner] = anyio.CapacityLimiter(WIDTH)
    try:
        return await anyio.to_thread.run_sync(work, *given, limiter=lane)
    finally:
        if not lane.borrowed_tokens and not lane.statistics().tasks_waiting:
            lanes.pop(owner, None)
