# SPDX-License-Identifier: Apache-2.0
"""Write extensions for zot and anyplug in Python: tools, slash commands, panels, notes, events and guards.

    from anyplug.ext import Extension

    ext = Extension("weather", version="1.0.0")

    @ext.tool
    def forecast(city: str, days: int = 3) -> str:
        '''Return the forecast for a city.

        city: which city
        '''
        return f"{city}: sun for {days} days"

    ext.run()

This file needs only Python 3.9. Copy it next to your extension to ship it.

`run` says hello, registers everything and reads the host's frames. Tools, commands and guards run in their own
threads, so a slow one delays no other, and answers are sent in any order. Events are handled one after another, and so
are panels' keys. Every function can be async (all share one event loop) and can accept fewer arguments than offered.
Printed output goes to the log, so create the `Extension` first; from `run` on, so does the output of other programs.
"""
# ruff: noqa: T201, TRY301 - an extension's stderr is its log, and errors in a `try` here are answered at its end

from __future__ import annotations

import atexit
import binascii
import contextvars
import dataclasses
import enum
import functools
import inspect
import itertools
import json
import os
import queue
import re
import sys
import threading
import time
import traceback
import types
import typing
from collections import abc
from typing import IO, Any, Callable, Literal, TypeVar  # noqa: UP035 - Python 3.9 needs typing's Callable

SDK_VERSION = 1  # of this file: a copy with a lower version, or without one, is older
PROTOCOL_VERSION = 1
FRAME_BYTES = 4 * 1024 * 1024  # zot stops listening to an extension that sends a longer line
HEAD_BYTES = 1024  # of a frame: more than its type and the host's id take
CALL_TOOL_S = 60.0  # zot's limit for a tool that an extension calls
STIR_S = 0.1  # between keep-alives during `on_start`: after 0.25 s of silence zot assumes that all is registered
STIRS = 30  # of keep-alives: zot waits this long for `ready`
LEAVE_S = 0.5  # for handlers to end after a shutdown; zot sends SIGTERM 2 s after it
LINGER_S = 2.0  # to send answers when only stdin has ended, as in `./main.py < frames`
WAKE_S = 0.5  # between checks of the event loop, and for Ctrl-C: it does not end a wait that starts just after it
IDLE_S = 60.0  # until threads are released after a burst of calls
ERROR_CHARS = 500  # of an exception: the model needs the point, the log has the rest
FAILED_CHARS = 100_000  # of a `Failed`: its author wrote it to be read
SHOWN_CHARS = 100  # of a value in an error message
NEAR = 0.8  # of 1, to suggest an event: "turnEnd" is "turn_end", "before_agent_start" is not "subagent_start"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # accepted by zot as a command, and by models as a tool
# Code that is not the author's: frozen or generated, Python's own, or installed.
_FOREIGN = re.compile(rf"<|{re.escape(os.path.dirname(os.__file__))}[\\/]|.*(site|dist)-packages[\\/]")
_EVENTS = (
    "session_start", "session_end", "user_prompt_submit", "turn_start", "turn_end", "tool_call", "tool_result",
    "tool_confirmation_requested", "permission_decision", "assistant_message", "pre_compact", "post_compact",
    "subagent_start", "subagent_stop",
)  # fmt: skip
# For each intercepted event: the field that a guard sees, the field for its rewrite, and their type.
_GUARDED: dict[str, tuple[str, str, type]] = {
    "tool_call": ("tool_args", "modified_args", dict),
    "turn_start": ("step", "", int),
    "assistant_message": ("text", "replace_text", str),
    "before_agent_start": ("system_prompt", "system_prompt", str),
}

F = TypeVar("F", bound=Callable[..., Any])
Frame = typing.Dict[str, Any]  # noqa: UP006 - for Python 3.9


class Failed(Exception):
    """Raise in a tool, a command or a guard to answer with this error, without a traceback in the log."""


@dataclasses.dataclass(frozen=True)
class Host:
    """What the host reports about itself: `cwd` is the project's folder, `data_dir` is for the extension's state."""

    protocol_version: int = PROTOCOL_VERSION
    zot_version: str = ""
    provider: str = ""
    model: str = ""
    cwd: str = ""
    extension_dir: str = "."  # an extension is started in its own folder
    data_dir: str = "."


@dataclasses.dataclass(frozen=True)
class Image:
    """An image returned by a tool, alone or in a list with texts."""

    data: bytes
    mime_type: str = "image/png"


@dataclasses.dataclass(frozen=True)
class Result:
    """A tool's result as blocks: returned by `call_tool`, and optionally by tools."""

    content: list[Frame]
    is_error: bool = False
    structured: Any = None
    activate_tools: list[str] = dataclasses.field(default_factory=list)  # deferred tools to show from now on

    @property
    def text(self) -> str:
        """Its text blocks, joined."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


@dataclasses.dataclass(frozen=True)
class Reply:
    """A command's answer. Create it with the extension's `prompt`, `insert`, `display` or `noop`."""

    action: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A guard's answer. Create it with `block` or `rewrite`."""

    blocked: bool
    reason: str
    value: Any = None


def block(reason: str) -> Verdict:
    """Refuse; the model (for a tool call) or the user sees the reason."""
    return Verdict(blocked=True, reason=reason)


def rewrite(value: Frame | str, reason: str = "") -> Verdict:
    """Allow with other arguments (a tool call) or another text (a message, a system prompt)."""
    return Verdict(blocked=False, reason=reason, value=value)


