"""A call of a worker's tool, against a bare request over NATS of the same bytes; and how a fleet grows."""

import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug import Host
from anyplug.call.consent import Attachment
from anyplug.fleet import credentials, stores
from anyplug.fleet.administration import SERVER, Seat, write_credentials
from anyplug.fleet.directory import hash_of
from anyplug.fleet.messages import Announcement, Offered
from anyplug.fleet.nats_link import Link, linked
from anyplug.fleet.nats_server import NatsServer
from anyplug.home.settings import FleetSettings
from anyplug.model.types import Tool
from bench import sessions
from bench.measure import Plan, Row, medians

if TYPE_CHECKING:
    from anyplug.fleet.credentials import Role

AIM_SEQUENTIAL, AIM_IN_FLIGHT = 1 / 0.6, 1 / 0.4
AIM_LINEAR = 1.1
IN_FLIGHT = 64
BLOCK = 50
WEIGHED = 20  # calls, of which the smallest has nothing else on the wire
WAIT_S = 60.0
PLACES, WAITS_S = 8, 0.25  # of a worker; of a tool that only waits
WORKERS = (1, 2, 4, 8, 16)
LISTED, TOOLS = 100, 10  # workers, and tools of each
NAME = "greeter"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "description": "Whose name it is"}}}
WAITING = """
import threading
say(
    type="register_tool", name="{tool}", description="Waits.",
    schema={{"type": "object", "properties": {{}}}},
)
say(type="ready")
def answer(id):
    say(type="tool_result", id=id, content=[{{"type": "text", "text": "done"}}])
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "tool_call":
        threading.Timer(0.25, answer, (frame["id"],)).start()
    elif frame["type"] == "shutdown":
        break
"""


