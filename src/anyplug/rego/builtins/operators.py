"""What operators stand for, and the arithmetic beside them: comparison, membership, numbers, bits, sets."""

from typing import Any, Final

from anyplug.rego.builtins.builtin_table import ANY, NUMBER, NUMERIC, SET, builtin, wrong
from anyplug.rego.evaluate import run_context
from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported, OperandError
from anyplug.rego.values.values import Set, boolean, compare

MAX_RANGE: Final = 1_000_000  # numbers in one range
MAX_SHIFT: Final = 4_096  # bits
WORD: Final = (1 << 64) - 1  # what OPA keeps of a shift's distance


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
    """Left = right, where it is not a separate expression."""
    return boolean(left == right)


@builtin("neq", ANY, ANY)
def neq(left: Any, right: Any) -> Any:
    """Left != right."""
    return boolean(left != right)


@builtin("internal.member_2", ANY, ANY)
def member_2(value: Any, collection: Any) -> Any:
    """Value in collection."""
    return run_context.member(value, collection)


@builtin("internal.member_3", ANY, ANY, ANY)
def member_3(key: Any, value: Any, collection: Any) -> Any:
    """key, value in collection."""
    return run_context.member_at(key, value, collection)


# Arithmetic.


def _whole(index: int, value: Any) -> int:
    if value.__class__ not in NUMERIC:
        raise wrong(index, "integer", value)
    found = numbers.whole(value)
    if found is None:
        msg = f"operand {index} must be integer number but got floating-point number"
        raise OperandError(msg)
    return found


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
    """Return the absolute value."""
    return numbers.absolute(value)


@builtin("numbers.range", ANY, ANY, context=True)
def number_range(context: Any, first: Any, last: Any) -> Any:
    """Return the integers from first to last, up or down."""
    return _range(context, _whole(1, first), _whole(2, last), 1)


@builtin("numbers.range_step", ANY, ANY, ANY, context=True)
def number_range_step(context: Any, first: Any, last: Any, step: Any) -> Any:
    """Return every n-th integer from first to last."""
    distance = _whole(3, step)
    if distance <= 0:
        msg = "step must be a positive number above zero"
        raise BuiltinError(msg)
    return _range(context, _whole(1, first), _whole(2, last), distance)


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
    return _whole(1, left) & _whole(2, right)


@builtin("bits.or", NUMBER, NUMBER)
def bits_or(left: Any, right: Any) -> Any:
    """Left | right."""
    return _whole(1, left) | _whole(2, right)


@builtin("bits.xor", NUMBER, NUMBER)
def bits_xor(left: Any, right: Any) -> Any:
    """Left ^ right."""
    return _whole(1, left) ^ _whole(2, right)


@builtin("bits.negate", NUMBER)
def bits_negate(value: Any) -> Any:
    """~value."""
    return ~_whole(1, value)


def _shift(value: Any, by: Any) -> tuple[int, int]:
    number, distance = _whole(1, value), _whole(2, by)
    if distance < 0:
        msg = "operand 2 must be an unsigned integer number but got a negative integer"
        raise OperandError(msg)
    return number, distance & WORD


@builtin("bits.lsh", NUMBER, NUMBER)
def bits_lsh(value: Any, by: Any) -> Any:
    """Value << by."""
    number, distance = _shift(value, by)
    if number and distance > MAX_SHIFT:
        msg = f"a shift of more than {MAX_SHIFT} bits"
        raise NotSupported(msg)
    return numbers.bounded(number << min(distance, MAX_SHIFT))


@builtin("bits.rsh", NUMBER, NUMBER)
def bits_rsh(value: Any, by: Any) -> Any:
    """Value >> by."""
    number, distance = _shift(value, by)
    return number >> min(distance, numbers.MAX_BITS)


# Sets by operator.


@builtin("and", SET, SET)
def intersect(left: Any, right: Any) -> Any:
    """Left & right."""
    return Set(left & right)


@builtin("or", SET, SET)
def unite(left: Any, right: Any) -> Any:
    """Left | right."""
    return Set(left | right)