def _registration(method: F) -> F:
    """Cut the frames below a method from the tracebacks of its errors.

    Hosts show the end of stderr, which must contain the author's line.
    """

    @functools.wraps(method)
    def register(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except (TypeError, ValueError) as error:
            raise error.with_traceback(None) from None  # the line to fix is the one above

    return typing.cast("F", register)


class Panel:
    """A panel that the extension draws: change `title`, `lines` or `footer`, then `render`.

    Create it with `Extension.panel`. A command opens a panel by returning it; `open` opens it at any time.
    """

    def __init__(
        self, send: Callable[[Frame], None], id: str, title: str, lines: typing.Iterable[Any], footer: str
    ) -> None:
        self.id, self.title, self.lines, self.footer = id, title, _lines(lines), footer
        self.is_open = False
        self.key: Callable[..., Any] = lambda: None
        self.closed: Callable[..., Any] = lambda: None
        self._send = send
        self._lock = threading.RLock()  # so that the last frame sent is the last one drawn

    @_registration
    def on_key(self, function: F) -> F:
        """Call the function with `(key, text)` for each key; `text` is the character if the key is "rune"."""
        self.key = _usable(function)
        return function

    @_registration
    def on_close(self, function: F) -> F:
        """Call the function when the user closes the panel."""
        self.closed = _usable(function)
        return function

    def open(self, frame: Frame | None = None, field: str = "panel") -> None:
        """Show it, unrequested or in the frame that answers a command."""
        with self._lock:
            before, self.is_open = self.is_open, True  # first, because the host may close it as soon as it is shown
            try:
                self._send({**(frame or {"type": "open_panel"}), field: {"id": self.id, **self._face()}})
            except (TypeError, ValueError):
                self.is_open = before
                raise

    def render(self) -> None:
        """Send its current content; do nothing while it is closed."""
        with self._lock:
            if self.is_open:
                self._send({"type": "panel_render", "panel_id": self.id, **self._face()})

    def close(self) -> None:
        """Close it."""
        with self._lock:
            if self.is_open:
                self.is_open = False
                self._send({"type": "panel_close", "panel_id": self.id})

    def _face(self) -> Frame:
        return {"title": _shown(self.title), "lines": _lines(self.lines), "footer": _shown(self.footer)}


class Extension:
    """An extension: register tools, commands and guards with the decorators, then `run` it."""

    def __init__(self, name: str, version: str = "", *, calls_tools: bool = False) -> None:
        """Create an extension; `calls_tools` asks the host to allow `call_tool`.

        Raises ValueError if there is no name.
        """
        if not name:
            raise ValueError("an extension needs a name: that of its extension.json")
        self.name, self.version = _shown(name), _shown(version)
        self.host = Host()  # until the host's first frame
        if sys.stdout is sys.__stdout__ and sys.stdout and not sys.stdout.isatty():
            sys.stdout = sys.stderr  # output before `run` would precede the hello
        self._calls_tools = calls_tools
        self._grants: list[Any] = []  # the host's capabilities
        self._tools: dict[str, _Tool] = {}
        self._commands: dict[str, Callable[..., Any]] = {}
        self._events: dict[str, list[Callable[..., Any]]] = {}
        self._guards: dict[str, list[Callable[..., Any]]] = {}
        self._starts: list[Callable[..., Any]] = []
        self._panels: dict[str, Panel] = {}
        self._calls: dict[str, _Call] = {}  # running calls of our tools
        self._asked: dict[str, tuple[_Call | None, queue.SimpleQueue[Frame | None]]] = {}  # calls of the host's tools
        self._numbers = itertools.count(1)
        self._started = threading.Event()  # the host is known, and `on_start` has run
        self._failure: BaseException | None = None  # of `on_start`
        self._over = threading.Event()  # the host is shutting down, or the start failed
        self._patience = LINGER_S  # for calls that still run then
        # Guards have their own threads: the calls that they decide about may have taken all the others.
        self._workers, self._deciders = _Workers(self._started), _Workers(self._started)
        self._event_lane, self._panel_lane = _Workers(self._started, most=1), _Workers(self._started, most=1)
        self._loop: Any = None  # of the async functions, once there is one
        self._loop_thread = 0
        self._waits = threading.Event()  # the loop was asked for a turn at the last check, and has not had one
        self._holders: set[str] = set()  # async functions that blocked the loop
        self._writing = threading.RLock()
        self._out: int | None = None
        self._early: list[bytes] | None = []  # queued before `run`: nothing may precede the hello
        if sys._getframe(1).f_globals.get("__name__") == "__main__":  # noqa: SLF001 - tests may import it and exit
            atexit.register(self._miss_run)

    # Registering.

    @_registration
    def tool(
        self,
        function: Any = None,
        *more: Any,
        name: str = "",
        description: str = "",
        schema: Frame | None = None,
        interactive: bool = False,
        deferred: bool = False,
        namespace: str = "",
    ) -> Any:
        """Register a function as a tool; its hints, defaults and docstring become its schema.

        It can return text, an `Image`, a list of these, any JSON value or a `Result`; an exception is an error. With
        your own `schema`, arguments are not checked. `interactive` means that it may wait for a person. A `deferred`
        tool is not shown to models until they search for it, or until a result names it in `activate_tools`;
        `namespace` groups such tools, by default under the extension's name. Hosts without these show all tools. Raises
        TypeError for a hint that JSON Schema cannot express, and ValueError for a name that is unusable or taken.
        """
        if function is None:
            return functools.partial(
                self.tool,
                name=name,
                description=description,
                schema=schema,
                interactive=interactive,
                deferred=deferred,
                namespace=namespace,
            )
        if isinstance(function, str):
            about = "".join(f', description="{text}"' for text in more[:1])
            raise TypeError(f'to name a tool, write @ext.tool(name="{function}"{about})')
        if more:
            raise TypeError("a tool takes one function; write all else by name: @ext.tool(name=..., schema=...)")
        tool = _Tool(function, _checked(name or _named(_usable(function)), self._tools), description, schema)
        self._tools[tool.name] = tool
        if not tool.description:
            print(f"tool {tool.name} has no description, by which models choose: write a docstring", file=sys.stderr)
        frame: Frame = {"type": "register_tool", "name": tool.name, "description": tool.description}
        frame["schema"] = tool.schema
        if interactive:
            frame["interactive"] = True
        if deferred:
            frame |= {"deferred": True, "exposure": "deferred"}  # hosts know one of the two, or neither
        if namespace:
            frame["namespace"] = namespace
        self._send(frame)
        return function

    @_registration
    def command(self, name: Any = "", description: str = "") -> Any:
        """Register a slash command; the function gets the text typed after it. The default name is the function's.

        It returns `prompt(...)`, `insert(...)`, `display(...)`, `noop()`, a `Panel` to open, a text to display or None.
        Raises ValueError for a name that is unusable or taken.
        """
        if callable(name):
            return self.command()(name)

        @_registration
        def register(function: F) -> F:
            known = _checked(name.lstrip("/") or _named(_usable(function)), self._commands)
            self._commands[known] = function
            text = description or (inspect.getdoc(_inmost(function)) or "").partition("\n")[0]
            self._send({"type": "register_command", "name": known, "description": text})
            return function

        return register

    @_registration
    def on(self, *events: str) -> Callable[[F], F]:
        """Subscribe to events such as "turn_end"; the function gets the fields in a dict, without zero values.

        Raises TypeError if no event is named.
        """
        if not events or not all(isinstance(event, str) for event in events):
            raise TypeError('say which events to hear of: @ext.on("turn_end")')
        for event in set(events).difference(_EVENTS):  # hosts may have more events
            import difflib  # needed only for typos

            near = difflib.get_close_matches(event, _EVENTS, n=1, cutoff=NEAR)
            known = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(_EVENTS)}"
            print(f'zot has no event "{event}"; {known}', file=sys.stderr)

        @_registration
        def register(function: F) -> F:
            for event in events:
                self._events.setdefault(event, []).append(_usable(function))
            self._subscribe(list(events), [])
            return function

        return register

    @_registration
    def on_start(self, function: F) -> F:
        """Call the function when the host is known, before the extension gets any request.

        Its registrations are available from the start: `ready` is sent after it, and the host waits up to 3 s for that.
        zot itself is not ready then: notes, panels and `call_tool` have no effect there. `run` raises what it raises.
        """
        self._starts.append(_usable(function))
        return function

    @_registration
    def intercept_tool_call(self, function: F) -> F:
        """Guard every tool call: `function(name, args)` returns None, `block(reason)` or `rewrite(args)`.

        A guard that raises, or returns anything else, blocks; the same applies to turns and messages. `Failed` gives
        just the reason. A guard cannot use `call_tool`, because it would be asked about that call too.
        """
        return self._guard("tool_call", function)

    @_registration
    def intercept_turn_start(self, function: F) -> F:
        """Guard each request to the model: `function(step)` returns None or `block(reason)`."""
        return self._guard("turn_start", function)

    @_registration
    def intercept_assistant_message(self, function: F) -> F:
        """Guard what the user sees: `function(text)` returns None, `block(reason)` or `rewrite(text)`."""
        return self._guard("assistant_message", function)

    @_registration
    def intercept_agent_start(self, function: F) -> F:
        """Change the system prompt: `function(prompt)` returns None or `rewrite(prompt)`.

        It cannot block: if it raises, the log says so, and the prompt does not change.
        """
        return self._guard("before_agent_start", function)

    def panel(self, id: str, title: str = "", lines: typing.Iterable[Any] = (), footer: str = "") -> Panel:
        """Create a panel; `lines` can be one string. A new one with the same id gets the keys of the old one."""
        panel = self._panels[str(id)] = Panel(self._send, str(id), title, lines, footer)
        return panel

    # Sending.

    def prompt(self, text: str) -> Reply:
        """Answer a command: send this to the model."""
        return Reply("prompt", text)

    def insert(self, text: str) -> Reply:
        """Answer a command: put this into the editor."""
        return Reply("insert", text)

    def display(self, text: str) -> Reply:
        """Answer a command: show this to the user, not to the model."""
        return Reply("display", text)

    def noop(self) -> Reply:
        """Answer a command: do nothing more."""
        return Reply("noop")

    def notify(self, message: str, level: Literal["info", "success", "warn", "error"] = "info") -> None:
        """Show the user a note. Raises ValueError for an unknown level."""
        if level not in ("info", "success", "warn", "error"):
            raise ValueError(f'there is no level "{level}": take info, success, warn or error')
        self._send({"type": "notify", "level": level, "message": _shown(message)})

    def clear_notes(self) -> None:
        """Remove this extension's notes."""
        self._send({"type": "clear_notes"})

    def submit(self, text: str) -> None:
        """Send a text to the model as if the user had typed it."""
        self._send({"type": "submit", "text": _shown(text)})

    def call_tool(self, name: str, args: Frame | None = None, *, timeout_s: float = CALL_TOOL_S) -> Result:
        """Run one of the host's tools and wait. In async code: `await asyncio.to_thread(ext.call_tool, ...)`.

        In your own threads, use `carry`. Raises Failed; RuntimeError where it cannot wait.
        """
        self._keep_loop_free("await asyncio.to_thread(ext.call_tool, ...)")
        caller, number = _current.get(), f"ask-{next(self._numbers)}"
        if caller and caller.is_guard:
            raise RuntimeError("a guard of tool calls cannot call tools: it would be asked about that call, too")
        if not self._calls_tools:
            raise Failed("this extension did not ask for the right: Extension(..., calls_tools=True)")
        if "call_tool" not in self._grants:
            raise Failed("this host runs no tools for extensions")
        answers: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._asked[number] = (caller, answers)
        frame = {"type": "call_tool", "id": number, "name": name, "args": args or {}}
        try:
            if caller and caller.cancelled.is_set():
                raise Failed(f'"{name}" was not called: this call is cancelled')
            self._send({**frame, "parent_id": caller.id} if caller and caller.id else frame)
            answer = answers.get(timeout=timeout_s)
            why = f'"{name}" was cancelled'
        except queue.Empty:
            answer, why = None, f'"{name}" did not answer within {timeout_s:g} s'
        finally:
            del self._asked[number]
        if answer is None:
            self._send({"type": "call_tool_cancel", "id": number})
            raise Failed(why)
        content = [part for part in answer.get("content") or [] if isinstance(part, dict)]
        result = Result(content, answer.get("is_error") is True, answer.get("structured_content"))
        if result.is_error and "parent_id is required" in result.text:
            raise Failed(
                "while a tool of this extension is under way, only that one may call others;"
                " in threads that it starts, run ext.carry(function)"
            )
        if result.is_error:
            raise Failed(result.text or f'"{name}" failed')
        return result

    def cancelled(self, wait_s: float = 0) -> bool:
        """Return whether the current tool call was cancelled; with `wait_s`, sleep that long or until it is.

        In your own threads, use `carry`. Raises RuntimeError for a `wait_s` in async code.
        """
        if wait_s:
            self._keep_loop_free("await asyncio.sleep(...), which a cancelled tool leaves by itself")
        call = _current.get()
        return (call.cancelled if call else threading.Event()).wait(wait_s)

    def carry(self, function: F) -> F:
        """Bind a function to the current tool call, for any thread: `Thread(target=ext.carry(work))`."""
        call = _current.get()

        @functools.wraps(function)
        def carried(*args: Any, **named: Any) -> Any:
            mark = _current.set(call)
            try:
                return function(*args, **named)
            finally:
                _current.reset(mark)

        return typing.cast("F", carried)

    # Running.

    def run(self) -> None:
        """Serve the host until it shuts down or disappears, then return.

        Raises what a function of `on_start` raised.
        """
        frames = self._open()
        try:
            for workers, some in self._pools():
                if some:
                    workers.open()
            threading.Thread(target=self._read, args=(frames,), daemon=True).start()
            while not self._over.wait(WAKE_S):
                self._look_at_loop()
            latest = time.monotonic() + self._patience
            self._started.wait(self._patience)
            for workers, _ in self._pools():
                workers.drain(latest - time.monotonic())
        except KeyboardInterrupt:
            pass  # a terminal sends Ctrl-C to extensions too
        self._cancel_all()
        if self._failure is not None:
            raise self._failure

    def _miss_run(self) -> None:
        """Warn at exit that `run` was never called, unless the program failed or is interactive."""
        offered = self._early or self._events or self._guards or self._starts
        if self._early is not None and offered and not hasattr(sys, "last_type") and not hasattr(sys, "ps1"):
            print(f"{self.name} left without ext.run(): end your program with it", file=sys.stderr)

    def _pools(self) -> list[tuple[_Workers, Any]]:
        """Return the thread pools with their purpose."""
        served = [(self._workers, True), (self._deciders, self._guards)]
        return [*served, (self._event_lane, self._events), (self._panel_lane, self._panels)]

    def _open(self) -> IO[bytes]:
        """Reserve stdin and stdout for frames, and send hello with all registrations."""
        with self._writing:  # to the end: other senders wait until the hello is sent
            if self._early is None:
                raise RuntimeError("an extension runs once")
            if os.isatty(0):
                print(f"{self.name} is an extension: zot or anyplug starts it", file=sys.stderr)
            early, self._early = self._early, None
            frames, self._out = os.fdopen(os.dup(0), "rb"), os.dup(1)
            os.dup2(2, 1)  # output goes to the log, also that of programs that the extension starts
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), 0)  # and such programs do not consume the host's frames
            registered = {"commands": self._commands, "tools": self._tools, "events": self._events or self._guards}
            offers = [word for word, some in registered.items() if some] + ["panels", "submit", "tool_cancel"]
            offers += ["call_tool"] if self._calls_tools else []
            self._send({"type": "hello", "name": self.name, "version": self.version, "capabilities": offers})
            for data in early:
                self._write(data)
            self._subscribe(list(self._events), list(self._guards))
            if not self._starts:
                self._send({"type": "ready"})
        return frames

    def _read(self, frames: IO[bytes]) -> None:
        """Read the host's frames until the end. Nothing here waits for the author's functions."""
        greeted = False
        try:
            for line in frames:
                frame = _parsed(line)
                if frame.get("type") == "shutdown":
                    self._send({"type": "shutdown_ack"})
                    self._patience = LEAVE_S
                    self._cancel_all()
                    break
                if frame.get("type") == "hello_ack":
                    self._greet(frame, again=greeted)
                    greeted = True
                elif greeted:
                    self._receive(frame)
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._failure = error
        if not greeted:
            self._started.set()  # nothing starts from now on
        self._over.set()

    def _greet(self, frame: Frame, *, again: bool) -> None:
        shapes = {field.name: type(field.default) for field in dataclasses.fields(Host)}
        self.host = Host(**{name: frame[name] for name, shape in shapes.items() if type(frame.get(name)) is shape})
        granted = frame.get("capabilities")
        self._grants = granted if isinstance(granted, list) else []
        if self.host.protocol_version != PROTOCOL_VERSION:
            print(f"the host speaks protocol {self.host.protocol_version}, not {PROTOCOL_VERSION}", file=sys.stderr)
        if not again:
            threading.Thread(target=self._start, daemon=True).start()

    def _start(self) -> None:
        if self._starts:
            threading.Thread(target=self._stir, daemon=True).start()
        try:
            for function in self._starts:
                self._run(function)
        except BaseException as error:  # noqa: BLE001 - an author's code ends here, and `run` raises it
            self._failure, self._patience = error, 0.0
            self._over.set()
            return
        if self._starts:
            self._send({"type": "ready"})
        self._started.set()

    def _stir(self) -> None:
        """Make the host wait for registrations in `on_start`, by sending an empty `subscribe`."""
        for _ in range(STIRS):
            if self._started.wait(STIR_S) or self._over.is_set():
                return
            self._send({"type": "subscribe"})

    def _receive(self, frame: Frame) -> None:
        """Start handling a frame, without waiting."""
        kind, number = _text(frame, "type"), _text(frame, "id")
        if kind == "tool_call" and number:
            call = self._calls[number] = _Call(number)
            self._serve(self._workers, "tool_result", frame, lambda: self._run_tool(call, frame))
        elif kind == "tool_cancel":
            self._cancel(self._calls.get(number))
        elif kind == "tool_result":
            if asked := self._asked.get(number):  # otherwise it is too late
                asked[1].put(frame)
        elif kind == "command_invoked" and number:
            self._serve(self._workers, "command_response", frame, lambda: self._run_command(frame))
        elif kind == "event_intercept" and number:
            self._serve(self._deciders, "event_intercept_response", frame, lambda: self._decide(frame))
        elif kind == "event":
            for function in self._events.get(_text(frame, "event"), ()):
                self._event_lane.run(lambda function=function: self._tell(function, frame))  # type: ignore[misc]
        elif kind in ("panel_key", "panel_close"):
            self._touch(self._panels.get(_text(frame, "panel_id")), frame)
        else:
            print(f"not understood: {_cut(str(frame), ERROR_CHARS)}", file=sys.stderr)

    def _serve(self, workers: _Workers, kind: str, frame: Frame, answer: Callable[[], Frame | None]) -> None:
        """Answer a frame in a thread with the result of `answer`, unless it is None, or with its error."""

        def job() -> None:
            head = {"type": kind, "id": _text(frame, "id")}
            try:
                given = answer()
                if given is not None:
                    self._send({**head, **given})
            except BaseException as error:  # noqa: BLE001 - the author's code ends here, and the host waits
                self._send({**head, **_excuse(kind, frame, error)})

        workers.run(job)

    def _run_tool(self, call: _Call, frame: Frame) -> Frame | None:
        name, mark = _text(frame, "name"), _current.set(call)
        try:
            if name not in self._tools:
                raise Failed(f'there is no tool "{name}"')
            answer = _answer(self._run(self._tools[name].call, frame.get("args")))
        except BaseException:
            if not call.cancelled.is_set():
                raise
        finally:
            _current.reset(mark)
            self._calls.pop(call.id, None)
        return None if call.cancelled.is_set() else answer  # a cancelled call needs no answer

    def _run_command(self, frame: Frame) -> Frame | None:
        name = _text(frame, "name")
        if name not in self._commands:
            raise Failed(f"there is no command /{name}")
        reply = self._run(self._commands[name], _text(frame, "args"))
        if isinstance(reply, Panel):
            reply.open(
                {"type": "command_response", "id": _text(frame, "id"), "action": "open_panel"}, field="open_panel"
            )
            return None
        if not isinstance(reply, Reply):
            reply = Reply("noop") if reply is None else Reply("display", str(reply))
        text = _shown(reply.text)
        return {"action": reply.action, **({reply.action: text} if text else {})}

    def _decide(self, frame: Frame) -> Frame:
        """Ask the guards in turn: the first block wins, and each sees earlier rewrites."""
        event = _text(frame, "event")
        mark = _current.set(_Call("", is_guard=event == "tool_call"))
        try:
            return self._ask_guards(event, frame)
        finally:
            _current.reset(mark)

    def _ask_guards(self, event: str, frame: Frame) -> Frame:
        answer: Frame = {}
        for function in self._guards.get(event, ()):
            seen, rewritten, shape = _GUARDED[event]
            subject = answer.get(rewritten, frame.get(seen))
            if subject is None:
                subject = shape()  # zot omits empty fields
            verdict = self._run(function, *([_text(frame, "tool_name")] if event == "tool_call" else []), subject)
            if verdict is None:
                continue
            name = _named(function)
            if not isinstance(verdict, Verdict):
                raise TypeError(f"{name} returned {verdict!r}, not None, block(...) or rewrite(...)")
            if verdict.blocked and event == "before_agent_start":
                raise TypeError(f"{name} cannot block a {event}: return None or rewrite(prompt)")
            if verdict.blocked:
                return {"block": True, "reason": _shown(verdict.reason)}
            if not rewritten or not isinstance(verdict.value, shape):
                raise TypeError(f"{name} cannot rewrite a {event} as {verdict.value!r}")
            if event == "assistant_message" and not verdict.value:
                raise ValueError("to hosts an empty text is no change: block the message instead")
            answer.update({rewritten: verdict.value, "reason": _shown(verdict.reason)})
        return answer

    def _touch(self, panel: Panel | None, frame: Frame) -> None:
        if panel and frame["type"] == "panel_key":
            self._panel_lane.run(lambda: self._tell(panel.key, _text(frame, "key"), _text(frame, "text")))
        elif panel:
            panel.is_open = False  # now: it may be open again when earlier keys are done
            self._panel_lane.run(lambda: self._tell(panel.closed))

    def _tell(self, function: Callable[..., Any], *values: Any) -> None:
        """Call a function whose result is not used."""
        try:
            self._run(function, *values)
        except BaseException as error:  # noqa: BLE001 - the author's code ends here, and the next event follows
            why = _told(error)
            if isinstance(error, Failed):
                print(why, file=sys.stderr)

    def _run(self, function: Callable[..., Any], *values: Any) -> Any:
        """Call a function with as many values as it accepts; if it is async, on the shared event loop."""
        value = function(*values[: _takes(function)])
        if not inspect.iscoroutine(value):
            return value
        import asyncio  # most extensions do not need it, and importing it takes longer than all the rest

        with self._writing:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_turn, args=(loop,), daemon=True)
                thread.start()
                self._loop, self._loop_thread = loop, thread.ident or 0
        task, call = asyncio.run_coroutine_threadsafe(value, self._loop), _current.get()
        if call is not None:
            call.task = task
            if call.cancelled.is_set():
                task.cancel()
        return task.result()

    def _look_at_loop(self) -> None:
        """Log, once for each, which async function has blocked the event loop since the last check."""
        if self._loop is None or self._loop.is_closed():
            return
        if not self._waits.is_set():
            self._waits.set()
            self._loop.call_soon_threadsafe(self._waits.clear)
            return
        under_way = _authored(traceback.walk_stack(sys._current_frames().get(self._loop_thread)))  # noqa: SLF001
        if under_way and under_way[-1][0] not in self._holders:
            (name, _), (_, place) = under_way[-1], under_way[0]
            self._holders.add(name)
            print(
                f"{name} holds up all async functions, guards too ({place}): make it a plain def,"
                " or await asyncio.to_thread(...) what takes long",
                file=sys.stderr,
            )

    def _keep_loop_free(self, cure: str) -> None:
        if threading.get_ident() == self._loop_thread:
            raise RuntimeError(f"this would stop all async functions, guards too; instead: {cure}")

    def _cancel(self, call: _Call | None) -> None:
        if call is None:
            return
        call.cancelled.set()
        if call.task is not None:
            call.task.cancel()
        for caller, answers in list(self._asked.values()):
            if caller is call:
                answers.put(None)

    def _cancel_all(self) -> None:
        for call in list(self._calls.values()):
            self._cancel(call)

    def _guard(self, event: str, function: F) -> F:
        self._guards.setdefault(event, []).append(_usable(function))
        self._subscribe([], [event])
        return function

    def _subscribe(self, events: list[str], intercept: list[str]) -> None:
        if self._early is None and (events or intercept):  # registrations before `run` are sent in one frame
            self._send({"type": "subscribe", "events": events, "intercept": intercept})

    def _send(self, frame: Frame) -> None:
        """Send a frame; raises TypeError or ValueError if it is not JSON, or longer than hosts accept."""
        data = _line(frame)
        if len(data) > FRAME_BYTES:
            raise ValueError(f"{len(data):,} bytes are more than the {FRAME_BYTES:,} that hosts take")
        self._write(data)

    def _write(self, data: bytes) -> None:
        with self._writing:
            if self._early is not None:
                self._early.append(data)
            try:
                while data and self._out is not None:
                    data = data[os.write(self._out, data) :]
            except OSError:
                self._out = None  # the host is gone, and stdin ends too


