"""`/tools`: find tools, and describe one."""

from typing import Any

import anyio.to_thread

from anyplug.catalog.snapshot import Entry
from anyplug.formats import registry
from anyplug.frontends.console import api_plugin_types as types
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.endpoints import PAGING, Endpoint, Query
from anyplug.frontends.console.plugin_shapes import find_plugin, tool_shape
from anyplug.model.types import Tool


async def list_tools(request: ApiRequest) -> dict[str, Any]:
    """Return tools; with words to search for, the best matches first."""
    snapshot, words = request.host.snapshot, request.text("q").strip()
    plugin = find_plugin(snapshot, request.text("plugin")).path if request.text("plugin") else ""
    kind, is_all = request.text("format"), request.text("state") == "all"

    def is_wanted(entry: Entry) -> bool:
        return (
            (is_all or entry.state == "approved")
            and (not plugin or entry.path == plugin)
            and (not kind or entry.format == kind)
        )

    if words:
        live = request.live
        matches = await anyio.to_thread.run_sync(lambda: live.index().find(words, len(snapshot.owners)))
        found = [(match.tool, match.entry) for match in matches if is_wanted(match.entry)]
    else:
        found = [owned for owned in snapshot.owners.values() if is_wanted(owned[1])]
    page = request.page(found)
    with_schemas = request.flag("schemas", default=True)
    items = [tool_shape(tool, entry, snapshot, with_schemas=with_schemas) for tool, entry in page["items"]]
    return {**page, "items": items, "total": len(found)}


async def describe_tool(request: ApiRequest) -> dict[str, Any]:
    """Return one tool."""
    name = request.values["tool"]
    await request.host.hear_out(name)
    tool, entry = request.host.snapshot.tool(name)
    return {**tool_shape(tool, entry, request.host.snapshot), "arguments": arguments_mode(request, tool, entry)}


def arguments_mode(request: ApiRequest, tool: Tool, entry: Entry) -> str:
    """Return how strictly arguments are checked."""
    given = request.host.catalog.settings.of(tool.plugin).arguments
    return given or registry.BY_NAME[entry.format].ARGUMENTS


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/tools",
        name="listTools",
        for_tokens=True,
        about="List or search tools",
        handle=list_tools,
        answer=types.Tools,
        queries=(
            Query("q", "words to search for; a name finds that tool first"),
            Query("plugin", "only tools of this plugin, by name or id"),
            Query("format", "only tools of plugins of this format"),
            Query("state", "`all` also lists tools that cannot be called"),
            Query("schemas", "0 leaves out the schemas, for long lists", "boolean"),
            *PAGING,
        ),
    ),
    Endpoint(
        method="GET",
        path="/tools/{tool}",
        name="describeTool",
        for_tokens=True,
        about="Describe one tool",
        handle=describe_tool,
        answer=types.ToolDetail,
    ),
]
