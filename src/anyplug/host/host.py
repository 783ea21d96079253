"""The host: one call path for every tool of every plugin, and the only owner of long-lived tasks.

Host.call is the product: find, trust, check, gate, run, record. Every frontend comes through it, and nothing
else runs a tool.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread
import msgspec

from anyplug.audit.audit_log import Audit
from anyplug.audit.counters import Counters
from anyplug.call import previews
from anyplug.call.admission import Admission
from anyplug.call.call_places import Place, Places
from anyplug.call.chains import ChainOutcome, OnStep, Step, read_chain, run_chain
from anyplug.call.consent import Ask, Attachment, Elicit, Sample
from anyplug.call.gates import Gates
from anyplug.call.job_runs import Elsewhere, JobRuns, Sees
from anyplug.call.job_store import Job, Jobs
from anyplug.call.kept_results import KeptResults, ResultNotFound, is_long
from anyplug.call.open_questions import OpenQuestions
from anyplug.call.plugin_requests import PluginRequests
from anyplug.call.previews import Preview
from anyplug.call.recording import Recording, Watcher
from anyplug.call.slash_commands import CommandOutcome, as_tool, split_command
from anyplug.call.state import CallState, failed, is_large, warned
from anyplug.call.wider_grants import widened
from anyplug.catalog import plugin_descriptions
from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.catalog.snapshot import NAME_TAKEN, Entry, Snapshot
from anyplug.formats import registry
from anyplug.formats.shared.contract import (
    AskInstall,
    AskJob,
    AskPeer,
    Greeting,
    Inspect,
    ReadResult,
    Reload,
    Surroundings,
)
from anyplug.home import plugin_logs, scratch_folders
from anyplug.home.location import note_home
from anyplug.home.settings import FleetSettings, find_home
from anyplug.host.loading import Loading
from anyplug.launch import file_arguments
from anyplug.launch.preparation import Preparation
from anyplug.launch.signal_runner import SignalRuns
from anyplug.launch.surroundings import Provisions, Start, Users
from anyplug.manage import staging
from anyplug.model import hints, permissions
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
from anyplug.model.types import IN_FLEET, Call, Command, Failure, Note, Plugin, Problem, Progress, Result, Tool
from anyplug.model.untrusted_text import for_models
from anyplug.peers.events import EventDelivery
from anyplug.peers.guards import Guards
from anyplug.peers.notices import Listener, Notices, SnapshotChanged, note_taker
from anyplug.peers.panels import Panels
from anyplug.peers.peer_set import Peers
from anyplug.policy.gate import PolicyGate
from anyplug.runtime import loop_tasks, thread_lanes
from anyplug.runtime.processes import phases
from anyplug.runtime.processes.program import Program
from anyplug.runtime.runner import Runner
from anyplug.runtime.warm.pool import Pool
from anyplug.secrets.redaction import Redactions

if TYPE_CHECKING:  # only used in a fleet, and while learning
    from anyplug.call.telemetry import Telemetry
    from anyplug.fleet.gateway import Gateway
    from anyplug.launch.learning import Learning
    from anyplug.runtime.helpers import Helpers

FIX_PLUGIN = "fix the plugin"
MOST_BLOCKS = 5_000  # of a result; MCP's SDK checks each
MOST_BLAMED = 3  # violations that a hint names
MIB = 1 << 20
SESSION_BYTES = 16  # of the random id of a session
MADE_ON_ENTERING = (
    "_loop", "_leaving", "_tasks", "_runner", "_admission", "_peers", "_pool", "_provisions", "_preparation", "_live",
    "_guards", "_signals", "_gates", "_job_runs",
)  # fmt: skip


class _NotRunning:
    """A part of a host that was not entered. A `__getattr__` of the host itself would slow down every call."""

    def __getattr__(self, _: str) -> Any:
        raise RuntimeError("the host is not running: use `async with Host(...) as host:`")


def _folders(name: str, given: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(given, str | bytes | os.PathLike):  # each letter would be a folder
        raise TypeError(f"{name} must be a list of folders: {name}=[{given!r}]")
    return [os.fspath(path) for path in given]


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
        elicit: Elicit | None = None,
        sample: Sample | None = None,
        watch: bool = True,
        eager: bool = True,
        greeting: Greeting | None = None,
        environment: Mapping[str, str] | None = None,
        tell: Callable[[str], None] = lambda _: None,
        learning: "Learning | None" = None,
        tally: Counters | None = None,
        fleet: FleetSettings | None = None,
        questions: OpenQuestions | None = None,
        places: Places | None = None,
        helpers: "Helpers | None" = None,
    ) -> None:
        """Configure where plugins are.

        `plugins` are folders that count as approved; `roots` are folders of plugins, instead of the standard ones;
        `ask` is called when a person must agree; `elicit` and `sample` when an MCP server asks a person or a model
        while one of its tools runs; `tell` about long work. Long-running plugins are started
        with the host, or with `eager=False` when they are first needed, except for those that observe or guard events;
        `greeting` tells them whose agent they work for, and in which folder. `environment` is the user's, instead of
        this process's own. `learning` observes one plugin. `tally` counts the calls,
        `questions` holds the open ones, and `places` limits how many run, for several hosts if they share them. `fleet`
        says how to join one; otherwise the settings do. `helpers` are processes that were started ahead.

        Raises ConfigError if the settings cannot be read, and TypeError if an argument is of the wrong type.
        """
        if ask is not None and not callable(ask):
            raise TypeError(f"ask must be a function that answers a question, not {type(ask).__name__}")
        given = greeting or Greeting()
        self._project = given.cwd or os.getcwd()
        self._greeting = msgspec.structs.replace(given, session_id=given.session_id or os.urandom(SESSION_BYTES).hex())
        self._users = Users(os.environ if environment is None else environment)
        self._catalog = Catalog(
            find_home(home),
            _folders("plugins", plugins),
            None if roots is None else _folders("roots", roots),
            self._greeting.cwd,
        )
        self._attachment = Attachment(ask=ask)
        self._attachment.elicit, self._attachment.sample = elicit, sample
        if (place := self._catalog.home.path) != find_home().path:
            self._attachment.home = ("--home", place)
        self._watch = watch
        self._tell = tell
        self._learning = learning
        self._helpers = helpers
        self._fleet_settings = fleet
        self._fleet: Gateway | None = None
        self.policy_version = ""  # of the fleet's policies, for a worker
        self._telemetry: Telemetry | None = None
        self._notices = Notices()
        self._approved: set[str] = set()  # plugins' paths, when the snapshot was last looked at
        self._logged: set[tuple[str, str]] = set()  # lines in plugins' logs that are not to be repeated
        self._callers: dict[str, Attachment] = {}  # of the running calls
        self._audit = Audit(self._catalog.store, self._catalog.home.second_head(self._catalog.settings))
        self._jobs = Jobs(self._catalog.store)
        self._kept = KeptResults(self._catalog.home)
        self._secrecies = Redactions(self._catalog.secrets)
        self.tally = tally or Counters()
        self.questions = questions or OpenQuestions()
        self.places = places or Places()
        self.places.follow(self._catalog.settings.calls)
        self._recording = Recording(self._audit, self.tally, tell, self._catalog.settings.audit)
        self._loading = Loading(self._catalog, self._tell_of_snapshot, self._follow_settings, eager=eager)
        for part in MADE_ON_ENTERING:
            setattr(self, part, _NotRunning())

    if not TYPE_CHECKING:

        def __enter__(self) -> None:
            """Explain what to write instead of `with`."""
            raise TypeError("use `async with Host(...) as host:`, or SyncHost in code without `async`")

        def __exit__(self, *_: object) -> None:
            """Stand beside `__enter__`, which `with` looks up second."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._leaving = anyio.Event()
        self._tasks = loop_tasks.create()
        with suppress(OSError):  # if it is not writable, only the default home is hidden from other homes' plugins
            note_home(self._catalog.home.path)
        self._put_together(self._catalog, self._project)
        await self._tasks.__aenter__()
        self._recording.open(self._loop.call_later)
        self._recover_changes()
        if scratch_folders.are_left(self._catalog.home.path):
            self._aside(lambda: scratch_folders.sweep(self._catalog.home.path))
        try:
            await self._join_fleet()
            if self._catalog.settings.telemetry.enabled:
                from anyplug.call.telemetry import Telemetry  # with its libraries, which few hosts need

                self._telemetry = Telemetry(self._catalog.settings.telemetry, self)
            await self._loading.begin(self._peers)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        if self._watch:
            self._tasks.start_soon(self._loading.follow, self._leaving)
        return self

    async def _join_fleet(self) -> None:
        """Connect to the fleet, if this host is to join one. Raises ConfigError."""
        settings = self._fleet_settings or self._catalog.settings.fleet
        if self._fleet_settings is None and not settings.join:
            return
        from anyplug.fleet.gateway import Gateway  # with the libraries for it, which few hosts need

        fleet = Gateway(settings, self._catalog.home, self._audit, self._loading.grow_stale, self._tell)
        self._fleet = self._catalog.elsewhere = await fleet.__aenter__()

    def _recover_changes(self) -> None:
        """Undo or finish changes to plugins that killed processes began."""
        if staging.names(self._catalog.home.plugins):
            from anyplug.manage.installer import Installer  # with git and uv, only after a process was killed

            for text in Installer(self._catalog).tidy():
                self._tell(text)

    def _put_together(self, catalog: Catalog, cwd: str) -> None:
        """Create and connect what lives as long as the host is open. Nothing is started yet."""
        catalog.store.tidy_aside(self._aside)
        self._project = cwd
        self._runner = Runner(catalog.home.path, namespaces=catalog.settings.namespaces, helpers=self._helpers)
        self._runner.guard.watch(self._loop)
        loading = self._loading
        self._admission = Admission(catalog, self._secrecies, loading.is_behind, loading.catch_up_with_decisions)
        self._peers = Peers(
            catalog,
            start=self._start,
            secrecy=self._secrecies.of,
            tasks=self._tasks,
            changed=self._loading.grow_stale,
            greeting=self._greeting,
            tell=self._tell,
        )
        warm = catalog.settings.warm
        self._pool = Pool(self._tasks, enabled=warm.enabled, budget=warm.budget_mb * MIB)
        self._provisions = Provisions(
            catalog,
            self._runner,
            self._secrecies,
            self._users,
            self._pool,
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
        self._gates = Gates(self._guards, policies, catalog.approvals, cwd, self.questions)
        self._job_runs = JobRuns(
            self._jobs, self._tasks, self._tell, lambda call: call.plugin.in_fleet and self._leaving.is_set()
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        with anyio.CancelScope(shield=True):
            await self._peers.stop_all(at_once=error is not None)
            await self._pool.close()
        if self._telemetry is not None:
            await self._telemetry.close()
        if self._fleet is not None:
            with anyio.CancelScope(shield=True):
                await self._fleet.__aexit__(None, None, None)
        self._tasks.cancel_scope.cancel()
        try:
            # The body's own error must not be passed to the tasks: it would come back inside a group.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._loading.close()
            self._admission.close()
            with anyio.CancelScope(shield=True):
                # The kernel takes sandboxes apart, and the disk takes the records, at the same time.
                ended = self._loop.run_in_executor(None, self._end_programs)
                try:
                    self._recording.close()
                    self._catalog.close()
                finally:
                    await ended

    def _end_programs(self) -> None:
        """End whatever was started, and the processes that started it. Blocks."""
        self._signals.close()
        self._provisions.close()
        self._runner.close()

    @property
    def snapshot(self) -> Snapshot:
        """What is loaded now."""
        return self._loading.snapshot

    @property
    def project(self) -> str:
        """The folder that it works in."""
        return self._project

    @property
    def variables(self) -> dict[str, str]:
        """The user's environment, of which plugins get a part."""
        return dict(self._users.variables)

    @property
    def has_policies(self) -> bool:
        """Whether policies decide about calls here."""
        return self._gates.has_policies

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
    def waiting(self) -> int:
        """How many interpreters were started ahead, and wait for a call."""
        return self._pool.count

    def busy(self) -> dict[str, int]:
        """Return how busy it is, by the names of the metrics."""
        return {
            "anyplug.calls.running": self.places.running,
            "anyplug.queue.length": self.places.waiting,
            "anyplug.processes": len(self._peers.up) + self._pool.count,
            "anyplug.warm.hits": self._pool.hits,
            "anyplug.warm.misses": self._pool.misses,
        }

    @property
    def greeting(self) -> Greeting:
        """What long-running plugins are told about the agent that they work for."""
        return self._greeting

    @property
    def catalog(self) -> Catalog:
        """Where plugins come from, and what people decided about them."""
        return self._catalog

    @property
    def fleet(self) -> "Gateway | None":
        """The fleet that it joined, if it did."""
        return self._fleet

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
        begun: Callable[[str], object] | None = None,
    ) -> Result:
        """Call a tool. Whatever happens ends as a result and as one audit record.

        An asynchronous tool runs as a job; with `wait=False` the job's id is returned at once, in the metadata.
        `progress` receives the plugin's progress reports, and `begun` at once the call's id, by which questions and
        its record name it. Raises only if the caller's own task is cancelled.
        """
        trail = CallState(name, attachment or self._attachment, arguments, self._project)
        if self._telemetry is not None:
            self._telemetry.begin(trail)
        if begun is not None:
            begun(trail.record.call)
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
            trail.record.policies = self._fleet.policy_version if self._fleet is not None else self.policy_version
            warnings = self._check(tool, entry.plugin, trail)
            call = file_arguments.named(self._call_of(tool, entry.plugin, trail, progress), self._project)
            place = self._place(call, trail.attachment)
            place.check()  # before anybody is asked
            call = await self._gates.before_call(call, standing, trail)
            may_widen = call.plugin.format == registry.WORKSPACE.format  # the chat's own tools
            caller, asker = trail.attachment, self.questions
            standing = await widened(call, standing, caller, self._project, asker) if may_widen else standing
            self._recording.begin(trail)
            trail.passed("gate")
        except CallError as error:
            result = self._recording.end(trail, failed(error))
            if isinstance(error, Denied) and call is not None:
                self._live.tell_of_result(call, result, has_run=False)
            return result
        except anyio.get_cancelled_exc_class():  # while somebody was asked
            self._recording.end(trail, failed(Cancelled("the call was cancelled before it ran")))
            raise
        if not tool.is_async:
            return await self._run(call, standing, trail, warnings, place)
        try:
            return await self._job_runs.run(
                call, trail, lambda job: self._run(call, standing, trail, warnings, place, job), wait=wait
            )
        except StoreError as error:
            unrecorded = f"the job cannot be recorded, so it was not run: {error.message}"
            return self._recording.end(trail, failed(Denied("host", unrecorded, error.hint)))

    async def preview(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, attachment: Attachment | None = None
    ) -> Preview:
        """Return what a call would do. Nothing runs, nobody is asked and nothing is recorded."""
        trail = CallState(name, attachment or self._attachment, arguments, self._project)
        found = Preview(tool=name)
        try:
            await self.hear_out(name)
            tool, entry = self.snapshot.tool(name)
            found = Preview(tool=tool.name, plugin=entry.name, format=entry.format, arguments=trail.given)
            format = registry.BY_NAME[entry.format]
            found = msgspec.structs.replace(found, violations=tuple(format.violations(tool, trail.given)))
            standing = await self._admission.admit(entry.plugin, tool, trail)
            self._check(tool, entry.plugin, trail)
            call = file_arguments.named(self._call_of(tool, entry.plugin, trail, None), self._project)
            around = await self._provisions.ready(entry.plugin, standing, trail.attachment.users)
            request = previews.shown(format.request(call, around), call, self._secrecies.of(entry.plugin).text)
        except CallError as error:
            why = trail.reached(Failure(error.code, error.message, error.hint))
            return msgspec.structs.replace(found, why_not=why)
        asks = self._gates.would_ask(call, standing, trail)
        return msgspec.structs.replace(found, arguments=call.arguments, allowed=True, would_ask=asks, request=request)

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
        if self._telemetry is not None:
            self._telemetry.begin(trail)
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

    def watch_calls(self, watcher: Watcher) -> Callable[[], None]:
        """Register a callback for calls that begin to run and that end; call the returned function to stop."""
        return self._recording.watch(watcher)

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
        await self._loading.reload(None if name is None else self._plugin(name).name)
        return self.snapshot

    def _plugin(self, name: str) -> Plugin:
        try:
            return self.snapshot.plugin(name).plugin
        except PluginNotFound as error:
            if self._attachment.is_library:
                error.hint = hints.for_library(error.hint, self._attachment.home, awaits=self._attachment.awaits)
                error.add_note(f"hint: {error.hint}")  # a traceback shows it
            raise

    async def approve(
        self,
        plugin: Plugin | str,
        *,
        granted: tuple[str, ...] | None = None,
        always: bool = False,
        follow: bool = False,
        unconfined: bool = False,
        inherits_environment: bool = False,
        seen: str | None = None,
    ) -> str:
        """Approve a plugin or the plugin of a name as it is now, for a person who has seen what it asks for.

        `seen` is the digest of what the person reviewed. Its init script and dependencies are set up first; returns
        what they printed. Raises CallError if that fails or if the plugin is not as it was seen; then nothing is
        approved. Raises PluginNotFound if no plugin has that name.
        """
        if isinstance(plugin, str):
            plugin = self._plugin(plugin)
        given = self.snapshot.with_full_names(plugin.permissions if granted is None else granted)
        said = await self._preparation.approve(
            plugin,
            given,
            always=always,
            follow=follow,
            unconfined=unconfined,
            inherits_environment=inherits_environment,
            seen=seen,
            callees=self.snapshot.callees(given),
        )
        await self.look_again()
        return said

    async def offer_workspace(self) -> None:
        """Offer the chat's own tools, to callers whose view shows them."""
        if not self._catalog.wants_workspace:
            self._catalog.wants_workspace = True
            await self.look_again()

    async def prepare(self, plugin: Plugin, granted: tuple[str, ...] | None = None, *, unconfined: bool = False) -> str:
        """Set a plugin up: its init script, its dependencies. Raises CallError."""
        return await self._preparation.prepare(plugin, granted, unconfined=unconfined)

    def has_started(self, pid: int) -> bool:
        """Return whether a process descends from one of this host's plugins."""
        return self._runner.guard.marks(pid)

    @property
    def attachment(self) -> Attachment:
        """The caller of the calls that name no other."""
        return self._attachment

    @property
    def has_jobs(self) -> bool:
        """Whether jobs of this host are running."""
        return self._job_runs.are_under_way

    def jobs(self) -> list[Job]:
        """List the jobs of every host of this home."""
        return self._jobs.all()

    def job(self, name: str) -> Job:
        """Find a job of any host of this home; raises JobNotFound and StoreError."""
        return self._jobs.one(name)

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
            progress=trail.masked_progress(progress),
            shows_panels=caller.shows_panels,
            conversation=caller.conversation,
            trace=trail.trace.context if trail.trace is not None else {},
        )

    async def _run(
        self, call: Call, standing: Standing, trail: CallState, warnings: list[str], place: Place, job: str = ""
    ) -> Result:
        """Run a permitted call in its place, which may have an id as a job, and record how it ended."""
        self._live.tell_of_call(call)
        self._callers[call.id] = trail.attachment
        if trail.trace is not None:
            phases.started.set(lambda: trail.passed("spawn"))
        listening = phases.listening.set(partial(self._report_on, job, call.plugin) if job else None)
        try:
            try:
                if call.plugin.in_fleet:
                    result = await self._run_elsewhere(call, standing, trail, place, job)
                else:
                    if call.plugin.stays_up and self._peers.has_other_rights(call.plugin, standing.rights):
                        await self._renew_rights(call.plugin)
                    users = trail.attachment.users
                    around = self._provisions.made(call.plugin, standing, users) or await self._provisions.ready(
                        call.plugin, standing, users
                    )
                    try:
                        async with place:
                            trail.passed("queue")
                            result = await self._exchange(call, standing, around, trail)
                        trail.passed("run")
                    except (ValueError, RecursionError) as unread:  # an answer that no decoder expected
                        why = str(unread).partition("\n")[0]
                        said = f"the answer of '{call.tool.name}' cannot be read: {why}"
                        raise BadOutput(said, FIX_PLUGIN) from unread
                    if intruder := self._provisions.intruder(call.plugin):
                        raise await self._intruded(call.plugin, intruder)
            except CallError as refusal:
                result = failed(refusal)
            result = await self._checked(call, standing, trail, warnings, result)
            if self._gates.has_policies:
                result = await self._gates.after(call, standing, trail, result)
            result = warned(result, warnings)
            result = await self._prepared(call, trail, result)
        except anyio.get_cancelled_exc_class():
            self._note_receipt(call, trail)
            cancelled = self._recording.end(trail, failed(Cancelled("the call was cancelled")))
            self._live.tell_of_result(call, cancelled)
            raise
        finally:
            phases.listening.reset(listening)
            del self._callers[call.id]
        self._note_receipt(call, trail)
        result = self._recording.end(trail, result)
        self._live.tell_of_result(call, result)
        return result

    def _place(self, call: Call, caller: Attachment) -> Place:
        """Return the place that a call takes while it runs."""
        plugin = call.plugin
        is_light = plugin.stays_up or plugin.in_fleet or plugin.format == registry.BUILTIN.format
        own = self._catalog.settings.of(plugin.name)
        return self.places.place(plugin.path, plugin.name, caller.line, own, is_light=is_light, depth=len(call.chain))

    async def _prepared(self, call: Call, trail: CallState, result: Result) -> Result:
        """Do in a thread what takes long for a large result: mask it, and shorten it for a model."""
        if (
            trail.attachment.is_model
            and is_long(result, self._catalog.settings.results.model_chars)
            and call.tool.name != registry.READ_RESULT
            and call.tool.name not in self.snapshot.services
        ):
            return await thread_lanes.run(call.plugin.path, trail.mask_ahead, result, self._cut(call, trail))
        if trail.secrecy is not None and trail.secrecy.mask() is not None and is_large(result):
            return await thread_lanes.run(call.plugin.path, trail.mask_ahead, result)
        return result

    def _cut(self, call: Call, trail: CallState) -> Callable[[Result], Result]:
        """Return what shortens a result for the model that gets it."""
        view = trail.attachment.view
        tool, _ = self.snapshot.tool(registry.READ_RESULT)
        reader = self.snapshot.model_names[tool.name] if view is None or view.has_tool(tool, self.snapshot) else ""
        settings = self._catalog.settings.results
        return lambda result: self._kept.cut(result, call.tool.name, call.plugin, settings, reader)

    async def _checked(
        self, call: Call, standing: Standing, trail: CallState, warnings: list[str], result: Result
    ) -> Result:
        """Return a result that can be passed on, with what may help if it is an error."""
        why = f"it has more than {MOST_BLOCKS:,} blocks" if len(result.content) > MOST_BLOCKS else ""
        if why := why or excess(result.structured) or excess(result.metadata, DEEPEST_METADATA):
            result = failed(BadOutput(f"the result of '{call.tool.name}' cannot be passed on: {why}", FIX_PLUGIN))
        if call.plugin.in_fleet:
            return result  # the worker saw to the rest
        if result.error is not None:
            said = f"{result.text}\n{result.metadata.get('stderr', '')}"
            error = await self._cured(result.error, said, call.plugin, standing, trail)
            if error is result.error and warnings:
                error = _blamed_on_arguments(error, call.tool, warnings)
            return msgspec.structs.replace(result, error=error)
        if remarks := self._provisions.private_files(call.plugin, result, call.arguments):
            return msgspec.structs.replace(warned(result, remarks), remarks=tuple(remarks))
        return result

    def _note_receipt(self, call: Call, trail: CallState) -> None:
        """Record what confined the plugin; of a worker's, the worker said it."""
        if not call.plugin.in_fleet:
            trail.record.held_by = self._provisions.receipt(call.plugin)

    def _report_on(self, job: str, plugin: Plugin, stderr: phases.Stderr) -> None:
        """Let what a job's program writes to stderr be its progress."""
        self._job_runs.listen(job, lambda: self._provisions.last_report(plugin, stderr()))

    async def _run_elsewhere(self, call: Call, standing: Standing, trail: CallState, place: Place, job: str) -> Result:
        """Let a worker of the fleet run a permitted call; raises CallError."""
        assert self._fleet is not None
        async with place:
            # What a grant opens is on the worker: here, only files of the project are read for a call.
            here = msgspec.structs.replace(standing, granted=())
            if file_arguments.has_paths(call):
                call = await self._provisions.with_files(call, here, trail.attachment.plugin)
            ran = await self._fleet.run(call, standing, trail.record, job)
        trail.record.held_by, trail.record.worker, trail.record.there = ran.receipt, ran.worker, ran.record
        return ran.result

    async def _job_elsewhere(self, call: Call, id: str, cancel: bool) -> Elsewhere | None:
        """Ask the fleet for a job, for a call that wants it; raises CallError."""
        assert self._fleet is not None
        there = await self._fleet.job(id, call, cancel=cancel)
        if there is None:
            return None
        owner = self.snapshot.owners.get(there.tool)  # the fleet names no more than the tool
        lineage = owner[1].plugin.lineage if owner is not None and owner[1].plugin.in_fleet else IN_FLEET
        return Elsewhere(there.tool, lineage, there.at, there.ran.result if there.ran else None)

    async def _exchange(self, call: Call, standing: Standing, around: Surroundings, trail: CallState) -> Result:
        """Turn a call into what its format asks for, do that, and turn the answer into a result; raises CallError."""
        format = registry.BY_NAME[call.plugin.format]
        caller = trail.attachment
        has_paths = file_arguments.has_paths(call)
        call = await self._provisions.with_files(call, standing, caller.plugin) if has_paths else call
        await format.ready(call, around)
        answer: Any = None
        match request := format.request(call, around):
            case Program():
                answer = await self._provisions.run(call.plugin, standing, _traced(request, call, caller))
            case AskPeer():
                peer = await self._peers.reach(call.plugin, call.tool.process)
                phases.tell_started()
                asks = PluginRequests(call, standing, trail, self._gates, self._recording)
                answer = await peer.call_tool(msgspec.structs.replace(call, asks=asks), request.timeout_s)
                self._peers.answered(call.plugin, call.tool.process)
            case Reload():
                try:
                    answer = await self._loading.reload_in_a_call(request.plugin)
                except PluginNotFound as error:
                    raise InvalidArguments(call.tool.name, [error.message], error.hint) from error
            case AskJob():
                try:
                    elsewhere = partial(self._job_elsewhere, call) if self._fleet is not None else None
                    answer = await self._job_runs.result(request, call.progress, self._sees_job(call), elsewhere)
                except StoreError as error:
                    raise Unavailable(f"the job cannot be read: {error.message}", error.hint) from error
            case ReadResult():
                answer = await thread_lanes.run(call.plugin.path, self._part, request, self._sees_job(call))
            case Inspect():
                answer = self._inspected(request.plugin, call)
            case AskInstall():
                answer = self._asked_to_install(request, call)
        return format.result(call, request, answer, around)

    def _part(self, request: ReadResult, sees: Sees) -> tuple[str, int, int]:
        """Return a range of a kept result of a tool that the caller sees; raises ResultNotFound."""
        about = self._kept.find(request.id)
        if not sees(about.tool, about.lineage):
            raise ResultNotFound(request.id)
        try:
            most = self._catalog.settings.results.model_chars
            part = self._kept.read(request.id, request.offset, min(request.length, most))
        except OSError as error:
            raise Unavailable(f"the result cannot be read: {error.strerror}", "call the tool again") from error
        return part.text, request.offset + len(part.text), part.about.characters

    def _sees_job(self, call: Call) -> Sees:
        caller = self._callers[call.id]
        view, plugin = caller.view, caller.plugin
        if plugin is not None:  # the jobs of tools that it may call
            return lambda tool, lineage: self._may_call(plugin, tool, lineage)
        if view is None:
            return self.snapshot.has_maker
        return lambda tool, lineage: view.has_job_of(tool, lineage, self.snapshot)

    def _may_call(self, plugin: Plugin, name: str, lineage: str) -> bool:
        """Return whether a plugin may call another's tool, by the tool's full name."""
        owner = self.snapshot.owners.get(name)
        if owner is None or owner[1].plugin.lineage != lineage:
            return False
        tool, entry = owner
        granted = self._catalog.approvals.granted_over(plugin, entry.plugin)
        return entry.path == plugin.path or permissions.may_call(granted, tool.names)

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

    def _asked_to_install(self, request: AskInstall, call: Call) -> list[str]:
        """Record that an agent wants a plugin, and return what a person types to install it; raises CallError."""
        from anyplug.manage import install_requests  # takes 10 ms to import, with HTTP and archives
        from anyplug.manage.plugin_sources import Source  # as above

        source = Source(location=request.location, ref=request.ref, subdir=request.subdir)
        try:
            return install_requests.ask(self._catalog.home, source, self._greeting.cwd or os.getcwd()).words
        except InstallError as error:
            raise InvalidArguments(call.tool.name, [error.message], error.hint) from error

    async def _intruded(self, plugin: Plugin, intruder: str) -> NotApproved:
        """Return the error for code that was added to a plugin's folder while it ran.

        A long-running process may have loaded that code, so it is restarted.
        """
        if plugin.stays_up:
            await self._loading.reload_in_a_call(plugin.path)
        return NotApproved(plugin.name, "changed", (intruder,))

    async def _run_command(self, command: Command, call: Call, standing: Standing, trail: CallState) -> CommandOutcome:
        """Run a permitted slash command, and ask the gates about its outcome; raises CallError."""
        if self._peers.has_other_rights(call.plugin, standing.rights):
            await self._renew_rights(call.plugin)
        extension = await self._peers.reach(call.plugin, command.process)
        trail.record.held_by = self._provisions.receipt(call.plugin)
        try:
            answer = await extension.run_command(command.name, call.arguments["args"])
        except CallError as error:
            if trail.secrecy is not None:
                await thread_lanes.run(call.plugin.path, trail.secrecy.error, error)
            raise
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
        self.places.follow(self._catalog.settings.calls)
        for part in (self._provisions, self._peers, self._guards, self._gates):
            part.follow(self._catalog.settings)

    def _tell_of_snapshot(self) -> None:
        approved = {entry.plugin.path for entry in self.snapshot.entries if entry.state == "approved"}
        self._pool.keep_only(approved.__contains__)
        for entry in self.snapshot.entries:
            if entry.problems and self._peers.has_begun(entry.plugin):
                self._log_shadowing(entry)
        self._notices.send(SnapshotChanged())
        arrived, self._approved = approved - self._approved, approved
        if not self._leaving.is_set():
            self._tasks.start_soon(self._provisions.follow_plugins, bool(arrived))

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
        caller = asker.for_plugin(plugin, chain, callers)
        caller.trace = parent.trace if parent is not None else {}
        return await self.call(name, arguments, attachment=caller)


def _traced(program: Program, call: Call, caller: Attachment) -> Program:
    """Hand the trace of a call to its program. It starts cold then, so only for callers that have a trace."""
    if not caller.trace:
        return program
    return msgspec.structs.replace(program, trace={name.upper(): value for name, value in call.trace.items()})


def _blamed_on_arguments(failure: Failure, tool: Tool, violations: list[str]) -> Failure:
    """Name the arguments that do not fit as the likely reason, unless the plugin itself told what to do."""
    if failure.hint and failure.code not in {"crashed", "bad_output"}:
        return failure
    wrong = "; ".join(violations[:MOST_BLAMED])
    hint = f"the arguments do not fit ({wrong}): {hints.command('tools', tool.name)} shows its parameters"
    return msgspec.structs.replace(failure, hint=for_models(hint))
