"""A fleet on a real NATS server: what a call goes through, from approval to record, and how it fails."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

import command_line
import plugin_folders
import processes
from anyplug.audit.audit_log import Audit, link_of
from anyplug.catalog.catalog import Catalog
from anyplug.fleet import credentials, fleet_policies, sealing, trail
from anyplug.fleet.bundles import Pulls
from anyplug.fleet.credentials import new_admin
from anyplug.fleet.messages import (
    Announcement,
    Cancel,
    Done,
    Probe,
    Refused,
    States,
    ToGateway,
    attempt_id,
)
from anyplug.fleet.sealing import Opening, Session
from anyplug.frontends.console import metrics
from anyplug.home.settings import Home, PluginSettings
from anyplug.host.host import Host
from anyplug.model.types import File, Result
from fleets import Fleet, run_of, until, worker_process
from policy_projects import decision, policy

pytestmark = pytest.mark.anyio
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
# Writes each run into a file, and waits as long as that says so.
NOTES = plugin_folders.python("""
given = given["input"]
folder = given["folder"]
with open(os.path.join(folder, "runs"), "a") as file:
    file.write(given["text"] + "\\n")
while os.path.exists(os.path.join(folder, "hold")):
    time.sleep(0.02)
print(json.dumps({"result": "noted " + given["text"]}))
""")


def note_plugin(root: Path, folder: Path, name: str = "note") -> str:
    """Write a plugin that notes its calls in a folder."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "folder": {"type": "string"}}}
    tool = {"name": name, "description": "Notes it.", "input_schema": schema}
    asked = [f"filesystem:write:{folder}"]
    return plugin_folders.cyclop(root, name, NOTES, tools=[tool], permissions=asked)


def runs(folder: Path) -> list[str]:
    path = folder / "runs"
    return path.read_text().splitlines() if path.exists() else []


def code_of(result: Result) -> str:
    return result.error.code if result.error else "done"


async def test_a_call_of_a_workers_tool_is_approved_once_run_in_its_sandbox_and_recorded_on_both_sides(tmp_path: Path):
    root, notes = tmp_path / "plugins", tmp_path / "notes"
    notes.mkdir()
    note_plugin(root, notes)
    given = {"text": "one", "folder": str(notes)}
    async with Fleet(tmp_path / "fleet") as fleet, fleet.worker("w1", root) as worker, fleet.gateway() as host:
        await until(lambda: host.snapshot.knows("note"))
        refused = await host.call("note", given)
        assert code_of(refused) == "not_approved"
        assert refused.error is not None
        assert "fleet approve note" in refused.error.hint  # with this home
        await fleet.approve("note")
        await until(lambda: host.snapshot.plugin("note").plugin.workers == ("w1",))
        result = await host.call("note", given)
        assert (code_of(result), result.text, runs(notes)) == ("done", "noted one", ["one"])

        assert host.fleet is not None
        [shown] = host.fleet.view().workers
        assert (shown.name, shown.state, shown.plugins, shown.lag) == ("w1", "up", ["note"], 0)
        assert 'anyplug_fleet_places{worker="w1",state="up"} 4' in metrics._of_fleet(host.fleet.view())

        here = host.audit.calls(1)[0].record
        there = worker.host.audit.find(here.there)
        assert there is not None
        assert (here.worker, here.digest) == ("w1", there.record.digest)
        assert here.held_by == there.record.held_by is not None
        assert there.record.attachment.endswith(" at g1")
        assert host.audit.verify()[1] == worker.host.audit.verify()[1] == []

        await fleet.revoke("note")
        await until(lambda: host.snapshot.plugin("note").state == "new")
        assert code_of(await host.call("note", {**given, "text": "two"})) == "not_approved"
        await until(lambda: worker.host.snapshot.plugin("note").state == "new")
        assert runs(notes) == ["one"]


