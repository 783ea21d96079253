"""The formats, in the order in which a folder is tried."""

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from anyplug.formats.builtin import format as builtin
from anyplug.formats.cyclop import format as cyclop
from anyplug.formats.mcp import config_file
from anyplug.formats.mcp import format as mcp
from anyplug.formats.shared.contract import Folder, Format, Peer, PeerListener, Terms
from anyplug.formats.stavrobot import format as stavrobot
from anyplug.formats.workbench import format as workbench
from anyplug.formats.workspace import format as workspace
from anyplug.formats.zot import format as zot
from anyplug.home.settings import Home
from anyplug.model import tool_names
from anyplug.model.errors import ConfigError
from anyplug.model.types import Plugin, Problem

FORMATS: tuple[Format, ...] = (cyclop, zot, stavrobot, mcp, workbench)
BY_NAME: dict[str, Format] = {format.NAME: format for format in (*FORMATS, builtin, workspace)}  # and imported ones
_OURS = frozenset(BY_NAME)


# In which order folders are searched and formats offered.
PRECEDENCE: tuple[Format, ...] = (zot, cyclop, workbench, stavrobot, mcp)
# Configurations of other programs that contain plugins: so far, only those of MCP clients.
load_client = mcp.load_client
client_pieces = config_file.pieces
BUILTIN: Plugin = builtin.PLUGIN  # the host's own tools, which lie in no folder
WORKSPACE: Plugin = workspace.PLUGIN  # the chat's own tools, for those that ask for them
READ_RESULT: str = builtin.READ_RESULT.name  # the one that reads the rest of what was too long for them
JOB: str = builtin.JOB.name  # the one that agents ask for the results of asynchronous tools
BUILTIN_READING = builtin.READING  # the names of those that change nothing
# The formats that read few files of a plugin, and the same ones each time.
_FILES_READ = {cyclop.NAME: cyclop.files_read, zot.NAME: zot.files_read}
READERS: tuple[str, ...] = (__file__, cyclop.__file__, zot.__file__)  # the code that reads them
PLAIN: Format = cyclop  # for programs that belong to no plugin: one process, without variables of ours


def bring(names: Sequence[str]) -> list[ConfigError]:
    """Import the third-party formats that a person named; return why some of them are invalid."""
    faults = []
    for name in names:
        if name in BY_NAME:
            continue
        from anyplug.formats import distributions  # takes 20 ms to import, and few people name a format

        try:
            BY_NAME[name] = distributions.bring(name)
        except ConfigError as fault:
            faults.append(fault)
    return faults


def others(names: Sequence[str]) -> tuple[Format, ...]:
    """Return the imported third-party formats of these names."""
    return tuple(BY_NAME[name] for name in dict.fromkeys(names) if name in BY_NAME and name not in _OURS)


def standard_roots(home: Home, project: str, names: Sequence[str] = ()) -> list[str]:
    """List the folders that are searched for plugins, first to last, from the project folder outwards.

    `names` are the third-party formats that a person named.
    """
    formats = (*PRECEDENCE, *others(names))
    return [
        os.path.join(project, ".anyplug", "plugins"),
        *(os.path.join(project, root) for format in formats for root in format.PROJECT_ROOTS),
        home.plugins,
        *(root for format in formats for root in format.user_roots()),
    ]


def private_places(project: str, names: Sequence[str] = ()) -> list[str]:
    """List the folders besides ours that contain only plugins and their data."""
    formats = (*PRECEDENCE, *others(names))
    return [os.path.join(project, ".anyplug"), *(place for one in formats for place in one.private_places(project))]


def title(name: str) -> str:
    """Return a format's title; a question mark for a folder of no format."""
    return BY_NAME[name].TITLE if name in BY_NAME else name or "?"


