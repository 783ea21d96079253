"""Several documents into one: what rules give, what is stored below `data`, and what `with` puts there."""

from typing import Any

from anyplug.rego.values.rego_errors import ConflictError
from anyplug.rego.values.values import Object, Set


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a document with another value at a path."""
    if not path:
        return value
    made = dict(document) if document.__class__ is Object else {}
    made[path[0]] = put(made.get(path[0]), path[1:], value)
    return Object(made)


def overlay(lower: Any, upper: Any) -> Any:
    """Merge a document over what rules gave."""
    if lower.__class__ is not Object or upper.__class__ is not Object:
        return upper
    made = dict(lower)
    for key, value in upper.items():
        made[key] = overlay(lower[key], value) if key in lower else value
    return Object(made)


def merge(one: Any, other: Any) -> Any:
    """Merge what several rules say of one path. Raises ConflictError."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if one.__class__ is Object and other.__class__ is Object:
        made = dict(one)
        for key, value in other.items():
            made[key] = merge(one.get(key), value)
        return Object(made)
    if one.__class__ is Set and other.__class__ is Set:
        return Set(one | other)
    msg = "object keys must be unique"
    raise ConflictError(msg)


def frozen(made: Any) -> Any:
    """Return what partial rules made as values."""
    kind = made.__class__
    if kind is dict:
        return Object({key: frozen(value) for key, value in made.items()})
    return Set(made) if kind is set else made
