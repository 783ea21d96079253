"""The authors' SDK and the extensions written with and without it, spoken to by hand as real child processes."""

import glob
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rows import each_row

ROOT = Path(__file__).parents[2]
SDK = ROOT / "src" / "anyplug" / "ext" / "__init__.py"
EXAMPLES = ROOT / "examples"
PATIENCE_S = 30.0  # until a child that says nothing is taken to hang
ACK = {
    "type": "hello_ack",
    "protocol_version": 1,
    "zot_version": "0.0.7",
    "provider": "acme",
    "model": "large",
    "cwd": "/project",
    "capabilities": ["call_tool"],
}
STIR = {"type": "subscribe"}  # to nothing: a sign of life
OTHER_PYTHONS = [
    path
    for path in sorted(glob.glob("/root/.pyenv/versions/3.*/bin/python3"))
    if tuple(map(int, path.split("/")[4].split(".")[:2])) >= (3, 9)
]

Frame = dict[str, Any]


class Peer:
    """An extension in a child process, and the host's part of the talk."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        path = os.path.dirname(os.path.realpath(sys.executable)) + os.pathsep + os.environ["PATH"]
        self.log = folder / "stderr.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                argv, cwd=folder, env={**os.environ, "PATH": path},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.registered: list[Frame] = []
        self._bytes = b""
        self._aside: list[Frame] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.send_raw(json.dumps({"type": kind, **fields}).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def frame(self) -> Frame:
        """Give the next frame; a line that is none fails the test."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._bytes:
                assert waiting.select(PATIENCE_S), f"it says nothing; its log: {self.logged()}"
                some = os.read(self.process.stdout.fileno(), 1 << 20)
                assert some, f"it left; its log: {self.logged()}"
                self._bytes += some
        line, _, self._bytes = self._bytes.partition(b"\n")
        frame = json.loads(line)
        assert isinstance(frame["type"], str)
        return frame

    def until(self, **wanted: Any) -> Frame:
        """Give the first frame that has these fields, and keep the others for later."""
        for at, frame in enumerate(self._aside):
            if wanted.items() <= frame.items():
                return self._aside.pop(at)
        while not wanted.items() <= (frame := self.frame()).items():
            self._aside.append(frame)
        return frame

    def greet(self, **fields: Any) -> "Peer":
        """Answer the hello at once, as hosts do, and take in what is registered up to ready."""
        self.registered.append(self.frame())
        self.send(**{**ACK, "kind": "hello_ack", **fields})
        while (frame := self.frame())["type"] != "ready":
            self.registered.append(frame)
        return self

    def call(self, name: str, **args: Any) -> Frame:
        self.send("tool_call", id="one", name=name, args=args)
        return self.until(type="tool_result", id="one")

    def command(self, name: str, args: str = "") -> Frame:
        self.send("command_invoked", id="typed", name=name, **({"args": args} if args else {}))
        return self.until(type="command_response", id="typed")

    def intercept(self, event: str, **fields: Any) -> Frame:
        self.send("event_intercept", id="asked", event=event, **fields)
        frame = self.until(type="event_intercept_response", id="asked")
        return {key: value for key, value in frame.items() if key not in ("type", "id")}

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def leave(self) -> int:
        """Shut it down as zot does, and give its exit code."""
        self.send("shutdown")
        self.close_stdin()
        self.until(type="shutdown_ack")
        return self.process.wait(PATIENCE_S)

    def logged(self) -> str:
        """Give its log, less the advice to describe tools, as few do here."""
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)
        return "".join(line for line in lines if "has no description" not in line)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass


@pytest.fixture
def start() -> Iterator[Callable[[list[str], Path], Peer]]:
    peers: list[Peer] = []

    def make(argv: list[str], folder: Path) -> Peer:
        peers.append(Peer(argv, folder))
        return peers[-1]

    yield make
    for peer in peers:
        peer.end()


@pytest.fixture
def extension(tmp_path: Path, start: Callable[[list[str], Path], Peer]) -> Callable[..., Peer]:
    """Run a program that is written with the SDK, vendored beside it."""

    def make(body: str, options: str = "", python: str = sys.executable, greeted: bool = True) -> Peer:
        shutil.copy(SDK, tmp_path / "anyplug_ext.py")
        head = (
            f'import asyncio, os, sys, threading, time\nfrom anyplug_ext import *\next = Extension("probe"{options})\n'
        )
        program = head + textwrap.dedent(body) + "\next.run()\n"
        (tmp_path / "main.py").write_text(program)
        peer = start([python, "main.py"], tmp_path)
        return peer.greet() if greeted else peer

    return make


@pytest.fixture
def example(tmp_path: Path, start: Callable[[list[str], Path], Peer]) -> Callable[[str], Peer]:
    """Run an example as a host does: the manifest's exec, in a copy of its folder."""

    def make(name: str) -> Peer:
        folder = tmp_path / name
        if not folder.exists():
            shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
        manifest = json.loads((folder / "extension.json").read_text())
        assert manifest["name"] == name
        peer = start([str(folder / manifest["exec"])], folder)
        return peer.greet(extension_dir=str(folder), data_dir=str(folder))

    return make


def texts(frame: Frame) -> str:
    return "\n".join(block["text"] for block in frame["content"] if block["type"] == "text")


# Start and end.


