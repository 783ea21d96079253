"""A worker: a host whose plugins the fleet may use.

It trusts a gateway for who asked and what the gates said, and nobody for what may run: that the admin signed, for this
digest with these grants. Approvals of the fleet become approvals of its own host, so the call takes the same path as
any other there: checked, confined, recorded.
"""

import asyncio
import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread
import msgspec

from anyplug import __version__
from anyplug.audit.audit_log import Audit
from anyplug.call.consent import Attachment
from anyplug.call.job_store import Job
from anyplug.catalog.approvals import definition
from anyplug.catalog.catalog import Catalog
from anyplug.catalog.offers import NOT_RUNNING
from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.fleet import approved_tools, fleet_policies
from anyplug.fleet.bundles import Pulls
from anyplug.fleet.directory import Room, hash_of
from anyplug.fleet.fleet_secrets import WorkerSecrets
from anyplug.fleet.fleet_trust import Trust
from anyplug.fleet.messages import BEAT_S, RENEW_S, Announcement, Approved, AskedJob, JobSaid, Offered, approval_key
from anyplug.fleet.nats_link import FleetError, Link
from anyplug.fleet.trail import Sender
from anyplug.formats import registry
from anyplug.frontends.worker.worker_calls import WorkerCalls
from anyplug.frontends.worker.worker_jobs import WorkerJobs
from anyplug.home.location import make_private
from anyplug.model.errors import AnyplugError, CallError, StoreError
from anyplug.model.types import Plugin, Progress, Result, Tool

if TYPE_CHECKING:
    from anyplug.home.settings import Home

REFRESH_S = 1200.0  # a third of the time for which descriptions of plugins are kept
DRAIN_S = 60.0  # for running calls, when a worker is ended
TRY_AGAIN_S = 10.0  # after a plugin could not be set up
PLACES_PER_PROCESSOR = 4  # tools wait more than they compute
MIRRORED = "fleet-approvals.json"  # in the home: the folders whose approval is the fleet's


