"""A call through our MCP server on stdio, to a plugin's process: against the SDK's own server, and FastMCP's proxy.

The client is the SDK's, in each case; and because that one takes longer than our server does, the same again with one
that only writes and reads lines. `$FASTMCP_PYTHON` is an interpreter that has FastMCP, which wants another version
of the SDK than we do; without it that row has nothing to compare with.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import mcp
import msgspec

from bench import plugins
from bench.measure import Plan, Row, medians
from bench.sessions import ARGUMENTS, BLOCK, ECHO, IN_FLIGHT, MCP_PAIR, CallOne, at_once, in_turn, write
from bench.sessions import EACH as EACH_AT_ONCE

AIM_SDK = 1.25  # at least 0.8 times as many calls
AIM_PROXY = 0.2  # at least five times as many
PROXY = os.path.join(os.path.dirname(__file__), "fastmcp_proxy.py")
SDK, FASTMCP = "the SDK's server, in-process echo", "FastMCP's proxy"
CAPABILITIES = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure calls, one after the other in both eras, and many at once."""
    home = os.path.join(folder, "home")
    write(os.path.join(home, "plugins"), "echo", ECHO)
    plugins.approve_all(home, [os.path.join(home, "plugins")], always=True)
    ours = [sys.executable, "-m", "anyplug", "--home", home, "mcp"]
    sdk = [sys.executable, MCP_PAIR, "serve"]
    async with AsyncExitStack() as stack:

        async def connected(command: list[str], mode: str) -> CallOne:
            return _call_of(await stack.enter_async_context(_client(command, folder, mode)))

        async def by_lines(command: list[str]) -> CallOne:
            return await stack.enter_async_context(lines(command, folder))

        acts: list[CallOne] = [
            await connected(ours, "legacy"),
            await connected(sdk, "legacy"),
            await connected(ours, "auto"),
            await connected(sdk, "auto"),
            await by_lines(ours),
            await by_lines(sdk),
        ]
        if python := os.environ.get("FASTMCP_PYTHON", ""):
            proxy = [python, PROXY, *sdk]
            acts += [await connected(proxy, "legacy"), await by_lines(proxy)]
        rounds = max(plan.calls // BLOCK, 10)
        turns = await medians(rounds, *[lambda act=act: in_turn(act) for act in acts])
        flights = await medians(max(rounds // 10, 3), *[lambda act=act: at_once(act) for act in acts[:2]])
    older, sdk_older, newer, sdk_newer, bare_lines, sdk_lines, *proxied = [taken / BLOCK for taken in turns]
    proxy_older, proxy_lines = proxied or (None, None)
    many, sdk_many = [taken / (IN_FLIGHT * EACH_AT_ONCE) for taken in flights]
    bare = "call over MCP, bare lines"
    return [
        Row(what="call over MCP, older era", against=SDK, measured=older, baseline=sdk_older, aim=AIM_SDK),
        Row(what="call over MCP, newer era", against=SDK, measured=newer, baseline=sdk_newer, aim=AIM_SDK),
        Row(what=f"the same, {IN_FLIGHT} in flight, each", against=SDK, measured=many, baseline=sdk_many, aim=AIM_SDK),
        Row(what=bare, against=SDK, measured=bare_lines, baseline=sdk_lines, aim=AIM_SDK),
        _beside_fastmcp("call over MCP, older era", older, proxy_older),
        _beside_fastmcp(bare, bare_lines, proxy_lines),
    ]


def _beside_fastmcp(what: str, measured: float, baseline: float | None) -> Row:
    against = FASTMCP if baseline is not None else f"{FASTMCP}: no $FASTMCP_PYTHON"
    return Row(what=what, against=against, measured=measured, baseline=baseline, aim=AIM_PROXY)


def _client(command: list[str], folder: str, mode: str) -> mcp.Client:
    program, *words = command
    server = mcp.StdioServerParameters(command=program, args=words, env=dict(os.environ), cwd=folder)
    return mcp.Client(server, mode=mode)


def _call_of(client: mcp.Client) -> CallOne:
    async def call() -> None:
        result = await client.call_tool("echo", ARGUMENTS)
        assert not result.is_error, result

    return call


@asynccontextmanager
async def lines(command: list[str], folder: str) -> AsyncIterator[CallOne]:
    """The least that calls a tool: a line out, a line in; one call at a time."""
    server = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder
    )
    into, out = server.stdin, server.stdout
    assert into is not None
    assert out is not None
    number = 0

    async def ask(method: str, params: object) -> dict[str, object]:
        nonlocal number
        number += 1
        into.write(_message(method=method, params=params, id=number))
        while line := await out.readline():
            word: dict[str, object] = msgspec.json.decode(line)
            if word.get("id") == number:
                return word
        raise AssertionError(f"{command} ended")

    async def call() -> None:
        answer = await ask("tools/call", {"name": "echo", "arguments": ARGUMENTS})
        assert "result" in answer, answer

    await ask("initialize", CAPABILITIES)
    into.write(_message(method="notifications/initialized"))
    yield call
    into.close()
    await server.wait()


def _message(**fields: object) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **fields}) + b"\n"
