"""JSON values: how deep they are, and whether two are the same. Pure."""

from typing import Any

import msgspec

# Levels. People and models write about ten; recursion needs a few frames per level, and Python allows a thousand.
DEEPEST = 128
DEEPEST_METADATA = 210  # Workbench itself cuts off at 200
TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"

_encode_in_order = msgspec.json.Encoder(order="deterministic").encode


def is_too_deep(value: Any, deepest: int = DEEPEST) -> bool:
    """Return whether a value is nested more deeply than we pass on."""
    level = [value]
    for _ in range(deepest):
        level = [item for one in level for item in _items(one) if isinstance(item, dict | list | tuple)]
        if not level:
            return False
    return True


def are_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON. Python considers 1, 1.0 and true equal."""
    return one is other or (one == other and _encode_in_order(one) == _encode_in_order(other))


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
