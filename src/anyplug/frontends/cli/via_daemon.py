"""One run of the command line attached to the daemon: send requests, and relay its questions to the person.

Plain blocking reads, because one command does one thing: that starts in half the time of an event loop.
"""

import json
import socket
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec

from anyplug import __version__
from anyplug.call.consent import Answer, Question
from anyplug.frontends.cli.daemon_lines import DaemonLines
from anyplug.frontends.daemon.locate import START_S, hello
from anyplug.frontends.daemon.protocol import Condition, Found, Served
from anyplug.model.errors import AnyplugError
from anyplug.model.types import Result

if TYPE_CHECKING:
    from anyplug.call.chains import ChainOutcome, Step
    from anyplug.call.slash_commands import CommandOutcome

CONTROL_S = 10.0  # for answers to control clients, for which no host is opened

T = TypeVar("T")


class Refused(AnyplugError):
    """The daemon's error answer."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


class HostGone(AnyplugError):
    """The daemon ended before it answered."""

    code = "unavailable"

    def __init__(self) -> None:
        super().__init__(
            "the daemon stopped before it answered",
            "try again; `anyplug audit` shows how the call ended",
        )


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    id: int | None = None
    result: msgspec.Raw = msgspec.Raw()  # nothing at all, unlike null
    error: dict[str, str] | None = None
    step: int | None = None
    note: str | None = None
    ask: int | None = None
    question: Question | None = None
    withdraw: int | None = None
    word: str = ""
    by: str = ""


class Elsewhere(Protocol):
    """Tells while a person is asked that somebody answered in another face."""

    def fileno(self) -> int:
        """Return what to wait for."""
        ...

    def said(self) -> str:
        """Return who answered what; empty if nobody has yet. May be called when something has arrived."""
        ...


class Attached:
    """The daemon, as a command sees it."""

    def __init__(
        self,
        connection: socket.socket,
        *,
        note: Callable[[str], None],
        ask: Callable[[Question, Elsewhere], Answer | None],
    ) -> None:
        """`note` is called with messages for the person; `ask` is called when they must agree.

        It returns None if somebody answered elsewhere meanwhile.
        """
        self._connection = connection
        self._lines = DaemonLines(connection)
        self._note = note
        self._ask = ask
        self.pid = 0  # of the host, once we are attached

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; running requests are cancelled."""
        self._connection.close()

    def attach(self, kind: str = "cli", **options: Any) -> bool:
        """Attach; return False if it does not serve us as we would serve ourselves. Raises Refused."""
        self._connection.settimeout(CONTROL_S if kind == "control" else START_S)
        try:
            self._connection.sendall(hello(kind, **options))
            welcome = json.loads(self._lines.readline() or b"{}")
        except TimeoutError:
            self._note("the daemon does not answer (`anyplug stop` shows how to end it)")
            return False
        except (OSError, ValueError):
            return False
        if kind != "control":
            self._connection.settimeout(None)  # calls have their own limits
        error = welcome.get("error")
        if error is not None and error["code"] != "unavailable":
            raise Refused(**error)
        if "attached" not in welcome:
            return False
        if welcome.get("version") != __version__ and kind == "cli":
            other = f"the daemon is anyplug {welcome.get('version')}, but this is {__version__}"
            self._note(f"{other}: working without it (`anyplug stop` stops it)")
            return False
        self.pid = welcome["pid"]
        return True

    def call(self, name: str, arguments: Any, *, wait: bool = True) -> Result:
        """Call a tool; without `wait`, an asynchronous one returns its job at once. Raises AnyplugError."""
        return self._asked(Result, "call", name=name, arguments=arguments, wait=wait)

    def find(self, name: str) -> Found:
        """Look up a name; with a slash, wait for commands that are about to be registered."""
        return self._asked(Found, "find", name=name)

    def run(self, line: str) -> "CommandOutcome":
        """Run a slash command."""
        from anyplug.call.slash_commands import CommandOutcome  # imports an event loop, which calls do not need

        return self._asked(CommandOutcome, "run", line=line)

    def chain(self, steps: "tuple[Step, ...]", on_step: Callable[[int, Result], None]) -> "ChainOutcome":
        """Run a chain; `on_step` is called at the end of each step."""
        from anyplug.call.chains import ChainOutcome  # for the same reason

        return self._asked(ChainOutcome, "chain", on_step, steps=steps)

    def look(self, path: str) -> dict[str, Any]:
        """Start a long-running plugin, and return the status of its processes."""
        return self._asked(dict[str, Any], "look", path=path)

    def conditions(self) -> dict[str, Condition]:
        """Let the daemon check all plugins again, and return the status of long-running ones, by path.

        For a "control" client it returns the status of those already running, as they are.
        """
        return self._asked(dict[str, Condition], "conditions")

    def reload(self, name: str) -> str:
        """Restart long-running plugins; return a summary."""
        return self._asked(str, "reload", name=name)

    def status(self) -> dict[str, Any]:
        """Return the daemon's status."""
        return self._asked(dict[str, Any], "status")

    def serve_http(self, **options: Any) -> Served:
        """Ask it to serve over HTTP; return where it does. Raises Refused."""
        self._connection.settimeout(START_S)
        return self._asked(Served, "http", **options)

    def until_gone(self) -> None:
        """Wait until the daemon ends."""
        self._connection.settimeout(None)
        while self._lines.readline():
            pass

    def console(self, port: int | None) -> dict[str, Any]:
        """Ask for the console; return its address, and a link that works once."""
        self._connection.settimeout(START_S)  # the first time, it imports a web server and opens a host
        return self._asked(dict[str, Any], "console", port=port)

    def stop(self) -> int:
        """Stop the daemon; return its process id."""
        return self._asked(int, "stop")

    def _asked(
        self,
        kind: type[T],
        do: str,
        on_step: Callable[[int, Result], None] = lambda _number, _result: None,
        **more: Any,
    ) -> T:
        self._send({"do": do, "id": 1, **more})
        while True:
            line = self._read()
            if line.note is not None:
                self._note(line.note)
            elif line.ask is not None and line.question is not None:
                word = self._ask(line.question, _Withdrawal(self._lines, line.ask))
                if word is not None:
                    self._send({"answer": line.ask, "word": word})
            elif line.step is not None:
                on_step(line.step, msgspec.json.decode(line.result, type=Result))
            elif line.error is not None:
                raise Refused(**line.error)
            elif line.withdraw is None and bytes(line.result):
                return msgspec.json.decode(line.result, type=kind)

    def _send(self, value: Any) -> None:
        try:
            self._connection.sendall(msgspec.json.encode(value) + b"\n")
        except OSError as error:
            raise HostGone from error

    def _read(self) -> _Line:
        try:
            line = self._lines.readline()
        except TimeoutError as error:
            hint = "`anyplug stop` shows how to end it"
            raise Refused("unavailable", "the daemon does not answer", hint) from error
        except OSError as error:
            raise HostGone from error
        if not line.endswith(b"\n"):
            raise HostGone
        return msgspec.json.decode(line, type=_Line)


class _Withdrawal:
    """Looks among the daemon's lines for the withdrawal of one question; all others stay for later."""

    def __init__(self, lines: DaemonLines, number: int) -> None:
        self._lines = lines
        self._number = number

    def fileno(self) -> int:
        """Return the daemon's socket."""
        return self._lines.fileno()

    def said(self) -> str:
        """Return who answered what. Raises HostGone."""
        try:
            arrived = self._lines.arrived()
        except (EOFError, OSError) as error:
            raise HostGone from error
        found, kept = "", []
        for raw in arrived:
            line = msgspec.json.decode(raw, type=_Line)
            if line.withdraw == self._number:
                found = f"answered in the {line.by}: {line.word}"
            else:
                kept.append(raw)
        self._lines.put_back(kept)
        return found