async def test_local_tools_win_and_what_is_not_offered_is_unavailable_with_the_reason(tmp_path: Path):
    for name in ("here", "there"):
        plugin_folders.cyclop(
            tmp_path / name, "hello", plugin_folders.python(f'print(json.dumps({{"result": "{name}"}}))')
        )
    plugin_folders.cyclop(tmp_path / "there", "other")
    async with Fleet(tmp_path / "fleet") as fleet:
        async with fleet.worker("w1", tmp_path / "there"), fleet.gateway(roots=[tmp_path / "here"]) as host:
            await fleet.approve("hello", "other")
            await until(lambda: len(host.plugins) == 3)
            await host.approve(host.plugins[0].plugin)
            assert (await host.call("hello")).text == "here"
            assert [entry.state for entry in host.plugins] == ["approved", "shadowed", "approved"]
            await until(lambda: host.snapshot.plugin("other").plugin.workers)
            assert (await host.call("other")).text == "done"
            gateway = host
            entered = await gateway.call("nothing")
            assert code_of(entered) == "not_found"
        async with fleet.gateway(roots=[]) as host:
            assert not host.snapshot.knows("other")  # it left in order


async def test_progress_cancellation_full_and_draining_workers(tmp_path: Path):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "hold").touch()
    for name in ("w1", "w2"):
        note_plugin(tmp_path / name, notes)
    given = {"folder": str(notes)}
    outcomes: dict[str, Result] = {}
    async with Fleet(tmp_path / "fleet", workers=("w1", "w2"), gateways=("g1", "g2")) as fleet:
        first, second = fleet.worker("w1", tmp_path / "w1", places=1), fleet.worker("w2", tmp_path / "w2", places=1)
        async with first as one, second as two, fleet.gateway() as host, fleet.gateway("g2") as other:
            await fleet.approve("note", workers=2)
            await until(lambda: len(host.snapshot.plugin("note").plugin.workers) == 2)
            await until(lambda: len(other.snapshot.plugin("note").plugin.workers) == 2)
            async with anyio.create_task_group() as tasks, anyio.create_task_group() as cancelled:

                async def call(gateway: Host, text: str) -> None:
                    outcomes[text] = await gateway.call("note", {**given, "text": text})

                tasks.start_soon(call, host, "a")
                await until(lambda: runs(notes) == ["a"])
                # Both gateways prefer an idle worker; where one is full, the other is tried.
                tasks.start_soon(call, other, "b")
                await until(lambda: len(runs(notes)) == 2)
                full = await host.call("note", {**given, "text": "c"})
                assert code_of(full) == "overloaded"
                assert full.metadata["retry_after_ms"] > 0
                assert sorted(runs(notes)) == ["a", "b"]
                (notes / "hold").unlink()
            assert {code_of(result) for result in outcomes.values()} == {"done"}
            assert {one.calls.running, two.calls.running} == {0}

            (notes / "hold").touch()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, host, "d")
                await until(lambda: "d" in runs(notes))
                tasks.cancel_scope.cancel()
            await until(lambda: one.calls.running == two.calls.running == 0)  # the plugin was ended there
            assert host.audit.calls(1)[0].record.outcome == "cancelled"
            (notes / "hold").unlink()
            assert cancelled


