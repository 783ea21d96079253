"""The fleet as a host sees it: plugins for its snapshot, where they stand, and a way to run their calls.

It stays connected in the background. Without a connection its plugins stay listed, and their calls are unavailable.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

import anyio.to_thread
import msgspec

from anyplug.audit.audit_log import Record
from anyplug.catalog.approvals import Standing
from anyplug.catalog.pins import TOOLS_CHANGED
from anyplug.fleet import approved_tools, fleet_policies
from anyplug.fleet.attempts import WITHDRAWN, Attempts, LostRepeatable, NotRun, Ran
from anyplug.fleet.directory import Directory, Seen
from anyplug.fleet.fleet_trust import Trust
from anyplug.fleet.gateway_jobs import CANCEL_S, GatewayJobs, JobThere, Ordered
from anyplug.fleet.messages import BEAT_S, Offered
from anyplug.fleet.nats_link import FleetError, Link, linked, need_libraries, own_credentials
from anyplug.fleet.overview import FleetView, view_of
from anyplug.fleet.trail import Rows, Sender
from anyplug.formats import registry
from anyplug.home.location import make_private
from anyplug.home.settings import FleetSettings, Home
from anyplug.model import permissions
from anyplug.model.errors import CallError, ConfigError, Unavailable, WorkersFull
from anyplug.model.types import IN_FLEET, Call, File, Plugin, Problem
from anyplug.model.untrusted_text import for_people

FIRST_S = 3.0  # that a starting host waits for the fleet's tools
AGAIN_S = 1.0  # before the next attempt to read what is stored
RETRY_AFTER_MS = 500  # what callers are told when all workers are full
AGAIN_THERE = frozenset({"restarted", "fenced"})  # why a worker did not run a call that it would run now
LONGEST_NAME = 100  # characters
MOST_SHOWN = 10  # names of ignored tools


class Gateway:
    """One host's place in a fleet."""

    def __init__(
        self, settings: FleetSettings, home: Home, audit: Rows, changed: Callable[[], None], tell: Callable[[str], None]
    ) -> None:
        """Read the credentials. `changed` is called when the fleet offers something else.

        Raises ConfigError and FleetError.
        """
        need_libraries()
        self._settings = settings
        self.policy_version = fleet_policies.kept(home.path)
        self._home = home
        self._audit = audit
        self._own = own_credentials(settings)
        if self._own.member.role != "gateway":
            role = self._own.member.role
            raise ConfigError(
                f"{self._own.path} has the credentials of a fleet's {role}, not of a gateway",
                "`anyplug fleet config` creates credentials for gateways",
            )
        self._changed = changed
        self._tell = tell
        self._ready = asyncio.Event()
        self._stale = asyncio.Event()  # the connection was gone
        self._task: asyncio.Task[None] | None = None
        self._plugins: list[Plugin] | None = None  # until something changes
        self._offered: dict[str, Offered] = {}  # by the path of the plugin that was made of it
        self._last: dict[str, tuple[int, Offered]] = {}  # by approval, so that a call of what is gone says so
        self._why = "it is not connected yet"
        self.link: Link | None = None
        self.directory: Directory | None = None
        self.trust: Trust | None = None
        self._attempts: Attempts | None = None
        self._jobs: GatewayJobs | None = None
        self._is_leaving = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._stay())
        try:
            await asyncio.wait_for(self._ready.wait(), FIRST_S)
        except TimeoutError:
            self._tell(f"the fleet at {', '.join(self._settings.nats)} does not answer yet")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._is_leaving = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _stay(self) -> None:
        """Stay connected, and follow what is announced and decided."""
        try:
            async with linked(self._settings, self._own) as link:
                self.link = link
                self.trust = Trust(link, self._follow_decisions)
                self.directory = Directory(link, self.trust, self._look_again)
                link.on_back.append(self._stale.set)
                sender = Sender(link, self._audit, self._home.path, self._tell)
                sending = asyncio.get_running_loop().create_task(sender.keep_sending())
                try:
                    async with Attempts(link, self.trust.is_withdrawn) as self._attempts:
                        self._jobs = GatewayJobs(link, self._attempts, self.trust)
                        await self._follow(link)
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
                    await sender.finish()
        except FleetError as error:  # the server knows us, and does not let us in
            self._fail(error)

    async def _follow(self, link: Link) -> None:
        assert self.directory is not None
        assert self.trust is not None
        is_first = True
        while True:
            try:
                for part in (self.trust, self.directory):
                    await (part.follow() if is_first else part.read())
                is_first, self._why = False, ""
                self._stale.clear()
                self._ready.set()
            except FleetError as error:
                if self._why != error.message:
                    self._fail(error)
                await asyncio.sleep(AGAIN_S)
                continue
            while not self._stale.is_set():
                try:
                    await asyncio.wait_for(self._stale.wait(), BEAT_S)
                except TimeoutError:
                    self.directory.tidy()

    def _fail(self, error: FleetError) -> None:
        self._why = error.message
        self._tell(f"the fleet's tools are missing: {error.message}" + (f" ({error.hint})" if error.hint else ""))
        self._ready.set()

    def _follow_decisions(self) -> None:
        if self.trust is not None and self.trust.policies is not None:
            try:
                fleet_policies.keep(self._home.path, self.trust.policies, self._own.member.admin)
            except FleetError as error:
                self._tell(f"{error.message} ({error.hint})")
            self.policy_version = fleet_policies.kept(self._home.path)
        self._look_again()

    def _look_again(self) -> None:
        self._plugins = None
        self._changed()

    @property
    def workers(self) -> list[Seen]:
        """The workers that are known."""
        return list(self.directory.workers.values()) if self.directory is not None else []

    def view(self) -> FleetView:
        """Return the fleet as this host knows it."""
        url = ", ".join(self._settings.nats)
        if self.trust is None or self.directory is None:
            return FleetView(url=url, workers=[], plugins=[])
        return view_of(url, self.trust, self.directory)

    def plugins(self) -> list[Plugin]:
        """Return what workers offer, approved plugins first; those of one name in one digest are one plugin."""
        if self._plugins is None:
            self._plugins = self._made()
        return self._plugins

    def _made(self) -> list[Plugin]:
        if self.directory is None or self.trust is None:
            return []
        found: dict[str, tuple[Offered, list[Problem]]] = {}
        for key in self.trust.approvals:
            approval = self.trust.approval(key)
            if approval is None:
                self._last.pop(key, None)
            else:
                described = self.directory.tools(key)
                decided, last = self._last.get(key, (0, None))
                if last is not None and (decided == approval.serial or approval.tools is not None):
                    described = {**{tool.name: tool for tool in last.tools}, **described}
                offered = approved_tools.approved(approval, described.values())
                self._last[key] = approval.serial, offered
                ignored = self.directory.ignored(key)
                if offered.tools or ignored or self.directory.offering(key):
                    found[key] = offered, _ignored(approval.name, ignored)
        found.update((key, (offered, [])) for key, offered in self.directory.new().items())
        self._offered.clear()
        made = []
        for key, (offered, problems) in found.items():
            # A worker may say any name and format.
            if offered.format in registry.BY_NAME and _plain(offered.name) == offered.name:
                able = [seen.said.name for seen in self._able(key)]
                plugin = _plugin(offered, tuple(sorted(able)), problems)
                self._offered[plugin.path] = offered
                made.append(plugin)

        def order(plugin: Plugin) -> tuple[bool, str, str]:
            return not self._approved(self._offered[plugin.path].approval_key), plugin.name, plugin.path

        return sorted(made, key=order)

    def _approved(self, key: str) -> bool:
        return self.trust is not None and self.trust.approval(key) is not None

    def _is_withdrawn(self, seen: Seen) -> bool:
        return self.trust is not None and self.trust.is_withdrawn(seen.key)

    def standing(self, plugin: Plugin) -> Standing:
        """Return where a plugin of the fleet stands: what its admin decided."""
        offered = self._offered.get(plugin.path)
        approval = self.trust.approval(offered.approval_key) if offered is not None and self.trust is not None else None
        if approval is None or offered is None:
            return Standing(state="new", reason=f"the fleet's admin approves it: `anyplug fleet approve {plugin.name}`")
        return Standing(
            state="approved",
            granted=approval.granted,
            always=approval.always,
            digest=approval.digest,
            since=approval.since or approval.at,
        )

    async def run(self, call: Call, standing: Standing, record: Record, job: str) -> Ran:
        """Run a call on a worker, as a job if it has an id as one; raises CallError.

        If it is cancelled, so is the call at the worker; a job goes on there if only this host ends.
        """
        offered = self._offered.get(call.plugin.path)
        if offered is None or self.directory is None or self._attempts is None or self.trust is None:
            raise self._unavailable(call, self._why or "no worker offers it")
        if job and self._jobs is not None:
            self._choose(call, offered.approval_key, {})
            able = partial(self._able, offered.approval_key)
            ordered = await self._jobs.order(job, call, offered, able, standing, record)
            if ordered is not None:
                return await self._job_ended(ordered, self._jobs, call, record)
        refusals: dict[str, NotRun] = {}
        again: set[str] = set()
        lost: LostRepeatable | None = None
        lost_at = ""
        while True:
            try:
                seen = self._choose(call, offered.approval_key, refusals)
            except CallError:
                if lost is not None:  # it may have run, so it is not just unavailable
                    record.worker = lost_at
                    raise lost from None
                raise
            record.worker = seen.said.name
            try:
                ended = await self._attempts.attempt(seen, call, offered, standing, record, self.trust.serial)
            except LostRepeatable as error:
                lost, lost_at = error, seen.said.name
                refusals[seen.key] = NotRun(seen.said.name, "lost", "it lost the call")
                continue
            if isinstance(ended, Ran):
                return await self._received(call, ended)
            record.worker = ""
            if ended.reason in AGAIN_THERE and seen.key not in again:
                again.add(seen.key)
            else:
                refusals[seen.key] = ended

    async def _job_ended(self, ordered: Ordered, jobs: GatewayJobs, call: Call, record: Record) -> Ran:
        there: Seen | None = None

        def claimed(worker: str) -> None:
            nonlocal there
            record.worker = worker
            if there is None and (there := next((one for one in self.workers if one.said.name == worker), None)):
                there.mine += 1

        try:
            ended = await jobs.end_of(ordered, claimed)
        except anyio.get_cancelled_exc_class():
            if not self._is_leaving:
                with anyio.move_on_after(CANCEL_S, shield=True):
                    await jobs.cancel(ordered.run.id)
            raise
        finally:
            if there is not None:
                there.mine -= 1
        return await self._received(call, ended)

    async def job(self, id: str, call: Call, *, cancel: bool) -> JobThere | None:
        """Return a job of any gateway of the fleet for a call that asks for it, or None.

        Raises CallError.
        """
        if self._jobs is None:
            return None
        try:
            there = await self._jobs.find(id, cancel=cancel)
        except FleetError as error:
            raise Unavailable(f"the fleet cannot be asked for job {id}: {error.message}", error.hint) from error
        if there is None or there.ran is None:
            return there
        return msgspec.structs.replace(there, ran=await self._received(call, there.ran))

    async def _received(self, call: Call, ended: Ran) -> Ran:
        """Return how a call ended, with its files on this machine. Raises Unavailable."""
        ended = _attributed(ended)
        has_files = any(isinstance(block, File) for block in ended.result.content)
        return await anyio.to_thread.run_sync(self._with_files, call, ended) if has_files else ended

    def _able(self, approval: str) -> list[Seen]:
        """Return the members that say that they can run what needs this approval now."""
        assert self.directory is not None
        return [seen for seen in self.directory.able(approval) if not self._is_withdrawn(seen)]

    def _choose(self, call: Call, approval: str, refusals: dict[str, NotRun]) -> Seen:
        """Return the least loaded worker that has not refused the call; raises Unavailable and WorkersFull."""
        assert self.directory is not None
        assert self.link is not None
        if not self.link.is_up:
            raise self._unavailable(call, f"NATS at {self.link.url} cannot be reached at the moment")
        able = [seen for seen in self._able(approval) if not seen.said.is_draining and seen.key not in refusals]
        if len(able) == 1:
            return able[0]
        if able:
            return min(able, key=lambda seen: (seen.is_silent, seen.load, seen.mine, seen.key))
        if refusals and {refused.reason for refused in refusals.values()} == {"overloaded"}:
            said = "; ".join(f"worker '{refused.worker}': {refused.message}" for refused in refusals.values())
            raise WorkersFull(
                f"all workers that offer '{call.tool.name}' are full: {said}", retry_after_ms=RETRY_AFTER_MS
            )
        reasons = {refused.worker: refused.message for refused in refusals.values()}
        for seen in self.directory.offering(approval):
            problems = (one.problem for one in self.directory.offered_by(seen) if one.approval_key == approval)
            why = "it is being drained" if seen.said.is_draining else next(problems, "")
            why = WITHDRAWN if self._is_withdrawn(seen) else why
            reasons.setdefault(seen.said.name, why)
        told = "; ".join(f"worker '{name}': {why}" for name, why in sorted(reasons.items()))
        raise self._unavailable(call, told or "no worker offers it now")

    def _with_files(self, call: Call, ran: Ran) -> Ran:
        """Keep the files of a result on this machine; raises Unavailable. Blocks.

        A file whose content did not come with the result is left out: its path is the worker's word for one of ours.
        """
        folder = os.path.join(self._home.files(call.plugin), call.id)
        blocks = [block for block in ran.result.content if isinstance(block, File)]
        paths: dict[int, str] = {}
        try:
            make_private(folder)
            for number, (block, data) in enumerate(zip(blocks, ran.files, strict=False)):
                path = os.path.join(folder, f"{number}-{_plain(block.name)}" if number else _plain(block.name))
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(data)
                paths[id(block)] = path
        except OSError as error:
            why = f"the files of the result cannot be kept: {error.strerror}"
            raise Unavailable(why, f"check the disk's free space and the permissions of {folder}") from error
        content = tuple(
            msgspec.structs.replace(block, path=paths[id(block)]) if id(block) in paths else block
            for block in ran.result.content
            if not isinstance(block, File) or id(block) in paths
        )
        return msgspec.structs.replace(ran, result=msgspec.structs.replace(ran.result, content=content))

    def _unavailable(self, call: Call, why: str) -> Unavailable:
        return Unavailable(f"no worker can run '{call.tool.name}': {why}", "`anyplug fleet status` shows the workers")