class Hosted(Protocol):
    """What a worker needs of its host."""

    policy_version: str

    @property
    def snapshot(self) -> Snapshot:
        """What is loaded now."""
        ...

    @property
    def catalog(self) -> Catalog:
        """Where plugins come from."""
        ...

    @property
    def audit(self) -> Audit:
        """The record of all its calls."""
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        attachment: Attachment | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Call a tool."""
        ...

    async def approve(
        self, plugin: Plugin, *, granted: tuple[str, ...] | None = None, always: bool = False, seen: str | None = None
    ) -> str:
        """Set a plugin up, and approve it."""
        ...

    async def look_again(self) -> None:
        """Read all plugins again."""
        ...

    def job(self, name: str) -> Job:
        """Return a job; raises JobNotFound and StoreError."""
        ...

    def cancel_job(self, name: str) -> None:
        """Cancel a job."""
        ...


class Worker:
    """One worker of a fleet."""

    def __init__(
        self,
        link: Link,
        host: Hosted,
        *,
        labels: Mapping[str, str] | None = None,
        places: int = 0,
        pulls: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`labels` say what it has; it runs so many calls at once as it has `places`; `tell` is for its log.

        If it `pulls`, it fetches the plugins that the admin published.
        """
        self._link = link
        self._host = host
        self._labels = {"system": platform.system().lower(), "machine": platform.machine(), **(labels or {})}
        self._places = places or PLACES_PER_PROCESSOR * (os.cpu_count() or 1)
        self._tell = tell
        self._pulls = Pulls(link, host.catalog, tell) if pulls else None
        self._epoch = os.urandom(8).hex()
        self._started = time.time()
        self._is_draining = False
        self._stir = asyncio.Event()  # something to look at: decisions, plugins
        self._faults: dict[str, tuple[str, float]] = {}  # why an approved plugin cannot run here, and since when
        self._told: set[str] = set()  # what would be told with each beat
        self._policy_fault = ""  # why the policies that are delivered are not applied
        self._stored: dict[str, float] = {}  # by hash: when a description was stored
        self.offered: dict[str, Offered] = {}  # by hash
        self._indexed: Snapshot | None = None  # what `_tools` is of
        self._tools: dict[tuple[str, str], dict[str, Tool]] = {}  # by plugin and digest, then by their own names
        self.trust = Trust(link, self._stir.set)
        self._secrets = WorkerSecrets(link, host.catalog, self._stir.set, tell)
        self.calls = WorkerCalls(link, self._epoch, self._places, self)
        self._jobs = WorkerJobs(link, self.calls, self)

    async def serve(self, leaving: anyio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Offer the host's plugins until `leaving`, then finish the running calls. Raises FleetError."""
        await self.trust.follow()
        await self.trust.confirm()
        await self._secrets.follow()
        await self._keep_policies()
        await self._adopt()
        self._link.on_back.append(self._was_back)
        async with anyio.create_task_group() as tasks:
            self.calls.tasks = tasks
            tasks.start_soon(self.calls.keep_running)
            await self._link.listen_quickly(self._link.subjects.run(self._link.own.key), self.calls.heard)
            await self._announce()
            ready()
            sender = Sender(self._link, self._host.audit, self._host.catalog.home.path, self._tell)
            for keep in (
                self._keep_announced,
                self._keep_trusted,
                self._keep_current,
                self._jobs.keep_taking,
                sender.keep_sending,
            ):
                tasks.start_soon(keep)
            await leaving.wait()
            self._is_draining = self.calls.is_draining = True
            with suppress(FleetError):
                await self._announce()
            with anyio.move_on_after(DRAIN_S):
                await self.calls.drained()
            await sender.finish()
            tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), suppress(FleetError):
            await self._announce(has_left=True)

    def tool_of(self, plugin: str, digest: str, own_name: str) -> Tool | None:
        """Return the tool that a call means."""
        snapshot = self._host.snapshot
        if snapshot is not self._indexed:
            self._indexed, self._tools = snapshot, {}
            for entry in reversed(snapshot.entries):  # the first of several counts
                if entry.state == "approved":
                    tools = {tool.own_name: tool for tool in reversed(entry.plugin.tools)}
                    self._tools[entry.name, entry.standing.digest] = tools
        return self._tools.get((plugin, digest), {}).get(own_name)

    async def run(
        self, tool: Tool, arguments: dict[str, Any], attachment: Attachment, progress: Progress | None
    ) -> Result:
        """Run a call."""
        return await self._host.call(
            f"{tool.plugin}/{tool.own_name}", arguments, attachment=attachment, progress=progress
        )

    async def job(self, asked: AskedJob) -> JobSaid:
        """Return where a job is; cancel it if asked to."""
        return await self._jobs.said(asked)

    def queues(self) -> set[str]:
        """Return the approvals of the plugins with asynchronous tools that can run here now."""
        return {
            offered.approval_key
            for offered in self.offered.values()
            if not offered.problem and any(tool.is_async for tool in offered.tools)
        }

    def stored_job(self, name: str) -> Job:
        """Return a job of this host; raises JobNotFound and StoreError."""
        return self._host.job(name)

    def cancel_job(self, name: str) -> None:
        """Cancel a job of this host."""
        self._host.cancel_job(name)

    def log(self, text: str) -> None:
        """Note something that is wrong."""
        self._tell(text)

    def _was_back(self) -> None:
        self._link.back.set()

    async def _keep_announced(self) -> None:
        while True:
            await anyio.sleep(BEAT_S)
            try:
                await self._announce()
            except FleetError as error:
                self._tell(f"{error.message}")

    async def _keep_trusted(self) -> None:
        """Confirm what is approved, and read all of it after the connection was gone."""
        was_confirmed = True
        while True:
            with anyio.move_on_after(RENEW_S):
                await self._link.back.wait()
            try:
                if self._link.back.is_set():
                    self._link.back.clear()
                    await self.trust.read()
                    await self._secrets.read()
                await self.trust.confirm()
            except FleetError as error:
                self._tell(f"the approvals cannot be confirmed: {error.message}")
            if was_confirmed != self.trust.is_confirmed:
                was_confirmed = self.trust.is_confirmed
                self._tell("calls run again" if was_confirmed else "no call runs until the approvals are confirmed")

    async def _keep_current(self) -> None:
        """Follow decisions, and what the host has."""
        while True:
            with anyio.move_on_after(BEAT_S):
                await self._stir.wait()
            self._stir.clear()
            try:
                await self._keep_policies()
                await self._adopt()
                await self._announce()
            except (FleetError, StoreError) as error:
                self._tell(error.message)

    async def _keep_policies(self) -> None:
        """Apply the policies that the admin distributes."""
        home, fault = self._host.catalog.home.path, ""
        if self.trust.policies is not None:
            admin = self._link.own.member.admin
            try:
                await anyio.to_thread.run_sync(fleet_policies.keep, home, self.trust.policies, admin)
            except FleetError as error:
                fault = f"{error.message} ({error.hint})"
        if fault and fault != self._policy_fault:
            self._tell(fault)
        self._policy_fault = fault
        self._host.policy_version = fleet_policies.kept(home)

    async def _adopt(self) -> None:
        """Make the fleet's approvals those of this host, and describe what it offers."""
        mirrored = _read_mirrored(self._host.catalog.home)
        offered: dict[str, Offered] = {}
        room = Room()
        for entry in self._host.snapshot.entries:
            if not _is_offered(entry):
                continue
            try:
                digest = await anyio.to_thread.run_sync(self._host.catalog.digest, entry.plugin)
            except OSError as error:
                self._tell(f"{entry.name} is not offered: cannot read {error.filename}: {error.strerror}")
                continue
            defined = definition(entry.plugin)
            approval = self.trust.approval(approval_key(digest.value, defined))
            problem = await self._follow_decision(entry.plugin, digest.value, approval, mirrored)
            if not problem and entry.is_down:
                problem = next(one.message for one in entry.problems if one.code == NOT_RUNNING)
            shown = describe(entry.plugin, digest.value, problem)
            encoded = msgspec.msgpack.encode(shown, order="deterministic")
            if why := room.take(len(encoded), len(shown.tools) + len(shown.held)):
                self._tell_once(f"{entry.name} is not offered: {why}")
                continue
            offered[hash_of(encoded)] = shown
        self.offered = offered
        if self._pulls is not None:
            await self._pull(self._pulls, {shown.approval_key for shown in offered.values()})

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)

    async def _pull(self, pulls: Pulls, present: set[str]) -> None:
        """Fetch what is approved and published, and not here."""
        missing = [
            one for key, one in self.trust.approvals.items() if one.bundle and not one.is_revoked and key not in present
        ]
        fetched = [await pulls.pull(approval) for approval in missing]
        if any(fetched):
            await self._host.look_again()
            self._stir.set()

    async def _follow_decision(
        self, plugin: Plugin, digest: str, approval: Approved | None, mirrored: dict[str, str]
    ) -> str:
        """Bring the host's own decision about a plugin in line with the fleet's; return why it cannot run here."""
        approvals = self._host.catalog.approvals
        own = approvals.of(plugin)
        if own is not None and not own.approved:
            return "it was denied on this machine"
        if approval is None:
            if own is not None and mirrored.get(plugin.path):
                await anyio.to_thread.run_sync(approvals.revoke, plugin)
                await self._secrets.forget(plugin)
                _write_mirrored(self._host.catalog.home, mirrored, plugin.path, "")
                await self._host.look_again()
            return "it is not approved for the fleet"
        await self._secrets.apply(plugin)
        term = f"{approval.digest} {approval.definition} {sorted(approval.granted)}"
        has_all = not approved_tools.has_any(approval, plugin.held)  # that were held back here
        if mirrored.get(plugin.path) == term and own is not None and own.digest == digest and has_all:
            return ""
        fault, since = self._faults.get(f"{plugin.path} {term}", ("", 0.0))
        if fault and time.monotonic() - since < TRY_AGAIN_S:
            return fault
        try:
            await self._host.approve(plugin, granted=approval.granted, always=True, seen=digest)
        except AnyplugError as error:
            self._tell(f"{plugin.name} is approved for the fleet, but cannot run here: {error.message}")
            if isinstance(error, CallError):
                self._faults[f"{plugin.path} {term}"] = (error.message, time.monotonic())
            return error.message
        _write_mirrored(self._host.catalog.home, mirrored, plugin.path, term)
        self._stir.set()  # what it registers was not known before
        return ""

    async def _announce(self, *, has_left: bool = False) -> None:
        """Announce this worker, and what it offers, or that it has left. Raises FleetError."""
        link, now = self._link, time.monotonic()
        for name, offered in self.offered.items():
            if now - self._stored.get(name, -REFRESH_S) >= REFRESH_S:
                encoded = msgspec.msgpack.encode(offered, order="deterministic")
                await link.store(link.subjects.described(link.own.key, name), encoded)
                self._stored[name] = now
        said = Announcement(
            name=link.own.member.name,
            key=link.own.key,
            epoch=self._epoch,
            certificate=link.own.certificate,
            labels=self._labels,
            places=self._places,
            running=self.calls.running,
            is_draining=self._is_draining,
            offers=tuple(self.offered),
            version=__version__,
            started=self._started,
            trust=self.trust.serial,
            at=time.time(),
            has_left=has_left,
        )
        signed = link.own.sign(msgspec.msgpack.encode(said))
        await link.send(link.subjects.here(link.own.key), [signed])
        await link.store(link.subjects.announced(link.own.key), signed)


