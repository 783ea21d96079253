"""One running extension: its handshake, what it registered, and the questions that go to it.

Knows the protocol and nothing of the host: what concerns others is handed to `Listener`.
"""

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from anyio import CancelScope

from anyplug.errors import BadOutput, TimedOut, Unavailable
from anyplug.formats.zot import frames
from anyplug.model import Call, Plugin
from anyplug.runtime.diagnosis import diagnose
from anyplug.runtime.program import Program, Spawn
from anyplug.runtime.session import PeerGone, Session

COMMAND_S = 30.0
INTERCEPT_S = 5.0
IDLE_READY_S = 0.25  # an extension that says nothing for so long after hello is taken to be ready
READY_S = 3.0  # and after this in any case
MOST_REGISTERED = 1_000  # tools and commands, each; real extensions have a handful
MOST_WARNINGS = 100  # that a person is shown
ANSWERS = frozenset({"tool_result", "command_response", "event_intercept_response"})
INTERCEPTABLE = frozenset({"tool_call", "turn_start", "assistant_message", "before_agent_start"})

_numbers = itertools.count(1)


class Listener(Protocol):
    """Who hears of what an extension does on its own account."""

    def registered(self, extension: "Extension") -> None:
        """Hear that it registered or subscribed to something, maybe long after its start."""
        ...

    def said(self, extension: "Extension", frame: msgspec.Struct) -> None:
        """Hear a note, a text, a panel or a request of its own."""
        ...

    def ended(self, extension: "Extension", gone: PeerGone) -> None:
        """Hear that its process is gone."""
        ...


class BadAnswer(Exception):
    """It answered, and the answer is not one; the text says why."""


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """What an extension is told about its host."""

    provider: str = ""
    model: str = ""
    cwd: str = ""


