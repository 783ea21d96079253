"""Documents: what a JSON reader gives becomes values, and values become that again."""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import NotSupported
from anyplug.rego.values.text import json_text, valid
from anyplug.rego.values.values import FALSE, NULL, TRUE, Atom, Object, Set

MAX_DEPTH: Final = 150  # of a document: deeper ones are refused before Python's own stack ends
ATOMS: Final = {None: NULL, True: TRUE, False: FALSE}
SMALL, LARGE = -(1 << 63), (1 << 63) - 1  # integers that need no closer look
PLAIN: Final = {NULL: None, TRUE: True, FALSE: False}


def _number(value: float) -> Decimal:
    return numbers.decimal(Decimal(repr(value)))


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, as JSON can escape it; Go replaces it, too
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def from_json(document: Any, depth: int = MAX_DEPTH) -> Any:
    """Make a value of what a JSON reader gives (also tuples, sets, and values that were made already).

    Raises NotSupported for anything else, and for documents nested too deeply.
    """
    kind = document.__class__
    if kind is str:
        return document if document.isascii() else _text(document)
    if kind is dict:
        if depth <= 0:
            raise _too_deep()
        depth -= 1
        return Object(
            {
                key if key.__class__ is str and key.isascii() else from_json(key, depth): value
                if value.__class__ is str and value.isascii()
                else from_json(value, depth)
                for key, value in document.items()
            }
        )
    if kind is bool or document is None:
        return ATOMS[document]
    if kind is list:
        if depth <= 0:
            raise _too_deep()
        depth -= 1
        return tuple(
            [item if item.__class__ is str and item.isascii() else from_json(item, depth) for item in document]
        )
    if kind is int:
        return document if SMALL <= document <= LARGE else numbers.bounded(document)
    return _from_other(document, depth)


def _too_deep() -> NotSupported:
    return NotSupported(f"a document is nested more than {MAX_DEPTH} levels deep")


def _from_other(document: Any, depth: int) -> Any:
    if isinstance(document, Object | Set | Atom):
        return document
    if isinstance(document, float):
        return _number(document)
    if isinstance(document, Decimal):
        return numbers.decimal(document)
    if depth <= 0:
        raise _too_deep()
    if isinstance(document, str):
        return _text(str(document))
    if isinstance(document, int):
        return numbers.bounded(int(document))
    if isinstance(document, Mapping):
        return from_json(dict(document), depth)
    if isinstance(document, AbstractSet):
        return Set(from_json(item, depth - 1) for item in document)
    if isinstance(document, Sequence) and not isinstance(document, bytes | bytearray | memoryview):
        return tuple([from_json(item, depth - 1) for item in document])
    msg = f"{type(document).__name__} is not a JSON value"
    raise NotSupported(msg)


def _plain(value: Decimal) -> int | float:
    """Return 3.0 as an integer, since JSON knows no difference, and all else as a float if there is one."""
    if value == value.to_integral_value() and "E" not in str(value):
        return int(value)
    found = float(value)
    return int(value) if math.isinf(found) else found


def _name(key: Any) -> str:
    return valid(key) if key.__class__ is str else json_text(key)


def to_json(value: Any) -> Any:
    """Return a value as plain Python: sets become sorted lists, keys that are not strings are written as JSON."""
    kind = value.__class__
    if kind is str:
        return value if value.isascii() else valid(value)
    if kind is Atom:
        return PLAIN[value]
    if kind is Object:
        return {
            name if name.__class__ is str and name.isascii() else _name(name): item
            if item.__class__ is str and item.isascii()
            else to_json(item)
            for name, item in value.items()
        }
    if kind is tuple:
        return [to_json(item) for item in value]
    if kind is Set:
        return [to_json(item) for item in value.ordered()]
    if kind is Decimal:
        return _plain(value)
    return value
