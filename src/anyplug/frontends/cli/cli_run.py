"""One run of the command line: its options, the catalog it works on, and how it talks to the person."""

import argparse
import os
import shlex
import signal
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from anyplug.frontends.cli import render, terminal
from anyplug.home.settings import find_home
from anyplug.model.errors import CODES, FAILED, AnyplugError, PluginNotFound

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from anyplug.catalog.catalog import Catalog
    from anyplug.catalog.snapshot import Entry, Snapshot
    from anyplug.frontends.cli.via_daemon import Attached
    from anyplug.frontends.daemon.protocol import Condition
    from anyplug.host.host import Host
    from anyplug.launch.learning import Learning
    from anyplug.model.types import Offer, Plugin

# What decides about trust: nothing for an agent that policies bind.
DECIDING = frozenset(
    {
        "approve", "deny", "revoke", "grant", "enable", "disable", "install", "update", "remove", "config", "secret",
        "stop", "serve", "connect", "learn",
    }
)  # fmt: skip
ENDING = (signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


class Session:
    """What a command works with.

    SIGTERM and SIGHUP end it as Ctrl-C does: plugins are ended, calls recorded, what was staged is removed.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._catalog: Catalog | None = None
        self._has_warned = False
        self._snapshot: Snapshot | None = None
        self._has_asked = False  # whoever stays up has said what it offers
        self._roots: list[str] | None = [] if options.no_discover else None
        self._ended_by: int = signal.SIGINT
        self._task: asyncio.Task[Any] | None = None  # what runs plugins, while it does

    def __enter__(self) -> Self:
        for number in ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP, and so do we then
                signal.signal(number, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._catalog is not None:
            self._catalog.close()

    @property
    def catalog(self) -> "Catalog":
        """Where plugins come from. Raises AnyplugError."""
        if self._catalog is None:
            from anyplug.catalog.catalog import Catalog  # 25 ms, and a call that another host runs needs none

            self._catalog = Catalog(find_home(self.options.home), self.options.plugin, self._roots)
            self._warn_of_settings(self._catalog)
        return self._catalog

    @property
    def snapshot(self) -> "Snapshot":
        """What was found."""
        if self._snapshot is None:
            self._snapshot = self.catalog.load()
        return self._snapshot

    def running_snapshot(self) -> "Snapshot":
        """Return what was found; what nobody knows yet of plugins that stay up, they say themselves."""
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

            async def look(host: "Host") -> "Snapshot":
                return host.snapshot

            self._snapshot = self.with_host(look)
            self._has_asked = True
        return self.snapshot

    def see_as(self, conditions: "dict[str, Condition]") -> None:
        """Look again, with what the plugins of the resident host offer there, and why some are not up."""

        def offer_of(plugin: "Plugin") -> "Offer | None":
            condition = conditions.get(plugin.path)
            return (condition and condition.offer) or self.catalog.last_offer(plugin)

        self._snapshot = self.catalog.snapshot(self.catalog.find(), offer_of)
        self._has_asked = True

    def forget_snapshot(self) -> None:
        """Look again next time: something was changed."""
        self._snapshot = None
        self._has_asked = False

    def plugin(self, name: str) -> "Entry":
        """Find a plugin; raises PluginNotFound."""
        if os.sep in name:
            name = os.path.abspath(os.path.expanduser(name))
        try:
            return self.snapshot.plugin(name)
        except PluginNotFound as error:
            if os.path.isdir(name):
                error.hint = f"it is not in a folder that is searched; `anyplug --plugin {name} ...` uses it"
            raise

    def attach(self, kind: str = "cli", *, yes: bool = False) -> "Attached | None":
        """Attach to the resident host, if one is up that serves us as we would be served without it.

        A client of kind "control" may only ask how it does and stop it; that is not to work with it.
        """
        from anyplug.frontends.daemon.locate import Address, may_attach  # only commands that run plugins need it

        is_wanted = may_attach() or kind == "control"
        connection = Address(find_home(self.options.home).path).connect() if is_wanted else None
        if connection is None:
            return None
        from anyplug.frontends.cli.consent_prompt import ask
        from anyplug.frontends.cli.via_daemon import Attached  # as above

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
    ) -> "T":
        """Run something that needs a running host, which follows changes if it stays up.

        `learning` watches a plugin meanwhile.
        """
        import asyncio  # with anyio it costs 60 ms, and only commands that run plugins need it

        import anyio  # as above

        from anyplug.host.host import Host  # and this with them

        async def inside() -> "T":
            self._task = asyncio.current_task()
            async with Host(
                self.options.plugin,
                roots=self._roots,
                home=self.options.home,
                watch=stays_up,
                eager=False,
                tell=self.note,
                learning=learning,
            ) as host:
                self._warn_of_settings(host.catalog)
                return await work(host)

        try:
            return anyio.run(inside)
        except asyncio.CancelledError:
            raise KeyboardInterrupt(self._ended_by) from None
        finally:
            self._task = None

    def guarded(self, command: "Callable[[Session], int]") -> int:
        """Run a command; errors of ours become a message and an exit code."""
        try:
            self._refuse_agents()
            return command(self)
        except AnyplugError as error:
            if self.options.debug:
                raise
            return self.fail(error)

    def _refuse_agents(self) -> None:
        """Refuse what decides about trust to an agent that policies bind, and to whatever it started."""
        options = self.options
        decides = options.named in DECIDING or (options.named == "policy" and options.action in {"trust", "init"})
        if not decides or (options.named == "serve" and options.linger and not options.http):  # as `mcp` starts it
            return
        from anyplug.policy import bound_agents  # only for what decides

        needs_terminal = options.named not in {"serve", "stop", "update"}
        home = find_home(options.home).path
        if place := bound_agents.mounted_in(home):
            why = f"something is mounted at {place}, inside anyplug's home, and hides what is there"
            refuse(f"`anyplug {options.named}` was not run: {why}", f"unmount it: sudo umount {shlex.quote(place)}")
        if why := bound_agents.reason_against(home, os.getpid(), needs_terminal=needs_terminal):
            refuse(f"`anyplug {options.named}` was not run: {why}", "run it in a terminal of your own")

    def fail(self, error: AnyplugError) -> int:
        """Report an error; give the exit code."""
        if self.options.json:
            self.print_json({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
        else:
            render.error(error.message, error.hint)
        return CODES[error.code].exit if error.code in CODES else FAILED

    def note(self, *lines: str) -> None:
        """Tell the person something beside the data."""
        if not self.options.quiet:
            terminal.say(*lines)

    def warn(self, text: str) -> None:
        """Warn the person."""
        self.note(f"warning: {text}")

    def _warn_of_settings(self, catalog: "Catalog") -> None:
        """Warn the person once of what they set and cannot have."""
        if catalog.settings_fault and not self._has_warned:
            self._has_warned = True
            self.warn(catalog.settings_fault)

    def print_json(self, value: Any) -> None:
        """Print data for programs."""
        render.json(value)

    def confirm(self, question: str) -> bool:
        """Ask for a yes."""
        terminal.put(f"{question} [y/N]")
        return terminal.answer().strip().lower() in {"y", "yes"}

    def leave_signals(self) -> None:
        """Let signals end us at once until somebody else listens to them: there is nothing yet to be put in order.

        An exception out of a handler comes out anywhere, also where it is lost or becomes another, as in an import.
        """
        for number in ENDING:
            if signal.getsignal(number) == self._end:
                signal.signal(number, signal.SIG_DFL)

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Turn a signal into the end of what is under way."""
        if self._task is None:
            raise KeyboardInterrupt(number)
        self._ended_by = number
        # The loop sleeps in a system call that Python resumes after a signal: it has to be woken.
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)


def refuse(message: str, hint: str) -> NoReturn:
    """End a command that needs a person's word and has none."""
    raise Unanswered(message, hint)


class Unanswered(AnyplugError):
    """A person had to agree, and did not."""

    code = "denied"
