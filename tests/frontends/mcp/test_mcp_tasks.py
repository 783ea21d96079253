"""Asynchronous tools as MCP tasks, by a client that writes its own lines: the SDK's has no way to ask for them."""

import os
from contextlib import asynccontextmanager

import anyio
import pytest

import mcp_clients
import plugin_folders
from anyplug.catalog.profiles import View
from anyplug.frontends.mcp import tasks
from anyplug.home.settings import find_home
from mcp_clients import approve

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]

HELD = '#!/bin/sh\nwhile [ ! -e "$HOME/go" ]; do sleep 0.05; done\necho \'{"n": 1}\'\n'
INVALID, NO_SUCH_METHOD = -32602, -32601


class Agent:
    """A client that speaks tasks."""

    def __init__(self, lines, version):
        self._lines, self._version, self._next = lines, version, 0

    async def begin(self):
        """Initialize, and return the server's capabilities."""
        about = {"protocolVersion": self._version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        result = await self.ask("initialize", **about)
        self._lines.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result["capabilities"]

    async def answer(self, method, **params):
        """Send a request and return the whole answer."""
        self._next += 1
        self._lines.send({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        while (message := await self._lines.receive()).get("id") != self._next:
            pass
        return message

    async def ask(self, method, **params):
        """Send a request and return its result."""
        message = await self.answer(method, **params)
        assert "result" in message, message
        return message["result"]

    async def fails(self, method, **params):
        """Send a request and return the code of its error."""
        return (await self.answer(method, **params))["error"]["code"]


@asynccontextmanager
async def agent(host, view=None, version=tasks.VERSION):
    async with mcp_clients.served(host, view) as (reader, writer):
        yield Agent(mcp_clients.Lines(reader, writer), version)


@pytest.fixture
def folders(root, home):
    """Give a plugin whose tools wait until they are told to go on, and one that answers at once."""
    plugin_folders.stavrobot(root, "news", HELD, tool={"async": True})
    plugin_folders.stavrobot(root, "quick", "#!/bin/sh\necho 1\n")
    plugin_folders.stavrobot(root, "other", HELD, tool={"async": True})
    return root


@pytest.mark.exercises("mcp", "tasks")
async def test_a_task_is_a_job_that_can_be_looked_at_awaited_and_listed(folders, host, home):
    async with host(roots=(folders,)) as up:
        await approve(up, "news", "quick", always=True)
        async with agent(up) as one:
            assert (await one.begin())["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
            listed = {tool["name"]: tool for tool in (await one.ask("tools/list"))["tools"]}
            assert listed["news_act"]["execution"] == {"taskSupport": "optional"}
            assert "execution" not in listed["quick_act"]
            task = (await one.ask("tools/call", name="news_act", arguments={}, task={"ttl": 60_000}))["task"]
            assert (task["status"], task["ttl"]) == ("working", None)
            assert (await one.ask("tasks/get", taskId=task["taskId"]))["status"] == "working"
            plugin_folders.write(f"{home}/data/news/home/go", "")
            result = await one.ask("tasks/result", taskId=task["taskId"])
            assert (result["structuredContent"], result["isError"]) == ({"n": 1}, False)
            assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task["taskId"]}
            ended = await one.ask("tasks/get", taskId=task["taskId"])
            assert (ended["status"], ended["createdAt"]) == ("completed", task["createdAt"])
            assert (await one.ask("tasks/list"))["tasks"] == [ended]
            assert await one.fails("tasks/cancel", taskId=task["taskId"]) == INVALID
        async with agent(up) as later:  # the task outlives the connection
            await later.begin()
            assert (await later.ask("tasks/result", taskId=task["taskId"]))["structuredContent"] == {"n": 1}


async def test_a_task_can_be_cancelled_and_is_only_for_those_who_see_its_tool(folders, host, home):
    plugin_folders.write(f"{home}/settings.toml", '[profiles.few]\nplugins = ["other"]\n')
    async with host(roots=(folders,)) as up:
        await approve(up, "news", "other", always=True)
        async with agent(up) as one, agent(up, View(find_home(), "few")) as stranger:
            await one.begin()
            await stranger.begin()
            task = (await one.ask("tools/call", name="news_act", task={}))["task"]
            assert await stranger.fails("tasks/get", taskId=task["taskId"]) == INVALID
            assert await stranger.fails("tasks/result", taskId=task["taskId"]) == INVALID
            assert await stranger.fails("tasks/cancel", taskId=task["taskId"]) == INVALID
            assert (await stranger.ask("tasks/list"))["tasks"] == []
            with anyio.fail_after(mcp_clients.PATIENCE_S):
                assert (await one.ask("tasks/cancel", taskId=task["taskId"]))["status"] == "cancelled"
            result = await one.ask("tasks/result", taskId=task["taskId"])
            assert (result["isError"], result["_meta"]["anyplug/error"]["code"]) == (True, "cancelled")


@pytest.mark.claim("tools-call")
async def test_the_job_of_another_projects_plugin_with_the_same_names_is_not_shown(folders, host, tmp_path):
    twin = plugin_folders.stavrobot(tmp_path / "elsewhere", "news", HELD, tool={"async": True})
    async with host(roots=(folders,)) as up, host(roots=(os.path.dirname(twin),)) as elsewhere:
        await approve(up, "news", always=True)
        await approve(elsewhere, "news", always=True)
        async with agent(up) as one, agent(elsewhere) as stranger:
            await one.begin()
            await stranger.begin()
            asked = {"id": (await one.ask("tools/call", name="news_act", task={}))["task"]["taskId"]}
            assert (await stranger.ask("tasks/list"))["tasks"] == []
            for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                assert await stranger.fails(method, taskId=asked["id"]) == INVALID
            for arguments in (asked, {**asked, "cancel": True}):
                hidden = await stranger.ask("tools/call", name="builtin_job", arguments=arguments)
                assert hidden["_meta"]["anyplug/error"]["code"] == "not_found"
            assert (await one.ask("tasks/get", taskId=asked["id"]))["status"] == "working"
            assert (await one.ask("tasks/cancel", taskId=asked["id"]))["status"] == "cancelled"
    plugin_folders.stavrobot(folders, "news", HELD + "# the next version\n", tool={"async": True})
    async with host(roots=(folders,)) as later:
        await approve(later, "news", always=True)
        async with agent(later) as one:
            await one.begin()
            assert [task["taskId"] for task in (await one.ask("tasks/list"))["tasks"]] == [asked["id"]]
            again = await one.ask("tools/call", name="builtin_job", arguments=asked)
            assert again["_meta"]["anyplug/error"]["code"] == "cancelled"


async def test_what_cannot_run_as_a_task_is_refused_with_a_reason(folders, host):
    async with host(roots=(folders,)) as up:
        await approve(up, "quick", always=True)
        async with agent(up) as one:
            await one.begin()
            assert await one.fails("tools/call", name="quick_act", task={}) == NO_SUCH_METHOD
            assert await one.fails("tools/call", name="news_act", task={}) == NO_SUCH_METHOD  # not approved
            assert await one.fails("tasks/get", taskId="nothing") == INVALID
            assert await one.fails("tasks/list", cursor="nothing") == INVALID


async def test_a_client_of_an_older_version_gets_a_job_as_before(folders, host):
    async with host(roots=(folders,)) as up:
        await approve(up, "news", always=True)
        async with agent(up, version="2025-06-18") as one:
            assert "tasks" not in await one.begin()
            assert all("execution" not in tool for tool in (await one.ask("tools/list"))["tools"])
            began = await one.ask("tools/call", name="news_act", arguments={})
            assert began["structuredContent"]["state"] == "running"
            await one.ask(
                "tools/call", name="builtin_job", arguments={"id": began["structuredContent"]["job"], "cancel": True}
            )
