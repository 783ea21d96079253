# SPDX-License-Identifier: Apache-2.0
"""Write extensions for zot and anyplug in Python: tools, slash commands, panels, notes, events and guards.

    from anyplug.ext import Extension

    ext = Extension("weather", version="1.0.0")

    @ext.tool
    def forecast(city: str, days: int = 3) -> str:
        '''Give the forecast for a city.

        city: which city
        '''
        return f"{city}: sun for {days} days"

    ext.run()

This file needs Python 3.9 and nothing else. Copy it beside your extension to ship it along.

`run` says hello, registers everything and reads what the host sends. Tools, commands and guards run in threads of
their own, so a slow one delays nobody, and answers go out in any order; events come one after another, and so do
panels' keys. Every function may be async (all share one event loop) and may take fewer arguments than it is offered.
What is printed goes to the log, so make the `Extension` first; from `run` on, so does what other programs print.
"""
# ruff: noqa: T201, TRY301 - an extension's stderr is its log, and what fails in a `try` here is answered at its end

from __future__ import annotations

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
import traceback
import types
import typing
from typing import IO, Any, Callable, Literal, TypeVar  # noqa: UP035 - Python 3.9 needs typing's Callable

PROTOCOL_VERSION = 1
FRAME_BYTES = 4 * 1024 * 1024  # zot stops listening to an extension that sends a longer line
CALL_TOOL_S = 60.0  # how long zot lets a tool run that an extension asked for
LEAVE_S = 0.5  # for handlers to end after a shutdown; zot sends SIGTERM 2 s after it
LINGER_S = 2.0  # for answers to go out when only stdin has ended, as in `./main.py < frames`
ERROR_CHARS = 500  # of an exception: the model needs the point, the log has the rest

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what zot can dispatch as a command, and models accept as a tool
_NOTE = re.compile(r"\s*(?::param\s+)?(\w+)(?:\s*\([^)]*\))?\s*:\s+(\S.*)")  # on an argument, in a docstring
_WORDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_WORDS.update({list: "array", dict: "object"})
_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))  # Python 3.9 has only the first
# What a guard is asked about: the field that it sees, the field that carries its rewrite, and their type.
_GUARDED: dict[str, tuple[str, str, type]] = {
    "tool_call": ("tool_args", "modified_args", dict),
    "turn_start": ("step", "", int),
    "assistant_message": ("text", "replace_text", str),
    "before_agent_start": ("system_prompt", "system_prompt", str),
}

F = TypeVar("F", bound=Callable[..., Any])
Frame = typing.Dict[str, Any]  # noqa: UP006 - for Python 3.9


class Failed(Exception):
    """Raise it in a tool or a command to answer with this error, and no traceback in the log."""


@dataclasses.dataclass(frozen=True)
class Host:
    """What the host said of itself. `cwd` is the project's folder, `data_dir` the place for the extension's state."""

    protocol_version: int = PROTOCOL_VERSION
    zot_version: str = ""
    provider: str = ""
    model: str = ""
    cwd: str = ""
    extension_dir: str = "."  # an extension is started in its own folder
    data_dir: str = "."


@dataclasses.dataclass(frozen=True)
class Image:
    """A picture that a tool gives, alone or in a list with texts."""

    data: bytes
    mime_type: str = "image/png"


@dataclasses.dataclass(frozen=True)
class Result:
    """A tool's answer block by block: what `call_tool` gives, and what a tool may give."""

    content: list[Frame]
    is_error: bool = False
    structured: Any = None

    @property
    def text(self) -> str:
        """Its texts."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


@dataclasses.dataclass(frozen=True)
class Reply:
    """A command's answer. Make it with `prompt`, `insert`, `display` or `noop` of the extension."""

    action: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A guard's answer. Make it with `block` or `rewrite`."""

    blocked: bool
    reason: str
    value: Any = None


def block(reason: str) -> Verdict:
    """Refuse it; the model (for a tool call) or the person sees the reason."""
    return Verdict(blocked=True, reason=reason)


def rewrite(value: Frame | str, reason: str = "") -> Verdict:
    """Let it pass with other arguments (a tool call) or another text (a message, a system prompt)."""
    return Verdict(blocked=False, reason=reason, value=value)


