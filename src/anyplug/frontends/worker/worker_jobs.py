"""The jobs of a worker: it takes orders while it has places, claims each before it runs, and keeps the results."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from anyplug.call.consent import Attachment
from anyplug.call.job_runs import outcome_of
from anyplug.call.job_store import Job, JobNotFound
from anyplug.fleet import job_orders
from anyplug.fleet.credentials import Member
from anyplug.fleet.fleet_trust import Trust
from anyplug.fleet.job_orders import Order, Read, SealedForOthers
from anyplug.fleet.messages import BEAT_S, AskedJob, JobSaid, Run, queue_of
from anyplug.fleet.nats_link import ANSWER_S, FleetError, Link
from anyplug.fleet.sealing import NotOpened
from anyplug.frontends.worker.worker_calls import WorkerCalls, caller_of, done_of
from anyplug.model.errors import StoreError
from anyplug.model.types import Progress, Result, Tool

if TYPE_CHECKING:  # takes 180 ms to import
    from nats.aio.msg import Msg

    from anyplug.audit.audit_log import Record

FETCH_S = 5.0  # one wait for an order
FULL_S = 0.2  # between two looks for a free place
AGAIN_S = 1.0  # before an order that cannot run here now is offered again


class JobHost(Protocol):
    """What the jobs of a worker need of it."""

    trust: Trust

    def queues(self) -> set[str]:
        """Return the approvals of the plugins with asynchronous tools that can run here now."""
        ...

    def tool_of(self, plugin: str, digest: str, own_name: str) -> Tool | None:
        """Return the tool that a call means, if it can run now."""
        ...

    async def run(
        self, tool: Tool, arguments: dict[str, Any], attachment: Attachment, progress: Progress | None
    ) -> Result:
        """Run a call."""
        ...

    def stored_job(self, name: str) -> Job:
        """Return a job of this host; raises JobNotFound and StoreError."""
        ...

    def cancel_job(self, name: str) -> None:
        """Cancel a job of this host."""
        ...

    def log(self, text: str) -> None:
        """Note something that is wrong."""
        ...


def name_of(id: str) -> str:
    """Return the name of a fleet's job among those of the host, which no gateway can ask for."""
    return f"fleet-{id}"


