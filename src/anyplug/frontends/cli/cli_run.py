"""One run of the command line: its options, its catalog, and how it talks to the person."""

import argparse
import gc
import os
import shlex
import signal
from contextlib import ExitStack, nullcontext
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from anyplug.frontends.cli import progress, render, terminal
from anyplug.home.settings import find_home
from anyplug.model.errors import CODES, FAILED, AnyplugError, PluginNotFound
from anyplug.model.hints import LOOKING, command, typed, with_options

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from anyplug.catalog.catalog import Catalog
    from anyplug.catalog.snapshot import Entry, Snapshot
    from anyplug.formats.shared.contract import Greeting
    from anyplug.frontends.cli.via_daemon import Attached
    from anyplug.frontends.daemon.protocol import Condition
    from anyplug.home.settings import FleetSettings
    from anyplug.host.host import Host
    from anyplug.launch.learning import Learning
    from anyplug.model.types import Offer, Plugin
    from anyplug.runtime.helpers import Helpers

# Commands that decide about trust, which an agent bound by policies must not run.
WORKSPACE = "workspace-tools"  # the chat's own tools; repeated here because formats take a while to import
DECIDING = frozenset(
    {
        "approve", "deny", "revoke", "grant", "enable", "disable", "install", "update", "remove", "config", "secret",
        "stop", "serve", "connect", "learn", "ui", "worker", "try", "ungrant", "leftovers",
    }
)  # fmt: skip
FLEET_DECIDING = frozenset({"config", "init", "approve", "revoke", "withdraw", "publish", "policy"})
SHOWING = frozenset({"list", "tools", "show"})  # commands that list a fleet's plugins without calling them
COLLECT = 10_000  # new objects between collections while plugins run
ENDING = (signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


def collect_from_now() -> None:
    """Collect garbage as a long-running process needs it; `main` put that off for the start."""
    gc.freeze()  # what was imported stays, and need not be looked at again
    gc.set_threshold(COLLECT, *gc.get_threshold()[1:])


class Session:
    """The context of a command.

    SIGTERM and SIGHUP end it like Ctrl-C: plugins are ended, calls recorded, and staged files removed.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._catalog: Catalog | None = None
        self._closing = ExitStack()
        self._has_warned = False
        self._snapshot: Snapshot | None = None
        self._has_asked = False  # long-running plugins have reported what they offer
        self._roots: list[str] | None = [] if options.no_discover else None
        self._ended_by: int = signal.SIGINT
        self._task: asyncio.Task[Any] | None = None  # the task that runs plugins, while it does

    def __enter__(self) -> Self:
        for number in ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP, and so do we then
                signal.signal(number, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()
        if self._catalog is not None:
            self._catalog.close()

    @property
    def catalog(self) -> "Catalog":
        """Where plugins come from. Raises AnyplugError."""
        if self._catalog is None:
            # takes 25 ms to import, and a call through the daemon does not need it
            from anyplug.catalog.catalog import Catalog
            from anyplug.manage import staging

            self._catalog = Catalog(find_home(self.options.home), self.options.plugin, self._roots)
            self._catalog.approvals.place = "cli"
            self._warn_of_settings(self._catalog)
            if staging.names(self._catalog.home.plugins):
                from anyplug.manage.installer import Installer  # only after a process was killed

                for text in Installer(self._catalog).tidy():
                    self.note(text)
        return self._catalog

    @property
    def snapshot(self) -> "Snapshot":
        """What was found."""
        named = getattr(self.options, "named", "")  # a shell that completes has none
        if self._snapshot is None and named in SHOWING and self.is_in_fleet:
            with self.progress("asking the fleet"):
                self._snapshot = self.with_host(_its_snapshot)
            self._has_asked = True
        if self._snapshot is None:
            with self.progress("reading plugins, and checking their files"):
                self._snapshot = self.catalog.load()
        return self._snapshot

    @property
    def is_in_fleet(self) -> bool:
        """Whether our hosts join a fleet."""
        return bool(self.options.fleet or self.catalog.settings.fleet.join)

    @property
    def fleet(self) -> "FleetSettings | None":
        """How to join a fleet, if this command is to do so; None leaves it to the settings. Raises ConfigError."""
        return find_home(self.options.home).read_settings().fleet if self.options.fleet else None

    def running_snapshot(self) -> "Snapshot":
        """Return the snapshot, starting long-running plugins whose offer is unknown."""
        if self._has_asked:
            return self.snapshot
        unknown = [
            entry
            for entry in self.snapshot.entries
            if entry.plugin.stays_up and entry.state == "approved" and not self.catalog.knows_offer(entry.plugin)
        ]
        if unknown and (resident := self.attach()) is not None:
            with resident:
                self.see_as(resident.conditions())
        elif unknown:
            with self.progress(f"starting {render.count(len(unknown), 'plugin')} to learn what they offer"):
                self._snapshot = self.with_host(_its_snapshot)
            self._has_asked = True
        return self.snapshot

    def see_as(self, conditions: "dict[str, Condition]") -> None:
        """Rebuild the snapshot with what plugins offer in the daemon, and why some are not running."""

        def offer_of(plugin: "Plugin") -> "Offer | None":
            condition = conditions.get(plugin.path)
            return (condition and condition.offer) or self.catalog.last_offer(plugin)

        self._snapshot = self.catalog.snapshot(self.catalog.find(), offer_of)
        self._has_asked = True

    def forget_snapshot(self) -> None:
        """Rebuild the snapshot next time, because something changed."""
        self._snapshot = None
        self._has_asked = False

    def use_only(self, folder: str) -> None:
        """See only the plugin in a folder, named for this run."""
        if self._catalog is not None:
            self._closing.callback(self._catalog.close)  # who fetched the plugin still uses it
        self._catalog, self._roots = None, []
        self.options.plugin = [folder]
        self.forget_snapshot()

    def plugin(self, name: str) -> "Entry":
        """Find a plugin; raises PluginNotFound."""
        if name == WORKSPACE and not self.catalog.wants_workspace:  # in no list, but people decide about it
            self.catalog.wants_workspace = True
            self.forget_snapshot()
        if os.sep in name:
            name = os.path.abspath(os.path.expanduser(name))
        try:
            return self._named_plugin(name)
        except PluginNotFound as error:
            if os.sep in name and not os.path.isdir(name):
                from anyplug.catalog import wrong_folder  # only needed after a typo

                error.hint = wrong_folder.instead_of_missing(name)
            elif os.path.isdir(name) and self.catalog.read(os.path.realpath(name), os.path.abspath(name)) is None:
                from anyplug.catalog import wrong_folder  # for the same reason
                from anyplug.formats.shared.contract import Folder

                folder = Folder(os.path.realpath(name), os.path.abspath(name))
                error.hint = wrong_folder.instead_of_no_plugin(folder, self.catalog.settings.formats)
            elif os.path.isdir(name):
                again = f"{command('install', name)} installs it"
                if self.options.named in LOOKING:
                    again = f"{command('--plugin', name, self.options.named, *self.options.typed)} uses it for one run"
                error.hint = f"it is not in a folder that is searched; {again}"
            raise

    def _named_plugin(self, name: str) -> "Entry":
        """Find a plugin; a folder that is named by its path may be one although its files do not say so."""
        try:
            return self.snapshot.plugin(name)
        except PluginNotFound:
            if os.sep not in name or not os.path.isdir(name) or self.catalog.shows_all:
                raise
            self.catalog.shows_all = True
            self.forget_snapshot()
            return self.snapshot.plugin(name)

    def folder(self, given: str) -> str:
        """Return the folder that was given, or that of the plugin of this name.

        Raises PluginNotFound if there is neither, but a plugin has a similar name.
        """
        path = os.path.abspath(os.path.expanduser(given))
        if os.sep in given or os.path.lexists(path):
            return path
        try:
            return self.snapshot.plugin(given).path
        except PluginNotFound as error:
            if error.similar:
                raise
            return path

    def attach(self, kind: str = "cli", *, yes: bool = False) -> "Attached | None":
        """Attach to the daemon, if one is running that would serve us as we would serve ourselves.

        A "control" client may only query the status and stop the daemon, which does not count as working with it.
        """
        from anyplug.frontends.daemon.locate import Address, may_attach  # only commands that run plugins need it

        joins_alone = self.options.fleet and not self.catalog.settings.fleet.join
        is_wanted = (may_attach() and not joins_alone) or kind == "control"
        connection = Address(find_home(self.options.home).path).connect() if is_wanted else None
        if connection is None:
            return None
        from anyplug.frontends.cli.consent_prompt import ask
        from anyplug.frontends.cli.via_daemon import Attached  # for the same reason

        attached = Attached(connection, note=self.note, ask=ask)
        is_served = False
        try:
            is_served = attached.attach(
                kind,
                plugins=[os.path.abspath(os.path.expanduser(path)) for path in self.options.plugin],
                discover=not self.options.no_discover,
                asks=terminal.can_ask(),
                yes=yes,
            )
        finally:
            if not is_served:
                attached.close()
        return attached if is_served else None

    def with_host(
        self,
        work: "Callable[[Host], Awaitable[T]]",
        learning: "Learning | None" = None,
        *,
        stays_up: bool = False,
        runs_plugins: bool = False,
        greeting: "Greeting | None" = None,
    ) -> "T":
        """Run something that needs a host, which follows changes if it is long-running.

        `learning` observes a plugin meanwhile. `greeting` tells extensions whose agent they work for. With
        `runs_plugins` the processes for that are started before the host is imported.
        """
        helpers: Helpers | None = None
        if runs_plugins:
            from anyplug.runtime import helpers as started_ahead  # only commands that run plugins need it

            helpers = started_ahead.Helpers(find_home(self.options.home).path, waits=False)
            helpers.begin()
        try:
            return self._with_host(work, learning, stays_up=stays_up, greeting=greeting, helpers=helpers)
        finally:
            if helpers is not None:
                helpers.close()

    def _with_host(
        self,
        work: "Callable[[Host], Awaitable[T]]",
        learning: "Learning | None",
        *,
        stays_up: bool,
        greeting: "Greeting | None",
        helpers: "Helpers | None",
    ) -> "T":
        from anyplug.frontends.cli import light_asyncio  # takes 30 ms, and only commands that run plugins need it

        light_asyncio.load()
        import asyncio  # for the same reason

        import anyio  # for the same reason

        from anyplug.host.host import Host  # for the same reason

        async def inside() -> "T":
            self._task = asyncio.current_task()
            with ExitStack() as starting:
                starting.enter_context(self.progress("starting plugins"))
                async with Host(
                    self.options.plugin,
                    roots=self._roots,
                    home=self.options.home,
                    watch=stays_up,
                    eager=False,
                    tell=self.note,
                    learning=learning,
                    greeting=greeting,
                    fleet=self.fleet,
                    helpers=helpers,
                ) as host:
                    starting.close()
                    host.catalog.approvals.place = "cli"
                    self._warn_of_settings(host.catalog)
                    return await work(host)

        collect_from_now()
        try:
            return anyio.run(inside)
        except asyncio.CancelledError:
            raise KeyboardInterrupt(self._ended_by) from None
        finally:
            self._task = None

    def guarded(self, command: "Callable[[Session], int]") -> int:
        """Run a command; turn our errors into a message and an exit code."""
        try:
            self._refuse_agents()
            return command(self)
        except AnyplugError as error:
            if self.options.debug:
                raise
            return self.fail(error)

    def _refuse_agents(self) -> None:
        """Refuse decisions about trust to an agent bound by policies, and to whatever it started."""
        options = self.options
        decides = options.named in DECIDING or (options.named == "policy" and options.action in {"trust", "init"})
        decides = decides or (options.named == "audit" and (options.action == "prune" or options.reseal))
        decides = decides or (options.named == "fleet" and options.action in FLEET_DECIDING)
        if not decides or (options.named == "serve" and options.linger and not options.http):  # as `mcp` starts it
            return
        from anyplug.policy import bound_agents  # only needed for decisions

        needs_terminal = options.named not in {"serve", "stop", "update", "worker"}
        home = find_home(options.home).path
        if place := bound_agents.mounted_in(home):
            why = f"something is mounted at {place}, inside anyplug's home, and hides what is there"
            refuse(f"`anyplug {options.named}` was not run: {why}", f"unmount it: {typed('sudo', 'umount', place)}")
        if why := bound_agents.reason_against(home, os.getpid(), needs_terminal=needs_terminal):
            refuse(f"`anyplug {options.named}` was not run: {why}", "run it in your own terminal")

    def fail(self, error: AnyplugError) -> int:
        """Report an error; return the exit code."""
        if self.options.json:
            self.print_json({"error": self.failure(error)})
        else:
            render.error(error.message, self.reached(error.hint))
        return CODES[error.code].exit if error.code in CODES else FAILED

    def failure(self, error: AnyplugError) -> dict[str, str]:
        """Return an error for programs."""
        return {"code": error.code, "message": error.message, "hint": self.reached(error.hint)}

    def note(self, *lines: str) -> None:
        """Show the person something besides the data."""
        if not self.options.quiet:
            terminal.say(*map(self.reached, lines))

    def reached(self, hint: str, looking: frozenset[str] = LOOKING) -> str:
        """Return a hint whose commands see what this one saw: the same home, and the folders that it named.

        Those are for commands that are `looking`.
        """
        home = ["--home", self.options.home] if self.options.home else []
        alone = ["--no-discover"] if self.options.no_discover else []
        for folder in self.options.plugin:  # shorter than its whole path
            whole = os.path.abspath(os.path.expanduser(folder))
            hint = hint.replace(f"--plugin {shlex.quote(whole)} ", f"--plugin {shlex.quote(folder)} ")
        return with_options(hint, [*home, *alone], self.options.plugin, looking)

    def progress(self, what: str) -> "AbstractContextManager[progress.Say]":
        """Show the person what is being done inside, as long as it lasts."""
        return nullcontext(lambda _: None) if self.options.quiet else progress.shown(what)

    def warn(self, text: str) -> None:
        """Warn the person."""
        self.note(f"warning: {text}")

    def _warn_of_settings(self, catalog: "Catalog") -> None:
        """Warn the person once about settings that cannot be applied."""
        if catalog.settings_fault and not self._has_warned:
            self._has_warned = True
            self.warn(catalog.settings_fault)

    def print_json(self, value: Any) -> None:
        """Print data for programs."""
        render.json(value)

    def again(self, *more: str) -> str:
        """Return what to type to run the same command with more words."""
        return command(self.options.named, *(*self.options.typed, *more))

    def confirm(self, question: str) -> bool:
        """Ask a yes/no question."""
        terminal.put(f"{question} [y/N]")
        return terminal.answer().strip().lower() in {"y", "yes"}

    def leave_signals(self) -> None:
        """Let signals kill us at once until something handles them: there is nothing to clean up yet.

        An exception from a signal handler surfaces anywhere, also where it is lost or replaced, as in an import.
        """
        for number in ENDING:
            if signal.getsignal(number) == self._end:
                signal.signal(number, signal.SIG_DFL)

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Turn a signal into a cancellation of the running work."""
        if self._task is None:
            raise KeyboardInterrupt(number)
        self._ended_by = number
        # The loop sleeps in a system call that Python resumes after a signal, so it must be woken.
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)


async def _its_snapshot(host: "Host") -> "Snapshot":
    return host.snapshot


def refuse(message: str, hint: str) -> NoReturn:
    """End a command that needs a person's answer and has none."""
    raise Unanswered(message, hint)


class Unanswered(AnyplugError):
    """A person had to agree, and did not."""

    code = "denied"