async def test_a_killed_or_hung_worker_loses_its_calls_and_one_that_is_ended_finishes_them(tmp_path: Path):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "hold").touch()
    homes = {name: tmp_path / name for name in ("killed", "hung", "ended")}
    for home in homes.values():
        note_plugin(home / "plugins", notes)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    outcomes: list[Result] = []
    async with Fleet(tmp_path / "fleet", workers=tuple(homes)) as fleet, fleet.gateway() as host:
        try:
            for name, home in homes.items():
                processes[name] = worker_process(fleet, name, home)
            await fleet.approve("note", workers=3)
            await until(lambda: len(host.snapshot.plugin("note").plugin.workers) == 3)
            async with anyio.create_task_group() as tasks:

                async def call(text: str) -> None:
                    outcomes.append(await host.call("note", {"text": text, "folder": str(notes)}))

                for text in "abc":
                    tasks.start_soon(call, text)
                await until(lambda: len(runs(notes)) == 3)
                processes["killed"].kill()
                processes["hung"].send_signal(signal.SIGSTOP)
                await until(lambda: len(outcomes) == 2)
                assert [code_of(result) for result in outcomes] == ["lost", "lost"]
                assert sorted(outcomes[n].text.split("'")[1] for n in (0, 1)) == ["hung", "killed"]
                processes["ended"].terminate()
                assert host.fleet is not None
                await until(lambda: any(seen.said.is_draining for seen in host.fleet.workers))  # type: ignore[union-attr]
                refused = await host.call("note", {"text": "d", "folder": str(notes)})
                assert code_of(refused) == "unavailable"
                assert "drained" in refused.text
                (notes / "hold").unlink()
            assert [code_of(result) for result in outcomes] == ["lost", "lost", "done"]
            assert sorted(runs(notes)) == ["a", "b", "c"]  # nothing ran twice
            await until(lambda: processes["ended"].poll() == 0)
        finally:
            for process in processes.values():
                process.kill()
                process.wait()


async def test_long_arguments_and_results_and_files_both_ways(tmp_path: Path):
    root, name = tmp_path / "plugins", f"fleet-files-{os.getpid()}"
    repeat = plugin_folders.python("""
text = given["input"]["text"]
print(json.dumps({"result": text * 2}))
""")
    plugin_folders.cyclop(root, "repeat", repeat, tools=[{"name": "repeat", "description": "x", "input_schema": TEXT}])
    reverse = plugin_folders.python(f"""
data = open(os.path.join("/tmp/{name}", given["file"]), "rb").read()
open("/tmp/{name}/reversed.bin", "wb").write(data[::-1])
print(len(data))
""")
    plugin_folders.stavrobot(root, name, reverse, parameters={"file": {"type": "file", "description": "x"}})
    long, data = "0123456789" * 40_000, os.urandom(3 << 20)
    project = tmp_path / "work" / "given.bin"
    project.write_bytes(data)
    async with (
        Fleet(tmp_path / "fleet") as fleet,
        fleet.worker("w1", root, places=8) as worker,
        fleet.gateway() as host,
    ):
        worker.host.catalog.settings = msgspec.structs.replace(  # its output may be long
            worker.host.catalog.settings, plugins={"repeat": PluginSettings(max_output_bytes=64 << 20)}
        )
        await fleet.approve("repeat", name)
        await until(lambda: all(entry.plugin.workers for entry in host.plugins))
        async with anyio.create_task_group() as tasks:  # short calls go on meanwhile

            async def check(text: str) -> None:
                result = await host.call("repeat", {"text": text})
                assert (code_of(result), len(result.text)) == ("done", 2 * len(text)), result.text[:200]
                assert result.text == text * 2

            for text in (long, "a", long, "b", long * 10):
                tasks.start_soon(check, text)
        too_long = await host.call("repeat", {"text": long * 150})
        assert code_of(too_long) == "too_large", too_long.text[:300]
        result = await host.call(f"{name}.act", {"file": str(project)})
        assert code_of(result) == "done", result
        [block] = [block for block in result.content if isinstance(block, File)]
        assert block.path.startswith(f"{host.catalog.home.path}/files/")
        with open(block.path, "rb") as file:
            assert file.read() == data[::-1]


