"""One running extension: its handshake, its registrations, and the requests to it.

A request's name, for the session, is the kind of its answer's frame plus its id: an answer of another kind matches
nothing. Knows the protocol and nothing about the host: what concerns others is passed to its listener.
"""

import asyncio
import itertools
import math
import os
import re
from typing import Any

import msgspec
from anyio import CancelScope

from anyplug.formats.shared import long_lived
from anyplug.formats.shared.contract import PeerListener, Terms
from anyplug.formats.shared.features import (
    BadAnswer,
    CallTool,
    CommandRunner,
    Guard,
    PanelOwner,
    Question,
    Subscriber,
    ToolCaller,
)
from anyplug.formats.zot import failures, frames, outgoing_frames
from anyplug.formats.zot import format as zot
from anyplug.formats.zot.failures import LongAnswer
from anyplug.formats.zot.registrations import Registration, Registrations
from anyplug.home import plugin_logs
from anyplug.model import json_values
from anyplug.model.errors import CallError
from anyplug.model.types import Block, Call, Offer, Plugin, Result
from anyplug.runtime.processes.diagnosis import shebang
from anyplug.runtime.processes.program import Program
from anyplug.runtime.session.reader import Unread
from anyplug.runtime.session.session import NotSent, PeerGone, Session

HELLO_S = 10.0
COMMAND_S = 30.0
TOOL_RESULT = '{"type": "tool_result", "id": ID, "content": [{"type": "text", "text": "..."}]}'
COMMAND_RESPONSE = '{"type": "command_response", "id": ID, "action": "display", "display": "..."}'
INTERCEPT_S = 5.0
IDLE_READY_S = 0.25  # an extension that is silent for this long after hello counts as ready
READY_S = 3.0  # and after this in any case
QUIET_STEP_S = 0.05  # between checks of a silent one
MOST_SHOWN = 20_000  # values in a frame that people see, such as the lines of a panel
SECOND_THOUGHT_S = 1.0  # until an invalid line counts as a bad answer
# What a line that should have been an answer contains, in any quotes.
MEANT = re.compile(rb"""["'](tool_result|command_response|event_intercept_response)["']""")
MEANT_FOR = re.compile(rb"""["']id["']\s*:\s*["']?([^"',}\s]+)""")

_numbers = itertools.count(1)