class Panel:
    """A panel that the extension draws: change `title`, `lines` or `footer`, then `render`.

    Make it with `Extension.panel`. A command that returns it opens it; `open` does so unasked.
    """

    def __init__(self, send: Callable[[Frame], None], id: str, title: str, lines: list[str], footer: str) -> None:
        self.id, self.title, self.lines, self.footer = id, title, lines, footer
        self.is_open = False
        self.key: Callable[..., Any] = lambda: None
        self.closed: Callable[..., Any] = lambda: None
        self._send = send
        self._lock = threading.RLock()  # so that what is sent last is what was drawn last

    def on_key(self, function: F) -> F:
        """Call the function with `(key, text)` for each key; `text` is the character if the key is "rune"."""
        self.key = function
        return function

    def on_close(self, function: F) -> F:
        """Call the function when the person closes the panel."""
        self.closed = function
        return function

    def open(self, frame: Frame | None = None, field: str = "panel") -> None:
        """Show it, although nobody asked (or in the frame that answers somebody)."""
        with self._lock:
            self._send({**(frame or {"type": "open_panel"}), field: {"id": self.id, **self._face()}})
            self.is_open = True

    def render(self) -> None:
        """Send what it shows now; nothing happens while it is closed."""
        with self._lock:
            if self.is_open:
                self._send({"type": "panel_render", "panel_id": self.id, **self._face()})

    def close(self) -> None:
        """Take it away."""
        with self._lock:
            if self.is_open:
                self.is_open = False
                self._send({"type": "panel_close", "panel_id": self.id})

    def _face(self) -> Frame:
        return {"title": self.title, "lines": [str(line) for line in self.lines], "footer": self.footer}


