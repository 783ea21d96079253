"""Where links lead: those at protected paths and among keys, whose targets are protected too, and those in grants.

A link in a folder that a plugin may write to leads wherever that plugin wants, so a grant that passes one is refused.
"""

import itertools
import os
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from anyplug.model import permissions, protected_paths
from anyplug.runtime.sandbox import profile as profiles
from anyplug.runtime.sandbox.linux.hidden_paths import MOST_LINKS, Links, on_the_way_to
from anyplug.runtime.sandbox.linux.protected_names import FREE, GIT, GIT_MARK, INNER, Protected

# Limits of the search for links at protected paths: entries in total, entries per folder, nesting, and seconds. Folders
# with the names below are skipped: they contain many files and no settings.
MOST_LOOKED_AT, MOST_IN_ONE, MOST_DEPTH, LOOK_S = 30_000, 2_000, 12, 1.0
PASSED_OVER = frozenset(
    {"node_modules", "objects", "__pycache__", "site-packages", ".cache", ".venv", "venv", "target"}
)
MOST_KNOWN = 30_000  # listings that are kept for the next search: 200 bytes each, and more for many links and folders
# A folder that was changed just before it was listed may change again without a new stamp: file systems' clocks have
# steps of up to two seconds.
SETTLED_NS = 2_000_000_000
MOST_KEYS, KEYS_DEPTH = 5_000, 4  # limits of the search for links among keys: entries in total, nesting


class _Listing(NamedTuple):
    """What a search wants of a folder, with its stamp: whatever is added, removed or replaced there changes that."""

    stamp: tuple[int, ...]
    seen: int  # how many of its entries were looked at
    links: tuple[str, ...]
    folders: tuple[str, ...]
    repositories: tuple[str, ...]


_known: dict[str, _Listing] = {}  # plugins that start together search the same folders


def behind_keys(place: profiles.Locations) -> list[str]:
    """Return the targets of links among the user's keys that are in the user's folders: some keep keys elsewhere."""
    folders = (place.user, place.project or place.user, *profiles.USERS_FOLDERS)
    tops = tuple(f"{os.path.realpath(folder)}/" for folder in folders)
    left = deque((os.path.join(place.user, name), KEYS_DEPTH) for name in protected_paths.KEYS)
    entries, found = 0, []
    while left and entries < MOST_KEYS:
        folder, depth = left.popleft()
        inside = _entries(folder, MOST_KEYS)
        entries += len(inside)
        for entry in inside:
            if entry.is_symlink():
                found.append(os.path.realpath(entry.path))
            elif depth > 1 and entry.is_dir(follow_symlinks=False):
                left.append((entry.path, depth - 1))
    return [path for path in dict.fromkeys(found) if path.startswith(tops) and os.path.lexists(path)]


def is_above(path: str, held: tuple[str, ...]) -> bool:
    """Return whether one of `held` is this path, or inside it."""
    return any(f"{os.path.realpath(one)}/".startswith(f"{path}/") for one in held)


def is_relative(path: str, links: Links) -> bool:
    """Return whether a path is a link that leads elsewhere when a parent folder is moved."""
    target = links.target(path)
    return target is not None and not os.path.isabs(target)


def behind_protected_links(tops: Mapping[str, int], protected: Protected, links: Links) -> tuple[list[str], list[str]]:
    """Return the targets of links at protected paths in these folders, and the repositories there.

    Searches each folder to its depth, outer folders first: at most `MOST_LOOKED_AT` entries, for `LOOK_S` seconds.
    """
    left = deque((links.real(top), depth) for top, depth in sorted(tops.items(), key=lambda top: top[1]))
    seen: dict[str, int] = {}
    entries, until = 0, time.monotonic() + LOOK_S
    found: list[str] = []
    repositories: list[str] = []
    while left and entries < MOST_LOOKED_AT and time.monotonic() < until:
        folder, depth = left.popleft()
        if seen.get(folder, 0) >= depth or links.is_missing(folder):
            continue
        seen[folder] = depth
        inside = _listing(folder)
        entries += inside.seen
        repositories += inside.repositories
        for name in inside.links:
            found += _behind(folder, name, protected, links)
        if depth > 1:
            left.extend((path, depth - 1) for path in inside.folders)
    return found, repositories


