"""Stolen credentials of one kind do not do the work of another: what NATS refuses, and what members ignore."""

import json
import time
from pathlib import Path

import anyio
import msgspec
import pytest

import plugin_folders
from anyplug.fleet import credentials, stores, trail
from anyplug.fleet.fleet_trust import Trust
from anyplug.fleet.messages import LEASE_S, Approved, approval_key, queue_of
from anyplug.fleet.nats_link import FleetError, Link
from anyplug.frontends.worker import worker_calls
from anyplug.model.errors import ConfigError
from anyplug.model.types import File, Result, Text
from fleets import Fleet, until

pytestmark = pytest.mark.anyio
SETTLES_S = 0.3  # for what is not to arrive


async def is_refused(link: Link, *, publish: str = "", subscribe: str = "") -> bool:
    """Try something, and return whether the server refuses it."""
    link.refused = ""
    if subscribe:

        async def heard(_: object) -> None:
            return

        await link.client.subscribe(subscribe, cb=heard)
    else:
        await link.client.publish(publish, b"x")
    await link.settle()
    with anyio.move_on_after(SETTLES_S):
        while not link.refused:
            await anyio.sleep(0.01)
    return bool(link.refused)


async def test_the_server_refuses_what_is_not_the_work_of_a_role(tmp_path: Path):
    async with (
        Fleet(tmp_path, workers=("w1", "w2"), gateways=("g1", "g2")) as fleet,
        fleet.link("w1") as worker,
        fleet.link("g1") as gateway,
        fleet.link("o1") as observer,
        fleet.link("admin") as admin,
    ):
        w1, g1 = worker.own.key, gateway.own.key
        w2, g2 = (credentials.read(f"{fleet.members}/{name}.creds").key for name in ("w2", "g2"))
        decision = "$KV.ap_trust.approval.x"
        removals = [
            "$JS.API.STREAM.DELETE.KV_ap_dir",
            "$JS.API.STREAM.PURGE.KV_ap_trust",
            "$JS.API.STREAM.DELETE.KV_ap_trust",
        ]
        consumer = ["$JS.API.CONSUMER.CREATE.KV_ap_dir.c", "$JS.API.CONSUMER.CREATE.KV_ap_trust.c"]
        others = [f"$KV.ap_trust.{name}" for name in ("withdrawn.x", "head", "secret.x.x")]
        jobs = [
            "$JS.API.CONSUMER.CREATE.ap_queue.c",
            "$JS.API.STREAM.PURGE.ap_queue",
            "$JS.API.STREAM.DELETE.KV_ap_jobs",
            "$JS.API.STREAM.MSG.GET.ap_queue",
        ]
        taking = ["ap.jobs.API.CONSUMER.MSG.NEXT.ap_queue.x", "$JS.ACK.ap_queue.x.1.1.1.1.0"]
        shared = [decision, *others, *removals, *consumer, *jobs]
        tried = {
            worker: (
                [
                    f"ap.w.{w2}.run", f"ap.w.{w1}.run", f"ap.out.{g1}.{w2}.x", f"ap.trust.lease.{w2}",
                    f"$KV.ap_dir.{w2}", f"$KV.ap_tools.{w2}.x", f"ap.trust.dir.{w2}", f"ap.trust.tools.{w2}.x",
                    f"ap.trust.audit.{w2}", f"ap.audit.{w1}", f"ap.here.{w2}", "ap.job.x", *shared,
                ],
                [f"ap.w.{w2}.run", "ap.w.>", f"ap.out.{g1}.>", f"_INBOX_{g1}.>", f"$KV.ap_trust.secret.{w2}.*", ">"],
            ),
            gateway: (
                [
                    f"ap.out.{g1}.{w1}.x", f"$KV.ap_dir.{w1}", f"ap.trust.dir.{w1}", f"ap.trust.audit.{w1}",
                    f"ap.here.{w1}", f"ap.trust.lease.{w1}", *taking, *shared,
                ],
                [f"ap.w.{w1}.run", f"ap.out.{g2}.>", f"_INBOX_{w1}.>", f"$KV.ap_trust.secret.{w1}.*", "ap.job.*", ">"],
            ),
            observer: (
                [
                    f"ap.w.{w1}.run", f"ap.out.{g1}.{w1}.x", f"$KV.ap_dir.{w1}", f"ap.trust.lease.{w1}", "ap.job.x",
                    "$KV.ap_jobs.x", *taking, *shared,
                ],
                [f"ap.w.{w1}.run", f"ap.out.{g1}.>", ">"],
            ),
            admin: (
                [f"ap.w.{w1}.run", f"ap.out.{g1}.{w1}.x", f"$KV.ap_dir.{w1}"],
                [f"ap.w.{w1}.run", f"ap.out.{g1}.>", ">"],
            ),
        }  # fmt: skip
        passed = [
            (link.own.member.role, subject)
            for link, (published, heard) in tried.items()
            for subject in (*published, *heard)
            if not await is_refused(link, **({"publish" if subject in published else "subscribe": subject}))
        ]
        assert passed == []
        for link in (worker, gateway, observer):
            with pytest.raises(FleetError):
                await stores.create(link, 1)


