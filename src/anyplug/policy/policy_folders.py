"""Which `.cupcake` folders decide about a folder, and where their accepted copies are in our home.

Every `.cupcake` from a folder upwards decides, the nearest first: one that is nested can only be stricter. Folders are
taken as they are written and as they really are, and so are their copies, so that a link in the place of a folder
leaves no copy behind. The database also lists every copy, so that a missing one is noticed. So does, for the default
home, the state folder outside it, so that a deleted home is noticed as well.
"""

import os
from typing import Final, NamedTuple

from anyplug.home.database import Store
from anyplug.home.location import home_path, make_private, state_path, usual_path
from anyplug.model.errors import StoreError
from anyplug.model.hashes import sha256
from anyplug.policy.paths import ACCEPTED, FOLDER, may_be_there

DATABASE: Final = "anyplug.db"
CURE: Final = "make that folder writable for yourself"


class CupcakeCopy(NamedTuple):
    """A `.cupcake`, which may no longer exist, and the folder of one copy of it."""

    root: str
    copy: str = ""  # empty: no copies are kept
    is_lost: bool = False  # there was a copy, but it is gone

    @property
    def project(self) -> str:
        """The folder that it is about."""
        return os.path.dirname(self.root)

    def has(self, harness: str) -> bool:
        """Return whether there may be policies for an agent, in the folder or in the copy."""
        roots = (self.root, os.path.join(self.copy, FOLDER))
        return self.is_lost or any(may_be_there(os.path.join(root, "policies", harness)) for root in roots)


def around(start: str, home: str = "") -> list[CupcakeCopy]:
    """Find what decides about a folder; with `home`, also what was accepted and is gone now."""
    known = _known(home)
    found: dict[tuple[str, str], CupcakeCopy] = {}
    for folder in dict.fromkeys((*_upwards(os.path.abspath(start)), *_upwards(os.path.realpath(start)))):
        for place in _of(os.path.join(folder, FOLDER), home, known):
            if place.copy in known.values() or os.path.isdir(place.root):
                found.setdefault((os.path.realpath(folder), place.copy), place)
    return list(found.values())


def of(root: str, home: str = "") -> list[CupcakeCopy]:
    """Return one `.cupcake` with each copy of it: there are two if its folder was replaced by a link."""
    return _of(root, home, _known(home))


def keys(project: str) -> list[str]:
    """Return the names of a folder's copies: for its path as written, and for its real path."""
    written = (os.path.realpath(project), os.path.abspath(project))
    return [sha256(os.fsencode(path)).hexdigest()[:32] for path in dict.fromkeys(written)]


def note(home: str, project: str) -> None:
    """Record in the database that there is a copy. Raises StoreError."""
    store = Store(os.path.join(home, DATABASE))
    try:
        for key in keys(project):
            store.run("INSERT OR REPLACE INTO accepted VALUES (?, ?)", key, project)
    finally:
        store.close()
    if beside := _beside(home):
        try:
            make_private(beside)
            for key in keys(project):
                with open(os.path.join(beside, key), "w", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(f"{project}\n")
        except OSError as error:
            raise StoreError(f"cannot write to {beside}: {error.strerror}", CURE) from error


def forget(home: str, project: str) -> None:
    """Delete the record of a copy. Raises StoreError."""
    store = Store(os.path.join(home, DATABASE))
    try:
        for key in keys(project):
            store.run("DELETE FROM accepted WHERE key = ?", key)
    finally:
        store.close()
    for key in keys(project) if (beside := _beside(home)) else ():
        try:
            os.unlink(os.path.join(beside, key))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"cannot write to {beside}: {error.strerror}", CURE) from error


def _of(root: str, home: str, known: dict[str, str]) -> list[CupcakeCopy]:
    if not home:
        return [CupcakeCopy(root)]
    own = keys(os.path.dirname(root))
    copies = dict.fromkeys(known[key] for key in own if key in known)
    found = [CupcakeCopy(root, copy, is_lost=not os.path.isdir(copy)) for copy in copies]
    return found or [CupcakeCopy(root, os.path.join(home, ACCEPTED, own[0]))]


def _known(home: str) -> dict[str, str]:
    """List all copies that exist or existed: the folder of each, by its name."""
    if not home:
        return {}
    folder = os.path.join(home, ACCEPTED)
    names = [name for name in (*_names(folder), *_names(_beside(home))) if "." not in name]  # others are temporary
    store = Store(os.path.join(home, DATABASE))
    try:
        names += [key for (key,) in store.rows("SELECT key FROM accepted")]
    except StoreError:  # it is unknown; what is on disk still counts
        pass
    finally:
        store.close()
    return {name: os.path.realpath(os.path.join(folder, name)) for name in names}


def _beside(home: str) -> str:
    """Return the folder outside the default home that also lists its copies; empty for another home."""
    is_usual = os.path.realpath(home) == os.path.realpath(home_path(usual_path()))
    return os.path.join(os.path.abspath(os.path.expanduser(state_path())), ACCEPTED) if is_usual else ""


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder) if folder else []
    except OSError:
        return []


def _upwards(folder: str) -> list[str]:
    found = [folder]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found
