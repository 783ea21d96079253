"""A small MCP server behind the real shell on a real port, and clients of both eras and of none."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import anyio.abc
import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from anyplug.frontends.http.http_server import serve_http
from anyplug.frontends.http.listener import Address, listen
from anyplug.frontends.http.token import Token
from anyplug.home.settings import HttpSettings

ERAS = ("legacy", "2026-07-28")
NEWER = "2026-07-28"
PATIENCE_S = 30.0
TOKEN = Token("a-token-for-tests-and-nothing-else")
YES_OR_NO: dict[str, Any] = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


class Inner:
    """Tools that show what a transport has to carry."""

    def __init__(self, name: str = "inner") -> None:
        self.begun, self.go_on = anyio.Event(), anyio.Event()
        self.ended: list[str] = []
        self.waiting = 0
        names = ("echo", "slow", "steps", "ask")
        self.tools = [types.Tool(name=each, input_schema={"type": "object"}) for each in names]
        self.server: Server[Any] = Server(
            name,
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus()),
        )

    async def _list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self.tools)

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        try:
            return await getattr(self, "_" + params.name)(ctx, params)
        finally:
            self.ended.append(params.name)

    async def _echo(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return said(str((params.arguments or {}).get("text", "")))

    async def _slow(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.waiting += 1
        self.begun.set()
        await self.go_on.wait()
        return said("at last")

    async def _steps(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        for step in (1, 2, 3):
            await ctx.session.report_progress(step, 3, f"step {step}")
        return said("done")

    async def _ask(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        if ctx.session.protocol_version != NEWER:
            self.begun.set()
            answer = await ctx.session.elicit_form("sure?", YES_OR_NO, ctx.request_id)
        elif params.input_responses is None:
            question = types.ElicitRequest(
                params=types.ElicitRequestFormParams(message="sure?", requested_schema=YES_OR_NO)
            )
            return types.InputRequiredResult(input_requests={"q": question})
        else:
            answer = params.input_responses["q"]
        return said(f"{answer.action} {answer.content}")


def said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


class Serving:
    """A server that is up."""

    def __init__(self, url: str, port: int, servers: dict[str, Server[Any]]) -> None:
        self.url, self.port, self.servers = url, port, servers
        self.scope, self.has_ended = anyio.CancelScope(), anyio.Event()

    def end(self) -> None:
        self.scope.cancel()

    @asynccontextmanager
    async def client(self, era: str, path: str = "/mcp", **others: Any) -> AsyncIterator[Client]:
        """Connect with the SDK's own client."""
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN.value}"}, timeout=PATIENCE_S) as http:
            transport = streamable_http_client(self.url + path, http_client=http)
            async with Client(transport, mode=era, **others) as client:
                yield client

    async def raw(self, *sent: bytes) -> "Answer":
        """Send bytes on a connection of their own, and read until the answer is whole or the server hangs up."""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            for part in sent:
                await stream.send(part)
            return await read(stream)

    async def post(self, message: Any, path: str = "/mcp", **headers: str | None) -> "Answer":
        return await self.raw(self.request("POST", path, json.dumps(message).encode(), **headers))

    def request(self, method: str, path: str, body: bytes = b"", **headers: str | None) -> bytes:
        """Write a request; a header that is None is left out."""
        known: dict[str, str | None] = {
            "host": f"127.0.0.1:{self.port}",
            "authorization": f"Bearer {TOKEN.value}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(body)) if body else None,
        }
        known.update({name.replace("_", "-"): value for name, value in headers.items()})
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in known.items() if v is not None)]
        return "\r\n".join([*lines, "", ""]).encode() + body


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """Our code, hint and so on, wherever they stand."""
        error = self.json["error"]
        return error.get("data", error)  # type: ignore[no-any-return]


async def read(stream: anyio.abc.ByteStream) -> Answer:
    """Read one answer; status 0 stands for none."""
    seen = b""
    with anyio.fail_after(PATIENCE_S):
        while True:
            head, found, body = seen.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            if found and ("content-length" in headers) and len(body) >= int(headers["content-length"]):
                break
            if found and headers.get("transfer-encoding") == "chunked" and body.endswith(b"0\r\n\r\n"):
                break
            if found and lines[0].split()[1] == "204":
                break
            try:
                seen += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                break
    return Answer(int(lines[0].split()[1]) if seen else 0, headers, body)


@asynccontextmanager
async def serving(*inner: Inner, host: str = "127.0.0.1", **changes: Any) -> AsyncIterator[Serving]:
    """Serve: the first one as the usual profile, the others as p1, p2 and so on."""
    given = {name: changes.pop(name) for name in ("more", "certificate", "key", "expose", "names") if name in changes}
    more = given.pop("more", None)
    listener = listen(Address(host, 0), **given)
    servers = {f"p{at}" if at else "": each.server for at, each in enumerate(inner)}
    up = Serving(listener.url, listener.port, servers)

    async def run(*, task_status: anyio.abc.TaskStatus[str]) -> None:
        settings = HttpSettings(**changes)
        with up.scope:
            await serve_http(listener, servers.get, token=TOKEN, settings=settings, more=more, task_status=task_status)
        up.has_ended.set()

    async with anyio.create_task_group() as group:
        await group.start(run)
        yield up
        up.end()
