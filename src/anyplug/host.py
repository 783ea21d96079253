"""The host: one call path for every tool of every plugin, and the only owner of long-lived tasks.

Host.call is the product: find, trust, check, gate, run, record. Every frontend comes through it, and nothing
else runs a tool.
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
import msgspec

from anyplug import audit, environment, logs, permissions
from anyplug.approval import Standing
from anyplug.audit import Audit, Record
from anyplug.catalog import Catalog
from anyplug.digest import printable
from anyplug.errors import (
    AnyplugError,
    CallError,
    Cancelled,
    Denied,
    InvalidArguments,
    NotApproved,
    PluginDisabled,
    StoreError,
    Unavailable,
)
from anyplug.formats import table
from anyplug.formats.contract import Surroundings
from anyplug.gate import Ask, Attachment, consent
from anyplug.jobs import Job, Jobs
from anyplug.model import Call, Failure, Plugin, Problem, Result, Text, Tool
from anyplug.registry import Entry, Snapshot
from anyplug.runtime.program import Finished, Program, Run
from anyplug.runtime.runner import Runner
from anyplug.runtime.toolchain import link_programs
from anyplug.settings import find_home
from anyplug.shapes import result_shape

AT_ONCE = 64  # calls that run at the same time; the others wait for their turn
CANCEL_POLL_S = 0.5  # how soon a job notices that another process asked to cancel it


class Host:
    """Finds plugins and runs their tools.

    async with Host(plugins=["./hello-world"]) as host:
        result = await host.call("hello_greet", {"name": "Alice"})
    """

    def __init__(
        self,
        plugins: Sequence[str | os.PathLike[str]] = (),
        *,
        roots: Sequence[str | os.PathLike[str]] | None = None,
        home: str | os.PathLike[str] | None = None,
        ask: Ask | None = None,
        watch: bool = True,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Say where plugins are.

        `plugins` are folders that count as approved; `roots` are folders of plugins, in place of the standard
        ones; `ask` is called where a person has to agree; `tell` hears of long work. Raises ConfigError if
        the settings cannot be read.
        """
        self._catalog = Catalog(
            find_home(home),
            [os.fspath(path) for path in plugins],
            None if roots is None else [os.fspath(r) for r in roots],
        )
        self._attachment = Attachment(ask=ask)
        self._watch = watch
        self._tell = tell
        self._audit = Audit(self._catalog.store)
        self._jobs = Jobs(self._catalog.store)
        self._snapshot = Snapshot(entries=(), owners={}, aliases={}, model_names={})
        self._around: dict[str, tuple[Standing, Surroundings]] = {}
        self._running_jobs: dict[str, anyio.CancelScope] = {}

    async def __aenter__(self) -> Self:
        self._runner = Runner(
            os.path.join(self._catalog.home.path, "locks"), namespaces=self._catalog.settings.namespaces
        )
        self._turns = anyio.Semaphore(AT_ONCE, fast_acquire=True)
        self._linked = False
        self._leaving = anyio.Event()
        try:
            self._audit.recover()
        except StoreError:
            pass  # calls will be refused with the reason; looking at plugins still works
        self._snapshot = self._catalog.load()
        self._tasks = await anyio.create_task_group().__aenter__()
        if self._watch:
            self._tasks.start_soon(self._follow_changes)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._tasks.cancel_scope.cancel()
        try:
            # The body's own error is not the tasks': handed to them, it would come back inside a group.
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._runner.close)
            self._catalog.close()

    @property
    def snapshot(self) -> Snapshot:
        """What is loaded now."""
        return self._snapshot

    @property
    def plugins(self) -> list[Entry]:
        """Every plugin that was found, in order of precedence."""
        return list(self._snapshot.entries)

    @property
    def tools(self) -> list[Tool]:
        """The tools that can be called."""
        return self._snapshot.callable_tools

    @property
    def problems(self) -> list[Problem]:
        """What is wrong with plugins, each naming its plugin."""
        return [
            msgspec.structs.replace(problem, message=f"{entry.name}: {problem.message}")
            for entry in self._snapshot.entries
            for problem in entry.problems
        ]

    @property
    def catalog(self) -> Catalog:
        """Where plugins come from, and what people decided about them."""
        return self._catalog

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        attachment: Attachment | None = None,
        wait: bool = True,
    ) -> Result:
        """Call a tool. Whatever happens on the way ends as a result and as one audit record.

        An asynchronous tool runs as a job; `wait=False` gives the job's id at once, in the metadata.
        Raises only if the caller's own task is cancelled.
        """
        trail = _Trail(name, attachment or self._attachment, arguments)
        try:
            tool, entry = self._snapshot.tool(name)
            trail.found(tool, entry.plugin)
            standing = self._trust(tool, entry.plugin, trail)
            given, warnings = self._check(tool, entry.plugin, arguments, trail)
            call = Call(id=trail.id, tool=tool, plugin=entry.plugin, arguments=given, attachment=trail.attachment.id)
            await self._gate(call, standing, trail)
            self._note(trail)
        except CallError as error:
            return self._record(trail, _failed(error))
        if not tool.is_async:
            return await self._run(call, standing, trail, warnings)
        return await self._run_as_job(call, standing, trail, warnings, wait=wait)

    async def reload(self) -> Snapshot:
        """Look at everything again, and swap the snapshot."""
        self._snapshot = await anyio.to_thread.run_sync(self._catalog.load, self._snapshot)
        return self._snapshot

    async def approve(
        self,
        plugin: Plugin,
        *,
        granted: tuple[str, ...] | None = None,
        always: bool = False,
        follow: bool = False,
        unconfined: bool = False,
    ) -> str:
        """Approve a plugin as it is now, for a person who has seen what it asks for.

        Its init script and its dependencies are seen to first; gives what they printed. Raises CallError if
        that fails, and then nothing is approved.
        """
        approvals = self._catalog.approvals
        before = approvals.of(plugin)
        said = ""
        if before is None or before.digest != self._catalog.digest(plugin).value:
            said = await self.prepare(plugin)
        given = plugin.permissions if granted is None else granted
        digest = self._catalog.digest(plugin)  # after the set-up, which may have brought code along
        approvals.approve(plugin, digest, given, always=always, follow=follow, unconfined=unconfined)
        return said

    async def prepare(self, plugin: Plugin) -> str:
        """Set a plugin up: its init script, its dependencies. Raises CallError."""
        self._link_programs()
        standing = Standing(state="approved", granted=plugin.permissions)
        return await table.BY_NAME[plugin.format].prepare(plugin, self._surroundings(plugin, standing))

    def jobs(self) -> list[Job]:
        """List the jobs of every host of this home."""
        return self._jobs.all()

    def cancel_job(self, name: str) -> None:
        """Cancel a job, here or in another process."""
        if name in self._running_jobs:
            self._running_jobs[name].cancel()
        else:
            self._jobs.ask_to_cancel(name)

    def _trust(self, tool: Tool, plugin: Plugin, trail: "_Trail") -> Standing:
        """See to it that a person approved what is there this very moment."""
        try:
            standing = self._catalog.standing(plugin)
        except StoreError as error:
            raise Denied("host", f"nobody knows whether it was approved: {error.message}", error.hint) from error
        trail.digest = standing.digest
        if standing.state == "disabled":
            raise PluginDisabled(plugin.name, standing.reason)
        if standing.state == "changed" and not os.path.isdir(plugin.path):
            raise Unavailable(f"the folder of plugin '{plugin.name}' is gone: {plugin.path}", "install it again")
        if standing.state != "approved":
            raise NotApproved(plugin.name, standing.state, standing.changes)
        if cure := table.BY_NAME[plugin.format].switched_off(plugin, tool):
            raise PluginDisabled(plugin.name, cure, tool.own_name)
        return standing

    def _check(
        self, tool: Tool, plugin: Plugin, arguments: Mapping[str, Any] | None, trail: "_Trail"
    ) -> tuple[dict[str, Any], list[str]]:
        """See to it that the arguments are an object of JSON values, and as strict as the person wants it."""
        if arguments is not None and not isinstance(arguments, Mapping):
            raise InvalidArguments(tool.name, [f"arguments must be an object, not {type(arguments).__name__}"])
        if trail.no_json:
            raise InvalidArguments(tool.name, [f"arguments must be JSON: {trail.no_json}"])
        given = dict(arguments or {})
        format = table.BY_NAME[plugin.format]
        mode = self._catalog.settings.of(plugin.name).arguments or format.ARGUMENTS
        violations = [] if mode == "off" else format.violations(tool, given)
        if violations and mode == "strict":
            raise InvalidArguments(tool.name, violations)
        return given, violations

    async def _gate(self, call: Call, standing: Standing, trail: "_Trail") -> None:
        """Ask all who may refuse."""
        verdict = await consent(call, standing, trail.attachment, self._catalog.approvals)
        trail.verdict = "allowed" if verdict.allowed else "denied"
        trail.by, trail.reason = verdict.by, verdict.reason
        if not verdict.allowed:
            raise Denied(verdict.by, verdict.reason, verdict.hint)

    def _note(self, trail: "_Trail") -> None:
        """Write down that it begins: what cannot be recorded does not run."""
        try:
            self._audit.begin(trail.record())
        except StoreError as error:
            raise Denied(
                "host", f"the call cannot be recorded, so it was not run: {error.message}", error.hint
            ) from error

    async def _run(self, call: Call, standing: Standing, trail: "_Trail", warnings: list[str]) -> Result:
        """Run what may run, and record how it ended."""
        try:
            async with self._turns:
                self._link_programs()
                result = await table.BY_NAME[call.plugin.format].invoke(call, self._surroundings(call.plugin, standing))
        except CallError as error:
            result = _failed(error)
        except anyio.get_cancelled_exc_class():
            self._record(trail, _failed(Cancelled("the call was cancelled")))
            raise
        if warnings:
            said = [*warnings, *result.metadata.get("warnings", ())]
            result = msgspec.structs.replace(result, metadata={**result.metadata, "warnings": said})
        return self._record(trail, result)

    async def _run_as_job(
        self, call: Call, standing: Standing, trail: "_Trail", warnings: list[str], *, wait: bool
    ) -> Result:
        """Run an asynchronous tool with an entry in the list of jobs."""
        try:
            job = self._jobs.begin(call.tool.name)
        except StoreError as error:
            unrecorded = f"the job cannot be recorded, so it was not run: {error.message}"
            return self._record(trail, _failed(Denied("host", unrecorded, error.hint)))

        async def work() -> Result:
            result = None
            try:
                with anyio.CancelScope() as scope:
                    self._running_jobs[job] = scope
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._watch_for_cancel, job, scope)
                        result = await self._run(call, standing, trail, warnings)
                        tasks.cancel_scope.cancel()
            finally:
                del self._running_jobs[job]
                result = result or trail.complete(_failed(Cancelled("the job was cancelled")))
                result = msgspec.structs.replace(result, metadata={**result.metadata, "job": job})
                self._end_job(job, result)
            return result

        if wait:
            return await work()
        self._tasks.start_soon(work)
        text = f'Tool "{call.tool.own_name}" (plugin "{call.plugin.name}") is running asynchronously as job {job}.'
        return trail.complete(Result(content=(Text(text),), metadata={"job": job}))

    async def _watch_for_cancel(self, job: str, scope: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(CANCEL_POLL_S)
            try:
                if self._jobs.is_to_be_cancelled(job):
                    scope.cancel()
            except StoreError:
                continue  # nobody can leave word now; the job's own end is not affected

    def _end_job(self, job: str, result: Result) -> None:
        try:
            self._jobs.end(job, result, result_shape(result))
        except StoreError as error:
            self._tell(f"the end of job {job} is not recorded: {error.message}")

    def _record(self, trail: "_Trail", result: Result) -> Result:
        """Write the record of a call that has ended, and complete its result."""
        result = trail.complete(result)
        try:
            self._audit.end(trail.record(result))
        except StoreError as error:
            if not trail.verdict:  # it never began, so there is no note of it either
                return trail.complete(
                    _failed(Denied("host", f"the call cannot be recorded: {error.message}", error.hint))
                )
            said = [
                *result.metadata.get("warnings", ()),
                f"the end of this call is not recorded: {error.message}",
            ]
            result = msgspec.structs.replace(result, metadata={**result.metadata, "warnings": said})
        return result

    def _surroundings(self, plugin: Plugin, standing: Standing) -> Surroundings:
        """Give what a plugin's format may use, made once for each standing."""
        known = self._around.get(plugin.path)
        if known is not None and known[0] is standing:
            return known[1]
        names = permissions.environment_names(standing.granted)
        users = environment.divide(os.environ, names).given
        variables = table.BY_NAME[plugin.format].environment(plugin, self._catalog.home, users, names)
        around = Surroundings(
            home=self._catalog.home,
            settings=self._catalog.settings.of(plugin.name),
            environment=variables | self._runner.environment,
            run=self._logged(plugin),
            private_tmp=self._runner.private_tmp,
            tell=self._tell,
        )
        self._around[plugin.path] = (standing, around)
        return around

    def _logged(self, plugin: Plugin) -> Run:
        """Run programs with what they say on stderr kept in the plugin's log."""
        path = self._catalog.home.log(plugin.name)

        async def run(program: Program) -> Finished:
            finished = await self._runner(program)
            if finished.stderr or finished.exit_code != 0:
                heading = f"{os.path.basename(program.argv[0])} {finished.ending}"
                if finished.exit_code is not None:
                    heading += f" with {finished.exit_code}"
                logs.append(path, heading, finished.stderr.decode(errors="replace") or finished.reason)
            return finished

        return run

    def _link_programs(self) -> None:
        """See to it that Node and uv are where plugins look for them, once."""
        if not self._linked:
            link_programs(self._catalog.home.bin)
            self._linked = True

    async def _follow_changes(self) -> None:
        from anyplug.watch import changes  # pulls in watchfiles, which a single call does not need

        async for _ in changes(self._catalog, lambda: self._snapshot, self._leaving):
            try:
                await self.reload()
            except StoreError:
                continue  # the snapshot stays as it is; calls say what is wrong with the store


class _Trail:
    """What is known of a call as it goes along, for its record."""

    def __init__(self, name: str, attachment: Attachment, arguments: Any) -> None:
        self.id = secrets.token_hex(8)
        self.attachment = attachment
        self.tool = printable(name)
        self.plugin = self.format = self.digest = self.arguments = ""
        self.verdict = self.by = self.reason = ""
        self.no_json = ""  # why the arguments cannot be written down
        try:
            self.arguments = audit.digest_of(dict(arguments) if isinstance(arguments, Mapping) else arguments or {})
        except (TypeError, ValueError, RecursionError) as error:
            self.no_json = str(error)
        self._at = audit.now()
        self._started = time.perf_counter()

    def found(self, tool: Tool, plugin: Plugin) -> None:
        """Note which tool it is."""
        self.tool, self.plugin, self.format = tool.name, plugin.name, plugin.format

    def complete(self, result: Result) -> Result:
        """Say in the result what was called and how long it took."""
        return msgspec.structs.replace(
            result,
            tool=self.tool,
            plugin=self.plugin,
            format=self.format,
            duration_ms=round((time.perf_counter() - self._started) * 1000, 3),
        )

    def record(self, result: Result | None = None) -> Record:
        """Give the record, so far or at the end."""
        return Record(
            call=self.id,
            at=self._at,
            attachment=self.attachment.id,
            tool=self.tool,
            plugin=self.plugin,
            format=self.format,
            digest=self.digest,
            arguments=self.arguments,
            verdict=self.verdict,
            by=self.by,
            reason=self.reason,
            outcome="" if result is None else result.error.code if result.error else "done",
            duration_ms=result.duration_ms if result else 0.0,
            output=audit.digest_of_output(result) if result else "",
        )


def _failed(error: AnyplugError) -> Result:
    """Turn an error into the result that callers see."""
    partial = error.partial if isinstance(error, CallError) else ""
    said = (Text(error.message), Text(partial)) if partial.strip() else (Text(error.message),)
    return Result(
        content=said,
        is_error=True,
        error=Failure(error.code, error.message, error.hint),
        metadata=dict(error.metadata) if isinstance(error, CallError) else {},
    )
