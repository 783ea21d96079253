"""How a tool's arguments are shown to a person: a line each."""

from typing import Any

import msgspec

from anyplug.model import Tool


def lines(tool: Tool) -> list[str]:
    """Name each argument, with what it may be and what it is for."""
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
        found.append(f"{name} ({_kinds(described)}{needed})  {described.get('description', '')}".rstrip())
    return found


def _kinds(schema: dict[str, Any]) -> str:
    """Say in a few words what a schema lets in."""
    if isinstance(values := schema.get("enum"), list):
        return "|".join(value if isinstance(value, str) else _json(value) for value in values)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list) and choices and all(isinstance(choice, dict) for choice in choices):
        return "|".join(dict.fromkeys(map(_kinds, choices)))
    kind = schema.get("type", "any")
    return "|".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
