"""Run calls as jobs: each is listed from its start on, and can be cancelled from anywhere."""

import time
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from anyplug.call.job_store import Job, JobNotFound, Jobs
from anyplug.call.state import CallState, failed
from anyplug.formats.shared.contract import AskJob
from anyplug.model.errors import Cancelled, StoreError, Unavailable
from anyplug.model.result_shape import result_shape
from anyplug.model.types import Call, Progress, Result, Text

POLL_S = 0.5  # how soon a job notices that another process asked to cancel it, and its progress is stored
ELSEWHERE_POLL_S = 0.5  # between two questions about a job that runs elsewhere
END_POLL_S = 0.1  # how soon the end of a job is noticed, which may run in another process
OUTCOME = ("content", "structured", "metadata", "is_error", "error")  # what a stored result keeps, as fields of Result


Work = Callable[[str], Awaitable[Result]]  # with the id of the job


class Elsewhere(msgspec.Struct, frozen=True):
    """A job that no host of this home runs."""

    tool: str
    plugin: str  # its `lineage`
    started: float
    result: Result | None  # if it ended


Sees = Callable[[str, str], bool]  # with the tool of a job or kept result, and the `lineage` of its plugin
AskElsewhere = Callable[[str, bool], Awaitable[Elsewhere | None]]  # with its id, and whether to cancel it


def _running(id: str, tool: str, seconds: float, progress: str = "") -> Result:
    said = f" It last reported: {progress}\n" if progress else " "
    text = f"Job {id} of {tool} has been running for {seconds:g} s.{said}Ask for it again later."
    about = {"job": id, "tool": tool, "state": "running"}
    structured = {**about, "seconds": seconds, **({"progress": progress} if progress else {})}
    return Result(content=(Text(text),), structured=structured, metadata=about)


def outcome_of(job: Job) -> Result:
    """Return the result of a job that has one."""
    assert job.result is not None
    return msgspec.convert({name: job.result[name] for name in OUTCOME}, Result)