class Extension:
    """An extension: register what it offers with the decorators, then `run` it."""

    def __init__(self, name: str, version: str = "", *, calls_tools: bool = False) -> None:
        """`calls_tools` asks the host for the right to run its tools, with `call_tool`."""
        self.name, self.version = name, version
        self.host = Host()  # until the host has spoken
        if sys.stdout is sys.__stdout__ and sys.stdout and not sys.stdout.isatty():
            sys.stdout = sys.stderr  # a print before `run` would come before the hello
        self._calls_tools = calls_tools
        self._grants: list[Any] = []  # what the host lets extensions do
        self._tools: dict[str, _Tool] = {}
        self._commands: dict[str, Callable[..., Any]] = {}
        self._events: dict[str, list[Callable[..., Any]]] = {}
        self._guards: dict[str, list[Callable[..., Any]]] = {}
        self._starts: list[Callable[..., Any]] = []
        self._panels: dict[str, Panel] = {}
        self._calls: dict[str, _Call] = {}  # of our tools, under way
        self._asked: dict[str, tuple[_Call | None, queue.SimpleQueue[Frame | None]]] = {}  # of the host's tools
        self._numbers = itertools.count(1)
        self._workers, self._event_lane, self._panel_lane = _Workers(), _Workers(most=1), _Workers(most=1)
        self._loop: Any = None  # of the async functions, once there is one
        self._writing = threading.Lock()
        self._out: int | None = None
        self._early: list[bytes] | None = []  # said before `run`: nothing may precede the hello

    # What it offers.

    def tool(
        self,
        function: Any = None,
        *,
        name: str = "",
        description: str = "",
        schema: Frame | None = None,
        interactive: bool = False,
    ) -> Any:
        """Offer a function to the model; its hints, defaults and docstring say how it is called.

        It may give a text, an `Image`, a list of these, any JSON value or a `Result`; an exception is an error. With a
        `schema` of your own, arguments come unchecked. `interactive` says that it may wait for a person. Raises
        TypeError for a hint that JSON Schema cannot say, and ValueError for a name that is unusable or taken.
        """
        if function is None:
            return lambda function: self.tool(
                function, name=name, description=description, schema=schema, interactive=interactive
            )
        tool = _Tool(function, _checked(name or function.__name__, self._tools), description, schema)
        self._tools[tool.name] = tool
        frame = {"type": "register_tool", "name": tool.name, "description": tool.description, "schema": tool.schema}
        self._send({**frame, "interactive": True} if interactive else frame)
        return function

    def command(self, name: str, description: str = "") -> Callable[[F], F]:
        """Offer a slash command; the function gets what was typed after it.

        It returns `prompt(...)`, `insert(...)`, `display(...)`, `noop()`, a `Panel` to open, a text to display or None.
        Raises ValueError for a name that is unusable or taken.
        """

        def register(function: F) -> F:
            known = _checked(name.lstrip("/"), self._commands)
            self._commands[known] = function
            text = description or (inspect.getdoc(function) or "").partition("\n")[0]
            self._send({"type": "register_command", "name": known, "description": text})
            return function

        return register

    def on(self, *events: str) -> Callable[[F], F]:
        """Hear of events such as "turn_end"; the function gets the fields in a dict, less zeros."""

        def register(function: F) -> F:
            for event in events:
                self._events.setdefault(event, []).append(function)
            self._subscribe(list(events), [])
            return function

        return register

    def on_start(self, function: F) -> F:
        """Call the function when the host is known, before anything is asked of the extension."""
        self._starts.append(function)
        return function

    def intercept_tool_call(self, function: F) -> F:
        """Guard every tool call: `function(name, args)` returns None, `block(reason)` or `rewrite(args)`.

        A guard that raises, or returns something else, blocks. So do the other three.
        """
        return self._guard("tool_call", function)

    def intercept_turn_start(self, function: F) -> F:
        """Guard each question to the model: `function(step)` returns None or `block(reason)`."""
        return self._guard("turn_start", function)

    def intercept_assistant_message(self, function: F) -> F:
        """Guard what the person sees: `function(text)` returns None, `block(reason)` or `rewrite(text)`."""
        return self._guard("assistant_message", function)

    def intercept_agent_start(self, function: F) -> F:
        """Change the system prompt: `function(prompt)` returns None or `rewrite(prompt)`."""
        return self._guard("before_agent_start", function)

    def panel(self, id: str, title: str = "", lines: typing.Iterable[str] = (), footer: str = "") -> Panel:
        """Make a panel. One that is made again with the same id gets the other's keys."""
        self._panels[id] = Panel(self._send, id, title, list(lines), footer)
        return self._panels[id]

    # What it says.

    def prompt(self, text: str) -> Reply:
        """Answer a command: send this to the model."""
        return Reply("prompt", text)

    def insert(self, text: str) -> Reply:
        """Answer a command: put this into the editor."""
        return Reply("insert", text)

    def display(self, text: str) -> Reply:
        """Answer a command: show this to the person, not to the model."""
        return Reply("display", text)

    def noop(self) -> Reply:
        """Answer a command: all is done."""
        return Reply("noop")

    def notify(self, message: str, level: Literal["info", "success", "warn", "error"] = "info") -> None:
        """Show the person a note. Raises ValueError for another level."""
        if level not in ("info", "success", "warn", "error"):
            raise ValueError(f'there is no level "{level}": take info, success, warn or error')
        self._send({"type": "notify", "level": level, "message": message})

    def clear_notes(self) -> None:
        """Take this extension's notes away."""
        self._send({"type": "clear_notes"})

    def submit(self, text: str) -> None:
        """Send a text to the model as if the person had typed it."""
        self._send({"type": "submit", "text": text})

    def call_tool(self, name: str, args: Frame | None = None, *, timeout_s: float = CALL_TOOL_S) -> Result:
        """Run one of the host's tools and wait; raises Failed. In async code: `await asyncio.to_thread(...)`."""
        if not self._calls_tools:
            raise Failed("this extension did not ask for the right: Extension(..., calls_tools=True)")
        if "call_tool" not in self._grants:
            raise Failed("this host runs no tools for extensions")
        caller, number = _current.get(), f"ask-{next(self._numbers)}"
        answers: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._asked[number] = (caller, answers)
        frame = {"type": "call_tool", "id": number, "name": name, "args": args or {}}
        try:
            self._send({**frame, "parent_id": caller.id} if caller else frame)
            answer = None if caller and caller.cancelled.is_set() else answers.get(timeout=timeout_s)
        except queue.Empty:
            answer = None
        finally:
            del self._asked[number]
        if answer is None:
            self._send({"type": "call_tool_cancel", "id": number})
            raise Failed(f'"{name}" was cancelled, or did not answer within {timeout_s:g} s')
        content = [part for part in answer.get("content") or [] if isinstance(part, dict)]
        result = Result(content, answer.get("is_error") is True, answer.get("structured_content"))
        if result.is_error:
            raise Failed(result.text or f'"{name}" failed')
        return result

    def cancelled(self, wait_s: float = 0) -> bool:
        """Say inside a tool whether its result is still wanted; with `wait_s`, sleep that long unless it is not."""
        call = _current.get()
        return (call.cancelled if call else threading.Event()).wait(wait_s)

    # How it runs.

    def run(self) -> None:
        """Serve the host until it says shutdown or goes away. What stands after this in your program runs then."""
        patience, greeted = LINGER_S, False
        try:
            for line in self._open():
                frame = _parsed(line)
                if frame.get("type") == "shutdown":
                    self._send({"type": "shutdown_ack"})
                    patience = LEAVE_S
                    self._cancel_all()
                    break
                if frame.get("type") == "hello_ack":
                    self._greet(frame, again=greeted)
                    greeted = True
                elif greeted:
                    self._receive(frame)
            for workers in (self._workers, self._event_lane, self._panel_lane):
                workers.drain(patience)
        except KeyboardInterrupt:
            pass  # a terminal sends Ctrl-C to extensions too
        self._cancel_all()

    def _open(self) -> IO[bytes]:
        """Take stdin and stdout away from everybody else, and say hello with all that is registered."""
        with self._writing:
            if self._early is None:
                raise RuntimeError("an extension runs once")
            if os.isatty(0):
                print(f"{self.name} is an extension: zot or anyplug starts it", file=sys.stderr)
            early, self._early = self._early, None
            frames, self._out = os.fdopen(os.dup(0), "rb"), os.dup(1)
            os.dup2(2, 1)  # prints go to the log, also those of programs that the extension starts
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), 0)  # and such programs do not eat the host's frames
        registered = {"commands": self._commands, "tools": self._tools, "events": self._events or self._guards}
        offers = [word for word, some in registered.items() if some] + ["panels", "submit", "tool_cancel"]
        offers += ["call_tool"] if self._calls_tools else []
        self._send({"type": "hello", "name": self.name, "version": self.version, "capabilities": offers})
        for data in early:
            self._write(data)
        self._subscribe(list(self._events), list(self._guards))
        self._send({"type": "ready"})
        return frames

    def _greet(self, frame: Frame, *, again: bool) -> None:
        shapes = {field.name: type(field.default) for field in dataclasses.fields(Host)}
        self.host = Host(**{name: frame[name] for name, shape in shapes.items() if type(frame.get(name)) is shape})
        granted = frame.get("capabilities")
        self._grants = granted if isinstance(granted, list) else []
        if self.host.protocol_version != PROTOCOL_VERSION:
            print(f"the host speaks protocol {self.host.protocol_version}, not {PROTOCOL_VERSION}", file=sys.stderr)
        for function in () if again else self._starts:
            self._run(function)

    def _receive(self, frame: Frame) -> None:
        """Start what a frame asks for, without waiting."""
        kind, number = _text(frame, "type"), _text(frame, "id")
        if kind == "tool_call" and number:
            call = self._calls[number] = _Call(number)
            self._serve("tool_result", frame, lambda: self._run_tool(call, frame))
        elif kind == "tool_cancel":
            self._cancel(self._calls.get(number))
        elif kind == "tool_result" and (asked := self._asked.get(number)):
            asked[1].put(frame)
        elif kind == "command_invoked" and number:
            self._serve("command_response", frame, lambda: self._run_command(frame))
        elif kind == "event_intercept" and number:
            self._serve("event_intercept_response", frame, lambda: self._decide(frame))
        elif kind == "event":
            for function in self._events.get(_text(frame, "event"), ()):
                self._event_lane.run(lambda function=function: self._tell(function, frame))  # type: ignore[misc]
        elif kind in ("panel_key", "panel_close"):
            self._panel_lane.run(lambda: self._touch(self._panels.get(_text(frame, "panel_id")), frame))
        else:
            print(f"not understood: {str(frame)[:ERROR_CHARS]}", file=sys.stderr)

    def _serve(self, kind: str, frame: Frame, answer: Callable[[], Frame | None]) -> None:
        """Answer a frame in a thread: with what `answer` gives, unless that is None, or with how it failed."""

        def job() -> None:
            head = {"type": kind, "id": _text(frame, "id")}
            try:
                given = answer()
                if given is not None:
                    self._send({**head, **given})
            except BaseException as error:  # noqa: BLE001 - an author's code ends here, and somebody waits
                self._send({**head, **_FAILED[kind](_told(error))})

        self._workers.run(job)

    def _run_tool(self, call: _Call, frame: Frame) -> Frame | None:
        name, mark = _text(frame, "name"), _current.set(call)
        try:
            if name not in self._tools:
                raise Failed(f'there is no tool "{name}"')
            result = _result(self._run(self._tools[name].call, frame.get("args")))
        except BaseException:
            if not call.cancelled.is_set():
                raise
        finally:
            _current.reset(mark)
            self._calls.pop(call.id, None)
        if call.cancelled.is_set():
            return None  # nobody waits for it
        structured = {} if result.structured is None else {"structured_content": result.structured}
        return {"content": result.content, "is_error": result.is_error, **structured}

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
        return {"action": reply.action, **({reply.action: reply.text} if reply.text else {})}

    def _decide(self, frame: Frame) -> Frame:
        """Ask the guards in turn: the first block wins, and each sees what those before it rewrote."""
        event = _text(frame, "event")
        answer: Frame = {}
        for function in self._guards.get(event, ()):
            seen, rewritten, shape = _GUARDED[event]
            subject = answer.get(rewritten, frame.get(seen))
            if subject is None:
                subject = shape()  # zot leaves out what is empty
            verdict = self._run(function, *([_text(frame, "tool_name")] if event == "tool_call" else []), subject)
            if verdict is None:
                continue
            if not isinstance(verdict, Verdict):
                raise TypeError(f"{function.__name__} returned {verdict!r}, not None, block(...) or rewrite(...)")
            if verdict.blocked:
                return {"block": True, "reason": verdict.reason}
            if not rewritten or not isinstance(verdict.value, shape):
                raise TypeError(f"{function.__name__} cannot rewrite a {event} as {verdict.value!r}")
            if event == "assistant_message" and not verdict.value:
                raise ValueError("to hosts an empty text is no change: block the message instead")
            answer.update({rewritten: verdict.value, "reason": verdict.reason})
        return answer

    def _touch(self, panel: Panel | None, frame: Frame) -> None:
        if panel and frame["type"] == "panel_key":
            self._tell(panel.key, _text(frame, "key"), _text(frame, "text"))
        elif panel:
            panel.is_open = False
            self._tell(panel.closed)

    def _tell(self, function: Callable[..., Any], *values: Any) -> None:
        """Call a function whose answer nobody waits for."""
        try:
            self._run(function, *values)
        except BaseException as error:  # noqa: BLE001 - an author's code ends here, and the next event comes
            _told(error)

    def _run(self, function: Callable[..., Any], *values: Any) -> Any:
        """Call a function with as many of the values as it takes; if it is async, on the shared event loop."""
        value = function(*values[: _takes(function)])
        if not inspect.iscoroutine(value):
            return value
        import asyncio  # most extensions do without it, and it takes longer to import than all the rest

        with self._writing:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True).start()
        task, call = asyncio.run_coroutine_threadsafe(value, self._loop), _current.get()
        if call is not None:
            call.task = task
            if call.cancelled.is_set():
                task.cancel()
        return task.result()

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
        self._guards.setdefault(event, []).append(function)
        self._subscribe([], [event])
        return function

    def _subscribe(self, events: list[str], intercept: list[str]) -> None:
        if self._early is None and (events or intercept):  # what is known before `run`, it tells in one frame
            self._send({"type": "subscribe", "events": events, "intercept": intercept})

    def _send(self, frame: Frame) -> None:
        """Send a frame; raises TypeError or ValueError if it is no JSON, or longer than hosts take."""
        data = _json(frame).encode("utf-8", "replace") + b"\n"
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