class WorkerJobs:
    """The jobs of one worker."""

    def __init__(self, link: Link, calls: WorkerCalls, host: JobHost) -> None:
        self._link = link
        self._calls = calls
        self._host = host
        self._taking: set[str] = set()  # the queues from which we take
        self._claimed: set[str] = set()  # the jobs that run, or are about to
        self._records: dict[str, Record] = {}  # of jobs that ended since we started

    async def keep_taking(self) -> None:
        """Take orders of all plugins that can run here, until it is cancelled."""
        while True:
            for queue in self._host.queues() - self._taking:
                self._taking.add(queue)
                self._calls.tasks.start_soon(self._take_from, queue)
            await anyio.sleep(BEAT_S)

    async def _take_from(self, queue: str) -> None:
        from nats.errors import Error  # imported with the client

        subscription, name = None, self._link.subjects.queue
        try:
            stream = self._link.client.jetstream(prefix=self._link.api(name), timeout=ANSWER_S)
            subscription = await stream.pull_subscribe_bind(queue_of(queue), name)
            while queue in self._host.queues() and not self._calls.is_draining:
                if self._calls.is_full:
                    await anyio.sleep(FULL_S)
                    continue
                with suppress(TimeoutError):
                    [message] = await subscription.fetch(1, timeout=FETCH_S)
                    await self._take(message)
        except (Error, OSError) as error:
            self._host.log(f"no jobs are accepted at the moment: {error}")
        finally:
            self._taking.discard(queue)
            with anyio.CancelScope(shield=True), suppress(Exception):  # the connection may be gone
                if subscription is not None:
                    await subscription.unsubscribe()

    async def _take(self, message: "Msg") -> None:
        """Claim a job and begin it, if it may run, and here."""
        own = self._link.own
        try:
            order, gateway = job_orders.read_order(message.data, own)
            run = job_orders.opened(order, own)
        except SealedForOthers:
            await self._pass_on(message, order.id)
            return
        except NotOpened as error:
            self._host.log(f"an order of a job is invalid: {error}")
            await message.term()
            return
        if time.time() > order.until or self._host.trust.is_withdrawn(gateway.key):
            await message.term()
            return
        refused = self._calls.unfit(run)
        if refused is not None and refused.reason != "not_approved":
            await message.nak(delay=AGAIN_S)  # another worker may, or this one later
            return
        try:
            read = await job_orders.read(self._link, run.id)
            if read is None or not await self._is_ours(read, gateway, order):
                await message.ack()
                return
            if refused is not None:
                entry = msgspec.structs.replace(
                    read.entry, state="dropped", reason=refused.reason, message=refused.message
                )
                await job_orders.write(self._link, entry, after=read.number)
                await message.ack()
                return
            entry = msgspec.structs.replace(read.entry, state="claimed")
            number = await job_orders.write(self._link, entry, after=read.number)
        except FleetError:  # then nobody claimed it, or we did: it is offered again, and the entry says which
            await message.nak(delay=AGAIN_S)
            return
        self._claimed.add(run.id)
        claimed = Read(entry, own.member, number)
        self._calls.tasks.start_soon(self._calls.take, lambda: self._run(run, gateway, claimed))
        await message.ack()

    async def _pass_on(self, message: "Msg", id: str) -> None:
        """Leave an order to others, unless its job was claimed from another copy of it."""
        with suppress(FleetError):
            read = await job_orders.read(self._link, id)
            if read is not None and read.entry.state != "queued":
                await message.ack()
                return
        await message.nak(delay=AGAIN_S)

    async def _is_ours(self, read: Read, gateway: Member, order: Order) -> bool:
        """Return whether nobody claimed a job, or only we did, and it did not begin."""
        if read.entry.state == "queued":
            return read.by.key == gateway.key and order.number in {0, read.number}
        if read.entry.state != "claimed" or read.by.key != self._link.own.key or read.entry.id in self._claimed:
            return False
        try:
            await anyio.to_thread.run_sync(self._host.stored_job, name_of(read.entry.id))
        except JobNotFound:
            return True
        except StoreError:
            pass
        return False

    async def _run(self, run: Run, gateway: Member, claimed: Read) -> None:
        records: list[Record] = []
        attachment = caller_of(run, gateway.name)
        attachment.job = name_of(run.id)
        attachment.on_record = records.append
        try:
            tool = self._host.tool_of(run.plugin, run.digest, run.tool)
            if tool is None:
                return  # it has just been deleted: the caller learns that its state is unknown
            result = await self._host.run(tool, run.arguments, attachment, None)
            done = await done_of(run.id, result, records[-1] if records else None)
        finally:
            if records:
                self._records[run.id] = records[-1]
            self._claimed.discard(run.id)
        box = job_orders.end_boxed(done, run.id, gateway.key)
        with suppress(FleetError):  # the entry then says that it is claimed, and who asks is told by us how it ended
            entry = msgspec.structs.replace(claimed.entry, state="ended", to=gateway.key, box=box)
            await job_orders.write(self._link, entry, after=claimed.number)

    async def said(self, asked: AskedJob) -> JobSaid:
        """Return where a job is; cancel it if asked to."""
        name = name_of(asked.id)
        if asked.cancel and asked.id in self._claimed:
            self._host.cancel_job(name)
        try:
            job = await anyio.to_thread.run_sync(self._host.stored_job, name)
        except (JobNotFound, StoreError):
            return JobSaid(asked.id, "running" if asked.id in self._claimed else "unknown")
        if job.state == "running" or asked.id in self._claimed:
            return JobSaid(asked.id, "running")
        if job.state == "lost" or job.result is None:
            return JobSaid(asked.id, "lost")
        done = await done_of(asked.id, outcome_of(job), self._records.get(asked.id))
        return JobSaid(asked.id, "ended", done)
