"""Comparison, arithmetic, bits, aggregates, casts and questions about types."""

import functools
import re
from decimal import Decimal
from typing import Any, Final

from anyplug.policy.rego import numbers, runtime
from anyplug.policy.rego.builtins.registry import ANY, ARRAY, LIST, NUMBER, SET, builtin, need_integer, wrong
from anyplug.policy.rego.errors import BuiltinError, NotSupported, OperandError
from anyplug.policy.rego.values import FALSE, NULL, TRUE, Object, Set, boolean, compare, ordered, type_name

NUMERIC: Final[frozenset[Any]] = frozenset({int, Decimal})
MAX_RANGE: Final = 1_000_000  # numbers in one range
MAX_SHIFT: Final = 4_096  # bits
COUNTED: Final = frozenset({tuple, Object, Set, str})
NO_NUMBERS: Final = frozenset({"nan", "inf", "infinity"})
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$")


def lt(left: Any, right: Any) -> bool:
    """Left < right."""
    return compare(left, right) < 0


def lte(left: Any, right: Any) -> bool:
    """Left <= right."""
    return compare(left, right) <= 0


def gt(left: Any, right: Any) -> bool:
    """Left > right."""
    return compare(left, right) > 0


def gte(left: Any, right: Any) -> bool:
    """Left >= right."""
    return compare(left, right) >= 0


ORDERINGS: Final = {"lt": lt, "lte": lte, "gt": gt, "gte": gte}


def _ordering(name: str) -> None:
    test = ORDERINGS[name]

    @builtin(name, ANY, ANY)
    def tested(left: Any, right: Any) -> Any:
        return boolean(test(left, right))


for _name in ORDERINGS:
    _ordering(_name)


@builtin("equal", ANY, ANY)
def equal(left: Any, right: Any) -> Any:
    """Left == right."""
    return boolean(left == right)


@builtin("eq", ANY, ANY)
def eq(left: Any, right: Any) -> Any:
    """Left = right, where it is no expression of its own."""
    return boolean(left == right)


@builtin("neq", ANY, ANY)
def neq(left: Any, right: Any) -> Any:
    """Left != right."""
    return boolean(left != right)


@builtin("internal.member_2", ANY, ANY)
def member_2(value: Any, collection: Any) -> Any:
    """Value in collection."""
    return runtime.member(value, collection)


@builtin("internal.member_3", ANY, ANY, ANY)
def member_3(key: Any, value: Any, collection: Any) -> Any:
    """key, value in collection."""
    return runtime.member_at(key, value, collection)


# Arithmetic.


@builtin("plus", NUMBER, NUMBER)
def plus(left: Any, right: Any) -> Any:
    """Left + right."""
    return numbers.add(left, right)


@builtin("minus", ANY, ANY)
def minus(left: Any, right: Any) -> Any:
    """Left - right, of numbers or of sets."""
    if left.__class__ is Set:
        if right.__class__ is not Set:
            raise wrong(2, "set", right)
        return Set(left - right)
    if left.__class__ not in NUMERIC:
        raise wrong(1, "one of {number, set}", left)
    if right.__class__ not in NUMERIC:
        raise wrong(2, "number", right)
    return numbers.subtract(left, right)


@builtin("mul", NUMBER, NUMBER)
def mul(left: Any, right: Any) -> Any:
    """Left * right."""
    return numbers.multiply(left, right)


@builtin("div", NUMBER, NUMBER)
def div(left: Any, right: Any) -> Any:
    """Left / right."""
    return numbers.divide(left, right)


@builtin("rem", NUMBER, NUMBER)
def rem(left: Any, right: Any) -> Any:
    """Left % right."""
    return numbers.remainder(left, right)


@builtin("round", NUMBER)
def round_(value: Any) -> Any:
    """Round half away from zero."""
    return numbers.nearest(value)


@builtin("ceil", NUMBER)
def ceil(value: Any) -> Any:
    """Round up."""
    return numbers.ceiling(value)


@builtin("floor", NUMBER)
def floor(value: Any) -> Any:
    """Round down."""
    return numbers.floor(value)


@builtin("abs", NUMBER)
def abs_(value: Any) -> Any:
    """Without its sign."""
    return value.copy_abs() if value.__class__ is Decimal else abs(value)


@builtin("numbers.range", ANY, ANY, context=True)
def number_range(context: Any, first: Any, last: Any) -> Any:
    """Give the integers from first to last, up or down."""
    return _range(context, need_integer(1, first), need_integer(2, last), 1)


@builtin("numbers.range_step", ANY, ANY, ANY, context=True)
def number_range_step(context: Any, first: Any, last: Any, step: Any) -> Any:
    """Give every so-manieth integer from first to last."""
    distance = need_integer(3, step)
    if distance <= 0:
        msg = "step must be a positive number above zero"
        raise BuiltinError(msg)
    return _range(context, need_integer(1, first), need_integer(2, last), distance)


def _range(context: Any, first: int, last: int, step: int) -> tuple[int, ...]:
    if abs(last - first) // step > MAX_RANGE:
        msg = f"a range of more than {MAX_RANGE} numbers"
        raise NotSupported(msg)
    found = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    context.spend(len(found))
    return tuple(found)


# Bits.


@builtin("bits.and", NUMBER, NUMBER)
def bits_and(left: Any, right: Any) -> Any:
    """Left & right."""
    return need_integer(1, left) & need_integer(2, right)


@builtin("bits.or", NUMBER, NUMBER)
def bits_or(left: Any, right: Any) -> Any:
    """Left | right."""
    return need_integer(1, left) | need_integer(2, right)


