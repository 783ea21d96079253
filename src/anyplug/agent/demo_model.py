"""`demo`: a small offline model that turns plain requests into calls of the available tools.

It needs no key and no network, is deterministic, and says that it is a demo. It does not understand language:
`request_matching` and `request_arguments` match words. If it is unsure, or an argument is missing, it asks.
"""

import json
import re
from collections.abc import AsyncIterator

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from anyplug.agent.request_arguments import Filled, fill, typed
from anyplug.agent.request_matching import Match, ToolSpec, match

PIECE = 24  # characters of a streamed piece
MOST_LISTED = 30  # tools
LONGEST_ABOUT = 110  # characters
SELF = (
    "I am **demo**, a small offline model that comes with anyplug. I match your words with the available tools; I "
    "understand nothing else. `/model provider:name` uses a real model."
)
ABLE = re.compile(
    r"^\W*(?:help|\?|hi|hello|hey|what (?:can|do) you do.*|what (?:tools|plugins).*|who are you.*|what are you.*|"
    r"(?:list|show)(?: me)?(?: all)?(?: the| your| my)? tools)\W*$",
    re.IGNORECASE,
)
RELOAD = re.compile(
    r"^\W*(?:please\s+)?re-?(?:load|read|start)\s+(?:all\s+)?(?:the\s+|my\s+)?(?:tools?|plugins?)\W*$", re.IGNORECASE
)
RELOAD_TOOL = "builtin_reload_plugins"
ASKED = re.compile(r"What should `([^`]+)` of `([^`]+)` be\?")
GIVEN = re.compile(r"Given so far: `(\{.*\})`")


def model() -> FunctionModel:
    """Return the model."""
    return FunctionModel(stream_function=_answer, model_name="demo")


async def _answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    tools = [ToolSpec(one.name, one.description or "", one.parameters_json_schema) for one in info.function_tools]
    said = reply(messages, tools)
    if isinstance(said, str):
        for at in range(0, len(said), PIECE):
            yield said[at : at + PIECE]
        return
    name, arguments = said
    number = sum(len(message.parts) for message in messages)
    yield {0: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=f"demo_{number}")}


def reply(messages: list[ModelMessage], tools: list[ToolSpec]) -> str | tuple[str, dict[str, object]]:
    """Return what it says, or the tool that it calls with its arguments."""
    last = messages[-1]
    returns = (
        [part for part in last.parts if isinstance(part, ToolReturnPart)] if isinstance(last, ModelRequest) else []
    )
    if returns and not any(isinstance(part, UserPromptPart) for part in last.parts):
        return "\n\n".join(map(_told, returns))
    request = _request(last)
    if not request.strip():
        return "What shall I do?"
    if ABLE.match(request):
        return _able(tools)
    if RELOAD.match(request) and any(tool.name == RELOAD_TOOL for tool in tools):
        return RELOAD_TOOL, {}
    if (follow := _followed(messages, request, tools)) is not None:
        return follow
    found = match(request, tools, lambda one: not fill(one).missing)
    if found.tool is None:
        return _unsure(found)
    filled = fill(found)
    return _asked(found.tool, filled) if filled.missing else (found.tool.name, filled.arguments)


def _request(message: ModelMessage) -> str:
    parts = [part for part in message.parts if isinstance(part, UserPromptPart)]
    return str(parts[-1].content) if parts and isinstance(parts[-1].content, str) else ""


def _followed(
    messages: list[ModelMessage], request: str, tools: list[ToolSpec]
) -> str | tuple[str, dict[str, object]] | None:
    """Take a request as the answer to the question that was asked last, if one was."""
    said = next((message for message in reversed(messages[:-1]) if isinstance(message, ModelResponse)), None)
    text = "".join(part.content for part in said.parts if isinstance(part, TextPart)) if said is not None else ""
    asked, given = ASKED.search(text), GIVEN.search(text)
    tool = next((one for one in tools if asked and one.name == asked[2]), None)
    if asked is None or tool is None or match(request, tools, lambda _: True).is_named:
        return None
    about = tool.properties.get(asked[1], {})
    value = typed(request.strip(), about if isinstance(about, dict) else {})
    if value is None:
        return f"That does not fit. What should `{asked[1]}` of `{tool.name}` be?"
    arguments = {**(json.loads(given[1]) if given else {}), asked[1]: value}
    missing = tuple(name for name in tool.required if name not in arguments)
    return _asked(tool, Filled(arguments, missing)) if missing else (tool.name, arguments)


def _asked(tool: ToolSpec, filled: Filled) -> str:
    about = tool.properties.get(filled.missing[0])
    described = about.get("description", "") if isinstance(about, dict) else ""
    choices = about.get("enum") if isinstance(about, dict) else None
    lines = [f"I would call `{tool.name}`. What should `{filled.missing[0]}` of `{tool.name}` be?"]
    if described:
        lines.append(f"> {' '.join(str(described).split())[:LONGEST_ABOUT]}")
    if isinstance(choices, list):
        lines.append("One of: " + ", ".join(f"`{one}`" for one in choices))
    if filled.arguments:
        lines.append(f"Given so far: `{json.dumps(filled.arguments)}`")
    return "\n\n".join(lines)


def _unsure(found: Match) -> str:
    if not found.candidates:
        return (
            "I found no tool for that. I only match words with tools (I am **demo**, offline); `what can you do` lists "
            "them, and `call NAME key=value` calls one."
        )
    lines = [f"- `{tool.name}`: {_line(tool)}" for tool in found.candidates]
    return "I am not sure which tool you mean:\n\n" + "\n".join(lines) + "\n\nWrite `call NAME key=value`."


def _able(tools: list[ToolSpec]) -> str:
    shown = sorted(tools, key=lambda tool: tool.name.startswith("builtin_"))
    lines = [f"- `{tool.name}`: {_line(tool)}" for tool in shown[:MOST_LISTED]]
    more = f"\n- … and {len(tools) - MOST_LISTED} more" if len(tools) > MOST_LISTED else ""
    there = "\n".join(lines) + more if lines else "- no tools yet; `anyplug install` adds some"
    return f"{SELF}\n\nI can call:\n\n{there}\n\nTry a plain sentence, or `call NAME key=value`."


def _line(tool: ToolSpec) -> str:
    about = " ".join(tool.about.split())
    return about if len(about) <= LONGEST_ABOUT else f"{about[:LONGEST_ABOUT]}…"


def _told(part: ToolReturnPart) -> str:
    text = part.model_response_str() if not isinstance(part.content, str) else part.content
    if part.outcome != "success":
        return f"`{part.tool_name}` did not do it:\n\n{_quoted(text)}"
    return f"`{part.tool_name}` answered:\n\n{_quoted(text)}"


def _quoted(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
