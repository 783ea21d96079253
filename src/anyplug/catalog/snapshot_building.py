"""Build a snapshot: which plugin a name belongs to, and the conflicts that follow."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

import msgspec

from anyplug.catalog import resource_uris
from anyplug.catalog.approvals import Standing
from anyplug.catalog.snapshot import NAME_TAKEN, OUR_MODEL_NAMES, OURS, SHORT_NAME_TAKEN, Entry, Snapshot
from anyplug.formats import registry
from anyplug.model import hints, permissions, tool_names
from anyplug.model.types import Command, Plugin, Problem, ServedResource, Tool

READER = ".resources/read"  # ends the names of tools that read resources


def build(plugins: list[Plugin], standing_of: Callable[[Plugin], Standing]) -> Snapshot:
    """Build a snapshot. The first plugin of a name wins; a tool's name belongs to the plugin approved first."""
    winners: dict[str, Plugin] = {}
    for plugin in plugins:
        winners.setdefault(plugin.name, plugin)
    standings = {
        name: Standing(state="broken") if plugin.is_broken else standing_of(plugin) for name, plugin in winners.items()
    }
    owners: dict[str, tuple[Tool, Entry]] = {}
    overruled: dict[str, tuple[Tool, Entry]] = {}
    commands: dict[str, tuple[Command, Entry]] = {}
    won: dict[str, Entry] = {}
    agents: dict[str, Tool] = {}  # what agents call the tools of approved plugins: theirs, as much as the full names
    short: dict[str, Tool | None] = {}  # short names of tools that were approved earlier; None if several have it
    for name in sorted(winners, key=lambda name: _claim(winners[name], standings[name])):
        plugin, standing = winners[name], standings[name]
        tools, others, problems = _free_tools(plugin, owners, agents, winners)
        free_commands, more_problems = _free_commands(plugin, commands)
        problems += _taken_short_names(tools, short)
        entry = won[name] = Entry(
            plugin=plugin,
            standing=standing,
            problems=_reached(plugin, (*plugin.problems, *problems, *more_problems, *_ungranted(plugin, standing))),
            tools=tools,
            commands=free_commands,
        )
        owners.update((tool.name, (tool, entry)) for tool in tools)
        if entry.state == "approved":
            agents.update((tool_names.model_name(tool.name), tool) for tool in tools)
        if standing.since:
            for one in tools:
                short.update((known, None if known in short else one) for known in _short_names(one))
        overruled.update((tool.name, (tool, entry)) for tool in others)
        commands.update((command.name.lower(), (command, entry)) for command in free_commands)
    entries: list[Entry] = []
    on_duty: set[str] = set()  # the names under which something approved runs
    for plugin in plugins:
        entry = won[plugin.name]
        if entry.plugin is not plugin:
            entry = _shadowed(plugin, entry, standing_of, on_duty)
        entries.append(entry)
        # A folder named for one run does not replace a guard: the user who names it may not know that there is one.
        is_on_duty = entry.on_guard or (entry.state == "approved" and not plugin.explicit)
        on_duty |= {plugin.name} if is_on_duty else set()
    model_names = _model_names(OURS | owners)
    services: dict[str, tuple[Tool, Entry]] = {}
    for entry in won.values():  # in the order of their claims
        for tool in entry.plugin.services:
            services.setdefault(tool.name, (tool, entry))
    return Snapshot(
        entries=tuple(entries),
        owners={tool.name: owners[tool.name] for name in winners for tool in won[name].tools},
        model_names=model_names,
        aliases=_aliases(OURS | owners, model_names),
        commands=commands,
        overruled=overruled,
        services=services,
        resources=_resources(won.values()),
    )


def _resources(entries: Iterable[Entry]) -> tuple[tuple[ServedResource, Tool], ...]:
    """Return the resources that can be read, in the order of their plugins' claims.

    What an earlier plugin may mean by its URIs stays its own: later ones get URIs that name plugin and server.
    """
    found: dict[str, tuple[ServedResource, Tool]] = {}
    for entry in entries:
        earlier = [one for one, _ in found.values()]
        readers = {tool.process: tool for tool in entry.plugin.services if tool.own_name.endswith(READER)}
        for one in entry.plugin.resources if entry.state == "approved" else ():
            reader = readers.get(one.process)
            is_free = one.uri not in found and resource_uris.is_free(one, earlier)
            uri = one.uri if is_free else f"{resource_uris.OURS}{entry.name}/{one.process}/{one.own_uri}"
            if reader is not None and uri not in found:
                found[uri] = msgspec.structs.replace(one, uri=uri), reader
    return tuple(found.values())


