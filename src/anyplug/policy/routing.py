"""Routing: which events a policy asks for in its METADATA, and which policies an event therefore concerns.

    # custom:
    #   routing:
    #     required_events: ["PreToolUse"]
    #     required_tools: ["Bash", "mcp__*"]     none: every tool; * stands for anything
    #     required_signals: ["branch"]

An event that concerns no policy is allowed without evaluating any.
"""

from typing import Any, Final

import msgspec

from anyplug.policy.agent_events import ALL_EVENTS
from anyplug.policy.reach import Part
from anyplug.rego.parse.tree import Module
from anyplug.rego.values.rego_errors import Fault, Location

UNROUTED: Final = "policy_routing_error"
LISTS: Final = ("required_events", "required_tools", "required_signals")
SYSTEM: Final = (("cupcake", "system"), ("cupcake", "global", "system"), ("cupcake", "helpers"))


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy subscribes to."""

    events: frozenset[str]
    tools: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()  # of tools, with * in them
    signals: tuple[str, ...] = ()

    def takes(self, event: str, tool: str) -> bool:
        """Return whether an event concerns the policy."""
        if event not in self.events:
            return False
        if not self.tools and not self.patterns:
            return True
        return tool in self.tools or any(_fits(pattern, tool) for pattern in self.patterns)

    def why_not(self, event: str, tool: str) -> str:
        """Return why an event does not concern it; empty if it does."""
        if event not in self.events:
            return f"it asks for {', '.join(sorted(self.events))}"
        if self.takes(event, tool):
            return ""
        return f"it asks for the tools {', '.join(sorted({*self.tools, *self.patterns}))}"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy: a file with a package, a route, and rules that decide."""

    name: str  # the package, as written
    file: str
    title: str = ""
    severity: str = ""
    route: Route
    parts: tuple[Part, ...] = ()
    builtin: str = ""  # its name, if it is one of ours

    @property
    def can_refuse(self) -> bool:
        """Whether it does more than add context."""
        return any(part.verb != "add_context" for part in self.parts)


def is_system(package: tuple[str, ...]) -> bool:
    """Return whether a package is not a policy, but shared by policies and the gate."""
    return any(package[: len(start)] == start for start in SYSTEM)


def read(module: Module) -> tuple[dict[str, Any], Route | Fault]:
    """Read a module's first METADATA block, and its route or the fault in it."""
    notes: dict[str, Any] = module.annotations[0].content if module.annotations else {}
    at = module.annotations[0].at if module.annotations else module.at
    custom = notes.get("custom")
    routing = custom.get("routing") if isinstance(custom, dict) else None
    if not isinstance(routing, dict):
        what = "no METADATA" if not module.annotations else "METADATA without custom.routing"
        return notes, _fault(at, f"a policy must declare its events: this one has {what}")
    lists: dict[str, list[str]] = {}
    for key in LISTS:
        value = routing.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return notes, _fault(at, f"{key} must be a list of names")
        lists[key] = value
    if not lists["required_events"]:
        return notes, _fault(at, "required_events is empty, so the policy would never be evaluated")
    tools = [tool for tool in lists["required_tools"] if "*" not in tool]
    patterns = [tool for tool in lists["required_tools"] if "*" in tool]
    return notes, Route(
        events=frozenset(lists["required_events"]),
        tools=frozenset(tools),
        patterns=tuple(patterns),
        signals=tuple(dict.fromkeys(lists["required_signals"])),
    )


def unknown_events(route: Route) -> list[str]:
    """Return the events of a route that no agent sends."""
    return sorted(route.events - ALL_EVENTS)


def _fault(at: Location, message: str) -> Fault:
    return Fault(at, UNROUTED, message)


def _fits(pattern: str, tool: str) -> bool:
    first, *others = pattern.split("*")
    if not tool or not others:
        return bool(tool) and tool == pattern
    *parts, last = others
    at, end = len(first), len(tool) - len(last)
    if at > end or not tool.startswith(first) or not tool.endswith(last):
        return False
    for part in parts:
        if (found := tool.find(part, at, end)) < 0:
            return False
        at = found + len(part)
    return True
