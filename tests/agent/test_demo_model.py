"""The offline model: plain requests over plugins that it was not made for reach the right tool, or it asks."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from anyplug.agent import conversation_events as events
from anyplug.agent.demo_model import reply
from anyplug.agent.request_matching import ToolSpec
from conversations import conversation, turn
from demo_requests import HELD_OUT, TOOLS, TUNED, UNSEEN, Request
from demo_requests_of_newcomers import LAST, LAST_TOOLS, MANY, MANY_TOOLS, MORE, MORE_TOOLS
from demo_requests_of_others import FRESH, SEEN, TOOLS_OF_OTHERS
from rows import each_row

LEAST = 0.8  # of plain requests that reach the right tool with the right arguments


def answered(request: str, tools: list[ToolSpec] = TOOLS) -> Any:
    return reply([ModelRequest(parts=[UserPromptPart(content=request)])], tools)


def wrong(requests: list[Request], tools: list[ToolSpec]) -> list[str]:
    lines = []
    for request in requests:
        got = answered(request.text, tools)
        if got != (request.tool, request.arguments):
            lines.append(f"{request.text!r}: {got if isinstance(got, tuple) else got[:90]!r}")
    return lines


@each_row(
    "requests, tools",
    [
        ([*TUNED], TOOLS),
        ([*HELD_OUT], UNSEEN),
        ([*SEEN], TOOLS_OF_OTHERS),
        ([*FRESH], TOOLS_OF_OTHERS),
        ([*MANY], MANY_TOOLS),
        ([*MORE], MORE_TOOLS),
        ([*LAST], LAST_TOOLS),
    ],
)
def test_most_plain_requests_reach_the_right_tool_with_the_right_arguments(requests, tools):
    failures = wrong(requests, tools)
    assert 1 - len(failures) / len(requests) >= LEAST, "\n".join(failures)


@pytest.mark.parametrize("text", ["to be or not to be", "hello world", "the end of it all"])
def test_what_the_chat_proposes_works_with_any_text(text):
    example = Path(__file__).parents[2] / "examples" / "word-count" / "plugin.json"
    (tool,) = json.loads(example.read_text())["tools"]
    made = ToolSpec(name=tool["name"], description=tool["description"], schema=tool["input_schema"])
    assert answered(f"count the words in {text}", [made]) == ("word_count", {"text": text})


def test_it_asks_for_what_is_missing_and_takes_the_answer():
    asked = answered("call weather_now")
    assert "What should `city` of `weather_now` be?" in asked
    history = [
        ModelRequest(parts=[UserPromptPart(content="call weather_now")]),
        ModelResponse(parts=[TextPart(content=asked)]),
        ModelRequest(parts=[UserPromptPart(content="Oslo")]),
    ]
    assert reply(history, TOOLS) == ("weather_now", {"city": "Oslo"})


@pytest.mark.parametrize("text", ["tell me a joke about cats", "xyzzy", "why is the sky blue"])
def test_it_calls_nothing_if_nothing_fits(text):
    assert isinstance(answered(text), str)


@pytest.mark.parametrize(
    "properties", [None, [], {"path": None}, {"path": {"type": 1, "enum": 2, "description": [], "items": "x"}}]
)
def test_a_malformed_schema_does_not_stop_it(properties):
    tool = ToolSpec("echo", "Echo a text.", {"properties": properties, "required": [{}, None, "path", "other"]})
    assert answered("echo hello in src/main.py", [tool])


def test_it_never_takes_a_tool_that_does_something_else_for_the_one_that_is_meant():
    tools = [ToolSpec("note_add", "Add a note.", {"properties": {"text": {"type": "string"}}, "required": ["text"]})]
    assert isinstance(answered("delete the note milk", tools), str)


def test_it_says_what_it_is_and_what_it_can_do():
    said = answered("what can you do")
    assert "**demo**" in said
    assert "weather_now" in said


def test_it_is_deterministic():
    assert [answered(one.text) for one in TUNED] == [answered(one.text) for one in TUNED]


@pytest.mark.anyio
async def test_it_reloads_the_tools(host, root):
    from plugin_folders import cyclop

    async with host(roots=(root,)) as h, conversation(h) as told:
        cyclop(root, "late")
        await turn(told, "reload the tools")
    (ended,) = told.of(events.ToolEnded)
    assert ended.result.tool == "builtin.reload_plugins"
    assert "late" in json.dumps(ended.result.text)