def _claim(plugin: Plugin, standing: Standing) -> tuple[int, float]:
    """Rank the claims to a name: plugins named for this run first, then by age of the approval, then the fleet's.

    So a newly added plugin cannot take over a tool that people and agents rely on.
    """
    if plugin.explicit:
        return 0, 0.0
    if plugin.in_fleet:  # what is on this machine wins
        return (2, standing.since) if standing.since else (4, 0.0)
    return (1, standing.since) if standing.since else (3, 0.0)


def _shadowed(plugin: Plugin, winner: Entry, standing_of: Callable[[Plugin], Standing], on_duty: set[str]) -> Entry:
    """Return the entry of a shadowed plugin; an approved guard stays active unless something approved shadows it."""
    is_free = bool(plugin.intercepts) and plugin.name not in on_duty
    return Entry(
        plugin=plugin,
        standing=Standing(state="shadowed"),
        shadowed_by=winner.path,
        on_guard=is_free and standing_of(plugin).state == "approved",
        problems=plugin.problems,
    )


def _ungranted(plugin: Plugin, standing: Standing) -> list[Problem]:
    """List the permissions over other plugins that an approved plugin wants to use but was not granted."""
    if not (plugin.intercepts or plugin.events):
        return []
    wanted = {
        permissions.GUARD: [event for event in plugin.intercepts if event != "before_agent_start"],
        permissions.REWRITE_TEXT: [event for event in plugin.intercepts if event == "before_agent_start"],
        permissions.OBSERVE: [event for event in plugin.events if event != "session_start"],
    }
    return [
        Problem(
            "not_granted",
            f"it wants to {'be told of' if needed == permissions.OBSERVE else 'decide about'} {', '.join(events)}, "
            f"but was not granted {needed}",
            f"`anyplug grant {plugin.name} {needed}`",
            "warning",
        )
        for needed, events in wanted.items()
        if events and standing.state == "approved" and not permissions.may(standing.granted, needed)
    ]


def _free_tools(
    plugin: Plugin, owners: dict[str, tuple[Tool, Entry]], agents: dict[str, Tool], plugins: Mapping[str, Plugin]
) -> tuple[tuple[Tool, ...], list[Tool], list[Problem]]:
    """Keep the tools whose names are free; of the others, return those reachable as PLUGIN/TOOL, and the conflicts."""
    free: list[Tool] = []
    overruled: list[Tool] = []
    problems: list[Problem] = []
    mine: set[str] = set()
    for tool in plugin.tools:
        taken = owners[tool.name][0] if tool.name in owners else agents.get(tool.name)
        owner = plugin.name if tool.name in mine else taken.plugin if taken is not None else ""
        owner = owner or _claimed_by(tool.name, plugin, plugins)
        reserved = _reserved_by(tool.name, plugin.format)
        is_refused = bool(reserved) and registry.has_reserved_prefix(tool.name)
        if reserved:
            left = "left out" if is_refused else "not listed"
            message = f"the tool '{tool.name}' is {left}: the name belongs to {reserved}"
        elif owner:
            message = (
                f"Duplicate tool name '{tool.name}' from plugin '{plugin.name}': the name belongs to plugin '{owner}'"
            )
        else:
            free.append(tool)
            mine.add(tool.name)
            continue
        cure = "rename the tool; the plugin's other tools work"
        own = f"{plugin.name}/{tool.own_name}"
        if not is_refused and owner != plugin.name and own not in {other.name for other in overruled}:
            cure = f"call it '{own}', or rename it"
            overruled.append(msgspec.structs.replace(tool, name=own, taken_name=tool.name))
        problems.append(Problem(NAME_TAKEN, message, cure, "warning"))
    return tuple(free), overruled, problems


def _taken_short_names(tools: Iterable[Tool], meant: dict[str, Tool | None]) -> list[Problem]:
    """Report the full names that were short for a tool of a plugin that was approved earlier."""
    return [
        Problem(
            SHORT_NAME_TAKEN,
            f"the name of its tool '{tool.name}' is no longer short for '{old.name}' of plugin '{old.plugin}'",
            f"write '{old.name}' where you call that one by its short name",
            "warning",
        )
        for tool in tools
        if (old := meant.get(tool.name) or meant.get(tool_names.model_name(tool.name))) is not None
    ]


