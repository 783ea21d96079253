"""What `docs/how-to/run-a-fleet.md` shows to those who keep a fleet running is right."""

import json
import re
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

import command_line
from anyplug.fleet.administration import SERVER, write_credentials
from anyplug.fleet.nats_link import Link
from anyplug.fleet.nats_server import NatsServer
from anyplug.frontends.worker.worker import DRAIN_S
from anyplug.model.errors import UsageError
from fleets import Fleet, until

PAGE = (Path(__file__).parents[2] / "docs/how-to/run-a-fleet.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def options_of_worker() -> set[str]:
    return set(re.findall(r"--[a-z-]+", command_line.ok("worker", "--help").out)) | {"--home"}


def test_the_unit_of_a_worker_is_one_that_systemd_accepts_and_leaves_time_to_drain(tmp_path: Path):
    unit = block("ini")
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert set(re.findall(r" (--[a-z-]+)", command)) <= options_of_worker()
    [patience] = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(patience) > DRAIN_S
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    path = tmp_path / "anyplug-worker.service"
    path.write_text(unit.replace("/opt/anyplug/bin/anyplug", "/bin/true").replace("User=anyplug", "User=root"))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_manifest_for_kubernetes_fits_together_and_to_the_command():
    [manifest] = yaml.safe_load_all(block("yaml"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "Deployment")
    spec: dict[str, Any] = manifest["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    # A worker has a key, and a home with its trail: never two of them, also not for a moment.
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > DRAIN_S
    [container] = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    words = container["args"]
    assert {word for word in words if word.startswith("--")} <= options_of_worker()
    given = dict(pairwise(words))
    assert given["--home"] == mounts["home"]
    assert given["--credentials"].startswith(mounts["credentials"] + "/")
    [secret] = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    assert secret["defaultMode"] == 0o400  # its own user alone
    assert all(isinstance(word, str) for word in words)  # `8` would be a number, which Kubernetes refuses


@pytest.mark.anyio
async def test_more_entries_are_read_than_jetstream_gives_in_one_answer(tmp_path: Path):
    def entries(link: Link, count: int) -> list[str]:
        return [link.subjects.entry(link.subjects.trust, f"approval.{number}") for number in range(count)]

    async with Fleet(tmp_path, workers=()) as fleet, fleet.link("admin") as admin, fleet.link("g1") as gateway:
        for count in (0, 1, 256, 257, 1100):
            for number, subject in enumerate(entries(admin, count)):
                await admin.store(subject, str(number).encode())
            assert len(await admin.all(admin.subjects.trust, "approval.*")) == count
        await admin.store(entries(admin, 4)[3], b"", {"KV-Operation": "DEL"})
        await admin.put(admin.subjects.trust, "approval.4", b"new")
        await admin.put(admin.subjects.trust, "head", b"1")
        wanted = {f"approval.{number}": str(number).encode() for number in range(1100) if number != 3}
        for link in (admin, gateway):
            assert await link.all(link.subjects.trust, "approval.*") == wanted | {"approval.4": b"new"}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_members_connect_over_tls_and_only_to_a_server_whose_certificate_is_verified(tmp_path: Path):
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    made += ["-subj", "/CN=nats", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.pem"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    fleet = Fleet(tmp_path, workers=())
    secured = tmp_path / "secured.conf"
    secured.write_text(
        f'include "members/{SERVER}"\ntls {{ cert_file: "{tmp_path}/ca.pem", key_file: "{tmp_path}/key.pem" }}'
    )
    with NatsServer(fleet.folder, str(secured)) as server:
        port, credentials = server.port, fleet.settings("admin").credentials
        words = ["fleet", "init", "--nats", f"tls://127.0.0.1:{port}", "--credentials", credentials]
        refused = command_line.run(*words)
        assert "cannot be verified" in refused.err
        assert "--ca FILE" in refused.err
        done = command_line.ok(*words, "--ca", str(tmp_path / "ca.pem"))
        assert "KV_ap_trust" in done.out + done.err
        assert "eof_received" not in refused.err + done.err  # nothing of what asyncio thinks of nats-py

        # A worker says so, too, and also what a server over TLS thinks of its key.
        write_credentials(str(tmp_path / "others"), [("worker", "w9")], "ap")
        own = str(tmp_path / "others" / "w9.creds")
        words = ["worker", "--nats", f"tls://127.0.0.1:{port}", "--credentials", own]
        for more, reason in ([], "cannot be verified"), (["--ca", str(tmp_path / "ca.pem")], "does not know the key"):
            refused = command_line.run(*words, *more)
            assert reason in refused.err
            assert "Traceback" not in refused.err


@pytest.mark.parametrize("name", ["../x", "", "a\nb", "GPU1", "-x", "a/b", "x" * 64])
def test_no_member_has_a_name_that_is_no_file_or_that_of_another(name, tmp_path: Path):
    folder = tmp_path / "fleet"
    write_credentials(str(folder), [("worker", "gpu1")], "ap")
    before = set(tmp_path.rglob("*"))
    with pytest.raises(UsageError):
        write_credentials(str(folder), [("worker", "gpu2"), ("worker", name)], "ap")
    assert set(tmp_path.rglob("*")) == before


def test_a_worker_that_cannot_connect_ends_at_the_first_signal(tmp_path: Path):
    write_credentials(str(tmp_path), [("worker", "w1")], "ap")
    words = ["worker", "--nats", "nats://127.0.0.1:9", "--credentials", str(tmp_path / "w1.creds")]
    process = subprocess.Popen(
        [sys.executable, "-m", "anyplug", "--home", str(tmp_path / "home"), *words],
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=tmp_path, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    with process:
        assert process.stderr.readline().startswith("connecting to")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.anyio
async def test_the_admin_can_back_up_the_decisions_and_put_them_back(tmp_path: Path):
    async with Fleet(tmp_path, workers=()) as fleet, fleet.link("admin") as link:
        await link.store(link.subjects.entry(link.subjects.trust, "approval.x"), b"one")
        chunks: list[bytes] = []
        ended = anyio.Event()

        async def heard(message: Any) -> None:
            chunks.append(message.data)
            if message.reply:
                await message.respond(b"")
            if not message.data:
                ended.set()

        async def ask(what: str, given: dict[str, Any]) -> dict[str, Any]:
            subject = f"$JS.API.STREAM.{what}.KV_{link.subjects.trust}"
            said: dict[str, Any] = json.loads((await link.client.request(subject, json.dumps(given).encode())).data)
            assert "error" not in said
            return said

        inbox = link.client.new_inbox()
        await link.listen(inbox, heard)
        kept = await ask("SNAPSHOT", {"deliver_subject": inbox})
        with anyio.fail_after(20):
            await ended.wait()
        await ask("DELETE", {})
        begun = await ask("RESTORE", {"config": kept["config"], "state": kept["state"]})
        for chunk in chunks:
            await link.client.request(begun["deliver_subject"], chunk, timeout=5)
        assert await link.all(link.subjects.trust, "approval.*") == {"approval.x": b"one"}


@pytest.mark.anyio
async def test_messages_of_calls_keep_their_order_and_one_that_cannot_be_handled_ends_nothing(tmp_path: Path):
    heard: list[bytes] = []

    def take(_subject: str, _reply: str, data: bytes, _status: str) -> None:
        heard.append(data)
        if data == b"3":
            raise ValueError(data)

    async with Fleet(tmp_path) as fleet, fleet.link("w1") as worker, fleet.link("g1") as gateway:
        subject = worker.subjects.run(worker.own.key)
        await worker.listen_quickly(subject, take)
        sent = [str(number).encode() for number in range(100)]
        for number, data in enumerate(sent):
            if number % 10 == 9:
                await gateway.send(subject, [data])  # the long way
            else:
                assert gateway.post(subject, data, "", at_once=number % 7 == 0)
        await until(lambda: len(heard) >= len(sent))
        assert heard == sent

        # Nobody hears it: the server's status comes the same way.
        answered: list[tuple[bytes, str]] = []
        answers = gateway.subjects.answers(gateway.own.key, "x")
        await gateway.listen_quickly(f"{answers}.>", lambda _, __, data, status: answered.append((data, status)))
        gateway.post(gateway.subjects.run("x"), b"?", f"{answers}.1", at_once=True)
        await until(lambda: answered)
        assert answered == [(b"", "503")]
    assert not gateway.post(subject, b"late", "", at_once=True)
