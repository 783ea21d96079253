"""`python tests/fleet_soak.py [MINUTES]`: a fleet on a cluster of three NATS servers that is cut, slowed and killed.

Servers and workers have network namespaces of their own on one bridge, so it takes root. Meanwhile a gateway calls a
tool that writes the id of each call into a file, and the admin makes decisions. At the end everything heals, and then:
every call ended in exactly one result, none ran twice, what is said not to have run did not, no decision is lost, and
every trail verifies.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from anyplug.audit.audit_log import Audit
from anyplug.call.consent import Attachment
from anyplug.catalog.catalog import Catalog
from anyplug.fleet import credentials, stores, trail
from anyplug.fleet.administration import Seat, write_credentials
from anyplug.fleet.messages import Approved
from anyplug.fleet.nats_link import FleetError, Link, linked
from anyplug.fleet.nats_server import find_server
from anyplug.home.settings import FleetSettings, Home
from anyplug.host.host import Host

WORKERS = ("w1", "w2", "w3")
SERVERS = (1, 2, 3)
CALLERS = 6
WAIT_S = 60.0
NOT_RUN = {"unavailable", "overloaded", "not_approved"}
RUN = r"""#!/bin/sh
id=$(sed 's/.*"id": *"\([a-z0-9]*\)".*/\1/')
echo "$id" >>FOLDER/runs
sleep 0.$(($$ % 6))
echo '{"result": "done"}'
"""
SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


def can_run() -> bool:
    """Return whether network namespaces can be made here."""
    return os.geteuid() == 0 and shutil.which("ip") is not None and _ip("netns", "list", check=False)


def _ip(*words: str, check: bool = True) -> bool:
    return subprocess.run(["ip", *words], check=check, capture_output=True).returncode == 0


class Network:
    """A bridge, and a namespace for each machine."""

    def __init__(self) -> None:
        self._name = f"ap{os.getpid()}"
        self.machines = {
            **{f"n{i}": f"10.77.0.{i}" for i in SERVERS},
            **{w: f"10.77.0.{10 + i}" for i, w in enumerate(WORKERS)},
        }

    def inside(self, machine: str = "") -> list[str]:
        """Return what runs a command on a machine; without a name, where the gateway is."""
        return ["ip", "netns", "exec", f"{self._name}{machine}"]

    def _at_bridge(self, *words: str) -> None:
        subprocess.run([*self.inside(), *words], check=True, capture_output=True)

    def open(self) -> None:
        _ip("netns", "add", self._name)
        self._at_bridge("ip", "link", "add", "name", "br0", "type", "bridge")
        self._at_bridge("ip", "addr", "add", "10.77.0.100/24", "dev", "br0")
        for device in ("br0", "lo"):
            self._at_bridge("ip", "link", "set", device, "up")
        for machine, address in self.machines.items():
            space = f"{self._name}{machine}"
            _ip("netns", "add", space)
            _ip(
                "link",
                "add",
                f"v{machine}",
                "netns",
                self._name,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                space,
            )
            self._at_bridge("ip", "link", "set", f"v{machine}", "master", "br0", "up")
            for words in (
                ("addr", "add", f"{address}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("link", "set", "lo", "up"),
            ):
                subprocess.run([*self.inside(machine), "ip", *words], check=True, capture_output=True)

    def cut(self, machine: str, *, silently: bool) -> None:
        """Cut a machine off: with its carrier, or so that packets vanish."""
        how = ("type", "bridge_slave", "state", "0") if silently else ("down",)
        self._at_bridge("ip", "link", "set", f"v{machine}", *how)

    def slow(self, machine: str) -> None:
        """Let little through to a machine."""
        self._at_bridge(
            "tc",
            "qdisc",
            "add",
            "dev",
            f"v{machine}",
            "root",
            "tbf",
            "rate",
            "400kbit",
            "burst",
            "16kb",
            "latency",
            "400ms",
        )

    def heal(self, machine: str) -> None:
        for words in (
            ("ip", "link", "set", f"v{machine}", "up"),
            ("ip", "link", "set", f"v{machine}", "type", "bridge_slave", "state", "3"),
        ):
            self._at_bridge(*words)
        subprocess.run(
            [*self.inside(), "tc", "qdisc", "del", "dev", f"v{machine}", "root"], check=False, capture_output=True
        )

    def close(self) -> None:
        for machine in self.machines:
            _ip("netns", "del", f"{self._name}{machine}", check=False)
        _ip("netns", "del", self._name, check=False)


class Stage:
    """Servers, workers, and the process that calls."""

    def __init__(self, folder: str, network: Network) -> None:
        self.folder, self.network = folder, network
        self.members = os.path.join(folder, "members")
        write_credentials(
            self.members, [("gateway", "g1"), ("observer", "o1"), *(("worker", name) for name in WORKERS)], "ap"
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def settings(self, name: str) -> FleetSettings:
        urls = tuple(f"nats://10.77.0.{i}:4222" for i in SERVERS)
        return FleetSettings(nats=urls, credentials=os.path.join(self.members, f"{name}.creds"))

    def start(self, name: str) -> None:
        """Start a server, a worker, or the caller."""
        settings = self.settings(name)
        if name in WORKERS:
            home = os.path.join(self.folder, name)
            _write_plugin(os.path.join(home, "plugins", "note"), self.folder)
            addresses = [word for url in settings.nats for word in ("--nats", url)]
            words = [sys.executable, "-m", "anyplug", "--home", home, "worker", *addresses]
            words += ["--credentials", settings.credentials, "--places", "4"]
        elif name == "caller":
            words = [sys.executable, __file__, "--call", self.folder]
        else:
            store = os.path.join(self.folder, f"{name}-jetstream")
            words = [find_server(), "-c", self._server_config(name), "-sd", store]
        machine = name if name in self.network.machines else ""
        with open(os.path.join(self.folder, f"{name}.log"), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.network.inside(machine), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def _server_config(self, name: str) -> str:
        address, path = self.network.machines[name], os.path.join(self.folder, f"{name}.conf")
        routes = ", ".join(f'"nats-route://10.77.0.{i}:6222"' for i in SERVERS)
        Path(path).write_text(
            f'include "members/fleet.conf"\nserver_name: {name}\nlisten: "{address}:4222"\n'
            'ping_interval: "1s"\nping_max: 2\n'
            f'cluster {{ name: fleet, listen: "{address}:6222", routes: [{routes}] }}\n'
        )
        return path

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    async def ended(self, name: str) -> None:
        """Wait until a process has ended."""
        await anyio.to_thread.run_sync(self.processes[name].wait)

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def _write_plugin(folder: str, notes: str) -> None:
    if os.path.exists(folder):
        return
    os.makedirs(folder)
    manifest = {
        "name": "note", "version": "1.0.0", "description": "Notes its calls.", "entrypoint": "run",
        "permissions": [f"filesystem:write:{notes}"],
        "tools": [{"name": "note", "description": "x", "input_schema": SCHEMA}],
    }  # fmt: skip
    Path(folder, "plugin.json").write_text(json.dumps(manifest))
    run = Path(folder, "run")
    run.write_text(RUN.replace("FOLDER", notes))
    run.chmod(0o755)


async def call_all(folder: str) -> None:
    """Call until a file says to stop, and write down how each call ended. Runs where the gateway is."""
    stage = Stage.__new__(Stage)
    stage.members = os.path.join(folder, "members")
    stop = os.path.join(folder, "stop")
    admin = stage.settings("admin")
    caller = Attachment("soak", yes=True)
    with (
        open(os.path.join(folder, "outcomes"), "a", buffering=1) as outcomes,
        open(os.path.join(folder, "decisions"), "a", buffering=1) as decided,
    ):
        async with (
            linked(admin, credentials.read(admin.credentials), WAIT_S) as link,
            Host(roots=[], home=os.path.join(folder, "g1"), fleet=stage.settings("g1"), tell=print) as host,
            anyio.create_task_group() as tasks,
        ):

            async def call(number: int) -> None:
                count = 0
                while not os.path.exists(stop):
                    id = f"c{number}x{count}"
                    count += 1
                    began = time.monotonic()
                    result = await host.call("note", {"id": id}, attachment=caller)
                    code = result.error.code if result.error else "done"
                    said = {"id": id, "code": code, "s": round(time.monotonic() - began, 2), "why": result.text[:200]}
                    outcomes.write(json.dumps(said) + "\n")
                    if code != "done":
                        await anyio.sleep(0.2)

            async def decide() -> None:
                seat, count = Seat(link), 0
                while not os.path.exists(stop):
                    count += 1
                    decision = Approved(serial=0, name="other", format="cyclop", digest=f"d{count}", definition="f")
                    with contextlib.suppress(FleetError):
                        await seat._decide(decision)
                        decided.write(f"d{count}\n")
                    await anyio.sleep(0.5)

            with anyio.fail_after(WAIT_S):  # a gateway that has just begun hears of the fleet's tools in a moment
                while not any(tool.name.endswith("note") for tool in host.tools):
                    await anyio.sleep(0.1)
            tasks.start_soon(decide)
            for number in range(CALLERS):
                tasks.start_soon(call, number)


async def _until(holds: Any, what: str) -> None:
    last = ""
    with anyio.move_on_after(WAIT_S):
        while True:
            try:
                if await holds():
                    return
            except FleetError as error:
                last = f" ({error})"
            await anyio.sleep(0.2)
    raise SystemExit(f"this did not become true: {what}{last}")


async def _announced(link: Link, count: int) -> None:
    """Wait until so many workers are announced."""

    async def are() -> bool:
        seat = Seat(link)
        await seat.read()
        return len(seat.view().workers) == count

    await _until(are, f"{count} workers are announced")


async def _prepare(link: Link, stage: Stage) -> None:
    seat = Seat(link)

    async def created() -> bool:
        return bool(await stores.create(link, len(SERVERS)))

    await _until(created, "the cluster keeps what a fleet stores")
    for name in WORKERS:
        stage.start(name)
    await _announced(link, len(WORKERS))
    await seat.read()
    offered = seat.offered("note")
    await seat.approve(offered, offered.permissions, always=True)

    async def able() -> bool:
        await seat.read()
        return all(worker.plugins for worker in seat.view().workers)

    await _until(able, "all workers can run the plugin")


async def _leader(link: Link) -> str:
    with contextlib.suppress(Exception):  # there may be none at the moment
        answer = await link.client.request("$JS.API.STREAM.INFO.KV_ap_trust", b"", timeout=2)
        return str(json.loads(answer.data)["cluster"]["leader"])
    return f"n{random.choice(SERVERS)}"


async def _trouble(link: Link, stage: Stage, until: float) -> collections.Counter[str]:
    """Cut, slow and kill, one after the other."""
    done: collections.Counter[str] = collections.Counter()
    kinds = [
        "kill leader",
        "cut server",
        "lose packets",
        "kill worker",
        "stop worker",
        "cut worker",
        "slow server",
        "end worker",
    ]
    turn = 0
    while time.monotonic() < until:
        kind, turn = kinds[turn % len(kinds)], turn + 1
        done[kind] += 1
        server, worker = f"n{random.choice(SERVERS)}", random.choice(WORKERS)
        lasts_s = random.uniform(1.5, 5)
        if kind == "kill leader":
            server = await _leader(link)
            stage.signal(server, signal.SIGKILL)
            stage.processes[server].wait()
            await anyio.sleep(lasts_s)
            stage.start(server)
        elif kind in {"kill worker", "end worker"}:
            stage.signal(worker, signal.SIGKILL if kind == "kill worker" else signal.SIGTERM)
            await stage.ended(worker)
            stage.start(worker)
        elif kind == "stop worker":
            stage.signal(worker, signal.SIGSTOP)
            await anyio.sleep(lasts_s)
            stage.signal(worker, signal.SIGCONT)
        else:
            machine = worker if kind == "cut worker" else server
            if kind == "slow server":
                stage.network.slow(machine)
            else:
                stage.network.cut(machine, silently=kind == "lose packets")
            await anyio.sleep(lasts_s)
            stage.network.heal(machine)
        await anyio.sleep(random.uniform(1, 3))
    return done


async def soak(minutes: float, folder: str) -> list[str]:
    """Run it; return what is wrong."""
    network = Network()
    stage = Stage(folder, network)
    try:
        network.open()
        for number in SERVERS:
            stage.start(f"n{number}")
        # Our own connection is to a namespace of the machine: a small process there would be no different.
        with _entered(network):
            admin = stage.settings("admin")
            async with linked(admin, credentials.read(admin.credentials), WAIT_S) as link:
                await _prepare(link, stage)
                stage.start("caller")
                done = await _trouble(link, stage, time.monotonic() + minutes * 60)
                Path(folder, "stop").touch()
                await stage.ended("caller")
                await _send_the_rest(link, stage)
                return await _check(link, stage, done)
    finally:
        stage.close()
        network.close()


async def _send_the_rest(link: Link, stage: Stage) -> None:
    """Start everything once more: who ended while the servers had no leader sends its last records then."""
    await _end_workers(link, stage)
    for name in (*WORKERS, "caller"):
        stage.start(name)
    await _announced(link, len(WORKERS))
    await stage.ended("caller")
    await _end_workers(link, stage)


async def _end_workers(link: Link, stage: Stage) -> None:
    for name in WORKERS:
        stage.signal(name, signal.SIGTERM)
        await stage.ended(name)
    await _announced(link, 0)


@contextlib.contextmanager
def _entered(network: Network) -> Any:
    """Let this process's new sockets be in the namespace of the gateway."""
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{network._name}", os.O_RDONLY)
    libc = __import__("ctypes").CDLL(None, use_errno=True)
    try:
        assert libc.setns(there, 0) == 0
        yield
    finally:
        assert libc.setns(before, 0) == 0
        os.close(before)
        os.close(there)


