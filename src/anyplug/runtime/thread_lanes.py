"""Threads for work that a plugin can make long, such as hashing or removing its files.

Each owner has its own lane, so that only the owner waits for its long work.
"""

import asyncio
import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WIDTH = 2  # concurrent pieces of work per owner

_lanes: RunVar[dict[str, anyio.CapacityLimiter]] = RunVar("lanes")  # for each event loop


async def make(work: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Make something in a thread; undo it if the task that waits for it is cancelled. Raises what `work` does.

    anyio's shield stops its own cancellation only, and not that of asyncio.
    """
    made: list[T] = []
    is_wanted = True

    def work_and_hand_over() -> None:
        made.append(work())
        if not is_wanted:
            drop()

    def drop() -> None:
        try:
            undo(made.pop())
        except IndexError:
            pass  # the other thread was first

    try:
        await anyio.to_thread.run_sync(work_and_hand_over)
    except BaseException:
        is_wanted = False
        if made:
            await asyncio.get_running_loop().run_in_executor(None, drop)
        raise
    return made.pop()


async def imported(module: str) -> Any:
    """Import a module that takes long, in a thread that delays neither a cancellation nor the end of the program."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(found: Any, error: Exception | None) -> None:
        if done.done():  # the waiting task was cancelled
            return
        if error is None:
            done.set_result(found)
        else:
            done.set_exception(error)

    def work() -> None:
        found, failure = None, None
        try:
            found = importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
        with suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(settle, found, failure)

    threading.Thread(target=work, name=f"import {module}", daemon=True).start()
    return await done


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
