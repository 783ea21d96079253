"""The host: one call path for every tool of every plugin, and the only owner of long-lived tasks.

Host.call is the product: find, trust, check, gate, run, record. Every frontend comes through it, and nothing
else runs a tool.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import msgspec

from anyplug import audit
from anyplug.approval import Approvals, Standing
from anyplug.audit import Audit
from anyplug.catalog import Catalog
from anyplug.commands import CommandOutcome, split_command
from anyplug.errors import (
    CallError,
    Cancelled,
    Denied,
    InvalidArguments,
    NotApproved,
    PluginDisabled,
    StoreError,
    Unavailable,
)
from anyplug.extensions import Extensions, Wanted
from anyplug.formats import table
from anyplug.formats.zot.extension import Extension, Greeting
from anyplug.gate import Ask, Attachment, consent
from anyplug.interception import Guards
from anyplug.job_runs import JobRuns
from anyplug.jobs import Job, Jobs
from anyplug.live import Live
from anyplug.model import Call, Command, Plugin, Problem, Result, Tool, Verdict
from anyplug.notices import Listener, Note, SnapshotChanged
from anyplug.offers import Offer
from anyplug.panels import Panels
from anyplug.registry import Entry, Snapshot
from anyplug.runtime.runner import Runner
from anyplug.settings import find_home
from anyplug.surroundings import Provisions
from anyplug.trail import Trail, failed


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
        eager: bool = True,
        greeting: Greeting | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Say where plugins are.

        `plugins` are folders that count as approved; `roots` are folders of plugins, in place of the standard
        ones; `ask` is called where a person has to agree; `tell` hears of long work. Plugins that stay up are
        started with the host, or with `eager=False` when they are first needed, except for those that watch
        or guard what happens; `greeting` tells them whose agent they work for.

        Raises ConfigError if the settings cannot be read.
        """
        self._catalog = Catalog(
            find_home(home),
            [os.fspath(path) for path in plugins],
            None if roots is None else [os.fspath(r) for r in roots],
        )
        self._attachment = Attachment(ask=ask)
        self._watch = watch
        self._eager = eager
        self._greeting = greeting or Greeting()
        self._tell = tell
        self._found: list[Plugin] = []
        self._attached: WeakValueDictionary[str, Attachment] = WeakValueDictionary()  # while they have calls
        self._is_stale = False
        self._audit = Audit(self._catalog.store)
        self._jobs = Jobs(self._catalog.store)
        self._snapshot = Snapshot(entries=(), owners={}, aliases={}, model_names={})

    async def __aenter__(self) -> Self:
        self._runner = Runner(
            os.path.join(self._catalog.home.path, "locks"), namespaces=self._catalog.settings.namespaces
        )
        self._leaving = anyio.Event()
        try:
            self._audit.recover()
        except StoreError:
            pass  # calls will be refused with the reason; looking at plugins still works
        self._tasks = await anyio.create_task_group().__aenter__()
        self._live = Live(
            self._catalog.home,
            self._catalog.settings,
            self._catalog.store,
            spawn=self._runner.spawn,
            environment=self._start_variables,
            tasks=self._tasks,
            changed=self._grow_stale,
            call=self._call_for,
            greeting=self._greeting,
        )
        self._provisions = Provisions(self._catalog, self._runner, peer=self._live.extensions.peer, tell=self._tell)
        self._job_runs = JobRuns(self._jobs, self._tasks, self._tell)
        try:
            await self._load(self._catalog.find())
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        if self._watch:
            self._tasks.start_soon(self._follow_changes)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        with anyio.CancelScope(shield=True):
            await self._live.extensions.stop_all()
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
    def commands(self) -> list[Command]:
        """The slash commands that can be run."""
        return [command for command, entry in self._snapshot.commands.values() if entry.state == "approved"]

    @property
    def panels(self) -> Panels:
        """The panels that extensions have open."""
        return self._live.panels

    @property
    def guards(self) -> Guards:
        """Who decides about events; an agent asks them before a turn and before it shows a message."""
        return self._live.guards

    @property
    def extensions(self) -> Extensions:
        """The plugins that stay up, and how they are."""
        return self._live.extensions

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
        trail = Trail(name, attachment or self._attachment, arguments)
        self._attached[trail.attachment.id] = trail.attachment
        try:
            tool, entry = self._snapshot.tool(name)
            trail.found(tool.name, entry.plugin)
            standing = self._trust(entry.plugin, tool, trail)
            given, warnings = self._check(tool, entry.plugin, arguments, trail)
            call = await self._gate(self._made(tool, entry.plugin, given, trail), standing, trail)
            self._note(trail)
        except CallError as error:
            return self._record(trail, failed(error))
        except anyio.get_cancelled_exc_class():  # while somebody was asked
            self._record(trail, failed(Cancelled("the call was cancelled before it ran")))
            raise
        if not tool.is_async:
            return await self._run(call, standing, trail, warnings)
        try:
            return await self._job_runs.run(call, trail, lambda: self._run(call, standing, trail, warnings), wait=wait)
        except StoreError as error:
            unrecorded = f"the job cannot be recorded, so it was not run: {error.message}"
            return self._record(trail, failed(Denied("host", unrecorded, error.hint)))

    async def run_command(self, line: str, *, attachment: Attachment | None = None) -> CommandOutcome:
        """Run a slash command, given as a person types it. Ends as an outcome and as one audit record."""
        name, words = split_command(line)
        trail = Trail(f"/{name}", attachment or self._attachment, {"args": words})
        notes: list[Note] = []
        stop_listening = self.listen(lambda notice: notes.append(notice) if isinstance(notice, Note) else None)
        try:
            command, entry = self._snapshot.command(name)
            trail.found(f"/{command.name}", entry.plugin)
            standing = self._trust(entry.plugin, None, trail)
            verdict = await consent(
                trail.id, trail.tool, {"args": words}, entry.plugin, standing, trail.attachment, self._approvals
            )
            self._judge(verdict, trail)
            self._note(trail)
            extension = await self._live.extensions.peer(entry.plugin)
            answer = await extension.run_command(command.name, words)
            outcome = CommandOutcome.of(trail, answer, self._live.panels, extension)
        except CallError as error:
            outcome = CommandOutcome.failed(trail, error)
        except anyio.get_cancelled_exc_class():
            self._record(trail, failed(Cancelled("the command was cancelled")))
            raise
        finally:
            stop_listening()
        self._record(trail, outcome.as_result())
        return msgspec.structs.replace(outcome, notes=tuple(notes))

    def emit(self, event: str, **fields: Any) -> None:
        """Tell extensions of an event in the life of an agent, such as turn_start or turn_end."""
        self._live.emit(event, **fields)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear what extensions say on their own account; call what this gives to stop."""
        return self._live.listen(listener)

    async def reload(self, name: str | None = None) -> Snapshot:
        """Read everything again; plugins that stay up are torn down and started anew, or just the one of that name.

        Raises PluginNotFound.
        """
        if name is None:
            await self._live.extensions.stop_all()
        else:
            await self._live.extensions.stop(self._snapshot.plugin(name).plugin)
        await self._look_again()
        return self._snapshot

    async def approve(
        self,
        plugin: Plugin,
        *,
        granted: tuple[str, ...] | None = None,
        always: bool = False,
        follow: bool = False,
        unconfined: bool = False,
        seen: str | None = None,
    ) -> str:
        """Approve a plugin as it is now, for a person who has seen what it asks for.

        `seen` is the digest of what the person looked at. Its init script and its dependencies are seen to
        first; gives what they printed. Raises CallError if that fails or if it is another than was seen, and
        then nothing is approved.
        """
        approvals = self._catalog.approvals
        before = approvals.of(plugin)
        if seen is not None and self._catalog.digest(plugin).value != seen:
            raise NotApproved(plugin.name, "changed", ("while you were looking at it",))
        said = ""
        if before is None or before.digest != self._catalog.digest(plugin).value:
            said = await self.prepare(plugin)
        given = plugin.permissions if granted is None else granted
        digest = self._catalog.digest(plugin)  # after the set-up, which may have brought code along
        approvals.approve(plugin, digest, given, always=always, follow=follow, unconfined=unconfined)
        await self._look_again()
        return said

    async def prepare(self, plugin: Plugin) -> str:
        """Set a plugin up: its init script, its dependencies. Raises CallError."""
        standing = Standing(state="approved", granted=plugin.permissions)
        return await table.BY_NAME[plugin.format].prepare(plugin, self._provisions.of(plugin, standing))

    def jobs(self) -> list[Job]:
        """List the jobs of every host of this home."""
        return self._jobs.all()

    def cancel_job(self, name: str) -> None:
        """Cancel a job, here or in another process."""
        self._job_runs.cancel(name)

    def _trust(self, plugin: Plugin, tool: Tool | None, trail: Trail) -> Standing:
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
        if tool is not None and (cure := table.BY_NAME[plugin.format].switched_off(plugin, tool)):
            raise PluginDisabled(plugin.name, cure, tool.own_name)
        return standing

    def _check(
        self, tool: Tool, plugin: Plugin, arguments: Mapping[str, Any] | None, trail: Trail
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

    @staticmethod
    def _made(tool: Tool, plugin: Plugin, arguments: dict[str, Any], trail: Trail) -> Call:
        chain = (*trail.attachment.chain, tool.name)
        return Call(
            id=trail.id, tool=tool, plugin=plugin, arguments=arguments, attachment=trail.attachment.id, chain=chain
        )

    async def _gate(self, call: Call, standing: Standing, trail: Trail) -> Call:
        """Ask all who may refuse or rewrite: the guards first, so that the person sees what will really run."""
        ruling = await self._live.guards.tool_call(call.id, call.tool.name, call.tool.input_schema, call.arguments)
        trail.notes = list(ruling.notes)
        if ruling.blocked_by:
            self._judge(Verdict(allowed=False, by=f"guard:{ruling.blocked_by}", reason=ruling.reason), trail)
        if ruling.value is not call.arguments:
            call = msgspec.structs.replace(call, arguments=ruling.value)
            trail.arguments = audit.digest_of(ruling.value)
        verdict = await consent(
            call.id, call.tool.name, call.arguments, call.plugin, standing, trail.attachment, self._approvals
        )
        self._judge(verdict, trail)
        return call

    @staticmethod
    def _judge(verdict: Verdict, trail: Trail) -> None:
        """Keep a verdict for the record; raises Denied if it is a no."""
        trail.verdict = "allowed" if verdict.allowed else "denied"
        trail.by, trail.reason = verdict.by, verdict.reason
        if not verdict.allowed:
            raise Denied(verdict.by, verdict.reason, verdict.hint)

    @property
    def _approvals(self) -> Approvals:
        return self._catalog.approvals

    def _note(self, trail: Trail) -> None:
        """Write down that it begins: what cannot be recorded does not run."""
        try:
            self._audit.begin(trail.record())
        except StoreError as error:
            raise Denied(
                "host", f"the call cannot be recorded, so it was not run: {error.message}", error.hint
            ) from error

    async def _run(self, call: Call, standing: Standing, trail: Trail, warnings: list[str]) -> Result:
        """Run what may run, and record how it ended."""
        self.emit("tool_call", tool_id=call.id, tool_name=call.tool.name, tool_args=call.arguments)
        try:
            result = await table.BY_NAME[call.plugin.format].invoke(call, self._provisions.of(call.plugin, standing))
        except CallError as error:
            result = failed(error)
        except anyio.get_cancelled_exc_class():
            self._record(trail, failed(Cancelled("the call was cancelled")))
            raise
        if warnings:
            said = [*warnings, *result.metadata.get("warnings", ())]
            result = msgspec.structs.replace(result, metadata={**result.metadata, "warnings": said})
        return self._record(trail, result)

    def _record(self, trail: Trail, result: Result) -> Result:
        """Write the record of a call that has ended, and complete its result."""
        result = trail.complete(result)
        try:
            self._audit.end(trail.record(result))
        except StoreError as error:
            if not trail.verdict:  # it never began, so there is no note of it either
                return trail.complete(
                    failed(Denied("host", f"the call cannot be recorded: {error.message}", error.hint))
                )
            said = [
                *result.metadata.get("warnings", ()),
                f"the end of this call is not recorded: {error.message}",
            ]
            result = msgspec.structs.replace(result, metadata={**result.metadata, "warnings": said})
        return result

    def _start_variables(self, plugin: Plugin) -> dict[str, str]:
        """Give the environment of a plugin that is about to start; raises CallError if it may not, as it is now."""
        return self._provisions.variables(plugin, self._trust(plugin, None, Trail(plugin.name, self._attachment)))

    async def _follow_changes(self) -> None:
        from anyplug.watch import changes  # pulls in watchfiles, which a single call does not need

        async for _ in changes(self._catalog, lambda: self._snapshot, self._leaving):
            try:
                await self._look_again()
            except StoreError:
                continue  # the snapshot stays as it is; calls say what is wrong with the store

    async def _look_again(self) -> None:
        await self._load(await anyio.to_thread.run_sync(self._catalog.find, self._snapshot))

    async def _load(self, found: list[Plugin]) -> None:
        """Take over what was found: start and retire what stays up, then swap the snapshot."""
        self._found = found
        statics = {plugin.path: plugin for plugin in found}
        entries = self._catalog.snapshot(found, self._offer).entries
        wanted = [
            Wanted(statics[entry.path], entry.standing.digest, at_once=self._eager)
            for entry in entries
            if entry.plugin.stays_up and entry.state == "approved"
        ]
        await self._live.sync(wanted)
        self._refresh()

    def _offer(self, plugin: Plugin) -> Offer | None:
        place = self._live.extensions.place(plugin)
        if place is None:
            return self._catalog.last_offer(plugin)
        if place.extension is not None or not place.reason:
            return place.offer
        return msgspec.structs.replace(place.offer or Offer(), fault=place.reason)

    def _grow_stale(self) -> None:
        """Make a new snapshot soon: an extension registers many things in one go."""
        if not self._is_stale:
            self._is_stale = True
            asyncio.get_running_loop().call_soon(self._refresh)

    def _refresh(self) -> None:
        """Swap the snapshot for one that has what extensions offer now."""
        self._is_stale = False
        self._snapshot = self._catalog.snapshot(self._found, self._offer)
        self._live.notice(SnapshotChanged())

    async def _call_for(
        self, extension: Extension, name: str, arguments: dict[str, Any], parent: Call | None
    ) -> Result:
        """Call a tool because an extension asked for it: through the same path as everyone.

        Inside a call of its own, whoever made that call is asked; else whoever the host asks.
        """
        asker = self._attached.get(parent.attachment, self._attachment) if parent is not None else self._attachment
        chain = parent.chain if parent is not None else ()
        attachment = Attachment(f"extension-{extension.plugin.name}", ask=asker.ask, yes=asker.yes, chain=chain)
        attachment.allowed = asker.allowed
        return await self.call(name, arguments, attachment=attachment)