def test_everything_is_registered_between_hello_and_ready(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        ext.notify("said before it runs")
        @ext.tool
        def add(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
        @ext.command("/sum", "add them up")
        def sum_(args): return args
        ext.on("turn_end")(lambda event: None)
        ext.on("turn_end", "tool_call")(lambda event: None)
        ext.intercept_tool_call(lambda name, args: None)
    """)
    hello, note, tool, command, subscribe = peer.registered
    assert hello == {
        "type": "hello", "name": "probe", "version": "",
        "capabilities": ["commands", "tools", "events", "panels", "submit", "tool_cancel"],
    }  # fmt: skip
    assert note["message"] == "said before it runs"
    assert (tool["name"], tool["description"]) == ("add", "Add two numbers.")
    assert command == {"type": "register_command", "name": "sum", "description": "add them up"}
    assert subscribe == {"type": "subscribe", "events": ["turn_end", "tool_call"], "intercept": ["tool_call"]}
    assert peer.leave() == 0


def test_what_the_host_said_is_known_at_the_start_and_nothing_is_served_before(extension: Callable[..., Peer]) -> None:
    peer = extension(
        """
        seen = []
        @ext.on_start
        def begin(): seen.append(ext.host)
        @ext.tool
        def host() -> list: return [seen[0].cwd, seen[0].model, seen[0].data_dir, seen[0].protocol_version, len(seen)]
        """,
        greeted=False,
    )
    peer.send("tool_call", id="too early", name="host", args={})
    peer.greet(data_dir="/state", extension_dir=7)
    assert peer.call("host")["structured_content"] == ["/project", "large", "/state", 1, 1]
    peer.send(**{**ACK, "kind": "hello_ack", "model": "small"})
    assert peer.call("host")["structured_content"][1] == "large"  # what was seen at the start
    assert peer._aside == []


def test_tools_and_guards_may_be_registered_later(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.tool
        def grow() -> str:
            ext.tool(lambda: "new", name="fresh")
            ext.intercept_turn_start(lambda step: block("no"))
    """)
    assert texts(peer.call("grow")) == "done"
    assert peer.until(type="register_tool")["name"] == "fresh"
    assert peer.until(type="subscribe") == {"type": "subscribe", "events": [], "intercept": ["turn_start"]}
    assert texts(peer.call("fresh")) == "new"


def test_what_is_registered_at_the_start_comes_before_ready(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.on_start
        async def begin():
            await asyncio.sleep(0.01)
            ext.tool(lambda: ext.host.cwd, name="where")
            ext.on("turn_end")(lambda event: None)
    """)
    registered = [frame["type"] for frame in peer.registered if frame != STIR]
    assert registered == ["hello", "register_tool", "subscribe"]
    assert texts(peer.call("where")) == "/project"


def test_a_slow_start_shows_signs_of_life_as_zot_takes_a_silent_extension_for_ready(
    extension: Callable[..., Peer],
) -> None:
    peer = extension(
        """
        @ext.on_start
        def begin():
            ext.call_tool("something slow")
            ext.tool(lambda: "made", name="late")
        """,
        options=", calls_tools=True",
        greeted=False,
    )
    peer.send(**{**ACK, "kind": "hello_ack"})
    asked = peer.until(type="call_tool")
    for _ in range(3):
        assert peer.frame() == STIR
    peer.send("tool_result", id=asked["id"], content=[])
    peer.until(type="register_tool")
    peer.until(type="ready")
    assert texts(peer.call("late")) == "made"


def test_a_host_tool_can_be_called_at_the_start_while_other_calls_wait(extension: Callable[..., Peer]) -> None:
    peer = extension(
        """
        got = []
        @ext.on_start
        def begin(): got.append(ext.call_tool("read").text)
        ext.tool(lambda: got, name="f")
        """,
        options=", calls_tools=True",
        greeted=False,
    )
    peer.send(**{**ACK, "kind": "hello_ack"})
    asked = peer.until(type="call_tool")
    peer.send("tool_call", id="early", name="f", args={})
    peer.send("tool_result", id=asked["id"], content=[{"type": "text", "text": "words"}])
    peer.until(type="ready")
    assert peer.until(id="early")["structured_content"] == ["words"]


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [("raise ValueError('no rules')", 1, "ValueError: no rules"), ("sys.exit('no key')", 1, "no key")],
)
def test_a_start_that_fails_ends_it_with_the_reason(
    extension: Callable[..., Peer], body: str, code: int, said: str
) -> None:
    peer = extension(f"@ext.on_start\ndef begin(): {body}\n", greeted=False)
    peer.send(**{**ACK, "kind": "hello_ack"})
    assert peer.process.wait(PATIENCE_S) == code
    assert peer.logged().endswith(said + "\n")
    assert peer.frame()["type"] == "hello"
    assert b"ready" not in peer._bytes


def test_it_leaves_at_shutdown_although_the_start_is_stuck(extension: Callable[..., Peer]) -> None:
    peer = extension("ext.on_start(lambda: time.sleep(3600))", greeted=False)
    peer.send(**{**ACK, "kind": "hello_ack"})
    peer.send("tool_call", id="1", name="f", args={})
    assert peer.leave() == 0


def test_nothing_precedes_the_hello_however_many_threads_speak(extension: Callable[..., Peer]) -> None:
    peer = extension(
        """
        def talk():
            while True: ext.notify("now")
        for _ in range(4): threading.Thread(target=talk, daemon=True).start()
        sys.setswitchinterval(1e-6)
        """,
        greeted=False,
    )
    frames = [peer.frame()["type"]]
    while frames[-1] != "ready":
        frames.append(peer.frame()["type"])
    assert frames[0] == "hello"
    assert set(frames[1:-1]) == {"notify"}


def test_it_leaves_at_shutdown_although_a_tool_is_stuck(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.tool
        def stuck():
            ext.notify("in it")
            time.sleep(3600)
    """)
    peer.send("tool_call", id="1", name="stuck", args={})
    peer.until(type="notify")
    assert peer.leave() == 0


def test_what_stands_after_run_is_run_at_the_end(extension: Callable[..., Peer], tmp_path: Path) -> None:
    peer = extension("import atexit; atexit.register(lambda: open('left', 'w').write('yes'))")
    assert peer.leave() == 0
    assert (tmp_path / "left").read_text() == "yes"


def test_at_the_end_of_stdin_calls_are_answered_before_it_leaves(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.tool
        def slow() -> str:
            time.sleep(0.05)
            return "still said"
    """)
    peer.send("tool_call", id="last", name="slow", args={})
    peer.close_stdin()
    assert texts(peer.until(id="last")) == "still said"
    assert peer.process.wait(PATIENCE_S) == 0


def test_the_end_of_stdin_before_the_ack_is_survived(extension: Callable[..., Peer]) -> None:
    peer = extension("", greeted=False)
    peer.close_stdin()
    assert peer.process.wait(PATIENCE_S) == 0
    assert peer.logged() == ""


def test_a_host_that_is_gone_does_not_make_it_fail(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.tool
        def talk():
            for _ in range(1000): ext.notify("x" * 1000)
    """)
    peer.send("tool_call", id="1", name="talk", args={})
    assert peer.process.stdout is not None
    peer.process.stdout.close()
    peer.close_stdin()
    assert peer.process.wait(PATIENCE_S) == 0
    assert peer.logged() == ""


def test_an_interrupt_ends_it_quietly(extension: Callable[..., Peer]) -> None:
    peer = extension("ext.command('here')(lambda: 'yes')")
    peer.command("here")
    peer.process.send_signal(signal.SIGINT)
    assert peer.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in peer.logged()


def test_prints_go_to_the_log_and_programs_it_starts_cannot_spoil_the_talk(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        import subprocess
        print("before it runs")
        @ext.tool
        def noise() -> str:
            print("in a tool")
            os.write(1, b"below Python\\n")
            subprocess.run(["sh", "-c", "echo from a program; cat"], check=True)
            return repr(sys.stdin.read())
    """)
    assert texts(peer.call("noise")) == "''"
    assert peer.leave() == 0
    for words in ("before it runs", "in a tool", "below Python", "from a program"):
        assert words in peer.logged()


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"null", b"[1]", b'"text"', b"\xff\xfe", b"{}", b'{"type":7}', b'{"type":"from_the_future"}',
        b"[" * 100_000, b'{"type":"tool_call"}', b'{"type":"tool_call","id":7,"name":"fine","args":{}}',
        b'{"type":"tool_cancel","id":[]}', b'{"type":"tool_result","id":"nobody asked"}', b'{"type":"event"}',
        b'{"type":"event","event":{}}', b'{"type":"panel_key","panel_id":"none","key":3}', b'{"type":"panel_close"}',
        b'{"type":"command_invoked","args":"x"}', b'{"type":"event_intercept","event":"tool_call"}',
        b'{"type":"hello_ack","protocol_version":"two","capabilities":7,"cwd":null}',
    ],
    ids=range(21),
)  # fmt: skip
def test_a_malformed_frame_is_survived(extension: Callable[..., Peer], line: bytes) -> None:
    peer = extension("ext.tool(lambda: 'fine', name='fine')")
    peer.send_raw(line + b"\n")
    assert texts(peer.call("fine")) == "fine"
    assert peer._aside == []
    assert peer.leave() == 0


@pytest.mark.parametrize(
    ("how", "body", "is_missed"),
    [
        (["main.py"], "ext.tool(len, schema={})", True),
        (["main.py"], "ext.on('turn_end')(print)", True),
        (["main.py"], "ext.intercept_tool_call(print)", True),
        (["main.py"], "ext.on_start(print)", True),
        (["main.py"], "", False),
        (["main.py"], "ext.on_start(print); ext.run()", False),
        (["main.py"], "ext.on_start(print); 1 / 0", False),
        (["-c", "import main"], "ext.on_start(print)", False),
        (["-c", "import runpy; runpy.run_path('main.py')"], "ext.on_start(print)", False),
    ],
)
def test_a_program_that_forgets_to_run_says_so_at_its_end(
    tmp_path: Path, how: list[str], body: str, is_missed: bool
) -> None:
    shutil.copy(SDK, tmp_path / "anyplug_ext.py")
    (tmp_path / "main.py").write_text(f"from anyplug_ext import *\next = Extension('tea')\n{body}\n")
    done = subprocess.run(
        [sys.executable, *how], cwd=tmp_path, input="", capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == (1 if "1 / 0" in body else 0)
    assert ("tea left without ext.run()" in done.stderr) is is_missed


# Tools.

HINTS = [
    ("x: str", {"type": "string"}, True),
    ("x: int", {"type": "integer"}, True),
    ("x: float", {"type": "number"}, True),
    ("x: bool", {"type": "boolean"}, True),
    ("x: int = 3", {"type": "integer", "default": 3}, False),
    ("x=2.5", {"type": "number", "default": 2.5}, False),
    ("x=None", {}, False),
    ("x", {}, True),
    ("x: Any", {}, True),
    ("x: list", {"type": "array"}, True),
    ("x: List", {"type": "array"}, True),
    ("x: list[str]", {"type": "array", "items": {"type": "string"}}, True),
    ("x: List[Dict[str, int]]",
     {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}}, True),
    ("x: dict", {"type": "object"}, True),
    ("x: dict[str, list[bool]]",
     {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "boolean"}}}, True),
    ("x: Optional[str] = None", {"type": ["string", "null"]}, False),
    ("x: Optional[int]", {"type": ["integer", "null"]}, True),
    ("x: Union[int, List[int]]",
     {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}, True),
    ("x: Literal['a', 'b'] = 'a'", {"type": "string", "enum": ["a", "b"], "default": "a"}, False),
    ("x: Literal[1, 'b']", {"enum": [1, "b"]}, True),
    ("x: Colour", {"type": "string", "enum": ["red", "blue"]}, True),
    ("x: Colour = Colour.RED", {"type": "string", "enum": ["red", "blue"], "default": "red"}, False),
    ("x: Optional[Colour] = None", {"anyOf": [{"type": "string", "enum": ["red", "blue"]}, {"type": "null"}]}, False),
    ("*, x: str", {"type": "string"}, True),
    ("x: Annotated[int, 'how many', 7]", {"type": "integer", "description": "how many"}, True),
    ("x: int = None", {"type": ["integer", "null"]}, False),
    ("x: Any = None", {}, False),
    ("x: Optional[Any]", {}, True),
    ("x: Annotated[int, 'how many'] = None", {"type": ["integer", "null"], "description": "how many"}, False),
    ("x: Annotated[Optional[int], 'how many'] = None", {"type": ["integer", "null"], "description": "how many"}, False),
    ("x: Optional[Annotated[int, 'how many']]", {"type": ["integer", "null"], "description": "how many"}, True),
    ("x: Optional[Annotated[Colour, 'which']] = None",
     {"anyOf": [{"type": "string", "enum": ["red", "blue"]}, {"type": "null"}], "description": "which"}, False),
    ("x: Literal[Colour.RED]", {"type": "string", "enum": ["red"]}, True),
    ("x: Sequence[int]", {"type": "array", "items": {"type": "integer"}}, True),
    ("x: Set[int]", {"type": "array", "items": {"type": "integer"}}, True),
    ("x: Mapping[str, int]", {"type": "object", "additionalProperties": {"type": "integer"}}, True),
    ("x: tuple", {"type": "array"}, True),
    ("x: Tuple[int, ...] = (1, 2)", {"type": "array", "items": {"type": "integer"}, "default": [1, 2]}, False),
    ("x: Tuple[float, float]", {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}, True),
    ("x: Tuple[int, str]",
     {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 2, "maxItems": 2}, True),
    ("x: NewType('Id', int)", {"type": "integer"}, True),
    ("x: Path = Path('.')", {"type": "string", "default": "."}, False),
    ("x: datetime.date", {"type": "string", "format": "date"}, True),
    ("x: datetime.datetime", {"type": "string", "format": "date-time"}, True),
    ("x: Point", {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.5},
                  "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["x"],
                  "additionalProperties": False}, True),
    ("x: All", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string",
                "description": "the b"}}, "required": ["b"], "additionalProperties": False}, True),
]  # fmt: skip


def program(parameters: str, head: str = "", doc: str = "Try it.") -> str:
    """Write a program that registers a function as a tool, with what its hints may name."""
    classes = """
        class Colour(enum.Enum):
            RED = "red"
            BLUE = "blue"
        class Odd(enum.Enum):
            ONE = b"1"
        @dataclasses.dataclass
        class Point:
            x: int
            y: float = 0.5
            tags: List[str] = dataclasses.field(default_factory=list)
        @dataclasses.dataclass
        class Node:
            inner: Optional["Node"] = None
        class Most(TypedDict, total=False):
            a: int
        class All(Most):
            b: Annotated[str, "the b"]
    """
    return (
        f"{head}\nimport dataclasses, datetime, enum, os\nfrom pathlib import Path\nfrom typing import *\n"
        f"from anyplug.ext import Extension\next = Extension('probe')\n{textwrap.dedent(classes)}"
        f"@ext.tool\ndef f({parameters}):\n    '''{doc}'''\n"
    )


def derive(parameters: str, head: str = "", doc: str = "") -> Frame:
    """Have a function's schema derived, in this process."""
    probe = sys.modules["probe"] = types.ModuleType("probe")
    exec(program(parameters, head, doc), vars(probe))  # hints need a place where their names are known
    frame: Frame = json.loads(probe.ext._early[-1])
    return frame


@each_row("head", ["", "from __future__ import annotations"], ids=["", "future"])
@each_row(("parameters", "schema", "required"), HINTS, ids=[row[0] for row in HINTS])
def test_the_schema_is_read_off_the_hints(parameters: str, schema: Frame, required: bool, head: str) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "additionalProperties": False}
    assert derive(parameters, head)["schema"] == (whole | {"required": ["x"]} if required else whole)


@pytest.mark.parametrize("head", ["", "from __future__ import annotations"], ids=["", "future"])
def test_the_schema_knows_unions_with_a_bar(head: str) -> None:
    assert derive("x: str | None = None", head)["schema"]["properties"]["x"] == {"type": ["string", "null"]}


@each_row(
    "parameters",
    [
        "x: bytes",
        "x: list[bytes]",
        "x: dict[int, str]",
        "*x",
        "**x",
        "x, /",
        "x: 'Lost'",
        "x: Node",
        "x: Odd",
        "x=object()",
        "x: int = object()",
        "x: os.PathLike",
        "x: set[Odd]",
    ],
)
def test_a_hint_that_cannot_be_said_is_refused_at_once_with_the_cure(parameters: str) -> None:
    with pytest.raises(TypeError, match=r"tool f: .*(schema=|take|at the top of the file)"):
        derive(parameters)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("@ext.tool\ndef f(x: bytes): pass", "TypeError: tool f: x: <class 'bytes'> cannot be said"),
        ("@ext.tool\ndef f(x: 'Lost'): pass", "TypeError: tool f: a hint cannot be read (name 'Lost' is not defined)"),
        ("@ext.tool\ndef f(*args): pass", "TypeError: tool f: *args cannot be given by name"),
        ("@ext.tool\ndef f(x: int = object()): pass", "TypeError: tool f: x: the default is not JSON"),
        ("@ext.tool(name='my tool')\ndef f(): pass", 'ValueError: "my tool" is no name'),
        ("@ext.command('my cmd')\ndef f(): pass", 'ValueError: "my cmd" is no name'),
        ("ext.command(lambda: 1)", 'ValueError: "<lambda>" is no name'),
        (
            "@ext.tool('steep', 'Steep a tea.')\ndef f(): pass",
            'TypeError: to name a tool, write @ext.tool(name="steep", description="Steep a tea.")',
        ),
        ("ext.tool(print, {'type': 'object'})", "TypeError: a tool takes one function; write all else by name"),
        ("ext.on('turn_end')(7)", "TypeError: 7 is no function"),
        ("ext.on_start(7)", "TypeError: 7 is no function"),
        ("ext.intercept_tool_call(7)", "TypeError: 7 is no function"),
        ("ext.panel('p').on_key(7)", "TypeError: 7 is no function"),
    ],
)
def test_a_refused_registration_shows_the_authors_line_at_the_end_of_the_log(
    extension: Callable[..., Peer], line: str, complaint: str
) -> None:
    peer = extension(line, greeted=False)
    assert peer.process.wait(PATIENCE_S) == 1
    assert peer.logged().count("Traceback") == 1
    frames = re.findall(r'File ".*?(\w+\.py)", line (\d+)', peer.logged())
    assert [name for name, _ in frames] == ["main.py", "anyplug_ext.py"]
    assert frames[0][1] == "4"
    assert peer.logged().splitlines()[-1].startswith(complaint)


