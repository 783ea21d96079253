"""Calls on their way to workers: each ends exactly once, and is never sent again after it may have started.

    chosen -> sent -> ended: a result, a proof that it did not run and never will, or lost

While a call is under way its worker is asked, every half second and once for all its calls, what became of them. That
tells a dead worker from a slow tool, brings results that were lost on the way, and fences calls that never arrived.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NoReturn, Self

import anyio
import msgspec

from anyplug.audit.audit_log import Record
from anyplug.catalog.approvals import Standing
from anyplug.fleet import sealing
from anyplug.fleet.directory import Seen
from anyplug.fleet.messages import (
    START_S,
    AskedJob,
    Cancel,
    Done,
    JobSaid,
    Offered,
    Probe,
    Refused,
    Repeatable,
    Run,
    Said,
    States,
    ToGateway,
    ToWorker,
    attempt_id,
)
from anyplug.fleet.nats_link import Link
from anyplug.fleet.sealing import NotOpened, Opening, Session, TooLong
from anyplug.model.errors import Lost, TooLarge
from anyplug.model.types import Call, Progress, Result
from anyplug.runtime.processes.program import Receipt

PROBE_S = 0.5  # between two questions to a worker with calls of ours, and for each answer
MOST_MISSES = 4  # of its answers, then its calls are lost: it hangs
GRACE_S = 3.0  # after our own connection was gone, in which silence means nothing
JOB_ANSWER_S = 10.0  # for an answer about a job, which may be a long result
HELLO_S = 2.0  # for the answer to a hello
TOKEN_BYTES = 12  # of the name of an answer
NO_RESPONDERS = "503"
GONE = "it is gone"
SILENT = "unreachable"  # the reason if it does not answer
WITHDRAWN = "it was withdrawn from the fleet"
PASS_LESS = "pass the address of the data, or less of it"
_incoming = msgspec.msgpack.Decoder(ToGateway)


class Ran(msgspec.Struct, frozen=True):
    """How a call ended at a worker."""

    result: Result
    receipt: Receipt | None
    worker: str  # its name
    record: str  # the id of its own record
    files: tuple[bytes, ...]  # the content of the files in the result


class LostRepeatable(Lost):
    """The call may have run, and may run again: its tool is read-only or idempotent, as its worker said."""


class NotRun(msgspec.Struct, frozen=True):
    """A call did not run at a worker, and never will there."""

    worker: str  # its name
    reason: str
    message: str


class Attempt:
    """One call at one worker."""

    def __init__(self, seen: Seen, session: Session, id: str, progress: Progress | None) -> None:
        self.worker = seen.key
        self.name = seen.said.name
        self.epoch = session.epoch
        self.id = id
        self.progress = progress
        self.sent: Sequence[bytes] = ()
        self.since = time.monotonic()
        self.ended: asyncio.Future[Done | NotRun] = asyncio.get_running_loop().create_future()
        self.last: Said | None = None
        self.is_repeatable = False
        self.heard = asyncio.Event() if progress is not None else None  # the result, or progress

    def end(self, how: Done | NotRun) -> None:
        """End it, unless something else was faster."""
        if not self.ended.done():
            self.ended.set_result(how)
            self._wake()

    def lose(self, why: str) -> None:
        """End it as lost: it may have run."""
        if not self.ended.done():
            error = LostRepeatable if self.is_repeatable else Lost
            self.ended.set_exception(
                error(f"worker '{self.name}' {why}, so the call may have run, and its result is lost")
            )
            self._wake()

    def report(self, said: Said) -> None:
        """Pass progress on."""
        self.last = said
        self._wake()

    def _wake(self) -> None:
        if self.heard is not None:
            self.heard.set()


class Attempts:
    """All calls of one gateway that are under way."""

    def __init__(self, link: Link, is_withdrawn: Callable[[str], bool]) -> None:
        self._link = link
        self._is_withdrawn = is_withdrawn  # whether a worker's key is no longer a member
        self._open: dict[str, Attempt] = {}
        self._sessions: dict[str, Session] = {}  # by worker
        self._named: dict[bytes, Session] = {}  # by the session's name, with those that were replaced
        self._opening: dict[str, asyncio.Task[Session | NotRun]] = {}  # by worker; all calls share one
        self._waiting: dict[str, asyncio.Future[bytes]] = {}  # for the answers to hellos and probes, by their name
        self._job_answers: dict[str, JobSaid] = {}  # by the name of the answer
        self._misses: dict[str, int] = {}  # by worker
        self._quiet_until = 0.0  # until then silence means nothing
        self._work = asyncio.Event()
        self._prober: asyncio.Task[None] | None = None
        self._probing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        own = self._link.own.key
        self._start = len(self._link.subjects.answers(own, ""))
        await self._link.listen_quickly(self._link.subjects.answers(own, ">"), self._heard)
        self._link.on_back.append(self._be_patient)
        self._prober = asyncio.get_running_loop().create_task(self._probe_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [task for task in (self._prober, *self._probing, *self._opening.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for attempt in list(self._open.values()):
            attempt.is_repeatable = False  # there is no time for it
            attempt.lose("was asked by a gateway that ended")

    async def attempt(
        self, seen: Seen, call: Call, offered: Offered, standing: Standing, record: Record, serial: int
    ) -> Ran | NotRun:
        """Run a call at a worker, if it can; raises Lost."""
        seen.mine += 1
        try:
            session = self._open_now(seen.key) or await self._session(seen.key, seen.said.name)
            if isinstance(session, NotRun):
                seen.is_silent = session.reason == SILENT
                return session
            attempt = Attempt(seen, session, attempt_id(time.time() + session.skew_s + START_S), call.progress)
            self._open[attempt.id] = attempt
            self._work.set()
            try:
                run = run_of(attempt.id, call, offered, standing, record, serial)
                if not await self._send(session, attempt, run):
                    return NotRun(seen.said.name, "unsent", "NATS cannot be reached at the moment")
                ended = await self._end_of(attempt)
            except Lost:
                seen.is_silent = True
                raise
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._tell(seen.key, Cancel(attempt.id))
                raise
            finally:
                del self._open[attempt.id]
        finally:
            seen.mine -= 1
        if isinstance(ended, NotRun):
            return ended
        return ran(ended, seen.said.name)

    async def ask_job(self, worker: str, name: str, question: AskedJob) -> JobSaid | NotRun:
        """Ask a worker about a job that it claimed."""
        answer: bytes | str = ""
        for _ in range(2):  # the session may be of the time before it was restarted
            session = self._open_now(worker) or await self._session(worker, name)
            if isinstance(session, NotRun):
                return session
            token = secrets.token_hex(TOKEN_BYTES)
            async with session.turn:
                asking = asyncio.ensure_future(self._ask(worker, session.seal(question), JOB_ANSWER_S, token))
                await asyncio.sleep(0)
            answer = await asking
            if (said := self._job_answers.pop(token, None)) is not None:
                return said
            self._sessions.pop(worker, None)
        return NotRun(name, "gone" if answer == GONE else SILENT, answer if isinstance(answer, str) else GONE)

    async def _send(self, session: Session, attempt: Attempt, run: Run) -> bool:
        """Send a call; return False if there is no connection. Raises TooLarge."""
        subjects = self._link.subjects
        subject = subjects.run(attempt.worker)
        reply = f"{subjects.answers(self._link.own.key, attempt.worker)}.{attempt.id}"
        if sealed := session.seal_now(run):
            attempt.sent = (sealed,)
            return self._link.post(subject, sealed, reply, at_once=len(self._open) == 1)
        async with session.turn:
            try:
                attempt.sent = session.seal(run)
            except TooLong as error:
                raise TooLarge(f"the arguments cannot be sent to a worker: {error}", PASS_LESS) from error
            return await self._link.send(subject, attempt.sent, reply)

    async def _end_of(self, attempt: Attempt) -> Done | NotRun:
        """Wait for the end, passing progress on."""
        if attempt.progress is None or attempt.heard is None:
            return await attempt.ended
        while not attempt.ended.done():
            await attempt.heard.wait()
            attempt.heard.clear()
            if (said := attempt.last) is not None:
                attempt.last = None
                await attempt.progress(said.progress, said.total, said.message)
        return attempt.ended.result()

    async def _tell(self, worker: str, message: ToWorker, name: str = "") -> bool:
        session = self._sessions.get(worker)
        if session is None:
            return False
        reply = f"{self._link.subjects.answers(self._link.own.key, worker)}.{name or 'none'}"
        async with session.turn:
            return await self._link.send(self._link.subjects.run(worker), session.seal(message), reply)

    def _open_now(self, worker: str) -> Session | None:
        """Return the session with a worker, if there is one for new calls."""
        session = self._sessions.get(worker)
        is_good = session is not None and not session.is_old and not self._is_withdrawn(worker)
        return session if is_good else None

    async def _session(self, worker: str, name: str) -> Session | NotRun:
        """Return the session with a worker, opened now if there is none."""
        if self._is_withdrawn(worker):
            self._sessions.pop(worker, None)
            return NotRun(name, "withdrawn", WITHDRAWN)
        opening = self._opening.get(worker)
        if opening is None:
            opening = self._opening[worker] = asyncio.get_running_loop().create_task(self._open_session(worker, name))
            opening.add_done_callback(lambda _: self._opening.pop(worker, None))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                return NotRun(name, SILENT, "this gateway ends")
            raise

    async def _open_session(self, worker: str, name: str) -> Session | NotRun:
        """Open a session, once for all calls that wait for it."""
        opened = await self._greet(worker, name)
        if isinstance(opened, Session):
            self._sessions[worker] = self._named[opened.name] = opened
        return opened

    async def _greet(self, worker: str, name: str) -> Session | NotRun:
        opening = Opening(self._link.own, worker)
        answer = await self._ask(worker, [opening.message], HELLO_S)
        if isinstance(answer, str):
            return NotRun(name, SILENT, answer)
        if answer[:1] == sealing.NO_SESSION:
            proof = sealing.read_unsaid(answer, [opening.message], worker)
            return NotRun(
                name, "refused", f"it opens no session: {proof.reason if proof else 'its answer is not signed'}"
            )
        try:
            return opening.finish(answer)
        except NotOpened as error:
            return NotRun(name, "refused", f"its answer to the opening of a session is invalid: {error}")

    async def _ask(self, worker: str, message: Sequence[bytes], patience_s: float, name: str = "") -> bytes | str:
        """Send a message and wait for its answer; return why there is none."""
        name = name or secrets.token_hex(TOKEN_BYTES)
        answered = self._waiting[name] = asyncio.get_running_loop().create_future()
        reply = f"{self._link.subjects.answers(self._link.own.key, worker)}.{name}"
        try:
            if not await self._link.send(self._link.subjects.run(worker), message, reply):
                return "NATS cannot be reached at the moment"
            answer = await asyncio.wait_for(answered, patience_s)
        except TimeoutError:
            return "it does not answer"
        finally:
            del self._waiting[name]
        return answer or GONE

    def _heard(self, subject: str, _: str, data: bytes, status: str) -> None:
        """Read what a worker says; what is not sealed for us, or signed, is ignored."""
        worker, _, name = subject[self._start :].partition(".")
        if status == NO_RESPONDERS:
            self._nobody_heard(name)
        elif data[:1] == sealing.SEALED:
            session = self._named.get(sealing.session_of(data))
            if session is None or session.other.key != worker or self._is_withdrawn(worker):
                return
            try:
                opened = session.open(data, is_ordered=False)
                said = _incoming.decode(opened) if opened else None
            except (NotOpened, msgspec.DecodeError):
                return
            if said is not None:
                self._take(worker, said, name)
            else:  # a part of a long one
                self._misses[worker] = 0
        elif (waiting := self._waiting.get(name)) is not None:
            if not waiting.done():
                waiting.set_result(data)
        elif (
            data[:1] == sealing.NO_SESSION
            and (attempt := self._open.get(name)) is not None
            and sealing.read_unsaid(data, attempt.sent, worker) is not None
        ):
            self._sessions.pop(worker, None)
            attempt.end(NotRun(attempt.name, "restarted", "it was restarted"))

    def _nobody_heard(self, name: str) -> None:
        if (waiting := self._waiting.get(name)) is not None and not waiting.done():
            waiting.set_result(b"")
        elif (attempt := self._open.get(name)) is not None:
            self._sessions.pop(attempt.worker, None)
            attempt.end(NotRun(attempt.name, "gone", GONE))

    def _take(self, worker: str, said: ToGateway, name: str) -> None:
        self._misses[worker] = 0
        if isinstance(said, States):
            if (waiting := self._waiting.get(name)) is not None and not waiting.done():
                waiting.set_result(b"answered")
            for id, state in said.states.items():
                self._settle(worker, id, state)
            return
        if isinstance(said, JobSaid):
            if (waiting := self._waiting.get(name)) is not None and not waiting.done():
                self._job_answers[name] = said
                waiting.set_result(b"answered")
            return
        attempt = self._open.get(said.id)
        if attempt is None or attempt.worker != worker:
            return
        if isinstance(said, Repeatable):
            attempt.is_repeatable = True
        elif isinstance(said, Said):
            attempt.report(said)
        elif isinstance(said, Refused):
            attempt.end(NotRun(attempt.name, said.reason, said.message))
        else:
            attempt.end(said)

    def _settle(self, worker: str, id: str, state: str) -> None:
        attempt = self._open.get(id)
        if attempt is None or attempt.worker != worker:
            return
        if state == "fenced":
            attempt.end(NotRun(attempt.name, "fenced", "the call did not arrive there"))
        elif state == "forgotten":
            attempt.lose("no longer knows the call")

    def _be_patient(self) -> None:
        """After our own connection was gone, silence means nothing for a while."""
        self._quiet_until = time.monotonic() + GRACE_S
        self._misses.clear()

    async def _probe_all(self) -> NoReturn:
        """Ask all workers about their calls, as long as there are some."""
        while True:
            await asyncio.sleep(PROBE_S)
            if not self._open:
                self._work.clear()
                self._named = {session.name: session for session in self._sessions.values()}
                await self._work.wait()
                continue
            if not self._link.is_up:
                self._be_patient()
                continue
            since = time.monotonic() - PROBE_S
            asked: dict[str, list[Attempt]] = {}
            for attempt in self._open.values():
                if attempt.since < since and not attempt.ended.done():
                    asked.setdefault(attempt.worker, []).append(attempt)
            for worker, attempts in asked.items():
                task = asyncio.get_running_loop().create_task(self._probe(worker, attempts))
                self._probing.add(task)
                task.add_done_callback(self._probing.discard)

    async def _probe(self, worker: str, attempts: list[Attempt]) -> None:
        """Ask a worker what became of some calls."""
        session = self._open_now(worker) or await self._session(worker, attempts[0].name)
        if self._is_withdrawn(worker):
            self._lose(worker, attempts, "was withdrawn from the fleet")
            return
        if isinstance(session, NotRun):
            answer: bytes | str = session.message
        else:
            for attempt in attempts:
                if attempt.epoch != session.epoch:
                    attempt.lose("was restarted")
            async with session.turn:  # after a long message that is being sent, but without waiting for the answer
                probe = session.seal(Probe(tuple(one.id for one in attempts)))
                asking = asyncio.ensure_future(self._ask(worker, probe, PROBE_S))
                await asyncio.sleep(0)
            answer = await asking
        if isinstance(answer, bytes):
            if answer[:1] == sealing.NO_SESSION:  # it was restarted, or it forgot: a new session tells
                self._sessions.pop(worker, None)
        elif answer == GONE:
            self._lose(worker, attempts, "is gone")
        elif time.monotonic() > self._quiet_until and self._link.is_up:
            misses = self._misses[worker] = self._misses.get(worker, 0) + 1
            if misses >= MOST_MISSES:
                self._lose(worker, attempts, "does not answer")

    def _lose(self, worker: str, attempts: list[Attempt], why: str) -> None:
        self._sessions.pop(worker, None)
        for attempt in attempts:
            attempt.lose(why)


def ran(done: Done, worker: str) -> Ran:
    """Return how a call ended at a worker of this name."""
    return Ran(done.result, done.receipt, worker, done.record, done.files)


def run_of(id: str, call: Call, offered: Offered, standing: Standing, record: Record, serial: int) -> Run:
    """Return a call as workers get it."""
    return Run(
        id=id,
        call=call.id,
        tool=call.tool.own_name,
        plugin=offered.name,
        digest=offered.digest,
        definition=offered.definition,
        granted=standing.granted,
        serial=serial,
        arguments=call.arguments,
        caller=call.attachment,
        agent=record.agent,
        chain=call.chain,
        verdict=record.verdict,
        by=record.by,
        wants_progress=call.progress is not None,
    )
