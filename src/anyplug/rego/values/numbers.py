"""Arithmetic: exact for integers, and for the rest as wide as OPA's (64 bits of mantissa, shortest text)."""

from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from anyplug.rego.values.rego_errors import BuiltinError, NotSupported

if TYPE_CHECKING:
    from fractions import Fraction

Number = int | Decimal

MANTISSA: Final = 64  # bits, as in Go's big.Float when it reads a number
MAX_BITS: Final = 13_000  # of an integer: no policy needs more, and Python writes little more
MAX_EXPONENT: Final = 3_900  # of a decimal: beyond it, exact arithmetic would fill the memory
LEAST_PLAIN: Final = -4  # power of ten from which numbers are usually written without an exponent
WIDE: Final = Context(prec=MAX_EXPONENT * 2)  # rounds nothing that is supported


def fraction(number: Number) -> "Fraction":
    """Return the exact value, as far as numbers are supported."""
    if number.__class__ is Decimal and abs(number.adjusted()) > MAX_EXPONENT:
        msg = f"number out of range: {number}"
        raise NotSupported(msg)
    from fractions import Fraction  # with a large pattern; few policies compute with more than integers

    return Fraction(number)


def rounded(value: "Fraction", bits: int = MANTISSA) -> "Fraction":
    """Round to so many bits of mantissa, half to even."""
    top, bottom = abs(value.numerator), value.denominator
    if not top or (bottom == 1 and not top >> bits):
        return value
    shift = bits - (top.bit_length() - bottom.bit_length())
    for _ in range(2):  # the difference of lengths is the exponent, or one more
        scaled, by = (top << shift, bottom) if shift >= 0 else (top, bottom << -shift)
        whole, rest = divmod(scaled, by)
        if whole.bit_length() <= bits:
            break
        shift -= 1
    twice = rest * 2
    if twice > by or (twice == by and whole & 1):
        whole += 1
    from fractions import Fraction  # for the same reason

    result = Fraction(whole << -shift) if shift < 0 else Fraction(whole, 1 << shift)
    return -result if value < 0 else result


def number(value: "Fraction", bits: int = MANTISSA) -> Number:
    """Round, and return the shortest decimal that means the same; integers as such."""
    value = rounded(value, bits)
    if value.denominator == 1 and not abs(value.numerator) >> bits:
        return value.numerator
    short = _shortest(value, bits)
    return bounded(int(short)) if value.denominator == 1 else short


def _shortest(value: "Fraction", bits: int) -> Decimal:
    from fractions import Fraction  # for the same reason

    try:
        short = Decimal(repr(float(value)))
        if short.is_finite() and Fraction(short) == value:
            return short
    except OverflowError:
        pass
    return _shortest_digits(value, bits)


def _shortest_digits(value: "Fraction", bits: int) -> Decimal:
    """Shorten as Go's big.Float does: digit by digit, which in rare cases is not the nearest decimal."""
    top, places = abs(value.numerator), value.denominator.bit_length() - 1
    shift = bits + 1 - top.bit_length()
    halves = top << shift if shift >= 0 else top >> -shift  # of the last place
    exponent = -shift - places
    digits, lower, upper = [_digits(each, exponent) for each in (halves, halves - 1, halves + 1)]
    inclusive = not halves & 2
    written, scale = digits, min(exponent, 0)
    lower, upper = lower.rstrip("0"), upper.rstrip("0")
    for index, middle in enumerate(digits.rstrip("0")):
        low, high = lower[index : index + 1] or "0", upper[index : index + 1] or "0"
        down = low != middle or (inclusive and index + 1 == len(lower))
        up = middle != high and (inclusive or int(middle) + 1 < int(high) or index + 1 < len(upper))
        if down or up:
            written, rest = digits[: index + 1], digits[index + 1 :]
            half = "5".ljust(len(rest), "0")
            if rest and (not down or (up and (rest > half or (rest == half and int(written) & 1)))):
                written = str(int(written) + 1)
            scale += len(rest)
            break
    return Decimal(f"{'-' if value < 0 else ''}{written}E{scale}")


def _digits(number: int, exponent: int) -> str:
    """Write number * 2**exponent in digits, scaled by 10**-exponent where that is negative."""
    return str(number << exponent if exponent >= 0 else number * 5**-exponent)