@pytest.mark.claim("host-follows-no-swap")
async def test_workers_fetch_what_the_admin_published_and_only_if_it_is_what_was_approved(tmp_path: Path):
    mine, notes, told = tmp_path / "mine", tmp_path / "notes", []
    notes.mkdir()
    for name in ("note", "other"):
        plugin_folders.write(os.path.join(note_plugin(mine, notes, name), "data.txt"), os.urandom(1 << 20))
    catalog = Catalog(Home(str(tmp_path / "admin")), roots=[str(mine)])
    plugins = {entry.name: entry.plugin for entry in catalog.load().entries}
    digests = {name: catalog.digest(plugin).value for name, plugin in plugins.items()}
    catalog.close()
    async with (
        Fleet(tmp_path / "fleet") as fleet,
        fleet.seat() as seat,
        fleet.worker("w1", tmp_path / "none", pulls=True, tell=told.append) as worker,
        fleet.gateway() as host,
    ):
        await seat.publish(plugins["note"], digests["note"], plugins["note"].permissions, always=True)
        await until(lambda: host.snapshot.knows("note") and host.snapshot.plugin("note").plugin.workers)
        assert (await host.call("note", {"text": "x", "folder": str(notes)})).text == "noted x"
        there = os.path.join(worker.host.catalog.home.plugins, "note", "data.txt")
        assert Path(there).read_bytes() == Path(mine, "note", "data.txt").read_bytes()

        # A link that the plugin made of its configuration is kept as one: the worker reads nothing through it.
        (tmp_path / "secret").write_text("secret")
        config = Path(worker.host.catalog.home.plugins, "note", "config.json")
        config.symlink_to(tmp_path / "secret")
        pulls = Pulls(seat.link, worker.host.catalog, told.append)
        approval = next(one for one in worker.trust.approvals.values() if one.name == "note")
        assert await pulls.pull(approval), told
        assert config.is_symlink()

        # One that is not stored holds up no other.
        assert not await pulls.pull(msgspec.structs.replace(approval, bundle="0" * 64))
        assert any("'note' could not be fetched" in text for text in told)

        # An approval whose files are others is not installed, whatever else is right.
        wrong = msgspec.structs.replace(plugins["other"], path=plugins["note"].path)
        await seat.publish(wrong, digests["other"], (), always=True)
        await until(
            lambda: any("'other' was not installed: it is not what the admin approved" in text for text in told)
        )
        assert os.listdir(worker.host.catalog.home.plugins) == ["note"]


async def test_members_apply_the_admins_policies_and_records_say_which_version_decided(tmp_path: Path):
    folder = tmp_path / "policies"
    body = decision("deny", "not in this fleet", when='input.tool_input.text == "forbidden"', rule="F1")
    plugin_folders.write(str(folder / "p.rego"), policy("anyplug.fleet_rules", body))
    root, notes = tmp_path / "plugins", tmp_path / "notes"
    notes.mkdir()
    note_plugin(root, notes)
    async with Fleet(tmp_path / "fleet") as fleet, fleet.worker("w1", root) as worker, fleet.gateway() as host:
        await fleet.approve("note")
        await until(lambda: host.snapshot.plugin("note").plugin.workers)
        published = fleet_policies.read(str(folder))
        async with fleet.seat() as seat:
            await seat.publish_policies(published)
        assert host.fleet is not None
        await until(lambda: host.fleet.policy_version == worker.host.policy_version == published.version)  # type: ignore[union-attr]
        await until(lambda: host._gates._policies.is_on(os.getcwd()))
        denied = await host.call("note", {"text": "forbidden", "folder": str(notes)})
        assert (code_of(denied), denied.text) == ("denied", "not in this fleet")
        assert code_of(await host.call("note", {"text": "x", "folder": str(notes)})) == "done"
        assert [item.record.policies for item in host.audit.calls(2)] == [published.version] * 2
        assert worker.host.audit.calls(1)[0].record.policies == published.version
    assert runs(notes) == ["x"]


