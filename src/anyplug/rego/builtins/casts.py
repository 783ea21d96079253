"""Casts, and questions about types."""

import math
import re
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.builtins.builtin_table import ANY, NUMERIC, builtin, wrong
from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported, OperandError
from anyplug.rego.values.values import FALSE, NULL, TRUE, boolean, type_name

NO_NUMBERS: Final = frozenset({"nan", "inf", "infinity"})
_PREFIXED: Final = re.compile(r"[-+]?0[xXbBoO]")
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$")


@builtin("to_number", ANY)
def to_number(value: Any) -> Any:
    """Return a number for null, booleans and texts."""
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
    if "_" in value or _PREFIXED.match(value):
        msg = f"to_number of {value!r}"
        raise NotSupported(msg)
    if not _NUMBER.match(value) or value.endswith("\n"):
        msg = f"strconv.ParseFloat: parsing {value!r}: invalid syntax"
        raise BuiltinError(msg)
    plain = value.removeprefix("+")
    if math.isinf(float(plain)):
        msg = f"strconv.ParseFloat: parsing {value!r}: value out of range"
        raise BuiltinError(msg)
    try:
        return (
            numbers.parse(plain) if not plain.lstrip("-").startswith("0") else _plain(numbers.decimal(Decimal(plain)))
        )
    except ArithmeticError:
        msg = f"number out of range: {value}"
        raise NotSupported(msg) from None


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
