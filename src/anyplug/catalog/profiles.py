"""Views: which plugins, tools and commands a caller sees, and how many at once.

A view is a profile of `settings.toml`, or everything. It affects listing and lookup; what may run is decided elsewhere.
Changing a view starts and ends no process.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from anyplug.catalog.snapshot import OURS, Entry, Snapshot, similar_names
from anyplug.formats import registry
from anyplug.home.settings import Home, Profile, Surface
from anyplug.model.errors import CommandNotFound, ConfigError, ToolNotFound
from anyplug.model.types import Command, ServedResource, Tool
from anyplug.model.untrusted_text import for_people

NOTHING = Profile(plugins=())


class View:
    """What one caller sees. `refresh` follows changes of its profile."""

    def __init__(
        self, home: Home, profile: str = "", surface: Surface | None = None, *, workspace: bool = False
    ) -> None:
        """Use a profile, or everything; `surface` overrides the profile's.

        The chat's own tools are shown with `workspace`, or if the profile names their plugin.

        Raises ConfigError if there is no such profile.
        """
        self.name = profile
        self.version = 0  # grows with each change
        self._activated: set[str] = set()  # the deferred tools that are shown by now, by full name
        self._home = home
        self._has_workspace = workspace
        self._surface = surface
        self._stamp = home.settings_stamp()
        self._profile = self._read()

    @property
    def surface(self) -> Surface:
        """How many tools to show."""
        return self._surface or self._profile.surface

    def refresh(self) -> None:
        """Read the profile again if the settings have changed.

        Settings that cannot be read change nothing; a profile that was removed shows nothing.
        """
        stamp = self._home.settings_stamp()
        if not self.name or stamp == self._stamp:
            return
        self._stamp = stamp
        before = self._profile
        try:
            self._profile = self._read()
        except ProfileNotFound:
            self._profile = NOTHING
        except ConfigError:
            return
        self.version += self._profile != before

    def has_tool(self, tool: Tool, snapshot: Snapshot) -> bool:
        """Return whether a tool is visible, by any of its names; the one for jobs, where there may be jobs."""
        if tool.name == registry.JOB:
            return any(seen.is_async and self.has_tool(seen, snapshot) for seen, _ in snapshot.owners.values())
        names = (tool.name, f"{tool.plugin}/{tool.own_name}", snapshot.model_names.get(tool.name, tool.name))
        return self._has(tool.plugin, names)

    def has_job_of(self, name: str, lineage: str, snapshot: Snapshot) -> bool:
        """Return whether the jobs of a plugin's tool are visible, by its full name; the tool itself may be gone."""
        owner = OURS.get(name) or snapshot.owners.get(name)
        if owner is not None and owner[1].plugin.lineage == lineage:
            return self.has_tool(owner[0], snapshot)
        return not self._is_limited and snapshot.has_maker(name, lineage)

    def has_command(self, command: Command) -> bool:
        """Return whether a slash command is visible."""
        return self._has(command.plugin, (f"/{command.name}",))

    def has_plugin(self, name: str) -> bool:
        """Return whether anything of a plugin may be visible."""
        return self._profile.plugins is None or name in self._profile.plugins

    def knows(self, entry: Entry, snapshot: Snapshot) -> bool:
        """Return whether a plugin is visible: if the profile selects tools, only with one of its own."""
        if self._profile.tools is None:
            return self.has_plugin(entry.name)
        return any(self.has_tool(tool, snapshot) for tool in entry.tools) or any(map(self.has_command, entry.commands))

    def tools(self, snapshot: Snapshot) -> list[tuple[Tool, Entry]]:
        """List the visible callable tools; the host's own tools come last."""
        offered = [
            (tool, entry)
            for tool, entry in snapshot.owners.values()
            if entry.state == "approved" and not entry.standing.hides(tool)
        ]
        return [(tool, entry) for tool, entry in [*offered, *OURS.values()] if self.has_tool(tool, snapshot)]

    def shows(self, tool: Tool) -> bool:
        """Return whether a visible tool is listed: a deferred one only once it was activated."""
        return not tool.deferred or tool.name in self._activated

    def activate(self, names: Iterable[str], snapshot: Snapshot) -> bool:
        """Show deferred tools from now on, by any of their names; return whether that changed anything."""
        wanted = {snapshot.full_name(name) for name in names}
        new = {tool.name for tool, _ in self.tools(snapshot) if tool.name in wanted and not self.shows(tool)}
        self._activated |= new
        self.version += bool(new)
        return bool(new)

    def commands(self, snapshot: Snapshot) -> list[tuple[Command, Entry]]:
        """List the visible slash commands that can run."""
        return [
            (command, entry)
            for command, entry in snapshot.commands.values()
            if entry.state == "approved" and self.has_command(command)
        ]

    def resources(self, snapshot: Snapshot) -> list[tuple[ServedResource, Tool]]:
        """List the visible resources and templates, each with the tool that reads it."""
        return [(one, tool) for one, tool in snapshot.resources if self.has_tool(tool, snapshot)]

    def tool(self, snapshot: Snapshot, name: str) -> tuple[Tool, Entry]:
        """Find a tool by any of its names; raises ToolNotFound, also for one that is not visible."""
        try:
            tool, entry = snapshot.tool(name)
        except ToolNotFound:
            if not self._is_limited:
                raise
            tool = None
        if tool is None or not self.has_tool(tool, snapshot) or entry.standing.hides(tool):
            # The snapshot's own message would name tools that this caller does not see.
            raise ToolNotFound(for_people(name), similar_names(name, (seen.name for seen, _ in self.tools(snapshot))))
        return tool, entry

    def command(self, snapshot: Snapshot, name: str) -> tuple[Command, Entry]:
        """Find a slash command; raises CommandNotFound, also for one that is not visible."""
        found = snapshot.commands.get(name.removeprefix("/").lower()) or snapshot.command_by_own_name(name)
        if found is None or not self.has_command(found[0]):
            seen = [command.name for command, _ in self.commands(snapshot)]
            raise CommandNotFound(for_people(name), similar_names(name, seen))
        return found

    @property
    def _is_limited(self) -> bool:
        return self._profile.plugins is not None or self._profile.tools is not None

    def _has(self, plugin: str, names: Iterable[str]) -> bool:
        patterns = self._profile.tools
        if plugin == registry.WORKSPACE.name and not self._has_workspace:
            named = self._profile.plugins or ()
            return plugin in named and (patterns is None or _fits(names, patterns))
        return self.has_plugin(plugin) and (patterns is None or _fits(names, patterns))

    def _read(self) -> Profile:
        if not self.name:
            return Profile()
        known = self._home.read_settings().profiles
        if self.name not in known:
            raise ProfileNotFound(self.name, sorted(known))
        return known[self.name]


def _fits(names: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


class ProfileNotFound(ConfigError):
    """No profile has that name."""

    def __init__(self, name: str, known: list[str]) -> None:
        there = f"the profiles are {', '.join(known)}" if known else "there are no profiles"
        super().__init__(
            f"no profile is named '{name}'", (f"{there}; define profiles in settings.toml under [profiles.NAME]")
        )