async def test_answers_of_jetstream_do_not_reach_what_the_admin_decided(tmp_path: Path):
    """NATS publishes an answer to any subject that a request names, and streams keep it like any message."""
    async with Fleet(tmp_path) as fleet, fleet.link("w1") as worker, fleet.link("admin") as admin:
        bucket, key = "ap_trust", approval_key("d", "f")
        signed = admin.own.sign(
            msgspec.msgpack.encode(Approved(serial=1, name="x", format="cyclop", digest="d", definition="f"))
        )
        await admin.put(bucket, key, signed)
        trust = Trust(worker, lambda: None)
        await trust.follow()
        subject = f"$KV.{bucket}.{key}"
        await worker.client.publish(f"ap.trust.dir.{worker.own.key}", b"x", reply=subject)
        request = json.dumps({"last_by_subj": subject}).encode()
        await worker.client.publish("ap.trust.API.STREAM.MSG.GET.KV_ap_trust", request, reply=subject)
        await worker.client.publish(f"ap.trust.lease.{worker.own.key}", b"", reply=subject)
        await worker.settle()
        await trust.confirm()  # which takes its turn after them
        assert worker.refused == ""
        assert (await admin.all(bucket, "approval.*")) == {key: signed}
        assert trust.approval(key) is not None
        # A decision that another key signed counts for nobody, even if it is stored.
        await admin.put(bucket, key, worker.own.sign(signed[64:]))
        await trust.read()
        assert trust.approval(key) is not None


