"""The formats, in the order in which a folder is looked at."""

import os

from anyplug.formats.builtin import format as builtin
from anyplug.formats.cyclop import format as cyclop
from anyplug.formats.mcp import format as mcp
from anyplug.formats.shared.contract import Folder, Format
from anyplug.formats.stavrobot import format as stavrobot
from anyplug.formats.workbench import format as workbench
from anyplug.formats.zot import format as zot
from anyplug.model import tool_names
from anyplug.model.types import Plugin, Problem

FORMATS: tuple[Format, ...] = (cyclop, zot, stavrobot, mcp, workbench)
BY_NAME: dict[str, Format] = {format.NAME: format for format in (*FORMATS, builtin)}


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