async def test_policies_that_the_admin_signed_before_the_ones_that_a_member_has_do_not_come_back(tmp_path: Path):
    rules = {}
    for name in ("first", "second"):
        body = decision("deny", name, when='input.tool_input.text == "x"', rule="F1")
        plugin_folders.write(str(tmp_path / name / "p.rego"), policy("anyplug.fleet_rules", body))
        rules[name] = fleet_policies.read(str(tmp_path / name))
    second, told = rules["second"].version, []
    async with Fleet(tmp_path / "fleet") as fleet, fleet.link("admin") as link:

        async def applied(*, when: str) -> None:
            async with (
                fleet.worker("w1", tmp_path, tell=told.append) as worker,
                fleet.gateway(tell=told.append) as host,
            ):
                assert host.fleet is not None
                await until(lambda: host.fleet.policy_version == worker.host.policy_version == rules[when].version)  # type: ignore[union-attr]
                for name in ("g1", "w1"):
                    text = (Path(fleet.folder) / name / "policy/fleet/p.rego").read_text()
                    assert f'"{when}"' in text

        async with fleet.seat() as seat:
            await seat.publish_policies(rules["first"])
            old = await link.latest("ap_trust", "policy.current")
            await applied(when="first")
            await seat.publish_policies(rules["second"])
            await applied(when="second")
            assert told == []
            await link.put("ap_trust", "policy.current", old)  # as NATS could, or a backup of its store
            await applied(when="second")
            assert len(told) == 2
            assert all(f"older than version {second}" in text and "fleet policy DIR" in text for text in told)
            await seat.publish_policies(rules["first"])  # what the admin goes back to is newer
            await applied(when="first")
            assert len(told) == 2


async def test_one_trail_of_all_hosts_names_what_is_missing_or_changed(tmp_path: Path):
    root, notes = tmp_path / "plugins", tmp_path / "notes"
    notes.mkdir()
    note_plugin(root, notes)
    async with Fleet(tmp_path / "fleet") as fleet:
        async with fleet.worker("w1", root), fleet.gateway() as host:
            await fleet.approve("note")
            await until(lambda: host.snapshot.plugin("note").plugin.workers)
            for text in "abc":
                assert code_of(await host.call("note", {"text": text, "folder": str(notes)})) == "done"
        async with fleet.link("o1") as observer:
            whole = await trail.read(observer)
            assert whole.faults == []
            assert {name: count for name, count in whole.hosts.items() if count >= 3} == whole.hosts
            assert {found.record.worker for found in whole.records if found.host == "g1"} == {"w1"}

        settings = fleet.settings("o1")
        fleet_options = f"[fleet]\nnats = {list(settings.nats)!r}\ncredentials = '{settings.credentials}'\n"
        (tmp_path / "home" / "settings.toml").write_text(fleet_options)
        verified = await anyio.to_thread.run_sync(lambda: command_line.ok("audit", "--fleet", "--verify"))
        assert "all chains are intact" in verified.out

        # A worker that changes what it sent, leaves records out, or sends those of another is found.
        async with fleet.link("w1") as link, fleet.link("o1") as observer:
            store = Catalog(Home(os.path.join(fleet.folder, "w1")), roots=[])
            rows = Audit(store.store).chained(0, 100)
            store.close()
            number, raw, previous, _ = rows[-1]
            changed = raw.replace(b'"done"', b'"lost"')
            last = link_of(previous, changed)
            later = (number + 2, raw, last, link_of(last, raw))
            for batch in ([(number, changed, previous, last)], [later]):
                data = link.own.sign(msgspec.msgpack.encode(trail.Batch(link.own.certificate, tuple(batch))))
                await link.store(link.subjects.audit(link.own.key), data)
            foreign = credentials.read(f"{fleet.members}/g1.creds")
            await link.store(link.subjects.audit(link.own.key), foreign.sign(b"x"))
            whole = await trail.read(observer)
            assert any(f"'w1': record {number} was changed after it was sent" in fault for fault in whole.faults)
            assert any(f"'w1': record {number + 1} missing" in fault for fault in whole.faults)
            assert any("not signed by the member" in fault for fault in whole.faults)