class _Tool:
    """A function as the model sees it."""

    def __init__(self, function: Callable[..., Any], name: str, description: str, schema: Frame | None) -> None:
        self.name, self._function = name, function
        self._hints: dict[str, Any] | None = None  # none: arguments are passed on as they are
        given = inspect.signature(function).parameters
        about, notes = _documented(inspect.getdoc(function) or "", given)
        self.description = description or about
        self.schema = schema or self._derive(given, notes)

    def call(self, args: Any) -> Any:
        """Call it with what the model gave; raises Failed if that does not fit."""
        if not isinstance(args, dict):
            args = {} if args is None else _refuse("arguments must be an object")
        if self._hints is None:
            return self._function(**args)
        wrong = [f"{name} is missing" for name in self.schema.get("required", ()) if name not in args]
        wrong += [f"{name} is unknown" for name in args if name not in self._hints]
        if wrong:
            raise Failed("wrong arguments: " + ", ".join(wrong))
        return self._function(**{name: _read(self._hints[name], value, name) for name, value in args.items()})

    def _derive(self, given: typing.Mapping[str, inspect.Parameter], notes: dict[str, str]) -> Frame:
        """Read the schema off the hints; raises TypeError."""
        try:
            hints = typing.get_type_hints(self._function, include_extras=True)
        except (NameError, TypeError) as error:  # Python 3.9 has no `X | None`, and a hint may be local
            raise TypeError(f"tool {self.name}: a hint cannot be read here: {error}") from error
        self._hints, properties, required = {}, {}, []
        for name, one in given.items():
            if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                raise TypeError(f"tool {self.name}: {one} cannot be given by name")
            hint = hints.get(name, Any if one.default in (None, one.empty) else type(one.default))
            self._hints[name] = hint
            properties[name] = _schema(hint, f"tool {self.name}: {name}")
            if name in notes:
                properties[name]["description"] = notes[name]
            if one.default is one.empty:
                required.append(name)
            elif one.default is not None:
                properties[name]["default"] = json.loads(_json(one.default))
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}