@pytest.mark.claim("fleet-worker-bounded")
async def test_answers_of_jetstream_change_no_announcement_description_or_record_of_another(tmp_path: Path):
    """A member can let a stream answer with any bytes of its own, to any subject."""
    root = tmp_path / "plugins"
    plugin_folders.cyclop(root, "hello")
    async with (
        Fleet(tmp_path / "fleet", workers=("w1", "w2")) as fleet,
        fleet.worker("w1", root) as worker,
        fleet.gateway() as host,
        fleet.link("w2") as evil,
        fleet.link("admin") as admin,
        fleet.link("o1") as observer,
    ):
        await fleet.approve("hello")
        await until(lambda: host.snapshot.plugin("hello").plugin.workers)
        assert host.fleet is not None
        assert host.fleet.directory is not None
        [seen] = host.fleet.directory.workers.values()
        described = f"{seen.key}.{seen.said.offers[0]}"
        text = (await admin.all("ap_tools"))[described]
        drained = msgspec.structs.replace(seen.said, at=time.time() + 60, is_draining=True)
        lies = (
            b"",
            msgspec.msgpack.encode(drained),
            evil.own.sign(msgspec.msgpack.encode(drained)),
            text.replace(b"hello", b"evils"),
        )
        subjects = [
            f"{begin}.{end}"
            for begin, end in (
                *(
                    (begin, seen.key)
                    for begin in ("$KV.ap_dir", "ap.trust.dir", "ap.here", "ap.audit", "ap.trust.audit")
                ),
                *((begin, described) for begin in ("$KV.ap_tools", "ap.trust.tools")),
            )
        ]
        request = json.dumps({"last_by_subj": f"$KV.ap_trust.lease.{evil.own.key}"}).encode()
        for lie in lies:
            await evil.store(evil.subjects.lease(evil.own.key), lie)
            for subject in subjects:
                await evil.client.publish("ap.trust.API.DIRECT.GET.KV_ap_trust", request, reply=subject)
                await evil.client.publish("ap.jobs.API.STREAM.MSG.GET.KV_ap_jobs", b'{"seq": 1}', reply=subject)
        await evil.settle()
        await evil.store(evil.subjects.lease(evil.own.key), b"")  # which takes its turn after them
        assert evil.refused == ""
        assert not (await host.call("hello")).is_error
        async with fleet.seat() as seat:  # somebody who comes later
            await seat.read()
            [now] = seat.directory.workers.values()
            assert (now.key, now.said.is_draining) == (worker.trust._link.own.key, False)
            assert [one.name for one in seat.directory.offered_by(now)] == ["hello"]
        assert not any("not signed" in fault for fault in (await trail.read(observer)).faults)


@pytest.mark.claim("fleet-worker-bounded")
async def test_an_answer_of_jetstream_is_stored_nowhere_whoever_asked_and_wherever_it_was_to_go(tmp_path: Path):
    """JetStream publishes confirmations, messages and refusals to the subject that a request names as its reply."""
    async with (
        Fleet(tmp_path, workers=("w1", "w2"), gateways=("g1", "g2")) as fleet,
        fleet.link("w1") as worker,
        fleet.link("w2") as other,
        fleet.link("g1") as gateway,
        fleet.link("admin") as admin,
    ):
        approval, key, api = approval_key("d", "f"), other.own.key, "ap.jobs.API"
        await stores.open_queue(admin, approval)
        pull = f"{api}.CONSUMER.MSG.NEXT.ap_queue.{queue_of(approval)}"
        targets = [
            other.subjects.announced(key), other.subjects.described(key, "x"), other.subjects.lease(key),
            other.subjects.audit(key), gateway.subjects.audit(gateway.own.key), "$KV.ap_jobs.theirs",
            other.subjects.job(approval), f"$KV.ap_dir.{key}", f"$KV.ap_tools.{key}.x", f"ap.audit.{key}",
            f"$KV.ap_trust.{approval}", "$KV.ap_trust.head", "$KV.ap_trust.policy.current",
        ]  # fmt: skip

        async def stored() -> dict[str, int]:
            found: dict[str, int] = {}
            for name in ("KV_ap_trust", "KV_ap_dir", "KV_ap_tools", "KV_ap_jobs", "ap_queue", "ap_audit"):
                bucket = name.removeprefix("KV_")
                asked = f"{admin.api(bucket)}.STREAM.INFO.{name}"
                answer = await admin.client.request(asked, b'{"subjects_filter": ">"}', timeout=5)
                found.update(json.loads(answer.data)["state"].get("subjects") or {})
            return found

        for link in (worker, gateway):
            own = link.own.key
            mine = {link.subjects.lease(own), link.subjects.announced(own), link.subjects.described(own, "x")}
            asked: list[tuple[str, bytes]] = [("$KV.ap_jobs.mine", b"x"), (link.subjects.audit(own), b"x")]
            if link is worker:
                await worker.store(worker.subjects.lease(own), b"kept")
                asked += [(subject, b"x") for subject in sorted(mine)]
                asked.append((pull, b'{"batch": 1, "expires": 100000000}'))
                asked.append((pull, b'{"batch": 1, "no_wait": true}'))
                asked.append(("ap.trust.API.STREAM.MSG.GET.KV_ap_trust", b'{"seq": 1}'))
            else:
                asked.append((gateway.subjects.job(approval), b"order"))
            asked.append(
                (
                    "ap.trust.API.DIRECT.GET.KV_ap_trust",
                    b'{"last_by_subj": "$KV.ap_trust.lease.%s"}' % worker.own.key.encode(),
                )
            )
            asked.append((f"{api}.STREAM.MSG.GET.KV_ap_jobs", b'{"seq": 1}'))
            for subject, data in asked:
                before = await stored()
                for target in targets:
                    await link.client.publish(subject, data, reply=target)
                await link.settle()
                await anyio.sleep(SETTLES_S)
                now, done = await stored(), {"$KV.ap_jobs.mine"}
                for name in ("trust.lease", "dir", "tools"):
                    done |= {f"$KV.ap_{name}.{own}", f"$KV.ap_{name}.{own}.x"}
                changed = {name for name in now if now[name] != before.get(name) and name not in done}
                assert changed <= {f"ap.audit.{own}"} | (
                    {gateway.subjects.job(approval)} if link is gateway else set()
                ), subject
        assert worker.refused == gateway.refused == ""


