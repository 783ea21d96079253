"""An immutable snapshot of what is loaded: plugins, their standing, and every name of every tool."""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from anyplug.catalog.approvals import Standing
from anyplug.catalog.offers import NOT_RUNNING
from anyplug.formats import registry
from anyplug.model import hints, permissions, tool_names
from anyplug.model.errors import CommandNotFound, PluginNotFound, ToolNotFound
from anyplug.model.types import IN_FLEET, Command, Plugin, Problem, ServedResource, State, Tool
from anyplug.model.untrusted_text import for_people

MOST_SIMILAR = 3  # names that a message suggests
MOST_NAMES = 4  # of one tool: its own, the full one, the one for agents, and PLUGIN/TOOL
UNSEEN = frozenset({"new", "changed", "denied"})  # states in which nobody has let a plugin start
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

    def has_maker(self, tool: str, lineage: str) -> bool:
        """Return whether the plugin that made a job or kept result is here, in whatever version.

        The fleet's are, even if no worker offers them now; so are we.
        """
        if tool in OURS or lineage.startswith(IN_FLEET):
            return True
        return any(entry.plugin.lineage == lineage for entry in self.entries)

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