class _Call:
    """A call of one of our tools, under way."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.cancelled = threading.Event()
        self.task: Any = None  # of an async tool


class _Workers:
    """Threads that run jobs: as many as there are jobs, or at most so many; a single one keeps their order."""

    def __init__(self, most: int | None = None) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._most, self._threads, self._busy = most, 0, 0
        self._changed = threading.Condition()

    def run(self, job: Callable[[], None]) -> None:
        """Run a job, which must not raise, soon."""
        with self._changed:
            self._busy += 1
            if self._busy > self._threads and self._threads != self._most:
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()
        self._jobs.put(job)

    def drain(self, seconds: float) -> None:
        """Wait until all jobs are done, or that long."""
        with self._changed:
            self._changed.wait_for(lambda: self._busy == 0, seconds)

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()


_FAILED: dict[str, Callable[[str], Frame]] = {
    "tool_result": lambda why: {"content": [_block(why)], "is_error": True},
    "command_response": lambda why: {"action": "noop", "error": why},
    "event_intercept_response": lambda why: {"block": True, "reason": f"intercept error: {why}"},
}
_current: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("call", default=None)


@functools.lru_cache(maxsize=256)  # bounded, as a handler may be made anew for each command
def _takes(function: Callable[..., Any]) -> int:
    """Count the arguments that a function takes by position."""
    kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sys.maxsize if inspect.Parameter.VAR_POSITIONAL in kinds else sum(kind in named for kind in kinds)


def _choices(hint: Any) -> dict[Any, Any]:
    """Give what a Literal or an Enum allows: as JSON shows it, and as the function gets it."""
    if typing.get_origin(hint) is Literal:
        return {choice: choice for choice in typing.get_args(hint)}
    members: Any = hint if isinstance(hint, enum.EnumMeta) else ()
    return {one.value: one for one in members}


def _base(hint: Any) -> Any:
    return typing.get_origin(hint) or hint


def _schema(hint: Any, whose: str) -> Frame:
    """Say a hint as JSON Schema; raises TypeError."""
    origin, inner, choices = typing.get_origin(hint), typing.get_args(hint), _choices(hint)
    base = _base(hint)
    if hint is Any:
        return {}
    if origin is typing.Annotated:
        notes = [note for note in inner[1:] if isinstance(note, str)]
        return {**_schema(inner[0], whose), **({"description": notes[0]} if notes else {})}
    if choices and all(type(choice) in _WORDS for choice in choices):
        words = {_WORDS[type(choice)] for choice in choices}
        return {**({"type": words.pop()} if len(words) == 1 else {}), "enum": list(choices)}
    if origin in _UNIONS:
        kinds = [_schema(one, whose) for one in inner]
        simple = all(list(kind) == ["type"] for kind in kinds)
        return {"type": [kind["type"] for kind in kinds]} if simple else {"anyOf": kinds}
    if base is list and inner:
        return {"type": "array", "items": _schema(inner[0], whose)}
    if base is dict and inner and inner[0] is str:
        return {"type": "object", "additionalProperties": _schema(inner[1], whose)}
    if base in _WORDS and (not inner or base is list):
        return {"type": _WORDS[base]}
    raise TypeError(f"{whose}: JSON Schema cannot say {hint!r}; give a schema of your own")


def _read(hint: Any, value: Any, path: str) -> Any:
    """Give a JSON value as the hint promises it; raises Failed if it is something else."""
    origin, inner, choices = typing.get_origin(hint), typing.get_args(hint), _choices(hint)
    base = _base(hint)
    if origin is typing.Annotated:
        return _read(inner[0], value, path)
    if choices:
        meant = [one for shown, one in choices.items() if shown == value and type(shown) is type(value)]
        return meant[0] if meant else _refuse(f"{path} must be one of {_json(list(choices))}")
    if origin in _UNIONS:
        # The exact type first, so that 3 stays an int where a float would do as well.
        for one in sorted(inner, key=lambda one: _base(one) is not type(value)):
            try:
                return _read(one, value, path)
            except Failed as error:
                complaint = str(error)
        return _refuse(complaint)
    if base in (int, float) and type(value) in (int, float) and base(value) == value:
        return base(value)  # to JSON Schema 3.0 is an integer, and 3 a number
    if hint is not Any and type(value) is not base:
        return _refuse(f"{path} must be of type {_WORDS[base]}")
    if base is list and inner:
        return [_read(inner[0], one, f"{path}[{at}]") for at, one in enumerate(value)]
    if base is dict and inner:
        return {key: _read(inner[1], one, f"{path}.{key}") for key, one in value.items()}
    return value


def _refuse(why: str) -> typing.NoReturn:
    raise Failed(why)


def _documented(text: str, names: typing.Container[str]) -> tuple[str, dict[str, str]]:
    """Part a docstring into the description and the notes on arguments: `name: note`, also under `Args:`."""
    notes: dict[str, str] = {}
    rest: list[str] = []
    current, depth = "", 0
    for line in text.splitlines():
        indent, found = len(line) - len(line.lstrip()), _NOTE.match(line)
        if found and found[1] in names:
            current, depth = found[1], indent
            notes[current] = found[2].strip()
        elif current and line.strip() and indent > depth:
            notes[current] += " " + line.strip()
        else:
            current = ""
            rest += [line] if line.strip() not in ("Args:", "Arguments:", "Parameters:") else []
    return "\n".join(rest).strip(), notes


def _result(value: Any) -> Result:
    """Make a tool's answer of what the function returned; raises TypeError or ValueError if it is no JSON."""
    if isinstance(value, Result):
        return value
    if value is None:
        return Result([_block("done")])  # a model takes an empty answer for a fault
    if isinstance(value, (str, Image)):
        return Result([_block(value)])
    if isinstance(value, (list, tuple)) and any(isinstance(one, Image) for one in value):
        return Result([_block(one) for one in value])
    plain = json.loads(_json(value))
    return Result([_block(plain)], structured=plain if isinstance(plain, (dict, list)) else None)