def bounded(value: int) -> int:
    """Refuse integers of a size that no policy means."""
    if value.bit_length() > MAX_BITS:
        msg = f"integer of more than {MAX_BITS} bits"
        raise NotSupported(msg)
    return value


def add(left: Number, right: Number) -> Number:
    """Left + right."""
    if left.__class__ is int and right.__class__ is int:
        return bounded(left + right)
    one, other = whole(left), whole(right)
    if one is not None and other is not None:
        return bounded(one + other)
    return number(rounded(fraction(left)) + rounded(fraction(right)))


def subtract(left: Number, right: Number) -> Number:
    """Left - right."""
    if left.__class__ is int and right.__class__ is int:
        return bounded(left - right)
    one, other = whole(left), whole(right)
    if one is not None and other is not None:
        return bounded(one - other)
    return number(rounded(fraction(left)) - rounded(fraction(right)))


def multiply(left: Number, right: Number) -> Number:
    """Left * right."""
    if left.__class__ is int and right.__class__ is int:
        return bounded(left * right)
    one, other = whole(left), whole(right)
    if one is not None and other is not None:
        return bounded(one * other)
    return number(rounded(fraction(left)) * rounded(fraction(right)))


def divide(left: Number, right: Number) -> Number:
    """Left / right."""
    if right == 0:
        msg = "divide by zero"
        raise BuiltinError(msg)
    return number(rounded(fraction(left)) / rounded(fraction(right)))


def whole(value: Number) -> int | None:
    """Return the integer that a number is, None if it is not one."""
    if value.__class__ is int:
        return value
    exact = fraction(value)
    return exact.numerator if exact.denominator == 1 else None


def remainder(left: Number, right: Number) -> int:
    """Left % right, with the sign of left."""
    a, b = whole(left), whole(right)
    if a is None or b is None:
        msg = "modulo on floating-point number"
        raise BuiltinError(msg)
    if not b:
        msg = "modulo by zero"
        raise BuiltinError(msg)
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def nearest(value: Number) -> int:
    """Round half away from zero."""
    from fractions import Fraction  # for the same reason

    exact, half = rounded(fraction(value)), Fraction(1, 2)
    return bounded(int(rounded(exact - half if exact < 0 else exact + half)))


def ceiling(value: Number) -> int:
    """Round up, as OPA does: everything between -1 and 0 becomes 1."""
    exact = rounded(fraction(value))
    cut = int(exact)
    return bounded(cut if cut < 0 or cut == exact else cut + 1)


def floor(value: Number) -> int:
    """Round down, as OPA does: everything between -1 and 0 becomes 0."""
    exact = rounded(fraction(value))
    cut = int(exact)
    return bounded(cut - 1 if cut < 0 and cut != exact else cut)


def absolute(value: Number) -> Number:
    """Return the absolute value."""
    return number(abs(fraction(value)))


def text(value: Number) -> str:
    """Write a number as it was read. Raises NotSupported for one that may have been written with an exponent.

    OPA keeps the digits of a number as they were written, so that 1e3 stays `1e3` as text; here they are not kept.
    """
    digits = str(value)
    if isinstance(value, int):
        return digits
    if "." not in digits or "E" in digits or (value and value.adjusted() < LEAST_PLAIN):
        msg = f"a number with an exponent as text: {digits}"
        raise NotSupported(msg)
    return digits


def parse(digits: str) -> Number:
    """Read a number in JSON's grammar, already checked."""
    if digits.lstrip("-").isdigit():
        if len(digits) > MAX_EXPONENT:
            msg = f"number of {len(digits)} digits"
            raise NotSupported(msg)
        return int(digits)
    try:
        return decimal(Decimal(digits))
    except InvalidOperation:
        msg = f"number out of range: {digits}"
        raise NotSupported(msg) from None


def decimal(value: Decimal) -> Decimal:
    """Refuse decimals that are not numbers, or have an absurd exponent."""
    if not value.is_finite() or abs(value.adjusted()) > MAX_EXPONENT or len(value.as_tuple().digits) > MAX_EXPONENT:
        msg = f"number out of range: {value}"
        raise NotSupported(msg)
    return value
