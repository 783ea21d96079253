"""Nothing keeps the event loop from others for 100 ms: not a locked database, not large arguments or results."""

import asyncio
import os
import sqlite3
import time
from contextlib import closing

import anyio
import anyio.lowlevel
import pytest

import plugin_folders
from anyplug.runtime import loop_watchdog

pytestmark = pytest.mark.anyio
LARGE = plugin_folders.python('print(json.dumps({"result": "x" * 900_000}))')


async def test_it_names_what_blocks_and_forgives_what_waits():
    stalls = []

    def blocks():
        time.sleep(0.15)

    with loop_watchdog.watching(stalls.append):
        await anyio.sleep(0.2)
        asyncio.get_running_loop().call_soon(blocks)
        await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.01)
    (stall,) = stalls
    assert stall.name.endswith("blocks")
    assert "time.sleep(0.15)" in stall.stack


@pytest.mark.claim("no-stall")
async def test_a_database_that_another_process_locks_holds_up_nobody(host, cyclop, stavrobot, zot, home):
    job = stavrobot("job", "#!/bin/sh\ncat >/dev/null\necho '{}'\n", tool={"async": True})
    stalls = []
    async with host(cyclop("hello"), cyclop("large", LARGE), zot(), job) as up:
        assert (await up.call("hello")).text == "done"
        await up.call("echo")
        with loop_watchdog.watching(stalls.append), closing(sqlite3.connect(home / "anyplug.db")) as other:
            other.execute("BEGIN EXCLUSIVE")
            for _ in range(5):
                for tool in ("hello", "large", "echo"):
                    result = await up.call(tool, {"text": "y" * 1_000_000})
                    assert result.error is None, result
                await anyio.sleep(0.1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(up.call, "job.act", {"text": "a"})
                await anyio.sleep(0.2)
                other.execute("ROLLBACK")
            assert (await up.call("hello")).text == "done"
        up.audit.commit()
        outcomes = [row.record.outcome for row in up.audit.calls()]
        assert up.jobs()[0].state == "done"
    assert outcomes.count("done") == len(outcomes) >= 19
    assert [(stall.name, stall.stack) for stall in stalls] == []
    assert os.listdir(home / "journal") == []