class _Call:
    """A request to one of the author's functions: a tool call, or a guard's verdict."""

    def __init__(self, id: str, *, is_guard: bool = False) -> None:
        self.id, self.is_guard = id, is_guard
        self.cancelled = threading.Event()
        self.task: Any = None  # of an async tool


class _Workers:
    """Threads that run jobs: one for each job, up to a limit; a single thread keeps their order.

    No job runs before `started`. If the system provides no more threads, jobs wait for the existing ones.
    """

    def __init__(self, started: threading.Event, most: int | None = None) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._started, self._most, self._threads, self._busy = started, most, 0, 0
        self._changed = threading.Condition()

    def open(self) -> None:
        """Start one thread now, so that there is one when others have taken all the rest."""
        with self._changed:
            self._hire()

    def run(self, job: Callable[[], None]) -> None:
        """Run a job, which must not raise, soon."""
        with self._changed:
            self._busy += 1
            if self._busy > self._threads and self._threads != self._most:
                try:
                    self._hire()
                except RuntimeError:
                    if not self._threads:
                        raise
        self._jobs.put(job)

    def drain(self, seconds: float) -> None:
        """Wait until all jobs are done, at most that long."""
        with self._changed:
            self._changed.wait_for(lambda: self._busy == 0, seconds)

    def _hire(self) -> None:
        threading.Thread(target=self._work, daemon=True).start()
        self._threads += 1

    def _work(self) -> None:
        self._started.wait()
        while True:
            try:
                self._jobs.get(timeout=IDLE_S)()
            except queue.Empty:
                with self._changed:
                    if self._threads > max(1, self._busy):
                        self._threads -= 1
                        return
                continue
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()


