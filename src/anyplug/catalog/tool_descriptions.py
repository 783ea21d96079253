"""What agents see of tools (names, descriptions, schemas, hints), and its cost in tokens. Pure.

A plugin's schema may be anything. The result is an object schema that every client accepts, equivalent to the plugin's
own.
"""

from typing import Any, Literal

import msgspec

from anyplug.catalog.profiles import View
from anyplug.catalog.snapshot import OURS, Entry, Snapshot
from anyplug.formats import registry
from anyplug.model import permissions
from anyplug.model.schema import repaired
from anyplug.model.types import Command, Tool

CHARACTERS_PER_TOKEN = 4  # a rough average for English and JSON; an exact tokenizer would be a heavy dependency
LARGE_TOKENS = 10_000  # a twentieth of an agent's usual 200,000: beyond that, few want every schema
LONGEST_ABOUT = 200  # characters of a plugin's own description, which is repeated in each of its tools
HEADER = "x-mcp-header"  # would make clients repeat arguments in HTTP headers, bypassing us

# Permissions that can destroy something, here or elsewhere, directly or through others.
_WRITING = frozenset({"filesystem:write", "shell:exec", "network", permissions.CALL})
_READING = frozenset(
    {
        "filesystem:read",
        "env",
        permissions.OBSERVE,
        permissions.GUARD,
        permissions.REWRITE_CALLS,
        permissions.REWRITE_TEXT,
    }
)  # permissions that tools cannot change anything with: tools neither guard nor rewrite


class Hints(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Hints for a client before it lets a model call a tool."""

    title: str = ""
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A tool as agents see it, and as MCP writes it."""

    name: str
    title: str = ""
    description: str = ""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: Hints | None = None


def definition(tool: Tool, entry: Entry, snapshot: Snapshot, *, is_confining: bool) -> Definition:
    """Return a tool as an agent sees it."""
    return Definition(
        name=snapshot.model_names.get(tool.name, tool.name),
        title=tool.title,
        description=describe(tool, entry),
        input_schema=object_schema(tool.input_schema),
        output_schema=_output_schema(tool),
        annotations=hints(tool, entry, is_confining=is_confining),
    )


def describe(tool: Tool | Command, entry: Entry) -> str:
    """Describe a tool or command, with its plugin's name and the plugin's own description."""
    plugin = entry.plugin
    said = f"[Plugin: {plugin.name}] {tool.description}".rstrip()
    describes_itself = registry.BY_NAME[plugin.format].DESCRIBES_ITSELF
    about = " ".join(plugin.description.split())[:LONGEST_ABOUT] if describes_itself else ""
    return f"{said}\n\nThe plugin: {about}" if about and about != tool.description else said


def hints(tool: Tool, entry: Entry, *, is_confining: bool) -> Hints:
    """Derive hints from the plugin's grants; without a sandbox, assume it can do anything."""
    if tool.name in OURS:
        is_reading = tool.name in registry.BUILTIN_READING
        return Hints(read_only_hint=is_reading, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    granted = {permissions.kind(permission) for permission in entry.standing.granted}
    if not is_confining or entry.standing.unconfined:
        return Hints(read_only_hint=False, destructive_hint=True, open_world_hint=True)
    reads_only = granted <= _READING
    return Hints(
        read_only_hint=reads_only,
        destructive_hint=not reads_only and not granted.isdisjoint(_WRITING),
        open_world_hint="network" in granted,
    )


def tokens(defined: Definition) -> int:
    """Estimate how many tokens a tool's definition takes: its JSON, at four characters per token."""
    return -(-len(msgspec.json.encode(defined)) // CHARACTERS_PER_TOKEN)


def chosen(view: View, definitions: list[Definition]) -> Literal["all", "search"]:
    """Decide whether a caller gets all of these tools, or tools to search them with."""
    if view.surface == "auto":
        return "search" if sum(map(tokens, definitions)) > LARGE_TOKENS else "all"
    return view.surface


def object_schema(given: Any) -> dict[str, Any]:
    """Turn whatever a plugin wrote into a schema that every client accepts; arguments are always objects."""
    schema = repaired(_plain(given)) if isinstance(given, dict) else {}
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        # No arguments could ever match it, so accept anything and leave the check to the plugin.
        return {"type": "object"}
    schema["type"] = "object"
    if isinstance(given, dict) and "properties" in given:
        schema.setdefault("properties", {})
    if not isinstance(schema.get("$schema", ""), str):
        del schema["$schema"]
    return schema


def _output_schema(tool: Tool) -> dict[str, Any] | None:
    """Return the schema of structured results, if it is one of objects: clients check results against it."""
    given = tool.output_schema
    if given is None or given.get("type") != "object":
        return None
    return object_schema(given)


def _plain(value: Any) -> Any:
    """Copy a schema without instructions to clients that a plugin must not give."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if key != HEADER}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value
