"""An immutable snapshot of what is loaded: plugins, their standing, and every name of every tool."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain

import msgspec

from anyplug.catalog import resource_uris
from anyplug.catalog.approvals import Standing
from anyplug.catalog.offers import NOT_RUNNING
from anyplug.formats import registry
from anyplug.model import hints, permissions, tool_names
from anyplug.model.errors import CommandNotFound, PluginNotFound, ToolNotFound
from anyplug.model.types import Command, Plugin, Problem, ServedResource, State, Tool
from anyplug.model.untrusted_text import for_people

MOST_SIMILAR = 3  # names that a message suggests
MOST_NAMES = 4  # of one tool: its own, the full one, the one for agents, and PLUGIN/TOOL
UNSEEN = frozenset({"new", "changed", "denied"})  # states in which nobody has let a plugin start
READER = ".resources/read"  # ends the names of tools that read resources
NAME_TAKEN, SHORT_NAME_TAKEN = "name_taken", "short_name_taken"  # codes of problems
LONGEST_MISTYPED = 200  # characters; comparing a longer name would take a while, and it is not a typo


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin and its standing. Several may have one name; all but the first are shadowed."""

    plugin: Plugin
    standing: Standing
    shadowed_by: str = ""
    on_guard: bool = (
        False  # an approved guard, shadowed by an unapproved plugin or one named with --plugin: it still decides
    )
    problems: tuple[Problem, ...] = ()  # the plugin's own, and conflicts with others
    tools: tuple[Tool, ...] = ()  # without those whose name is taken
    commands: tuple[Command, ...] = ()  # without those whose name is taken

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.plugin.name

    @property
    def format(self) -> str:
        """The plugin's format."""
        return self.plugin.format

    @property
    def path(self) -> str:
        """The plugin's folder."""
        return self.plugin.path

    @property
    def is_down(self) -> bool:
        """Whether it should be running but is not."""
        return any(problem.code == NOT_RUNNING for problem in self.problems)

    @property
    def is_usable(self) -> bool:
        """Whether only a person's approval is missing for its use."""
        return self.state not in {"broken", "disabled"}

    @property
    def state(self) -> State:
        """The plugin's state."""
        return self.standing.state

    def reached(self, hint: str) -> str:
        """Return a hint about the plugin whose commands find it, also if it was named for this run."""
        return hints.for_folder(hint, self.plugin) if self.plugin.explicit else hint


