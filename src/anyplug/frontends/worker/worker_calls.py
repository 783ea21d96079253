"""The calls of a worker: each id runs at most once, and what became of it is told to the gateway that asks.

    unknown -> running -> done      the result is kept for a while
    unknown -> fenced               a gateway asked before the call arrived: now it never runs
    unknown -> refused

An id says until when its call may start. So what is too old to be remembered cannot be started either, and of such an
id the worker says that it forgot, not that it never ran.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from anyplug.call.consent import Attachment
from anyplug.call.state import failed
from anyplug.fleet import sealing
from anyplug.fleet.fleet_trust import Trust
from anyplug.fleet.messages import (
    KEPT_S,
    KNOWN_S,
    START_S,
    AskedJob,
    Cancel,
    Done,
    JobSaid,
    Probe,
    Refusal,
    Refused,
    Repeatable,
    Run,
    RunState,
    Said,
    States,
    ToGateway,
    ToWorker,
    approval_key,
    start_by_of,
)
from anyplug.fleet.nats_link import Link
from anyplug.fleet.sealing import NotOpened, Session, TooLong
from anyplug.model.errors import RETURN_LESS, Cancelled, TooLarge
from anyplug.model.types import Block, File, Progress, Result, Text, Tool

if TYPE_CHECKING:
    from anyplug.audit.audit_log import Record

MOST_KEPT = 64 << 20  # bytes of results that are kept
MOST_SESSIONS = 10_000  # of gateways; a gateway opens one an hour
OLDEST_S = KNOWN_S / 2  # after it could last have started, nothing is said of an unknown call
AGAIN_S = 1.0  # after a result was sent, before it is sent again
_incoming = msgspec.msgpack.Decoder(ToWorker)


class Runs(Protocol):
    """What decides about calls, and runs them."""

    trust: Trust

    def tool_of(self, plugin: str, digest: str, own_name: str) -> Tool | None:
        """Return the tool that a call means, if it can run now."""
        ...

    async def run(
        self, tool: Tool, arguments: dict[str, Any], attachment: Attachment, progress: Progress | None
    ) -> Result:
        """Run a call."""
        ...

    async def job(self, asked: AskedJob) -> JobSaid:
        """Return where a job is; cancel it if asked to."""
        ...

    def log(self, text: str) -> None:
        """Note something that is wrong."""
        ...


class _Known:
    """What is known of one id."""

    __slots__ = ("answer", "at", "gateway", "is_cancelled", "state", "task")

    def __init__(self, gateway: str, state: RunState) -> None:
        self.gateway = gateway
        self.state = state
        self.at = time.monotonic()
        self.task: asyncio.Task[None] | None = None  # while it runs
        self.is_cancelled = False  # its caller does not want it any more
        self.answer: Done | Refused | None = None


class WorkerCalls:
    """The calls that gateways send to one worker."""

    def __init__(self, link: Link, epoch: str, places: int, runs: Runs) -> None:
        self._link = link
        self._epoch = epoch
        self._places = places
        self._runs = runs
        self._sessions: dict[bytes, Session] = {}
        self._known: dict[str, _Known] = {}
        self._kept: deque[tuple[str, int]] = deque()  # the ids of results, the oldest first, with their sizes
        self._kept_bytes = 0
        self._idle = anyio.Event()
        self.tasks: anyio.abc.TaskGroup  # for jobs
        self._under_way: set[asyncio.Task[None]] = set()
        self._failed = asyncio.Event()
        self._fault: BaseException | None = None  # what a call raised, which it must not
        self._is_over = False
        self.running = 0
        self.is_draining = False

    async def drained(self) -> None:
        """Wait until no call is running."""
        while self.running:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def keep_running(self) -> NoReturn:
        """Keep the running calls until this is cancelled; raises what one of them raised."""
        try:
            await self._failed.wait()
            assert self._fault is not None
            raise self._fault
        finally:
            self._is_over = True
            for task in self._under_way:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*self._under_way, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that `keep_running` keeps. A task of anyio's own group takes five times as long to start."""
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault = error
            self._failed.set()

    def heard(self, _: str, reply: str, data: bytes, _status: str) -> None:
        """Read what a gateway says."""
        if data[:1] == sealing.HELLO:
            self._greet(data, reply)
        elif data[:1] == sealing.SEALED:
            session = self._sessions.get(sealing.session_of(data))
            if session is None or self._runs.trust.is_withdrawn(session.other.key):
                self._post(reply, sealing.unsaid(data, self._link.own, self._epoch))
                return
            try:
                opened = session.open(data, is_ordered=True)
                said = _incoming.decode(opened) if opened else None
            except (NotOpened, msgspec.DecodeError):
                return
            if said is not None:
                self._take(session, said, reply)

    def _post(self, reply: str, data: bytes) -> bool:
        return self._link.post(reply, data, "", at_once=self.running <= 1)

    def _greet(self, data: bytes, reply: str) -> None:
        try:
            session, answer = sealing.accept(data, self._link.own, self._epoch, self._runs.trust.is_withdrawn)
        except NotOpened as error:
            self._runs.log(f"a session was refused: {error}")
            self._post(reply, sealing.unsaid(data, self._link.own, self._epoch, str(error)))
            return
        if len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[session.name] = session
        self._post(reply, answer)

    def _take(self, session: Session, said: ToWorker, reply: str) -> None:
        if isinstance(said, Run):
            self._tidy()
            if (refused := self._refusal(said)) is not None:
                self._start(self._say_all(session, [refused], reply))
                return
            known = self._known[said.id] = _Known(session.other.key, "running")
            self.running += 1
            self._start(self._run(session, said, reply, known))
        elif isinstance(said, Cancel):
            running = self._of(session, said.id)
            if running is not None and not running.is_cancelled:
                running.is_cancelled = True  # it may not have begun
                if running.task is not None:
                    running.task.cancel()
        elif isinstance(said, AskedJob):
            self._start(self._say_of_job(session, said, reply))
        else:
            self._report(session, said, reply)

    def _refusal(self, run: Run) -> Refused | None:
        """Return why a call must not run here."""

        def refused(reason: Refusal, message: str) -> Refused:
            return Refused(run.id, reason, message)

        if run.id in self._known:
            return refused("known", "the id of the call was used before")
        now, start_by = time.time(), start_by_of(run.id)
        if not now <= start_by <= now + 2 * START_S:
            return refused("late", "the call arrived too late to be started")
        return self.unfit(run)

    def unfit(self, run: Run) -> Refused | None:
        """Return why a call cannot run here now, whenever it was sent."""
        trust = self._runs.trust

        def refused(reason: Refusal, message: str) -> Refused:
            return Refused(run.id, reason, message)

        if self.is_draining:
            return refused("draining", "it is being drained")
        if not trust.is_confirmed:
            return refused("unconfirmed", "it cannot confirm what is approved, because it is disconnected")
        approval = trust.approval(approval_key(run.digest, run.definition))
        if approval is None or approval.name != run.plugin or not _are_same(approval.granted, run.granted):
            return refused("not_approved", f"'{run.plugin}' is not approved for the fleet with these grants")
        if self._runs.tool_of(run.plugin, run.digest, run.tool) is None:
            return refused("gone", f"it does not offer '{run.tool}' of this version of '{run.plugin}' now")
        if self.running >= self._places:
            return refused("overloaded", f"all its {self._places} places are taken")
        return None

    async def _run(self, session: Session, run: Run, reply: str, known: _Known) -> None:
        records: list[Record] = []
        result: Result | None = None
        try:
            known.task = asyncio.current_task()
            try:
                if not known.is_cancelled:
                    result = await self._result(session, run, reply, records.append)
            except asyncio.CancelledError:
                if not known.is_cancelled or self._is_over or known.task is None:
                    raise
                known.task.uncancel()
            known.task = None
            result = result or failed(Cancelled("the call was cancelled"))
            await self._finish(session, run, result, records[-1] if records else None, reply)
        finally:  # a worker that is ended waits for that
            self.running -= 1
            self._idle.set()

    async def _result(
        self, session: Session, run: Run, reply: str, on_record: "Callable[[Record], object]"
    ) -> Result | None:
        """Return the result of a call; None if its tool has just gone."""

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            await self._say(session, Said(run.id, progress, total, message), reply)

        tool = self._runs.tool_of(run.plugin, run.digest, run.tool)
        if tool is None:
            return None
        if tool.is_repeatable:
            await self._say(session, Repeatable(run.id), reply)
        attachment = caller_of(run, session.other.name)
        attachment.on_record = on_record
        cb = progressed if run.wants_progress else None
        return await self._runs.run(tool, run.arguments, attachment, cb)

    async def _finish(self, session: Session, run: Run, result: Result, record: "Record | None", reply: str) -> None:
        """Send the result of a call, and keep it for a while."""
        known = self._known[run.id]
        answer = await done_of(run.id, result, record)
        known.state, known.answer, known.at = "done", answer, time.monotonic()
        try:
            size = await self._say(session, answer, reply)
        except TooLong as error:
            known.answer = msgspec.structs.replace(answer, result=_too_long(run.tool, error), files=())
            size = await self._say(session, known.answer, reply)
        self._keep(run.id, size)

    def _report(self, session: Session, probe: Probe, reply: str) -> None:
        """Answer a probe, and say again how calls ended: their gateway did not hear of it."""
        self._tidy()
        states: dict[str, RunState] = {}
        answers: list[ToGateway] = []
        for id in probe.ids:
            known = self._of(session, id)
            if known is None:
                is_new = id not in self._known and start_by_of(id) > time.time() - OLDEST_S
                if is_new:
                    self._known[id] = _Known(session.other.key, "fenced")
                states[id] = "fenced" if is_new else "forgotten"
                continue
            states[id] = known.state
            if known.state == "done":
                if known.answer is None:
                    states[id] = "forgotten"
                elif known.at < time.monotonic() - AGAIN_S:  # otherwise it is on its way
                    answers.append(known.answer)
        self._start(self._say_all(session, [*answers, States(states)], reply))

    async def _say_all(self, session: Session, messages: Sequence[ToGateway], reply: str) -> None:
        for message in messages:
            await self._say(session, message, reply)

    async def _say_of_job(self, session: Session, asked: AskedJob, reply: str) -> None:
        said = await self._runs.job(asked)
        try:
            await self._say(session, said, reply)
        except TooLong as error:
            assert said.done is not None
            done = Done(said.id, _too_long(f"job {said.id}", error), said.done.receipt, said.done.record)
            await self._say(session, msgspec.structs.replace(said, done=done), reply)

    @property
    def is_full(self) -> bool:
        """Whether all places are taken."""
        return self.running >= self._places

    async def take(self, run: Callable[[], Awaitable[None]]) -> None:
        """Take a place while something runs, for which a worker that is ended waits."""
        self.running += 1
        try:
            await run()
        finally:
            self.running -= 1
            self._idle.set()

    def _of(self, session: Session, id: str) -> _Known | None:
        """Return what is known of a call, to the gateway that sent it."""
        known = self._known.get(id)
        return known if known is not None and known.gateway == session.other.key else None

    async def _say(self, session: Session, message: ToGateway, reply: str) -> int:
        """Send something to a gateway; return its size. What does not arrive, the gateway asks for."""
        if sealed := session.seal_now(message):
            self._post(reply, sealed)
            return len(sealed)
        async with session.turn:
            parts = session.seal(message)
            await self._link.send(reply, parts)
        return sum(map(len, parts))

    def _keep(self, id: str, size: int) -> None:
        self._kept.append((id, size))
        self._kept_bytes += size
        while self._kept_bytes > MOST_KEPT:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        id, size = self._kept.popleft()
        self._kept_bytes -= size
        if (known := self._known.get(id)) is not None:
            known.answer = None

    def _tidy(self) -> None:
        """Forget results and ids that are old enough."""
        now = time.monotonic()
        while self._kept and ((known := self._known.get(self._kept[0][0])) is None or known.at < now - KEPT_S):
            self._drop_oldest()
        while self._known:
            id = next(iter(self._known))  # the oldest first, mostly
            known = self._known[id]
            if known.at > now - KNOWN_S:
                break
            del self._known[id]
            if known.state == "running":
                self._known[id] = known  # at the end: it stays as long as it runs
                break


