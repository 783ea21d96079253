"""Aggregates, and what else is done with whole sets and arrays."""

import functools
from fractions import Fraction
from typing import Any, Final

from anyplug.rego.builtins.builtin_table import ANY, ARRAY, LIST, NUMBER, NUMERIC, SET, builtin, need_integer, wrong
from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import OperandError
from anyplug.rego.values.values import Object, Set, ordered, type_name

DOUBLE: Final = 53  # bits of mantissa with which OPA multiplies


@builtin("count", frozenset({tuple, Object, Set, str}))
def count(value: Any) -> Any:
    """Count members, or characters."""
    return len(value)


def _numbers(value: Any) -> tuple[Any, ...]:
    if value.__class__ not in {tuple, Set}:
        raise wrong(1, "one of {set, array}", value)
    members: tuple[Any, ...] = value.ordered() if isinstance(value, Set) else value
    for item in members:
        if item.__class__ not in NUMERIC:
            kind = "set" if value.__class__ is Set else "array"
            msg = f"operand 1 must be {kind} of numbers but got {kind} containing {type_name(item)}"
            raise OperandError(msg)
    return members


@builtin("sum", ANY)
def sum_(value: Any) -> Any:
    """Add all numbers."""
    members = _numbers(value)
    if {item.__class__ for item in members} <= {int}:
        return numbers.bounded(sum(members))
    exact = [numbers.whole(item) for item in members]
    if None not in exact:
        return numbers.bounded(sum(exact))  # type: ignore[arg-type]
    found = Fraction(0)
    for item in members:
        found = numbers.rounded(found + numbers.rounded(numbers.fraction(item)))
    return numbers.number(found)


@builtin("product", ANY)
def product(value: Any) -> Any:
    """Multiply all numbers."""
    members = _numbers(value)
    exact = [numbers.whole(item) for item in members]
    if None not in exact:
        return functools.reduce(numbers.multiply, exact, 1)  # type: ignore[arg-type]
    found = Fraction(1)
    for item in members:
        found = numbers.rounded(found * numbers.rounded(numbers.fraction(item)), DOUBLE)
    return numbers.number(found, DOUBLE)


@builtin("max", LIST)
def max_(value: Any) -> Any:
    """Return the greatest member; undefined if there is none."""
    found = ordered(value)
    return found[-1] if found else None


@builtin("min", LIST)
def min_(value: Any) -> Any:
    """Return the least member; undefined if there is none."""
    found = ordered(value)
    return found[0] if found else None


@builtin("sort", LIST)
def sort(value: Any) -> Any:
    """Sort all members."""
    return ordered(value)


# Sets of sets.


@builtin("intersection", SET)
def intersection(value: Any) -> Any:
    """Return what all sets of a set have in common."""
    found = _sets(value)
    return Set(frozenset.intersection(*found)) if found else Set()


@builtin("union", SET)
def union(value: Any) -> Any:
    """Return what any set of a set has."""
    return Set(frozenset().union(*_sets(value)))


def _sets(value: Any) -> list[Any]:
    for item in value:
        if item.__class__ is not Set:
            msg = f"operand 1 must be set of sets but got set containing {type_name(item)}"
            raise OperandError(msg)
    return list(value)


# Arrays.


@builtin("array.concat", ARRAY, ARRAY)
def array_concat(left: Any, right: Any) -> Any:
    """Concatenate two arrays."""
    return left + right


@builtin("array.slice", ARRAY, NUMBER, NUMBER)
def array_slice(value: Any, start: Any, stop: Any) -> Any:
    """Return a part of an array."""
    first, last = max(need_integer(2, start), 0), min(need_integer(3, stop), len(value))
    return value[first:last] if first < last else ()


@builtin("array.reverse", ARRAY)
def array_reverse(value: Any) -> Any:
    """Return the last first."""
    return value[::-1]


@builtin("array.flatten", ARRAY)
def array_flatten(value: Any) -> Any:
    """Put the members of arrays in an array in their place."""
    return tuple(item for each in value for item in (each if each.__class__ is tuple else (each,)))
