"""The three tools that replace a long list: find_tools, describe_tool, call_tool."""

from typing import Any

import msgspec

from anyplug.catalog.plugin_descriptions import instructions
from anyplug.catalog.profiles import View
from anyplug.catalog.snapshot import Snapshot
from anyplug.catalog.tool_descriptions import Definition, Hints, definition, describe
from anyplug.catalog.tool_search import Index
from anyplug.model.errors import CallError
from anyplug.model.types import Failure

FIND, DESCRIBE, CALL = "find_tools", "describe_tool", "call_tool"
Answer = tuple[str, dict[str, Any]] | Failure  # a text for the model, and the same as data
FOUND, MOST_FOUND = 10, 50  # tools per answer: default, and maximum
SHOWN = 200  # characters of a description in a list
_LOOKING = Hints(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

TOOLS = (
    Definition(
        name=FIND,
        title="Find tools",
        description=(
            "Search the tools of all installed plugins. Returns names and short descriptions, best first. Look a "
            f"tool up with {DESCRIBE}, then use it with {CALL}."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, in a few words. Empty: all."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "description": "How many to return."},
            },
            "required": ["query"],
        },
        annotations=_LOOKING,
    ),
    Definition(
        name=DESCRIBE,
        title="Describe a tool",
        description=f"Return the full description and the arguments of a tool that {FIND} found.",
        input_schema={
            "type": "object",
            "properties": {"name": {"type": "string", "description": f"The name, as {FIND} returned it."}},
            "required": ["name"],
        },
        annotations=_LOOKING,
    ),
    Definition(
        name=CALL,
        title="Call a tool",
        description=f"Call a tool that {FIND} found, with the arguments that {DESCRIBE} lists.",
        input_schema={
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": f"The name, as {FIND} returned it."},
                "arguments": {"type": "object", "description": "The tool's arguments."},
            },
            "required": ["name"],
        },
        annotations=Hints(read_only_hint=False, destructive_hint=True, open_world_hint=True),
    ),
)


def find(index: Index, snapshot: Snapshot, arguments: dict[str, Any]) -> Answer:
    """Answer find_tools."""
    query, most = arguments.get("query", ""), arguments.get("limit", FOUND)
    if not isinstance(query, str) or not isinstance(most, int) or isinstance(most, bool):
        return Failure(
            "invalid_arguments", ("`query` must be a string and `limit` a number"), f"see the schema of {FIND}"
        )
    found = index.find(query, min(max(most, 1), MOST_FOUND))
    rows = [
        {
            "name": snapshot.model_names.get(one.tool.name, one.tool.name),
            "plugin": one.entry.name,
            "description": _short(one.tool.description),
        }
        for one in found
    ]
    lines = [f"{row['name']}: [Plugin: {row['plugin']}] {row['description']}" for row in rows]
    return "\n".join(lines) or "No tool matches. Try other words, or fewer.", {"tools": rows}


def describe_one(view: View, snapshot: Snapshot, arguments: dict[str, Any], *, is_confining: bool) -> Answer:
    """Answer describe_tool."""
    name = arguments.get("name")
    if not isinstance(name, str):
        return Failure("invalid_arguments", "`name` must be the name of a tool", f"see the schema of {DESCRIBE}")
    try:
        tool, entry = view.tool(snapshot, name)
    except CallError as error:
        return Failure(error.code, error.message, f"{FIND} lists all tools")
    defined = definition(tool, entry, snapshot, is_confining=is_confining)
    schema = msgspec.json.format(msgspec.json.encode(defined.input_schema), indent=2).decode()
    said = f"{defined.name}\n{describe(tool, entry)}\n\nArguments, as JSON Schema:\n{schema}{instructions(entry)}"
    return said, msgspec.to_builtins(defined)


def target(arguments: dict[str, Any]) -> tuple[str, Any] | Failure:
    """Parse the target and the arguments of call_tool."""
    name = arguments.get("name")
    if not isinstance(name, str):
        return Failure("invalid_arguments", "`name` must be the name of a tool", f"see the schema of {CALL}")
    return name, arguments.get("arguments", {})


def _short(description: str) -> str:
    plain = " ".join(description.split())
    return plain if len(plain) <= SHOWN else f"{plain[: SHOWN - 1]}…"
