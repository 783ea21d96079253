"""A running Workbench plugin: a Node process with our `runner.cjs`, which loads the plugin.

The runner uses its own descriptors, so that whatever the plugin prints only goes to its log.
"""

import asyncio
import itertools
import os
import re
from typing import Any

import msgspec
from anyio import CancelScope

from anyplug.formats.shared import long_lived
from anyplug.formats.shared.contract import PeerListener, Terms
from anyplug.formats.shared.features import Reloader, ReloadWanted
from anyplug.formats.shared.scripts import modules_above
from anyplug.formats.workbench import format as workbench
from anyplug.model import json_values
from anyplug.model.errors import CURE_FOR_SHORTAGE, RETURN_LESS, CallError, TimedOut, TooLarge, Unavailable, is_shortage
from anyplug.model.types import Call, Offer, Plugin, Tool
from anyplug.runtime.processes.program import Program
from anyplug.runtime.session.reader import Unread
from anyplug.runtime.session.session import LONGEST_LINE, NotSent, PeerGone, Session

HELLO_S = 10.0  # for loading the plugin and for its `register`
BLOCKED_S = 2.0  # a process that does not answer for this long, even on a busy machine, blocks its event loop
MOST_REGISTERED = 1_000  # tools
LARGEST_REGISTERED = 16 << 20  # bytes of all of them
MOST_WARNINGS = 100  # shown to a person
LONGEST_WARNING = 1_000  # characters
LONGEST_CHAR = 6  # bytes: \\u0001
NUMBER_BYTES = 7  # so that a plugin cannot answer calls in advance
ANY_OBJECT: dict[str, Any] = {"type": "object"}

UNFINISHED = "register has not finished yet; tools that it registers later still appear"
FRAMES = frozenset({"tool", "problem", "ready", "failed", "result", "pong", "reload"})

ANSWERED = re.compile(rb'"type":"result","id":"(\d+)"')  # as the runner writes it

RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "runner.cjs")
# The session's pipes become descriptors 3 and 4; the plugin's output goes to stderr, which is logged.
REDIRECTED = 'exec "$@" 3<&0 4>&1 0</dev/null 1>&2'

_numbers = itertools.count(int.from_bytes(os.urandom(NUMBER_BYTES), "big"))


class Registered(msgspec.Struct):
    """A tool that the plugin registered."""

    name: str
    description: str = ""
    schema: dict[str, Any] | None = None


class Refusal(msgspec.Struct):
    """Something wrong with the plugin."""

    message: str
    hint: str = ""


