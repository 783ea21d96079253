"""Lists for clients: tools and prompts of one snapshot through one view, ready to be sent in pages."""

import base64
import binascii
from functools import cached_property
from typing import Any

import msgspec

from anyplug.catalog import search_tools, tool_descriptions
from anyplug.catalog.profiles import View
from anyplug.catalog.snapshot import Snapshot
from anyplug.catalog.tool_search import Index
from anyplug.formats import registry
from anyplug.frontends.mcp.result_content import Wire
from anyplug.model.types import Command, ServedResource

PAGE = 100  # tools or prompts per answer: some clients limit messages, and none has trouble with this
ARGUMENT = "args"  # of a slash command: everything after its name


class BadCursor(Exception):
    """A cursor that we did not issue."""


class Offering:
    """What is offered, built once per snapshot."""

    def __init__(self, snapshot: Snapshot, view: View, *, is_confining: bool) -> None:
        self.snapshot = snapshot
        self.version = view.version
        self._seen = view.tools(snapshot)
        shown = [(tool, entry) for tool, entry in self._seen if view.shows(tool)]
        definitions = [
            tool_descriptions.definition(tool, entry, snapshot, is_confining=is_confining) for tool, entry in shown
        ]
        self.surface = tool_descriptions.chosen(view, definitions)
        listed = search_tools.TOOLS if self.surface == "search" else definitions
        self.tools: list[Wire] = [msgspec.to_builtins(one) for one in listed]
        self.task_tools = frozenset(  # by the names that agents see: those that can run as MCP tasks
            defined.name
            for (tool, _), defined in zip(shown, definitions, strict=True)
            if tool.is_async and self.surface == "all"
        )
        self.output_schemas: dict[str, dict[str, Any]] = {  # by full name: clients check results against them
            tool.name: defined.output_schema
            for (tool, _), defined in zip(shown, definitions, strict=True)
            if defined.output_schema is not None and self.surface == "all"
        }
        self.prompts = [
            {
                "name": command.name,
                **({"title": command.title} if command.title else {}),
                "description": tool_descriptions.describe(command, entry),
                "arguments": _parameters(command),
            }
            for command, entry in view.commands(snapshot)
        ]
        self.readable = view.resources(snapshot)
        self.resources = [_resource(one) for one, _ in self.readable if not one.is_template]
        self.templates = [_resource(one) for one, _ in self.readable if one.is_template]

    @cached_property
    def index(self) -> Index:
        """The index for tool search."""
        return Index(self._seen, self.snapshot)

    @cached_property
    def stamps(self) -> tuple[bytes, ...]:
        """Values that change with the tools, with the prompts and with the resources."""
        encode = msgspec.json.encode
        return encode(self.tools), encode(self.prompts), encode([self.resources, self.templates])

    def how_to_ask_for(self, job: str) -> str:
        """Return how an agent gets the result of a job."""
        name = self.snapshot.model_names[registry.JOB]
        given: Wire = {"id": job}
        if self.surface == "search":
            name, given = search_tools.CALL, {"name": name, "arguments": given}
        return f"For its progress and its result, call {name} with {msgspec.json.encode(given).decode()}."

    def page_of_tools(self, cursor: str | None, *, has_tasks: bool = False) -> Wire:
        """Return a page of tools; raises BadCursor. `has_tasks`: for a client whose protocol has tasks."""
        page = _page("tools", self.tools, cursor)
        if has_tasks and self.task_tools:
            page["tools"] = [
                {**one, "execution": {"taskSupport": "optional"}} if one["name"] in self.task_tools else one
                for one in page["tools"]
            ]
        return page

    def page_of_prompts(self, cursor: str | None) -> Wire:
        """Return a page of prompts; raises BadCursor."""
        return _page("prompts", self.prompts, cursor)

    def page_of_resources(self, cursor: str | None) -> Wire:
        """Return a page of resources; raises BadCursor."""
        return _page("resources", self.resources, cursor, "uri")

    def page_of_templates(self, cursor: str | None) -> Wire:
        """Return a page of resource templates; raises BadCursor."""
        return _page("resourceTemplates", self.templates, cursor, "uriTemplate")


def _parameters(command: Command) -> list[Wire]:
    if not command.own_name:
        return [{"name": ARGUMENT, "description": "What follows the command.", "required": False}]
    return [{"name": one.name, "description": one.description, "required": one.required} for one in command.parameters]


def _resource(one: ServedResource) -> Wire:
    wire: Wire = {"uriTemplate" if one.is_template else "uri": one.uri, "name": one.name}
    wire |= {"title": one.title} if one.title else {}
    wire["description"] = f"[Plugin: {one.plugin}] {one.description}".rstrip()
    wire |= {"mimeType": one.mime_type} if one.mime_type else {}
    return wire | ({"size": one.size} if one.size is not None else {})


def _page(kind: str, all_of_them: list[Wire], cursor: str | None, key: str = "name") -> Wire:
    """Continue after the item that a cursor names, so that changes of the list do not lose other items."""
    start = 0 if cursor is None else _place_behind(all_of_them, _name_in(cursor), key)
    page = all_of_them[start : start + PAGE]
    more: dict[str, Any] = {"nextCursor": _cursor(page[-1][key])} if start + PAGE < len(all_of_them) else {}
    return {kind: page, **more, "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}


def _place_behind(all_of_them: list[Wire], name: str, key: str) -> int:
    for number, one in enumerate(all_of_them, 1):
        if one[key] == name:
            return number
    raise BadCursor


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _name_in(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor.encode()).decode()
    except (binascii.Error, ValueError):
        raise BadCursor from None