@builtin("bits.xor", NUMBER, NUMBER)
def bits_xor(left: Any, right: Any) -> Any:
    """Left ^ right."""
    return need_integer(1, left) ^ need_integer(2, right)


@builtin("bits.negate", NUMBER)
def bits_negate(value: Any) -> Any:
    """~value."""
    return ~need_integer(1, value)


def _shift(value: Any, by: Any) -> tuple[int, int]:
    number, distance = need_integer(1, value), need_integer(2, by)
    if distance < 0:
        msg = "operand 2 must be an unsigned integer number but got a negative integer"
        raise OperandError(msg)
    if distance > MAX_SHIFT:
        msg = f"a shift of more than {MAX_SHIFT} bits"
        raise NotSupported(msg)
    return number, distance


@builtin("bits.lsh", NUMBER, NUMBER)
def bits_lsh(value: Any, by: Any) -> Any:
    """Value << by."""
    number, distance = _shift(value, by)
    return numbers.bounded(number << distance)


@builtin("bits.rsh", NUMBER, NUMBER)
def bits_rsh(value: Any, by: Any) -> Any:
    """Value >> by."""
    number, distance = _shift(value, by)
    return number >> distance


# Sets by operator.


@builtin("and", SET, SET)
def intersect(left: Any, right: Any) -> Any:
    """Left & right."""
    return Set(left & right)


@builtin("or", SET, SET)
def unite(left: Any, right: Any) -> Any:
    """Left | right."""
    return Set(left | right)


# Aggregates.


@builtin("count", frozenset({tuple, Object, Set, str}))
def count(value: Any) -> Any:
    """Count members, or characters."""
    return len(value)


def _numbers(value: Any) -> list[Any]:
    if value.__class__ not in {tuple, Set}:
        raise wrong(1, "one of {set, array}", value)
    members = value.ordered() if value.__class__ is Set else list(value)
    for item in members:
        if item.__class__ not in NUMERIC:
            kind = "set" if value.__class__ is Set else "array"
            msg = f"operand 1 must be {kind} of numbers but got {kind} containing {type_name(item)}"
            raise OperandError(msg)
    return members


@builtin("sum", ANY)
def sum_(value: Any) -> Any:
    """Add all numbers."""
    return functools.reduce(numbers.add, [0, *_numbers(value)])


@builtin("product", ANY)
def product(value: Any) -> Any:
    """Multiply all numbers."""
    return functools.reduce(numbers.multiply, [1, *_numbers(value)])


@builtin("max", LIST)
def max_(value: Any) -> Any:
    """Give the greatest member; undefined if there is none."""
    found = ordered(value)
    return found[-1] if found else None


@builtin("min", LIST)
def min_(value: Any) -> Any:
    """Give the least member; undefined if there is none."""
    found = ordered(value)
    return found[0] if found else None


@builtin("sort", LIST)
def sort(value: Any) -> Any:
    """Sort all members."""
    return tuple(ordered(value))


# Types.


@builtin("to_number", ANY)
def to_number(value: Any) -> Any:
    """Give a number for null, booleans and texts."""
    if value is NULL or value is FALSE:
        return 0
    if value is TRUE:
        return 1
    if value.__class__ in NUMERIC:
        return value
    if value.__class__ is not str:
        raise wrong(1, "one of {null, boolean, number, string}", value)
    if value.lower().lstrip("+-") in NO_NUMBERS:
        msg = f"operand 1 must be valid number but got {value}"
        raise OperandError(msg)
    if not _NUMBER.match(value) or "_" in value:
        msg = f"strconv.ParseFloat: parsing {value!r}: invalid syntax"
        raise BuiltinError(msg)
    plain = value.removeprefix("+")
    try:
        return (
            numbers.parse(plain) if not plain.lstrip("-").startswith("0") else _plain(numbers.decimal(Decimal(plain)))
        )
    except ArithmeticError:
        msg = f"number out of range: {value}"
        raise BuiltinError(msg) from None


def _plain(value: Decimal) -> Any:
    return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else value


@builtin("type_name", ANY)
def type_name_(value: Any) -> Any:
    """Name the type of a value."""
    return type_name(value)


def _question(name: str, *names: str) -> None:
    @builtin(name, ANY)
    def asked(value: Any) -> Any:
        return boolean(type_name(value) in names)


for _kind in ("null", "boolean", "number", "string", "array", "object", "set"):
    _question(f"is_{_kind}", _kind)


@builtin("intersection", SET)
def intersection(value: Any) -> Any:
    """Give what all sets of a set have in common."""
    found = _sets(value)
    return Set(frozenset.intersection(*found)) if found else Set()


@builtin("union", SET)
def union(value: Any) -> Any:
    """Give what any set of a set has."""
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
    """Put two arrays one behind the other."""
    return left + right


@builtin("array.slice", ARRAY, NUMBER, NUMBER)
def array_slice(value: Any, start: Any, stop: Any) -> Any:
    """Give a part of an array."""
    first, last = max(need_integer(2, start), 0), min(need_integer(3, stop), len(value))
    return value[first:last] if first < last else ()


@builtin("array.reverse", ARRAY)
def array_reverse(value: Any) -> Any:
    """Give the last first."""
    return value[::-1]


@builtin("array.flatten", ARRAY)
def array_flatten(value: Any) -> Any:
    """Put the members of arrays in an array in their place."""
    return tuple(item for each in value for item in (each if each.__class__ is tuple else (each,)))
