"""Which of the tools that a worker describes the admin has approved.

An approval names each tool with a digest of what models and gateways go by. A tool that is not in it, or differs, waits
for the admin. Approvals of older versions name no tools: there, the plugin's definition says whether the tools are
those of the approved manifest. A long-running plugin's definition does not cover its tools, so none of them counts.
Pure.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from anyplug.catalog.approvals import definition
from anyplug.fleet.messages import Approved, Offered
from anyplug.formats import registry
from anyplug.model import permissions
from anyplug.model.types import Plugin, Tool
from anyplug.model.untrusted_text import clean_plugin, is_clean

COVERED: Final = (
    "name",
    "own_name",
    "title",
    "description",
    "input_schema",
    "output_schema",
    "namespace",
    "is_async",
    "is_repeatable",
    "deferred",
)

_encode = msgspec.json.Encoder(order="deterministic").encode


def digests(tools: Iterable[Tool]) -> dict[str, str]:
    """Return what an approval says of tools: the digest of each, by its full name."""
    return {tool.name: _digest(tool) for tool in tools}


def _digest(tool: Tool) -> str:
    return hashlib.sha256(_encode([getattr(tool, field) for field in COVERED])).hexdigest()


def accepted(approval: Approved, described: Offered) -> tuple[Tool, ...]:
    """Return the tools of a description that the admin approved."""
    if approval.tools is not None:
        return tuple(tool for tool in described.tools if has_any(approval, [tool]))
    return _as_defined(described) if is_defined(described) else ()


def has_any(approval: Approved, tools: Iterable[Tool]) -> bool:
    """Return whether the admin approved any of these tools by its digest."""
    named = approval.tools or {}
    return any(tool.name in named and named[tool.name] == _digest(tool) for tool in tools)


def approved(approval: Approved, described: Iterable[Tool]) -> Offered:
    """Return a plugin as the admin approved it, with its tools of those that workers describe.

    The texts that an approval of an older version lacks are left out.
    """
    tools = list(described)
    if approval.tools is not None:
        found = {tool.name: tool for tool in tools if has_any(approval, [tool])}
        tools = [found[name] for name in approval.tools if name in found]
    return Offered(
        name=approval.name,
        format=approval.format,
        version=approval.version,
        description=approval.description,
        digest=approval.digest,
        definition=approval.definition,
        permissions=approval.asked,
        tier=permissions.tier(approval.asked),
        tools=tuple(tools),
        stays_up=reports_tools(approval.format),
    )


def proposed(described: Offered) -> tuple[Tool, ...]:
    """Return the tools that a worker has or holds back, as the admin would approve them."""
    return tuple({tool.name: tool for tool in (*described.tools, *described.held)}.values())


def is_defined(described: Offered) -> bool:
    """Return whether the definition of a plugin covers exactly the tools that are described."""
    return definition(_plugin(described)) == described.definition


def reports_tools(format: str) -> bool:
    """Return whether plugins of a format may report their tools while they run, so that no definition covers them."""
    return format in registry.BY_NAME and bool(registry.BY_NAME[format].PEER)


def cleaned(described: Offered) -> Offered:
    """Return a description whose texts models may read, as a local plugin's are cleaned, and whose tools are its own.

    Raises RecursionError.
    """
    plugin = clean_plugin(_plugin(described))
    return msgspec.structs.replace(
        described,
        name=plugin.name,
        version=plugin.version,
        description=plugin.description,
        permissions=plugin.permissions,
        tools=_own(plugin.tools, plugin.name),
        held=_own(clean_plugin(_plugin(msgspec.structs.replace(described, tools=described.held))).tools, plugin.name),
    )


def _own(tools: Iterable[Tool], plugin: str) -> tuple[Tool, ...]:
    """Return tools that run on a worker: what the description says of programs and processes there is of no use."""
    return tuple(
        msgspec.structs.replace(tool, plugin=plugin, program="", process="", taken_name="")
        for tool in tools
        if is_clean(tool.own_name)
    )


def _plugin(described: Offered) -> Plugin:
    return Plugin(
        name=described.name,
        format=described.format,
        path="",
        version=described.version,
        description=described.description,
        permissions=described.permissions,
        tools=described.tools,
    )


def _as_defined(described: Offered) -> tuple[Tool, ...]:
    """Return tools with nothing that their plugin's definition does not cover."""
    format = registry.BY_NAME.get(described.format)
    if format is None:
        return ()
    begin = format.TOOL_PREFIX + (f"{described.name}." if format.NAMES_PLUGINS else "")
    return tuple(
        msgspec.structs.replace(tool, title="", output_schema=None, namespace="", is_repeatable=False, deferred=False)
        for tool in described.tools
        if tool.name == begin + tool.own_name
    )
