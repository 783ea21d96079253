"""Find the plugins in a fetched source: one, a marketplace, a plugin of another agent, or several below it."""

import os
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from anyplug.formats import registry
from anyplug.manage import plugin_sources
from anyplug.manage.bundles import agent_bundles, claude_bundles, marketplaces, mcpb_bundles
from anyplug.manage.bundles.foreign_bundle import Bundle
from anyplug.manage.plugin_sources import LEFT_BEHIND, MODULES, Checkout, Source
from anyplug.model import hints
from anyplug.model.errors import InstallError
from anyplug.model.types import Plugin

DEEPEST: Final = 4  # levels below the source in which plugins are searched
MOST_FOLDERS: Final = 5_000
WORKBENCH: Final = "workbench"  # any index.js that registers something looks like one of its plugins
MOST_NAMED: Final = 40  # plugins in a message
SKIPPED: Final = LEFT_BEHIND | MODULES | {"dist", "build", "target"}

Read = Callable[[str], Plugin | None]


class Contained(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin of a source, and how to install it alone."""

    name: str
    kind: str  # its format's title
    source: Source
    folder: str = ""  # empty if it is in another repository
    description: str = ""
    bundle: Bundle | None = None  # if it was written for another agent
    plugin: Plugin | None = None
    fault: str = ""  # why it cannot be installed


class SeveralPlugins(InstallError):
    """A source has several plugins, and none was named."""

    def __init__(self, source: Source, found: list[Contained]) -> None:
        names = [one.name for one in found]
        shown = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
        named = hints.command("install", *source.words, names[0])
        every = hints.command("install", *source.words, "--all")
        super().__init__(
            f"{source.shown} has {len(names)} plugins: {shown}", f"name those that you want: {named}; or all: {every}"
        )
        self.found = found


def look(source: Source, checkout: Checkout, staging: str, read: Read) -> list[Contained]:
    """List the plugins of a source. Raises InstallError if its folder does not exist."""
    top = plugin_sources.inside(source, checkout, staging)
    listed = marketplaces.read(top)
    if listed is not None:
        found = [_from_marketplace(one, source, checkout, staging) for one in listed]
        return [one for one in found if source.part in {"", one.name}]
    found = _one(source, top, read)
    if found or source.servers:
        return found
    by_name: dict[str, Contained] = {}  # copies and fixtures have the same names: the first counts
    places: list[str] = []
    for folder in _folders(top):
        if any(folder.startswith(f"{place}/") for place in places):
            continue
        inner = _one(_below(source, top, folder), folder, read)
        places += [folder] if inner else []
        for one in inner:
            by_name.setdefault(one.name, one)
    bundle = claude_bundles.read(top, is_implied=True) if not by_name else None
    return _of_bundle(source, top, bundle, read) if bundle is not None else list(by_name.values())


def only(source: Source, found: list[Contained]) -> Contained:
    """Return the one plugin of a source; raises InstallError, or SeveralPlugins."""
    if not found:
        where = "named so" if source.part else "in it"
        raise InstallError(
            f"{source.shown} is not a plugin, and none is {where}",
            "pass the folder or owner/repo of one; `anyplug new my-plugin` creates a plugin",
        )
    if len(found) > 1:
        raise SeveralPlugins(source, found)
    if found[0].fault:
        raise InstallError(f"'{found[0].name}' cannot be installed: {found[0].fault}", "ask its author")
    return found[0]


def chosen(source: Source, found: list[Contained], names: list[str]) -> list[Contained]:
    """Return the plugins that a person named; raises InstallError for a name that there is not."""
    by_name = {one.name: one for one in found}
    by_name |= {one.source.subdir: one for one in found if one.source.subdir}
    for name in names:
        if name.rstrip("/") not in by_name:
            has = ", ".join(one.name for one in found[:MOST_NAMED]) or "none"
            raise InstallError(f"there is no plugin '{name}' in {source.shown}", f"it has {has}")
    return list({by_name[name.rstrip("/")].name: by_name[name.rstrip("/")] for name in names}.values())


def _one(source: Source, folder: str, read: Read) -> list[Contained]:
    """Read a folder as a plugin of another agent, or as one of ours."""
    for reader in (mcpb_bundles.read, agent_bundles.read):
        if (bundle := reader(folder)) is not None:
            return _of_bundle(source, folder, bundle, read)
    plugin = read(folder)
    bundle = claude_bundles.read(folder)
    if bundle is not None and (plugin is None or plugin.is_broken or plugin.format == WORKBENCH):
        return _of_bundle(source, folder, bundle, read)
    if plugin is not None:
        kind = registry.title(plugin.format)
        return [
            Contained(
                name=source.name or plugin.name,
                kind=kind,
                source=source,
                folder=folder,
                description=plugin.description,
                plugin=plugin,
            )
        ]
    return []


def _of_bundle(source: Source, folder: str, bundle: Bundle, read: Read) -> list[Contained]:
    ours = [os.path.join(folder, path) for path in bundle.ours]
    if ours and all(map(os.path.isdir, ours)):  # written by `anyplug export`: what is inside needs no second host
        return [one for path in ours for one in _one(_below(source, folder, path), path, read)]
    fault = "it has neither MCP servers nor commands nor skills" if bundle.is_empty else ""
    if fault and bundle.left_out:
        fault += f", only this: {'; '.join(bundle.left_out)}"
    return [
        Contained(
            name=bundle.name,
            kind=bundle.kind,
            source=source,
            folder=folder,
            description=bundle.description,
            bundle=bundle,
            fault=fault,
        )
    ]


def _from_marketplace(one: marketplaces.Listed, source: Source, checkout: Checkout, staging: str) -> Contained:
    own = msgspec.structs.replace(source, part=one.name)
    about = Contained(name=one.name, kind=claude_bundles.TITLE, source=own, description=one.description)
    if one.fault or one.elsewhere is not None:
        return msgspec.structs.replace(about, source=one.elsewhere or own, fault=one.fault)
    place = msgspec.structs.replace(source, subdir=os.path.normpath(os.path.join(source.subdir, one.subdir)))
    try:
        folder = plugin_sources.inside(place, checkout, staging)
    except InstallError as error:
        return msgspec.structs.replace(about, fault=error.message)
    bundle = claude_bundles.read(folder, one.entry)
    assert bundle is not None  # the marketplace says that it is one
    bundle = msgspec.structs.replace(bundle, name=one.name)
    (found,) = _of_bundle(own, folder, msgspec.structs.replace(bundle, ours=()), lambda _: None)
    return msgspec.structs.replace(found, description=one.description or found.description)


def _below(source: Source, top: str, folder: str) -> Source:
    inside = os.path.relpath(folder, top)
    return msgspec.structs.replace(source, subdir=os.path.normpath(os.path.join(source.subdir, inside)))


def _folders(top: str) -> Iterator[str]:
    """Yield the folders below one, without hidden ones, level by level."""
    level, seen = [top], 0
    for _ in range(DEEPEST):
        following = []
        for folder in level:
            try:
                with os.scandir(folder) as entries:
                    names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            except OSError:
                continue
            for name in names:
                seen += 1
                if name.startswith(".") or name in SKIPPED or seen > MOST_FOLDERS:
                    continue
                path = os.path.join(folder, name)
                following.append(path)
                yield path
        level = following
