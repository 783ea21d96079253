"""Record which permissions a plugin used, and in how many calls.

`learn` observes everything that a call does; a proxy only sees the hosts that it connects to. When the code changes,
the record starts again.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from anyplug.home.database import Store
from anyplug.model import permissions

# What `learn` can observe; other permissions leave no trace.
OBSERVED: Final = frozenset({"filesystem:read", "filesystem:write", "network", "shell:exec", permissions.CALL})
MOST_USES: Final = 200  # permissions of one plugin
MOST_TARGETS: Final = 10  # examples kept for each


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """How a permission was used."""

    calls: int
    at: float
    targets: tuple[str, ...] = ()


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one state of a plugin's code."""

    digest: str
    calls: int = 0  # that `learn` observed
    at: float = 0.0  # the last of these
    uses: dict[str, Use] = {}


_RECORDS = msgspec.json.Decoder(Seen)


def of(store: Store, path: str, digest: str) -> Seen | None:
    """Return what was seen of a plugin's present code. Raises StoreError."""
    for (record,) in store.rows("SELECT record FROM seen WHERE path = ?", path):
        if (seen := _RECORDS.decode(record)).digest == digest:
            return seen
    return None


def note(store: Store, path: str, digest: str, used: Mapping[str, Iterable[str]], *, is_whole: bool) -> None:
    """Count a call with the permissions that it used; `is_whole`: everything was observed. Raises StoreError."""
    now = time.time()
    with store.writing() as connection:
        found = connection.execute("SELECT record FROM seen WHERE path = ?", (path,)).fetchone()
        seen = _RECORDS.decode(found[0]) if found else Seen(digest=digest)
        if seen.digest != digest:
            seen = Seen(digest=digest)
        uses = dict(seen.uses)
        for name, targets in used.items():
            before = uses.get(name, Use(calls=0, at=0.0))
            known = tuple(dict.fromkeys((*targets, *before.targets)))[:MOST_TARGETS]
            uses[name] = Use(calls=before.calls + 1, at=now, targets=known)
        if is_whole:
            seen = msgspec.structs.replace(seen, calls=seen.calls + 1, at=now)
        seen = msgspec.structs.replace(seen, uses=dict(list(uses.items())[:MOST_USES]))
        connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (path, msgspec.json.encode(seen)))