class JobRuns:
    """The jobs of one host."""

    def __init__(
        self,
        jobs: Jobs,
        tasks: anyio.abc.TaskGroup,
        tell: Callable[[str], None],
        goes_on: Callable[[Call], bool] = lambda _: False,
    ) -> None:
        """Background jobs live in `tasks`; `goes_on` tells which of those that are cancelled run on elsewhere."""
        self._goes_on = goes_on
        self._jobs = jobs
        self._tasks = tasks
        self._tell = tell
        self._running: dict[str, anyio.CancelScope] = {}
        self._reports: dict[str, Callable[[], str]] = {}

    @property
    def are_under_way(self) -> bool:
        """Whether any job is running."""
        return bool(self._running)

    async def run(self, call: Call, trail: CallState, work: Work, *, wait: bool) -> Result:
        """Run a call as a job; without `wait`, return at once. Raises StoreError before anything has run."""
        job = await anyio.to_thread.run_sync(
            self._jobs.begin, call.tool.name, call.plugin.lineage, trail.attachment.job
        )
        if wait:
            return await self._see_through(job, call, trail, work)
        self._tasks.start_soon(self._see_through, job, call, trail, work)
        text = f'Tool "{call.tool.own_name}" (plugin "{call.plugin.name}") is running asynchronously as job {job}.'
        about = {"job": job, "tool": call.tool.name, "state": "running"}
        return trail.complete(Result(content=(Text(text),), structured=about, metadata=about))

    def cancel(self, name: str) -> None:
        """Cancel a job, here or in another process. Raises JobNotFound."""
        if name in self._running:
            self._running[name].cancel()
        else:
            self._jobs.one(name)
            self._jobs.ask_to_cancel(name)

    def listen(self, name: str, report: Callable[[], str]) -> None:
        """Ask a running job from now on for what it last said."""
        self._reports[name] = report

    async def result(
        self,
        request: AskJob,
        progress: Progress | None,
        has_job_of: Sees,
        elsewhere: AskElsewhere | None = None,
    ) -> Result:
        """Return the result of a job's tool, or how long the job has been running.

        `has_job_of` tells whether the caller may see it; `elsewhere` asks for jobs that no host of this home runs.
        Raises JobNotFound, StoreError, and Unavailable if the result is lost.
        """
        until = time.monotonic() + request.wait_s
        if elsewhere is not None and not self._is_here(request.id):
            found = await self._result_elsewhere(request, until, has_job_of, elsewhere)
            if found is not None:
                return found
        while True:
            job = self._jobs.one(request.id)
            if not has_job_of(job.tool, job.plugin):
                raise JobNotFound(request.id)
            if request.cancel and job.state == "running":
                self.cancel(job.id)
            seconds = round(time.time() - job.started, 1)
            if job.state != "running" or time.monotonic() >= until:
                break
            if progress is not None:
                await progress(seconds, None, job.progress or f"{job.tool} is running")
            await anyio.sleep(END_POLL_S)
        about = {"job": job.id, "tool": job.tool, "state": job.state}
        if job.state == "running":
            return _running(job.id, job.tool, seconds, job.progress)
        if job.result is None:
            raise Unavailable(
                f"the host that ran job {job.id} of {job.tool} ended, so its result is lost",
                "it may have done part of its work; check that before you call the tool again",
            )
        result = outcome_of(job)
        return msgspec.structs.replace(result, metadata={**result.metadata, **about})

    def _is_here(self, id: str) -> bool:
        """Return whether a host of this home runs a job, or knows how it ended."""
        try:
            return self._jobs.one(id).state != "lost"
        except JobNotFound:
            return False

    async def _result_elsewhere(
        self, request: AskJob, until: float, has_job_of: Sees, ask: AskElsewhere
    ) -> Result | None:
        """Return the result of a job that runs elsewhere, or how long it has been running; None if none does."""
        while True:
            there = await ask(request.id, False)
            if there is None or not has_job_of(there.tool, there.plugin):
                return None
            if request.cancel and there.result is None:
                there = await ask(request.id, True) or there
            if there.result is not None:
                state = "failed" if there.result.is_error else "done"
                await self._end(request.id, there.result)  # where it was ordered; else there is nothing to update
                about = {"job": request.id, "tool": there.tool, "state": state, "started": there.started}
                return msgspec.structs.replace(there.result, metadata={**there.result.metadata, **about})
            if time.monotonic() >= until:
                running = _running(request.id, there.tool, round(time.time() - there.started, 1))
                return msgspec.structs.replace(running, metadata={**running.metadata, "started": there.started})
            await anyio.sleep(ELSEWHERE_POLL_S)

    async def _see_through(self, job: str, call: Call, trail: CallState, work: Work) -> Result:
        result = None
        try:
            with anyio.CancelScope() as scope:
                self._running[job] = scope
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch, job, scope)
                    result = await work(job)
                    tasks.cancel_scope.cancel()
        finally:
            del self._running[job]
            self._reports.pop(job, None)
            goes_on = result is None and self._goes_on(call)
            result = result or trail.complete(failed(Cancelled("the job was cancelled")))
            result = msgspec.structs.replace(result, metadata={**result.metadata, "job": job})
            with anyio.CancelScope(shield=True):
                await (self._leave(job) if goes_on else self._end(job, result))
        return result

    async def _watch(self, job: str, scope: anyio.CancelScope) -> None:
        """Pass on what a job says, and cancel it on request."""
        known = ""
        while True:
            await anyio.sleep(POLL_S)
            try:
                if self._jobs.is_to_be_cancelled(job):
                    scope.cancel()
                if job in self._reports and (said := self._reports[job]()) and said != known:
                    self._jobs.report(job, said)
                    known = said
            except StoreError:
                continue  # no request can arrive now; the job's own end is not affected

    async def _leave(self, job: str) -> None:
        """Let a job go on elsewhere: who asks for it later looks there."""
        try:
            await anyio.to_thread.run_sync(self._jobs.leave, job)
        except StoreError as error:
            self._tell(f"job {job} goes on, which is not recorded: {error.message}")

    async def _end(self, job: str, result: Result) -> None:
        try:
            await anyio.to_thread.run_sync(self._jobs.end, job, result, result_shape(result))
        except StoreError as error:
            self._tell(f"the end of job {job} is not recorded: {error.message}")