async def _check(link: Link, stage: Stage, done: collections.Counter[str]) -> list[str]:
    folder = stage.folder
    outcomes = [json.loads(line) for line in Path(folder, "outcomes").read_text().splitlines()]
    codes = {said["id"]: said["code"] for said in outcomes}
    ran = collections.Counter(Path(folder, "runs").read_text().split())
    wrong = [f"{id} ran {count} times" for id, count in ran.items() if count > 1]
    ended = collections.Counter(said["id"] for said in outcomes)
    wrong += [f"{id} ended {count} times" for id, count in ended.items() if count > 1]
    wrong += [f"{id} is done but did not run" for id, code in codes.items() if code == "done" and not ran[id]]
    wrong += [f"{id} ended as {code} but ran" for id, code in codes.items() if code in NOT_RUN and ran[id]]
    wrong += [f"{id} ended as {code}" for id, code in codes.items() if code not in {"done", "lost", *NOT_RUN}]
    wrong += [f"{id} ran but never ended" for id in ran if id not in codes]
    decided = Path(folder, "decisions").read_text().split()
    seat = Seat(link)
    await _until(lambda: _reads(seat), "the decisions can be read")
    known = {one.digest for one in seat.trust.approvals.values()}
    wrong += [f"the decision {name} is lost" for name in decided if name not in known]
    whole = await trail.read(link)
    wrong += whole.faults
    for name in (*WORKERS, "g1"):
        catalog = Catalog(Home(os.path.join(folder, name)), roots=[])
        audit = Audit(catalog.store)
        audit.recover()
        count, broken = audit.verify()
        wrong += [f"{name}: {one.reason}" for one in broken]
        missing = count - whole.hosts.get(name, 0)
        wrong += [f"{name}: {missing} of its records are not in the fleet's trail"] if missing > 0 else []
        catalog.close()
    slowest = max(said["s"] for said in outcomes)
    print(f"{len(outcomes)} calls: {dict(collections.Counter(codes.values()))}; slowest {slowest} s;")
    print(f"  {len(decided)} decisions; {sum(whole.hosts.values())} records; {dict(done)}")
    return wrong


async def _reads(seat: Seat) -> bool:
    await seat.read()
    return True


def run(minutes: float, folder: str) -> list[str]:
    """Run it in a folder; return what is wrong."""
    return anyio.run(soak, minutes, folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("minutes", nargs="?", type=float, default=30.0)
    parser.add_argument("--call", metavar="FOLDER", help="(used by itself)")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    options = parser.parse_args()
    if options.call:
        anyio.run(call_all, options.call)
        return
    if not can_run():
        raise SystemExit("this takes root, and `ip netns`")
    folder = tempfile.mkdtemp(prefix="fleet-soak-", dir=os.path.expanduser("~") if options.keep else None)
    try:
        wrong = run(options.minutes, folder)
    finally:
        if options.keep:
            print(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(wrong) if wrong else "all is well")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