# The host's own tools, which belong to no plugin.
OURS = {
    tool.name: (tool, Entry(plugin=registry.BUILTIN, standing=Standing(state="approved")))
    for tool in registry.BUILTIN.tools
}
# The names that agents use for them, which no plugin may take: agents must be able to rely on them.
OUR_MODEL_NAMES = {tool_names.model_name(full): full for full in OURS}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found, in order of precedence."""

    entries: tuple[Entry, ...]
    owners: dict[str, tuple[Tool, Entry]]  # by full name
    aliases: dict[str, str]  # every other name, with the full name it stands for
    model_names: dict[str, str]  # from the full name to the one that agents see
    commands: dict[str, tuple[Command, Entry]] = {}  # by name, in lower case
    services: dict[str, tuple[Tool, Entry]] = {}  # tools that no list shows, by full name
    resources: tuple[tuple[ServedResource, Tool], ...] = ()  # of approved plugins, each with the tool that reads it
    overruled: dict[str, tuple[Tool, Entry]] = {}  # tools whose own name is taken, by PLUGIN/TOOL, which always works

    @property
    def callable_tools(self) -> list[Tool]:
        """The tools of approved plugins."""
        return [tool for tool, entry in self.owners.values() if entry.state == "approved"]

    def knows(self, name: str) -> bool:
        """Return whether a name is that of a tool, or with a slash, of a command."""
        if name.startswith("/"):
            return name[1:].lower() in self.commands
        return (
            (full := self.full_name(name)) in self.owners
            or full in OURS
            or name in self.overruled
            or name in self.services
        )

    def full_name(self, name: str) -> str:
        """Return the full name of a tool by any of its names; an unknown name is returned unchanged."""
        return name if name in OURS or name in self.owners else self.aliases.get(name, name)

    def name_in_events(self, name: str) -> str:
        """Return the name that guards and those who hear of events know a tool by; an unknown name unchanged."""
        found = self.owners.get(name) or self.overruled.get(name)
        return found[0].ruled_as if found else name

    def tool(self, name: str) -> tuple[Tool, Entry]:
        """Find a tool by any of its names; raises ToolNotFound."""
        full = self.full_name(name)
        found = OURS.get(full) or self.owners.get(full) or self.overruled.get(name) or self.services.get(name)
        if found is None:
            raise self._not_found(name)
        return found

    def callees(self, grants: Iterable[str]) -> dict[str, str]:
        """Return the tools that grants name, each with the folder of the plugin that has it now."""
        named = filter(None, map(permissions.tool_of, grants))
        return {name: self.tool(name)[1].path for name in named if self._has_tool(name)}

    def with_full_names(self, grants: Iterable[str]) -> tuple[str, ...]:
        """Return grants with the full names of the tools they name: a short name may mean another tool later."""
        return tuple(dict.fromkeys(map(self._with_full_name, grants)))

    def _with_full_name(self, grant: str) -> str:
        name = permissions.tool_of(grant)
        if not name or not self._has_tool(name):
            return grant
        tool = self.tool(name)[0]
        return grant if name in tool.names else f"{permissions.CALL}:{tool.name}"

    def _has_tool(self, name: str) -> bool:
        return not name.startswith("/") and self.knows(name)

    def command(self, name: str) -> tuple[Command, Entry]:
        """Find a slash command, whatever its case; raises CommandNotFound."""
        found = self.commands.get(name.removeprefix("/").lower()) or self.command_by_own_name(name)
        if found is None:
            raise CommandNotFound(name, similar_names(name, self.commands), *self._silent())
        return found

    def command_by_own_name(self, name: str) -> tuple[Command, Entry] | None:
        """Find the only slash command that its plugin knows by this name."""
        bare = name.removeprefix("/")
        if registry.command_reserved_by(bare.lower()):
            return None
        named = [one for one in self.commands.values() if one[0].own_name and one[0].own_name == bare]
        return named[0] if len(named) == 1 else None

    def plugin(self, name: str) -> Entry:
        """Find a plugin by its name or by its folder; raises PluginNotFound."""
        for entry in self.entries:
            if entry.plugin.name == name and entry.state != "shadowed":
                return entry
        for entry in self.entries:
            if name.rstrip("/") in {entry.plugin.path, entry.plugin.found_at}:
                return entry
        raise PluginNotFound(name, similar_names(name, [entry.plugin.name for entry in self.entries]))

    def why_absent(self, name: str) -> str:
        """Explain why nothing runs under a plugin's name, and what to do."""
        state = next((entry.state for entry in self.entries if entry.name == name), "")
        return {
            "": "it is not installed",
            "new": f"it is not approved (`anyplug approve {name}`)",
            "denied": f"it was denied (`anyplug approve {name}`)",
            "changed": f"it was changed and has to be approved again (`anyplug approve {name}`)",
            "disabled": f"it is disabled (`anyplug enable {name}`)",
            "broken": f"it is broken (`anyplug show {name}`)",
        }.get(state, f"it is not long-running (`anyplug show {name}`)")

    def compared_to(self, before: "Snapshot", coming_back: Collection[str] = ()) -> str:
        """Summarise in a few lines what is loaded now, and what changed.

        `coming_back` are the paths of plugins that are down only for a moment.
        """
        now, then = set(self.owners), set(before.owners)
        waiting = [entry.name for entry in self.entries if entry.state in {"new", "changed"}]
        facts = {
            "New tools": sorted(now - then),
            "Removed tools": sorted(then - now),
            "Plugins waiting for a person's approval": waiting,
            "Plugins that could not be loaded": [entry.name for entry in self._broken if entry.path not in coming_back],
            "Plugins that ended and are being restarted": [
                entry.name for entry in self._broken if entry.path in coming_back
            ],
        }
        there = f"{_count(len(self.entries), 'plugin')}, {_count(len(self.callable_tools), 'tool')}."
        return "\n".join([there, *(f"{what}: {', '.join(names)}" for what, names in facts.items() if names)])

    @property
    def faults(self) -> list[str]:
        """Return, for each plugin that could not be loaded, the reason in one line."""
        return [
            f"{entry.name}: {' '.join(problem.message.split())}"
            for entry in self.entries
            for problem in entry.problems
            if problem.level == "error" or problem.code == NOT_RUNNING
        ]

    @property
    def _broken(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.state == "broken" or entry.is_down]

    def _not_found(self, name: str) -> ToolNotFound:
        """Return the error for an unknown name: if a plugin declares it, why it is not available."""
        shown, bare = for_people(name), name.removeprefix("/").lower()
        if bare in self.commands:
            return ToolNotFound(shown, [], "that is a command", f"{hints.command('run', f'/{bare}')} runs it")
        several = [f"{tool.plugin}/{name}" for tool, _ in self.owners.values() if tool.own_name == name]
        if several:
            return ToolNotFound(shown, several, f"several plugins have one: {', '.join(several)}")
        similar = self._similar_tools(name)
        if (of := next(self._declaring(name), None)) is not None:
            reason, cure = _why_not_of(of, name)
            return ToolNotFound(shown, [] if cure else similar, reason, of.reached(cure or _tools_of(of)))
        if (entry := next((one for one in self.entries if one.name == name), None)) is not None:
            tools = [tool.name for tool in entry.tools]
            reason, cure = ("that is a plugin", "") if tools else _why_unusable(entry)
            return ToolNotFound(shown, tools[:MOST_SIMILAR], reason, entry.reached(cure))
        return ToolNotFound(shown, similar, *(("", "") if similar else self._silent()))

    def _similar_tools(self, name: str) -> list[str]:
        """Return the names of tools that were probably meant, each tool by the name that is most like it."""
        similar = similar_names(name, {**self.owners, **self.aliases}, MOST_NAMES * MOST_SIMILAR)
        best = {self.full_name(one): one for one in reversed(similar)}
        return [one for one in similar if one in best.values()][:MOST_SIMILAR]

    def _declaring(self, name: str) -> Iterator[Entry]:
        """Yield the plugins that declare a tool of that name, or whose name begins it; shadowed ones last."""
        for entry in sorted(self.entries, key=lambda entry: entry.state == "shadowed"):
            if entry.name == name.partition("/")[0] != name or _declares(entry, name):
                yield entry

    def _silent(self) -> tuple[str, str]:
        """Name the plugins whose tools are unknown, and what to do."""
        silent = [entry for entry in self.entries if _is_silent(entry)]
        named = [
            entry for entry in self.entries if entry.plugin.explicit and (entry.state == "broken" or _is_silent(entry))
        ]
        if len(named) == 1:  # most likely the one that was meant
            reason, cure = _why_unusable(named[0])
            return reason, named[0].reached(cure)
        facts = {
            "these plugins could not be loaded": [entry.name for entry in silent if entry in self._broken],
            "these plugins have registered nothing": [
                entry.name for entry in silent if entry.state == "approved" and not entry.is_down
            ],
            "these plugins are not approved yet": [entry.name for entry in silent if entry.state in UNSEEN],
        }
        reason = "; ".join(f"{what}: {', '.join(names)}" for what, names in facts.items() if names)
        if len(silent) == 1:
            return reason, f"if it is from '{silent[0].name}': {_why_unusable(silent[0])[1]}"
        return reason, f"if it is from one of these: {hints.command('list')} shows what to do" if reason else ""