def _short_names(tool: Tool) -> set[str]:
    """Return the names of a tool that work while no other tool has them."""
    return {tool.own_name, _within_process(tool)} - {tool.name}


def _reserved_by(name: str, format: str) -> str:
    if name in OUR_MODEL_NAMES:
        return f"a tool of anyplug, {OUR_MODEL_NAMES[name]}"
    return registry.reserved_by(name, format)


def _claimed_by(name: str, plugin: Plugin, plugins: Mapping[str, Plugin]) -> str:
    """Return the other plugin that has a tool for which this name is its PLUGIN/TOOL name."""
    other = plugins.get(name.partition("/")[0]) if "/" in name else None
    if other is None or other is plugin:
        return ""
    return other.name if any(name in _qualified(tool, other) for tool in other.tools) else ""


def _qualified(tool: Tool, plugin: Plugin) -> Iterator[str]:
    """Yield the names of a tool that begin with its plugin's, the exact one first."""
    yield f"{tool.plugin}/{tool.own_name}"
    if len(plugin.endpoints) == 1:  # the only server of a plugin can be omitted
        yield f"{tool.plugin}/{tool.own_name.removeprefix(f'{tool.process}.')}"


def _within_process(tool: Tool) -> str:
    """Return a tool's name as its MCP server knows it."""
    return tool.own_name.removeprefix(f"{tool.process}.") if tool.process else tool.own_name


def _free_commands(
    plugin: Plugin, owners: dict[str, tuple[Command, Entry]]
) -> tuple[tuple[Command, ...], list[Problem]]:
    """Keep the commands whose names are free, and report the owner of each other name."""
    free: list[Command] = []
    problems: list[Problem] = []
    for command in plugin.commands:
        owner = owners.get(command.name.lower())
        reserved = registry.command_reserved_by(command.name.lower())
        taken_by = reserved or (f"plugin '{owner[0].plugin}'" if owner else "")
        if not taken_by:
            free.append(command)
            continue
        message = f"the command '/{command.name}' of plugin '{plugin.name}' is shadowed: the name belongs to {taken_by}"
        problems.append(
            Problem(NAME_TAKEN, message, ("rename the command; the plugin's other commands work"), "warning")
        )
    return tuple(free), problems


def _model_names(owners: dict[str, tuple[Tool, Entry]]) -> dict[str, str]:
    """Map full names to names for agents: valid names stay; among colliding ones, later ones get a suffix."""
    given = {full: full for full in owners if tool_names.model_name(full) == full}
    taken = set(given)
    for full in owners:
        if full not in given:
            given[full] = tool_names.model_name(full, taken)
            taken.add(given[full])
    return {full: given[full] for full in owners}


def _aliases(owners: dict[str, tuple[Tool, Entry]], model_names: dict[str, str]) -> dict[str, str]:
    """Return the other names of all tools. Names that always work come before those that work while unambiguous."""
    bare = Counter(tool.own_name for tool, _ in owners.values())
    barest = Counter(_within_process(tool) for tool, _ in owners.values())
    qualified = [(full, list(_qualified(tool, entry.plugin))) for full, (tool, entry) in owners.items()]
    ranked = chain(
        ((called[0], full) for full, called in qualified),  # ours come first, whatever a plugin is called
        ((model_name, full) for full, model_name in model_names.items()),
        ((short, full) for full, called in qualified for short in called[1:]),
        ((tool.own_name, full) for full, (tool, _) in owners.items() if bare[tool.own_name] == 1),
        ((_within_process(tool), full) for full, (tool, _) in owners.items() if barest[_within_process(tool)] == 1),
    )
    aliases: dict[str, str] = {}
    for name, full in ranked:
        if name not in aliases and (full in OURS or not _reserved_by(name, owners[full][1].format)):
            aliases[name] = full
    return aliases


def _reached(plugin: Plugin, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return problems whose hints find the plugin, also if it was named for this run."""
    if not plugin.explicit:
        return problems
    return tuple(msgspec.structs.replace(one, hint=hints.for_folder(one.hint, plugin)) for one in problems)
