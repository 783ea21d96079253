"""Read a Claude Code marketplace: `.claude-plugin/marketplace.json` lists plugins, here or in other repositories."""

import os
from typing import Any, Final

import msgspec

from anyplug.formats.shared import manifest
from anyplug.manage import pasted_names
from anyplug.manage.bundles import foreign_bundle
from anyplug.manage.pasted_names import HOSTS
from anyplug.manage.plugin_sources import SCHEMES, Source
from anyplug.model.untrusted_text import for_people

MANIFEST: Final = ".claude-plugin/marketplace.json"
MOST: Final = 1000
SHOWN: Final = 300  # characters of a description


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin of a marketplace."""

    name: str
    description: str = ""
    entry: dict[str, Any] = {}
    subdir: str = ""  # in the marketplace's own repository
    elsewhere: Source | None = None
    fault: str = ""  # why it cannot be installed


def read(folder: str) -> list[Listed] | None:
    """Read a folder; None if it is not a marketplace."""
    if not os.path.isfile(os.path.join(folder, MANIFEST)):
        return None
    raw = foreign_bundle.read_object(folder, MANIFEST) or {}
    metadata, plugins = raw.get("metadata"), raw.get("plugins")
    root = foreign_bundle.text(metadata, "pluginRoot") if isinstance(metadata, dict) else ""
    entries = plugins if isinstance(plugins, list) else []
    return [
        _listed(entry, root)
        for entry in entries[:MOST]
        if isinstance(entry, dict) and manifest.is_plain_name(foreign_bundle.text(entry, "name"))
    ]


def _listed(entry: dict[str, Any], root: str) -> Listed:
    name, source = foreign_bundle.text(entry, "name"), entry.get("source")
    description = for_people(foreign_bundle.text(entry, "description"), SHOWN)
    own = {key: value for key, value in entry.items() if key not in {"source", "strict"}}
    found = Listed(name=name, description=description, entry=own)
    if isinstance(source, str) and not source.startswith(SCHEMES):
        path = source if source.startswith("./") or not root else f"{root}/{source}"
        subdir = os.path.normpath(path)
        if os.path.isabs(subdir) or ".." in subdir.split("/"):
            return msgspec.structs.replace(found, fault="its folder is outside the marketplace")
        return msgspec.structs.replace(found, subdir="" if subdir == "." else subdir)
    elsewhere = _elsewhere({"source": "url", "url": source} if isinstance(source, str) else source)
    if elsewhere is None:
        kind = source.get("source") if isinstance(source, dict) else source
        return msgspec.structs.replace(found, fault=for_people(f"its source '{kind}' is not supported", SHOWN))
    return msgspec.structs.replace(found, elsewhere=elsewhere)


def _elsewhere(source: Any) -> Source | None:
    if not isinstance(source, dict):
        return None
    ref = foreign_bundle.text(source, "sha") or foreign_bundle.text(source, "ref")
    subdir = foreign_bundle.text(source, "path")
    repository = foreign_bundle.text(source, "repo")
    url = foreign_bundle.text(source, "url")
    if source.get("source") == "github" and repository.count("/") == 1:
        return Source(location=f"{HOSTS['github']}{repository}", ref=ref, subdir=subdir)
    named = pasted_names.read(url).source if source.get("source") in {"url", "git", "git-subdir"} else None
    if named is None or not named.is_address:
        return None
    return Source(location=named.location, ref=ref or named.ref, subdir=subdir or named.subdir)
