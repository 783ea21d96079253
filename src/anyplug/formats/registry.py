"""The formats, in the order in which a folder is looked at."""

import os

from anyplug.formats.builtin import format as builtin
from anyplug.formats.cyclop import format as cyclop
from anyplug.formats.mcp import format as mcp
from anyplug.formats.shared.contract import Folder, Format
from anyplug.formats.stavrobot import format as stavrobot
from anyplug.formats.workbench import format as workbench
from anyplug.formats.zot import format as zot
from anyplug.model.types import Plugin, Problem

FORMATS: tuple[Format, ...] = (cyclop, zot, stavrobot, mcp, workbench)
BY_NAME: dict[str, Format] = {format.NAME: format for format in (*FORMATS, builtin)}


def title(name: str) -> str:
    """Return what people call a format; a question mark for a folder that is of none."""
    return BY_NAME[name].TITLE if name in BY_NAME else name or "?"


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