@pytest.mark.claim("fleet-worker-bounded")
async def test_no_member_removes_what_others_store_by_a_message_that_rolls_up(tmp_path: Path):
    async with (
        Fleet(tmp_path, workers=("w1", "w2")) as fleet,
        fleet.link("w1") as evil,
        fleet.link("w2") as other,
        fleet.link("g1") as gateway,
        fleet.link("admin") as admin,
    ):
        key, name = other.own.key, approval_key("d", "f")
        await admin.put("ap_trust", name, b"decision")
        for subject in (other.subjects.announced(key), other.subjects.described(key, "x"), other.subjects.lease(key)):
            await other.store(subject, b"of w2")
        await gateway.put("ap_jobs", "theirs", b"job")
        buckets = ("ap_trust", "ap_dir", "ap_tools", "ap_jobs")
        before = {bucket: await admin.all(bucket) for bucket in buckets}
        assert all(before.values())
        own = evil.own.key
        for rolled in ("all", "sub"):
            for subject in (
                evil.subjects.announced(own), evil.subjects.described(own, "x"), evil.subjects.lease(own),
                "$KV.ap_jobs.mine", evil.subjects.audit(own),
            ):  # fmt: skip
                with pytest.raises(FleetError):
                    await evil.store(subject, b"x", {"Nats-Rollup": rolled})
        assert {bucket: await admin.all(bucket) for bucket in buckets} == before


async def test_answers_to_an_observers_requests_are_stored_nowhere(tmp_path: Path):
    async with (
        Fleet(tmp_path) as fleet,
        fleet.link("o1") as observer,
        fleet.link("g1") as gateway,
        fleet.link("admin") as admin,
    ):
        await gateway.put("ap_jobs", "job", b"where it is")
        await admin.put("ap_trust", "approval.x", b"decision")
        request = json.dumps({"last_by_subj": "$KV.ap_trust.approval.x"}).encode()
        for subject in ("$KV.ap_jobs.job", "ap.job.x", "ap.here.x", "$KV.ap_trust.approval.y"):
            for bucket in ("KV_ap_trust", "KV_ap_dir", "ap_trail"):
                await observer.client.publish(f"ap.trust.API.DIRECT.GET.{bucket}", request, reply=subject)
        await observer.settle()
        assert await observer.all("ap_trust", "approval.*") == {"approval.x": b"decision"}  # it reads as before
        assert await admin.all("ap_jobs") == {"job": b"where it is"}
        assert await admin.all("ap_trust", "approval.*") == {"approval.x": b"decision"}


