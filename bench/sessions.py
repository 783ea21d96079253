"""A call to an extension that stays up, against a bare echo on the pipes of the same program, and against MCP."""

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

import msgspec

from anyplug import Host
from anyplug import ext as sdk
from anyplug.call.consent import Attachment
from bench import memory, plugins
from bench.measure import Act, Plan, Row, medians

AIM_SEQUENTIAL = 1.6
AIM_IN_FLIGHT = 1.67  # at least 60% of the throughput
AIM_MCP = 0.1  # at least ten times faster
IN_FLIGHT = 64
BLOCK = 200  # sequential calls that are timed together: where the kernel places two processes evens out
EACH = 8  # calls of each one in flight that are timed together
MANY = 100
CHUNK = 65_536  # bytes
ARGUMENTS = {"name": "Alice", "count": 3}
HELLO_ACK = b'{"type": "hello_ack", "protocol_version": 1}\n'
MCP = "mcp SDK, stdio"
MCP_PAIR = os.path.join(os.path.dirname(__file__), "mcp_pair.py")

PRELUDE = """#!{python} -IS
import json
import sys

def say(**frame):
    sys.stdout.write(json.dumps(frame) + "\\n")
    sys.stdout.flush()

say(type="hello", name="{name}", version="1", capabilities=[])
"""

ECHO = """
say(type="register_tool", name="{tool}", description="Greets.", schema={{
    "type": "object",
    "properties": {{"name": {{"type": "string"}}, "count": {{"type": "integer", "minimum": 0}}}},
    "required": ["name"],
}})
say(type="ready")
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "tool_call":
        text = "Hello " + frame["args"]["name"]
        say(type="tool_result", id=frame["id"], content=[{{"type": "text", "text": text}}])
    elif frame["type"] == "shutdown":
        break
"""

WITH_SDK = """#!{python}
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ext

extension = ext.Extension("{name}")

@extension.tool
def echo(name: str, count: int = 0) -> str:
    "Greets."
    return "Hello " + name

extension.run()
"""

GUARD = """
say(type="subscribe", events=[], intercept=["tool_call"])
say(type="ready")
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "event_intercept":
        say(type="event_intercept_response", id=frame["id"], block=False)
    elif frame["type"] == "shutdown":
        break
"""

CallOne = Callable[[], Awaitable[object]]


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure calls, one after the other and many at once, an interceptor's cost, and many extensions."""
    return [*await _calls(folder, plan), *await _starts(folder, plan), *_memory(folder)]