def reserved_by(name: str, format: str) -> str:
    """Return who owns a tool's name, if a plugin of this format may not have it."""
    prefixes, tools = _reserved(len(BY_NAME))  # formats are only added
    if name.startswith(prefixes):
        for other in BY_NAME.values():
            if name.startswith(_prefixes(other)) and format != other.NAME:
                return f"a reserved prefix, '{other.TOOL_PREFIX}'"
    if name not in tools or format == WORKSPACE.format:  # these have zot's names, because guards know them
        return ""
    return f"a built-in tool of {tools[name]}"


@functools.cache
def _reserved(_count: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return all prefixes of tools' names, and the formats' own tools with the title of the first that has each."""
    formats = [*BY_NAME.values()]
    tools = {name: other.TITLE for other in reversed(formats) for name in other.HOST_TOOLS}
    return tuple(prefix for other in formats for prefix in _prefixes(other)), tools


def _prefixes(format: Format) -> tuple[str, ...]:
    """Return what the names of a format's tools begin with; a tool is also called `PLUGIN/TOOL`."""
    return (format.TOOL_PREFIX, f"{format.TOOL_PREFIX[:-1]}/") if format.TOOL_PREFIX else ()


def has_reserved_prefix(name: str) -> bool:
    """Return whether a tool's name begins like those of one format only."""
    return any(name.startswith(_prefixes(format)) for format in BY_NAME.values())


def command_reserved_by(name: str) -> str:
    """Return who owns a slash command's name, if no plugin may have it."""
    if name in tool_names.OUR_COMMANDS:
        return "a command of anyplug"
    return next(
        (f"a built-in command of {other.TITLE}" for other in BY_NAME.values() if name in other.HOST_COMMANDS), ""
    )


def peer(plugin: Plugin, terms: Terms, listener: PeerListener) -> Peer:
    """Create one run of a long-running plugin; it is not started yet."""
    made: Peer = _imported(BY_NAME[plugin.format].PEER)(plugin, terms, listener)
    return made


def lint(plugin: Plugin) -> list[Problem]:
    """Check a plugin more closely than reading it does, for its author."""
    format = BY_NAME.get(plugin.format)
    return list(_imported(format.LINT)(plugin)) if format is not None and format.LINT else []


def _imported(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def named_files(plugin: Plugin) -> tuple[str, ...]:
    """Return the files of a plugin's folder that count for the digest whatever their type."""
    format = BY_NAME[plugin.format]
    named = format.named_files(plugin)
    if format.NAME in _OURS:
        return named
    return tuple(sorted({format.MANIFEST, *named}))  # the digest knows only our formats' manifests


def files_read(plugin: Plugin) -> tuple[str, ...]:
    """Return the files that, with its folder, decide how a plugin without problems is read; empty if more does."""
    read = _FILES_READ.get(plugin.format)
    return read(plugin) if read is not None else ()


def load(folder: Folder, names: Sequence[str] = ()) -> Plugin | None:
    """Read a folder in its format; None if it is not a plugin. `names` are third-party formats."""
    for format in (*FORMATS, *others(names)):
        if os.path.lexists(f"{folder.path}/{format.MANIFEST}"):
            plugin = format.load(folder) if format.NAME in _OURS else _load_by_other(format, folder)
            if plugin is not None:
                return plugin
    return None


def _load_by_other(format: Format, folder: Folder) -> Plugin | None:
    try:
        return format.load(folder)
    except Exception as error:  # noqa: BLE001 - a stranger's code, and the other plugins go on
        said = f"the format '{format.NAME}' failed to read {folder.found_at}: {type(error).__name__}: {error}"
        return broken(folder, said, f"report it to the authors of the format, or check {format.MANIFEST}")


def broken(folder: Folder, message: str, hint: str) -> Plugin:
    """Return an entry for a folder that could not even be read."""
    return Plugin(
        name=os.path.basename(folder.found_at),
        format="",
        path=folder.path,
        found_at=folder.found_at,
        explicit=folder.explicit,
        problems=(Problem("bad_manifest", message, hint),),
    )
