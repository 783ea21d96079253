"""MCP servers in a fleet: their progress reaches the caller, and read-only tools are called again after `lost`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import mcp_clients
from fleets import Fleet, until, worker_process

if TYPE_CHECKING:
    import subprocess

    from anyplug.model.types import Result

pytestmark = pytest.mark.anyio
STEPS = """
for call in calls():
    token = call["params"]["_meta"]["progressToken"]
    for done in (1, 2):
        send(method="notifications/progress", params={"progressToken": token, "progress": done, "total": 2,
             "message": f"step {done}"})
        while not os.path.exists(os.path.join(FOLDER, f"seen-{done}")):
            time.sleep(0.02)
    say(call)
"""
# Writes each run into a file named for its tool, and waits as long as there is a file `hold`.
NOTING = """
reads = {**TOOL, "name": "read", "annotations": {"readOnlyHint": True}}
sets = {**TOOL, "name": "set", "annotations": {"readOnlyHint": False, "idempotentHint": True}}
sends = {**TOOL, "name": "send", "annotations": {"readOnlyHint": "true", "idempotentHint": False}}
for call in calls(tools=[reads, sets, sends]):
    if os.fork():
        continue
    with open(os.path.join(FOLDER, call["params"]["name"]), "a") as file:
        file.write("run\\n")
    while os.path.exists(os.path.join(FOLDER, "hold")):
        time.sleep(0.02)
    say(call)
    os._exit(0)
"""


async def test_progress_of_a_workers_tool_reaches_the_caller_while_it_runs(tmp_path: Path):
    notes = tmp_path / "notes"
    notes.mkdir()
    mcp_clients.mcp_plugin(str(tmp_path / "plugins"), f"FOLDER = {str(notes)!r}\n{STEPS}")
    seen: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))
        (notes / f"seen-{done:.0f}").touch()  # the tool goes on only when its caller has heard of it

    async with Fleet(tmp_path / "fleet") as fleet, fleet.worker("w1", tmp_path / "plugins"), fleet.gateway() as host:
        await fleet.approve("kit", granted=(f"filesystem:write:{notes}",))
        await until(lambda: host.snapshot.knows("mcp.kit.act") and host.snapshot.plugin("kit").plugin.workers)
        with anyio.fail_after(30):
            result = await host.call("mcp.kit.act", progress=progress)
        assert (result.text, result.is_error) == ("done", False)
        assert seen == [(1, 2, "step 1"), (2, 2, "step 2")]


async def test_only_tools_that_are_read_only_or_idempotent_are_called_again_after_lost(tmp_path: Path):
    notes, homes = tmp_path / "notes", {name: tmp_path / name for name in ("w1", "w2")}
    notes.mkdir()
    (notes / "hold").touch()
    for home in homes.values():
        mcp_clients.mcp_plugin(str(home / "plugins"), f"FOLDER = {str(notes)!r}\n{NOTING}")
    processes: list[subprocess.Popen[bytes]] = []
    outcomes: dict[str, Result] = {}

    def ran() -> dict[str, int]:
        return {name: (notes / name).read_text().count("run") for name in os.listdir(notes) if name != "hold"}

    async with Fleet(tmp_path / "fleet", workers=tuple(homes)) as fleet, fleet.gateway() as host:

        def workers() -> tuple[str, ...]:
            return host.snapshot.plugin("kit").plugin.workers if host.snapshot.knows("mcp.kit.read") else ()

        async def call(tool: str) -> None:
            outcomes[tool] = await host.call(f"mcp.kit.{tool}")

        try:
            processes.append(worker_process(fleet, "w1", homes["w1"]))
            await fleet.approve("kit", granted=(f"filesystem:write:{notes}",))
            await until(lambda: workers() == ("w1",))
            async with anyio.create_task_group() as tasks:
                for tool in ("read", "set", "send"):
                    tasks.start_soon(call, tool)
                await until(lambda: ran() == {"read": 1, "set": 1, "send": 1})
                processes.append(worker_process(fleet, "w2", homes["w2"]))
                await until(lambda: workers() == ("w1", "w2"))
                processes[0].kill()
                await until(lambda: ran() == {"read": 2, "set": 2, "send": 1} and outcomes)
                (notes / "hold").unlink()
            assert {tool: result.error and result.error.code for tool, result in outcomes.items()} == {
                "send": "lost",
                "read": None,
                "set": None,
            }
            assert ran() == {"read": 2, "set": 2, "send": 1}
            records = {item.record.tool: item.record for item in host.audit.calls(3)}
            assert {tool: record.worker for tool, record in records.items()} == {
                "mcp.kit.read": "w2",
                "mcp.kit.set": "w2",
                "mcp.kit.send": "w1",
            }

            # Where no other worker is left, such a call is lost, too: it may have run.
            (notes / "hold").touch()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "read")
                await until(lambda: ran()["read"] == 3)
                processes[1].kill()
            last = outcomes["read"].error
            assert last is not None
            assert last.code == "lost"
        finally:
            for process in processes:
                process.kill()
                process.wait()