DOCS = {
    "plain": """
        x: what to find
        y: where,
            and where else
    """,
    "google": """
        Args:
            x (str): what to find
            y (tuple(int, int), optional): where,
                and where else
    """,
    "google, spread": """
        Args:
            x:
                what to find

            y: where,

                and where else
    """,
    "numpy": """
        Parameters
        ----------
        x : str
            what to find
        y : {'a', 'b'}, optional
            where,

            and where else
    """,
    "sphinx": """
        :param x: what to find
        :type x: str
        :param str y: where,
            and where else
        :type y: str or
            something else
        :return: x: it
        :returns: it
        :rtype: str
        :raises ValueError: if x: is nowhere
    """,
    "twice": """
        x: what to find
        y: where,
            and where else
            x: in between
    """,
}


@pytest.mark.parametrize("doc", DOCS.values(), ids=DOCS)
def test_the_docstring_describes_the_tool_and_its_arguments(doc: str) -> None:
    frame = derive("x: str, y: str", doc="Find it.\n" + doc)
    notes = {name: one["description"] for name, one in frame["schema"]["properties"].items()}
    assert notes.pop("y").replace(" x: in between", "") == "where, and where else"
    assert notes == {"x": "what to find"}
    assert frame["description"] == "Find it."


@pytest.mark.parametrize("heading", ["Returns:", "Raises:", "Yields:", "Example:", "Examples:", "Note: x is one\n   "])
def test_what_stands_below_another_heading_is_no_note(heading: str) -> None:
    google = (
        f"Find it.\n\n    Args:\n        x: what to find\n\n    {heading}\n        x: not this\n        y: nor this\n"
    )
    frame = derive("x: str, y: str = ''", doc=google + "    ")
    assert frame["schema"]["properties"] == {
        "x": {"type": "string", "description": "what to find"}, "y": {"type": "string", "default": ""},
    }  # fmt: skip
    assert frame["description"] == f"Find it.\n\n{heading}\n    x: not this\n    y: nor this".replace("\n   \n", "\n\n")


def test_numpy_sections_after_the_arguments_are_no_notes() -> None:
    doc = """Find it.

    Parameters
    ----------
    x, y : int
        numbers

    Returns
    -------
    z : int
        not this
    """
    frame = derive("x: int, y: int, z: int", doc=doc)
    assert [one.get("description") for one in frame["schema"]["properties"].values()] == ["numbers", "numbers", None]
    assert frame["description"] == "Find it.\n\nReturns\n-------\nz : int\n    not this"


