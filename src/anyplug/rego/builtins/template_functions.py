"""What Go's text templates can call, and how they show values."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.builtins import verbs
from anyplug.rego.values.rego_errors import BuiltinError
from anyplug.rego.values.text import json_text
from anyplug.rego.values.values import FALSE, NULL, TRUE, Atom, Object, Set, boolean, compare, type_name

_VERB: Final = re.compile("%.?", re.DOTALL)


class Digits(str):
    """A number of the input: a text for Go, but no string that a map could be indexed with."""

    __slots__ = ()


def is_true(value: Any) -> bool:
    """Return whether a value counts as true: all but false, null, zero and what is empty."""
    return not (value is FALSE or value is NULL or value in {0, ""} or value in ((), Object(), Set()))


def shown(value: Any) -> str:
    """Write a value as Go prints it."""
    if isinstance(value, str):
        return str(value)
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
    texts = all(isinstance(value, str) for value in (first, *others))
    if not others or not (texts or all(value in {TRUE, FALSE} for value in (first, *others))):
        msg = "template: a comparison of other than strings or booleans"
        raise BuiltinError(msg)
    return boolean(first in others)


def _ordering(test: Callable[[int], bool]) -> Callable[..., Any]:
    def asked(left: Any, right: Any) -> Any:
        if not (isinstance(left, str) and isinstance(right, str)):
            msg = "template: an order of other than strings"
            raise BuiltinError(msg)
        return boolean(test(compare(str(left), str(right))))

    return asked


def _index(value: Any, *keys: Any) -> Any:
    if value is NULL:
        msg = "template: error calling index: index of untyped nil"
        raise BuiltinError(msg)
    for key in keys:
        item = value.__class__ is tuple and key.__class__ is int and 0 <= key < len(value)
        if item or (value.__class__ is Object and key.__class__ is str and key in value):
            value = value[key]
        else:
            msg = f"template: error calling index: {shown(key)}"
            raise BuiltinError(msg)
    return value


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if value.__class__ in {int, Decimal, Atom}:
        msg = f"template: error calling len: len of type {type_name(value)}"
        raise BuiltinError(msg)
    return len(value)


def _print(*values: Any) -> str:
    """Join as Go's fmt.Sprint does: a space between two that are not strings."""
    out: list[str] = []
    for index, value in enumerate(values):
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            out.append(" ")
        out.append(_inner(value))
    return "".join(out)


def _printf(form: Any, *values: Any) -> str:
    if form.__class__ is not str:
        msg = "template: wrong type for value; expected string"
        raise BuiltinError(msg)
    wanted = _VERB.findall(form)
    if (
        not all(isinstance(value, str) for value in values)
        or set(wanted) - {"%s", "%v", "%q"}
        or len(wanted) != len(values)
    ):
        msg = "template: printf of more than strings"
        raise BuiltinError(msg)
    return verbs.sprintf(form, tuple(map(str, values)))


LAZY: Final = {"and": False, "or": True}  # end with the first argument of this truth
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "eq": _equal, "ne": lambda left, right: boolean(_equal(left, right) is FALSE),
    "lt": _ordering(lambda order: order < 0),
    "le": _ordering(lambda order: order <= 0), "gt": _ordering(lambda order: order > 0),
    "ge": _ordering(lambda order: order >= 0), "not": lambda value: boolean(not is_true(value)),
    "len": _length, "index": _index, "print": _print, "printf": _printf,
    "println": lambda *values: " ".join(map(_inner, values)) + "\n",
}  # fmt: skip