class Stranger:
    """Speaks to a worker without a gateway's code, to say what a gateway would not."""

    def __init__(self, link: Any, worker: str) -> None:
        self.link, self.worker = link, worker
        self.own = link.own
        self.session: Session | None = None
        self.heard: list[bytes] = []

    async def open(self, own: Any = None) -> bytes:
        opening = Opening(own or self.own, self.worker)
        answer = await self.ask(opening.message)
        if answer[:1] == sealing.WELCOME:
            self.session = opening.finish(answer)
        return answer

    async def ask(self, data: bytes, patience_s: float = 20) -> bytes:
        answers: list[bytes] = []

        async def heard(message: Any) -> None:
            answers.append(message.data)

        subject = f"{self.link.subjects.answers(self.own.key, self.worker)}.test{os.urandom(4).hex()}"
        subscription = await self.link.listen(subject, heard)
        await self.link.send(self.link.subjects.run(self.worker), [data], subject)
        with anyio.move_on_after(patience_s):
            while not answers:
                await anyio.sleep(0.01)
        await subscription.unsubscribe()
        return answers[0] if answers else b""

    async def say(self, message: Any) -> Any:
        assert self.session is not None
        answer = await self.ask(self.session.seal(message)[0])
        opened = self.session.open(answer, is_ordered=False) if answer else b""
        return msgspec.msgpack.decode(opened, type=ToGateway) if opened else None


async def test_a_worker_runs_nothing_that_is_not_sealed_by_a_gateway_and_approved_by_the_admin(tmp_path: Path):
    root, notes = tmp_path / "plugins", tmp_path / "notes"
    notes.mkdir()
    note_plugin(root, notes)
    note_plugin(root, notes, "other")
    async with Fleet(tmp_path / "fleet") as fleet, fleet.worker("w1", root) as worker, fleet.link("g1") as link:
        await fleet.approve("note")
        offered = {one.name: one for one in worker.offered.values()}
        stranger = Stranger(link, worker.trust._link.own.key)

        # A certificate of another fleet, and one for another role, open no session.
        foreign = new_admin().admit("gateway", "g1")
        assert (await stranger.open(foreign))[:1] == sealing.NO_SESSION
        async with fleet.link("o1") as observer:
            assert (await stranger.open(observer.own))[:1] == sealing.NO_SESSION
        assert (await stranger.ask(sealing.SEALED + bytes(60)))[:1] == sealing.NO_SESSION
        assert (await stranger.open())[:1] == sealing.WELCOME
        assert stranger.session is not None

        note = offered["note"]
        refused = {
            "not_approved": [
                run_of(offered["other"], notes),
                run_of(note, notes, granted=("network",)),
                run_of(note, notes, digest="0" * 64),
                run_of(note, notes, plugin="other"),
            ],
            "late": [run_of(note, notes, id=attempt_id(time.time() - 1)), run_of(note, notes, id="x")],
            "gone": [run_of(note, notes, tool="nothing")],
        }
        for reason, ways in refused.items():
            for run in ways:
                said = await stranger.say(run)
                assert isinstance(said, Refused), run
                assert said.reason == reason
        assert runs(notes) == []

        # One id runs once, whether it is said again or repeated as it was; what was asked about first never runs.
        run = run_of(note, notes)
        [sealed] = stranger.session.seal(run)
        assert await stranger.ask(sealed)
        assert await stranger.ask(sealed, 0.5) == b""
        said = await stranger.say(run)
        assert isinstance(said, Refused)
        assert said.reason == "known"
        fenced = run_of(note, notes)
        states = await stranger.say(Probe((fenced.id, attempt_id(time.time() - 1000))))
        assert isinstance(states, States)
        assert list(states.states.values()) == ["fenced", "forgotten"]
        said = await stranger.say(fenced)
        assert isinstance(said, Refused)
        answered: Any = None
        while not isinstance(answered, Done):  # it is sent again, once it cannot be on its way any more
            answered = await stranger.say(Probe((run.id,)))
        assert answered.result.text == "noted x"
        assert runs(notes) == ["x"]


