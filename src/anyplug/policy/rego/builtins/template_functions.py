"""What Go's text templates can call, and how they show values."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from anyplug.policy.rego.builtins import verbs
from anyplug.policy.rego.errors import BuiltinError
from anyplug.policy.rego.texts import json_text
from anyplug.policy.rego.values import FALSE, NULL, Atom, Object, Set, boolean, compare, type_name

_VERB: Final = re.compile("%.?", re.DOTALL)


def is_true(value: Any) -> bool:
    """Whether a value counts as true: all but false, null, zero and what is empty."""
    return not (value is FALSE or value is NULL or value in {0, ""} or value in ((), Object(), Set()))


def shown(value: Any) -> str:
    """Write a value as Go prints it."""
    if value.__class__ is str:
        return value
    if value is NULL:
        return "<no value>"
    if value.__class__ is Object:
        return "map[" + " ".join(f"{shown(key)}:{_inner(item)}" for key, item in value.pairs()) + "]"
    if value.__class__ in {tuple, Set}:
        return "[" + " ".join(_inner(item) for item in (value.ordered() if value.__class__ is Set else value)) + "]"
    return json_text(value)


def _inner(value: Any) -> str:
    return "<nil>" if value is NULL else shown(value)


def _equal(first: Any, *others: Any) -> Any:
    for value in (first, *others):
        if value.__class__ is not str:
            msg = "template: a comparison of what are no strings"
            raise BuiltinError(msg)
    return boolean(first in others)


def _ordering(test: Callable[[int], bool]) -> Callable[..., Any]:
    def asked(left: Any, right: Any) -> Any:
        _equal(left, right)
        return boolean(test(compare(left, right)))

    return asked


def _and(*values: Any) -> Any:
    return next((value for value in values if not is_true(value)), values[-1])


def _or(*values: Any) -> Any:
    return next((value for value in values if is_true(value)), values[-1])


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if (value.__class__ is tuple and key.__class__ is int and 0 <= key < len(value)) or (
            value.__class__ is Object and key in value
        ):
            value = value[key]
        else:
            msg = f"template: error calling index: {shown(key)}"
            raise BuiltinError(msg)
    return value


def _length(value: Any) -> int:
    if value.__class__ is str:
        return len(value.encode())
    if value.__class__ in {int, Decimal, Atom}:
        msg = f"template: error calling len: len of type {type_name(value)}"
        raise BuiltinError(msg)
    return len(value)


def _print(*values: Any) -> str:
    """Join as Go's fmt.Sprint does: a space between two that are no strings."""
    out: list[str] = []
    for index, value in enumerate(values):
        if index and value.__class__ is not str and values[index - 1].__class__ is not str:
            out.append(" ")
        out.append(_inner(value))
    return "".join(out)


def _printf(form: Any, *values: Any) -> str:
    if form.__class__ is not str:
        msg = "template: wrong type for value; expected string"
        raise BuiltinError(msg)
    if not all(value.__class__ is str for value in values) or set(_VERB.findall(form)) - {"%s", "%v"}:
        msg = "template: printf of more than strings"
        raise BuiltinError(msg)
    return verbs.sprintf(form, values)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "eq": _equal, "ne": lambda left, right: boolean(_equal(left, right) is FALSE),
    "lt": _ordering(lambda order: order < 0),
    "le": _ordering(lambda order: order <= 0), "gt": _ordering(lambda order: order > 0),
    "ge": _ordering(lambda order: order >= 0), "and": _and, "or": _or, "not": lambda value: boolean(not is_true(value)),
    "len": _length, "index": _index, "print": _print, "printf": _printf,
    "println": lambda *values: " ".join(map(_inner, values)) + "\n",
}  # fmt: skip