class Stage:
    """A server, and processes of workers."""

    def __init__(self, folder: str, workers: list[str]) -> None:
        self.folder = os.path.join(folder, "fleet")
        members = os.path.join(self.folder, "members")
        roles: list[tuple[Role, str]] = [("gateway", "g"), *(("worker", name) for name in workers)]
        write_credentials(members, roles, "ap")
        self.server = NatsServer(self.folder, os.path.join(members, SERVER))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def settings(self, name: str) -> FleetSettings:
        """Return how a member connects."""
        path = os.path.join(self.folder, "members", f"{name}.creds")
        return FleetSettings(nats=(self.server.url,), credentials=path)

    def home(self, name: str) -> str:
        """Return a member's home."""
        return os.path.join(self.folder, name)

    def start(self, name: str, places: int) -> None:
        """Start a worker."""
        settings = self.settings(name)
        words = ["--home", self.home(name), "worker", "--nats", settings.nats[0]]
        words += ["--credentials", settings.credentials, "--places", str(places)]
        with open(os.path.join(self.folder, f"{name}.log"), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "anyplug", *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip

    def close(self) -> None:
        """End everything."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.server.stop()


@contextlib.asynccontextmanager
async def _fleet(folder: str, workers: list[str], plugin: Callable[[str], object], places: int) -> AsyncIterator[Any]:
    """Run workers with one plugin, approved for the fleet, and a gateway."""
    stage = Stage(folder, workers)
    stage.server.start()
    try:
        admin = stage.settings("admin")
        async with linked(admin, credentials.read(admin.credentials), WAIT_S) as link:
            await stores.create(link, 1)
            for name in workers:
                plugin(os.path.join(stage.home(name), "plugins"))
                stage.start(name, places)
            seat = Seat(link)
            await _until(seat, lambda: len(seat.view().workers) == len(workers))
            for one in seat.view().plugins:
                offered = seat.offered(one.name)
                await seat.approve(offered, offered.permissions, always=True)
                if offered.stays_up and not offered.tools:
                    await seat.approve(await seat.reported(offered), offered.permissions, always=True)
            await _until(seat, lambda: all(one.plugins and one.state == "up" for one in seat.view().workers))
            await _until(seat, lambda: all(one.tools for one in seat.view().plugins))
            async with Host(roots=[], home=stage.home("g"), fleet=stage.settings("g"), watch=False) as host:
                while not host.tools or len(host.plugins[0].plugin.workers) < len(workers):
                    await asyncio.sleep(0.05)
                yield stage, host
    finally:
        await asyncio.to_thread(stage.close)


async def _until(seat: Seat, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            await seat.read()
            if holds():
                return
            await asyncio.sleep(0.1)


async def _many(act: Callable[[], Awaitable[Any]], count: int, at_once: int) -> float:
    """Do something so often, with so many under way; return the seconds."""
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await act()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return time.perf_counter() - began


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Compare, and list."""
    found = await _calls(plan, os.path.join(folder, "calls"))
    found += await _growth(plan, os.path.join(folder, "growth"))
    return found + await _listing(os.path.join(folder, "listing"))


async def _calls(plan: Plan, folder: str) -> list[Row]:
    os.makedirs(folder)
    caller = Attachment("bench", yes=True)

    def write(root: str) -> None:
        sessions.write(root, NAME, sessions.ECHO)

    async with _fleet(folder, ["w1"], write, IN_FLIGHT) as (stage, host):
        [tool] = host.tools

        async def ours() -> None:
            result = await host.call(tool.name, sessions.ARGUMENTS, attachment=caller)
            assert not result.is_error, result

        async def block(act: Callable[[], Awaitable[None]], at_once: int, count: int) -> None:
            await _many(act, count, at_once)

        request, reply = await _sizes(host, ours)
        rounds = max(5, plan.calls // 100)
        count = 8 * IN_FLIGHT
        async with _bare(os.path.join(folder, "bare"), request, reply) as bare:
            alone = await medians(rounds, lambda: block(ours, 1, BLOCK), lambda: block(bare, 1, BLOCK))
            full = await medians(rounds, lambda: block(ours, IN_FLIGHT, count), lambda: block(bare, IN_FLIGHT, count))
        lost = await _time_to_lost(stage, host, caller)
    what, against = "a fleet call of an extension", f"a bare request over NATS, {request} and {reply} bytes"
    return [
        Row(what=what, against=against, measured=alone[0] / BLOCK, baseline=alone[1] / BLOCK, aim=AIM_SEQUENTIAL),
        Row(
            what=f"the same, {IN_FLIGHT} in flight",
            against=against,
            measured=full[0] / count,
            baseline=full[1] / count,
            aim=AIM_IN_FLIGHT,
        ),
        *lost,
    ]


async def _sizes(host: Host, call: Callable[[], Awaitable[None]]) -> tuple[int, int]:
    """Return how many bytes a call and its answer have, as NATS carries them."""
    assert host.fleet is not None
    assert host.fleet.link is not None
    stats = host.fleet.link.client.stats
    found = []
    for _ in range(WEIGHED):
        before = stats["out_bytes"], stats["in_bytes"]
        await call()
        found.append((stats["out_bytes"] - before[0], stats["in_bytes"] - before[1]))
    return min(sent for sent, _ in found), min(heard for _, heard in found)


@contextlib.asynccontextmanager
async def _bare(folder: str, request: int, reply: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Run a server and a process that answers, and yield what asks it: messages of so many bytes."""
    import nats  # only needed here

    os.makedirs(folder)
    server = NatsServer(folder, os.devnull)
    server.start()
    echo = subprocess.Popen(  # noqa: ASYNC220 - it is started once
        [sys.executable, os.path.join(os.path.dirname(__file__), "fleet_echo.py"), server.url, str(reply)],
        stdout=subprocess.PIPE,
    )
    try:
        assert echo.stdout is not None
        echo.stdout.readline()
        client = await nats.connect(server.url)

        async def bare() -> None:
            await client.request("echo", b"x" * request)

        yield bare
        await client.close()
    finally:
        echo.kill()
        echo.wait()
        server.stop()


async def _time_to_lost(stage: Stage, host: Host, caller: Attachment) -> list[Row]:
    """Kill the only worker, and see how soon callers know."""
    stage.processes["w1"].kill()
    stage.processes["w1"].wait()
    began = time.perf_counter()
    result = await host.call(host.tools[0].name, sessions.ARGUMENTS, attachment=caller)
    assert result.error is not None
    assert result.error.code in {"unavailable", "lost"}
    took = (time.perf_counter() - began) * 1000
    return [Row(what="`unavailable` after the only worker was killed", against="", measured=took, baseline=None)]


async def _growth(plan: Plan, folder: str) -> list[Row]:
    """Measure a tool that only waits, with more and more workers."""

    def write(root: str) -> None:
        sessions.write(root, "wait", WAITING)

    rows, first = [], 0.0
    for count in WORKERS[: 3 if plan.quick else None]:
        os.makedirs(inside := os.path.join(folder, str(count)))
        async with _fleet(inside, [f"w{n}" for n in range(count)], write, PLACES) as (_, host):
            caller = Attachment("bench", yes=True)

            async def call(host: Host = host, caller: Attachment = caller) -> None:
                result = await host.call("wait", {}, attachment=caller)
                assert not result.is_error, result

            at_once = count * PLACES
            await _many(call, at_once, at_once)
            per_call = await _many(call, at_once * 8, at_once) / 8 * 1000
        first = first or per_call
        what = f"{count} workers with {PLACES} places, a tool that waits {WAITS_S * 1000:.0f} ms: one round"
        rows.append(Row(what=what, against="1 worker", measured=per_call, baseline=first, aim=AIM_LINEAR))
    return rows


async def _listing(folder: str) -> list[Row]:
    """Start a gateway where many tools are announced."""
    names = [f"w{n}" for n in range(LISTED)]
    os.makedirs(folder)
    stage = Stage(folder, names)
    stage.server.start()
    times: dict[bool, list[float]] = {True: [], False: []}
    count = 0
    try:
        async with contextlib.AsyncExitStack() as links:
            admin = stage.settings("admin")
            await stores.create(await links.enter_async_context(_linked(admin)), 1)
            members = [await links.enter_async_context(_linked(stage.settings(name))) for name in names]
            for _ in range(3):
                await asyncio.gather(*map(_announce, members))
                for joins, taken in times.items():
                    fleet = stage.settings("g") if joins else None
                    began = time.perf_counter()
                    async with Host(roots=[], home=stage.home("g"), fleet=fleet, watch=False) as host:
                        taken.append((time.perf_counter() - began) * 1000)
                        count = max(count, sum(len(entry.plugin.tools) for entry in host.plugins))
    finally:
        stage.server.stop()
    assert count == LISTED * TOOLS
    return [
        Row(
            what=f"start of a gateway, {count:,} tools of {LISTED} workers",
            against="a host without a fleet",
            measured=statistics.median(times[True]),
            baseline=statistics.median(times[False]),
        )
    ]


def _linked(settings: FleetSettings) -> contextlib.AbstractAsyncContextManager[Link]:
    return linked(settings, credentials.read(settings.credentials), WAIT_S)


async def _announce(link: Link) -> None:
    """Announce a worker that is not there, with tools."""
    own, name = link.own, link.own.member.name
    tools = tuple(
        Tool(
            name=f"{name}_tool{n}", own_name=f"{name}_tool{n}", plugin=name, description="Does what it says. " * 5,
            input_schema=SCHEMA, program="", timeout_s=30,
        )
        for n in range(TOOLS)
    )  # fmt: skip
    offered = Offered(
        name=name, format="cyclop", version="1", description="x", digest=name, definition="f", permissions=(), tier=1,
        tools=tools, stays_up=False,
    )  # fmt: skip
    encoded = msgspec.msgpack.encode(offered, order="deterministic")
    said = Announcement(
        name=name, key=own.key, epoch="e", certificate=own.certificate, labels={}, places=8, running=0,
        is_draining=False, offers=(hash_of(encoded),), version="1", started=0.0, trust=0,
    )  # fmt: skip
    await link.store(link.subjects.described(own.key, hash_of(encoded)), encoded)
    await link.store(link.subjects.announced(own.key), own.sign(msgspec.msgpack.encode(said)))