_current: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("call", default=None)


def _turn(loop: Any) -> None:
    """Keep the event loop running: `sys.exit` in one async function must not stop the others."""
    while not loop.is_closed():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            pass  # the caller of that function gets it


# The author's functions.


def _usable(function: F) -> F:
    """Return the function if it can be called; raises TypeError."""
    if not callable(function):
        raise TypeError(f"{function!r} is no function")
    within, _, name = getattr(function, "__qualname__", "").rpartition(".")
    is_in_class = inspect.isfunction(function) and within and not within.endswith("<locals>")
    if is_in_class and next(iter(inspect.signature(function).parameters), "") == "self":
        raise TypeError(f"{within}.{name} needs its object: register the bound method, {within}(...).{name}")
    return function


def _inmost(function: Any) -> Any:
    """Return the function that a partial or a callable object runs: it has the hints and the docstring."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) or isinstance(function, type) else type(function).__call__


def _named(function: Any) -> str:
    """Return a function's name; for a callable object, its class's."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _takes(function: Callable[..., Any]) -> int:
    """Count the positional arguments of a function."""
    kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sys.maxsize if inspect.Parameter.VAR_POSITIONAL in kinds else sum(kind in named for kind in kinds)


class _Tool:
    """A function as the model sees it."""

    def __init__(self, function: Callable[..., Any], name: str, description: str, schema: Frame | None) -> None:
        self.name, self._function = name, function
        given = inspect.signature(function).parameters
        about, notes = _documented(inspect.getdoc(_inmost(function)) or "", given)
        self.description = description or about
        # With the author's own schema, arguments are passed on unchanged.
        self._arguments = self._derive(given, notes) if schema is None else None
        self.schema = self._arguments.schema if self._arguments else _of_object(schema, f"tool {name}")

    def call(self, args: Any) -> Any:
        """Call it with the model's arguments; raises Failed if they are invalid."""
        if not isinstance(args, dict):
            args = {} if args is None else _refuse("arguments must be an object")
        return self._function(**(self._arguments.read(args, "") if self._arguments else args))

    def _derive(self, given: typing.Mapping[str, inspect.Parameter], notes: dict[str, str]) -> _Kind:
        """Derive its fields from the hints; raises TypeError."""
        whose = f"tool {self.name}"
        hints, fields = _hints(_inmost(self._function), whose), []
        for name, one in given.items():
            if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                raise TypeError(f"{whose}: {one} cannot be given by name: name each argument, or give schema={{...}}")
            is_required = one.default is one.empty
            hint = hints.get(name, Any if is_required or one.default is None else type(one.default))
            fields.append(_Field(name, hint, is_required, one.default, notes.get(name, "")))
        try:
            return _record(dict, fields, f"{whose}: ")
        except RecursionError:
            raise TypeError(f"{whose}: a hint that leads back to itself {_CURE}") from None