async def test_a_worker_hears_cancellations_at_once_and_answers_while_another_gateway_gets_a_long_result(
    tmp_path: Path,
):
    root, notes = tmp_path / "plugins", tmp_path / "notes"
    notes.mkdir()
    (notes / "hold").touch()
    note_plugin(root, notes)
    async with (
        Fleet(tmp_path / "fleet", gateways=("g1", "g2")) as fleet,
        fleet.worker("w1", root) as worker,
        fleet.link("g1") as first,
        fleet.link("g2") as second,
    ):
        await fleet.approve("note")
        one, other = (Stranger(link, worker.trust._link.own.key) for link in (first, second))
        await one.open()
        await other.open()
        assert one.session is not None
        [offered] = worker.offered.values()
        run = run_of(offered, notes)
        for message in (run, Cancel(run.id)):  # both are there before the call begins
            await first.send(first.subjects.run(one.worker), one.session.seal(message), f"{run.id}.none")
        await until(lambda: run.id in worker.calls._known)
        await until(lambda: worker.calls.running == 0)
        assert runs(notes) == []

        async with worker.calls._sessions[one.session.name].turn, anyio.create_task_group() as tasks:
            tasks.start_soon(one.say, Probe((run.id,)))
            await anyio.lowlevel.checkpoint()
            asked = attempt_id(time.time())
            said = await other.say(Probe((asked,)))
            assert isinstance(said, States)
            assert said.states == {asked: "fenced"}
            tasks.cancel_scope.cancel()


async def test_calls_that_begin_at_once_ask_a_silent_worker_once_and_prefer_others_then(tmp_path: Path):
    root, notes = tmp_path / "plugins", tmp_path / "notes"
    notes.mkdir()
    note_plugin(root, notes)
    hellos: list[str] = []

    async def heard(message: Any) -> None:
        hellos.append(message.reply)

    async with (
        Fleet(tmp_path / "fleet", workers=("w1", "hung")) as fleet,
        fleet.worker("w1", root) as worker,
        fleet.link("hung") as link,
        fleet.gateway() as host,
    ):
        await fleet.approve("note")
        await until(lambda: host.snapshot.plugin("note").plugin.workers == ("w1",))
        await link.listen(link.subjects.run(link.own.key), heard)  # it is there, and says nothing
        worker.calls.is_draining = worker._is_draining = True
        [name] = worker.offered
        said = Announcement(
            name="hung", key=link.own.key, epoch="e", certificate=link.own.certificate, labels={}, places=100,
            running=0, is_draining=False, offers=(name,), version="1", started=0.0, trust=0,
        )  # fmt: skip
        await link.send(link.subjects.here(link.own.key), [link.own.sign(msgspec.msgpack.encode(said))])
        await until(lambda: host.fleet and {seen.said.is_draining for seen in host.fleet.workers} == {True, False})
        outcomes: list[Result] = []
        given = {"text": "a", "folder": str(notes)}
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                outcomes.append(await host.call("note", given))

            for _ in range(10):
                tasks.start_soon(call)
        assert {code_of(result) for result in outcomes} == {"unavailable"}
        assert "worker 'hung': it does not answer" in outcomes[0].text
        assert len(hellos) == 1

        worker.calls.is_draining = worker._is_draining = False
        assert host.fleet is not None
        await until(lambda: not any(seen.said.is_draining for seen in host.fleet.workers))  # type: ignore[union-attr]
        assert code_of(await host.call("note", given)) == "done"
        assert len(hellos) == 1


def test_nothing_of_the_demo_outlives_it_when_it_is_killed(home: Path):
    demo = subprocess.Popen(
        [sys.executable, "-m", "anyplug", "--home", str(home), "fleet", "demo", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def started() -> dict[int, str]:
        here = str(home).encode()
        return processes.processes(lambda pid: pid != demo.pid and here in processes.read(f"/proc/{pid}/cmdline"))

    assert processes.until(
        lambda: {"nats-server", "worker"} <= set(" ".join(started().values()).replace("/", " ").split())
    )
    demo.kill()
    demo.wait()
    assert processes.until(lambda: not started()), started()


def test_the_commands_set_a_fleet_up_and_the_demo_shows_one(tmp_path: Path):
    said = command_line.ok("fleet", "demo", "--json").json
    assert (said["lost"], said["after"]) == ("lost", True)
    assert sum(said["spread"].values()) == 8
    assert set(said["spread"]) == {"north", "south"}
