"""Weigh the patterns of a schema: how long they may search a text. A plugin writes both. Pure."""

import functools
from collections.abc import Iterator
from itertools import islice
from typing import Any

BACKTRACKING = 10_000  # steps that a plugin's pattern may take for one text
MOST_TEXT = 200_000  # characters that one check may search; the slowest small patterns take 2 µs each
MOST = 500  # different patterns of one schema: a small one takes 0.2 ms to compile
MOST_LARGE = 4  # of them that backtrack and are large: each takes up to 33 ms
_SMALL = 1 << 16  # bytes of a compiled pattern
_LARGE = 16  # a larger one can take so many times as long for each character
_SQUARE = 500  # one that backtracks takes so long for a text of n characters as a small one for n²/500,
_STEPS = 50  # or, trying all ways to split a short text, as a small one for a fiftieth of the steps


def has_any(schema: Any) -> bool:
    """Return whether a schema has patterns anywhere."""
    return next(_all(schema), None) is not None


def take_long_to_compile(schema: Any) -> bool:
    """Return whether compiling the patterns of a schema would hold up the event loop."""
    found = set(islice(_all(schema), MOST + 1))
    if len(found) > MOST:
        return True
    large = (pattern for pattern in found if not _weight(pattern) and not _is_small(pattern))
    return next(islice(large, MOST_LARGE, None), None) is not None


def _all(schema: Any) -> Iterator[str]:
    parts = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            yield from _of(part)
            parts += part.values()
        elif isinstance(part, list):
            parts += part


def once(schema: dict[str, Any]) -> int:
    """Weigh the patterns of one subschema that search a text once: for each character."""
    return sum(_weight(pattern) for pattern in _of(schema))


def backtracking(schema: dict[str, Any]) -> int:
    """Count the patterns of one subschema that may search a text from each of its characters on."""
    return sum(not _weight(pattern) for pattern in _of(schema))


def length(value: Any) -> tuple[int, int]:
    """Return how many characters the texts of a value have, and what they take a pattern that backtracks."""
    characters = again = 0
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            parts += part.keys()
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
        elif isinstance(part, str):
            characters += len(part)
            again += max(len(part) ** 2 // _SQUARE, min(1 << min(len(part), 32), BACKTRACKING) // _STEPS)
    return characters, again


def _of(schema: dict[str, Any]) -> Iterator[str]:
    if isinstance(pattern := schema.get("pattern"), str):
        yield pattern
    if isinstance(properties := schema.get("patternProperties"), dict):
        yield from properties


@functools.lru_cache(1024)
def _weight(pattern: str) -> int:
    """Return what a pattern takes for each character; 0 if it backtracks."""
    import jsonschema_rs  # takes 34 ms to import, and only calls need it

    for size, weight in ((_SMALL, 1), (None, _LARGE)):
        try:
            jsonschema_rs.validator_for(
                {"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions(size_limit=size)
            )
        except jsonschema_rs.ValidationError:
            continue
        return weight
    return 0


@functools.lru_cache(1024)
def _is_small(pattern: str) -> bool:
    """Return whether a pattern that backtracks is quickly compiled; one that is not valid counts as large."""
    import jsonschema_rs  # for the same reason

    options = jsonschema_rs.FancyRegexOptions(size_limit=_SMALL)
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
    except jsonschema_rs.ValidationError:
        return False
    return True