def test_a_schema_of_ones_own_is_one_of_an_object(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        ext.tool(lambda **given: None, name="f", schema={})
        ext.tool(lambda **given: None, name="g", schema={"properties": {"x": {}}, "type": "object"})
    """)
    schemas = [frame["schema"] for frame in peer.registered if frame["type"] == "register_tool"]
    assert schemas == [{"type": "object"}, {"type": "object", "properties": {"x": {}}}]


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": None}, "{}", [], True])
def test_another_schema_is_refused_at_once(schema: Any) -> None:
    from anyplug.ext import Extension

    with pytest.raises(TypeError, match=r'tool f: a schema is a dict of "type": "object", not '):
        Extension("probe").tool(lambda: None, name="f", schema=schema)


@pytest.mark.parametrize("name", ["", "two words", "ä", "x" * 65, "add"])
def test_an_unusable_or_taken_name_is_refused_at_once(name: str) -> None:
    from anyplug.ext import Extension

    ext = Extension("probe")
    ext.tool(lambda: None, name="add")
    with pytest.raises(ValueError, match=r"is no name|two called"):
        ext.tool(lambda: None, name=name or "/")


ARGUMENTS = """
    import dataclasses, datetime, enum
    from pathlib import Path
    from typing import *
    class Colour(enum.Enum):
        RED = "red"
    @dataclasses.dataclass
    class Point:
        x: int
        y: float = 0
    class Named(TypedDict):
        name: str
    @ext.tool
    def g(x: List[int] = None, c: Optional[Colour] = None, p: Point = None, t: Tuple[int, str] = None,
          day: datetime.date = None, at: datetime.datetime = None, s: Set[int] = frozenset(), path: Path = Path("."),
          n: Named = None, e: Union[Colour, str] = "") -> str:
        return repr((x, c and c.name, p, t, day, at and at.isoformat(), s, path.name, n, e))
    @ext.tool
    def f(i: int = 0, n: float = 0, s: str = "", c: Colour = Colour.RED, l: List[int] = [], u: Optional[int] = None,
          b: bool = False, d: Dict[str, float] = {}, k: Literal["a", 1] = 1, w: Union[float, int, str] = 0) -> str:
        return repr((i, n, s, c.name, l, u, b, d, k, w))
    @ext.tool
    def needy(must: str) -> str: return must
    @ext.tool(schema={"type": "object"}, description="takes anything")
    def loose(**given) -> str: return repr(given)
"""


def test_arguments_arrive_as_the_hints_promise(extension: Callable[..., Peer]) -> None:
    peer = extension(ARGUMENTS)
    result = peer.call("f", i=3.0, n=2, s="t", c="red", l=[1, 2.0], u=None, b=True, d={"x": 1}, k="a", w=7)
    assert texts(result) == "(3, 2.0, 't', 'RED', [1, 2], None, True, {'x': 1.0}, 'a', 7)"
    assert texts(peer.call("loose", x=[1])) == "{'x': [1]}"
    result = peer.call("g", x=[1], c="red", p={"x": 1}, t=[1, "a"], day="2026-01-31", at="2026-01-31T12:30:00Z",
                       s=[1, 1], path="a/b", n={"name": "x"}, e="red")  # fmt: skip
    assert texts(result) == (
        "([1], 'RED', Point(x=1, y=0), (1, 'a'), datetime.date(2026, 1, 31), '2026-01-31T12:30:00+00:00', {1}, 'b',"
        " {'name': 'x'}, <Colour.RED: 'red'>)"
    )
    assert texts(peer.call("g", x=None, c=None)).startswith("(None, None, None")
    peer.send("tool_call", id="none", name="f")
    assert texts(peer.until(id="none")) == "(0, 0, '', 'RED', [], None, False, {}, 1, 0)"


@pytest.mark.parametrize(
    ("name", "args", "complaint"),
    [
        ("f", {"i": "3"}, "i must be of type integer"),
        ("f", {"i": 3.5}, "i must be of type integer"),
        ("f", {"i": True}, "i must be of type integer"),
        ("f", {"s": None}, "s must be of type string"),
        ("f", {"c": "green"}, 'c must be one of ["red"]'),
        ("f", {"k": True}, 'k must be one of ["a",1]'),
        ("f", {"l": [1, "x"]}, "l[1] must be of type integer"),
        ("f", {"d": {"x": {}}}, "d.x must be of type number"),
        ("f", {"u": "x"}, "u must be of type integer or null"),
        ("f", {"w": None}, "w must be of type number or integer or string"),
        ("f", {"i": float("nan")}, "i must be of type integer"),
        ("f", {"i": float("inf")}, "i must be of type integer"),
        ("f", {"n": float("nan")}, "n must be of type number"),
        ("f", {"n": 10**400}, "n must be of type number"),
        ("g", {"x": [1, "x"]}, "x[1] must be of type integer"),
        ("g", {"x": 1}, "x must be of type array or null"),
        ("g", {"c": "green"}, 'c must be one of ["red"] or null'),
        ("g", {"p": {"y": 1, "z": 1}}, "wrong arguments: p.x is missing, p.z is unknown"),
        ("g", {"p": {"x": "1"}}, "p.x must be of type integer"),
        ("g", {"p": 3}, "p must be of type object or null"),
        ("g", {"t": [1]}, "t must have 2 items"),
        ("g", {"t": [1, 2]}, "t[1] must be of type string"),
        ("g", {"day": "tomorrow"}, "day must be a date like 2026-01-31 or null"),
        ("g", {"day": 3}, "day must be a date like 2026-01-31 or null"),
        ("f", {"zzz": 1}, "wrong arguments: zzz is unknown"),
        ("needy", {}, "wrong arguments: must is missing"),
        ("needy", [], "arguments must be an object"),
        ("nowhere", {}, 'there is no tool "nowhere"'),
    ],
)
def test_arguments_that_do_not_fit_are_an_error(
    extension: Callable[..., Peer], name: str, args: Any, complaint: str
) -> None:
    peer = extension(ARGUMENTS)
    peer.send("tool_call", id="1", name=name, args=args)
    result = peer.until(id="1")
    assert (texts(result), result["is_error"]) == (complaint, True)
    assert peer.logged() == ""


RESULTS = [
    ("'plain'", [{"type": "text", "text": "plain"}], None),
    ("None", [{"type": "text", "text": "done"}], None),
    ("42", [{"type": "text", "text": "42"}], None),
    ("{'a': [1, None]}", [{"type": "text", "text": '{"a":[1,null]}'}], {"a": [1, None]}),
    ("['x', 'é']", [{"type": "text", "text": '["x","é"]'}], ["x", "é"]),
    ("Host(cwd='/x')", None, {"protocol_version": 1, "zot_version": "", "provider": "", "model": "", "cwd": "/x",
                              "extension_dir": ".", "data_dir": "."}),
    ("Image(b'abc', 'image/gif')", [{"type": "image", "mime_type": "image/gif", "data": "YWJj"}], None),
    ("['look', Image(b'abc')]",
     [{"type": "text", "text": "look"}, {"type": "image", "mime_type": "image/png", "data": "YWJj"}], None),
    ("Result([{'type': 'text', 'text': 'a'}], structured=7)", [{"type": "text", "text": "a"}], 7),
    ("'\\ud800'", [{"type": "text", "text": "?"}], None),
    ("Slim(1)", None, {"x": 1}),
    ("[pathlib.Path('a'), datetime.date(2026, 1, 31), {3}]", None, ["a", "2026-01-31", [3]]),
    ("list(range(500_000))", None, None),
    ("[0] * 1_000_000", None, [0] * 1_000_000),
]  # fmt: skip


@pytest.mark.parametrize(("value", "content", "structured"), RESULTS, ids=[row[0] for row in RESULTS])
def test_what_a_tool_returns_becomes_blocks(
    extension: Callable[..., Peer], value: str, content: Any, structured: Any
) -> None:
    head = """
        import dataclasses, datetime, pathlib
        @dataclasses.dataclass
        class Slim:
            __slots__ = ("x",)
            x: int
    """
    result = extension(textwrap.dedent(head) + f"ext.tool(lambda: {value}, name='f')").call("f")
    assert result["is_error"] is False
    assert content is None or result["content"] == content
    assert result.get("structured_content") == structured


@pytest.mark.parametrize(
    ("body", "text", "logs"),
    [
        ("raise ValueError('it broke')", "ValueError: it broke (main.py, line 6)", True),
        ("raise Failed('as expected')", "as expected", False),
        ("raise Failed", "it failed, without a reason", False),
        ("return Host", "TypeError: the class Host is not JSON", True),
        ("return Result([], structured=[0] * 2_500_000)", "ValueError: 5,000,", True),
        ("sys.exit(3)", "SystemExit: 3 (main.py, line 6)", True),
        ("return object()", "TypeError: object is not JSON: make it a text, a number, a list or a dict", True),
        ("return [b'']", "TypeError: bytes is not JSON: make it Image(...) for a picture, .decode() for a text", True),
        ("return Result('words')", "TypeError: the content of a Result is a list of blocks", True),
        ("return Result(None)", "TypeError: the content of a Result is a list of blocks", True),
        ("return Result(['words'])", "TypeError: the content of a Result is a list of blocks", True),
        (
            "return Result({'type': 'text', 'text': 'words'})",
            "TypeError: the content of a Result is a list of blocks",
            True,
        ),
        ("return Result([{'text': 'words'}])", "TypeError: the content of a Result is a list of blocks", True),
        (
            "return Result([{'type': 'text', 'text': 42}])",
            "TypeError: the content of a Result is a list of blocks",
            True,
        ),
        ("return Image(b'abc', 3)", "TypeError: the content of a Result is a list of blocks", True),
        ("return Result([], is_error='yes')", "TypeError: is_error of a Result is True or False, not 'yes'", True),
        ("return float('nan')", "ValueError: Out of range float values are not JSON compliant", True),
        ("return 'x' * 5_000_000", "ValueError: 5,000,", True),
        ("raise KeyError('x' * 9999)", "KeyError: 'xxx", True),
    ],
)
def test_what_a_tool_raises_is_a_short_error(extension: Callable[..., Peer], body: str, text: str, logs: bool) -> None:
    peer = extension(f"@ext.tool\ndef f():\n    {body}\n")
    result = peer.call("f")
    assert result["is_error"] is True
    assert texts(result).startswith(text)
    assert len(texts(result)) <= 500
    assert ("Traceback" in peer.logged()) is logs
    assert peer.leave() == 0


def test_an_error_names_the_authors_line_whoever_else_was_called_from_there(
    extension: Callable[..., Peer], tmp_path: Path
) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "parcel.py").write_text("def open(): raise ValueError('empty')\n")
    (tmp_path / "own.py").write_text("import json\n\ndef parse(): return json.loads('{')\n")
    peer = extension("""
        sys.path.append("site-packages")
        import own, parcel
        from dataclasses import dataclass
        @dataclass
        class Point: x: int
        ext.tool(own.parse)
        ext.tool(parcel.open, name="installed")
        @ext.tool
        def packaged(): parcel.open()
        @ext.tool
        def generated(): Point()
        @ext.tool
        async def later(): await asyncio.to_thread(int, "x")
    """)
    assert texts(peer.call("parse")).endswith("(char 1) (own.py, line 3)")
    assert texts(peer.call("packaged")) == "ValueError: empty (main.py, line 13)"
    assert texts(peer.call("installed")) == "ValueError: empty"
    assert texts(peer.call("generated")).endswith("'x' (main.py, line 15)")
    assert texts(peer.call("later")).endswith("'x' (main.py, line 17)")


def test_a_long_text_of_failed_is_kept_and_what_is_cut_is_marked(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.tool
        def meant(count: int): raise Failed("x" * count)
        @ext.tool
        def unexpected(): raise ValueError("x" * 1000)
    """)
    assert texts(peer.call("meant", count=50_000)) == "x" * 50_000
    assert texts(peer.call("meant", count=5_000_000)) == "x" * 99_999 + "…"
    assert texts(peer.call("unexpected")).endswith("xx… (main.py, line 8)")


def test_calls_run_at_the_same_time_and_are_answered_in_any_order(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        gates = [threading.Event() for _ in range(20)]
        @ext.tool
        def wait(number: int) -> int:
            gates[number].wait()
            if number: gates[number - 1].set()
            return number
        @ext.tool
        def release() -> None: gates[-1].set()
    """)
    for number in range(20):
        peer.send("tool_call", id=str(number), name="wait", args={"number": number})
    peer.send("tool_call", id="go", name="release", args={})
    answered = {peer.until(type="tool_result")["id"] for _ in range(21)}
    assert answered == {"go", *map(str, range(20))}


def test_large_answers_from_many_threads_do_not_mix(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.tool
        def long(letter: str) -> str: return letter * 300_000
    """)
    for letter in "abcdefghij":
        peer.send("tool_call", id=letter, name="long", args={"letter": letter})
    for _ in range(10):
        result = peer.until(type="tool_result")
        assert texts(result) == result["id"] * 300_000