def _of_object(schema: Any, whose: str) -> Frame:
    """Complete the author's own schema; raises TypeError. zot passes it on, and models accept only objects."""
    whole = {"type": "object", **schema} if isinstance(schema, dict) else {}
    if whole.get("type") != "object":
        raise TypeError(f'{whose}: a schema is a dict of "type": "object", not {_cut(repr(schema), SHOWN_CHARS)}')
    return whole


# Type hints.


class _Kind(typing.NamedTuple):
    """The meaning of a hint: its JSON Schema, its name in errors ("x must be …"), and how to read a value."""

    schema: Frame
    wanted: str
    read: Callable[[Any, str], Any]  # a JSON value, and its place; raises Failed if it is invalid


class _Field(typing.NamedTuple):
    """A named value: a tool's argument, or a part of an object."""

    name: str
    hint: Any
    is_required: bool
    default: Any = None
    note: str = ""


_WORDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))  # Python 3.9 has only the first
_ARRAYS: dict[Any, Callable[..., Any]] = {list: list, tuple: tuple, set: set, frozenset: frozenset}
_ARRAYS.update({abc.Sequence: list, abc.Iterable: list, abc.Collection: list, abc.Set: set})
_OBJECTS = (dict, abc.Mapping, abc.MutableMapping)
# By name, because most extensions do not need the module: the format, and an example.
_TIMES = {
    "date": ("date", "2026-01-31"),
    "datetime": ("date-time", "2026-01-31T12:30:00"),
    "time": ("time", "12:30:00"),
}
_CURE = "cannot be said in JSON Schema: take str, int, list[str] or the like, or give @ext.tool(schema={...})"


