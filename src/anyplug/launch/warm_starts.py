"""Start interpreters ahead of a plugin's calls: in its room, with its /tmp, if its environment is unchanged.

A waiting interpreter must not run anything that the plugin arranged: a one-shot plugin runs only during its calls.
"""

import functools
import os
from collections.abc import Mapping

from anyplug.formats import registry
from anyplug.formats.shared import scripts
from anyplug.home import plugin_logs
from anyplug.home.settings import Home, Settings, WarmSettings
from anyplug.launch.sandbox_rooms import Room
from anyplug.model.types import Plugin
from anyplug.runtime.processes.program import Program
from anyplug.runtime.runner import Runner
from anyplug.runtime.warm import interpreters
from anyplug.runtime.warm.interpreters import Cold, Interpreter
from anyplug.runtime.warm.pool import Kept, Pool, Source

MIB = 1 << 20
USER_LIB, SITE_PACKAGES = ".local/lib", "site-packages"
LEAST_MEMORY, FEWEST_PROCESSES = 1 << 30, 128  # limits of a plugin, of which waiting interpreters take a small part
TOO_TIGHT = "interpreters that wait would use up its limits of memory or processes"
NEEDS_TMP = "its calls take turns on one folder in /tmp"
OWN_INTERPRETER = "its interpreter is in a folder that it can write to"
OWN_MODULES = "it has put Python modules into its home folder, which an interpreter may load when it starts"
SWITCHED_OFF = "[warm] in settings.toml turns it off"


def foreseen(plugin: Plugin, home: Home, settings: Settings, users: Mapping[str, str]) -> dict[str, str]:
    """Return, for each program of a plugin's one-shot tools, why it is started with each call; empty if ahead of it.

    As far as its first line and the environment show. What is found out later is in the plugin's log.
    """
    if plugin.stays_up:
        return {}
    variables = registry.BY_NAME[plugin.format].environment(plugin, home, dict(users), frozenset())
    found = {}
    for path in dict.fromkeys(tool.program for tool in plugin.tools if tool.program):
        by = interpreters.examine(Program(argv=scripts.command(path), cwd=plugin.path, env=variables))
        is_off = not settings.warm.enabled or not settings.warm.budget_mb
        why = by.reason if isinstance(by, Cold) else SWITCHED_OFF if is_off else ""
        if isinstance(by, Interpreter) and by.by_uv and not why and settings.is_confining:
            notes = scripts.notes(home, plugin)
            fetched = variables.get("UV_CACHE_DIR")  # formats with one resolve ahead of calls
            is_to_come = fetched is not None and not scripts.is_fetched(fetched)
            why = "" if is_to_come else scripts.why_unsure(path, variables, notes)
        found[os.path.relpath(path, plugin.path)] = why
    return found


class WarmStarts:
    """Connects the rooms of plugins with the pool of waiting interpreters."""

    def __init__(self, pool: Pool, home: Home, runner: Runner, *, is_learning: bool) -> None:
        """While learning, each call must show everything that it does, so nothing is started ahead."""
        self.pool = pool
        self._home = home
        self._runner = runner
        self._is_learning = is_learning

    def follow(self, settings: WarmSettings) -> None:
        """Use new settings from now on."""
        self.pool.follow(enabled=settings.enabled, budget=settings.budget_mb * MIB)

    def begin(self, plugin: Plugin, program: Program, room: Room) -> Kept | None:
        """Report a call; return an interpreter that waits for it, if there is one. `pool.end` must follow."""
        if program.purpose != "run":
            self.pool.keep_only(lambda group: group != plugin.path)  # what they load is about to change
        is_off = self._is_learning or program.purpose != "run" or bool(program.trace)
        return self.pool.begin(
            (plugin.path, program.argv, program.cwd),
            program,
            room.spawn,
            lambda: self._source(plugin, program, room),
            is_off=is_off,
        )

    def _source(self, plugin: Plugin, program: Program, room: Room) -> Source:
        make_tmp = None
        if program.private_tmp and room.has_own_tmp and not room.is_granted_tmp:
            make_tmp = functools.partial(self._runner.private_tmp, program.private_tmp, has_own=True)
        return Source(
            group=plugin.path,
            spawn=room.spawn,
            is_current=lambda: room.is_usable and not room.is_stale,
            make_tmp=make_tmp,
            fault=functools.partial(self._fault, plugin, program, room, make_tmp is not None),
            stamp=functools.partial(self._stamp, plugin, program),
            tell=functools.partial(plugin_logs.append, self._home.log(plugin), "its interpreter is not started ahead"),
        )

    def _fault(self, plugin: Plugin, program: Program, room: Room, has_tmp: bool, by: Interpreter) -> str:
        """Return why an interpreter must not be started ahead now; empty if it may."""
        if program.private_tmp and not has_tmp:
            return NEEDS_TMP
        profile = room.confined.profile if room.confined is not None else None
        if profile is None:
            return ""
        if profile.limits.memory < LEAST_MEMORY or profile.limits.processes < FEWEST_PROCESSES:
            return TOO_TIGHT
        own = tuple(f"{os.path.realpath(path)}/" for path in profile.measured if path != plugin.path)
        if by.path.startswith(own):
            return OWN_INTERPRETER
        if by.kind == "python":
            user = os.path.realpath(program.env.get("PYTHONUSERBASE") or program.env.get("HOME") or "/")
            if f"{user}/".startswith(own) and _may_have_modules(user):
                return OWN_MODULES
        if by.by_uv:
            return scripts.why_unsure(program.argv[-1], program.env, scripts.notes(self._home, plugin))
        return ""

    def _stamp(self, plugin: Plugin, program: Program) -> object:
        return scripts.resolved_at(program.argv[-1], program.env, scripts.notes(self._home, plugin))


def _may_have_modules(user: str) -> bool:
    """Return whether a home folder has modules of its own for Python, or hides that it has."""
    lib = os.path.join(user, USER_LIB)
    try:
        return any(os.path.lexists(os.path.join(lib, name, SITE_PACKAGES)) for name in os.listdir(lib))
    except FileNotFoundError:
        return os.path.lexists(lib)  # a link
    except OSError:
        return True