def _are_same(granted: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return granted == others or set(granted) == set(others)


def caller_of(run: Run, gateway: str) -> Attachment:
    """Return the caller of a call that a gateway sent."""
    attachment = Attachment("fleet", yes=True, chain=run.chain[:-1])
    attachment.id = f"{run.caller} at {gateway}"
    attachment.agent = run.agent
    return attachment


async def done_of(id: str, result: Result, record: "Record | None") -> Done:
    """Return how a call ended as a gateway is told, with the content of its files."""
    has_files = any(isinstance(block, File) for block in result.content)
    result, files = await anyio.to_thread.run_sync(_with_files, result) if has_files else (result, ())
    return Done(id, result, record.held_by if record else None, record.call if record else "", files)


def _with_files(result: Result) -> tuple[Result, tuple[bytes, ...]]:
    """Return a result with the content of its files, which are on this machine. Blocks."""
    files: list[bytes] = []
    content: list[Block] = []
    for block in result.content:
        if isinstance(block, File):
            try:
                with open(block.path, "rb") as file:
                    files.append(file.read(sealing.LARGEST))
            except OSError as error:
                content.append(Text(f"The file {block.name} cannot be read: {error.strerror}"))
                continue
        content.append(block)
    return msgspec.structs.replace(result, content=tuple(content)), tuple(files)


def _too_long(tool: str, error: TooLong) -> Result:
    return failed(TooLarge(f"the result of '{tool}' cannot be sent: {error}", RETURN_LESS))