def test_async_tools_share_one_loop_and_run_at_the_same_time(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        loops = set()
        both = []
        @ext.tool
        async def meet() -> int:
            loops.add(asyncio.get_running_loop())
            both.append(1)
            while len(both) < 2: await asyncio.sleep(0.001)
            return len(loops)
        @ext.tool
        async def bad() -> None: raise ValueError("async")
    """)
    peer.send("tool_call", id="a", name="meet", args={})
    peer.send("tool_call", id="b", name="meet", args={})
    assert {texts(peer.until(id="a")), texts(peer.until(id="b"))} == {"1"}
    assert texts(peer.call("bad")) == "ValueError: async (main.py, line 14)"
    assert peer.leave() == 0


def test_an_async_function_that_holds_up_the_loop_is_named_once(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        import anyplug_ext
        anyplug_ext.WAKE_S = 0.02
        def fetch(): time.sleep(0.5)
        @ext.tool
        async def greedy(): fetch()
        @ext.tool
        async def within(): await asyncio.gather(greedy_too())
        async def greedy_too(): time.sleep(0.5)
        @ext.tool
        async def patient(): await asyncio.sleep(0.5)
        @ext.tool
        def plain(): time.sleep(0.5)
    """)
    for name in ("patient", "plain", "greedy", "greedy", "within", "patient"):
        assert texts(peer.call(name)) == "done"
    cure = "make it a plain def, or await asyncio.to_thread(...) what takes long"
    assert peer.logged().splitlines() == [
        f"greedy holds up all async functions, guards too (main.py, line 7): {cure}",
        f"greedy_too holds up all async functions, guards too (main.py, line 12): {cure}",
    ]


@pytest.mark.parametrize("body", ["sys.exit(3)", "raise KeyboardInterrupt", "asyncio.get_running_loop().stop()"])
def test_an_async_function_that_exits_leaves_the_others_their_loop(extension: Callable[..., Peer], body: str) -> None:
    peer = extension(f"""
        @ext.tool
        async def leave(): {body}
        @ext.tool
        async def stay() -> str:
            await asyncio.sleep(0.001)
            return "here"
        @ext.intercept_tool_call
        async def guard(name, args): return block("no")
    """)
    left = peer.call("leave")
    assert left["is_error"] is ("stop" not in body)
    assert "Exit" in texts(left) or "Interrupt" in texts(left) or "stop" in body
    assert texts(peer.call("stay")) == "here"
    assert peer.intercept("tool_call") == {"block": True, "reason": "no"}
    assert peer.leave() == 0


def test_when_there_are_no_more_threads_calls_wait_and_guards_do_not(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        real, left = threading.Thread.start, [12]
        def start(thread):
            left[0] -= 1
            if left[0] < 0: raise RuntimeError("can't start new thread")
            real(thread)
        threading.Thread.start = start
        gate = threading.Event()
        @ext.tool
        def wait(number: int) -> int:
            gate.wait()
            return number
        @ext.intercept_tool_call
        def guard(name, args): return block("asked")
        @ext.on("turn_end")
        def over(event): gate.set()
    """)
    for number in range(50):
        peer.send("tool_call", id=str(number), name="wait", args={"number": number})
    assert peer.intercept("tool_call") == {"block": True, "reason": "asked"}
    peer.send("event", event="turn_end")
    assert {peer.until(type="tool_result")["id"] for _ in range(50)} == set(map(str, range(50)))
    assert peer.leave() == 0
    assert peer.logged() == ""


def test_threads_that_only_a_burst_needed_are_given_back(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        import anyplug_ext
        anyplug_ext.IDLE_S = 0.05
        barrier = threading.Barrier(20)
        @ext.tool
        def meet(): barrier.wait()
        @ext.tool
        def count() -> int: return threading.active_count()
    """)
    few = int(texts(peer.call("count")))
    for number in range(20):
        peer.send("tool_call", id=str(number), name="meet", args={})
    for number in range(20):
        peer.until(id=str(number))
    for _ in range(200):
        if int(texts(peer.call("count"))) < few + 5:  # those that count come and go
            break
        time.sleep(0.02)
    else:
        pytest.fail("they stay")


CANCELLABLE = {
    "polling": """
        def f():
            ext.notify("in it")
            while not ext.cancelled(wait_s=0.01): pass
            ext.notify("out")
    """,
    "sleeping": """
        def f():
            ext.notify("in it")
            ext.cancelled(wait_s=3600)
            ext.notify("out")
            raise ValueError
    """,
    "async": """
        async def f():
            ext.notify("in it")
            try: await asyncio.sleep(3600)
            finally: ext.notify("out")
    """,
    "async in a thread": """
        async def f():
            def deep():
                ext.cancelled(wait_s=3600)
                ext.notify("out")
            ext.notify("in it")
            await asyncio.to_thread(deep)
    """,
}


@pytest.mark.parametrize("body", CANCELLABLE.values(), ids=CANCELLABLE)
def test_a_cancelled_tool_hears_of_it_and_gives_no_answer(extension: Callable[..., Peer], body: str) -> None:
    peer = extension("ext.tool(lambda: ext.cancelled(), name='other')\n@ext.tool\n" + textwrap.dedent(body).lstrip())
    peer.send("tool_call", id="long", name="f", args={})
    peer.until(message="in it")
    assert texts(peer.call("other")) == "false"
    peer.send("tool_cancel", id="long")
    peer.until(message="out")
    assert texts(peer.call("other")) == "false"
    assert peer.leave() == 0
    assert peer._aside == []
    assert peer.logged() == ""


def test_an_interactive_tool_says_so(extension: Callable[..., Peer]) -> None:
    peer = extension("@ext.tool(interactive=True, name='ask')\ndef f(): pass", options=", version=1.5")
    assert peer.registered[0]["version"] == "1.5"
    assert (peer.registered[1]["name"], peer.registered[1]["interactive"]) == ("ask", True)


def test_a_deferred_tool_says_so_in_both_ways_and_names_its_group(extension: Callable[..., Peer]) -> None:
    peer = extension("@ext.tool(deferred=True, namespace='maps', name='near')\ndef f(): pass")
    frame = peer.registered[1]
    assert (frame["deferred"], frame["exposure"], frame["namespace"]) == (True, "deferred", "maps")


def test_an_ordinary_tool_says_nothing_of_that(extension: Callable[..., Peer]) -> None:
    peer = extension("@ext.tool(name='near')\ndef f(): pass")
    assert not {"deferred", "exposure", "namespace"} & set(peer.registered[1])


def test_a_mistake_in_what_it_offers_ends_it_before_the_hello(extension: Callable[..., Peer]) -> None:
    peer = extension("ext.tool(lambda: None)", greeted=False)
    assert peer.process.wait(PATIENCE_S) == 1
    assert '"<lambda>" is no name' in peer.logged()


