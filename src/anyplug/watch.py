"""Sees changes in plugin folders while the host is up, and says which plugins have another digest."""

import os
from collections.abc import AsyncIterator, Callable

import anyio

from anyplug.catalog import Catalog
from anyplug.digest import CONFIG, NEVER
from anyplug.registry import Snapshot

STEP_MS = 10  # how long a burst must pause to be over
DEBOUNCE_MS = 200  # how long a burst may last
LOOK_AGAIN_MS = 3_000  # for roots that do not exist yet


async def changes(catalog: Catalog, current: Callable[[], Snapshot]) -> AsyncIterator[None]:
    """Yield each time something happened that the snapshot should know of."""
    from watchfiles import awatch  # 52 ms, and only a host that stays up watches

    while True:
        watched = _folders(catalog, current())
        if not watched:
            await anyio.sleep(LOOK_AGAIN_MS / 1000)
            continue
        async for batch in awatch(
            *watched,
            step=STEP_MS,
            debounce=DEBOUNCE_MS,
            rust_timeout=LOOK_AGAIN_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            if batch and _matters({path for _, path in batch}, catalog, current()):
                yield
            if _folders(catalog, current()) != watched:
                yield
                break


def _folders(catalog: Catalog, snapshot: Snapshot) -> list[str]:
    """List what to watch: the roots that exist, and plugins that lie elsewhere."""
    roots = [os.path.realpath(root) for root in catalog.roots if os.path.isdir(root)]
    elsewhere = {
        entry.plugin.path
        for entry in snapshot.entries
        if os.path.dirname(entry.plugin.path) not in roots and os.path.isdir(entry.plugin.path)
    }
    return sorted({*roots, *elsewhere})


def _matters(paths: set[str], catalog: Catalog, snapshot: Snapshot) -> bool:
    """Whether a change can be seen from outside: a folder came or went, or a plugin has another digest."""
    by_path = {entry.plugin.path: entry for entry in snapshot.entries}
    touched = set()
    for path in paths:
        owner = next((parent for parent in _parents(path) if parent in by_path), None)
        if owner is None:
            return True
        inside = os.path.relpath(path, owner).split(os.sep)
        if inside in (["."], [CONFIG]):
            return True  # the folder itself, or what switches its tools on and off
        if not NEVER.intersection(inside):
            touched.add(owner)
    return any(_has_changed(by_path[path].plugin.path, catalog, snapshot) for path in touched)


def _has_changed(path: str, catalog: Catalog, snapshot: Snapshot) -> bool:
    plugin = next(entry.plugin for entry in snapshot.entries if entry.plugin.path == path)
    if not plugin.format:
        return True
    before = catalog.known_digest(plugin)
    try:
        return before is None or catalog.digest(plugin).value != before
    except OSError:
        return True


def _parents(path: str) -> list[str]:
    found = [path]
    while (parent := os.path.dirname(found[-1])) != found[-1]:
        found.append(parent)
    return found
