"""Find plugins: read the folders in each root, in order. Knows nothing about trust."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from anyplug.catalog import wrong_folder
from anyplug.catalog.known_plugins import KnownPlugins
from anyplug.formats import registry
from anyplug.formats.shared import manifest
from anyplug.formats.shared.contract import Folder
from anyplug.model import tool_names
from anyplug.model.errors import LookFailed, is_shortage
from anyplug.model.hints import command, typed
from anyplug.model.late_patterns import late
from anyplug.model.types import Plugin, Problem
from anyplug.model.untrusted_text import clean_plugin, encodable, for_people, is_clean

LARGEST_SEARCHED = 256 << 10  # bytes of a broken manifest in which names are looked for
_QUOTED = late(r"""["']([\w./-]{1,100})["']""")  # may be the name of a tool


def discover(
    explicit: list[str],
    roots: list[str],
    clients: Mapping[str, str],
    formats: Sequence[str] = (),
    *,
    cure_if_lost: Callable[[Folder], str] = lambda _: "",
    is_approved: Callable[[Folder], bool] = lambda _: False,
    shows_all: bool = False,
    known_in: str = "",
) -> list[Plugin]:
    """Read every plugin, first those that the user named. Each folder is read once.

    `clients` are other programs' configurations that name MCP servers, by the name of the resulting plugin. `formats`
    are the names of third-party formats. A folder without a manifest is broken if there is a `cure_if_lost`: it was a
    plugin. A folder that could be a plugin, but whose files do not say so, is one if it `is_approved`, and else only
    shown, if this `shows_all`. `known_in` is the folder that keeps what was read, for the next search.

    Raises LookFailed if the machine is out of some resource, so that plugins, among them guards, are not mistaken for
    removed.
    """
    plugins: list[Plugin] = []
    seen: set[str] = set()
    known = KnownPlugins(known_in, lambda folder: read(folder, formats))
    for folder in _folders(explicit, roots):
        if folder.path in seen:
            continue
        seen.add(folder.path)
        plugin = known.read(folder)
        if plugin is None and (shows_all or is_approved(folder)):
            plugin = _assumed(folder, formats, is_approved=is_approved(folder))
        if plugin is None and (cure := cure_if_lost(folder)):
            plugin = registry.broken(folder, f"{folder.found_at} has no manifest", cure)
        if plugin is not None:
            plugins.append(plugin)
    known.save()
    plugins.extend(clean_plugin(_not_ours(registry.load_client(name, path))) for name, path in clients.items())
    return plugins


def _assumed(folder: Folder, formats: Sequence[str], *, is_approved: bool) -> Plugin | None:
    """Read a folder that fits no format as a plugin of the one that it comes closest to, or None."""
    plugin = read(Folder(folder.path, folder.found_at, folder.explicit, assumed=True), formats)
    if plugin is None or is_approved:
        return plugin
    format = registry.BY_NAME[plugin.format]
    said = (
        f"{folder.found_at} may be no plugin: it has {format.MANIFEST} and package.json, as Node packages have, but "
        f"does not name `register`, as {format.TITLE} plugins do"
    )
    cure = f"if it is one, {command('approve', folder.found_at)}; else ignore it, since nothing runs it"
    return msgspec.structs.replace(
        plugin, problems=(*plugin.problems, Problem("maybe_no_plugin", said, cure, "warning"))
    )


def read(folder: Folder, formats: Sequence[str] = ()) -> Plugin | None:
    """Read one folder and clean its text; any fault is a problem of that plugin only."""
    plugin = _read(folder, formats)
    if plugin is None:
        return None
    plugin = clean_plugin(_not_ours(plugin))
    return msgspec.structs.replace(plugin, mentions=_mentions(plugin)) if plugin.is_broken else plugin


def _mentions(plugin: Plugin) -> frozenset[str]:
    """Return the names in a broken plugin's manifest and of its folders: a caller may ask for a tool among them."""
    format = registry.BY_NAME.get(plugin.format)
    if format is None or plugin.is_file:
        return frozenset()
    try:
        text = manifest.read_file(os.path.join(plugin.path, format.MANIFEST), LARGEST_SEARCHED).decode(errors="replace")
        folders = {name for name in os.listdir(plugin.path) if os.path.isdir(os.path.join(plugin.path, name))}
    except OSError:
        return frozenset()
    names = {*_QUOTED.findall(text), *folders}
    return frozenset({*names, *(f"{format.TOOL_PREFIX}{plugin.name}.{name}" for name in names)})


def _not_ours(plugin: Plugin) -> Plugin:
    """Refuse a plugin whose name would impersonate the host."""
    if plugin.name.lower() not in tool_names.OURS:
        return plugin
    problem = Problem("bad_manifest", (f"the name '{plugin.name}' is reserved for the host"), "rename the plugin")
    return msgspec.structs.replace(plugin, tools=(), problems=(*plugin.problems, problem))


def _read(folder: Folder, formats: Sequence[str]) -> Plugin | None:
    escaped = folder.found_at if folder.found_at.isascii() else encodable(folder.found_at)
    if escaped != folder.found_at:
        folder = Folder(escaped, escaped, folder.explicit)
        return registry.broken(folder, f"{escaped} is not a UTF-8 name", "rename the folder")
    if not is_clean(os.path.basename(folder.found_at)):
        shown = for_people(folder.found_at)
        return registry.broken(folder, f"the name of the folder {shown} has hidden characters", "rename the folder")
    return registry.load(folder, formats) or _why_none(folder, formats)


def _why_none(folder: Folder, formats: Sequence[str]) -> Plugin | None:
    """Return a broken plugin that explains why a folder could not be read; None if it simply is not a plugin."""
    try:
        is_folder = stat.S_ISDIR(os.stat(folder.path).st_mode)
    except OSError as error:
        if os.path.islink(folder.found_at):
            return registry.broken(folder, f"{folder.found_at} is a broken link", "fix or remove the link")
        if isinstance(error, FileNotFoundError):
            cure = wrong_folder.instead_of_missing(folder.found_at)
            return registry.broken(folder, f"the folder {folder.found_at} does not exist", cure)
        return registry.broken(
            folder, f"cannot read {folder.found_at}: {error.strerror}", ("check the path and its permissions")
        )
    if not is_folder:
        return registry.broken(folder, f"{folder.found_at} is not a folder", "pass the plugin's folder")
    if not os.access(folder.path, os.R_OK | os.X_OK):
        return registry.broken(folder, f"the folder {folder.path} is not readable", typed("chmod", "u+rx", folder.path))
    if folder.explicit:
        cure = wrong_folder.instead_of_no_plugin(folder, formats)
        return registry.broken(folder, f"{folder.found_at} is not a plugin", cure)
    return None


def _folders(explicit: list[str], roots: list[str]) -> Iterator[Folder]:
    for path in explicit:
        found_at = os.path.abspath(os.path.expanduser(path))
        yield Folder(os.path.realpath(found_at), found_at, explicit=True)
    for root in roots:
        yield from _folders_in(os.path.realpath(root).rstrip("/"), root)


def _folders_in(real_root: str, root: str) -> Iterator[Folder]:
    try:
        with os.scandir(root) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        if is_shortage(error):
            raise LookFailed(root, error) from error
        return  # most roots do not exist
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            real = os.path.realpath(entry.path)
            if not os.path.exists(real) or os.path.isdir(real):
                yield Folder(real, entry.path)
        elif entry.is_dir(follow_symlinks=False):
            yield Folder(f"{real_root}/{entry.name}", entry.path)