def _hints(owner: Any, whose: str) -> dict[str, Any]:
    """Return the resolved hints of a function or a class; raises TypeError."""
    space = None
    if not isinstance(owner, type):
        # Without its defaults: for those that are None, Python 3.9 and 3.10 would make the hints optional.
        space = getattr(inspect.unwrap(owner), "__globals__", {})
        owner = types.SimpleNamespace(__annotations__=getattr(owner, "__annotations__", {}))
    try:
        return typing.get_type_hints(owner, space, include_extras=True)
    except (NameError, TypeError) as error:
        raise TypeError(
            f"{whose}: a hint cannot be read ({error}): define what it names at the top of the file,"
            " and on Python 3.9 write Optional[X] for X | None"
        ) from error


def _kind(hint: Any, whose: str) -> _Kind:
    """Return the meaning of a hint; raises TypeError."""
    hint = getattr(hint, "__supertype__", hint)  # of a NewType
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    base = origin or hint
    if hint is Any:
        return _Kind({}, "anything", lambda value, _: value)
    if origin is typing.Annotated:
        kind, notes = _kind(inner[0], whose), [note for note in inner[1:] if isinstance(note, str)]
        return kind._replace(schema={**kind.schema, "description": notes[0]}) if notes else kind
    if origin in _UNIONS:
        return _union([_kind(one, whose) for one in inner])
    if origin is Literal or isinstance(hint, enum.EnumMeta):
        return _choice(inner or list(hint), whose)
    if base in _WORDS:
        return _scalar(base)
    if base in _ARRAYS:
        return _array(_ARRAYS[base], inner, whose)
    if base in _OBJECTS and inner[:1] in ((), (str,)):
        return _mapping(_kind(inner[1], whose) if inner else None)
    if dataclasses.is_dataclass(hint) or hasattr(hint, "__required_keys__"):
        return _record(hint, _fields(hint, whose), f"{whose}.")
    if isinstance(hint, type) and (written := _written(hint)):
        return written
    raise TypeError(f"{whose}: {hint!r} {_CURE}")


def _scalar(base: Any) -> _Kind:
    word = _WORDS[base]

    def read(value: Any, path: str) -> Any:
        if base in (int, float) and type(value) in (int, float):
            value = _number(base, value)
        return value if type(value) is base else _refuse(f"{path} must be of type {word}")

    return _Kind({"type": word}, f"of type {word}", read)


def _number(base: Any, value: float) -> Any:
    """Return a number as int or float, because JSON Schema takes 3.0 for an integer; None if that is impossible."""
    try:
        number = base(value)
    except (ValueError, OverflowError):
        return None
    return number if number == value and abs(number) != float("inf") else None


def _choice(choices: typing.Iterable[Any], whose: str) -> _Kind:
    pairs = [(one.value if isinstance(one, enum.Enum) else one, one) for one in choices]
    shown = [value for value, _ in pairs]
    if not shown or not all(type(value) in _WORDS for value in shown):
        raise TypeError(f"{whose}: {shown!r} are no choices for JSON: take texts, numbers, booleans or None")
    words = {_WORDS[type(value)] for value in shown}
    wanted = f"one of {_json(shown)}"

    def read(value: Any, path: str) -> Any:
        meant = [one for known, one in pairs if known == value and type(known) is type(value)]
        return meant[0] if meant else _refuse(f"{path} must be {wanted}")

    return _Kind({**({"type": words.pop()} if len(words) == 1 else {}), "enum": shown}, wanted, read)


def _union(kinds: list[_Kind]) -> _Kind:
    schemas = [dict(kind.schema) for kind in kinds]
    described = [schema for schema in schemas if "description" in schema]
    note = {"description": described[0].pop("description")} if len(described) == 1 else {}
    if all(list(schema) == ["type"] and isinstance(schema["type"], str) for schema in schemas):
        schema = {"type": [one["type"] for one in schemas]}
    else:
        schema = {"anyOf": schemas} if all(schemas) else {}
    wanted = " or ".join(kind.wanted for kind in kinds).replace(" or of type ", " or ")

    def read(value: Any, path: str) -> Any:
        fitting, complaints = [], []
        for kind in kinds:
            try:
                fitting.append(kind.read(value, path))
            except Failed as error:
                complaints.append(str(error))
        if fitting:  # 3 stays an int where a float is allowed too
            is_number = type(value) in (int, float)
            return next((one for one in fitting if is_number and type(one) is type(value)), fitting[0])
        deeper = [one for one in complaints if not one.startswith(f"{path} must be ")]
        return _refuse(deeper[0] if deeper else f"{path} must be {wanted}")

    return _Kind({**schema, **note}, wanted, read)