class Extension(Guard, Subscriber, PanelOwner, CommandRunner, ToolCaller):
    """One run of an extension, from `start` on."""

    RESTARTS = True

    def __init__(self, plugin: Plugin, terms: Terms, listener: PeerListener) -> None:
        self.plugin = plugin
        self._registered = Registrations()
        self.capabilities: frozenset[str] = frozenset()
        self.active: dict[str, Call] = {}  # its running tool calls
        self._questions: dict[str, Question] = {}  # open questions to it as a guard
        self._doubted: set[str] = set()  # answers that may have come in an invalid line
        self._masked_panels: dict[str, str] = {}  # panels whose id has a secret: the id that others see, and its own
        self._listener = listener
        self._sequence = itertools.count(1)  # of its events, without gaps
        self._terms = terms
        self._cwd = terms.greeting.cwd or os.getcwd()  # the project that it works in
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._is_ready = False  # it said so
        self._greeted_at = math.inf
        self._heard = 0.0
        self.session: Session  # from `start` on

    @property
    def gone(self) -> PeerGone | None:
        """How it ended, once it has."""
        return self.session.gone

    @property
    def offer(self) -> Offer:
        """What it has registered so far."""
        return self._registered.offer(self.plugin.name, is_whole=self.has_said_all)

    @property
    def has_said_all(self) -> bool:
        """Whether it said that it is ready, or had enough time."""
        return self._is_ready or self._loop.time() > self._greeted_at + READY_S

    @property
    def events(self) -> set[str]:
        """The events that it wants to receive."""
        return self._registered.events

    @property
    def intercepts(self) -> set[str]:
        """The events that it wants to decide about."""
        return self._registered.intercepts

    async def start(self) -> None:
        """Start it and wait until it is ready; if it raises Unavailable, with a hint, nothing is left running."""
        terms, name, launch = self._terms, self.plugin.name, self.plugin.launch
        assert launch is not None
        words = (launch.program, *(shebang(launch.program) if "/" in launch.program else ()))
        hello_s = terms.settings.hello_s or (long_lived.BUILT_FIRST_S if long_lived.is_built_first(words) else HELLO_S)
        program = Program(
            argv=(launch.program, *launch.arguments),
            cwd=self.plugin.path,
            env=terms.environment,
        )
        self._link_log()
        try:
            self.session = Session(
                program,
                terms.spawn,
                receive=self._receive,
                ended=self._ended,
                log=terms.log,
                sieve=terms.secrecy.stream(),
                decode=frames.read_plain,
                missed=self._missed,
            )
        except OSError as error:
            raise failures.not_started(name, program, error.strerror or str(error)) from error
        try:
            async with asyncio.timeout(hello_s):
                await self._greeted
            await self._settle()
        except TimeoutError:
            failure = failures.no_hello(name, hello_s, self.session)
            await self._end("it sent no hello")
            raise failure from None
        except PeerGone as gone:
            if gone.exit_code is None:  # a confined start reports failures only later
                raise failures.not_started(name, program, gone.reason) from gone
            raise self.unavailable("before it sent a hello", gone) from gone
        except BaseException:
            await self._end("its start was given up")
            raise
        if self.session.gone is not None:
            raise self.unavailable("before it was ready", self.session.gone)
        if "session_start" in self.events:
            self.hear("session_start", {})

    async def call_tool(self, call: Call, timeout_s: float | None) -> frames.ToolResult:
        """Call one of its tools; raises CallError."""
        number, name = str(next(_numbers)), call.tool.own_name
        self.active[number] = call
        noise = failures.noise_lines(self.session)
        frame = {"type": "tool_call", "id": number, "name": name, "args": call.arguments}
        try:
            answer: frames.ToolResult = await self.session.ask(f"tool_result {number}", frame, timeout_s)
        except TimeoutError:
            self._take_back(number)
            raise failures.timed_out(
                self.plugin.name, name, timeout_s, self.session, noise, is_interactive=call.tool.timeout_s <= 0
            ) from None
        except asyncio.CancelledError:
            self._take_back(number)
            raise
        except BadAnswer as bad:
            raise failures.bad_output(self.plugin.name, name, bad, TOOL_RESULT) from bad
        except NotSent as not_sent:
            raise failures.not_asked(self.plugin.name, not_sent) from not_sent
        except PeerGone as gone:
            raise self.unavailable(f"while '{name}' was running", gone) from gone
        finally:
            del self.active[number]
        return answer

    async def run_command(self, name: str, words: str) -> frames.CommandResponse:
        """Run one of its slash commands; raises CallError."""
        number, noise = str(next(_numbers)), failures.noise_lines(self.session)
        frame = {"type": "command_invoked", "id": number, "name": name} | ({"args": words} if words else {})
        try:
            answer: frames.CommandResponse = await self.session.ask(f"command_response {number}", frame, COMMAND_S)
        except TimeoutError:
            raise failures.timed_out(self.plugin.name, name, COMMAND_S, self.session, noise) from None
        except BadAnswer as bad:
            raise failures.bad_output(self.plugin.name, name, bad, COMMAND_RESPONSE) from bad
        except NotSent as not_sent:
            raise failures.not_asked(self.plugin.name, not_sent) from not_sent
        except PeerGone as gone:
            raise self.unavailable(f"while '/{name}' was running", gone) from gone
        return answer

    async def intercept(self, event: dict[str, Any], chain: tuple[str, ...]) -> frames.InterceptResponse:
        """Ask it about an event that the tools of `chain` led to.

        Raises TimeoutError, BadAnswer, NotSent or PeerGone; the host decides what follows.
        """
        number = str(next(_numbers))
        frame = {"type": "event_intercept", "id": number, **event}
        self._questions[number] = Question(chain)
        try:
            name = f"event_intercept_response {number}"
            answer: frames.InterceptResponse = await self.session.ask(name, frame, INTERCEPT_S)
        finally:
            del self._questions[number]
        return answer

    def question(self, tool: str) -> Question | None:
        """Return the question for which it most likely requested a tool, if it is asked any.

        Prefer one for which it has requested nothing yet, and to which that tool has not led; else the one with the
        longest chain.
        """
        free = [question for question in self._questions.values() if not question.calls]
        if free:
            return min(free, key=lambda question: (tool in question.chain, -len(question.chain)))
        return max(self._questions.values(), key=lambda question: len(question.chain), default=None)

    @property
    def may_call_tools(self) -> bool:
        """Whether it said in its hello that it would."""
        return "call_tool" in self.capabilities

    def answer(
        self, request: CallTool, content: tuple[Block, ...], *, is_error: bool, name: str = "", retry_after_ms: int = 0
    ) -> None:
        """Send it the result of a call that it requested; `name` is the tool's in events, if there is one."""
        frame = outgoing_frames.answer(request, name or request.name, content, is_error=is_error)
        refused = {"code": "overloaded", "retry_after_ms": retry_after_ms} if retry_after_ms else {}
        self._tell({**frame, **refused})

    def hear(self, event: str, fields: dict[str, Any]) -> None:
        """Send it an event."""
        known = {"session_id": self._terms.greeting.session_id, "cwd": self._cwd}
        self._tell(outgoing_frames.event(event, {**known, **fields, "sequence": next(self._sequence)}))

    def hear_call(self, call: Call) -> None:
        """Announce a call that is about to run."""
        self.hear("tool_call", outgoing_frames.about(call))

    def hear_result(self, call: Call, result: Result, *, has_run: bool) -> None:
        """Send it the result of a call."""
        self.hear("tool_result", {**outgoing_frames.about(call), **outgoing_frames.outcome(result, has_run=has_run)})

    def press_key(self, panel: str, key: str, text: str) -> None:
        """Send it a key that was pressed in one of its panels."""
        frame = {"type": "panel_key", "panel_id": self._masked_panels.get(panel, panel), "key": key}
        self._tell(frame | ({"text": text} if text else {}))

    def close_panel(self, panel: str) -> None:
        """Tell it that a person closed one of its panels."""
        self._tell({"type": "panel_close", "panel_id": self._masked_panels.get(panel, panel)})

    def _tell(self, frame: dict[str, Any]) -> None:
        """Send it something without an answer. If it has just ended, do nothing; what is too large is dropped."""
        try:
            self.session.send(frame)
        except NotSent as not_sent:
            self._terms.log(f"[anyplug] a frame of type {frame['type']} was left out: {not_sent}\n".encode())
        except PeerGone:
            pass

    async def stop(self) -> None:
        """End it in order."""
        if "session_end" in self.events:
            self.hear("session_end", {"reason": "shutdown"})
        await self.session.stop({"type": "shutdown"})

    def unavailable(self, when: str, gone: PeerGone) -> CallError:
        """Return how it ended."""
        return failures.ended(self.plugin.name, when, gone)

    def _take_back(self, number: str) -> None:
        if "tool_cancel" in self.capabilities:
            self._tell({"type": "tool_cancel", "id": number})

    async def _settle(self) -> None:
        """Wait for `ready` as zot does: until it comes, or silence. One without registrations is not ready."""
        until = self._loop.time() + READY_S
        while not self._ready.done() and self._loop.time() < until:
            quiet = self._heard + IDLE_READY_S - self._loop.time()
            if quiet <= 0 and self._registered:
                break
            await asyncio.wait((self._ready,), timeout=min(max(quiet, QUIET_STEP_S), until - self._loop.time()))
        if not self._ready.done():
            self._terms.log(b"[anyplug] no ready frame; taken as ready\n")

    def _receive(self, raw: dict[str, Any] | msgspec.Struct) -> None:
        """Handle one frame from the extension."""
        if isinstance(raw, frames.ToolResult) and self._is_ready:  # the usual case
            self.session.counts.frames["tool_result"] += 1
            self.session.answer(f"tool_result {raw.id}", raw)
        else:
            self._hear(raw)

    def _hear(self, raw: dict[str, Any] | msgspec.Struct) -> None:
        """Handle any frame, at any time."""
        self._heard = self._loop.time()
        kind = frames.kind_of(raw)
        try:
            frame = self._read(kind, raw)
        except frames.NotAFrame as error:
            self._misread(kind, raw.get("id") if isinstance(raw, dict) else None, str(error))
            return
        self.session.counts.frames[kind] += 1
        if not self._greeted.done():
            self._greet(frame)
            return
        match frame:
            case frames.ToolResult() | frames.CommandResponse() | frames.InterceptResponse():
                self.session.answer(f"{kind} {frame.id}", frame)
            case frames.RegisterTool() | frames.RegisterCommand() | frames.Subscribe():
                self._register(frame)
            case frames.Ready():
                self._is_ready = True
                if not self._ready.done():
                    self._ready.set_result(None)
            case frames.Hello() | frames.ShutdownAck():
                pass  # sent twice, or leaving
            case _:
                if (said := frames.said(self.plugin.name, frame)) is not None:
                    self._listener.said(self, said)

    def _misread(self, kind: str, number: Any, why: str) -> None:
        """Record an invalid frame, and fail the request that it was meant to answer."""
        self.session.malformed(why)
        if not self._greeted.done():
            self._refuse(why)
        elif number is not None:
            self._fail(f"{kind} {number}", BadAnswer(why))
        elif len(self.active) == 1:  # it can only be for this one
            self._doubt(f"{kind} {next(iter(self.active))}", BadAnswer(why))

    def _fail(self, name: str, bad: BadAnswer) -> None:
        """Fail the request that a bad answer was meant for, if it is open."""
        self._doubted.discard(name)
        self.session.fail(name, bad)

    def _doubt(self, name: str, bad: BadAnswer) -> None:
        """Do the same, unless a valid answer follows soon: some print what they are about to send."""
        if self.session.expects(name) and name not in self._doubted:
            self._doubted.add(name)
            self._loop.call_later(SECOND_THOUGHT_S, self._fail, name, bad)

    def _missed(self, line: Unread) -> None:
        """Check whether an invalid line was meant to answer something."""
        kind, number = MEANT.search(line.part), MEANT_FOR.search(line.part)
        if kind is not None and number is not None:
            why = f"its answer was not a frame: {line.why} (`anyplug logs {self.plugin.name}` shows the line)"
            bad = LongAnswer(f"its answer was {line.why}, and was skipped") if line.is_too_long else BadAnswer(why)
            self._doubt(f"{kind[1].decode()} {number[1].decode(errors='replace')}", bad)

    def _read(self, kind: str, raw: dict[str, Any] | msgspec.Struct) -> msgspec.Struct:
        """Decode a frame, with its secrets masked if people see it as it is; raises NotAFrame."""
        frame = frames.read(kind, raw)
        if isinstance(frame, frames.SHOWN) and isinstance(raw, dict):
            text = {name: value for name, value in raw.items() if name not in frames.NOT_TEXT}
            if why := json_values.excess(text, most=MOST_SHOWN):
                raise frames.NotAFrame(f"a {kind} frame that cannot be shown: {why}")
        if not isinstance(frame, frames.SHOWN):
            return frame
        shown = self._terms.secrecy.struct(frame, frames.NOT_TEXT)
        if (own := frames.panel_of(frame)) != (name := frames.panel_of(shown)):
            self._masked_panels[name] = own
        return shown

    def _greet(self, frame: msgspec.Struct) -> None:
        if not isinstance(frame, frames.Hello) or not frame.name:
            said = "it has none" if isinstance(frame, frames.Hello) else f"it was {frames.name_of(frame)}"
            self._refuse(f"the first frame must be a hello with a name, and {said}{failures.noise(self.session)}")
            return
        self.capabilities = frozenset(frame.capabilities)
        if failures.noise_lines(self.session):
            self._registered.warn("it wrote something else before its hello, which is an error in zot")
        if zot.name_of(frame.name, self.plugin.name) != self.plugin.name:
            self._registered.warn(f"its hello says '{frame.name}', but its manifest says '{self.plugin.name}'")
        self._tell(
            {
                "type": "hello_ack",
                "protocol_version": frames.PROTOCOL_VERSION,
                "zot_version": frames.SPOKEN_VERSION,
                "provider": self._terms.greeting.provider,
                "model": self._terms.greeting.model,
                "cwd": self._cwd,
                "extension_dir": self.plugin.path,
                "data_dir": self.plugin.path,
                "capabilities": ["call_tool"],
            }
        )
        self._greeted_at = self._loop.time()
        self._greeted.set_result(None)

    def _link_log(self) -> None:
        """Link the log where zot's users look for it."""
        if os.path.dirname(self.plugin.found_at) == os.path.join(zot.zot_home(), "extensions"):
            other = os.path.join(zot.zot_home(), "logs", f"ext-{self.plugin.name}.log")
            plugin_logs.link(self._terms.home.log(self.plugin), other)

    async def _end(self, why: str) -> None:
        with CancelScope(shield=True):
            self.session.give_up(why)
            await self.session.stop()

    def _refuse(self, why: str) -> None:
        """End an extension whose first frame was wrong."""
        self.session.give_up(why)

    def _register(self, frame: Registration) -> None:
        """Store a registration. The listener is told about new ones, not about repetitions."""
        if self._registered.add(frame):
            self._listener.registered(self)

    def _ended(self, gone: PeerGone) -> None:
        if not self._greeted.done():
            self._greeted.set_exception(gone)
            self._greeted.exception()  # an aborted start does not retrieve it
        if not self._ready.done():
            self._ready.set_result(None)
        self._listener.ended(self, gone)