class Extension:
    """A started extension. Make it with `start`."""

    def __init__(self, plugin: Plugin, listener: Listener, greeting: Greeting) -> None:
        self.plugin = plugin
        self.tools: dict[str, frames.RegisterTool] = {}
        self.commands: dict[str, frames.RegisterCommand] = {}
        self.events: set[str] = set()
        self.intercepts: set[str] = set()
        self.capabilities: frozenset[str] = frozenset()
        self.warnings: list[str] = []
        self.active: dict[str, Call] = {}  # its tool calls under way
        self._listener = listener
        self._greeting = greeting
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._heard = 0.0
        self._log: Callable[[bytes], None] = lambda _: None
        self.session: Session  # from `start` on

    @property
    def is_started(self) -> bool:
        """Whether it has a process, or had one."""
        return hasattr(self, "session")

    async def start(self, program: Program, spawn: Spawn, log: Callable[[bytes], None], hello_s: float) -> None:
        """Spawn it and wait until it is ready; raises Unavailable with the cure, and nothing is left then."""
        self._log = log
        try:
            self.session = Session(program, spawn, receive=self._receive, ended=self._ended, log=log)
        except OSError as error:
            reason, hint = _why_not_started(program, error)
            raise Unavailable(f"extension '{self.plugin.name}' cannot be started: {reason}", hint) from error
        try:
            async with asyncio.timeout(hello_s):
                await self._greeted
            await self._settle()
        except TimeoutError:
            await self._end("it said no hello")
            raise Unavailable(
                f"extension '{self.plugin.name}' sent no hello within {hello_s:g}s",
                "its first line on stdout must be a hello frame; it may be waiting for something",
            ) from None
        except PeerGone as gone:
            raise self.unavailable("before it said hello", gone) from gone
        except BaseException:
            await self._end("its start was given up")
            raise
        if self.session.gone is not None:
            raise self.unavailable("before it was ready", self.session.gone)

    async def call_tool(self, call: Call, timeout_s: float | None) -> frames.ToolResult:
        """Call one of its tools; raises CallError."""
        number, name = str(next(_numbers)), call.tool.own_name
        self.active[number] = call
        frame = {"type": "tool_call", "id": number, "name": name, "args": call.arguments}
        try:
            answer: frames.ToolResult = await self._ask("tool_result", frame, timeout_s)
        except TimeoutError:
            self._take_back(number)
            raise TimedOut(
                f"timeout waiting for {self.plugin.name}/{name} after {timeout_s:g}s",
                f"`timeout_s` under [plugins.{self.plugin.name}] in settings.toml changes the limit",
            ) from None
        except asyncio.CancelledError:
            self._take_back(number)
            raise
        except BadAnswer as bad:
            raise self._bad_output(name, bad) from bad
        except PeerGone as gone:
            raise self.unavailable(f"while '{name}' was under way", gone) from gone
        finally:
            del self.active[number]
        return answer

    async def run_command(self, name: str, words: str) -> frames.CommandResponse:
        """Run one of its slash commands; raises CallError."""
        number = str(next(_numbers))
        frame = {"type": "command_invoked", "id": number, "name": name} | ({"args": words} if words else {})
        try:
            answer: frames.CommandResponse = await self._ask("command_response", frame, COMMAND_S)
        except TimeoutError:
            raise TimedOut(f"timeout waiting for {self.plugin.name}/{name} after {COMMAND_S:g}s") from None
        except BadAnswer as bad:
            raise self._bad_output(name, bad) from bad
        except PeerGone as gone:
            raise self.unavailable(f"while '/{name}' was under way", gone) from gone
        return answer

    async def intercept(self, event: dict[str, Any]) -> frames.InterceptResponse:
        """Ask it about an event. Raises TimeoutError or PeerGone, and what follows from that is the host's rule."""
        number = str(next(_numbers))
        frame = {"type": "event_intercept", "id": number, **event}
        answer: frames.InterceptResponse = await self._ask("event_intercept_response", frame, INTERCEPT_S)
        return answer

    def tell(self, frame: dict[str, Any]) -> None:
        """Send it something that has no answer. That it has just ended is no error."""
        try:
            self.session.send(frame)
        except PeerGone:
            pass

    async def stop(self) -> None:
        """Let it leave in order."""
        await self.session.stop({"type": "shutdown"})

    def unavailable(self, when: str, gone: PeerGone) -> Unavailable:
        """Describe that it has ended."""
        stderr = f": {gone.stderr[-500:]}" if gone.stderr else ""
        return Unavailable(
            f"extension '{self.plugin.name}' ended {when}: {gone.reason}{stderr}",
            f"`anyplug logs {self.plugin.name}` shows what it said",
            exit_code=gone.exit_code,
            stderr=gone.stderr,
        )

    def _bad_output(self, name: str, bad: BadAnswer) -> BadOutput:
        return BadOutput(f"extension {self.plugin.name}/{name}: {bad}", "mend the frame that it answers with")

    async def _ask(self, kind: str, frame: dict[str, Any], timeout_s: float | None) -> Any:
        """Send a question and wait for an answer of the right kind: one of another kind answers nobody."""
        number = f"{kind} {frame['id']}"
        future = self.session.expect(number)
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, _expire, future)
        try:
            self.session.send(frame)
            answer = await future
        finally:
            if timer is not None:
                timer.cancel()
            self.session.forget(number)
        if isinstance(answer, BadAnswer):
            raise answer
        return answer

    def _take_back(self, number: str) -> None:
        if "tool_cancel" in self.capabilities:
            self.tell({"type": "tool_cancel", "id": number})

    async def _settle(self) -> None:
        """Wait for `ready` as zot does: until it comes, or nothing does."""
        until = self._loop.time() + READY_S
        while not self._ready.done() and self._loop.time() < until:
            quiet = self._heard + IDLE_READY_S - self._loop.time()
            if quiet <= 0:
                self._log(b"[anyplug] no ready frame; taken as ready\n")
                return
            await asyncio.wait((self._ready,), timeout=min(quiet, until - self._loop.time()))

    def _receive(self, raw: dict[str, Any]) -> None:
        """Take one frame from the extension."""
        self._heard = self._loop.time()
        try:
            frame = frames.read(raw)
        except frames.NotAFrame as error:
            self.session.malformed(str(error))
            if not self._greeted.done():
                self._refuse(str(error))
            elif frames.kind_of(raw) in ANSWERS and isinstance(number := raw.get("id"), str):
                self.session.answer(f"{frames.kind_of(raw)} {number}", BadAnswer(str(error)))
            return
        self.session.counts.frames[frames.kind_of(raw)] += 1
        if not self._greeted.done():
            self._greet(frame)
            return
        match frame:
            case frames.ToolResult() | frames.CommandResponse() | frames.InterceptResponse():
                self.session.answer(f"{frames.kind_of(raw)} {frame.id}", frame)
            case frames.RegisterTool() | frames.RegisterCommand() | frames.Subscribe():
                self._register(frame)
            case frames.Ready():
                if not self._ready.done():
                    self._ready.set_result(None)
            case frames.Hello() | frames.ShutdownAck():
                pass  # said twice, or leaving
            case _:
                self._listener.said(self, frame)

    def _greet(self, frame: msgspec.Struct) -> None:
        if not isinstance(frame, frames.Hello) or not frame.name:
            self._refuse("the first frame must be a hello with a name")
            return
        self.capabilities = frozenset(frame.capabilities)
        if frame.name != self.plugin.name:
            self._warn(f"it calls itself '{frame.name}'; its manifest says '{self.plugin.name}'")
        self.tell(
            {
                "type": "hello_ack",
                "protocol_version": frames.PROTOCOL_VERSION,
                "zot_version": frames.SPOKEN_VERSION,
                "provider": self._greeting.provider,
                "model": self._greeting.model,
                "cwd": self._greeting.cwd or os.getcwd(),
                "extension_dir": self.plugin.path,
                "data_dir": self.plugin.path,
                "capabilities": ["call_tool"],
            }
        )
        self._greeted.set_result(None)

    async def _end(self, why: str) -> None:
        with CancelScope(shield=True):
            self.session.give_up(why)
            await self.session.stop()

    def _refuse(self, why: str) -> None:
        """End an extension whose first words were wrong."""
        self.session.give_up(why)

    def _register(self, frame: msgspec.Struct) -> None:
        """Keep a registration; the first of a name wins."""
        match frame:
            case frames.RegisterTool():
                if not frame.name or not frame.name.isprintable():
                    self._warn("a tool without a usable name was skipped")
                elif frame.name in self.tools:
                    self._warn(f"it registered the tool '{frame.name}' twice; the first counts")
                elif len(self.tools) >= MOST_REGISTERED:
                    self._warn(f"it registered more than {MOST_REGISTERED} tools; the others do not count")
                else:
                    self.tools[frame.name] = frame
            case frames.RegisterCommand():
                name = frame.name.removeprefix("/")
                if not name or not name.isprintable() or " " in name:
                    self._warn("a command without a usable name was skipped")
                elif any(name.lower() == known.lower() for known in self.commands):
                    self._warn(f"it registered the command '/{name}' twice; the first counts")
                elif len(self.commands) >= MOST_REGISTERED:
                    self._warn(f"it registered more than {MOST_REGISTERED} commands; the others do not count")
                else:
                    self.commands[name] = msgspec.structs.replace(frame, name=name)
            case frames.Subscribe():
                self.events.update(frame.events)
                self.intercepts.update(INTERCEPTABLE.intersection(frame.intercept))
        self._listener.registered(self)

    def _warn(self, text: str) -> None:
        if text not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(text)

    def _ended(self, gone: PeerGone) -> None:
        if not self._greeted.done():
            self._greeted.set_exception(gone)
            self._greeted.exception()  # a start that was given up does not ask for it
        if not self._ready.done():
            self._ready.set_result(None)
        self._listener.ended(self, gone)


def _expire(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def _why_not_started(program: Program, error: OSError) -> tuple[str, str]:
    """Say why a program could not be started, and the cure."""
    name, search_path = program.argv[0], program.env.get("PATH")
    if "/" not in name:
        return f"there is no program '{name}' on the PATH", f"install {name}, or give its path in extension.json"
    fault = diagnose(name, search_path)
    return (fault.reason, fault.hint) if fault else (error.strerror or str(error), "run it by hand")