def test_a_tool_without_a_description_is_doubted(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        ext.tool(lambda: None, name="mute")
        ext.tool(lambda: None, name="told", description="Does nothing.")
    """)
    assert peer.log.read_text() == "tool mute has no description, by which models choose: write a docstring\n"


# The host's tools.


def test_a_host_tool_is_called_on_behalf_of_the_call_under_way(extension: Callable[..., Peer]) -> None:
    peer = extension(
        """
        @ext.tool
        def relay(path: str) -> str: return "got " + ext.call_tool("read", {"path": path}).text
        @ext.command("relay")
        def again(): return ext.call_tool("read").text
        """,
        options=", calls_tools=True",
    )
    assert "call_tool" in peer.registered[0]["capabilities"]
    peer.send("tool_call", id="outer", name="relay", args={"path": "x"})
    asked = peer.until(type="call_tool")
    assert (asked["name"], asked["args"], asked["parent_id"]) == ("read", {"path": "x"}, "outer")
    peer.send("tool_result", id=asked["id"], name="read", content=[{"type": "text", "text": "words"}, 7])
    assert texts(peer.until(id="outer")) == "got words"
    peer.send("command_invoked", id="typed", name="relay")
    asked = peer.until(type="call_tool")
    assert "parent_id" not in asked
    peer.send("tool_result", id=asked["id"], content=[{"type": "text", "text": "refused"}], is_error=True)
    assert peer.until(id="typed")["error"] == "refused"


def test_a_host_tool_that_nobody_waits_for_is_cancelled(extension: Callable[..., Peer]) -> None:
    peer = extension(
        """
        @ext.tool
        def relay(timeout: float = 3600) -> str: return ext.call_tool("read", timeout_s=timeout).text
        """,
        options=", calls_tools=True",
    )
    peer.send("tool_call", id="outer", name="relay", args={})
    asked = peer.until(type="call_tool")
    peer.send("tool_cancel", id="outer")
    assert peer.until(type="call_tool_cancel")["id"] == asked["id"]
    assert "did not answer" in texts(peer.call("relay", timeout=0.001))
    asked = peer.until(type="call_tool")
    assert peer.until(type="call_tool_cancel")["id"] == asked["id"]
    peer.send("tool_result", id=asked["id"], content=[])  # too late
    assert peer.leave() == 0


def test_a_late_answer_of_a_host_tool_is_ignored(extension: Callable[..., Peer]) -> None:
    peer = extension("ext.tool(lambda: ext.call_tool('read', timeout_s=0.001).text, name='f')", ", calls_tools=True")
    assert texts(peer.call("f")) == '"read" did not answer within 0.001 s'
    peer.send("tool_result", id=peer.until(type="call_tool")["id"], content=[])
    assert peer.leave() == 0
    assert peer.logged() == ""


def test_a_cancelled_tool_calls_no_other(extension: Callable[..., Peer]) -> None:
    peer = extension(
        """
        @ext.tool
        def f():
            ext.notify("in it")
            ext.cancelled(wait_s=3600)
            try: ext.call_tool("read")
            except Failed as error: ext.notify(error)
        """,
        options=", calls_tools=True",
    )
    peer.send("tool_call", id="1", name="f", args={})
    peer.until(message="in it")
    peer.send("tool_cancel", id="1")
    assert peer.until(type="notify")["message"] == '"read" was not called: this call is cancelled'
    assert peer.leave() == 0
    assert peer._aside == []


def test_a_host_tool_is_not_waited_for_on_the_event_loop(extension: Callable[..., Peer]) -> None:
    peer = extension(
        """
        @ext.tool
        async def direct() -> str: return ext.call_tool("read").text
        @ext.tool
        async def sleepy(): ext.cancelled(wait_s=3600)
        @ext.tool
        async def threaded() -> str: return (await asyncio.to_thread(ext.call_tool, "read")).text
        """,
        options=", calls_tools=True",
    )
    assert "instead: await asyncio.to_thread(ext.call_tool, ...)" in texts(peer.call("direct"))
    assert "instead: await asyncio.sleep(...)" in texts(peer.call("sleepy"))
    peer.send("tool_call", id="1", name="threaded", args={})
    asked = peer.until(type="call_tool")
    assert asked["parent_id"] == "1"
    peer.send("tool_result", id=asked["id"], content=[{"type": "text", "text": "words"}])
    assert texts(peer.until(id="1")) == "words"
    assert peer._aside == []


def test_a_tool_takes_its_call_along_into_threads(extension: Callable[..., Peer]) -> None:
    peer = extension(
        """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor()
        def read(path): return ext.call_tool("read", {"path": path}).text
        @ext.tool
        def carried() -> list: return list(pool.map(ext.carry(read), ["a", "b"]))
        @ext.tool
        def lost() -> str: return pool.submit(read, "a").result()
        """,
        options=", calls_tools=True",
    )
    peer.send("tool_call", id="1", name="carried", args={})
    for _ in range(2):
        asked = peer.until(type="call_tool")
        assert asked["parent_id"] == "1"
        peer.send("tool_result", id=asked["id"], content=[{"type": "text", "text": asked["args"]["path"]}])
    assert peer.until(id="1")["structured_content"] == ["a", "b"]
    peer.send("tool_call", id="2", name="lost", args={})
    refusal = "parent_id is required while an extension tool is active"
    asked = peer.until(type="call_tool")
    peer.send("tool_result", id=asked["id"], is_error=True, content=[{"type": "text", "text": refusal}])
    assert "ext.carry(function)" in texts(peer.until(id="2"))


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_guard_of_tool_calls_calls_none_itself(extension: Callable[..., Peer], kind: str) -> None:
    wait = "await asyncio.to_thread(ext.call_tool, 'read')" if kind == "async def" else "ext.call_tool('read')"
    peer = extension(
        f"""
        @ext.intercept_tool_call
        {kind} guard(name, args): {wait}
        ext.tool(lambda: ext.call_tool("read").text, name="f")
        """,
        options=", calls_tools=True",
    )
    assert "it would be asked about that call, too" in peer.intercept("tool_call")["reason"]
    peer.send("tool_call", id="1", name="f", args={})
    assert peer.until(type="call_tool")["parent_id"] == "1"  # and the mark is gone
    assert peer._aside == []


def test_another_guard_may_call_tools(extension: Callable[..., Peer]) -> None:
    peer = extension("ext.intercept_turn_start(lambda step: block(ext.call_tool('read').text))", ", calls_tools=True")
    peer.send("event_intercept", id="asked", event="turn_start", step=1)
    asked = peer.until(type="call_tool")
    assert "parent_id" not in asked
    peer.send("tool_result", id=asked["id"], content=[{"type": "text", "text": "words"}])
    assert peer.until(id="asked")["reason"] == "words"


@pytest.mark.parametrize(
    ("options", "granted", "complaint"),
    [("", ["call_tool"], "did not ask for the right"), (", calls_tools=True", None, "runs no tools for extensions")],
)
def test_without_the_right_no_host_tool_is_called(
    extension: Callable[..., Peer], options: str, granted: Any, complaint: str
) -> None:
    peer = extension("ext.tool(lambda: ext.call_tool('read').text, name='f')", options=options, greeted=False)
    peer.greet(capabilities=granted)
    assert complaint in texts(peer.call("f"))


# Commands, notes and panels.


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("lambda args: ext.prompt('ask ' + args)", {"action": "prompt", "prompt": "ask a  b"}),
        ("lambda args: ext.insert(args)", {"action": "insert", "insert": "a  b"}),
        ("lambda args: ext.display(args)", {"action": "display", "display": "a  b"}),
        ("lambda args: args", {"action": "display", "display": "a  b"}),
        ("lambda args: ext.prompt(5)", {"action": "prompt", "prompt": "5"}),
        ("lambda args: ext.insert(0)", {"action": "insert", "insert": "0"}),
        ("lambda args: ext.display(None)", {"action": "display"}),
        ("functools.partial(lambda more, args: args + more, '!')", {"action": "display", "display": "a  b!"}),
        (
            "lambda args: ext.panel(7, 1, 'one\\ntwo', None)",
            {"action": "open_panel", "open_panel": {"id": "7", "title": "1", "lines": ["one", "two"], "footer": ""}},
        ),
        ("lambda: None", {"action": "noop"}),
        ("lambda args: ext.noop()", {"action": "noop"}),
        ("lambda args: 1 / 0", {"action": "noop", "error": "ZeroDivisionError: division by zero (main.py, line 5)"}),
        (
            "lambda args: ext.panel('p', 'T', ['one', 2], 'F')",
            {"action": "open_panel", "open_panel": {"id": "p", "title": "T", "lines": ["one", "2"], "footer": "F"}},
        ),
    ],
)
def test_a_command_answers_with_an_action(extension: Callable[..., Peer], body: str, answer: Frame) -> None:
    peer = extension(f"import functools\next.command('do', 'does it')({body})")
    assert peer.command("do", "a  b") == {"type": "command_response", "id": "typed", **answer}
    assert peer.command("undo")["error"] == "there is no command /undo"


def test_a_command_may_be_async_and_is_described_by_its_docstring(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.command("later")
        async def later(args):
            '''Say it later.

            Much later.'''
            await asyncio.sleep(0)
            return ext.prompt(args)
    """)
    assert peer.registered[-1]["description"] == "Say it later."
    assert peer.command("later", "x")["prompt"] == "x"


def test_decorators_work_without_brackets_or_say_what_they_need(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.command
        def hail(args):
            "Say hail."
            return "hail " + args
        @ext.command()
        def bye(): return "bye"
    """)
    assert peer.registered[1] == {"type": "register_command", "name": "hail", "description": "Say hail."}
    assert peer.command("hail", "Ada")["display"] == "hail Ada"
    assert peer.command("bye")["display"] == "bye"

    from anyplug.ext import Extension

    ext = Extension("probe")
    for wrong in (lambda: ext.on(print), ext.on):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r'@ext.on\("turn_end"\)'):
            wrong()
    with pytest.raises(TypeError, match=r'@ext.tool\(name="forecast"\)'):
        ext.tool("forecast")
    with pytest.raises(TypeError, match="is no function"):
        ext.intercept_tool_call(None)  # type: ignore[type-var]


def test_a_method_is_registered_bound(capfd: pytest.CaptureFixture[str]) -> None:
    from anyplug.ext import Extension

    ext = Extension("probe")
    for register in (ext.tool, ext.command, ext.on("turn_end"), ext.on_start, ext.intercept_tool_call):
        with pytest.raises(TypeError, match=r"register the bound method, .*Thing\(\.\.\.\)\.look"):

            class Thing:
                @register
                def look(self, x: int = 1) -> int:
                    return x

    class Other:
        def look(self, x: int = 1) -> int:
            """Look."""
            return x

    ext.tool(Other().look)
    assert list(ext._tools["look"].schema["properties"]) == ["x"]


def test_partials_and_callable_objects_are_tools(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        import functools
        def add(a: int, b: int) -> int:
            "Add."
            return a + b
        ext.tool(functools.partial(add, 1))
        ext.tool(functools.partial(add, b=1), name="more")
        class Times:
            def __init__(self, n): self.n = n
            def __eq__(self, other): return False
            __hash__ = None
            async def __call__(self, x: int) -> int:
                "Multiply."
                return self.n * x
        ext.tool(Times(3))
        ext.intercept_turn_start(functools.partial(lambda limit, step: step > limit, 3))
    """)
    assert [(frame["name"], frame["description"]) for frame in peer.registered[1:4]] == [
        ("add", "Add."), ("more", "Add."), ("Times", "Multiply."),
    ]  # fmt: skip
    assert peer.registered[1]["schema"]["properties"] == {"b": {"type": "integer"}}
    assert peer.registered[3]["schema"]["properties"] == {"x": {"type": "integer"}}
    assert texts(peer.call("add", b=2)) == "3"
    assert texts(peer.call("more", a=2)) == "3"
    assert texts(peer.call("Times", x=2)) == "6"
    assert "<lambda> returned True" in peer.intercept("turn_start", step=5)["reason"]


def test_an_extension_needs_a_name() -> None:
    from anyplug.ext import Extension

    with pytest.raises(ValueError, match="needs a name"):
        Extension("")


