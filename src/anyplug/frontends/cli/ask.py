"""`ask`: one question to the model, in a script. The answer goes to stdout, everything else to stderr."""

import asyncio
import contextlib
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.model.errors import DONE, FAILED, AnyplugError, UsageError
from anyplug.model.untrusted_text import escaped_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyplug.agent.conversation import Conversation
    from anyplug.agent.conversation_events import ConversationEvent, TurnEnded
    from anyplug.call.consent import Question
    from anyplug.host.host import Host

LIBRARY = "pydantic_ai"
LARGEST = 1 << 20  # bytes of a question
LONGEST_ARGUMENTS = 200  # characters of a call's arguments that are shown
INSTALL = "`pip install 'anyplug[chat]'` installs it"


def _ask(parser: Parser) -> Command:
    parser.add_argument("question", nargs="+", metavar="QUESTION", help="the question; - reads it from stdin")
    add_model(parser)
    parser.add_argument("--yes", action="store_true", help="allow tier 2 plugins to run without asking")
    parser.add_argument(
        "--resume", default="", metavar="ID", help="continue a stored conversation; `last` is the latest"
    )
    parser.epilog = (
        "The exit code is 0 if the turn ended well. With --json, every event is one line of JSON.\n"
        "Without a provider's key, the model is demo, which needs neither a key nor a network."
    )
    return ask


def add_model(parser: Parser) -> None:
    """Add the options that choose a model."""
    parser.add_argument(
        "--model", default="", metavar="MODEL", help="PROVIDER:NAME, or demo; else [chat] in the settings"
    )
    parser.add_argument("--base-url", default="", metavar="URL", help="use an OpenAI-compatible server, such as Ollama")


COMMANDS = {"ask": _ask}


class NotInstalled(AnyplugError):
    """The chat's libraries are not installed."""

    code = "unavailable"


def ask(session: Session) -> int:
    """Ask the model once."""
    need(LIBRARY)
    options = session.options
    question = " ".join(options.question)
    if question == "-":
        question = sys.stdin.buffer.read(LARGEST).decode(errors="replace")
    if not question.strip():
        raise UsageError("the question is empty", 'write it: `anyplug ask "what can you do"`')
    from anyplug.agent.open_conversation import beginning, open_conversation  # with a host, which only this needs

    greeting = beginning(session.catalog, model=options.model, base_url=options.base_url, resume=options.resume)

    async def work(host: "Host") -> int:
        async with open_conversation(
            host,
            model=options.model,
            base_url=options.base_url,
            resume=options.resume,
            kind="ask",
            yes=options.yes,
            asks=terminal.can_ask(),
        ) as talk:
            return await _take_turn(talk, question, _Printer(session, talk))

    return session.with_host(work, greeting=greeting)


def need(library: str) -> None:
    """Check that a library of the chat is installed; raises NotInstalled."""
    if find_spec(library) is None:
        raise NotInstalled("the chat is not installed: it needs another library", INSTALL)


async def _take_turn(talk: "Conversation", question: str, printer: "_Printer") -> int:
    stop = talk.listen(printer.hear)
    try:
        printer.hear(talk.so_far()[0])
        await talk.send(question)
        await talk.settled()
        await printer.settled()
    except asyncio.CancelledError:  # Ctrl-C
        with contextlib.suppress(asyncio.CancelledError):
            await talk.cancel()
        raise
    finally:
        stop()
    printer.end()
    return DONE if printer.is_well else FAILED


