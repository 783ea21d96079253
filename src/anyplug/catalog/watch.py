"""Watch plugin folders while the host runs, and detect plugins whose digest changed."""

import os
import time
from collections.abc import AsyncIterator, Callable

import anyio
import anyio.to_thread

from anyplug.catalog.catalog import Catalog
from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.home.digest import CONFIG, NEVER, SWITCHED

STEP_MS = 10  # a pause this long ends a burst of changes
DEBOUNCE_MS = 200  # the longest burst
DECIDED_MS = 500  # between checks for new decisions, and for roots that do not exist yet
LOOK_AGAIN_MS = 3_000  # after an error
LONG_S = 0.05  # a check that took longer is followed by a pause
REST = 9  # times as long as the check took: a plugin that never stops writing takes at most a tenth of our time
LONGEST_REST_S = 30.0


async def changes(catalog: Catalog, current: Callable[[], Snapshot], stop: anyio.Event) -> AsyncIterator[None]:
    """Yield each time something happened that requires a new snapshot, until `stop`.

    The watching thread cannot be cancelled, only stopped: cancelling without stopping waits for DECIDED_MS.
    """
    from watchfiles import awatch  # takes 52 ms to import, and only a long-running host watches

    decisions = catalog.approvals.mark
    seen = decisions.size()
    was_blind = True  # whether something may have changed between the last check and the watch that followed it
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
                # In a thread, because changed files must be hashed, however large they are.
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
        except (OSError, RuntimeError):  # a folder has just disappeared, or the machine is out of watches
            await anyio.sleep(LOOK_AGAIN_MS / 1000)
            yield
            was_blind = True


def _folders(catalog: Catalog, snapshot: Snapshot) -> list[str]:
    """List what to watch: the existing roots, and plugins elsewhere."""
    roots = [os.path.realpath(root) for root in catalog.roots if os.path.isdir(root)]
    elsewhere = {
        entry.plugin.path
        for entry in snapshot.entries
        if os.path.dirname(entry.plugin.path) not in roots and os.path.isdir(entry.plugin.path)
    }
    return sorted({*roots, *elsewhere})


def _matters(paths: set[str], catalog: Catalog, snapshot: Snapshot) -> bool:
    """Return whether a change is visible from outside: a folder was added or removed, or a digest changed."""
    entries = {entry.plugin.path: entry for entry in snapshot.entries}
    touched = set()
    for path in paths:
        owner = next((parent for parent in _parents(path) if parent in entries), None)
        if owner is None:
            return True
        inside = os.path.relpath(path, owner).split(os.sep)
        if inside in (["."], [CONFIG], [SWITCHED]):
            return True  # the folder itself, or what enables and disables it or its tools
        if not NEVER.intersection(inside):
            touched.add(owner)
    return any(_has_changed(entries[path], catalog) for path in touched)


def _has_changed(entry: Entry, catalog: Catalog) -> bool:
    """Return whether a plugin differs from the snapshot; a call may have seen its new digest before us."""
    before = entry.standing.digest  # empty if it was not needed yet
    try:
        return not before or catalog.digest(entry.plugin).value != before
    except OSError:
        return True


def _file_has_changed(catalog: Catalog, snapshot: Snapshot) -> bool:
    """Return whether a file with an approved plugin has changed; such files are in folders full of others."""
    return any(
        entry.plugin.is_file and entry.state == "approved" and _has_changed(entry, catalog)
        for entry in snapshot.entries
    )


def _parents(path: str) -> list[str]:
    found = [path]
    while (parent := os.path.dirname(found[-1])) != found[-1]:
        found.append(parent)
    return found
