"""What a thread makes is undone if nobody waits for it any more."""

import asyncio
import threading

import pytest

import conditions
from anyplug.runtime import thread_lanes


@pytest.mark.parametrize("is_slow", [True, False])
@pytest.mark.anyio
async def test_what_a_cancelled_task_had_made_is_undone(is_slow):
    began, may_end, ended, undone = threading.Event(), threading.Event(), threading.Event(), []

    def work():
        began.set()
        may_end.wait(conditions.PATIENCE_S)
        ended.set()
        return "made"

    task = asyncio.create_task(thread_lanes.make(work, undone.append))
    await asyncio.to_thread(began.wait)
    if not is_slow:  # it is there, but the task cannot have heard of it
        may_end.set()
        ended.wait(conditions.PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    await conditions.until(lambda: undone == ["made"])


@pytest.mark.anyio
async def test_what_was_made_is_returned_and_kept():
    undone = []
    assert await thread_lanes.make(lambda: "made", undone.append) == "made"
    with pytest.raises(OSError, match="full"):
        await thread_lanes.make(lambda: (_ for _ in ()).throw(OSError("full")), undone.append)
    assert undone == []