class NodePlugin(Reloader):
    """One run of a Workbench plugin, from `start` on."""

    RESTARTS = False
    has_said_all = True  # it is running when it has
    events: frozenset[str] = frozenset()
    intercepts: frozenset[str] = frozenset()

    def __init__(self, plugin: Plugin, terms: Terms, listener: PeerListener) -> None:
        self.plugin = plugin
        self.tools: dict[str, Registered] = {}
        self._registered_bytes = 0
        self.warnings: list[str] = []
        self.active: dict[str, Call] = {}
        self._reload_wanted: ReloadWanted | None = None  # what the host has not begun with
        self._reloading = False
        self._terms = terms
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Refusal | None] = self._loop.create_future()
        self.session: Session  # from `start` on

    @property
    def gone(self) -> PeerGone | None:
        """How it ended, once it has."""
        return self.session.gone

    @property
    def offer(self) -> Offer:
        """What it has registered so far."""
        return Offer(
            tools=tuple(
                Tool(
                    name=tool.name,
                    own_name=tool.name,
                    plugin=self.plugin.name,
                    description=tool.description,
                    input_schema=tool.schema or ANY_OBJECT,
                    program="",
                    timeout_s=workbench.TIMEOUT_S,
                )
                for tool in self.tools.values()
            ),
            warnings=tuple(self.warnings),
        )

    async def start(self) -> None:
        """Start Node and wait for the registered tools; if it raises Unavailable, nothing is left running."""
        terms = self._terms
        limit = terms.settings.max_output_chars or workbench.MAX_CHARS
        longest_line = max(LONGEST_LINE, LONGEST_CHAR * limit + (1 << 20))
        program = self._program(limit, longest_line)
        try:
            self.session = Session(
                program,
                terms.spawn,
                receive=self._receive,
                ended=self._ended,
                log=terms.log,
                sieve=terms.secrecy.stream(),
                longest_line=longest_line,
                missed=self._missed,
            )
        except OSError as error:
            cure = CURE_FOR_SHORTAGE if is_shortage(error) else f"check that {program.cwd} still exists"
            raise Unavailable(f"Node cannot be started: {error.strerror}", cure) from error
        try:
            await self._registered(terms.settings.hello_s or HELLO_S)
        except BaseException:
            with CancelScope(shield=True):
                self.session.give_up("its start was given up")
                await self.session.stop()
            raise

    async def call_tool(self, call: Call, timeout_s: float) -> workbench.Answer:
        """Call one of its tools; raises CallError."""
        number, name = str(next(_numbers)), call.tool.own_name
        given = long_lived.encoded(call.arguments)
        self.active[number] = call
        try:
            frame = {"type": "call", "id": number, "tool": name, "input": msgspec.Raw(given)}
            raw = await self.session.ask(number, frame, timeout_s)
        except TimeoutError:
            raise await self._timed_out(timeout_s) from None
        except asyncio.CancelledError:
            self._end_if_blocked("the call was cancelled")
            raise
        except NotSent as not_sent:
            raise long_lived.not_asked(f"plugin '{self.plugin.name}'", not_sent) from not_sent
        except PeerGone as gone:
            raise self.unavailable(f"while '{name}' was running", gone) from gone
        finally:
            del self.active[number]
        return workbench.read_answer(raw, name)

    def reloaded(self, request: ReloadWanted) -> None:
        """Report that all plugins were read again, and repeat it if that was requested meanwhile."""
        self._reloading = False
        try:
            self.session.send({"type": "reloaded", "id": request.id})
        except (PeerGone, NotSent):
            return
        if self._reload_wanted is not None:
            self._reload(self._reload_wanted)

    async def stop(self) -> None:
        """End it in order."""
        await self.session.stop()

    def unavailable(self, when: str, gone: PeerGone) -> CallError:
        """Return the error for a plugin that has ended."""
        hint = f"`anyplug logs {self.plugin.name}` shows its output; the next call restarts it"
        return long_lived.ended(f"plugin '{self.plugin.name}'", when, gone, hint)

    def _program(self, limit: int, longest_line: int) -> Program:
        plugin, terms = self.plugin, self._terms
        node = os.path.join(terms.home.bin, "node")
        if not os.path.exists(node):
            raise Unavailable(
                "it needs Node 20.19 or newer, which is not installed",
                "install Node, or `pip install 'anyplug[node]'`",
            )
        lies_in = os.path.dirname(plugin.found_at)
        options = {
            "folder": plugin.path,
            "pluginsDir": lies_in,
            "searched": [] if plugin.path.startswith(lies_in + "/") else modules_above(lies_in),
            "limit": limit,
            "frame": longest_line,
        }
        command = (node, "--disable-warning=ExperimentalWarning", RUNNER, msgspec.json.encode(options).decode())
        return Program(
            argv=("/bin/sh", "-c", REDIRECTED, "anyplug", *command),
            cwd=terms.greeting.cwd or os.getcwd(),
            env=terms.environment,
        )

    async def _registered(self, hello_s: float) -> None:
        """Wait for the end of `register`; if it continues in the background, it may register more tools later."""
        await asyncio.wait((self._ready,), timeout=hello_s)
        if not self._ready.done():
            if await self._is_blocked():
                raise Unavailable(
                    f"it blocks while it loads: there was no answer within {hello_s:g}s",
                    "index.js and register must return; check for an endless loop",
                )
            self._warn(UNFINISHED)
        elif refusal := self._ready.result():
            raise Unavailable(refusal.message, refusal.hint)
        if self.session.gone is not None:
            raise self.unavailable("while it was loaded", self.session.gone)

    async def _timed_out(self, timeout_s: float) -> TimedOut:
        """Return the error for a slow call; a process that is stuck in it is killed."""
        message = f"Tool execution timeout ({timeout_s:g}s limit)"
        if await self._is_blocked():
            self.session.give_up("a call blocked its event loop")
            await self.session.left()  # so that the next call does not meet a dying process
            message += (
                "; the call blocked the plugin's event loop, so its process was killed, and the next call restarts it"
            )
        return TimedOut(
            message,
            f"ask for less, or raise `timeout_s` under [plugins.{self.plugin.name}] in settings.toml",
        )

    async def _is_blocked(self) -> bool:
        answered = self._ping()
        await asyncio.wait((answered,), timeout=BLOCKED_S)
        return not answered.done()

    def _end_if_blocked(self, why: str) -> None:
        answered = self._ping()

        def look() -> None:
            if not answered.done():
                self.session.give_up(f"{why}, and it blocked its event loop")

        self._loop.call_later(BLOCKED_S, look)

    def _ping(self) -> "asyncio.Future[Any]":
        """Ask for a sign of life; a process that has ended, or cannot be asked now, counts as alive."""
        number = f"ping {next(_numbers)}"
        try:
            answered = self.session.expect(number)
            self.session.send({"type": "ping", "id": number})
        except (PeerGone, NotSent):
            self.session.forget(number)
            answered = self._loop.create_future()
            answered.set_result(None)
        return answered

    def _receive(self, raw: dict[str, Any]) -> None:
        """Handle one frame from the runner. A plugin could write there, too, so nothing is trusted."""
        kind = raw.get("type")
        if not isinstance(kind, str) or kind not in FRAMES:
            self.session.malformed("a frame of an unknown type; check whether the plugin writes to descriptor 4")
            return
        self.session.counts.frames[kind] += 1
        try:
            match kind:
                case "result" | "pong":
                    self.session.answer(msgspec.convert(raw.get("id"), str), raw)
                case "tool":
                    self._register(msgspec.convert(raw, Registered))
                case "problem":
                    self._warn(msgspec.convert(raw, Refusal).message)
                case "reload":
                    self._reload(msgspec.convert(raw, ReloadWanted))
                case "ready":
                    self._get_ready(None)
                case "failed":
                    self._get_ready(msgspec.convert(raw, Refusal))
        except msgspec.ValidationError as error:
            self.session.malformed(str(error))

    def _missed(self, line: Unread) -> None:
        """Fail the call whose answer was skipped: the runner keeps to the length of a line, but not to its values."""
        if line.is_too_long and (number := ANSWERED.search(line.part)) is not None:
            self.session.fail(number[1].decode(), TooLarge(f"its answer was {line.why}, and was skipped", RETURN_LESS))

    def _get_ready(self, refusal: Refusal | None) -> None:
        if not self._ready.done():
            self._ready.set_result(refusal)
        if UNFINISHED in self.warnings:
            self.warnings.remove(UNFINISHED)
            self._listener.registered(self)

    def _reload(self, request: ReloadWanted) -> None:
        """Read all plugins again, one time after another: requests made meanwhile share the next time."""
        if self._reloading:
            self._reload_wanted = request
        else:
            self._reloading, self._reload_wanted = True, None
            self._listener.said(self, request)

    def _register(self, tool: Registered) -> None:
        if len(self.tools) >= MOST_REGISTERED:
            self._warn(f"it registered more than {MOST_REGISTERED} tools; the others are ignored")
            return
        if json_values.is_too_deep(tool.schema):
            self._warn(f"the tool '{tool.name}' was skipped: its schema is unusable, {json_values.TOO_DEEP}")
            return
        replaced = self.tools.get(tool.name)
        grown = len(msgspec.json.encode(tool)) - (len(msgspec.json.encode(replaced)) if replaced else 0)
        if self._registered_bytes + grown > LARGEST_REGISTERED:
            self._warn(f"it registered more than {LARGEST_REGISTERED >> 20} MiB; the rest is ignored")
            return
        self._registered_bytes += grown
        self.tools[tool.name] = tool
        self._listener.registered(self)

    def _warn(self, text: str) -> None:
        text = text[:LONGEST_WARNING]
        if text not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(text)
            self._listener.registered(self)

    def _ended(self, gone: PeerGone) -> None:
        if not self._ready.done():
            self._ready.set_result(None)
        self._listener.ended(self, gone)
