"""Jobs of a fleet: they wait for a worker, outlive the gateway that ordered them, and run at most once."""

import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

import command_line
import plugin_folders
from anyplug.call.consent import Attachment
from anyplug.fleet import credentials, job_orders
from anyplug.fleet.job_orders import Entry
from anyplug.fleet.messages import Offered
from anyplug.fleet.nats_link import Link
from anyplug.formats import registry
from anyplug.host.host import Host
from anyplug.model.types import Result
from fleets import WAIT_S, Fleet, run_of, until, worker_process

pytestmark = pytest.mark.anyio
# Notes each run, and waits as long as a file says so.
SLOW = plugin_folders.python("""
folder = given["folder"]
with open(os.path.join(folder, "runs"), "a") as file:
    file.write(given["text"] + "\\n")
while os.path.exists(os.path.join(folder, "hold")):
    time.sleep(0.02)
print("made " + given["text"])
""")
TOOL = "slow.act"


class Setting:
    """A plugin with an asynchronous tool, and the folder where it notes what it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.hold.touch()

    def write(self, root: Path) -> Path:
        parameters = {name: {"type": "string", "description": "x"} for name in ("text", "folder")}
        plugin_folders.stavrobot(root, "slow", SLOW, parameters=parameters, tool={"async": True})
        return root

    @property
    def hold(self) -> Path:
        return self.notes / "hold"

    @property
    def runs(self) -> list[str]:
        path = self.notes / "runs"
        return path.read_text().splitlines() if path.exists() else []

    async def approve(self, fleet: Fleet, workers: int = 1) -> None:
        await fleet.approve("slow", workers=workers, granted=(f"filesystem:write:{self.notes}",))

    async def begin(self, host: Host, text: str) -> str:
        """Order a job; return its id."""
        await until(lambda: host.snapshot.knows(TOOL) and host.snapshot.plugin("slow").plugin.workers)
        result = await host.call(TOOL, {"text": text, "folder": str(self.notes)}, wait=False)
        assert result.error is None, result
        return str(result.metadata["job"])


async def asked(host: Host, job: str, *, wait_s: float = 20, cancel: bool = False) -> Result:
    return await host.call(registry.JOB, {"id": job, "wait_s": wait_s, "cancel": cancel}, attachment=Attachment())


def code_of(result: Result) -> str:
    return result.error.code if result.error else str(result.metadata.get("state"))


async def shown_by_the_command_line(fleet: Fleet, name: str, job: str) -> Any:
    """Return what `jobs` shows of a job in the home of a gateway."""
    home, settings = Path(fleet.folder) / name, fleet.settings(name)
    joined = f'[fleet]\nnats = ["{settings.nats[0]}"]\ncredentials = "{settings.credentials}"\njoin = true\n'
    (home / "settings.toml").write_text(joined)
    return (await anyio.to_thread.run_sync(partial(command_line.ok, "--home", str(home), "jobs", job, "--json"))).json


async def test_a_job_outlives_its_gateway_and_any_gateway_gets_its_result(tmp_path: Path):
    slow = Setting(tmp_path)
    root = slow.write(tmp_path / "plugins")
    async with Fleet(tmp_path / "fleet", gateways=("g1", "g2")) as fleet:
        async with fleet.worker("w1", root) as worker:
            await slow.approve(fleet)
            async with fleet.gateway("g1") as host:
                job = await slow.begin(host, "one")
                await until(lambda: slow.runs == ["one"])
                assert code_of(await asked(host, job, wait_s=0)) == "running"
            async with fleet.gateway("g2") as other:
                await until(lambda: other.snapshot.knows(TOOL))
                assert code_of(await asked(other, job, wait_s=0)) == "running"
                slow.hold.unlink()
                result = await asked(other, job)
                assert (code_of(result), result.text.strip()) == ("done", "made one"), result
                assert code_of(await asked(other, "0123456789ab")) == "not_found"
            shown = await shown_by_the_command_line(fleet, "g2", job)
            assert (shown["state"], shown["result"]["text"].strip()) == ("done", "made one")
            await until(lambda: worker.calls.running == 0)
            assert worker.host.audit.calls(1)[0].record.attachment.endswith(" at g1")
        # The one that ordered it needs no worker for a short result, and lists the job as done then.
        async with fleet.gateway("g1") as host:
            result = await asked(host, job)
            assert (code_of(result), result.text.strip()) == ("done", "made one"), result
            assert [one.state for one in host.jobs() if one.id == job] == ["done"]
    assert slow.runs == ["one"]


async def test_a_job_waits_for_a_free_place_and_what_is_cancelled_before_never_runs(tmp_path: Path):
    slow = Setting(tmp_path)
    roots = {name: slow.write(tmp_path / name) for name in ("w1", "w2")}
    async with Fleet(tmp_path / "fleet", workers=tuple(roots)) as fleet, fleet.gateway() as host:  # noqa: SIM117
        async with fleet.worker("w1", roots["w1"], places=1):
            await slow.approve(fleet)
            jobs = [await slow.begin(host, text) for text in ("a", "b", "c", "d")]
            await until(lambda: len(slow.runs) == 1)
            first = slow.runs[0]
            waiting = {text: job for text, job in zip("abcd", jobs, strict=True) if text != first}
            (dropped, its_job), (kept, kept_job), (_, last_job) = waiting.items()
            host.cancel_job(its_job)
            await until(lambda: next(one.state for one in host.jobs() if one.id == its_job) == "cancelled")
            async with fleet.worker("w2", roots["w2"], places=1):  # a second one takes what the first cannot
                await until(lambda: len(slow.runs) == 2)
                slow.hold.unlink()
                assert code_of(await asked(host, kept_job)) == "done"
                assert code_of(await asked(host, last_job)) == "done"
                assert code_of(await asked(host, jobs["abcd".index(first)])) == "done"
            assert sorted(slow.runs) == sorted(set("abcd") - {dropped})
            assert kept in slow.runs

            slow.hold.touch()
            running = await slow.begin(host, "e")
            await until(lambda: "e" in slow.runs)
            await asked(host, running, wait_s=0, cancel=True)
            assert code_of(await asked(host, running)) == "cancelled"


async def test_a_job_of_a_killed_worker_is_lost_and_one_of_a_worker_that_is_ended_is_not(tmp_path: Path):
    slow = Setting(tmp_path)
    homes = {name: tmp_path / name for name in ("killed", "ended")}
    for home in homes.values():
        slow.write(home / "plugins")
    async with Fleet(tmp_path / "fleet", workers=tuple(homes), gateways=("g1", "g2")) as fleet:
        processes = {}
        try:
            async with fleet.gateway() as host, fleet.gateway("g2") as other:
                jobs = {}
                for number, (name, home) in enumerate(homes.items()):
                    processes[name] = worker_process(fleet, name, home)
                    await slow.approve(fleet)
                    jobs[name] = await slow.begin(host, name)
                    await until(lambda number=number: len(slow.runs) == number + 1)
                    if name == "killed":
                        processes[name].kill()
                        result = await asked(host, jobs[name])
                        assert code_of(result) == "lost", result
                await until(lambda: other.snapshot.knows(TOOL))
                processes["ended"].send_signal(signal.SIGTERM)
                slow.hold.unlink()
                assert code_of(await asked(host, jobs["ended"])) == "done"
                assert code_of(await asked(other, jobs["killed"])) == "lost"
                processes["ended"].wait()
                late = await asked(other, jobs["ended"])
                assert code_of(late) == "unavailable"
                assert "worker 'ended' has the result" in late.text
            assert slow.runs == ["killed", "ended"]
        finally:
            for process in processes.values():
                process.kill()
                process.wait()


async def test_an_order_that_is_repeated_forged_or_not_approved_runs_nothing(tmp_path: Path):
    slow = Setting(tmp_path)
    root = slow.write(tmp_path / "plugins")
    slow.hold.unlink()
    async with (
        Fleet(tmp_path / "fleet", workers=("w1", "w2")) as fleet,
        fleet.worker("w1", root) as worker,
        fleet.link("g1") as gateway,
        fleet.link("w2") as rogue,
    ):
        await slow.approve(fleet)
        [offered] = worker.offered.values()
        subject, until_then = gateway.subjects.job(offered.approval_key), time.time() + 60
        workers = [worker.trust._link.own.key]

        async def order(id: str, by: Link = gateway, **changes: Any) -> bytes:
            run = run_of(offered, slow.notes, id=id, arguments={"text": id, "folder": str(slow.notes)}, **changes)
            run = msgspec.structs.replace(run, granted=changes.get("granted", (f"filesystem:write:{slow.notes}",)))
            entry = Entry(id=id, state="queued", tool=TOOL, at=time.time(), certificate=b"", to=by.own.key)
            number = await job_orders.write(by, entry, after=0)
            data = job_orders.order(by.own, run, workers, until_then, number)
            await gateway.store(subject, data)
            return data

        async def state_of(id: str, *states: str) -> str:
            with anyio.fail_after(WAIT_S):
                while (read := await job_orders.read(gateway, id)) is None or read.entry.state not in states:
                    await anyio.sleep(0.05)
            return f"{read.entry.state} {read.entry.reason}".strip()

        first = await order("first")
        assert await state_of("first", "ended") == "ended"
        await gateway.store(subject, first)  # it is claimed, so it is not run again
        await order("forged", rogue)  # signed by a worker
        await order("denied", granted=("network",))
        assert await state_of("denied", "dropped") == "dropped not_approved"
        await order("last")
        assert await state_of("last", "ended") == "ended"
        assert await job_orders.read(gateway, "forged") is None
        assert slow.runs == ["first", "last"]


@pytest.mark.claim("fleet-worker-bounded")
async def test_a_job_that_ran_runs_at_no_other_worker_even_if_its_entry_and_its_order_are_put_back(tmp_path: Path):
    slow = Setting(tmp_path)
    root = slow.write(tmp_path / "plugins")
    slow.hold.unlink()
    async with Fleet(tmp_path / "fleet", workers=("w1", "w2", "w3")) as fleet, fleet.link("g1") as gateway:
        keys = [credentials.read(f"{fleet.members}/{name}.creds").key for name in ("w1", "w2")]

        async def order(id: str, offered: Offered) -> tuple[bytes, bytes]:
            run = run_of(offered, slow.notes, id=id, arguments={"text": id, "folder": str(slow.notes)})
            run = msgspec.structs.replace(run, granted=(f"filesystem:write:{slow.notes}",))
            entry = Entry(id=id, state="queued", tool=TOOL, at=time.time(), certificate=b"", to=gateway.own.key)
            number = await job_orders.write(gateway, entry, after=0)
            _, queued = await gateway.newest("ap_jobs", id)
            data = job_orders.order(gateway.own, run, keys, time.time() + 60, number)
            await gateway.store(gateway.subjects.job(offered.approval_key), data)
            with anyio.fail_after(WAIT_S):
                while (read := await job_orders.read(gateway, id)) is None or read.entry.state != "ended":
                    await anyio.sleep(0.05)
            return queued, data

        async with fleet.worker("w1", root) as first:
            await slow.approve(fleet)
            queued, data = await order("once", next(iter(first.offered.values())))
        async with fleet.worker("w2", root) as second, fleet.link("w3") as rogue:
            await until(second.queues)
            offered = next(iter(second.offered.values()))
            await rogue.put("ap_jobs", "once", queued)
            await gateway.store(gateway.subjects.job(offered.approval_key), data)
            await order("last", offered)
        assert slow.runs == ["once", "last"]