async def _calls(folder: str, plan: Plan) -> list[Row]:
    plain, guarded = os.path.join(folder, "plain"), os.path.join(folder, "guarded")
    program, sdk_program = write(plain, "echo", ECHO), _write_with_sdk(os.path.join(folder, "sdk"))
    write(guarded, "echo", ECHO)
    write(guarded, "guard", GUARD)
    async with (
        approved_host(folder, "plain") as host,
        approved_host(folder, "guarded") as guarded_host,
        approved_host(folder, "sdk") as sdk_host,
        Bare(program) as bare,
        Bare(sdk_program) as sdk_bare,
        _Mcp() as mcp,
    ):
        one, one_guarded, one_sdk = call_of(host), call_of(guarded_host), call_of(sdk_host)
        rounds = max(plan.calls // BLOCK, 10)
        acts: list[Act] = [
            lambda: in_turn(one),
            lambda: in_turn(bare.call),
            lambda: in_turn(one_guarded),
            lambda: at_once(one),
            lambda: at_once(bare.call),
            lambda: at_once(one_sdk),
            lambda: at_once(sdk_bare.call),
        ]
        counts = [BLOCK, BLOCK, BLOCK, *[IN_FLIGHT * EACH] * 4]
        if mcp.is_there:
            acts += [lambda: mcp.calls(1, BLOCK), lambda: mcp.calls(IN_FLIGHT, 1)]
            counts += [BLOCK, IN_FLIGHT]
        times = await medians(rounds, *acts)
    each = [taken * 1000 / calls for taken, calls in zip(times, counts, strict=True)]
    turn, bare_turn, guarded_turn, flight, bare_flight, sdk_flight, bare_sdk_flight = each[:7]
    mcp_turn, mcp_flight = each[7:] or (None, None)
    many = f"{IN_FLIGHT} in flight"
    return [
        _row("call of an extension", "bare echo on its pipes", turn, bare_turn, AIM_SEQUENTIAL),
        _row(f"the same, {many}, each", f"bare echo, {IN_FLIGHT}", flight, bare_flight, AIM_IN_FLIGHT),
        _row(f"one with the SDK, {many}, each", "bare echo of it", sdk_flight, bare_sdk_flight, AIM_IN_FLIGHT),
        _row("call of an extension", MCP, turn, mcp_turn, AIM_MCP),
        _row(f"the same, {many}, each", f"{MCP}, {IN_FLIGHT}", flight, mcp_flight, AIM_MCP),
        _row("call with one interceptor", "without", guarded_turn, turn),
    ]


def _row(what: str, against: str, measured: float, baseline: float | None, aim: float | None = None) -> Row:
    if baseline is None:
        against = f"{MCP}: not installed"
    return Row(what=what, against=against, measured=measured, baseline=baseline, unit="µs", aim=aim)


async def _starts(folder: str, plan: Plan) -> list[Row]:
    """Measure how long a host takes until many extensions are ready, and what they and their spawners hold."""
    root = os.path.join(folder, "many")
    programs = [write(root, f"extension-{number:03}", ECHO) for number in range(MANY)]
    hosts: list[float] = []
    bares: list[float] = []
    host = approved_host(folder, "many")
    for _ in range(max(plan.loads // 5, 3)):
        begun = time.perf_counter()
        async with host:
            hosts.append((time.perf_counter() - begun) * 1000)
            assert len(host.tools) == MANY, host.problems
            held = memory.of(pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if host.has_started(pid))
        begun = time.perf_counter()
        children = [Bare(program) for program in programs]
        for child in children:
            await child.__aenter__()
        bares.append((time.perf_counter() - begun) * 1000)
        held_bare = memory.of(child.pid for child in children)
        for child in children:
            await child.__aexit__()
    return [
        Row(
            what=f"start, {MANY} extensions",
            against=f"{MANY} bare starts",
            measured=statistics.median(hosts),
            baseline=statistics.median(bares),
        ),
        Row(what="all that they run in, PSS", against="the bare ones", measured=held, baseline=held_bare, unit="MB"),
    ]


def _memory(folder: str) -> list[Row]:
    """Measure the host's own memory; what the extensions hold is theirs."""
    none = os.path.join(folder, "none")
    os.makedirs(none)
    return memory.compare(
        f"host, {MANY} extensions up",
        full=(os.path.join(folder, "many-home"), os.path.join(folder, "many")),
        idle=(os.path.join(folder, "none-home"), none),
    )


def write(root: str, name: str, script: str, python: str = sys.executable) -> str:
    """Write an extension; give the path of its program."""
    place = os.path.join(root, name)
    os.makedirs(place)
    with open(os.path.join(place, "extension.json"), "wb") as manifest:
        manifest.write(msgspec.json.encode({"name": name, "version": "1.0.0", "exec": "./run.py"}))
    program = os.path.join(place, "run.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write((PRELUDE + script).format(python=python, name=name, tool=name.replace("-", "_")))
    os.chmod(program, 0o755)
    return program


def _write_with_sdk(root: str) -> str:
    """Write an extension as authors do who vendor the SDK; give the path of its program."""
    program = write(root, "echo", "")
    with open(program, "w", encoding="utf-8") as file:
        file.write(WITH_SDK.format(python=sys.executable, name="echo"))
    shutil.copy(sdk.__file__, os.path.join(os.path.dirname(program), "ext.py"))
    return program


def approved_host(folder: str, name: str) -> Host:
    """Make a host for a root, with all that is there approved."""
    root, home = os.path.join(folder, name), os.path.join(folder, f"{name}-home")
    plugins.approve_all(home, [root])
    return Host(roots=[root], home=home, watch=False)


def call_of(host: Host, tool: str = "echo") -> CallOne:
    attachment = Attachment("bench", yes=True)

    async def call() -> None:
        result = await host.call(tool, ARGUMENTS, attachment=attachment)
        assert not result.is_error, result

    return call


async def in_turn(call: CallOne, calls: int = BLOCK) -> None:
    for _ in range(calls):
        await call()


async def at_once(call: CallOne) -> None:
    await asyncio.gather(*[in_turn(call, EACH) for _ in range(IN_FLIGHT)])


class Bare:
    """The least that talks to an extension: frames on pipes, a future for each answer; no bounds, no record."""

    def __init__(self, program: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = subprocess.Popen(  # in a session of its own, as the host has it: schedulers weigh sessions
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._rest = b""
        self._number = 0
        self._ready = self._loop.create_future()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._loop.add_reader(self._stdout, self._read)

    async def __aenter__(self) -> Self:
        await self._ready
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop.remove_reader(self._stdout)
        with self._process:  # closes the pipes, then waits
            pass

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self) -> Any:
        self._number += 1
        number = str(self._number)
        future = self._waiting[number] = self._loop.create_future()
        frame = {"type": "tool_call", "id": number, "name": "echo", "args": ARGUMENTS}
        os.write(self._stdin, msgspec.json.encode(frame) + b"\n")
        return await future

    def _read(self) -> None:
        chunk = os.read(self._stdout, CHUNK)
        if not chunk:
            self._loop.remove_reader(self._stdout)
            ended = RuntimeError(f"the program ended: {self._process.args!r}")
            for future in (self._ready, *self._waiting.values()):
                if not future.done():
                    future.set_exception(ended)
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            frame = msgspec.json.decode(line)
            if frame["type"] == "tool_result":
                self._waiting.pop(frame["id"]).set_result(frame)
            elif frame["type"] == "hello":
                os.write(self._stdin, HELLO_ACK)
            elif frame["type"] == "ready":
                self._ready.set_result(None)


class _Mcp:
    """The SDK's client with the SDK's server, in processes of their own: by `$MCP_PYTHON`, else this interpreter."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_there(self) -> bool:
        return self._process is not None

    async def __aenter__(self) -> Self:
        python = os.environ.get("MCP_PYTHON", sys.executable)
        process = await asyncio.create_subprocess_exec(
            python, MCP_PAIR, "client", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        if await process.stdout.readline():  # else it has no SDK
            self._process = process
        else:
            await process.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    async def calls(self, at_once: int, each: int) -> None:
        """Let the client call; telling it so costs little next to that."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{at_once} {each}\n".encode())
        said = await self._process.stdout.readline()
        assert said, "the MCP client ended"
