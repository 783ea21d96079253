"""Carry over what was written or changed in a plugin's folder to its next version, so that nothing is lost.

Data stays as the plugin left it; a file of the same name in the new version is put next to it as NAME.new. Code is
always the new version's. Files that have no place in the new version are kept elsewhere for the user.
"""

import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Mapping

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.untrusted_files import Budget, HeldFolder
from anyplug.manage import plugin_sources

NEW = ".new"  # suffix for a new version's file whose name is taken by the plugin's own
CACHE = "__pycache__"


class Inheritance(msgspec.Struct, frozen=True):
    """Where each file goes that was written or changed in the previous version."""

    stays: tuple[str, ...] = ()  # in the new version, whatever that has under the same name
    beside: dict[str, str] = {}  # the new version's file under such a name, if it is new, and its name now
    kept: tuple[str, ...] = ()  # elsewhere: the new version has no place for it


def hashes(folder: str) -> dict[str, str]:
    """Hash every file of a folder, and the target of each link; raises OSError."""
    budget = Budget()
    with untrusted_files.hold(folder) as held:
        names = sorted(entry.relative for entry in held.walk(budget) if not entry.is_folder)
        return {name: _hash_in(held, name, budget) for name in names}


def written(folder: str, came: Mapping[str, str], at: float) -> list[str]:
    """List what was written or changed since a plugin came with these files, at this time; raises OSError.

    A file without a recorded hash counts as changed if it was modified later.
    """
    found = []
    budget = Budget()
    with untrusted_files.hold(folder) as held:
        for entry in held.walk(budget):
            name = entry.relative
            if CACHE in name.split(os.sep) or not (entry.is_file or entry.is_link):
                continue
            before = came.get(name)
            if before is None or (_hash_in(held, name, budget) != before if before else entry.found.st_mtime > at):
                found.append(name)
    return sorted(found)


def plan(
    old: str,
    new: str,
    own: Iterable[str],
    came: Mapping[str, str],
    comes: Mapping[str, str],
    is_code: Callable[[str, str], bool],
) -> Inheritance:
    """Decide where each of the plugin's own files goes; `came` with the old version, `comes` with the new one.

    `is_code` is called with a file's name and path. Raises OSError.
    """
    stays, kept = [], []
    for name in own:
        path, theirs = os.path.join(old, name), os.path.join(new, name)
        if _is_old_default(name, path, came, comes) or comes.get(name) == _hash(path):
            continue
        if not os.path.lexists(theirs):
            fits = _has_room(new, os.path.dirname(theirs)) and not (name in came and is_code(name, path))
        else:
            fits = name in comes and not is_code(name, path) and not is_code(name, theirs)
        if fits:
            stays.append(name)
        elif not _is_installed(name):
            kept.append(name)
    taken = set(stays)
    beside = {name: _free(new, name, taken) for name in stays if name in comes and comes[name] != came.get(name)}
    return Inheritance(tuple(stays), beside, tuple(kept))


def hand_down(old: str, new: str, inheritance: Inheritance) -> None:
    """Copy what stays to the new version; raises OSError."""
    for name, aside in inheritance.beside.items():
        os.rename(os.path.join(new, name), os.path.join(new, aside))
    copy(old, new, inheritance.stays)


def copy(old: str, new: str, names: Iterable[str]) -> None:
    """Copy files and links from one folder to another, replacing what is there; raises OSError."""
    budget = Budget()
    with untrusted_files.hold(old) as source, untrusted_files.hold(new) as target:
        for name in names:
            untrusted_files.copy_entry(source, name, target, name, budget)


def _is_old_default(name: str, path: str, came: Mapping[str, str], comes: Mapping[str, str]) -> bool:
    """Return whether it is an outdated NAME.new, which an earlier update put next to the plugin's own file."""
    of = name.removesuffix(NEW)
    return of != name and of in came and comes.get(of, came[of]) != came[of] and _hash(path) == came[of]


def _is_installed(name: str) -> bool:
    """Return whether it belongs to modules that the setup recreates."""
    return not plugin_sources.MODULES.isdisjoint(name.split(os.sep))


def _free(new: str, name: str, taken: set[str]) -> str:
    """Find a name for a file next to one that stays."""
    names = itertools.chain([f"{name}{NEW}"], (f"{name}{NEW}.{number}" for number in itertools.count(2)))
    return next(free for free in names if free not in taken and not os.path.lexists(os.path.join(new, free)))


def _has_room(root: str, folder: str) -> bool:
    """Return whether files can go into a folder of the new version: no file is in the way, no link leads elsewhere."""
    while folder != root:
        if os.path.islink(folder) or (os.path.lexists(folder) and not os.path.isdir(folder)):
            return False
        folder = os.path.dirname(folder)
    return True


def _hash(path: str) -> str:
    with untrusted_files.hold(os.path.dirname(path)) as held:
        return _hash_in(held, os.path.basename(path), Budget())


def _hash_in(held: HeldFolder, relative: str, budget: Budget) -> str:
    """Hash a file or a link's target. A running plugin may swap it meanwhile. Raises OSError."""
    above, _, name = relative.rpartition("/")
    with held.folder(above) if above else held.make_folders("") as folder:
        if stat.S_ISLNK(folder.stat(name).st_mode):
            return hashlib.sha256(b"link " + os.fsencode(os.readlink(name, dir_fd=folder.fd))).hexdigest()
        fd = folder.open(name)
        try:
            total = hashlib.sha256()
            for chunk in untrusted_files.chunks(fd, folder.where(name), budget):
                total.update(chunk)
            return total.hexdigest()
        finally:
            os.close(fd)