class _Printer:
    """Prints the events of one turn."""

    def __init__(self, session: Session, talk: "Conversation") -> None:
        self._session = session
        self._talk = talk
        self._is_json = session.options.json
        self._streamed = ""  # of the message that is being received
        self._is_line_open = False
        self._cancelling: asyncio.Future[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self.is_well = True
        self._handlers: dict[str, Callable[[Any], None]] = {
            "opened": self._opened,
            "text": self._text,
            "assistant": self._assistant,
            "tool_started": self._tool_started,
            "tool_ended": self._tool_ended,
            "note": lambda event: self._session.note(f"[{event.note.plugin}] {event.note.level}: {event.note.message}"),
            "command": self._command,
            "status": self._status,
            "compacted": lambda event: self._session.note(f"{event.messages} older messages were summarised"),
            "turn_ended": self._turn_ended,
        }

    def hear(self, event: "ConversationEvent") -> None:
        """Print an event, and answer it if it is a question."""
        kind = str(event.__struct_config__.tag)
        if self._is_json:
            self._put_out(escaped_json(msgspec.json.encode(event).decode()) + "\n")
        if kind == "asked":
            self._put(getattr(event, "question"))  # noqa: B009
        elif kind in {"turn_ended", "command"} or not self._is_json:
            handler = self._handlers.get(kind)
            if handler is not None:
                handler(event)

    async def settled(self) -> None:
        """Wait for answers that are being given."""
        for task in list(self._asking):
            await task

    def end(self) -> None:
        """End the last line."""
        self._close_line()

    def _opened(self, event: Any) -> None:
        if event.model == "demo" and not self._session.options.model:
            self._session.note(
                "No model key found, so this is demo, a small offline model; --model chooses another one."
            )

    def _text(self, event: Any) -> None:
        self._streamed += event.text
        self._write(event.text)

    def _assistant(self, event: Any) -> None:
        """Print what was not streamed; what an extension changed after all is printed whole."""
        if event.withheld:
            self._close_line()
            self._session.note(f"The answer is withheld by {event.withheld}")
        elif self._streamed != event.text:
            self._close_line()
            self._write(event.text)
        self._streamed = ""
        self._close_line()

    def _tool_started(self, event: Any) -> None:
        self._close_line()
        given = msgspec.json.encode(event.arguments).decode()
        self._session.note(f"-- {event.tool} ({event.plugin}) {render.line(given)[:LONGEST_ARGUMENTS]}")

    def _tool_ended(self, event: Any) -> None:
        if event.result.error is not None:
            said = f"-- {event.result.error.code}: {render.line(event.result.error.message)}"
            self._session.note(said, *([f"hint: {event.result.error.hint}"] if event.result.error.hint else []))

    def _command(self, event: Any) -> None:
        outcome = event.outcome
        if outcome.error is not None:
            self.is_well = False
            if not self._is_json:
                render.error(outcome.error.message, outcome.error.hint)
        elif not self._is_json and (outcome.display or outcome.insert or outcome.panel):
            self._write(render.for_stdout(outcome.text))
            self._close_line()

    def _status(self, event: Any) -> None:
        self._close_line()
        if event.level == "error":
            render.error(event.text, event.hint.replace("`/model", "`--model"))  # which is the chat's
        else:
            self._session.note(event.text, *([f"hint: {event.hint}"] if event.hint else []))

    def _turn_ended(self, event: "TurnEnded") -> None:
        self.is_well = self.is_well and event.stop == "end"
        if event.stop == "cancelled" and not self._is_json:
            self._session.note("cancelled")

    def _put(self, question: "Question") -> None:
        """Ask the person without stopping the turn."""
        from anyplug.frontends.cli.consent_prompt import wait_for_answer  # only where there is a person

        async def answered() -> None:
            self._talk.answer(question.id, await wait_for_answer(question))

        self._close_line()
        task = asyncio.ensure_future(answered())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def _write(self, text: str) -> None:
        if text:
            self._put_out(text)  # for_models has cleaned it
            self._is_line_open = not text.endswith("\n")

    def _put_out(self, text: str) -> None:
        """Print; if nobody reads any more, or the disk is full, cancel the turn."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                render.error(f"the answer cannot be written: {error.strerror}", "write it to another place")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that nothing else fails, the interpreter's end included
            self.is_well = False
            self._cancelling = asyncio.ensure_future(self._talk.cancel())

    def _close_line(self) -> None:
        if self._is_line_open:
            self._put_out("\n")
            self._is_line_open = False
