"""Sees changes in plugin folders while the host is up, and says which plugins have another digest."""

import os
import time
from collections.abc import AsyncIterator, Callable

import anyio
import anyio.to_thread

from anyplug.catalog.catalog import Catalog
from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.home.digest import CONFIG, NEVER, SWITCHED

STEP_MS = 10  # how long a burst must pause to be over
DEBOUNCE_MS = 200  # how long a burst may last
DECIDED_MS = 500  # between looks whether somebody decided something, and for roots that do not exist yet
LOOK_AGAIN_MS = 3_000  # after something went wrong
LONG_S = 0.05  # a look that took longer is followed by a rest
REST = 9  # times as long as the look took: a plugin that never stops writing has a tenth of our time, and no more
LONGEST_REST_S = 30.0


async def changes(catalog: Catalog, current: Callable[[], Snapshot], stop: anyio.Event) -> AsyncIterator[None]:
    """Yield each time something happened that the snapshot should know of, until `stop`.

    The watching thread cannot be cancelled, only stopped: who cancels without stopping waits for DECIDED_MS.
    """
    from watchfiles import awatch  # 52 ms, and only a host that stays up watches

    decisions = catalog.approvals.mark
    seen = decisions.size()
    was_blind = True  # whether something may have changed between the last look and the watch that was set after it
    while not stop.is_set():
        watched = _folders(catalog, current())
        try:
            async for batch in awatch(
                *watched,
                step=STEP_MS,
                debounce=DEBOUNCE_MS,
                rust_timeout=DECIDED_MS,
                yield_on_timeout=True,
                stop_event=stop,
                ignore_permission_denied=True,
            ):
                if was_blind or decisions.size() != seen:
                    was_blind, seen = False, decisions.size()
                    yield
                begun = time.monotonic()
                paths = {path for _, path in batch}
                # In a thread: what changed has to be hashed, however large it is.
                matters = await anyio.to_thread.run_sync(_matters, paths, catalog, current()) if paths else False
                if matters:
                    yield
                if (spent := time.monotonic() - begun) > LONG_S:
                    with anyio.move_on_after(min(spent * REST, LONGEST_REST_S)):
                        await stop.wait()
                if catalog.has_other_settings:
                    yield
                if _folders(catalog, current()) != watched or _file_has_changed(catalog, current()):
                    yield
                    was_blind = True
                    break
        except (OSError, RuntimeError):  # a folder went away just now, or the machine has no more watches to give
            await anyio.sleep(LOOK_AGAIN_MS / 1000)
            yield
            was_blind = True


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
    entries = {entry.plugin.path: entry for entry in snapshot.entries}
    touched = set()
    for path in paths:
        owner = next((parent for parent in _parents(path) if parent in entries), None)
        if owner is None:
            return True
        inside = os.path.relpath(path, owner).split(os.sep)
        if inside in (["."], [CONFIG], [SWITCHED]):
            return True  # the folder itself, or what switches it or its tools on and off
        if not NEVER.intersection(inside):
            touched.add(owner)
    return any(_has_changed(entries[path], catalog) for path in touched)


def _has_changed(entry: Entry, catalog: Catalog) -> bool:
    """Whether a plugin is another than the snapshot has it; a call may have seen its new digest before us."""
    before = entry.standing.digest  # empty where nobody needed it yet
    try:
        return not before or catalog.digest(entry.plugin).value != before
    except OSError:
        return True


def _file_has_changed(catalog: Catalog, snapshot: Snapshot) -> bool:
    """Whether a file that holds an approved plugin has another one in it; such files lie in folders full of others."""
    return any(
        entry.plugin.is_file and entry.state == "approved" and _has_changed(entry, catalog)
        for entry in snapshot.entries
    )


def _parents(path: str) -> list[str]:
    found = [path]
    while (parent := os.path.dirname(found[-1])) != found[-1]:
        found.append(parent)
    return found