def _attributed(ran: Ran) -> Ran:
    """Attribute the remarks to the worker: agents read remarks without a name as ours."""
    if not ran.result.remarks:
        return ran
    remarks = tuple(f"worker '{ran.worker}': {for_people(remark)}" for remark in ran.result.remarks)
    return msgspec.structs.replace(ran, result=msgspec.structs.replace(ran.result, remarks=remarks))


def _ignored(plugin: str, ignored: list[tuple[str, str]]) -> list[Problem]:
    """Report the tools that workers describe and the admin did not approve so."""
    names = sorted({name for _, name in ignored})
    if not names:
        return []
    shown = ", ".join(map(for_people, names[:MOST_SHOWN])) + (", …" if len(names) > MOST_SHOWN else "")
    said = f"the fleet's admin did not approve these tools as workers describe them: {shown}"
    cure = f"the fleet's admin approves them: `anyplug fleet approve {plugin}`"
    return [Problem(TOOLS_CHANGED, said, cure, "warning")]


def _plugin(offered: Offered, workers: tuple[str, ...], problems: list[Problem]) -> Plugin:
    """Return the plugin that the snapshot lists for what workers offer."""
    nobody = Problem("no_worker", "no worker can run it now", "`anyplug fleet status` shows the workers", "warning")
    return Plugin(
        name=offered.name,
        format=offered.format,
        path=f"{IN_FLEET}{offered.name}@{offered.approval_key.rpartition('.')[2]}",
        version=offered.version,
        description=offered.description,
        permissions=offered.permissions,
        tier=permissions.tier(offered.permissions),
        tools=offered.tools,
        in_fleet=True,
        workers=workers,
        problems=(*problems, *(() if workers else (nobody,))),
    )


def _plain(name: str) -> str:
    """Return a name that stays in its folder: a worker may say any."""
    last = name.rpartition("/")[2].replace("\0", "")[:LONGEST_NAME]
    return last if last.strip(".") else "file"
