"""Plugins and tools as the API shows them: the shapes of `--json`, and what a page needs besides."""

import hashlib
import re
import shlex
from typing import Any, Final

import msgspec

from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.formats import registry
from anyplug.frontends import design_tokens, json_output
from anyplug.host.host import Host
from anyplug.model.errors import PluginNotFound
from anyplug.model.types import Problem, Tool

ID_LENGTH: Final = 16
CURES: Final = {  # by the command that a hint names: what the page does, and its button
    "approve": ("approve", "Review and approve"),
    "enable": ("enable", "Turn it on"),
    "reload": ("reload", "Restart it"),
    "config": ("config", "Set its values"),
    "grant": ("grants", "Grant it"),
    "update": ("update", "Update it"),
}

UNCONFINED: Final = design_tokens.UNCONFINED[1].replace(" ", "_")
_COMMAND = re.compile(rf"`anyplug[ ]({'|'.join(CURES)}) ([^`]+)`")


class Cure(msgspec.Struct, frozen=True, kw_only=True):
    """The action of a hint that the API can carry out."""

    action: str
    label: str
    plugin: str
    permissions: tuple[str, ...] = ()


def plugin_id(path: str) -> str:
    """Return the short name of a plugin's folder, which fits into an address."""
    return hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()[:ID_LENGTH]


def find_plugin(snapshot: Snapshot, name: str) -> Entry:
    """Find a plugin by its id or its name; raises PluginNotFound."""
    if len(name) == ID_LENGTH:
        for entry in snapshot.entries:
            if plugin_id(entry.path) == name:
                return entry
    if "/" in name:
        raise PluginNotFound(name, [])
    return snapshot.plugin(name)


def cure_of(hint: str, snapshot: Snapshot) -> Cure | None:
    """Return what the first command in a hint does, if the API can do it."""
    found = _COMMAND.search(hint)
    if found is None:
        return None
    try:
        words = [word for word in shlex.split(found[2]) if not word.startswith("-")]
        entry = snapshot.plugin(words[0])
    except (ValueError, IndexError, PluginNotFound):
        return None
    action, label = CURES[found[1]]
    more = tuple(words[1:]) if action == "grants" else ()
    return Cure(action=action, label=label, plugin=plugin_id(entry.path), permissions=more)


def problem_shape(problem: Problem, snapshot: Snapshot) -> dict[str, Any]:
    """Return a problem, with what cures it."""
    return {
        **json_output.problem_shape(problem),
        "cure": msgspec.to_builtins(cure_of(problem.hint, snapshot)),
    }


def risks(granted: tuple[str, ...]) -> list[str]:
    """Return what a plugin could do at worst, as the names of the page's signs."""
    return [word.replace(" ", "_") for _, word, _ in design_tokens.risks(granted)]


def risks_of(entry: Entry) -> list[str]:
    """Return the same for a plugin as it was approved, or as it asks to be."""
    is_decided = entry.state in {"approved", "changed"}
    found = risks(entry.standing.granted if is_decided else entry.plugin.permissions)
    return [*found, UNCONFINED] if entry.standing.unconfined else found


def entry_shape(entry: Entry, host: Host) -> dict[str, Any]:
    """Return a plugin in a list."""
    plugin = entry.plugin
    places = host.peers.of(plugin) if plugin.stays_up else []
    health = json_output.process_shape(places)["health"] if places else "idle"
    shape = json_output.entry_shape(entry, health)
    shape["problems"] = [problem_shape(problem, host.snapshot) for problem in entry.problems]
    return {
        "id": plugin_id(entry.path),
        **shape,
        "format_title": registry.title(plugin.format) if plugin.format in registry.BY_NAME else plugin.format,
        "stays_up": plugin.stays_up,
        "is_explicit": plugin.explicit,
        "is_builtin": plugin.is_ours,
        "risk": risks_of(entry),
    }


def tool_shape(tool: Tool, entry: Entry, snapshot: Snapshot, *, with_schemas: bool = True) -> dict[str, Any]:
    """Return a tool."""
    return {
        "name": tool.name,
        "model_name": snapshot.model_names.get(tool.name, ""),
        "plugin": tool.plugin,
        "plugin_id": plugin_id(entry.path),
        "format": entry.format,
        "title": tool.title,
        "description": tool.description,
        "input_schema": tool.input_schema if with_schemas else None,
        "output_schema": tool.output_schema if with_schemas else None,
        "tier": entry.plugin.tier,
        "callable": entry.state == "approved",
        "state": entry.state,
        "is_async": tool.is_async,
        "deferred": tool.deferred,
        "namespace": tool.namespace,
        "risk": risks_of(entry),
    }
