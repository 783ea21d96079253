"""Suggest the plugin's folder if a given folder is missing or is not a plugin. Runs nothing."""

import os
from collections.abc import Sequence
from itertools import islice

from anyplug.formats import registry
from anyplug.formats.shared.contract import Folder
from anyplug.model import hints

MOST_NAMES = 2_000  # that are compared with a missing one
MOST_FOLDERS = 50  # that are read inside a folder that is not a plugin
LEVELS = 2  # above it: a tool's folder, and one inside
ALIKE = 0.9  # manifst.json and manifest.json, but not index.ts and index.js
SPELLING = "check its spelling, and in which folder you are"


def instead_of_missing(path: str) -> str:
    """Return a hint for a path that does not exist."""
    found = near(path)
    return f"did you mean {found}?" if found and found != path else SPELLING


def near(path: str) -> str:
    """Return the existing path that was probably meant, or an empty string."""
    parent, name = os.path.split(path)
    if not name or os.path.exists(path):
        return path
    if not os.path.isdir(parent):
        above = near(parent)
        return found if above and os.path.exists(found := os.path.join(above, name)) else ""
    similar = _similar(name, _names(parent, MOST_NAMES))
    return os.path.join(parent, similar) if similar else ""


def renamed_manifest(folder: str, formats: Sequence[str]) -> str:
    """Return a hint if a manifest's name is misspelled."""
    there = _names(folder, MOST_NAMES)
    for manifest in _manifests(formats):
        wrong = "" if manifest in there else _similar(manifest, there, ALIKE)
        if wrong:
            return hints.typed("mv", os.path.join(folder, wrong), os.path.join(folder, manifest))
    return ""


def instead_of_no_plugin(folder: Folder, formats: Sequence[str]) -> str:
    """Return a hint for a folder that is not a plugin: a file to rename, or the folder that was probably meant."""
    if renamed := renamed_manifest(folder.path, formats):
        return renamed
    above = folder.found_at
    for _ in range(LEVELS):
        above = os.path.dirname(above)
        if above != os.sep and (plugin := registry.load(_folder(above), formats)) is not None:
            return f"it is inside the plugin '{plugin.name}': pass {above}"
    for name in _names(folder.path, MOST_FOLDERS):
        inside = os.path.join(folder.found_at, name)
        if os.path.isdir(inside) and registry.load(_folder(inside), formats) is not None:
            return f"pass a plugin in it, such as {inside}"
    for format in registry.FORMATS:
        if os.path.exists(os.path.join(folder.path, format.MANIFEST)):
            example = hints.command("new", "example", "--format", format.NAME)
            return f"its {format.MANIFEST} is not that of a {registry.title(format.NAME)} plugin; {example} creates one"
    return f"a plugin's folder contains a {' or '.join(_manifests(formats))}; `anyplug new NAME` creates one"


def _manifests(formats: Sequence[str]) -> list[str]:
    return [format.MANIFEST for format in (*registry.FORMATS, *registry.others(formats))]


def _folder(path: str) -> Folder:
    return Folder(os.path.realpath(path), path)


def _names(folder: str, most: int) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, most))
    except OSError:
        return []


def _similar(name: str, known: list[str], alike: float = 0.6) -> str:
    from difflib import get_close_matches  # only needed after a typo

    return next(iter(get_close_matches(name, known, 1, alike)), "")
