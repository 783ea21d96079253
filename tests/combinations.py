"""Which combinations of parameters are tried: of tests marked `combinations` a sample in every run, else all of them.

The sample has every combination of all parameters but one: each pair of three, each value of two, one value of one.
"""

import itertools
import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest

from random_examples import LONG_FORM

MARK = "combinations"
ALWAYS = "node"  # a parameter of so many tests that each of them counts as marked


def sampled(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests to run, in their order."""
    if os.environ.get(LONG_FORM):
        return items
    groups = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and (item.get_closest_marker(MARK) or ALWAYS in callspec.params):
            groups[item.nodeid.partition("[")[0]].append(item)
    left_out = {item for name, group in groups.items() for item in set(group) - set(_sample(name, group))}
    return [item for item in items if item not in left_out]


def _sample(name: str, group: list[pytest.Item]) -> Iterable[pytest.Item]:
    rows = {item: {(key, repr(value)) for key, value in item.callspec.params.items()} for item in group}  # type: ignore[attr-defined]
    together = len(rows[group[0]]) - 1
    if not together:
        return [group[zlib.crc32(name.encode()) % len(group)]]
    parts = {item: set(itertools.combinations(sorted(row), together)) for item, row in rows.items()}
    missing, used, chosen = set().union(*parts.values()), Counter[tuple[str, str]](), []
    while missing:  # the one that adds most, and of these the one with the rarest values so far
        best = max(group, key=lambda item: (len(parts[item] & missing), -sum(used[one] for one in rows[item])))
        chosen.append(best)
        missing -= parts[best]
        used.update(rows[best])
    return chosen
