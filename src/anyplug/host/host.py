"""The host: one call path for every tool of every plugin, and the only owner of long-lived tasks.

Host.call is the product: find, trust, check, gate, run, record. Every frontend comes through it, and nothing
else runs a tool.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread
import msgspec

from anyplug.audit.audit_log import Audit
from anyplug.audit.counters import Counters
from anyplug.call.admission import Admission
from anyplug.call.chains import ChainOutcome, OnStep, Step, read_chain, run_chain
from anyplug.call.consent import Ask, Attachment
from anyplug.call.gates import Gates
from anyplug.call.job_runs import JobRuns
from anyplug.call.job_store import Job, Jobs
from anyplug.call.recording import Recording
from anyplug.call.slash_commands import CommandOutcome, as_tool, split_command
from anyplug.call.state import CallState, failed, is_large, warned
from anyplug.catalog import plugin_descriptions
from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.catalog.snapshot import NAME_TAKEN, Entry, Snapshot
from anyplug.formats import registry
from anyplug.formats.shared.contract import AskInstall, AskJob, AskPeer, Greeting, Inspect, Reload, Surroundings
from anyplug.home import plugin_logs
from anyplug.home.location import note_home
from anyplug.home.settings import find_home
from anyplug.host.loading import Loading
from anyplug.launch import file_arguments
from anyplug.launch.preparation import Preparation
from anyplug.launch.signal_runner import SignalRuns
from anyplug.launch.surroundings import Provisions, Start, Users
from anyplug.manage import install_requests
from anyplug.manage.plugin_sources import Source
from anyplug.model import hints
from anyplug.model.errors import (
    BadOutput,
    CallError,
    Cancelled,
    Denied,
    InstallError,
    InvalidArguments,
    NotApproved,
    PluginNotFound,
    StoreError,
    Unavailable,
)
from anyplug.model.json_values import DEEPEST_METADATA, excess
from anyplug.model.types import Call, Command, Failure, Note, Plugin, Problem, Progress, Result, Tool
from anyplug.model.untrusted_text import for_models
from anyplug.peers.events import EventDelivery
from anyplug.peers.guards import Guards
from anyplug.peers.notices import Listener, Notices, SnapshotChanged, note_taker
from anyplug.peers.panels import Panels
from anyplug.peers.peer_set import Peers
from anyplug.policy.gate import PolicyGate
from anyplug.runtime import thread_lanes
from anyplug.runtime.processes.program import Program
from anyplug.runtime.runner import Runner
from anyplug.secrets.redaction import Redactions

if TYPE_CHECKING:  # only used while learning
    from anyplug.launch.learning import Learning

FIX_PLUGIN = "fix the plugin"
MOST_BLOCKS = 5_000  # of a result; MCP's SDK checks each
MOST_BLAMED = 3  # violations that a hint names
SESSION_BYTES = 16  # of the random id of a session


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
        environment: Mapping[str, str] | None = None,
        tell: Callable[[str], None] = lambda _: None,
        learning: "Learning | None" = None,
        tally: Counters | None = None,
    ) -> None:
        """Configure where plugins are.

        `plugins` are folders that count as approved; `roots` are folders of plugins, instead of the standard ones;
        `ask` is called when a person must agree; `tell` is called about long work. Long-running plugins are started
        with the host, or with `eager=False` when they are first needed, except for those that observe or guard events;
        `greeting` tells them whose agent they work for, and in which folder. `environment` is the user's, instead of
        this process's own. `learning` observes one plugin. `tally` counts the calls, for several hosts if they share
        it.

        Raises ConfigError if the settings cannot be read.
        """
        given = greeting or Greeting()
        self._project = given.cwd or os.getcwd()
        self._greeting = msgspec.structs.replace(given, session_id=given.session_id or secrets.token_hex(SESSION_BYTES))
        self._users = Users(os.environ if environment is None else environment)
        self._catalog = Catalog(
            find_home(home),
            [os.fspath(path) for path in plugins],
            None if roots is None else [os.fspath(r) for r in roots],
            self._greeting.cwd,
        )
        self._attachment = Attachment(ask=ask)
        self._watch = watch
        self._tell = tell
        self._learning = learning
        self._notices = Notices()
        self._logged: set[tuple[str, str]] = set()  # lines in plugins' logs that are not to be repeated
        self._callers: dict[str, Attachment] = {}  # of the running calls
        self._audit = Audit(self._catalog.store, self._catalog.home.second_head(self._catalog.settings))
        self._jobs = Jobs(self._catalog.store)
        self._secrecies = Redactions(self._catalog.secrets)
        self.tally = tally or Counters()
        self._recording = Recording(self._audit, self.tally, tell, self._catalog.settings.audit)
        self._loading = Loading(self._catalog, self._tell_of_snapshot, self._follow_settings, eager=eager)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Explain what is wrong with a host that was not entered: most of its parts are made then."""
            if name.startswith("_") and not name.startswith("__") and "_loop" not in vars(self):
                raise RuntimeError("the host is not running: use `async with Host(...) as host:`")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._leaving = anyio.Event()
        self._tasks = anyio.create_task_group()
        with suppress(OSError):  # if it is not writable, only the default home is hidden from other homes' plugins
            note_home(self._catalog.home.path)
        self._put_together(self._catalog, self._project)
        await self._tasks.__aenter__()
        self._recording.open(self._loop.call_later)
        try:
            await self._loading.begin(self._peers)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        if self._watch:
            self._tasks.start_soon(self._loading.follow, self._leaving)
        return self

    def _put_together(self, catalog: Catalog, cwd: str) -> None:
        """Create and connect what lives as long as the host is open. Nothing is started yet."""
        catalog.store.tidy_aside(self._aside)
        self._project = cwd
        self._runner = Runner(catalog.home.path, namespaces=catalog.settings.namespaces)
        self._admission = Admission(catalog, self._secrecies, self._loading.catch_up_for)
        self._peers = Peers(
            catalog,
            start=self._start,
            secrecy=self._secrecies.of,
            tasks=self._tasks,
            changed=self._loading.grow_stale,
            greeting=self._greeting,
            tell=self._tell,
        )
        self._provisions = Provisions(
            catalog,
            self._runner,
            self._secrecies,
            self._users,
            project=cwd,
            learning=self._learning,
            tell=self._tell,
        )
        self._preparation = Preparation(catalog, self._provisions, self._secrecies)
        self._live = EventDelivery(
            self._peers,
            self._tasks,
            call=self._call_for,
            granted=catalog.approvals.granted,
            snapshot=lambda: self.snapshot,
            reload=self._loading.again,
            notices=self._notices,
            log=lambda plugin, heading, text: plugin_logs.append(catalog.home.log(plugin), heading, text),
        )
        self._guards = Guards(
            self._peers, catalog.settings, self._loading.why_absent, self._greeting, catalog.approvals.granted
        )
        self._signals = SignalRuns(catalog.home, self._runner)
        policies = PolicyGate(catalog.home.path, catalog.settings.policy, self._runner, self._signals)
        self._gates = Gates(self._guards, policies, catalog.approvals, cwd)
        self._job_runs = JobRuns(self._jobs, self._tasks, self._tell)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        with anyio.CancelScope(shield=True):
            await self._peers.stop_all(at_once=error is not None)
        self._tasks.cancel_scope.cancel()
        try:
            # The body's own error must not be passed to the tasks: it would come back inside a group.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._loading.close()
            self._admission.close()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._signals.close)
                await anyio.to_thread.run_sync(self._provisions.close)
                await anyio.to_thread.run_sync(self._runner.close)
            self._recording.close()
            self._catalog.close()

    @property
    def snapshot(self) -> Snapshot:
        """What is loaded now."""
        return self._loading.snapshot

    @property
    def plugins(self) -> list[Entry]:
        """Every plugin that was found, in order of precedence."""
        return list(self.snapshot.entries)

    @property
    def tools(self) -> list[Tool]:
        """The tools that can be called."""
        return self.snapshot.callable_tools

    @property
    def problems(self) -> list[Problem]:
        """Plugins' problems, each with its plugin's name."""
        return [
            msgspec.structs.replace(problem, message=f"{entry.name}: {problem.message}")
            for entry in self.snapshot.entries
            for problem in entry.problems
        ]

    @property
    def commands(self) -> list[Command]:
        """The slash commands that can be run."""
        return [command for command, entry in self.snapshot.commands.values() if entry.state == "approved"]

    @property
    def panels(self) -> Panels:
        """The panels that extensions have open."""
        return self._live.panels

    @property
    def guards(self) -> Guards:
        """The guards, which decide about events; an agent asks them before a turn and before it shows a message."""
        return self._guards

    @property
    def peers(self) -> Peers:
        """The long-running plugins and their state."""
        return self._peers

    @property
    def catalog(self) -> Catalog:
        """Where plugins come from, and what people decided about them."""
        return self._catalog

    @property
    def audit(self) -> Audit:
        """The record of all calls of this home."""
        return self._audit

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        attachment: Attachment | None = None,
        wait: bool = True,
        progress: Progress | None = None,
    ) -> Result:
        """Call a tool. Whatever happens ends as a result and as one audit record.

        An asynchronous tool runs as a job; with `wait=False` the job's id is returned at once, in the metadata.
        `progress` receives the plugin's progress reports. Raises only if the caller's own task is cancelled.
        """
        trail = CallState(name, attachment or self._attachment, arguments, self._project)
        call: Call | None = None
        try:
            view = trail.attachment.view
            if self._live.is_reloading and trail.attachment.plugin is None:
                await self._live.reloaded()  # a plugin that did not wait for it has answered before its end
            if not self.snapshot.knows(name):
                await self.hear_out(name)
            tool, entry = self.snapshot.tool(name) if view is None else view.tool(self.snapshot, name)
            trail.found(tool.name, entry.plugin)
            standing = await self._admission.admit(entry.plugin, tool, trail)
            warnings = self._check(tool, entry.plugin, trail)
            call = file_arguments.named(self._call_of(tool, entry.plugin, trail, progress), self._project)
            call = await self._gates.before_call(call, standing, trail)
            self._recording.begin(trail)
        except CallError as error:
            result = self._recording.end(trail, failed(error))
            if isinstance(error, Denied) and call is not None:
                self._live.tell_of_result(call, result, has_run=False)
            return result
        except anyio.get_cancelled_exc_class():  # while somebody was asked
            self._recording.end(trail, failed(Cancelled("the call was cancelled before it ran")))
            raise
        if not tool.is_async:
            return await self._run(call, standing, trail, warnings)
        try:
            return await self._job_runs.run(call, trail, lambda: self._run(call, standing, trail, warnings), wait=wait)
        except StoreError as error:
            unrecorded = f"the job cannot be recorded, so it was not run: {error.message}"
            return self._recording.end(trail, failed(Denied("host", unrecorded, error.hint)))

    async def run_chain(
        self,
        steps: Sequence[Step | Mapping[str, Any]],
        *,
        attachment: Attachment | None = None,
        on_step: OnStep = lambda _number, _result: None,
    ) -> ChainOutcome:
        """Call tools one after another, each with the results of those before it, up to the first that fails.

        Each step is a call like any other; `on_step` is called at its end. Raises BadChain if `steps` is invalid.
        """

        async def call(name: str, arguments: dict[str, Any]) -> Result:
            return await self.call(name, arguments, attachment=attachment)

        return await run_chain(call, read_chain(steps).steps, on_step)

    async def run_command(self, line: str, *, attachment: Attachment | None = None) -> CommandOutcome:
        """Run a slash command as typed by a person. Ends as an outcome and as one audit record."""
        name, words = split_command(line)
        trail = CallState(f"/{name}", attachment or self._attachment, {"args": words}, self._project)
        notes: list[Note] = []
        standing: Standing | None = None
        stop_listening = self.listen(note_taker(notes), catch_up=False)
        try:
            view = trail.attachment.view
            await self.hear_out(f"/{name}")
            command, entry = self.snapshot.command(name) if view is None else view.command(self.snapshot, name)
            trail.found(f"/{command.name}", entry.plugin)
            standing = await self._admission.admit(entry.plugin, None, trail)
            call = self._call_of(as_tool(command), entry.plugin, trail, None)
            call = await self._gates.before_command(call, standing, trail)
            self._recording.begin(trail)
            outcome = await self._run_command(command, call, standing, trail)
        except CallError as error:
            outcome = CommandOutcome.failed(trail, error)
        except anyio.get_cancelled_exc_class():
            self._recording.end(trail, failed(Cancelled("the command was cancelled")))
            raise
        finally:
            stop_listening()
        if outcome.error is not None and standing is not None:
            cured = await self._cured(outcome.error, "", entry.plugin, standing, trail)
            outcome = msgspec.structs.replace(outcome, error=cured)
        outcome = msgspec.structs.replace(outcome, error=trail.reached(outcome.error))
        self._recording.end(trail, outcome.as_result())
        notes += [Note(trail.record.plugin, "warn", warning) for warning in trail.warnings]
        return msgspec.structs.replace(outcome, notes=tuple(notes))

    def emit(self, event: str, **fields: Any) -> None:
        """Tell extensions of an event in the life of an agent, such as turn_start or turn_end."""
        self._live.emit(event, **fields)

    def listen(self, listener: Listener, *, catch_up: bool = True) -> Callable[[], None]:
        """Register a callback for extensions' own messages; call the returned function to stop.

        Works before the host is entered, too. A callback that returns False has done nothing with a message. With
        `catch_up` it also gets what was said in the last minute, and nobody heard.
        """
        return self._notices.listen(listener, catch_up=catch_up)

    async def hear_out(self, name: str) -> None:
        """Wait a moment for extensions that may yet register a tool, or a command with its slash, of this name."""
        self._loading.catch_up()
        if not self.snapshot.knows(name):
            await self._peers.hear_out(lambda: self.snapshot.knows(name))

    def warm_up(self) -> None:
        """Start the long-running plugins that were deferred, without waiting for them."""
        self._peers.begin_idle()

    async def reload(self, name: str | None = None) -> Snapshot:
        """Read everything again; restart all long-running plugins, or just the one of that name.

        Raises PluginNotFound.
        """
        await self._loading.reload(name)
        return self.snapshot

    async def approve(
        self,
        plugin: Plugin,
        *,
        granted: tuple[str, ...] | None = None,
        always: bool = False,
        follow: bool = False,
        unconfined: bool = False,
        inherits_environment: bool = False,
        seen: str | None = None,
    ) -> str:
        """Approve a plugin as it is now, for a person who has seen what it asks for.

        `seen` is the digest of what the person reviewed. Its init script and dependencies are set up first; returns
        what they printed. Raises CallError if that fails or if the plugin is not as it was seen; then nothing is
        approved.
        """
        said = await self._preparation.approve(
            plugin,
            granted,
            always=always,
            follow=follow,
            unconfined=unconfined,
            inherits_environment=inherits_environment,
            seen=seen,
            callees=self.snapshot.callees(plugin.permissions if granted is None else granted),
        )
        await self.look_again()
        return said

    async def prepare(self, plugin: Plugin, granted: tuple[str, ...] | None = None, *, unconfined: bool = False) -> str:
        """Set a plugin up: its init script, its dependencies. Raises CallError."""
        return await self._preparation.prepare(plugin, granted, unconfined=unconfined)

    def has_started(self, pid: int) -> bool:
        """Return whether a process descends from one of this host's plugins."""
        return self._runner.guard.marks(pid)

    @property
    def has_jobs(self) -> bool:
        """Whether jobs of this host are running."""
        return self._job_runs.are_under_way

    def jobs(self) -> list[Job]:
        """List the jobs of every host of this home."""
        return self._jobs.all()

    def cancel_job(self, name: str) -> None:
        """Cancel a job, here or in another process."""
        self._job_runs.cancel(name)

    def _check(self, tool: Tool, plugin: Plugin, trail: CallState) -> list[str]:
        """Check that the arguments are a JSON object, as strictly as the user's settings say.

        Return how they violate the tool's schema, if that is only a warning.
        """
        if trail.unusable:
            raise InvalidArguments(tool.name, [trail.unusable])
        format = registry.BY_NAME[plugin.format]
        mode = self._catalog.settings.of(plugin.name).arguments or format.ARGUMENTS
        violations = [] if mode == "off" else format.violations(tool, trail.given)
        if violations and mode == "strict":
            raise InvalidArguments(tool.name, violations)
        return violations

    @staticmethod
    def _call_of(tool: Tool, plugin: Plugin, trail: CallState, progress: Progress | None) -> Call:
        caller = trail.attachment
        return Call(
            id=trail.record.call,
            tool=tool,
            plugin=plugin,
            arguments=trail.given,
            attachment=caller.id,
            origin=caller.plugin.name if caller.plugin is not None else "",
            chain=(*caller.chain, tool.name),
            progress=progress,
            shows_panels=caller.shows_panels,
        )

    async def _run(self, call: Call, standing: Standing, trail: CallState, warnings: list[str]) -> Result:
        """Run a permitted call, and record how it ended."""
        self._live.tell_of_call(call)
        self._callers[call.id] = trail.attachment
        try:
            try:
                if call.plugin.stays_up and self._peers.has_other_rights(call.plugin, standing.rights):
                    await self._renew_rights(call.plugin)
                users = trail.attachment.users
                around = self._provisions.made(call.plugin, standing, users) or await self._provisions.ready(
                    call.plugin, standing, users
                )
                try:
                    result = await self._exchange(call, standing, around)
                except (ValueError, RecursionError) as unread:  # an answer that no decoder expected
                    why = str(unread).partition("\n")[0]
                    raise BadOutput(f"the answer of '{call.tool.name}' cannot be read: {why}", FIX_PLUGIN) from unread
                await self._see_that_nothing_came(call.plugin)
            except CallError as refusal:
                result = failed(refusal)
            why = f"it has more than {MOST_BLOCKS:,} blocks" if len(result.content) > MOST_BLOCKS else ""
            if why := why or excess(result.structured) or excess(result.metadata, DEEPEST_METADATA):
                result = failed(BadOutput(f"the result of '{call.tool.name}' cannot be passed on: {why}", FIX_PLUGIN))
            if result.error is not None:
                said = f"{result.text}\n{result.metadata.get('stderr', '')}"
                error = await self._cured(result.error, said, call.plugin, standing, trail)
                if error is result.error and warnings:
                    error = _blamed_on_arguments(error, call.tool, warnings)
                result = msgspec.structs.replace(result, error=error)
            elif remarks := self._provisions.private_files(call.plugin, result, call.arguments):
                result = msgspec.structs.replace(warned(result, remarks), remarks=tuple(remarks))
            result = await self._gates.after(call, standing, trail, result)
            result = warned(result, warnings)
            if trail.secrecy is not None and trail.secrecy.mask() is not None and is_large(result):
                result = await thread_lanes.run(call.plugin.path, trail.mask_ahead, result)
        except anyio.get_cancelled_exc_class():
            trail.record.held_by = self._provisions.receipt(call.plugin)
            cancelled = self._recording.end(trail, failed(Cancelled("the call was cancelled")))
            self._live.tell_of_result(call, cancelled)
            raise
        finally:
            del self._callers[call.id]
        trail.record.held_by = self._provisions.receipt(call.plugin)
        result = self._recording.end(trail, result)
        self._live.tell_of_result(call, result)
        return result

    async def _exchange(self, call: Call, standing: Standing, around: Surroundings) -> Result:
        """Turn a call into what its format asks for, do that, and turn the answer into a result; raises CallError."""
        format = registry.BY_NAME[call.plugin.format]
        call = await self._provisions.with_files(call, standing, self._callers[call.id].plugin)
        await format.ready(call, around)
        answer: Any = None
        match request := format.request(call, around):
            case Program():
                answer = await self._provisions.run(call.plugin, standing, request)
            case AskPeer():
                peer = await self._peers.reach(call.plugin, call.tool.process)
                answer = await peer.call_tool(call, request.timeout_s)
            case Reload():
                try:
                    answer = await self._loading.reload_in_a_call(request.plugin)
                except PluginNotFound as error:
                    raise InvalidArguments(call.tool.name, [error.message]) from error
            case AskJob():
                try:
                    answer = await self._job_runs.result(request, call.progress, self._sees_job(call))
                except StoreError as error:
                    raise Unavailable(f"the job cannot be read: {error.message}", error.hint) from error
            case Inspect():
                answer = self._inspected(request.plugin, call)
            case AskInstall():
                source = Source(location=request.location, ref=request.ref, subdir=request.subdir)
                answer = self._asked_to_install(source, call)
        return format.result(call, request, answer, around)

    def _sees_job(self, call: Call) -> Callable[[str], bool]:
        view = self._callers[call.id].view
        return lambda tool: view is None or view.has_job_of(tool, self.snapshot)

    def _inspected(self, name: str, call: Call) -> tuple[str, dict[str, Any]]:
        """Return what the caller of a tool may know of all plugins, or of one; raises CallError."""
        view = self._callers[call.id].view
        try:
            return (
                plugin_descriptions.about(self.snapshot, view, name)
                if name
                else plugin_descriptions.listing(self.snapshot, view)
            )
        except PluginNotFound as error:
            raise InvalidArguments(call.tool.name, [error.message], error.hint) from error

    def _asked_to_install(self, source: Source, call: Call) -> list[str]:
        """Record that an agent wants a plugin, and return what a person types to install it; raises CallError."""
        try:
            return install_requests.ask(self._catalog.home, source, self._greeting.cwd or os.getcwd()).words
        except InstallError as error:
            raise InvalidArguments(call.tool.name, [error.message], error.hint) from error

    async def _see_that_nothing_came(self, plugin: Plugin) -> None:
        """Check that no code was added to a plugin's folder while it ran; raises NotApproved.

        A long-running process may have loaded that code, so it is restarted.
        """
        try:
            self._provisions.see_that_nothing_came(plugin)
        except NotApproved:
            if plugin.stays_up:
                await self._loading.reload_in_a_call(plugin.path)
            raise

    async def _run_command(self, command: Command, call: Call, standing: Standing, trail: CallState) -> CommandOutcome:
        """Run a permitted slash command, and ask the gates about its outcome; raises CallError."""
        if self._peers.has_other_rights(call.plugin, standing.rights):
            await self._renew_rights(call.plugin)
        extension = await self._peers.reach(call.plugin)
        trail.record.held_by = self._provisions.receipt(call.plugin)
        answer = await extension.run_command(command.name, call.arguments["args"])
        outcome = CommandOutcome.of(trail, answer, self._live.panels, extension)
        seen = await self._gates.after(call, standing, trail, given := outcome.as_result())
        return outcome if seen is given else outcome.judged(seen, self._live.panels)

    async def _renew_rights(self, plugin: Plugin) -> None:
        """Restart a long-running plugin with its present rights; raises Unavailable."""
        try:
            await self.look_again()
        except StoreError as error:
            reason = f"plugin '{plugin.name}' has new rights but cannot be restarted: {error.message}"
            raise Unavailable(reason, error.hint) from error

    async def _cured(
        self, failure: Failure, said: str, plugin: Plugin, standing: Standing, trail: CallState
    ) -> Failure:
        """Name the grant that would have helped, if one seems to be missing."""
        if failure.code == InvalidArguments.code:  # the host found them unfit, and nothing ran
            return failure
        text, users = f"{failure.message}\n{failure.hint}\n{said}", trail.attachment.users  # a hint may quote stderr
        cure = await thread_lanes.run(plugin.path, self._provisions.cure, plugin, standing, text, users)
        return msgspec.structs.replace(failure, hint=cure) if cure else failure

    async def _start(self, plugin: Plugin) -> Start:
        """Return what a long-running plugin is started with; raises CallError if it may not run as it is now."""
        return await self._provisions.start(plugin, await self._admission.admit_start(plugin))

    async def look_again(self) -> None:
        """Read everything again at once, and wait for what that starts."""
        await self._loading.again()
        await self._peers.come_up()

    def _aside(self, work: Callable[[], None]) -> None:
        """Run something in a thread that only the end of the host waits for; callable from any thread."""

        def begin() -> None:
            if not self._leaving.is_set():
                self._tasks.start_soon(anyio.to_thread.run_sync, work)

        self._loop.call_soon_threadsafe(begin)

    def _follow_settings(self) -> None:
        """Apply the settings that were just read."""
        if self._catalog.settings_fault:
            self._tell(self._catalog.settings_fault)
        for part in (self._provisions, self._peers, self._guards, self._gates):
            part.follow(self._catalog.settings)

    def _tell_of_snapshot(self) -> None:
        for entry in self.snapshot.entries:
            if entry.problems and self._peers.has_begun(entry.plugin):
                self._log_shadowing(entry)
        self._notices.send(SnapshotChanged())

    def _log_shadowing(self, entry: Entry) -> None:
        """Log in a running plugin's own log which of its names belong to others, once in a host's life."""
        path = self._catalog.home.log(entry.plugin)
        for problem in entry.problems:
            if problem.code == NAME_TAKEN and (path, problem.message) not in self._logged:
                self._logged.add((path, problem.message))
                plugin_logs.append(path, problem.message, "")

    async def _call_for(
        self,
        plugin: Plugin,
        name: str,
        arguments: dict[str, Any],
        parent: Call | None,
        chain: tuple[str, ...],
    ) -> Result:
        """Call a tool because a plugin asked for it, with the tools that led to that: by the same path as everyone.

        Inside one of its own calls, the caller of that call is asked; otherwise the host's `ask`.
        """
        asker = self._callers.get(parent.id, self._attachment) if parent is not None else self._attachment
        if parent is not None:
            callers = (*(asker.callers or (asker.id,)), f"{plugin.name}/{parent.tool.own_name}")
        else:
            callers = (*chain, plugin.name)  # by itself, or to decide about the call at the end of the chain
        return await self.call(name, arguments, attachment=asker.for_plugin(plugin, chain, callers))


def _blamed_on_arguments(failure: Failure, tool: Tool, violations: list[str]) -> Failure:
    """Name the arguments that do not fit as the likely reason, unless the plugin itself told what to do."""
    if failure.hint and failure.code not in {"crashed", "bad_output"}:
        return failure
    wrong = "; ".join(violations[:MOST_BLAMED])
    hint = f"the arguments do not fit ({wrong}): {hints.command('tools', tool.name)} shows its parameters"
    return msgspec.structs.replace(failure, hint=for_models(hint))
