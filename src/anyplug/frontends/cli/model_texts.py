"""Show a person the text that models read about tools: names, descriptions, and texts in schemas.

Before an approval it is shown up to a limit, with one line that tells how much is hidden and which command shows it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from anyplug.frontends.cli import render
from anyplug.model.late_patterns import late
from anyplug.model.schema_words import TYPES, WORDS
from anyplug.model.tool_names import described
from anyplug.model.types import Tool
from anyplug.model.untrusted_text import CUT

MOST_TOOLS = 40  # named before an approval, so that the permissions stay on the screen
LONGEST = 1_000  # characters of one description, for the same reason
MOST_LINES = 20  # of one description
ROOM = 6_000  # characters of all descriptions together
FIRST = 300  # characters of a description that are always shown

_DIALECT = late(r"https?://json-schema\.org/(?:draft[-/])?[\w-]{1,8}/schema#?")


def shown(tools: Sequence[Tool], command: str) -> list[str]:
    """Return lines about tools, as much as a person reads before an approval. `command` shows the rest, if any does."""
    found: list[str] = []
    room, hidden = ROOM, 0
    for tool in tools[:MOST_TOOLS]:
        text = tool.description.strip()
        beginning = _beginning(text, max(FIRST, min(LONGEST, room)))
        room -= len(beginning)
        hidden += len(text) - len(beginning) + len(tool.title) + _in_schemas(tool)
        found += _lines(tool.name, beginning, is_cut=len(beginning) < len(text))
    others = tools[MOST_TOOLS:]
    hidden += sum(len(tool.description.strip()) + len(tool.title) + _in_schemas(tool) for tool in others)
    more = [render.count(len(others), "more tool")] if others else []
    more += [render.count(hidden, "more character") + " that models read"] if hidden else []
    how = f": {command} shows all" if command else ""
    return [*found, f"and {', and '.join(more)}{how}"] if more else found


def in_several_lines(tools: Sequence[Tool]) -> bool:
    """Return whether a list with one line per tool would truncate their descriptions."""
    return any("\n" in tool.description.strip() for tool in tools)


def arguments(tool: Tool) -> list[str]:
    """Describe each argument in full: its type and its purpose."""
    properties = tool.input_schema.get("properties")
    required = tool.input_schema.get("required")
    if not isinstance(properties, dict):
        return []
    found = []
    for name, schema in properties.items():
        described = schema if isinstance(schema, dict) else {}
        needed = ", required" if isinstance(required, list) and name in required else ""
        if "default" in described:
            needed += f", {_json(described['default'])} if left out"
        first, *more = str(described.get("description", "")).strip().split("\n")
        found.append(f"{name} ({_kinds(described)}{needed})  {first}".rstrip())
        found += [f"  {render.QUOTE}{line}" for line in more]
    return found


def rest_of_schemas(tool: Tool) -> list[tuple[str, list[str]]]:
    """Return the schemas of a tool with text that `arguments` does not show."""
    given = {key: value for key, value in tool.input_schema.items() if key not in {"properties", "required"}}
    properties = tool.input_schema.get("properties")
    names = properties if isinstance(properties, dict) else {}
    said = {"type", "description", "default", "enum"}
    inner = [
        {key: value for key, value in schema.items() if key not in said}
        for schema in names.values()
        if isinstance(schema, dict)
    ]
    required = tool.input_schema.get("required")
    unknown = [name for name in required if name not in names] if isinstance(required, list) else required
    has_more = any(True for _ in _texts([given, inner, unknown or [], properties if not names else []]))
    return [
        *([("schema", _pretty(tool.input_schema))] if has_more else []),
        *([("returns", _pretty(tool.output_schema))] if tool.output_schema else []),
    ]


def _beginning(text: str, most: int) -> str:
    return "\n".join(text[:most].split("\n")[:MOST_LINES])


def _lines(name: str, text: str, *, is_cut: bool) -> list[str]:
    first, *more = text.split("\n")
    found = [described(name, render.line(first)), *(f"  {render.QUOTE}{render.line(line)}" for line in more)]
    return [*found[:-1], found[-1] + CUT] if is_cut else found


def _in_schemas(tool: Tool) -> int:
    """Count the characters of the texts in a tool's schemas: names, descriptions, choices, patterns."""
    return sum(map(len, _texts([tool.input_schema, tool.output_schema or {}])))


def _texts(schema: Any) -> Iterator[str]:
    """Yield all texts in a schema that its author chose."""
    waiting = [schema]  # no recursion: an untrusted author decides how deep it is
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            yield from (key for key in value if key not in WORDS)
            waiting += [item for key, item in value.items() if not _is_form(key, item, value)]


def _is_form(key: str, item: Any, schema: dict[str, Any]) -> bool:
    """Return whether a part of a schema contains no text of its author."""
    if key == "type":
        return all(isinstance(name, str) and name in TYPES for name in (item if isinstance(item, list) else [item]))
    if key == "required":
        names = schema.get("properties")
        return isinstance(item, list) and isinstance(names, dict) and all(map(names.__contains__, map(str, item)))
    return key == "$schema" and isinstance(item, str) and _DIALECT.fullmatch(item) is not None


def _kinds(schema: dict[str, Any]) -> str:
    """Describe in a few words what a schema accepts."""
    if isinstance(values := schema.get("enum"), list):
        return "|".join(value if isinstance(value, str) else _json(value) for value in values)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list) and choices and all(isinstance(choice, dict) for choice in choices):
        return "|".join(dict.fromkeys(map(_kinds, choices)))
    kind = schema.get("type", "any")
    return "|".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _pretty(schema: dict[str, Any]) -> list[str]:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode().split("\n")