def test_notes_and_texts_go_out_at_any_time(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        @ext.command("say")
        def say(args):
            ext.notify("a note")
            ext.notify("beware", "warn")
            ext.clear_notes()
            ext.submit("go on")
            ext.notify(5)
            ext.submit(5)
            ext.notify("loud", "shouting")
    """)
    assert peer.command("say")["error"].startswith('ValueError: there is no level "shouting"')
    assert peer._aside == [
        {"type": "notify", "level": "info", "message": "a note"},
        {"type": "notify", "level": "warn", "message": "beware"},
        {"type": "clear_notes"},
        {"type": "submit", "text": "go on"},
        {"type": "notify", "level": "info", "message": "5"},
        {"type": "submit", "text": "5"},
    ]


PANEL = """
    panel = ext.panel("p", title="Keys", footer="q quits")
    @ext.command("show")
    def show(): return panel
    @ext.command("pop")
    def pop(): panel.open()
    @panel.on_key
    def pressed(key, text):
        panel.lines.append(key + text)
        if text == "!": raise ValueError("bad key")
        if text == "q": panel.close()
        panel.render()
    @panel.on_close
    def closed():
        ext.notify("closed: " + " ".join(panel.lines))
        panel.render()
"""


def test_a_panel_gets_its_keys_in_order_and_draws_itself(extension: Callable[..., Peer]) -> None:
    peer = extension(PANEL)
    peer.command("show")
    for letter in "abcdefgh":
        peer.send("panel_key", panel_id="p", key="rune", text=letter)
    for count in range(1, 9):
        drawn = peer.until(type="panel_render")
        assert drawn["lines"] == [f"rune{letter}" for letter in "abcdefgh"[:count]]
    assert (drawn["panel_id"], drawn["title"], drawn["footer"]) == ("p", "Keys", "q quits")
    peer.send("panel_key", panel_id="p", key="rune", text="q")
    peer.until(type="panel_close", panel_id="p")
    assert peer.command("pop")["action"] == "noop"
    assert [frame["type"] for frame in peer._aside] == ["open_panel"]  # and no render after the close
    assert peer.until(type="open_panel")["panel"]["lines"][-1] == "runeq"


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        ("['a', '', 'b']", ["a", "", "b"]),
        ("['a\\nb', 'c\\r\\n', 3]", ["a", "b", "c", "3"]),
        ("'a\\n\\nb\\n'", ["a", "", "b"]),
        ("''", []),
    ],
)
def test_a_line_of_a_panel_is_one_row(extension: Callable[..., Peer], lines: str, rows: list[str]) -> None:
    peer = extension(f"""
        panel = ext.panel("p")
        @ext.command
        def show():
            panel.lines = {lines}
            return panel
    """)
    assert peer.command("show")["open_panel"]["lines"] == rows


def test_a_panel_that_the_person_closed_is_drawn_no_more(extension: Callable[..., Peer]) -> None:
    peer = extension(PANEL)
    peer.send("panel_key", panel_id="p", key="up")  # not open: nothing is drawn
    peer.command("show")
    peer.send("panel_key", panel_id="p", key="rune", text="!")
    peer.send("panel_key", panel_id="p", key="down")
    while peer.until(type="panel_render")["lines"][-1] != "down":
        pass  # each key that was drawn by itself
    peer.send("panel_close", panel_id="p")
    assert peer.until(type="notify")["message"] == "closed: up rune! down"
    assert peer.leave() == 0
    assert peer._aside == []
    assert "bad key" in peer.logged()


def test_a_panel_that_is_opened_again_while_a_key_is_slow_is_drawn(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        panel = ext.panel("p", lines="abc")
        gate = threading.Event()
        ext.command("show")(lambda: panel)
        @ext.command("go")
        def go(): gate.set()
        @panel.on_key
        def pressed(key):
            gate.wait()
            panel.lines = key
            panel.render()
    """)
    assert peer.command("show")["open_panel"]["lines"] == ["abc"]
    peer.send("panel_key", panel_id="p", key="up")
    peer.send("panel_close", panel_id="p")
    peer.command("show")
    peer.command("go")
    assert peer.until(type="panel_render")["lines"] == ["up"]
    peer.send("panel_key", panel_id="p", key="down")
    assert peer.until(type="panel_render")["lines"] == ["down"]


# Events and guards.


def test_events_come_in_order_and_a_slow_one_delays_no_call(extension: Callable[..., Peer]) -> None:
    peer = extension("""
        gate = threading.Event()
        steps = []
        @ext.on("turn_start", "turn_end")
        def turn(event):
            if event.get("step") == 1: gate.wait()
            if event.get("step") == 2: raise ValueError("in an event")
            if event.get("step") == 3: raise Failed("meant, in an event")
            steps.append(event.get("step", event.get("stop")))
            if event["event"] == "turn_end": ext.notify(str(steps))
        @ext.tool
        def open_gate(): gate.set()
    """)
    for step in range(1, 6):
        peer.send("event", event="turn_start", step=step)
    peer.send("event", event="not subscribed")
    peer.send("event", event="turn_end", stop="end")
    peer.call("open_gate")
    assert peer.until(type="notify")["message"] == "[1, 4, 5, 'end']"
    assert "ValueError: in an event\nmeant, in an event\n" in peer.logged()


@pytest.mark.parametrize(
    ("event", "advice"),
    [
        ("turn_stat", 'did you mean "turn_start"?'),
        ("turnEnd", 'did you mean "turn_end"?'),
        ("before_agent_start", "it has session_start, session_end, "),
    ],
)
def test_an_event_that_zot_does_not_have_is_doubted_and_heard_of(
    extension: Callable[..., Peer], event: str, advice: str
) -> None:
    peer = extension(f"ext.on('turn_start', '{event}')(lambda event: ext.notify(event['event']))")
    assert peer.logged().startswith(f'zot has no event "{event}"; {advice}')
    assert peer.logged().count("\n") == 1
    peer.send("event", event=event)
    assert peer.until(type="notify")["message"] == event


def test_an_event_just_before_the_shutdown_is_still_heard(extension: Callable[..., Peer], tmp_path: Path) -> None:
    peer = extension("ext.on('session_end')(lambda event: open('saved', 'w').write(event['reason']))")
    peer.send("event", event="session_end", reason="shutdown")
    assert peer.leave() == 0
    assert (tmp_path / "saved").read_text() == "shutdown"


GUARDS = """
    @ext.intercept_tool_call
    def first(name, args):
        command = args.get("command", "")
        if "rm" in command: return block(f"{name}: no rm")
        if "ls" in command: return rewrite({"command": command + " -l"}, "longer")
        if "raise" in command: raise ValueError("oops")
        if "exit" in command: sys.exit()
        if "wrong" in command: return False
        if "number" in command: return block(403)
        if "failed" in command: raise Failed("not today")
        if "why" in command: return rewrite({"x": 1}, 5)
        if "list" in command: return rewrite([1])
        if "object" in command: return rewrite({"x": object()})
        if "big" in command: return rewrite({"x": "x" * 5_000_000})
    @ext.intercept_tool_call
    async def second(name, args):
        if args.get("command") == "ls -l": return rewrite({"command": "ls -l -a"})
        if args.get("command") == "ls / -l": return block("seen rewritten")
    @ext.intercept_turn_start
    def turn(step):
        if step > 5: return block("enough")
        if step == 4: return rewrite({"step": 1})
    @ext.intercept_assistant_message
    def message(text):
        if "SECRET" in text: return rewrite(text.replace("SECRET", "[redacted]"))
        if "blank" in text: return rewrite("")
    @ext.intercept_agent_start
    def start(prompt):
        if "raise" in prompt: raise ValueError("oops")
        return block("no") if "block" in prompt else rewrite(prompt + " Be kind.")
"""
ERROR = "intercept error: "


@pytest.mark.parametrize(
    ("event", "fields", "answer"),
    [
        ("tool_call", {"tool_args": {"command": "pwd"}}, {}),
        ("tool_call", {}, {}),
        ("tool_call", {"tool_args": {"command": "rm x"}}, {"block": True, "reason": "bash: no rm"}),
        ("tool_call", {"tool_args": {"command": "ls"}}, {"modified_args": {"command": "ls -l -a"}, "reason": ""}),
        ("tool_call", {"tool_args": {"command": "ls /"}}, {"block": True, "reason": "seen rewritten"}),
        ("tool_call", {"tool_args": {"command": "ls ~"}},
         {"modified_args": {"command": "ls ~ -l"}, "reason": "longer"}),
        ("tool_call", {"tool_args": {"command": "raise"}},
         {"block": True, "reason": ERROR + "ValueError: oops (main.py, line 10)"}),
        ("tool_call", {"tool_args": {"command": "exit"}},
         {"block": True, "reason": ERROR + "SystemExit (main.py, line 11)"}),
        ("tool_call", {"tool_args": [1]},
         {"block": True, "reason": ERROR + "AttributeError: 'list' object has no attribute 'get' (main.py, line 7)"}),
        ("tool_call", {"tool_args": {"command": "number"}}, {"block": True, "reason": "403"}),
        ("tool_call", {"tool_args": {"command": "failed"}}, {"block": True, "reason": "not today"}),
        ("tool_call", {"tool_args": {"command": "why"}}, {"modified_args": {"x": 1}, "reason": "5"}),
        ("turn_start", {"step": 3}, {}),
        ("turn_start", {}, {}),
        ("turn_start", {"step": 6}, {"block": True, "reason": "enough"}),
        ("assistant_message", {"text": "hi"}, {}),
        ("assistant_message", {"text": "a SECRET"}, {"replace_text": "a [redacted]", "reason": ""}),
        ("before_agent_start", {"system_prompt": "Work."}, {"system_prompt": "Work. Be kind.", "reason": ""}),
        ("before_agent_start", {"system_prompt": "raise"},
         {"reason": ERROR + "ValueError: oops (main.py, line 33)"}),
        ("before_agent_start", {"system_prompt": "block"},
         {"reason": ERROR + "TypeError: start cannot block a before_agent_start: return None or rewrite(prompt)"}),
        ("unheard_of", {"text": "SECRET"}, {}),
    ],
)  # fmt: skip
def test_a_guard_decides(extension: Callable[..., Peer], event: str, fields: Frame, answer: Frame) -> None:
    name = {"tool_name": "bash"} if event == "tool_call" else {}
    assert extension(GUARDS).intercept(event, **name, **fields) == answer


