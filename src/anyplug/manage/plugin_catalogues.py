"""Search catalogues of plugins that a person configured: an index, a repository with one, an MCP registry.

An index is JSON: {"plugins": [{"name", "description", "version", "keywords", "source"}]}, where `source` is what
`anyplug install` takes, or a folder beside the index. A marketplace of Claude Code is read as one. A registry is asked
by the API of MCP registries: GET /v0/servers?search=WORDS.
"""

import os
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from anyplug.home.settings import Home
from anyplug.manage import archive_downloads, pasted_names, pasted_servers, plugin_sources, staging
from anyplug.manage.bundles import foreign_bundle, marketplaces
from anyplug.manage.plugin_sources import SCHEMES, Source
from anyplug.model.errors import InstallError
from anyplug.model.untrusted_text import for_people

REGISTRY: Final = "registry:"  # how the address of an MCP registry begins in the settings
INDEXES: Final = ("anyplug-index.json", "index.json", marketplaces.MANIFEST)  # looked for in a folder, in this order
LARGEST: Final = 8 << 20  # bytes of an index or an answer
MOST_PAGES: Final = 5  # of a registry's answer
PAGE: Final = 100
SHOWN: Final = 300  # characters of a description
RUNNERS: Final = {"npm": ("npx", "-y"), "pypi": ("uvx",), "oci": ("docker", "run", "-i", "--rm")}


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that was found, and how to install it."""

    name: str
    description: str
    version: str
    catalogue: str
    install: tuple[str, ...]  # words after `anyplug install`; none: it cannot be installed
    score: int = 0


def search(home: Home, name: str, location: str, words: list[str]) -> list[Hit]:
    """Search one catalogue; the best hits come first. Raises InstallError."""
    wanted = [word.lower() for word in words]
    if location.startswith(REGISTRY):
        found = list(_registry(home, name, location.removeprefix(REGISTRY).rstrip("/"), words))
    else:
        found = list(_index(home, name, location))
    scored = [msgspec.structs.replace(hit, score=_score(hit, wanted)) for hit in found]
    return sorted((hit for hit in scored if hit.score), key=lambda hit: (-hit.score, hit.name))


def _score(hit: Hit, words: list[str]) -> int:
    """Count in how many places the words are; zero if one is nowhere."""
    name, text = hit.name.lower(), hit.description.lower()
    points = [4 * (word == name) + 2 * (word in name) + (word in text) for word in words]
    return sum(points) if all(points) else 0


def _index(home: Home, name: str, location: str) -> Iterator[Hit]:
    with staging.opened(home.plugins) as folder:
        source = pasted_names.read(location).source
        if source.location.startswith(("https://", "http://")) and source.location.endswith(".json"):
            where = os.path.join(folder, "index.json")
            archive_downloads.fetch(source.location, where, source.shown, LARGEST)
            base = ""
        else:
            is_file = not source.is_git and os.path.isfile(source.lasting_location)
            root = os.path.dirname(source.lasting_location) if is_file else _fetched(source, folder)
            where = source.lasting_location if is_file else _found(root, source)
            base = root if not source.is_git else source.location
        yield from _entries(where, name, base, source)


def _fetched(source: Source, folder: str) -> str:
    return plugin_sources.inside(source, plugin_sources.fetch(source, folder), folder)


def _found(root: str, source: Source) -> str:
    for index in INDEXES:
        if os.path.isfile(os.path.join(root, index)):
            return os.path.join(root, index)
    raise InstallError(f"{source.shown} has no index of plugins", f"it needs a file {INDEXES[0]}")


def _entries(path: str, catalogue: str, base: str, source: Source) -> Iterator[Hit]:
    raw = foreign_bundle.read_object(os.path.dirname(path), os.path.basename(path))
    plugins = raw.get("plugins") if raw is not None else None
    if not isinstance(plugins, list):
        raise InstallError(f"{source.shown} has no list of plugins", 'write it like {"plugins": [{"name": ...}]}')
    is_marketplace = path.endswith(marketplaces.MANIFEST)
    for entry in plugins:
        if not isinstance(entry, dict) or not foreign_bundle.text(entry, "name"):
            continue
        own = foreign_bundle.text(entry, "name")
        keywords = entry.get("keywords")
        tags = " ".join(map(str, keywords)) if isinstance(keywords, list) else ""
        if is_marketplace:
            words = (*source.words, own) if not own.startswith("-") else ()
        else:
            words = _words(foreign_bundle.text(entry, "source"), base, source)
        yield Hit(
            name=for_people(own, SHOWN),
            description=for_people(f"{foreign_bundle.text(entry, 'description')} {tags}".strip(), SHOWN),
            version=for_people(foreign_bundle.text(entry, "version"), SHOWN),
            catalogue=catalogue,
            install=words,
        )


def _words(given: str, base: str, source: Source) -> tuple[str, ...]:
    """Return what to type for an entry's source: an address, a command, or a folder beside the index."""
    if not given:
        return ()
    if not given.startswith(("./", "../")):
        words = given.split() if not given.startswith(SCHEMES) else [given]
        has_options = any(word.startswith("-") for word in words)  # ours, such as --yes: those are the person's to type
        return tuple(words) if pasted_servers.command_at(words) or not has_options else ()
    if ".." in given.split("/") or not base:
        return ()
    inside = os.path.normpath(given)
    if source.is_git:
        ref = ("--ref", source.ref) if source.ref else ()
        return (source.location, "--subdir", os.path.normpath(os.path.join(source.subdir, inside)), *ref)
    return (os.path.join(base, inside),)


