"""`fleet demo`: a NATS server, two workers and a gateway on this machine, in a temporary home."""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from anyplug.call.consent import Attachment
from anyplug.fleet import credentials, stores
from anyplug.fleet.administration import SERVER, Seat, write_credentials
from anyplug.fleet.nats_link import FleetError, linked
from anyplug.fleet.nats_server import NatsServer
from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.demo import examples
from anyplug.frontends.cli.fleet_view import show
from anyplug.home.scratch_folders import Scratch
from anyplug.home.settings import FleetSettings, find_home
from anyplug.host.host import Host
from anyplug.model.errors import DONE, FAILED
from anyplug.runtime.processes.guard import Guard

if TYPE_CHECKING:
    from anyplug.fleet.credentials import Role

WORKERS = ("north", "south")
PLUGINS = ("word-count", "field-kit")
CALLS = 8
SLOW = ("field-kit.slow_report", {"seconds": 20})
WAIT_S = 30.0  # for workers to start
LOOK_S = 0.1


def demo(session: Session) -> int:
    """Show calls spreading over two workers, and one of them being killed."""
    import anyio  # with the host

    scratch = Scratch(find_home(session.options.home).path)
    try:
        return anyio.run(_show, session, scratch.folder().path)
    finally:
        scratch.close()


class _Stage:
    """What the demo runs: a server, and a process for each worker."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        members = os.path.join(folder, "members")
        roles: list[tuple[Role, str]] = [("gateway", "gateway"), *(("worker", name) for name in WORKERS)]
        write_credentials(members, roles, FleetSettings().prefix)
        self.server = NatsServer(folder, os.path.join(members, SERVER))
        self._guard = Guard(folder)  # none of it outlives the demo, even if that is killed
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def settings(self, name: str) -> FleetSettings:
        """Return how a member connects."""
        return FleetSettings(
            nats=(self.server.url,), credentials=os.path.join(self._folder, "members", f"{name}.creds")
        )

    def start_server(self) -> None:
        """Start the NATS server. Raises FleetError."""
        with self._guard:
            self.server.start()

    def start_worker(self, name: str) -> None:
        """Start a worker with a home of its own."""
        home = os.path.join(self._folder, name)
        for plugin in PLUGINS:
            ignored = shutil.ignore_patterns("config.json", "__pycache__")
            shutil.copytree(os.path.join(examples(), plugin), os.path.join(home, "plugins", plugin), ignore=ignored)
        words = ["--home", home, "worker", "--nats", self.server.url]
        words += ["--credentials", self.settings(name).credentials, "--label", f"region={name}", "--places", "4"]
        with open(os.path.join(self._folder, f"{name}.log"), "wb") as log, self._guard:
            self.workers[name] = subprocess.Popen(
                [sys.executable, "-m", "anyplug", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Kill a worker as the kernel would."""
        self.workers[name].send_signal(signal.SIGKILL)
        self.workers[name].wait()

    def close(self) -> None:
        """End all of it."""
        for process in self.workers.values():
            process.terminate()
        for process in self.workers.values():
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.server.stop()
        self._guard.close()


async def _show(session: Session, folder: str) -> int:
    import anyio.to_thread  # with the host

    stage = _Stage(folder)
    try:
        with session.progress("starting nats-server and two workers"):
            stage.start_server()
            admin = stage.settings("admin")
            async with linked(admin, credentials.read(admin.credentials), WAIT_S) as link:
                await stores.create(link, 1)
                for name in WORKERS:
                    stage.start_worker(name)
                seat = Seat(link)
                await _until(seat, lambda view: len(view.workers) == len(WORKERS))
                for name in PLUGINS:
                    offered = seat.offered(name)
                    await seat.approve(offered, offered.permissions, always=True)
                    if offered.stays_up and not offered.tools:  # it reports them once it runs
                        await seat.approve(await seat.reported(offered), offered.permissions, always=True)
                await _until(seat, lambda view: all(len(one.plugins) == len(PLUGINS) for one in view.workers))
                view = seat.view()
        if not session.options.json:
            render.out(f"A NATS server, two workers and a gateway run on {stage.server.url}.", "")
            show(view)
        async with Host(roots=[], home=os.path.join(folder, "gateway"), fleet=stage.settings("gateway")) as host:
            return await _call(session, host, stage)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(stage.close)


async def _until(seat: Seat, holds: Any) -> None:
    """Wait until something holds of the fleet. Raises FleetError."""
    import anyio  # with the host

    with anyio.move_on_after(WAIT_S):
        while True:
            await seat.read()
            if holds(seat.view()):
                return
            await anyio.sleep(LOOK_S)
    raise FleetError("the workers of the demo did not start", "`anyplug doctor` shows whether plugins can run here")


async def _call(session: Session, host: Host, stage: _Stage) -> int:
    import anyio  # with the host

    ran: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    caller = Attachment("demo", yes=True)

    def note(record: Any) -> None:
        ran[record.worker] += 1
        outcomes[record.outcome] += 1

    caller.on_record = note
    async with anyio.create_task_group() as tasks:
        for _ in range(CALLS):
            tasks.start_soon(lambda: host.call("word_count", {"text": "to be or not to be"}, attachment=caller))
    counted = dict(ran)
    spread = ", ".join(f"{count} on {name}" for name, count in sorted(ran.items()))
    result = None

    async def slow() -> None:
        nonlocal result
        result = await host.call(*SLOW, attachment=caller)

    victim = ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow)
        while not victim:
            victim = next((seen.said.name for seen in host.fleet.workers if seen.mine), "") if host.fleet else ""
            await anyio.sleep(LOOK_S)
        await anyio.sleep(1)
        stage.kill(victim)
    after = await host.call("word_count", {"text": "and after that"}, attachment=caller)
    error = result.error if result is not None else None
    if session.options.json:
        session.print_json(
            {"spread": counted, "killed": victim, "lost": error.code if error else None, "after": not after.is_error}
        )
    else:
        render.out(
            "",
            f"{CALLS} calls of word_count ran: {spread}.",
            f"Then {victim} was killed in the middle of a call, which ended as '{error.code if error else 'done'}':",
            f"  {error.message if error else ''}",
            f"The next call ran on {'the other worker' if not after.is_error else 'no worker'}: {after.text}",
        )
    session.note("`docs/tutorial/fleet.md` sets one up by hand")
    return DONE if error is not None and error.code == "lost" and not after.is_error else FAILED