def _reached(plugin: Plugin, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return problems whose hints find the plugin, also if it was named for this run."""
    if not plugin.explicit:
        return problems
    return tuple(msgspec.structs.replace(one, hint=hints.for_folder(one.hint, plugin)) for one in problems)


def _is_silent(entry: Entry) -> bool:
    """Return whether a plugin's tools are unknown: long-running ones register them only while running."""
    is_read = bool(entry.plugin.mentions) and not registry.BY_NAME[entry.format].PEER
    if entry.state == "broken":
        return not is_read  # otherwise its manifest does not have the name
    has_nothing = not entry.tools and not entry.commands
    return entry.is_down or (entry.plugin.stays_up and has_nothing and entry.state in {*UNSEEN, "approved"})


def _is_named(tool: Tool, name: str) -> bool:
    return name in {*tool.names, tool_names.model_name(tool.name), tool.own_name}


def _declares(entry: Entry, name: str) -> bool:
    """Return whether a plugin declares a tool of that name, as far as can be told, or has a problem with one."""
    plugin, prefixes = entry.plugin, {*name.split(".")[:-1]}
    if name in plugin.mentions or any(_is_named(tool, name) for tool in (*plugin.tools, *plugin.held)):
        return True
    if _left_out(entry, name) is not None:
        return True
    is_silent = entry.state != "approved" or _is_silent(entry)
    servers = {endpoint.name for endpoint in plugin.endpoints}
    return is_silent and not prefixes.isdisjoint({plugin.name, *servers, *plugin.mentions})


def _left_out(entry: Entry, name: str) -> Problem | None:
    """Return the problem of a plugin with a tool of that name, if it has one."""
    tool = name.removeprefix(f"{entry.name}/").removeprefix(f"{entry.name}.")
    quoted = (f"tool '{tool}'", f'tool "{tool}"', f"tool name '{tool}'")
    return next((one for one in entry.problems if any(words in one.message for words in quoted)), None)


def _why_not_of(entry: Entry, name: str) -> tuple[str, str]:
    """Explain why a plugin does not offer a tool, and the fix, unless the name is only mistyped."""
    if entry.state == "shadowed":
        reason = f"plugin '{entry.name}' in {entry.path} has it, but {entry.shadowed_by} has the same name"
        return reason, f"rename or remove one of the two; {hints.command('list')} shows both"
    if any(_is_named(held, name) for held in entry.plugin.held):
        reason = f"it is new since plugin '{entry.name}' was approved, and held back until you approve that again"
        return reason, f"{hints.command('approve', entry.name)} shows it"
    if (problem := _left_out(entry, name)) is not None:
        return f"plugin '{entry.name}': {problem.message}", problem.hint
    if entry.is_down or entry.state != "approved" or not entry.tools:
        return _why_unusable(entry)
    return f"plugin '{entry.name}' has no such tool", ""


def _tools_of(entry: Entry) -> str:
    return f"{hints.command('tools', entry.name)} lists its tools"


def _why_unusable(entry: Entry) -> tuple[str, str]:
    """Explain why a plugin has nothing to call, and the fix."""
    review = hints.review(entry.name)
    match entry.state:
        case "disabled":
            return f"plugin '{entry.name}' is disabled", entry.standing.reason
        case "new":
            return f"plugin '{entry.name}' is not approved yet", review
        case "denied":
            return f"plugin '{entry.name}' was denied", review
        case "changed":
            changes = "; ".join(entry.standing.changes)
            return f"plugin '{entry.name}' changed since it was approved" + (f" ({changes})" if changes else ""), review
    problem = next((one for one in entry.problems if one.level == "error" or one.code == NOT_RUNNING), None)
    says_more = f"{hints.command('show', entry.name)} shows details"
    if problem is None:
        said = "; ".join(one.message for one in entry.problems[-2:])  # the last are those of the running process
        return f"plugin '{entry.name}' has no tools" + (f": {said}" if said else ""), says_more
    how = " is broken" if entry.state == "broken" else ""
    return f"plugin '{entry.name}'{how}: {problem.message}", problem.hint if problem.level == "error" else says_more


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def similar_names(name: str, known: Iterable[str], most: int = MOST_SIMILAR) -> list[str]:
    """Find similar names, the most similar first."""
    if len(name) > LONGEST_MISTYPED:
        return []
    from difflib import get_close_matches  # only needed after a typo

    return get_close_matches(name, list(known), n=most)


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
