"""Asynchronous tools over MCP: a call returns a job at once, and another tool returns its progress and its result."""

import json

import anyio
import pytest

import mcp_clients
import plugin_folders
from anyplug.catalog.profiles import View
from anyplug.home.settings import find_home
from mcp_clients import approve, client

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


HELD = """#!/bin/sh
printf "step 1 of 2\\nunfin" >&2
while [ ! -e "$HOME/go" ]; do sleep 0.05; done
echo '{"n": 1}'; echo late > /tmp/news/out.txt
"""


@pytest.mark.parametrize(("era", "surface"), [("older", "all"), ("newer", "search")])
async def test_an_asynchronous_tool_is_a_job_whose_result_outlasts_the_clients_patience(era, surface, root, host, home):
    plugin_folders.stavrobot(root, "news", HELD, tool={"async": True})
    plugin_folders.stavrobot(root, "other", HELD, tool={"async": True})
    plugin_folders.write(
        f"{home}/settings.toml", '[profiles.few]\nplugins = ["other"]\n[profiles.own]\nplugins = ["news"]'
    )
    async with host(roots=(root,)) as up:
        await approve(up, "news", "other", always=True)

        async def call(agent, name, arguments, **others):
            if surface == "search":
                name, arguments = "call_tool", {"name": name, "arguments": arguments}
            return await agent.call_tool(name, arguments, **others)

        own = View(find_home(), "own", surface)  # a profile that shows an asynchronous tool shows the one for jobs
        async with client(up, era, view=own, read_timeout_seconds=3) as agent:
            began = await call(agent, "news_act", {})
            about = began.structured_content
            assert (about["tool"], about["state"], began.is_error) == ("news.act", "running", False)
            asked = {"id": about["job"]}
            how = f"call_tool with {json.dumps({'name': 'builtin_job', 'arguments': asked}, separators=(',', ':'))}"
            if surface == "all":
                assert "builtin_job" in {tool.name for tool in (await agent.list_tools()).tools}
                how = f"builtin_job with {json.dumps(asked, separators=(',', ':'))}"
            assert how in began.content[1].text
            reports, messages = [], []

            async def hear(progress, _total, message):
                reports.append(progress)
                messages.append(message)

            with anyio.fail_after(mcp_clients.PATIENCE_S):
                running = began
                while "progress" not in running.structured_content:
                    running = await call(agent, "builtin_job", {**asked, "wait_s": 0.5}, progress_callback=hear)
            assert (running.structured_content["state"], running.is_error) == ("running", False)
            assert running.structured_content["progress"] == "step 1 of 2"
            assert "It last reported: step 1 of 2\n" in text(running)
            assert reports == sorted(reports)
            assert set(messages) <= {"news.act is running", "step 1 of 2"}
            await call(agent, "builtin_job", {**asked, "wait_s": 0.5}, progress_callback=hear)
            assert messages[-1] == "step 1 of 2"
            assert up.jobs()[0].progress == "step 1 of 2"
        async with client(up, era, view=View(find_home(), "few", surface)) as stranger:
            hidden = await call(stranger, "builtin_job", {**asked, "cancel": True})
            assert "there is no job" in text(hidden)
        plugin_folders.write(f"{home}/data/news/home/go", "")
        async with client(
            up, era, view=own, read_timeout_seconds=3
        ) as later:  # which has lost its connection meanwhile
            ended = running
            with anyio.fail_after(mcp_clients.PATIENCE_S):
                while ended.structured_content.get("state") == "running":
                    ended = await call(later, "builtin_job", asked)
            assert (ended.structured_content, ended.is_error) == ({"n": 1}, False)
            assert ended.content[1].resource.text == "late\n"
            assert (await call(later, "builtin_job", asked)).structured_content == {"n": 1}  # as often as asked for
        async with client(up, era, view=View(find_home(), surface=surface)) as agent:
            second = (await call(agent, "other_act", {})).structured_content["job"]
            cancelled = await call(agent, "builtin_job", {"id": second, "cancel": True, "wait_s": 20})
            assert cancelled.meta["anyplug/error"]["code"] == "cancelled"
        assert [(one.tool, one.outcome) for one in mcp_clients.last(up, 50) if one.tool != "builtin.job"] == [
            ("news.act", "done"),
            ("other.act", "cancelled"),
        ]