@pytest.mark.parametrize(
    ("event", "fields", "reason"),
    [
        (
            "tool_call",
            {"tool_args": {"command": "wrong"}},
            "first returned False, not None, block(...) or rewrite(...)",
        ),
        ("tool_call", {"tool_args": {"command": "list"}}, "first cannot rewrite a tool_call as [1]"),
        ("tool_call", {"tool_args": {"command": "object"}}, "object is not JSON"),
        ("tool_call", {"tool_args": {"command": "big"}}, "bytes are more than the 4,194,304 that hosts take"),
        ("turn_start", {"step": 4}, "turn cannot rewrite a turn_start as {'step': 1}"),
        ("assistant_message", {"text": "blank"}, "block the message instead"),
    ],
)
def test_a_guard_that_answers_nonsense_blocks(
    extension: Callable[..., Peer], event: str, fields: Frame, reason: str
) -> None:
    answer = extension(GUARDS).intercept(event, **fields)
    assert answer["block"] is True
    assert answer["reason"].startswith(ERROR)
    assert reason in answer["reason"]


# Other Pythons, and the rules for the file.


@pytest.mark.parametrize("python", OTHER_PYTHONS or [pytest.param("", marks=pytest.mark.skip("no other Python"))])
def test_it_runs_on_every_python_from_3_9(extension: Callable[..., Peer], python: str) -> None:
    peer = extension(textwrap.dedent(ARGUMENTS) + textwrap.dedent(PANEL) + textwrap.dedent(GUARDS), python=python)
    assert "RED" in texts(peer.call("f", i=3, l=[1], u=2, k="a"))
    assert "RED" in texts(peer.call("g", c="red", at="2026-01-31T12:30:00Z", p={"x": 1}, t=[1, "a"], n={"name": "x"}))
    assert peer.command("show")["action"] == "open_panel"
    assert peer.intercept("tool_call", tool_args={"command": "ls"})["modified_args"] == {"command": "ls -l -a"}
    assert peer.leave() == 0
    assert peer.logged() == ""


@pytest.mark.parametrize("python", OTHER_PYTHONS or [pytest.param("", marks=pytest.mark.skip("no other Python"))])
def test_every_python_gives_the_same_schema(tmp_path: Path, python: str) -> None:
    shutil.copytree(SDK.parent, tmp_path / "anyplug" / "ext")
    code = (
        "import json, sys, types\n"
        "for source in json.load(sys.stdin):\n"
        "    probe = sys.modules['probe'] = types.ModuleType('probe')\n"
        "    exec(source, vars(probe))\n"
        "    print(json.loads(probe.ext._early[-1])['schema']['properties']['x'], file=sys.stderr)\n"
    )
    heads = ("", "from __future__ import annotations")
    programs = json.dumps([program(parameters, head) for parameters, _, _ in HINTS for head in heads])
    done = subprocess.run(
        [python, "-c", code], cwd=tmp_path, input=programs, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines() == [str(schema) for _, schema, _ in HINTS for _ in heads]


@pytest.mark.parametrize("name", ["pomodoro", "careful"])
def test_the_copies_beside_the_examples_are_the_sdk(name: str) -> None:
    assert (EXAMPLES / name / "anyplug_ext.py").read_bytes() == SDK.read_bytes()


def test_the_sdk_imports_nothing_but_the_standard_library() -> None:
    code = f"import runpy, sys; runpy.run_path({str(SDK)!r}); print(*{{n.partition('.')[0] for n in sys.modules}})"
    found = subprocess.run([sys.executable, "-ISc", code], check=True, capture_output=True, text=True).stdout.split()
    assert {name for name in found if name not in sys.stdlib_module_names} <= {"__main__"}
    assert "asyncio" not in found


# The examples.


def test_echo_says_what_it_is_told(example: Callable[[str], Peer]) -> None:
    peer = example("echo-ext")
    peer.send_raw(b"nonsense\n[]\n")
    assert texts(peer.call("echo_text", text="hé", loud=True)) == "HÉ"
    assert peer.call("echo_text")["is_error"] is True
    assert peer.command("echo", "a b")["display"] == "a b"
    assert peer.leave() == 0


def test_the_sundial_knows_the_day(example: Callable[[str], Peer]) -> None:
    peer = example("sundial")
    peer.send_raw(b"nonsense\nnull\n")
    assert 16.5 < peer.call("daylight", latitude=52.5, date="2025-06-21")["structured_content"]["hours"] < 17.5
    assert peer.call("daylight", latitude=-85, date="2025-06-21")["structured_content"]["hours"] == 0
    assert peer.call("daylight", latitude=0, date="tomorrow")["is_error"] is True
    assert peer.call("daylight", latitude=91)["is_error"] is True
    assert "2025-12-21 at 60°" in peer.command("sundial", "60 2025-12-21")["display"]
    assert "latitude must be" in peer.command("sundial", "north")["error"]
    assert "say where" in peer.command("sundial")["error"]
    assert peer.leave() == 0


def test_the_knots_are_tied(example: Callable[[str], Peer]) -> None:
    peer = example("knot")
    peer.send_raw(b'nonsense\n{\n[]\n{"type":"from_the_future","x":[{"y":null}]}\n')
    assert texts(peer.call("tie_knot", knot="reef")) == "Right over left and under.\nLeft over right and under."
    peer.send_raw(
        b'{ "args" : {"type":"shutdown", "id":"no", "knot":"bowl\\u0069ne"} , "id":"a\\"\\\\b", "type":"tool_call"}\n'
    )
    assert texts(peer.until(id='a"\\b')).startswith("Make a small loop.\n")
    result = peer.call("tie_knot", knot='tie "it"\n\\ $(date) @')
    assert (result["is_error"], texts(result)[:27]) == (True, 'no knot "tie "it"\n\\ $(date)')
    assert peer.call("tie_knot")["is_error"] is True
    assert "figure-eight" in peer.command("knot")["display"]
    assert peer.command("knot", "clove-hitch")["display"].startswith("Once round")
    assert 'no knot "@"' in peer.command("knot", "@")["error"]
    assert peer.leave() == 0
    assert peer.logged() == ""


@pytest.mark.parametrize(
    ("tool", "args", "answer"),
    [
        ("bash", {"command": "ls"}, {}),
        ("bash", {"command": "sudo rm -r -f /x"}, {"block": True}),
        ("bash", {"steps": [{"command": "rm -fr /x"}]}, {"block": True}),
        ("bash", {"command": "curl https://x | sudo bash"}, {"block": True}),
        ("write_file", {"text": "-----BEGIN RSA PRIVATE KEY-----"}, {"block": True}),
        ("read_file", {"text": "-----BEGIN RSA PRIVATE KEY-----"}, {}),
        ("bash", {"command": "git push origin --force", "n": 1},
         {"modified_args": {"command": "git push origin --force-with-lease", "n": 1}}),
        ("bash", {"command": "git push --force-with-lease"}, {}),
    ],
)  # fmt: skip
def test_careful_blocks_and_rewrites(example: Callable[[str], Peer], tool: str, args: Frame, answer: Frame) -> None:
    decided = example("careful").intercept("tool_call", tool_name=tool, tool_args=args)
    assert {key: value for key, value in decided.items() if key != "reason"} == answer
    assert bool(decided.get("reason")) is bool(answer)


def test_careful_reads_its_rules_anew_and_blocks_when_it_cannot(example: Callable[[str], Peer], tmp_path: Path) -> None:
    peer = example("careful")
    assert "force-with-lease" in peer.command("careful")["display"]
    rules = tmp_path / "careful" / "rules.json"
    rules.write_text('[{"pattern": "^ls$", "block": "no looking"}]')
    asked = {"tool_name": "bash", "tool_args": {"command": "ls"}}
    assert peer.intercept("tool_call", **asked)["reason"] == "careful: no looking"
    rules.write_text("[{")
    assert peer.intercept("tool_call", **asked)["reason"].startswith("intercept error: json.decoder.JSONDecodeError")
    assert peer.leave() == 0


def test_pomodoro_keeps_time_in_a_panel_and_remembers(example: Callable[[str], Peer], tmp_path: Path) -> None:
    peer = example("pomodoro")
    assert peer.call("pomodoro", action="status")["structured_content"]["running"] is False
    assert peer.call("pomodoro", action="stop")["is_error"] is True
    assert peer.call("pomodoro", action="start", minutes=0.001)["structured_content"]["running"] is True
    assert peer.until(type="notify", level="success")["message"] == "0.001 minutes are over: take a break"
    assert peer.command("pomodoro")["open_panel"]["lines"] == ["not running", "1 done"]
    peer.send("panel_key", panel_id="pomodoro", key="rune", text="+")
    peer.send("panel_key", panel_id="pomodoro", key="rune", text="s")
    while "left" not in peer.until(type="panel_render")["lines"][0]:
        pass
    peer.send("panel_close", panel_id="pomodoro")
    assert peer.command("pomodoro", "start soon")["error"] == '"soon" is no number of minutes'
    assert "more than 0" in peer.command("pomodoro", "start 0")["error"]
    assert peer.command("pomodoro", "start 30")["display"] == "30 minutes from now"
    assert peer.leave() == 0
    again = example("pomodoro")
    state = again.call("pomodoro", action="status")["structured_content"]
    assert (state["running"], state["done"]) == (True, 1)
    assert again.command("pomodoro", "stop")["display"] == "stopped"
    assert again.leave() == 0
    (tmp_path / "pomodoro" / "pomodoro.json").write_text("{")
    third = example("pomodoro")
    assert "starting from zero" in third.registered[-1]["message"]
