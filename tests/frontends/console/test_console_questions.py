"""Calls of real MCP clients that wait for a person, who answers in the page."""

import json

import anyio
import anyio.to_thread
import mcp_types as types
import pytest

import mcp_clients
import plugin_folders
from browsers import approve
from consoles import console

pytestmark = pytest.mark.anyio


@pytest.fixture
def careful(home):
    plugin_folders.cyclop(home / "plugins", "careful", permissions=["filesystem:write"])
    approve("careful")


@pytest.mark.parametrize("word", ["once", "no"])
async def test_a_call_of_an_mcp_client_waits_until_it_is_answered_in_the_page(era, careful, word):
    with console() as page, page.events() as events:
        events.until("hello")
        async with mcp_clients.process(era, "mcp", "--resident") as agent, anyio.create_task_group() as tasks:
            results: list = []

            async def call():
                results.append(await agent.call_tool("careful", {}))

            tasks.start_soon(call)
            question = await anyio.to_thread.run_sync(events.until, "question")
            assert (question["tool"], question["kind"]) == ("careful", "mcp")
            assert not results, "the call waits"
            path = f"/questions/{question['id']}/answer"
            await anyio.to_thread.run_sync(lambda: page.post(path, {"word": word}))
            ended = await anyio.to_thread.run_sync(events.until, "answered")
        assert (ended["word"], ended["by"]) == (word, "console")
        assert results[0].is_error == (word == "no")
        record = page.get("/records?limit=1")["items"][0]
        assert (record["outcome"], record["by"]) == ("done" if word == "once" else "denied", "person")


async def test_what_the_page_answers_is_withdrawn_from_the_clients_own_prompt(careful):
    shown, withdrawn = anyio.Event(), anyio.Event()

    async def prompt(context, params):
        shown.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            withdrawn.set()
            raise
        return types.ElicitResult(action="cancel")

    with console() as page, page.events() as events:
        events.until("hello")
        agent = mcp_clients.process("older", "mcp", "--resident", elicitation_callback=prompt)
        async with agent as connected, anyio.create_task_group() as tasks:
            results: list = []

            async def call():
                results.append(await connected.call_tool("careful", {}))

            tasks.start_soon(call)
            with anyio.fail_after(mcp_clients.PATIENCE_S):
                await shown.wait()
            question = page.get("/questions")["items"][0]
            await anyio.to_thread.run_sync(lambda: page.post(f"/questions/{question['id']}/answer", {"word": "once"}))
            with anyio.fail_after(mcp_clients.PATIENCE_S):
                await withdrawn.wait()
        assert not results[0].is_error, json.dumps(results[0].model_dump(mode="json"))
