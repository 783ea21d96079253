"""JSON values: how deep and how many they are, and whether two are the same. Pure."""

import sys
from typing import Any

import msgspec

from anyplug.model.late_patterns import late

# Levels. People and models write about ten; recursion needs a few frames per level, and Python allows a thousand.
DEEPEST = 128
DEEPEST_METADATA = 210  # Workbench itself cuts off at 200
TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"
# Values in one message. Each costs microseconds, so that megabytes of them would hold up everybody; a table of ten
# columns has room for nearly twenty thousand rows.
MOST_VALUES = 200_000
TOO_MANY = f"it has more than {MOST_VALUES:,} values"
SHORTEST_VALUE = 2  # bytes, with its comma or bracket

_HALF = (b"\\ud", b"\\uD")  # how an escape of half a character begins, also that of one with its other half
_LONE = late(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_MARK = rb"\\ufffd"  # as a template: one backslash
_BACKSLASH, _HIDDEN = rb"\\", b"\0\0"  # the escape of a backslash, and bytes that JSON does not have

_CONTAINERS = (dict, list, tuple)
_encode_in_order = msgspec.json.Encoder(order="deterministic").encode


def with_whole_characters(data: bytes) -> bytes:
    """Return JSON with a mark for each half of a surrogate pair, as programs in JavaScript send it if they cut a text.

    Decoders refuse it, and what is not decoded is neither answered nor recorded.
    """
    if not any(half in data for half in _HALF) or b"\0" in data:
        return data
    return _LONE.sub(_MARK, data.replace(_BACKSLASH, _HIDDEN)).replace(_HIDDEN, _BACKSLASH)


def is_too_deep(value: Any, deepest: int = DEEPEST) -> bool:
    """Return whether a value is nested more deeply than we pass on."""
    return excess(value, deepest, sys.maxsize) == TOO_DEEP


def excess(value: Any, deepest: int = DEEPEST, most: int = MOST_VALUES) -> str:
    """Return why a value is not passed on: it is too deep, or has too many values in it; empty if it is neither.

    Looks at no more than `most` values.
    """
    if not value:  # as most results have no structured form
        return ""
    level = [value] if isinstance(value, _CONTAINERS) else []
    values = 0
    for _ in range(deepest):
        if not level:
            return ""
        values += sum(map(len, level))
        if values > most:
            return TOO_MANY if most == MOST_VALUES else f"it has more than {most:,} values"
        level = [
            item
            for one in level
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, _CONTAINERS)
        ]
    return TOO_DEEP if level else ""


def has_too_many(text: bytes) -> bool:
    """Return whether JSON has more values than we pass on, without decoding it."""
    if len(text) <= SHORTEST_VALUE * MOST_VALUES or _separators(text) <= MOST_VALUES:
        return False
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 4 * MOST_VALUES:  # two for each key, and two for each text
        return True
    # Only separators outside texts count; something stays in each text's place, or its list would look empty.
    return _separators(b"0".join(plain.split(b'"')[::2])) > MOST_VALUES


def are_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON. Python considers 1, 1.0 and true equal."""
    return one is other or (one == other and _encode_in_order(one) == _encode_in_order(other))


def _separators(text: bytes) -> int:
    """Count values: each follows a comma, or opens what is not empty."""
    opened = text.count(b"[") + text.count(b"{") - text.count(b"[]") - text.count(b"{}")
    return text.count(b",") + opened


def kind(value: Any) -> str:
    """Name a JSON type."""
    kinds = {
        bool: "true or false",
        str: "a text",
        int: "a number",
        float: "a number",
        dict: "an object",
        list: "a list",
    }
    return "null" if value is None else kinds.get(type(value), type(value).__name__)


def _items(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
