"""A call through our MCP server on stdio, to a plugin's process: against the SDK's own server, and FastMCP's proxy.

The client is the SDK's, in each case. `$FASTMCP_PYTHON` is an interpreter that has FastMCP, which wants another version
of the SDK than we do; without it that row has nothing to compare with.
"""

import os
import sys
from contextlib import AsyncExitStack

import mcp

from bench import plugins
from bench.measure import Plan, Row, medians
from bench.sessions import ARGUMENTS, BLOCK, ECHO, IN_FLIGHT, MCP_PAIR, CallOne, at_once, in_turn, write
from bench.sessions import EACH as EACH_AT_ONCE

AIM_SDK = 1.25  # at least 0.8 times as many calls
AIM_PROXY = 0.2  # at least five times as many
PROXY = os.path.join(os.path.dirname(__file__), "fastmcp_proxy.py")
SDK, FASTMCP = "the SDK's server, in-process echo", "FastMCP's proxy"


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

        acts: list[CallOne] = [
            await connected(ours, "legacy"),
            await connected(sdk, "legacy"),
            await connected(ours, "auto"),
            await connected(sdk, "auto"),
        ]
        if python := os.environ.get("FASTMCP_PYTHON", ""):
            acts.append(await connected([python, PROXY, *sdk], "legacy"))
        rounds = max(plan.calls // BLOCK, 10)
        turns = await medians(rounds, *[lambda act=act: in_turn(act) for act in acts])
        flights = await medians(max(rounds // 10, 3), *[lambda act=act: at_once(act) for act in acts[:2]])
    older, sdk_older, newer, sdk_newer, *proxy = [taken / BLOCK for taken in turns]
    many, sdk_many = [taken / (IN_FLIGHT * EACH_AT_ONCE) for taken in flights]
    return [
        Row(what="call over MCP, older era", against=SDK, measured=older, baseline=sdk_older, aim=AIM_SDK),
        Row(what="call over MCP, newer era", against=SDK, measured=newer, baseline=sdk_newer, aim=AIM_SDK),
        Row(what=f"the same, {IN_FLIGHT} in flight, each", against=SDK, measured=many, baseline=sdk_many, aim=AIM_SDK),
        Row(
            what="call over MCP, older era",
            against=FASTMCP if proxy else f"{FASTMCP}: no $FASTMCP_PYTHON",
            measured=older,
            baseline=proxy[0] if proxy else None,
            aim=AIM_PROXY,
        ),
    ]


def _client(command: list[str], folder: str, mode: str) -> mcp.Client:
    program, *words = command
    server = mcp.StdioServerParameters(command=program, args=words, env=dict(os.environ), cwd=folder)
    return mcp.Client(server, mode=mode)


def _call_of(client: mcp.Client) -> CallOne:
    async def call() -> None:
        result = await client.call_tool("echo", ARGUMENTS)
        assert not result.is_error, result

    return call
