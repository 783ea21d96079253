"""One run of the command line: its options, the catalog it works on, and how it talks to the person."""

import argparse
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from anyplug.catalog import Catalog
from anyplug.errors import CODES, FAILED, AnyplugError
from anyplug.frontends.cli import render
from anyplug.registry import Entry, Snapshot
from anyplug.settings import find_home

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyplug.host import Host


class Session:
    """What a command works with."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._catalog: Catalog | None = None
        self._snapshot: Snapshot | None = None
        self._roots: list[str] | None = [] if options.no_discover else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._catalog is not None:
            self._catalog.close()

    @property
    def catalog(self) -> Catalog:
        """Where plugins come from. Raises AnyplugError."""
        if self._catalog is None:
            self._catalog = Catalog(find_home(self.options.home), self.options.plugin, self._roots)
        return self._catalog

    @property
    def snapshot(self) -> Snapshot:
        """What was found."""
        if self._snapshot is None:
            self._snapshot = self.catalog.load()
        return self._snapshot

    def forget_snapshot(self) -> None:
        """Look again next time: something was changed."""
        self._snapshot = None

    def plugin(self, name: str) -> Entry:
        """Find a plugin; raises PluginNotFound."""
        if os.sep in name:
            name = os.path.abspath(os.path.expanduser(name))
        return self.snapshot.plugin(name)

    def with_host(self, work: "Callable[[Host], Awaitable[int]]") -> int:
        """Run something that needs a running host."""
        import anyio  # with asyncio it costs 60 ms, and only commands that run plugins need it

        from anyplug.host import Host

        async def inside() -> int:
            async with Host(
                self.options.plugin,
                roots=self._roots,
                home=self.options.home,
                watch=False,
                tell=self.note,
            ) as host:
                return await work(host)

        return anyio.run(inside)

    def guarded(self, command: "Callable[[Session], int]") -> int:
        """Run a command; errors of ours become a message and an exit code."""
        try:
            return command(self)
        except AnyplugError as error:
            if self.options.debug:
                raise
            return self.fail(error)

    def fail(self, error: AnyplugError) -> int:
        """Report an error; give the exit code."""
        if self.options.json:
            self.print_json({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
        else:
            render.error(error.message, error.hint)
        return CODES[error.code].exit if error.code in CODES else FAILED

    def note(self, text: str) -> None:
        """Tell the person something beside the data."""
        if not self.options.quiet:
            print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        """Warn the person."""
        self.note(f"warning: {text}")

    def print_json(self, value: Any) -> None:
        """Print data for programs."""
        print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())

    def can_ask(self) -> bool:
        """Whether a person sits at the other end."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def ask(self, question: str) -> str:
        """Ask a person, on stderr because stdout is for data."""
        print(question, end=" ", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower()

    def confirm(self, question: str) -> bool:
        """Ask for a yes."""
        return self.ask(f"{question} [y/N]") in {"y", "yes"}


def refuse(message: str, hint: str) -> NoReturn:
    """End a command that needs a person's word and has none."""
    raise Unanswered(message, hint)


class Unanswered(AnyplugError):
    """A person had to agree, and did not."""

    code = "denied"
