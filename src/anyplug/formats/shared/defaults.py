"""The default behaviour of a format.

Our own formats reuse single functions, `prepare = defaults.prepare`. A third-party format begins with `from
anyplug.formats.shared.defaults import *`, so that it has whatever the contract requires in a later version.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anyplug.model import schema

if TYPE_CHECKING:
    from anyplug.formats.shared.contract import Surroundings
    from anyplug.formats.shared.new_plugins import NewPlugin
    from anyplug.home.settings import Arguments, Home
    from anyplug.model.types import Call, Off, Plugin, Tool

__all__ = [
    "ARGUMENTS", "CONTENT_IS_BLOCKS", "DESCRIBES_ITSELF", "EVERY_FILE_COUNTS", "HOST_COMMANDS", "HOST_TOOLS",
    "INHERITS_ENVIRONMENT", "LINT", "NAMES_PLUGINS", "NEW", "PEER", "PROJECT_ROOTS", "RUNS_IN_PROJECT", "TOOL_PREFIX",
    "WRITES_ASIDE", "WRITES_BESIDE_ITSELF", "data", "environment", "named_files", "prepare", "private_places",
    "programs", "readable", "ready", "switched_off", "user_roots", "violations",
]  # fmt: skip

PROJECT_ROOTS: tuple[str, ...] = ()
ARGUMENTS: "Arguments" = "strict"
EVERY_FILE_COUNTS = True
WRITES_BESIDE_ITSELF = False
WRITES_ASIDE = False
RUNS_IN_PROJECT = False
INHERITS_ENVIRONMENT = False
DESCRIBES_ITSELF = True
CONTENT_IS_BLOCKS = False
TOOL_PREFIX = ""
NAMES_PLUGINS = False
HOST_TOOLS: frozenset[str] = frozenset()
HOST_COMMANDS: frozenset[str] = frozenset()
PEER = ""
LINT = ""
NEW: "NewPlugin | None" = None


def violations(tool: "Tool", arguments: dict[str, Any]) -> list[str]:
    """Check against the tool's JSON Schema."""
    return schema.violations(tool.input_schema, arguments)


def switched_off(plugin: "Plugin") -> "Off | None":
    """Return None: its files switch nothing off."""
    return None


def environment(plugin: "Plugin", home: "Home", users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
    """Return the user's environment, with our Node and uv first in the PATH."""
    return {
        **users,
        "PATH": f"{home.bin}:{users.get('PATH', os.defpath)}",
        "PYTHONPYCACHEPREFIX": os.path.join(home.cache(plugin), "pycache"),
    }


def data(plugin: "Plugin", home: "Home") -> str:
    """Return its data folder in the home folder."""
    return home.data(plugin)


def readable(plugin: "Plugin") -> tuple[str, ...]:
    """Return nothing: its programs need only what all programs need."""
    return ()


def named_files(plugin: "Plugin") -> tuple[str, ...]:
    """Return nothing: the type of a file tells whether it counts."""
    return ()


def programs(plugin: "Plugin", variables: Mapping[str, str] | None, project: str) -> list[str]:
    """Return nothing: it has no long-running programs."""
    return []


def user_roots() -> tuple[str, ...]:
    """Return nothing: its users have no folder of their own for plugins."""
    return ()


def private_places(project: str) -> tuple[str, ...]:
    """Return nothing: the folders of its plugins may contain other things."""
    return ()


async def ready(call: "Call", around: "Surroundings") -> None:
    """Look at nothing: once it is set up, it stays so."""


async def prepare(plugin: "Plugin", around: "Surroundings") -> str:
    """Do nothing."""
    return ""
