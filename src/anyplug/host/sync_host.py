"""A host for plain code: the same calls and results, without `async`.

The host runs on an event loop in a thread of its own, so any thread may call it. Imports nothing but the host.
"""

import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from anyplug.call.chains import ChainOutcome, Step
from anyplug.call.consent import Answer, Ask, Attachment, Question
from anyplug.call.job_store import Job
from anyplug.call.previews import Preview
from anyplug.call.slash_commands import CommandOutcome
from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.host.host import Host
from anyplug.model.types import Command, Plugin, Problem, Progress, Result, Tool

THREAD = "anyplug-host"

PlainAsk = Callable[[Question], Answer]
T = TypeVar("T")


def as_ask(ask: Ask | PlainAsk | None) -> Ask | None:
    """Return a function that asks a person as a host awaits it; a plain one runs in a thread, one question at a time.

    Otherwise two questions would share a terminal, and the event loop would stand still.
    """
    if not callable(ask):
        return ask  # the host refuses what is no function
    if inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(getattr(ask, "__call__", None)):  # noqa: B004
        return cast("Ask | None", ask)
    turn = threading.Lock()

    def put(question: Question) -> Answer | Awaitable[Answer]:
        with turn:
            return ask(question)

    async def asked(question: Question) -> Answer:
        answer = await anyio.to_thread.run_sync(put, question, abandon_on_cancel=True)
        return await answer if inspect.isawaitable(answer) else answer

    return asked


class SyncHost:
    """Finds plugins and runs their tools, for code without `async`.

    with SyncHost(plugins=["./hello-world"]) as host:
        result = host.call("hello_greet", {"name": "Alice"})
    """

    def __init__(
        self,
        plugins: Sequence[str | os.PathLike[str]] = (),
        *,
        roots: Sequence[str | os.PathLike[str]] | None = None,
        home: str | os.PathLike[str] | None = None,
        ask: Ask | PlainAsk | None = None,
        **options: Any,
    ) -> None:
        """Take what `Host` takes; `ask` may be a plain function, which is called in a thread.

        Raises ConfigError if the settings cannot be read.
        """
        self.host = Host(plugins, roots=roots, home=home, ask=as_ask(ask), **options)
        self.host.attachment.awaits = False
        self._stack: ExitStack | None = None
        self._portal: BlockingPortal | None = None
        self._thread = 0  # the host's own

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal(name=THREAD))
            stack.enter_context(portal.wrap_async_context_manager(self.host))
            self._portal, self._thread = portal, portal.call(threading.get_ident)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack, self._portal = self._stack, None, None
        if stack is not None:
            stack.__exit__(kind, error, trace)

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Await an asynchronous function on the host's event loop, such as a method of `host` or of an adapter.

        If the waiting is interrupted, by Ctrl+C for example, the function is cancelled.
        """
        if self._portal is None:
            raise RuntimeError("the host is not running: use `with SyncHost(...) as host:`")

        async def work() -> T:
            return await function(*args, **options)

        future = self._portal.start_task_soon(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def is_here(self) -> bool:
        """Whether this is the host's own thread, where its asynchronous functions can be awaited."""
        return threading.get_ident() == self._thread

    @property
    def snapshot(self) -> Snapshot:
        """What is loaded now."""
        return self.host.snapshot

    @property
    def tools(self) -> list[Tool]:
        """The tools that can be called."""
        return self.host.tools

    @property
    def plugins(self) -> list[Entry]:
        """Every plugin that was found, in order of precedence."""
        return self.host.plugins

    @property
    def commands(self) -> list[Command]:
        """The slash commands that can be run."""
        return self.host.commands

    @property
    def problems(self) -> list[Problem]:
        """Plugins' problems, each with its plugin's name."""
        return self.host.problems

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        attachment: Attachment | None = None,
        wait: bool = True,
        progress: Progress | None = None,
    ) -> Result:
        """Call a tool. Whatever happens ends as a result and as one audit record."""
        return self.run(self.host.call, name, arguments, attachment=attachment, wait=wait, progress=progress)

    def preview(self, name: str, arguments: Mapping[str, Any] | None = None) -> Preview:
        """Return what a call would do. Nothing runs, nobody is asked and nothing is recorded."""
        return self.run(self.host.preview, name, arguments)

    def run_chain(
        self, steps: Sequence[Step | Mapping[str, Any]], *, attachment: Attachment | None = None
    ) -> ChainOutcome:
        """Call tools one after another, each with the results of those before it. Raises BadChain."""
        return self.run(self.host.run_chain, steps, attachment=attachment)

    def run_command(self, line: str, *, attachment: Attachment | None = None) -> CommandOutcome:
        """Run a slash command as typed by a person."""
        return self.run(self.host.run_command, line, attachment=attachment)

    def approve(self, plugin: Plugin | str, **options: Any) -> str:
        """Approve a plugin as `Host.approve` does, for a person who has seen what it asks for.

        Raises CallError, and PluginNotFound if no plugin has that name.
        """
        return self.run(self.host.approve, plugin, **options)

    def reload(self, name: str | None = None) -> Snapshot:
        """Read everything again; restart all long-running plugins, or just the one of that name."""
        return self.run(self.host.reload, name)

    def jobs(self) -> list[Job]:
        """List the jobs of every host of this home."""

        async def listed() -> list[Job]:
            return self.host.jobs()

        return self.run(listed)

    def cancel_job(self, name: str) -> None:
        """Cancel a job, here or in another process."""

        async def cancel() -> None:
            self.host.cancel_job(name)

        self.run(cancel)
