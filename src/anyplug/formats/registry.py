"""The formats, in the order in which a folder is looked at."""

import importlib
import os
from collections.abc import Callable
from typing import Any

from anyplug.formats.builtin import format as builtin
from anyplug.formats.cyclop import format as cyclop
from anyplug.formats.mcp import config_file
from anyplug.formats.mcp import format as mcp
from anyplug.formats.shared.contract import Folder, Format, Peer, PeerListener, Terms
from anyplug.formats.stavrobot import format as stavrobot
from anyplug.formats.workbench import format as workbench
from anyplug.formats.zot import format as zot
from anyplug.home.settings import Home
from anyplug.model import tool_names
from anyplug.model.types import Plugin, Problem

FORMATS: tuple[Format, ...] = (cyclop, zot, stavrobot, mcp, workbench)
BY_NAME: dict[str, Format] = {format.NAME: format for format in (*FORMATS, builtin)}


# Whose folders are searched first, and who is offered first.
PRECEDENCE: tuple[Format, ...] = (zot, cyclop, workbench, stavrobot, mcp)
# Configurations of other programs, parts of which are plugins: so far, only those of MCP clients.
load_client = mcp.load_client
client_pieces = config_file.pieces
PLAIN: Format = cyclop  # as what programs run that belong to no plugin: one process, told nothing of ours


def standard_roots(home: Home, project: str) -> list[str]:
    """List the folders that are searched for plugins, first to last, from the project folder outwards."""
    return [
        os.path.join(project, ".anyplug", "plugins"),
        *(os.path.join(project, root) for format in PRECEDENCE for root in format.PROJECT_ROOTS),
        home.plugins,
        *(root for format in PRECEDENCE for root in format.user_roots()),
    ]


def private_places(project: str) -> list[str]:
    """List the folders besides ours that hold nothing but plugins and their data."""
    return [os.path.join(project, ".anyplug"), *(p for format in PRECEDENCE for p in format.private_places(project))]


def title(name: str) -> str:
    """Return what people call a format; a question mark for a folder that is of none."""
    return BY_NAME[name].TITLE if name in BY_NAME else name or "?"


def reserved_by(name: str, format: str) -> str:
    """Say whose a tool's name is, if a plugin of this format may not have it."""
    for other in BY_NAME.values():
        if other.TOOL_PREFIX and name.startswith(other.TOOL_PREFIX) and format != other.NAME:
            return f"a reserved prefix, '{other.TOOL_PREFIX}'"
    owner = next((other for other in BY_NAME.values() if name in other.HOST_TOOLS), None)
    return f"a built-in tool of {owner.TITLE}" if owner is not None else ""


def has_reserved_prefix(name: str) -> bool:
    """Whether a tool's name begins like those of one format only."""
    return any(format.TOOL_PREFIX and name.startswith(format.TOOL_PREFIX) for format in BY_NAME.values())


def command_reserved_by(name: str) -> str:
    """Say whose a slash command's name is, if no plugin may have it."""
    if name in tool_names.OUR_COMMANDS:
        return "a command of anyplug"
    return next(
        (f"a built-in command of {other.TITLE}" for other in BY_NAME.values() if name in other.HOST_COMMANDS), ""
    )


def peer(plugin: Plugin, terms: Terms, listener: PeerListener) -> Peer:
    """Make one run of a plugin that stays up; it is not started yet."""
    made: Peer = _imported(BY_NAME[plugin.format].PEER)(plugin, terms, listener)
    return made


def lint(plugin: Plugin) -> list[Problem]:
    """Look closer at a plugin than reading it does, for those who write it."""
    format = BY_NAME.get(plugin.format)
    return list(_imported(format.LINT)(plugin)) if format is not None and format.LINT else []


def _imported(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def named_files(plugin: Plugin) -> tuple[str, ...]:
    """Name the files of a plugin's folder that count for the digest whatever they look like."""
    return BY_NAME[plugin.format].named_files(plugin)


def load(folder: Folder) -> Plugin | None:
    """Read a folder as what it is; None if it is no plugin."""
    for format in FORMATS:
        if os.path.lexists(f"{folder.path}/{format.MANIFEST}"):
            plugin = format.load(folder)
            if plugin is not None:
                return plugin
    return None


def broken(folder: Folder, message: str, hint: str) -> Plugin:
    """Give an entry for a folder that could not even be looked into."""
    return Plugin(
        name=os.path.basename(folder.found_at),
        format="",
        path=folder.path,
        found_at=folder.found_at,
        explicit=folder.explicit,
        problems=(Problem("bad_manifest", message, hint),),
    )
