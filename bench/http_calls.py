"""A call over HTTP at /mcp, against the same call over stdio, both by clients as bare as can be."""

import asyncio
import json
import os
import sys

from bench.console import META, NEWER, Served, served
from bench.mcp_server import lines
from bench.measure import Plan, Row, medians
from bench.sessions import ARGUMENTS, ECHO, write

AIM_STDIO = 2.0  # at least half as many calls


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure with a daemon, which serves both."""
    home = os.path.join(folder, "home")
    write(os.path.join(home, "plugins"), "echo", ECHO)
    async with served(folder, home) as up:
        return [await _beside_stdio(folder, home, up, plan)]


async def _beside_stdio(folder: str, home: str, up: Served, plan: Plan) -> Row:
    params = {"name": "echo", "arguments": ARGUMENTS, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: {up.address}\r\nauthorization: Bearer {up.token}\r\n"
        f"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
        f"mcp-protocol-version: {NEWER}\r\nmcp-method: tools/call\r\nmcp-name: echo\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    host, _, port = up.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def call() -> None:
        writer.write((head + body).encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].split(b"\r", 1)[0])
        said = await reader.readexactly(length)
        assert b'"result"' in said, said

    stdio = [sys.executable, "-m", "anyplug", "--home", home, "mcp"]
    async with lines(stdio, folder) as call_by_line:
        measured, baseline = await medians(plan.calls, call, call_by_line)
    writer.close()
    against = "the same over stdio"
    return Row(what="call over HTTP at /mcp", against=against, measured=measured, baseline=baseline, aim=AIM_STDIO)
