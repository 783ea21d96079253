"""Fleets for tests: a real NATS server with a user for each member, workers, and gateways."""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import anyio
import msgspec

from anyplug.fleet import credentials, stores
from anyplug.fleet.administration import SERVER, Seat, write_credentials
from anyplug.fleet.messages import Offered, Run, attempt_id
from anyplug.fleet.nats_link import Link, linked
from anyplug.fleet.nats_server import NatsServer
from anyplug.frontends.worker.worker import Worker
from anyplug.home.settings import FleetSettings
from anyplug.host.host import Host

if TYPE_CHECKING:
    from anyplug.fleet.credentials import Role

WAIT_S = 30.0  # for anything to become true


class Fleet:
    """One fleet: `async with Fleet(folder, workers=["w1"]) as fleet`."""

    def __init__(self, folder: Any, *, workers: tuple[str, ...] = ("w1",), gateways: tuple[str, ...] = ("g1",)) -> None:
        self.folder = str(folder)
        self.members = os.path.join(self.folder, "members")
        roles: list[tuple[Role, str]] = [("gateway", name) for name in gateways]
        roles += [("worker", name) for name in workers]
        roles.append(("observer", "o1"))
        write_credentials(self.members, roles, "ap")
        self.server = NatsServer(self.folder, os.path.join(self.members, SERVER))

    async def __aenter__(self) -> Self:
        self.server.start()
        async with self.link("admin") as link:
            await stores.create(link, 1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.stop()

    def settings(self, name: str) -> FleetSettings:
        return FleetSettings(nats=(self.server.url,), credentials=os.path.join(self.members, f"{name}.creds"))

    @asynccontextmanager
    async def link(self, name: str) -> AsyncIterator[Link]:
        settings = self.settings(name)
        async with linked(settings, credentials.read(settings.credentials), WAIT_S) as link:
            yield link

    @asynccontextmanager
    async def worker(self, name: str, root: Any, *, places: int = 4, **more: Any) -> AsyncIterator[Worker]:
        """Run a worker in this process, with the plugins in a folder, and drain it at the end."""
        home = os.path.join(self.folder, name)
        roots = [root, os.path.join(home, "plugins")]
        async with self.link(name) as link, Host(roots=roots, home=home) as host:
            worker = Worker(link, host, places=places, **more)
            worker.host = host  # type: ignore[attr-defined]  # for tests
            leaving, ready = anyio.Event(), anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.serve, leaving, ready.set)
                await ready.wait()
                yield worker
                leaving.set()

    def gateway(self, name: str = "g1", **more: Any) -> Host:
        """Return a host in the fleet, with no plugins of its own unless `roots` are given."""
        more = {"roots": [], **more}
        return Host(home=os.path.join(self.folder, name), fleet=self.settings(name), watch=False, **more)

    @asynccontextmanager
    async def seat(self, name: str = "admin") -> AsyncIterator[Seat]:
        async with self.link(name) as link:
            yield Seat(link)

    async def approve(self, *names: str, workers: int = 1, **more: Any) -> None:
        """Approve plugins, and wait until so many workers can run them."""
        async with self.seat() as seat:
            for name in names:
                await until_of(seat, lambda name=name: any(one.name == name for one in seat.view().plugins))
                offered = seat.offered(name)
                granted = more.get("granted", offered.permissions)
                await seat.approve(offered, granted, always=True)
                if offered.stays_up and not offered.tools:
                    await seat.approve(await seat.reported(offered), granted, always=True)
            await until_of(
                seat,
                lambda: sum(set(names) <= set(one.plugins) for one in seat.view().workers) >= workers,
            )

    async def revoke(self, name: str) -> None:
        async with self.seat() as seat:
            await seat.read()
            assert await seat.revoke(name)


def worker_process(fleet: Fleet, name: str, home: Path) -> subprocess.Popen[bytes]:
    """Start a worker as people do, with its log in its home."""
    settings = fleet.settings(name)
    words = ["--home", str(home), "worker", "--nats", settings.nats[0], "--credentials", settings.credentials]
    with open(home / "worker.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "anyplug", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home
        )


async def until_of(seat: Seat, holds: Callable[[], bool]) -> None:
    """Wait until something holds of what a seat sees."""
    with anyio.fail_after(WAIT_S):
        while True:
            await seat.read()
            if holds():
                return
            await anyio.sleep(0.05)


async def until(holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    with anyio.fail_after(WAIT_S):
        while not holds():
            await anyio.sleep(0.02)


def run_of(offered: Offered, notes: Path, **changes: Any) -> Run:
    """Return a call of a plugin's first tool as a gateway sends it."""
    run = Run(
        id=attempt_id(time.time() + 5),
        call="1",
        tool=offered.tools[0].own_name,
        plugin=offered.name,
        digest=offered.digest,
        definition=offered.definition,
        granted=offered.permissions,
        serial=0,
        arguments={"text": "x", "folder": str(notes)},
        caller="test",
        agent="",
        chain=(),
        verdict="allowed",
        by="test",
    )
    return msgspec.structs.replace(run, **changes)
