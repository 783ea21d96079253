"""Convert a server's results and tools to ours. Needs the SDK's types only for type checking."""

from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.model import json_values, schema
from anyplug.model.types import Audio, Block, Failure, Image, Resource, Result, Text, Tool
from anyplug.model.untrusted_text import is_clean

if TYPE_CHECKING:
    import mcp_types as types

TIMEOUT_S = 60.0
MOST_TOOLS = 1_000  # of one server; real ones have a few dozen
LARGEST_LISTED = 16 << 20  # bytes of all tools of one server, and as many of all else that it lists
MOST_WARNINGS, LONGEST_WARNING = 100, 500  # shown to a person; characters of one
LONGEST_NAME = 200  # characters of a tool's name
SHOWN_WARNINGS = 5  # violations of a result's own schema that are shown
# The protocol's methods. Records and questions name some of them as `mcp.SERVER.METHOD`, as if they were tools.
METHODS = (
    "completion/complete", "elicitation/create", "logging/setlevel", "prompts/get", "prompts/list", "resources/list",
    "resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "roots/list",
    "sampling/createmessage", "tools/call", "tools/list",
)  # fmt: skip
SILENT = "the tool reported an error without a message"


def is_method(name: str) -> bool:
    """Return whether a tool of this name could pass for a method of the protocol, of its server or another one."""
    return f".{name.lower()}".endswith(tuple(f".{method}" for method in METHODS))


class Lost(Exception):
    """The connection ended before the answer came. The text tells how."""


class Listing:
    """The tools that a server listed, page by page. The first of a name wins; invalid ones are reported."""

    def __init__(self) -> None:
        self.tools: dict[str, dict[str, Any]] = {}
        self.warnings: list[str] = []
        self.is_full = False  # nothing more is taken
        self._bytes = 0

    def add(self, page: dict[str, Any]) -> dict[str, Any]:
        """Add the tools of one page; return the page with only its valid tools."""
        listed = page.get("tools")
        usable = [tool for tool in listed if self._take(tool)] if isinstance(listed, list) else []
        if not isinstance(listed, list):
            self.warn("its answer to tools/list has no list of tools")
        kept = [
            {"name": tool["name"], "inputSchema": {**tool["inputSchema"], "type": "object"}} for tool in usable
        ]  # the host itself uses `tools`
        cursor = page.get("nextCursor")
        rest = {key: value for key, value in page.items() if key not in {"tools", "nextCursor"}}
        return {**rest, "tools": kept, **({"nextCursor": cursor} if isinstance(cursor, str) and cursor else {})}

    def warn(self, text: str) -> None:
        """Add a warning for the person."""
        text = text if len(text) <= LONGEST_WARNING else f"{text[:LONGEST_WARNING]}…"
        if text not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(text)

    def _take(self, tool: Any) -> bool:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not is_clean(name) or len(name) > LONGEST_NAME:
            self.warn("a tool without a valid name was skipped")
        elif not isinstance(tool.get("inputSchema"), dict):
            self.warn(f"the tool '{name}' was skipped: its inputSchema is not an object")
        elif why := json_values.excess(tool):
            self.warn(f"the tool '{name}' was skipped: its schema is unusable, {why}")
        elif is_method(name):
            self.warn(f"the tool '{name}' was skipped: the name stands for a method of the protocol")
        elif name in self.tools:
            self.warn(f"it lists the tool '{name}' twice; the first is used")
        elif len(self.tools) >= MOST_TOOLS:
            self.is_full = True
            self.warn(f"it lists more than {MOST_TOOLS} tools; the others are ignored")
        elif self._bytes + (size := len(msgspec.json.encode(tool))) > LARGEST_LISTED:
            self.is_full = True
            self.warn(f"its tools have more than {LARGEST_LISTED >> 20} MiB; the others are ignored")
        else:
            self.tools[name] = tool
            self._bytes += size
            return True
        return False


def is_only_a_task(tool: dict[str, Any]) -> bool:
    """Return whether a tool cannot be called in any other way."""
    execution = tool.get("execution")
    return isinstance(execution, dict) and execution.get("taskSupport") == "required"


def tools(plugin: str, server: str, listing: Listing) -> tuple[Tool, ...]:
    """Convert the tools that a server listed."""
    return tuple(_tool(plugin, server, name, raw) for name, raw in listing.tools.items())


def result(answer: "types.CallToolResult", output_schema: Any) -> Result:
    """Convert a call's result."""
    content = tuple(map(block, answer.content))
    said = "\n".join(block.text for block in content if isinstance(block, Text))
    metadata: dict[str, Any] = {"_meta": dict(answer.meta)} if answer.meta else {}
    if notes := _annotations(answer):
        metadata["annotations"] = notes
    if isinstance(output_schema, dict) and not answer.is_error:
        broken = schema.violations(output_schema, answer.structured_content)
        if broken:
            metadata["warnings"] = [f"the result violates its schema: {text}" for text in broken[:SHOWN_WARNINGS]]
    return Result(
        content=content,
        structured=answer.structured_content,
        metadata=metadata,
        is_error=answer.is_error,
        error=Failure("tool_error", said or SILENT) if answer.is_error else None,
    )


def _tool(plugin: str, server: str, name: str, raw: dict[str, Any]) -> Tool:
    annotations = raw.get("annotations")
    title = raw.get("title") or (annotations.get("title") if isinstance(annotations, dict) else None)
    title = title if isinstance(title, str) else ""
    description = raw.get("description")
    return Tool(
        name=f"mcp.{server}.{name}",
        own_name=f"{server}.{name}",
        plugin=plugin,
        description=description if isinstance(description, str) and description else title,
        title=title,
        input_schema=raw["inputSchema"],
        program="",
        timeout_s=TIMEOUT_S,
        process=server,
        output_schema=output if isinstance(output := raw.get("outputSchema"), dict) else None,
        is_repeatable=isinstance(annotations, dict)
        and any(annotations.get(name) is True for name in ("readOnlyHint", "idempotentHint")),
    )


def block(given: "types.ContentBlock") -> Block:
    """Convert a block of content."""
    if given.type == "text":
        return Text(given.text)
    if given.type == "image":
        return Image(given.mime_type, given.data)
    if given.type == "audio":
        return Audio(given.mime_type, given.data)
    if given.type == "resource_link":
        return Resource(
            uri=str(given.uri),
            mime_type=given.mime_type or "",
            name=given.title or given.name,
            description=given.description or "",
        )
    held = given.resource
    return Resource(
        uri=str(held.uri),
        mime_type=held.mime_type or "",
        text=getattr(held, "text", ""),
        data=getattr(held, "blob", ""),
    )


def _annotations(answer: "types.CallToolResult") -> list[dict[str, Any]]:
    """Return the server's annotations of single blocks: their audience and priority."""
    return [
        {"block": number, **block.annotations.model_dump(by_alias=True, mode="json", exclude_none=True)}
        for number, block in enumerate(answer.content)
        if block.annotations is not None
    ]