def _registry(home: Home, name: str, address: str, words: list[str]) -> Iterator[Hit]:
    cursor = ""
    for page in range(MOST_PAGES):
        query = {"search": " ".join(words), "limit": str(PAGE), **({"cursor": cursor} if cursor else {})}
        with staging.opened(home.plugins) as folder:
            path = os.path.join(folder, f"{page}.json")
            archive_downloads.fetch(f"{address}/v0/servers?{urlencode(query)}", path, address, LARGEST)
            raw = foreign_bundle.read_object(folder, os.path.basename(path))
        servers = raw.get("servers") if raw is not None else None
        if raw is None or not isinstance(servers, list):
            raise InstallError(f"{address} does not answer like an MCP registry", "check its address in the settings")
        for one in servers:
            inner = one.get("server", one) if isinstance(one, dict) else None
            if isinstance(inner, dict) and foreign_bundle.text(inner, "name"):
                yield _listed(inner, name)
        metadata = raw.get("metadata")
        cursor = foreign_bundle.text(metadata, "nextCursor") if isinstance(metadata, dict) else ""
        if not cursor:
            return


def _listed(server: dict[str, Any], catalogue: str) -> Hit:
    version = server.get("version") or (server.get("version_detail") or {}).get("version")
    return Hit(
        name=for_people(foreign_bundle.text(server, "name"), SHOWN),
        description=for_people(foreign_bundle.text(server, "description"), SHOWN),
        version=for_people(str(version or ""), SHOWN),
        catalogue=catalogue,
        install=_started(server),
    )


def _started(server: dict[str, Any]) -> tuple[str, ...]:
    """Return how to install what a registry lists: by its first package that can be started, else by its address."""
    for package in _objects(server.get("packages")):
        kind = foreign_bundle.text(package, "registryType") or foreign_bundle.text(package, "registry_type")
        identifier = foreign_bundle.text(package, "identifier") or foreign_bundle.text(package, "name")
        version = foreign_bundle.text(package, "version")
        transport = package.get("transport")
        is_local = not isinstance(transport, dict) or transport.get("type", "stdio") == "stdio"
        if kind == "mcpb" and identifier.startswith(SCHEMES):
            return (identifier,)
        if kind not in RUNNERS or not identifier or identifier.startswith("-") or not is_local:
            continue
        sign = {"npm": "@", "pypi": "==", "oci": ":"}[kind]
        pinned = (
            identifier
            if not version or version == "latest" or sign in identifier[1:]
            else f"{identifier}{sign}{version}"
        )
        if kind == "pypi" and pinned != identifier:
            return ("uvx", "--from", pinned, identifier, *_arguments(package))
        return (*RUNNERS[kind], pinned, *_arguments(package))
    for remote in _objects(server.get("remotes")):
        url = foreign_bundle.text(remote, "url")
        if url.startswith(("https://", "http://")):
            return (url,)
    return ()


def _arguments(package: dict[str, Any]) -> list[str]:
    """Return the arguments that have a value; the others are the person's."""
    given = package.get("packageArguments", package.get("package_arguments"))
    words = []
    for argument in _objects(given):
        value = foreign_bundle.text(argument, "value") or foreign_bundle.text(argument, "default")
        name = foreign_bundle.text(argument, "name") if argument.get("type") == "named" else ""
        words += [word for word in (name, value) if word and value]
    return words


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
