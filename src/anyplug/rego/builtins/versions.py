"""Semantic versions, units of size, and UUIDs."""

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from anyplug.rego.builtins.builtin_table import ANY, MOST, STRING, builtin, can_be_read
from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import BuiltinError
from anyplug.rego.values.values import Object

if TYPE_CHECKING:
    import uuid

_IDENTIFIERS: Final = re.compile(r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*")
_NUMERIC: Final = re.compile(r"0|[1-9][0-9]*")
_BYTES: Final = {"": 1} | {
    name + end: base ** (power + 1)
    for power, letter in enumerate("kmgtpe")
    for name, base in ((letter, 1000), (letter + "i", 1024))
    for end in ("", "b")
}
_UNITS: Final = {"": Fraction(1), "m": Fraction(0.001)} | {  # OPA's thousandth is a float, too
    letter + end: Fraction(base) ** (power + 1)
    for power, each in enumerate("kmgtpe")
    for end, base in (("", 1000), ("i", 1024))
    for letter in (each, each.upper())
    if letter + end != "m"
}
_AMOUNT: Final = re.compile(r"((?:[0-9.+-]|[eE](?=[0-9+-]))*)(.*)", re.ASCII | re.DOTALL)
_EXPONENT: Final = re.compile(r"[eE][+-]?[0-9]{7}", re.ASCII)
PLACES: Final = 10**10  # OPA rounds to ten places


def _number(text: str) -> int:
    if not _NUMERIC.fullmatch(text) or int(text) > MOST:
        msg = f"{text} is not a valid numeric identifier"
        raise BuiltinError(msg)
    return int(text)


def _version(text: str) -> tuple[tuple[int, ...], list[str]]:
    rest, plus, build = text.removeprefix("v").partition("+")
    rest, dash, before = rest.partition("-")
    parts = rest.split(".")
    try:
        numbers_ = tuple(map(_number, parts))
    except BuiltinError:
        numbers_ = ()
    marks = before.split(".") if dash else []
    valid = all(not mark.isdigit() or _NUMERIC.fullmatch(mark) for mark in marks)
    named = all(_IDENTIFIERS.fullmatch(each) for there, each in ((plus, build), (dash, before)) if there)
    if len(numbers_) != 3 or not valid or not named:  # noqa: PLR2004 - major, minor and patch
        msg = f'string "{text}" is not a valid SemVer'
        raise BuiltinError(msg)
    return numbers_, marks


@builtin("semver.is_valid", ANY)
def semver_is_valid(text: Any) -> Any:
    """Return whether a text is a version."""
    return can_be_read(_version, text)


@builtin("semver.compare", STRING, STRING)
def semver_compare(left: Any, right: Any) -> Any:
    """Return -1, 0 or 1."""
    one, before = _version(left)
    other, behind = _version(right)
    if one != other:
        return -1 if one < other else 1
    if not before or not behind:
        return bool(behind) - bool(before) if bool(before) != bool(behind) else 0
    for mine, theirs in zip(before, behind, strict=False):
        if mine == theirs:
            continue
        digits = mine.isdigit(), theirs.isdigit()
        if digits == (True, True):
            if int(mine) != int(theirs):
                return -1 if int(mine) < int(theirs) else 1
        elif digits[0] != digits[1]:
            return -1 if digits[0] else 1
        else:
            return -1 if mine < theirs else 1
    return (len(before) > len(behind)) - (len(before) < len(behind))


def _amount(text: str, kind: str) -> tuple[Fraction, str]:
    plain = text.replace('"', "")
    if " " in plain:
        msg = "spaces not allowed in resource strings"
        raise BuiltinError(msg)
    match = _AMOUNT.fullmatch(plain)
    assert match is not None
    amount, unit = match.groups()
    if not amount or _EXPONENT.search(amount):
        msg = f"no {kind}amount provided" if not amount else "exponent too large"
        raise BuiltinError(msg)
    try:
        number = Decimal(amount)
    except InvalidOperation:
        msg = f"could not parse {kind}amount to a number"
        raise BuiltinError(msg) from None
    return numbers.fraction(number), unit


@builtin("units.parse_bytes", STRING)
def units_parse_bytes(text: Any) -> Any:
    """Read a size: kb is 1000, and KiB is 1024."""
    number, unit = _amount(text.lower(), "byte ")
    if unit not in _BYTES:
        msg = f"byte unit {unit} not recognized"
        raise BuiltinError(msg)
    return numbers.bounded(int(numbers.rounded(numbers.rounded(number) * _BYTES[unit])))


@builtin("units.parse", STRING)
def units_parse(text: Any) -> Any:
    """Read an amount: m is a thousandth, M a million, Mi 1024 times 1024."""
    number, unit = _amount(text, "")
    unit = unit[:1] + unit[1:].lower()
    if unit not in _UNITS:
        msg = f"unit {unit} not recognized"
        raise BuiltinError(msg)
    amount = number * _UNITS[unit]
    if amount.denominator == 1:
        return numbers.bounded(amount.numerator)
    scaled = int(abs(amount) * PLACES + Fraction(1, 2))
    return Decimal(scaled if amount > 0 else -scaled).scaleb(-10, numbers.WIDE)


@builtin("uuid.rfc4122", ANY, context=True, impure=True)
def uuid_rfc4122(context: Any, key: Any) -> Any:
    """Return a random UUID: the same for the same key, during one evaluation."""
    import uuid  # takes 3 ms, and few policies need it

    return context.now.setdefault(f"uuid:{key}", str(uuid.uuid4()))


def _uuid(text: str) -> "uuid.UUID | None":
    import uuid  # takes 3 ms, and few policies need it

    form = text[9:] if text.lower().startswith("urn:uuid:") else text
    form = form[1:-1] if len(form) == 38 else form  # noqa: PLR2004 - braces, or whatever stands there, as in Go
    if not re.match(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}$", form):
        return None
    return uuid.UUID(form)


@builtin("uuid.parse", ANY)
def uuid_parse(text: Any) -> Any:
    """Parse a UUID; undefined if it is invalid."""
    found = _uuid(text) if text.__class__ is str else None
    if found is None:
        return None
    made: dict[str, Any] = {"version": found.int >> 76 & 15, "variant": _variant(found)}
    if made["version"] in {1, 2}:
        # Go counts nanoseconds in 64 bits, which late times overflow.
        made["time"] = ((found.time - 0x01B21DD213814000) * 100 + (1 << 63)) % (1 << 64) - (1 << 63)
        made["clocksequence"] = found.clock_seq
        node = found.node
        made["nodeid"] = "-".join(f"{node >> shift & 255:02x}" for shift in range(40, -8, -8))
        made["macvariables"] = _mac(node >> 40)
    if made["version"] == 2:  # noqa: PLR2004 - DCE security
        made["id"] = found.time_low
        made["domain"] = {0: "Person", 1: "Group", 2: "Org"}.get(found.clock_seq_low, f"Domain{found.clock_seq_low}")
    return Object(made)


def _variant(found: "uuid.UUID") -> str:
    top = found.int >> 61 & 7
    if top < 4:  # noqa: PLR2004 - the bits that RFC 4122 gives
        return "Reserved"
    return "RFC4122" if top < 6 else "Microsoft" if top == 6 else "Future"  # noqa: PLR2004 - as above


def _mac(first: int) -> str:
    local = "local" if first & 2 else "global"
    return f"{local}:{'multicast' if first & 1 else 'unicast'}"