def _array(make: Callable[..., Any], inner: tuple[Any, ...], whose: str) -> _Kind:
    is_fixed = make is tuple and bool(inner) and inner[-1] is not Ellipsis
    kinds = [_kind(one, whose) for one in inner if one is not Ellipsis]
    schema: Frame = {"type": "array"}
    if kinds:
        distinct = [kind for at, kind in enumerate(kinds) if kind.schema not in [one.schema for one in kinds[:at]]]
        schema["items"] = _union(distinct).schema if len(distinct) > 1 else kinds[0].schema
    if is_fixed:
        schema.update({"minItems": len(kinds), "maxItems": len(kinds)})

    def read(value: Any, path: str) -> Any:
        if type(value) is not list:
            _refuse(f"{path} must be of type array")
        if is_fixed and len(value) != len(kinds):
            _refuse(f"{path} must have {len(kinds)} items")
        if not kinds:
            return make(value)
        return make(
            kind.read(one, f"{path}[{at}]") for at, (kind, one) in enumerate(zip(itertools.cycle(kinds), value))
        )

    return _Kind(schema, "of type array", read)


def _mapping(inner: _Kind | None) -> _Kind:
    def read(value: Any, path: str) -> Any:
        if type(value) is not dict:
            _refuse(f"{path} must be of type object")
        return {key: inner.read(one, f"{path}.{key}") for key, one in value.items()} if inner else value

    schema = {"type": "object", **({"additionalProperties": inner.schema} if inner else {})}
    return _Kind(schema, "of type object", read)


def _fields(hint: Any, whose: str) -> list[_Field]:
    """Return the fields of a dataclass or a TypedDict; raises TypeError."""
    hints = _hints(hint, whose)
    if dataclasses.is_dataclass(hint):
        none = dataclasses.MISSING
        return [
            _Field(one.name, hints[one.name], one.default is one.default_factory is none, one.default)
            for one in dataclasses.fields(hint)
            if one.init
        ]
    marks = {getattr(typing, "Required", "old Python"): True, getattr(typing, "NotRequired", "old Python"): False}
    fields = []
    for name, inner in hints.items():
        mark = typing.get_origin(inner)
        is_required = marks.get(mark, name in hint.__required_keys__)
        inner_hint = typing.get_args(inner)[0] if mark in marks else inner
        fields.append(_Field(name, inner_hint, is_required, dataclasses.MISSING))
    return fields


def _record(make: Callable[..., Any], fields: list[_Field], whose: str) -> _Kind:
    """Return the meaning of an object with these fields; raises TypeError."""
    kinds: dict[str, _Kind] = {}
    for one in fields:
        kind = _kind(one.hint, whose + one.name)
        if not one.is_required and one.default is None:
            kind = _or_none(kind)
        kinds[one.name] = kind._replace(schema={**kind.schema, **_extras(one, whose)})
    required = [one.name for one in fields if one.is_required]
    schema = {"type": "object", "properties": {name: kind.schema for name, kind in kinds.items()}}
    schema.update({"required": required} if required else {})

    def read(value: Any, path: str) -> Any:
        if type(value) is not dict:
            _refuse(f"{path} must be of type object")
        within = f"{path}." if path else ""
        wrong = [f"{within}{name} is missing" for name in required if name not in value]
        wrong += [f"{within}{name} is unknown" for name in value if name not in kinds]
        if wrong:
            _refuse("wrong arguments: " + ", ".join(wrong))
        return make(**{name: kinds[name].read(one, within + name) for name, one in value.items()})

    return _Kind({**schema, "additionalProperties": False}, "of type object", read)


def _or_none(kind: _Kind) -> _Kind:
    """Allow null because the default is None, unless it is already allowed."""
    try:
        kind.read(None, "")
    except Failed:
        return _union([kind, _scalar(type(None))])
    return kind


def _extras(field: _Field, whose: str) -> Frame:
    """Return a field's description and default for its schema; raises TypeError for a default that is not JSON."""
    note = {"description": field.note} if field.note else {}
    if field.is_required or field.default is None or field.default is dataclasses.MISSING:
        return note
    try:
        return {**note, "default": json.loads(_json(field.default))}
    except (TypeError, ValueError) as error:
        raise TypeError(f"{whose}{field.name}: the default is not JSON ({error}): take None, say") from error


def _written(hint: Any) -> _Kind | None:
    """Return the meaning of a type that is a string in JSON, such as a path or a date; else None."""
    if issubclass(hint, os.PathLike) and hint is not os.PathLike:
        text = _scalar(str)
        return text._replace(read=lambda value, path: hint(text.read(value, path)))
    if hint.__module__ != "datetime" or hint.__name__ not in _TIMES:
        return None
    name, example = _TIMES[hint.__name__]
    wanted = f"a {name} like {example}"

    def read(value: Any, path: str) -> Any:
        try:
            return hint.fromisoformat(re.sub("[Zz]$", "+00:00", value))  # Python 3.9 and 3.10 do not know Z
        except (TypeError, ValueError):
            return _refuse(f"{path} must be {wanted}")

    return _Kind({"type": "string", "format": name}, wanted, read)


def _refuse(why: str) -> typing.NoReturn:
    raise Failed(why)


# Docstrings.

_ARGUMENTS = ("Args", "Arguments", "Parameters", "Other Parameters", "Keyword Args", "Keyword Arguments")
_OTHERS = (
    "Return", "Returns", "Raises", "Yield", "Yields", "Receives", "Warns", "Warning", "Warnings", "Example", "Examples",
    "Note", "Notes", "See Also", "References", "Attributes", "Todo",
)  # fmt: skip
_NOTE = re.compile(r"(\w+)(?:\s*\(.*?\))?\s*:(?:\s+(.*))?")  # x: note, x (int): note
_NUMPY = re.compile(r"(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?")  # x, y : int
_SPHINX = re.compile(r":(\w+)\b([^:]*):(?:\s+(.*))?")  # :param int x: note
_PARAM = ("param", "parameter", "arg", "argument", "key", "keyword")
_DROPPED = ("type", "return", "returns", "rtype", "raise", "raises", "except", "exception", "yield", "yields", "ytype")


