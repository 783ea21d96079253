"""`make_server` behind the SDK's own HTTP: a session is an attachment; where there is none, a request is alone."""

import logging
import socket
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
import pytest
import uvicorn
from mcp import Client

import mcp_clients
import zot_folders
from anyplug.frontends.mcp.mcp_server import make_server
from conditions import until
from mcp_clients import ERAS, View, answering, approve, find_home, last

pytestmark = pytest.mark.anyio

GROWS = """
hello()
tool("grow")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        tool("grown")
        say(frame, "grew")
"""


@asynccontextmanager
async def listening(host, **others):
    """Serve over HTTP on loopback; give the address."""
    app = make_server(host, View(find_home()), **others).streamable_http_app()
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level=logging.CRITICAL, timeout_graceful_shutdown=1))
    server.config.setup_event_loop = lambda: None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server._serve, [sock])
        await until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True


async def test_tools_are_listed_and_called(era, zot, host):
    async with host(zot()) as up, listening(up) as url, Client(url, mode=ERAS[era]) as agent:
        assert [tool.name for tool in (await agent.list_tools()).tools] == ["echo", *mcp_clients.OURS]
        assert (await agent.call_tool("echo", {"n": 1})).content[0].text == '{"n": 1}'
        assert agent.protocol_version == ("2025-11-25" if era == "older" else "2026-07-28")


async def test_an_answer_for_the_session_is_for_one_client(era, root, host):
    zot_folders.extension(root, "echo")
    async with host(roots=(root,)) as up:
        await approve(up, "echo")
        person, asked = answering("session")
        async with listening(up) as url:
            for _ in range(2):
                async with Client(url, mode=ERAS[era], elicitation_callback=person) as agent:
                    for _ in range(2):
                        assert not (await agent.call_tool("echo", {})).is_error
        who = {record.attachment for record in last(up, 20) if record.outcome == "done"}
    assert len(asked) == (2 if era == "older" else 4)  # nothing says which requests of the newer era belong together
    assert len(who) == (2 if era == "older" else 4)


async def test_changes_are_told(era, zot, host):
    changed = anyio.Event()

    async def heard(message):
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async def listen(*, task_status):
        async with agent.listen(tools_list_changed=True) as events:
            task_status.started()
            async for _ in events:
                changed.set()

    async with (
        host(zot("grow", GROWS)) as up,
        listening(up) as url,
        Client(url, mode=ERAS[era], message_handler=heard) as agent,
        anyio.create_task_group() as tasks,
    ):
        if era == "newer":
            await tasks.start(listen)
        await agent.call_tool("grow", {})
        with anyio.fail_after(mcp_clients.PATIENCE_S):
            await changed.wait()
        tasks.cancel_scope.cancel()


async def test_a_request_that_is_cancelled_cancels_the_call(era, zot, host):
    folder = zot("wait", 'hello("tool_cancel")\ntool("wait")\nemit("ready")\nfor frame in heard(): pass\n')
    async with host(folder) as up, listening(up) as url, Client(url, mode=ERAS[era]) as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.call_tool, "wait", {})
            await until(lambda: zot_folders.heard(folder, "tool_call"))
            tasks.cancel_scope.cancel()
        await until(lambda: zot_folders.heard(folder, "tool_cancel"))