def _is_offered(entry: Entry) -> bool:
    plugin = entry.plugin
    return not (
        plugin.is_ours
        or plugin.in_fleet
        or plugin.explicit
        or plugin is registry.BUILTIN
        or entry.state in {"broken", "shadowed", "disabled"}
    )


def describe(plugin: Plugin, digest: str, problem: str = "") -> Offered:
    """Return what the fleet is told of a plugin."""
    return Offered(
        name=plugin.name,
        format=plugin.format,
        version=plugin.version,
        description=plugin.description,
        digest=digest,
        definition=definition(plugin),
        permissions=plugin.permissions,
        tier=plugin.tier,
        tools=tuple(msgspec.structs.replace(tool, program="") for tool in plugin.tools),
        stays_up=plugin.stays_up,
        problem=problem,
        held=tuple(msgspec.structs.replace(tool, program="") for tool in plugin.held),
    )


def _read_mirrored(home: "Home") -> dict[str, str]:
    """Return which approvals of this host are the fleet's, by folder, each with what it allows."""
    try:
        with open(os.path.join(home.path, MIRRORED), "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _write_mirrored(home: "Home", mirrored: dict[str, str], path: str, term: str) -> None:
    mirrored[path] = term
    if not term:
        del mirrored[path]
    make_private(home.path)
    new = os.path.join(home.path, f"{MIRRORED}.new")
    with open(new, "wb") as file:
        file.write(msgspec.json.encode(mirrored))
    os.replace(new, os.path.join(home.path, MIRRORED))