def _documented(text: str, names: typing.Container[str]) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description and the notes on arguments.

    Notes are `name: note`, also under `Args:`, or in NumPy and Sphinx style. The first note on an argument counts.
    """
    notes: dict[str, str] = {}
    rest: list[str] = []
    for kind, lines in _sections(text.splitlines()):
        current: list[str] | None = None  # the arguments that further indented lines continue
        level = 0
        for line in lines:
            words, indent = line.strip(), len(line) - len(line.lstrip())
            if current is not None and words and indent > level:
                notes.update({name: f"{notes[name]} {words}".strip() for name in current})
            elif words or kind in ("", "other"):  # under a heading, a note can have paragraphs
                named, note = _note(words, kind)
                new = [name for name in named or () if name in names and name not in notes]
                current, level = (new if new or named == [] else None), indent
                notes.update(dict.fromkeys(new, note))
                rest += [line] if current is None else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(rest)).strip(), {name: note for name, note in notes.items() if note}


def _sections(lines: list[str]) -> typing.Iterator[tuple[str, list[str]]]:
    """Split a docstring at its headings; the kinds are "google" and "numpy" (both on arguments), "other" and ""."""
    kind, depth, omitted = "", -1, 0  # a line indented no further than `depth` is outside the section
    part: list[str] = []
    for line, below in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        words, indent = line.strip(), len(line) - len(line.lstrip())
        name, colon, more = words.partition(":")
        is_underlined = not colon and bool(re.fullmatch("-{3,}", below.strip()))
        is_on_arguments = name in _ARGUMENTS and not more
        is_heading = (colon or is_underlined) and (is_on_arguments or name in _OTHERS)
        if is_heading or (words and indent <= depth):
            yield kind, part[omitted:]
            kind, depth, omitted, part = "", -1, 0, []
        if is_heading:
            kind = "other" if not is_on_arguments else "numpy" if is_underlined else "google"
            depth = -1 if is_underlined else indent
            omitted = {"google": 1, "numpy": 2}.get(kind, 0)
        part.append(line)
    yield kind, part[omitted:]


def _note(words: str, kind: str) -> tuple[list[str] | None, str]:
    """Return the arguments that a line starts a note on, and its text; no arguments for an ignored field."""
    field = _SPHINX.fullmatch(words)
    if field and field[1] in _DROPPED:
        return [], ""
    if field and field[1] in _PARAM:
        return field[2].split()[-1:], field[3] or ""
    if kind == "numpy" and (found := _NUMPY.fullmatch(words)):
        return re.split(r"\s*,\s*", found[1]), ""
    if kind in ("", "google") and (found := _NOTE.fullmatch(words)):
        return [found[1]], found[2] or ""
    return None, ""


# Frames.


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _lines(lines: Any) -> list[str]:
    """Return a panel's lines without line breaks: zot draws each as one row."""
    if isinstance(lines, str):
        return lines.splitlines()
    return [row for line in lines for row in str(line).splitlines() or [""]]


def _answer(value: Any) -> Frame:
    """Build a tool's answer from the function's result; raises TypeError or ValueError if it is not JSON."""
    result = _sound(_result(value))
    answer = {"content": result.content, "is_error": result.is_error}
    if result.activate_tools:
        answer["activate_tools"] = list(result.activate_tools)
    if result.structured is None:
        return answer
    whole = {**answer, "structured_content": result.structured}
    # A JSON value is sent as text and as data, or only as text if both are too long.
    is_said_twice = not isinstance(value, Result)
    return answer if is_said_twice and len(_line(whole)) + HEAD_BYTES > FRAME_BYTES else whole


def _result(value: Any) -> Result:
    if isinstance(value, Result):
        return value
    if value is None:
        return Result([_block("done")])  # models take an empty answer for an error
    if isinstance(value, (str, Image)):
        return Result([_block(value)])
    if isinstance(value, (list, tuple)) and any(isinstance(one, Image) for one in value):
        return Result([_block(one) for one in value])
    plain = json.loads(_json(value))
    return Result([_block(plain)], structured=plain if isinstance(plain, (dict, list)) else None)


def _sound(result: Result) -> Result:
    """Return the result if hosts can read it; raises TypeError. zot would drop an invalid one and keep waiting."""
    content = result.content
    wrong = [one for one in content if not _is_block(one)] if isinstance(content, (list, tuple)) else [content]
    if wrong:
        wanted = 'a list of blocks such as {"type": "text", "text": "..."}'
        raise TypeError(f"the content of a Result is {wanted}, not {_cut(repr(wrong[0]), SHOWN_CHARS)}")
    if not isinstance(result.is_error, bool):
        raise TypeError(f"is_error of a Result is True or False, not {_cut(repr(result.is_error), SHOWN_CHARS)}")
    return result


def _is_block(value: Any) -> bool:
    texts = (str, type(None))
    has_type = isinstance(value, dict) and isinstance(value.get("type"), str)
    return has_type and all(isinstance(value.get(field), texts) for field in ("text", "mime_type", "data"))


def _block(value: Any) -> Frame:
    if isinstance(value, Image):
        data = binascii.b2a_base64(value.data, newline=False).decode()
        return {"type": "image", "mime_type": value.mime_type, "data": data}
    return {"type": "text", "text": value if isinstance(value, str) else _json(value)}


def _json(value: Any) -> str:
    """Write JSON; raises TypeError or ValueError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_simpler)


def _simpler(value: Any) -> Any:
    if isinstance(value, type):
        raise TypeError(f"the class {value.__name__} is not JSON")
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    if type(value).__module__ == "datetime" and hasattr(value, "isoformat"):
        return value.isoformat()
    is_bytes = isinstance(value, (bytes, bytearray, memoryview))
    cure = "Image(...) for a picture, .decode() for a text" if is_bytes else "a text, a number, a list or a dict"
    raise TypeError(f"{type(value).__name__} is not JSON: make it {cure}")


def _line(frame: Frame) -> bytes:
    return _json(frame).encode("utf-8", "replace") + b"\n"


def _parsed(line: bytes) -> Frame:
    """Parse a line from the host; an invalid one becomes a frame without a type."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        frame = None
    return frame if isinstance(frame, dict) else {"line": line}


def _text(frame: Frame, field: str) -> str:
    value = frame.get(field)
    return value if isinstance(value, str) else ""


def _excuse(kind: str, frame: Frame, error: BaseException) -> Frame:
    """Answer a frame with its error."""
    why = _told(error)
    if kind == "tool_result":
        return {"content": [_block(why)], "is_error": True}
    if kind == "command_response":
        return {"action": "noop", "error": why}
    reason = why if isinstance(error, Failed) else f"intercept error: {why}"
    can_block = _text(frame, "event") != "before_agent_start"
    return {"block": True, "reason": reason} if can_block else {"reason": reason}


def _told(error: BaseException) -> str:
    """Return a short error message, and log the traceback unless it is a `Failed`."""
    if isinstance(error, Failed):
        return _cut(str(error) or "it failed, without a reason", FAILED_CHARS)
    traceback.print_exception(type(error), error, error.__traceback__)
    places = [place for _, place in _authored(traceback.walk_tb(error.__traceback__))]
    place = f" ({places[-1]})" if places else ""
    why = "".join(traceback.format_exception_only(type(error), error)).strip()
    return _cut(why, ERROR_CHARS - len(place)) + place


def _authored(frames: typing.Iterable[tuple[types.FrameType, int]]) -> list[tuple[str, str]]:
    """Return the names and places of the author's own functions."""
    return [
        (frame.f_code.co_name, f"{os.path.basename(frame.f_code.co_filename)}, line {line}")
        for frame, line in frames
        if frame.f_globals is not globals() and not _FOREIGN.match(frame.f_code.co_filename)
    ]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _checked(name: str, taken: typing.Container[str]) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f'"{name}" is no name: take up to 64 letters, digits, "_" and "-"')
    if name in taken:
        raise ValueError(f'there are two called "{name}"')
    return name
