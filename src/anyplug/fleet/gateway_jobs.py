"""Jobs as a gateway orders them, waits for them, and asks for them, also for those of other gateways."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import msgspec

from anyplug.audit.audit_log import Record
from anyplug.catalog.approvals import Standing
from anyplug.fleet import job_orders
from anyplug.fleet.attempts import Attempts, NotRun, Ran, ran, run_of
from anyplug.fleet.directory import Seen
from anyplug.fleet.job_orders import LARGEST, WAITS_S, Entry, Read
from anyplug.fleet.messages import AskedJob, Offered, Run
from anyplug.fleet.nats_link import FleetError, Link
from anyplug.model.errors import CallError, Cancelled, Lost, Unavailable
from anyplug.model.types import Call

if TYPE_CHECKING:
    from anyplug.fleet.fleet_trust import Trust

FIRST_LOOK_S, LOOK_S = 0.1, 1.0  # between two looks at a job; at first more often
NOT_YET = 2**63 - 1  # as long as any number of an entry
MOST_MISSES = 3  # of the answers of the worker that claimed it
CANCEL_S = 5.0  # for a cancellation to get through
Able = Callable[[], list[Seen]]  # the workers that can run it now
DROPPED = "it was cancelled before a worker took it"


class JobThere(msgspec.Struct, frozen=True):
    """A job of the fleet."""

    tool: str  # as its gateway named it
    at: float  # when it was ordered
    worker: str = ""  # that claimed it
    ran: Ran | None = None  # if it ended


class Ordered:
    """A job that this gateway ordered."""

    def __init__(self, run: Run, subject: str, able: Able, until: float) -> None:
        self.run = run
        self.subject = subject  # of its order
        self.able = able
        self.until = until
        self.keys: set[str] = set()  # of the workers for which the order is sealed
        self.number = NOT_YET  # of the entry that says that it is queued


class GatewayJobs:
    """The jobs of one gateway, and its view of those of others."""

    def __init__(self, link: Link, attempts: Attempts, trust: "Trust") -> None:
        self._link = link
        self._attempts = attempts
        self._trust = trust

    async def order(
        self, id: str, call: Call, offered: Offered, able: Able, standing: Standing, record: Record
    ) -> "Ordered | None":
        """Order a job from the first of the able workers that takes it; return None if it is too long for that.

        Raises CallError: Unavailable if nothing runs, and Lost if its state is unknown.
        """
        run = run_of(id, call, offered, standing, record, self._trust.serial)
        ordered = Ordered(run, self._link.subjects.job(offered.approval_key), able, time.time() + WAITS_S)
        if not self._sealed(ordered):
            return None
        entry = Entry(
            id=id, state="queued", tool=call.tool.name, at=time.time(), certificate=b"", to=self._link.own.key
        )
        try:
            ordered.number = await job_orders.write(self._link, entry, after=0)
            await self._link.store(ordered.subject, self._sealed(ordered), {"Nats-Msg-Id": id})
        except FleetError as error:
            with anyio.move_on_after(CANCEL_S, shield=True):
                if not await self.cancel(id):
                    raise Lost(f"the job may be queued, but NATS did not confirm it: {error.message}") from error
            raise Unavailable(f"the job cannot be queued: {error.message}", error.hint) from error
        return ordered

    def _sealed(self, ordered: "Ordered") -> bytes:
        """Return an order for those that can run it now; nothing if it is too long."""
        ordered.keys = {seen.key for seen in ordered.able()}
        data = job_orders.order(self._link.own, ordered.run, sorted(ordered.keys), ordered.until, ordered.number)
        return data if len(data) <= LARGEST else b""

    async def _order_again(self, ordered: "Ordered") -> None:
        """Order a job that still waits from workers that came later, too. It is claimed once all the same."""
        if {seen.key for seen in ordered.able()} - ordered.keys and (data := self._sealed(ordered)):
            await self._link.store(ordered.subject, data)

    async def end_of(self, ordered: "Ordered", claimed: Callable[[str], None]) -> Ran:
        """Wait for the end of a job; call `claimed` with the worker that runs it. Raises CallError."""
        id = ordered.run.id
        wait_s, misses = FIRST_LOOK_S, 0
        while True:
            await anyio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, LOOK_S)
            try:
                there = await self.find(id)
                if there is not None and there.worker:
                    claimed(there.worker)
                elif there is not None:
                    await self._order_again(ordered)
            except FleetError:
                continue  # the job goes on, whether or not we can see it
            except Lost:
                misses += 1
                if misses >= MOST_MISSES:
                    raise
                continue
            misses = 0
            if there is None:
                raise Lost(f"the state of job {id} is no longer known")
            if there.ran is not None:
                return there.ran

    async def find(self, id: str, *, cancel: bool = False) -> JobThere | None:
        """Return a job of any gateway, or None. Raises FleetError and CallError."""
        read = await job_orders.read(self._link, id)
        if read is None:
            return None
        entry = read.entry
        if cancel and entry.state == "queued":
            await self.cancel(id)
            raise Cancelled(DROPPED)
        if entry.state == "dropped":
            raise Cancelled(entry.message) if entry.reason == Cancelled.code else Unavailable(entry.message, "")
        if entry.state == "queued":
            if entry.at < time.time() - WAITS_S and await self._drop(read, "unavailable", "no worker took it in time"):
                raise Unavailable("no worker took it in time", "`anyplug fleet status` shows the workers")
            return JobThere(entry.tool, entry.at)
        return await self._at_worker(read, cancel=cancel)

    async def _at_worker(self, read: Read, *, cancel: bool) -> JobThere:
        entry, name = read.entry, read.by.name
        if (done := job_orders.end_of(entry, self._link.own)) is not None:
            return JobThere(entry.tool, entry.at, name, ran(done, name))
        said = await self._attempts.ask_job(read.by.key, name, AskedJob(entry.id, cancel))
        if isinstance(said, NotRun):
            if entry.state == "ended":
                raise Unavailable(
                    f"worker '{name}' has the result of job {entry.id}, but {said.message}",
                    "ask again when `anyplug fleet status` shows it",
                )
            raise Lost(f"job {entry.id} ran on worker '{name}', but {said.message}, so its result is lost")
        if said.state in {"lost", "unknown"}:
            raise Lost(f"worker '{name}' was restarted while job {entry.id} ran, so its result is lost")
        return JobThere(entry.tool, entry.at, name, ran(said.done, name) if said.done is not None else None)

    async def cancel(self, id: str) -> bool:
        """Cancel a job; return whether it is known that it will not run, or that its worker heard of it."""
        for _ in range(2):  # a worker may claim it meanwhile
            try:
                read = await job_orders.read(self._link, id)
                if read is None or read.entry.state in {"ended", "dropped"}:
                    return True
                if read.entry.state == "claimed":
                    await self._at_worker(read, cancel=True)
                    return True
                if await self._drop(read, Cancelled.code, DROPPED):
                    return True
            except (FleetError, CallError):
                continue
        return False

    async def _drop(self, read: Read, reason: str, message: str) -> bool:
        """End a job that no worker has claimed; return whether that was so."""
        dropped = msgspec.structs.replace(read.entry, state="dropped", reason=reason, message=message)
        try:
            await job_orders.write(self._link, dropped, after=read.number)
        except FleetError:
            return False
        return True