def _block(value: Any) -> Frame:
    if isinstance(value, Image):
        data = binascii.b2a_base64(value.data, newline=False).decode()
        return {"type": "image", "mime_type": value.mime_type, "data": data}
    return {"type": "text", "text": value if isinstance(value, str) else _json(value)}


def _json(value: Any) -> str:
    """Write JSON; raises TypeError or ValueError."""

    def simpler(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return vars(value)
        if isinstance(value, enum.Enum):
            return value.value
        raise TypeError(f"{type(value).__name__} is no JSON")

    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=simpler)


def _parsed(line: bytes) -> Frame:
    """Read a line from the host; one that is no frame becomes one without a type."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        frame = None
    return frame if isinstance(frame, dict) else {"line": line}


def _text(frame: Frame, field: str) -> str:
    value = frame.get(field)
    return value if isinstance(value, str) else ""


def _told(error: BaseException) -> str:
    """Say in short what went wrong, and in full to the log unless it was meant."""
    if isinstance(error, Failed):
        return str(error)[:ERROR_CHARS]
    traceback.print_exception(type(error), error, error.__traceback__)
    return "".join(traceback.format_exception_only(type(error), error)).strip()[:ERROR_CHARS]


def _checked(name: str, taken: typing.Container[str]) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f'"{name}" is no name: take up to 64 letters, digits, "_" and "-"')
    if name in taken:
        raise ValueError(f'there are two called "{name}"')
    return name
