"""Agents at the resident host: the first answer, calls through the relay, many clients, a slow tool beside."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from statistics import quantiles
from time import perf_counter
from typing import Any

import mcp

from anyplug.frontends.daemon.locate import Address, hello
from bench import plugins
from bench.measure import Plan, Row, medians
from bench.sessions import ARGUMENTS, BLOCK, ECHO, MCP_PAIR, in_turn, write

AIM_FIRST = 0.3
AIM_CALL = 1.25  # at least 0.8 times as many calls
AIM_P99 = 5.0
CLIENTS = 32
EACH = 50  # calls of each client at once
SLOW = """
import threading, time
say(type="register_tool", name="{tool}", description="Takes its time.", schema={{"type": "object"}})
say(type="ready")
def answer(frame):
    time.sleep(0.05)
    say(type="tool_result", id=frame["id"], content=[{{"type": "text", "text": "late"}}])
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "tool_call":
        threading.Thread(target=answer, args=(frame,), daemon=True).start()
    elif frame["type"] == "shutdown":
        break
"""
BEGINNING = (
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
SDK = "the SDK's server, in-process echo"


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure with one resident host for all."""
    home = os.path.join(folder, "home")
    write(os.path.join(home, "plugins"), "echo", ECHO)
    write(os.path.join(home, "plugins"), "slow", SLOW)
    plugins.approve_all(home, [os.path.join(home, "plugins")], always=True)
    relay = [sys.executable, "-m", "anyplug", "--home", home, "mcp", "--resident"]
    sdk = [sys.executable, MCP_PAIR, "serve"]
    serving = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "anyplug", "--home", home, "--quiet", "serve", cwd=folder, stdin=subprocess.DEVNULL
    )
    try:
        await _until_up(home)
        await _first_answer(relay, folder)  # the host has imported the SDK, and its plugins are up
        return [
            await _starts(relay, sdk, folder, plan),
            await _calls(relay, sdk, folder, plan),
            *await _crowd(home, plan),
        ]
    finally:
        serving.terminate()
        await serving.wait()


async def _until_up(home: str) -> None:
    while (connection := Address(home).connect()) is None:
        await asyncio.sleep(0.05)
    connection.close()


async def _starts(relay: list[str], sdk: list[str], folder: str, plan: Plan) -> Row:
    """From the start of the program to the answer to tools/list."""
    first, plain = await medians(
        max(plan.starts, 5), lambda: _first_answer(relay, folder), lambda: _first_answer(sdk, folder)
    )
    return Row(
        what="first tools/list of `anyplug mcp`, a host being up",
        against="a minimal server on the SDK",
        measured=first,
        baseline=plain,
        aim=AIM_FIRST,
    )


async def _calls(relay: list[str], sdk: list[str], folder: str, plan: Plan) -> Row:
    async with _client(relay, folder) as ours, _client(sdk, folder) as theirs:
        call, plain = await medians(
            max(plan.calls // BLOCK, 10), lambda: in_turn(_call_of(ours)), lambda: in_turn(_call_of(theirs))
        )
    return Row(
        what="call through the relay and the resident host",
        against=SDK,
        measured=call / BLOCK,
        baseline=plain / BLOCK,
        aim=AIM_CALL,
    )


async def _crowd(home: str, plan: Plan) -> list[Row]:
    """Let many clients call at once, then let one of two call a slow tool all the time."""
    async with _Line.opened(home, CLIENTS) as lines:
        await asyncio.gather(*(line.call("echo") for line in lines))
        alone, crowd = await medians(
            max(plan.calls // 200, 5), lambda: lines[0].calls("echo", EACH), lambda: _all(lines, EACH)
        )
        durations = sorted([one for line in lines for one in line.durations])
        p99 = quantiles(durations, n=100)[98]
        median = quantiles(durations, n=2)[0]
        quiet = await _timed(lines[0], EACH)
        slow = [asyncio.ensure_future(line.calls("slow", 10)) for line in lines[1:]]
        beside = await _timed(lines[0], EACH)
        await asyncio.gather(*slow)
    each = crowd / (CLIENTS * EACH)
    return [
        Row(
            what=f"a call, {CLIENTS} clients at once, each", against="one client", measured=each, baseline=alone / EACH
        ),
        Row(
            what=f"p99 of {CLIENTS} clients at once", against="their median", measured=p99, baseline=median, aim=AIM_P99
        ),
        Row(
            what=f"a fast call beside {CLIENTS - 1} clients of a slow tool",
            against="the same with nobody beside",
            measured=beside,
            baseline=quiet,
        ),
    ]


async def _all(lines: "list[_Line]", count: int) -> None:
    for line in lines:
        line.durations.clear()
    await asyncio.gather(*(line.calls("echo", count) for line in lines))


async def _timed(line: "_Line", count: int) -> float:
    began = perf_counter()
    await line.calls("echo", count)
    return (perf_counter() - began) * 1000 / count


class _Line:
    """A client that speaks MCP on the host's socket, as bare as can be: its own cost is not what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.durations: list[float] = []

    @classmethod
    @asynccontextmanager
    async def opened(cls, home: str, count: int) -> Any:
        lines = []
        path = (Address(home).read() or {})["socket"]
        for _ in range(count):
            reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
            line = cls(reader, writer)
            writer.write(hello("mcp"))
            assert b"attached" in await reader.readline()
            for word in BEGINNING:
                writer.write(json.dumps(word).encode() + b"\n")
            await reader.readline()
            lines.append(line)
        try:
            yield lines
        finally:
            for line in lines:
                line.leave()

    def leave(self) -> None:
        self._writer.close()

    async def calls(self, tool: str, count: int) -> None:
        for _ in range(count):
            await self.call(tool)

    async def call(self, tool: str) -> None:
        began = perf_counter()
        word = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": ARGUMENTS}}
        self._writer.write(json.dumps(word).encode() + b"\n")
        while True:
            answer = json.loads(await self._reader.readline())
            if answer.get("id") == 7:
                assert not answer["result"].get("isError"), answer
                break
        self.durations.append((perf_counter() - began) * 1000)


async def _first_answer(command: list[str], folder: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for word in (*BEGINNING, LIST):
        process.stdin.write(json.dumps(word).encode() + b"\n")
    while json.loads(await process.stdout.readline()).get("id") != LIST["id"]:
        pass
    process.kill()
    await process.wait()


def _client(command: list[str], folder: str) -> mcp.Client:
    program, *words = command
    server = mcp.StdioServerParameters(command=program, args=words, env=dict(os.environ), cwd=folder)
    return mcp.Client(server, mode="legacy")


def _call_of(client: mcp.Client) -> Any:
    async def call() -> None:
        result = await client.call_tool("echo", ARGUMENTS)
        assert not result.is_error, result

    return call