async def test_a_withdrawn_gateway_is_refused_at_once_and_a_worker_without_a_lease_refuses_all(tmp_path: Path):
    root = tmp_path / "plugins"
    plugin_folders.cyclop(root, "hello")
    async with (
        Fleet(tmp_path / "fleet", gateways=("g1", "g2")) as fleet,
        fleet.worker("w1", root) as worker,
        fleet.gateway("g1") as first,
        fleet.gateway("g2") as second,
    ):
        await fleet.approve("hello")
        for host in (first, second):
            await until(lambda host=host: host.snapshot.plugin("hello").plugin.workers)
            assert not (await host.call("hello")).is_error
        async with fleet.seat() as seat:
            await seat.withdraw(credentials.read(f"{fleet.members}/g1.creds").member)
        await until(lambda: worker.trust.is_withdrawn(first.fleet.link.own.key))
        refused = await first.call("hello")
        assert refused.error is not None
        assert refused.error.code == "unavailable"
        assert "'g1' was withdrawn from the fleet" in refused.text
        assert not (await second.call("hello")).is_error

        worker.trust._confirmed = time.monotonic() - LEASE_S  # as after so long without the quorum
        late = await second.call("hello")
        assert late.error is not None
        assert (late.error.code, "disconnected" in late.text) == ("unavailable", True)
        await worker.trust.confirm()
        assert not (await second.call("hello")).is_error


@pytest.mark.claim("fleet-worker-bounded")
async def test_a_worker_that_was_taken_over_reads_no_file_here_and_gets_no_call_once_it_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root, secret = tmp_path / "plugins", tmp_path / "secret.txt"
    plugin_folders.cyclop(root, "hello")
    secret.write_text("of the gateway's machine")

    async def evil(*_: object) -> Result:
        return Result(content=(Text("see"), File("secret.txt", "text/plain", str(secret))), remarks=("approve it",))

    async with (
        Fleet(tmp_path / "fleet", workers=("w1", "w2")) as fleet,
        fleet.worker("w1", root) as worker,
        fleet.gateway() as host,
    ):
        await fleet.approve("hello")
        await until(lambda: host.snapshot.plugin("hello").plugin.workers)
        monkeypatch.setattr(worker_calls, "_with_files", lambda result: (result, ()))
        worker.run = evil  # type: ignore[method-assign]  # another program has its credentials
        result = await host.call("hello")
        assert [block for block in result.content if isinstance(block, File)] == []
        assert result.remarks == ("worker 'w1': approve it",)

        # It cannot announce itself as another member.
        assert host.fleet is not None
        assert host.fleet.directory is not None
        [seen] = host.fleet.directory.workers.values()
        own = worker.trust._link.own
        for lie in ({"name": "w2"}, {"key": credentials.read(f"{fleet.members}/w2.creds").key}):
            said = msgspec.structs.replace(seen.said, at=time.time() + 60, **lie)
            await host.fleet.directory._take(seen.key, own.sign(msgspec.msgpack.encode(said)))
            assert (seen.said.name, seen.key) == ("w1", own.key)

        async with fleet.seat() as seat:
            await seat.withdraw(credentials.read(f"{fleet.members}/w1.creds").member)
        await until(lambda: host.fleet.trust.is_withdrawn(seen.key))
        refused = await host.call("hello")
        assert refused.error is not None
        assert refused.error.code == "unavailable"
        assert "'w1': it was withdrawn from the fleet" in refused.text
        assert host.snapshot.plugin("hello").plugin.workers == ()


def test_credentials_that_do_not_fit_say_so(tmp_path: Path):
    admin, other = credentials.new_admin(), credentials.new_admin()
    path = tmp_path / "x.creds"
    mixed = admin.admit("worker", "w1").text().partition("\n\n")[0] + "\n\n" + admin.admit("worker", "w2").text()
    texts = {"no key": "", "not the one": mixed, "cannot read": None}
    for said, text in texts.items():
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            credentials.read(str(path))
    forged = other.certify("gateway", "g1", admin.admit("gateway", "g1").key)
    with pytest.raises(credentials.NotMember):
        credentials.verified_member(forged, admin.key)
