"""Ids of calls and other records: unguessable, and the time comes first, so that new ones are adjacent in the index."""

import os

UNGUESSABLE = 16  # letters
BATCH = 64  # ids whose letters are fetched at once: asking the kernel takes longer than all else that an id needs

_spare: list[str] = []
os.register_at_fork(after_in_child=_spare.clear)


def call_id(at: int) -> str:
    """Return a new id for a record of that time, in microseconds."""
    try:
        letters = _spare.pop()  # in one step, because several threads have hosts
    except IndexError:
        fresh = os.urandom(BATCH * UNGUESSABLE // 2).hex()
        letters, *others = (fresh[start : start + UNGUESSABLE] for start in range(0, len(fresh), UNGUESSABLE))
        _spare.extend(others)
    return f"{at:x}{letters}"
