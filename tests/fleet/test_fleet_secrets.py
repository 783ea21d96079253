"""Secrets of a fleet: sealed by the admin for one worker, unreadable for everybody else, and used like its own."""

import hashlib
from pathlib import Path

import anyio
import msgspec
import pytest

import command_line
import plugin_folders
from anyplug.fleet import credentials, fleet_secrets
from anyplug.fleet.messages import SealedSecret, secret_key
from anyplug.frontends.worker.worker import Worker
from fleets import Fleet, until

pytestmark = pytest.mark.anyio
VALUE = "hunter2-of-the-fleet-and-longer"
# Results have secrets masked, so it returns a hash.
HASHED = plugin_folders.python("""
import hashlib
print(json.dumps({"result": hashlib.sha256(os.environ.get("DEPLOY_KEY", "").encode()).hexdigest()}))
""")


def stored(worker: Worker) -> list[str]:
    host = worker.host  # type: ignore[attr-defined]
    return list(host.catalog.secrets.names(host.snapshot.plugin("deploy").plugin))


async def test_a_sealed_secret_reaches_one_workers_plugin_and_nobody_else_can_read_it(tmp_path: Path):
    root = tmp_path / "plugins"
    plugin_folders.cyclop(root, "deploy", HASHED)
    async with (
        Fleet(tmp_path / "fleet", workers=("w1", "w2")) as fleet,
        fleet.worker("w1", root) as worker,
        fleet.gateway() as host,
        fleet.link("admin") as admin,
    ):
        settings = fleet.settings("admin")
        reach = ["--nats", settings.nats[0], "--credentials", settings.credentials]

        async def secret(*words: str, value: str = "", who: list[str] = reach) -> command_line.Done:
            command = ("fleet", "secret", "deploy", "DEPLOY_KEY", *words, *who)
            return await anyio.to_thread.run_sync(lambda: command_line.run(*command, stdin=value))

        async with fleet.worker("w2", root) as other:
            await fleet.approve("deploy", workers=2, granted=("env:DEPLOY_KEY",))
            said = await secret("--worker", "w1", value=VALUE)
            assert (said.code, said.out) == (0, "DEPLOY_KEY of deploy is sealed for w1\n"), said
            assert "env:DEPLOY_KEY" not in said.err  # it is granted
            await until(lambda: stored(worker) == ["DEPLOY_KEY"])
            unknown = await secret("--worker", "w9", value=VALUE)
            assert (unknown.code, "w1, w2" in unknown.err) == (2, True), unknown
            # Nobody but the admin stores any.
            stolen = [*reach[:3], fleet.settings("g1").credentials]
            refused = await secret("--worker", "w1", value="x" * 10, who=stolen)
            assert (refused.code, "is a gateway" in refused.err) == (1, True), refused
            assert stored(other) == []
        await until(lambda: host.snapshot.plugin("deploy").plugin.workers == ("w1",))
        assert (await host.call("deploy")).text == hashlib.sha256(VALUE.encode()).hexdigest()

        # What JetStream keeps opens for that worker only, and only as the variable that it was sealed for.
        own = credentials.read(f"{fleet.members}/w1.creds")
        key = secret_key(own.key, "deploy", "DEPLOY_KEY")
        sealed = fleet_secrets.read(await admin.latest("ap_trust", key), admin.own.key)
        assert sealed is not None
        assert fleet_secrets.opened(sealed, own) == VALUE
        for name in ("w2", "g1", "o1", "admin"):
            with pytest.raises(fleet_secrets.NotForUs):
                fleet_secrets.opened(sealed, credentials.read(f"{fleet.members}/{name}.creds"))
        with pytest.raises(fleet_secrets.NotForUs):
            fleet_secrets.opened(msgspec.structs.replace(sealed, variable="OTHER"), own)
        on_disk = b"".join(path.read_bytes() for path in Path(fleet.folder).rglob("*.blk"))
        assert sealed.box in on_disk
        assert VALUE.encode() not in on_disk

        # One that the admin did not sign, and one that is older, change nothing.
        forged = SealedSecret(
            serial=sealed.serial + 1, worker=own.key, plugin="deploy", variable="DEPLOY_KEY", at=0.0,
            box=fleet_secrets.seal("forged", own.key, "deploy", "DEPLOY_KEY"),
        )  # fmt: skip
        old = msgspec.structs.replace(forged, serial=1)
        await admin.put("ap_trust", key, own.sign(msgspec.msgpack.encode(forged)))
        await admin.put("ap_trust", key, admin.own.sign(msgspec.msgpack.encode(old)))
        await fleet.revoke("deploy")
        await until(lambda: stored(worker) == [])  # it was the fleet's, and so is the end of it
        await fleet.approve("deploy", granted=("env:DEPLOY_KEY",))
        await until(lambda: stored(worker) == ["DEPLOY_KEY"])
        await until(lambda: host.snapshot.plugin("deploy").state == "approved")
        assert (await host.call("deploy")).text == hashlib.sha256(VALUE.encode()).hexdigest()

        removed = await secret("--unset")
        assert removed.out == "DEPLOY_KEY of deploy is removed from w1\n", removed
        await until(lambda: stored(worker) == [])
