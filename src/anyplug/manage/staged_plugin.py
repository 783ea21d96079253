"""Bring the one plugin of a source into a staging folder: fetched, translated if needed, read, and checked."""

import os
import time

import msgspec

from anyplug.catalog.catalog import Catalog
from anyplug.formats import registry
from anyplug.formats.shared.manifest import NOTHING_TO_RUN
from anyplug.manage import carry_over, plugin_sources, source_contents
from anyplug.manage.bundles import foreign_bundle
from anyplug.manage.plugin_sources import Checkout, Fetched, Source
from anyplug.manage.source_contents import Contained
from anyplug.model.errors import InstallError
from anyplug.model.types import Plugin
from anyplug.model.untrusted_text import encodable

TRANSLATED = ".translated"  # in a staging folder: no plugin's name begins with a dot


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """Where an installed plugin came from, and which files came with it."""

    source: Source
    commit: str = ""
    files: tuple[str, ...] = ()
    hashes: dict[str, str] = {}  # of these files as they came; older records have none
    at: float = 0.0
    kind: str = ""  # whose plugin it was, if it was translated
    left_out: tuple[str, ...] = ()  # what was not taken from it, a line for each

    @property
    def came(self) -> dict[str, str]:
        """Each file's original hash; empty if it was not recorded."""
        return {name: self.hashes.get(name, "") for name in self.files}


class StagedPlugin(msgspec.Struct, frozen=True):
    """A plugin in a staging folder, under its own name."""

    fetched: Fetched
    plugin: Plugin
    source: Source
    contained: Contained


def look(catalog: Catalog, source: Source, checkout: Checkout, folder: str) -> list[Contained]:
    """List the plugins of a fetched source. Raises InstallError."""
    return source_contents.look(source, checkout, folder, lambda path: catalog.read(path, path))


def bring(catalog: Catalog, source: Source, folder: str, opened: Checkout | None = None) -> StagedPlugin:
    """Fetch the source and read its plugin, in a folder with the plugin's own name."""
    checkout = opened or plugin_sources.fetch(source, folder)
    contained = source_contents.only(source, look(catalog, source, checkout, folder))
    source = contained.source
    if not contained.folder:  # a marketplace named another repository
        return bring(catalog, source, folder)
    brought = _copied(contained, checkout, folder)
    first = catalog.read(brought.folder, os.path.join(folder, _folder_name(contained)))
    if first is None:  # only files, folders and links are copied
        raise InstallError(f"{source.shown} is not a plugin", "its manifest must be a regular file")
    named = os.path.join(folder, first.name)
    if not os.path.lexists(named):
        os.rename(brought.folder, named)
    plugin = catalog.read(named, named)
    assert plugin is not None
    _refuse_unusable(plugin, source, named)
    return StagedPlugin(brought, plugin, source, contained)


def _copied(contained: Contained, checkout: Checkout, folder: str) -> Fetched:
    """Copy a plugin into a staging folder, translated if it was written for another agent."""
    found, source = contained.plugin, contained.source
    # An extension is built in its folder: of what git ignores, only what its manifest names is copied.
    is_built = found is not None and found.launch is not None
    left = plugin_sources.ignored(source, contained.folder, folder) if is_built else frozenset[str]()
    needed = _named_files(found) if found is not None else []
    brought = plugin_sources.bring(
        contained.folder, checkout, folder, left, needed, is_whole=contained.bundle is not None
    )
    if contained.bundle is None:
        return brought
    whole = os.path.join(folder, TRANSLATED)
    foreign_bundle.write(contained.bundle, brought.folder, whole)
    return msgspec.structs.replace(brought, folder=whole, left_modules=())


def record(brought: StagedPlugin) -> Install:
    """Return what to remember about a plugin. Raises InstallError if a file has an unusable name."""
    source, plugin, bundle = brought.source, brought.plugin, brought.contained.bundle
    kept = msgspec.structs.replace(source, location=source.lasting_location)
    hashes = carry_over.hashes(plugin.path)
    for name in hashes:
        if encodable(name) != name:
            raise InstallError(f"the name of the file {name!r} is not valid UTF-8", "rename it, then install it again")
    return Install(
        source=kept,
        commit=brought.fetched.commit,
        files=tuple(hashes),
        hashes=hashes,
        at=time.time(),
        kind=bundle.kind if bundle is not None else "",
        left_out=bundle.left_out if bundle is not None else (),
    )


def _named_files(plugin: Plugin) -> list[str]:
    """List the files inside a plugin's folder that its command lines name, relative to it."""
    launch = plugin.launch
    words = (launch.program, *launch.arguments) if launch is not None else ()
    paths = [os.path.normpath(os.path.join(plugin.path, word)) for word in words]
    named = [os.path.relpath(path, plugin.path) for path in paths if path.startswith(plugin.path + os.sep)]
    return [*named, *registry.named_files(plugin)]


def _folder_name(contained: Contained) -> str:
    """Return the name of a plugin's folder: its own name if its format defines no other."""
    return contained.bundle.name if contained.bundle is not None else contained.source.folder_name


def _refuse_unusable(plugin: Plugin, source: Source, folder: str) -> None:
    """Raise InstallError for a plugin that is broken or lacks its program."""
    if plugin.is_broken:
        faults = [problem for problem in plugin.problems if problem.level == "error"]
        copy, origin = f"{folder}{os.sep}", ""
        if source.is_here and not source.is_archive and not source.servers:
            origin = os.path.join(source.lasting_location, source.subdir, "")  # where a person fixes it
        message = "; ".join(problem.message.replace(copy, origin) for problem in faults)
        raise InstallError(f"the plugin is invalid: {message}", faults[0].hint.replace(copy, origin))
    for problem in plugin.problems:
        if problem.code == NOTHING_TO_RUN:
            raise InstallError(f"there is nothing to install: {problem.message}", problem.hint)
    if plugin.launch is not None and "/" in plugin.launch.program and not os.path.exists(plugin.launch.program):
        raise InstallError(
            f"its program {os.path.relpath(plugin.launch.program, folder)} is not in {source.shown}",
            "clone it, build it, and install that folder"
            if source.is_git
            else f"build it first, or change `exec` in {registry.BY_NAME[plugin.format].MANIFEST}",
        )
