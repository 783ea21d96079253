"""Run calls as jobs: each is listed from its start on, and can be cancelled from anywhere."""

import time
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import msgspec

from anyplug.call.job_store import JobNotFound, Jobs
from anyplug.call.state import CallState, failed
from anyplug.formats.shared.contract import AskJob
from anyplug.model.errors import Cancelled, StoreError, Unavailable
from anyplug.model.result_shape import result_shape
from anyplug.model.types import Call, Progress, Result, Text

CANCEL_POLL_S = 0.5  # how soon a job notices that another process asked to cancel it
END_POLL_S = 0.1  # how soon the end of a job is noticed, which may run in another process
OUTCOME = ("content", "structured", "metadata", "is_error", "error")  # what a stored result keeps, as fields of Result


class JobRuns:
    """The jobs of one host."""

    def __init__(self, jobs: Jobs, tasks: anyio.abc.TaskGroup, tell: Callable[[str], None]) -> None:
        """Background jobs live in `tasks`."""
        self._jobs = jobs
        self._tasks = tasks
        self._tell = tell
        self._running: dict[str, anyio.CancelScope] = {}

    @property
    def are_under_way(self) -> bool:
        """Whether any job is running."""
        return bool(self._running)

    async def run(self, call: Call, trail: CallState, work: Callable[[], Awaitable[Result]], *, wait: bool) -> Result:
        """Run a call as a job; without `wait`, return at once. Raises StoreError before anything has run."""
        job = self._jobs.begin(call.tool.name)
        if wait:
            return await self._see_through(job, trail, work)
        self._tasks.start_soon(self._see_through, job, trail, work)
        text = f'Tool "{call.tool.own_name}" (plugin "{call.plugin.name}") is running asynchronously as job {job}.'
        about = {"job": job, "tool": call.tool.name, "state": "running"}
        return trail.complete(Result(content=(Text(text),), structured=about, metadata=about))

    def cancel(self, name: str) -> None:
        """Cancel a job, here or in another process."""
        if name in self._running:
            self._running[name].cancel()
        else:
            self._jobs.ask_to_cancel(name)

    async def result(self, request: AskJob, progress: Progress | None, has_job_of: Callable[[str], bool]) -> Result:
        """Return the result of a job's tool, or how long the job has been running.

        `has_job_of` tells by the name of its tool whether the caller may see it. Raises JobNotFound, StoreError, and
        Unavailable if the result is lost.
        """
        until = time.monotonic() + request.wait_s
        while True:
            job = self._jobs.one(request.id)
            if not has_job_of(job.tool):
                raise JobNotFound(request.id)
            if request.cancel and job.state == "running":
                self.cancel(job.id)
            seconds = round(time.time() - job.started, 1)
            if job.state != "running" or time.monotonic() >= until:
                break
            if progress is not None:
                await progress(seconds, None, f"{job.tool} is running")
            await anyio.sleep(END_POLL_S)
        about = {"job": job.id, "tool": job.tool, "state": job.state}
        if job.state == "running":
            text = f"Job {job.id} of {job.tool} has been running for {seconds:g} s. Ask for it again later."
            return Result(content=(Text(text),), structured={**about, "seconds": seconds}, metadata=about)
        if job.result is None:
            raise Unavailable(
                f"the host that ran job {job.id} of {job.tool} ended, so its result is lost",
                "it may have done part of its work; check that before you call the tool again",
            )
        result = msgspec.convert({name: job.result[name] for name in OUTCOME}, Result)
        return msgspec.structs.replace(result, metadata={**result.metadata, **about})

    async def _see_through(self, job: str, trail: CallState, work: Callable[[], Awaitable[Result]]) -> Result:
        result = None
        try:
            with anyio.CancelScope() as scope:
                self._running[job] = scope
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch_for_cancel, job, scope)
                    result = await work()
                    tasks.cancel_scope.cancel()
        finally:
            del self._running[job]
            result = result or trail.complete(failed(Cancelled("the job was cancelled")))
            result = msgspec.structs.replace(result, metadata={**result.metadata, "job": job})
            self._end(job, result)
        return result

    async def _watch_for_cancel(self, job: str, scope: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(CANCEL_POLL_S)
            try:
                if self._jobs.is_to_be_cancelled(job):
                    scope.cancel()
            except StoreError:
                continue  # no request can arrive now; the job's own end is not affected

    def _end(self, job: str, result: Result) -> None:
        try:
            self._jobs.end(job, result, result_shape(result))
        except StoreError as error:
            self._tell(f"the end of job {job} is not recorded: {error.message}")