def _listing(folder: str) -> _Listing:
    """List a folder, unless it is as it was when it was last listed."""
    try:
        status = os.stat(folder)
    except OSError:
        return _Listing((), 0, (), (), ())
    stamp = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    known = _known.get(folder)
    if known is not None and known.stamp == stamp:
        return known
    settled = time.time_ns() - SETTLED_NS
    entries = _entries(folder, MOST_IN_ONE)
    folders = (entry for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name not in PASSED_OVER)
    listing = _Listing(
        stamp,
        len(entries),
        tuple(entry.name for entry in entries if entry.is_symlink()),
        tuple(entry.path for entry in folders),
        tuple(entry.path for entry in entries if entry.name.endswith(GIT)),
    )
    if max(status.st_mtime_ns, status.st_ctime_ns) < settled:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[folder] = listing
    return listing


def _behind(folder: str, name: str, protected: Protected, links: Links) -> list[str]:
    """Return the protected paths that a link leads to, or that are inside its target."""
    link = os.path.join(folder, name)
    state = protected.state(folder, name)
    if state == FREE and not any(
        os.path.lexists(os.path.join(folder, "../" * levels, GIT_MARK))
        for levels in protected.git_folders(folder, name)
    ):
        return []
    places = links.on_the_way_to(link)
    if state != INNER:
        return places
    inner = [os.path.join(link, *rest) for rest in protected.below(folder, name)]
    return [*places[:-1], *(place for path in inner for place in links.on_the_way_to(path))]


def followed(
    granted: tuple[str, ...], place: profiles.Locations, write_grants: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Resolve links in granted paths; return the grants with their targets, these paths, and the misled grants.

    A link in a folder that a plugin may write to leads wherever that plugin wants, so granting it would grant
    everything. `write_grants` are those of all plugins.
    """
    paths = {
        grant: profiles.path_of(scope, place)
        for grant in granted
        if grant.startswith("filesystem:") and (scope := permissions.scope_of(grant))
    }
    writes = write_grants | {grant for grant in granted if grant.startswith("filesystem:write")}
    changeable = [profiles.path_of(scope, place) for grant in writes if (scope := permissions.scope_of(grant))]
    changeable += [place.data, place.cache, *((place.plugin,) if place.writes_beside_itself else ())]
    if "filesystem:write" in writes:
        changeable += [place.user, *profiles.USERS_FOLDERS, *profiles.SHARED_TMP, place.project or place.user]
    folders = tuple({*changeable, *map(os.path.realpath, changeable)})
    followed, exact, misled = [], [], []
    ours = os.path.realpath(place.home)
    for grant in granted:
        real, is_misled = follow(paths[grant], folders) if grant in paths else ("", False)
        if f"{real}/".startswith(f"{ours}/"):
            real = place.home + real[len(ours) :]  # by the name under which it is refused
        if is_misled:
            misled.append(grant)
        else:
            followed.append(f"{permissions.kind(grant)}:{real}" if real else grant)
            exact += [real] if real else []
    return tuple(followed), tuple(exact), tuple(misled)


def follow(path: str, folders: tuple[str, ...]) -> tuple[str, bool]:
    """Return the target of a path, and whether a link on the way is in one of these folders."""
    *links, real = on_the_way_to(path)
    if len(links) >= MOST_LINKS:
        return path, True
    return real, any(link.startswith(folder.rstrip("/") + "/") for link in links for folder in folders)


def _entries(folder: str, most: int) -> list[os.DirEntry[str]]:
    """Return the first entries of a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as listed:
            return list(itertools.islice(listed, most))
    except OSError:
        return []
