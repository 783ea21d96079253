"""Write values as YAML, byte for byte as OPA does: keys in natural order, quotes only where they are needed.

A string or key whose form in OPA is not certain is refused.
"""

import functools
import re
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.builtins import layouts, verbs
from anyplug.rego.builtins.builtin_table import LEAST, MOST
from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported
from anyplug.rego.values.text import json_text
from anyplug.rego.values.values import Object, Set

MAX_KEY: Final = 128  # bytes: OPA writes a longer key in another form
MAX_NUMBERED: Final = 200  # keys with digits: their order is checked for each pair
MAX_DIGITS: Final = 18  # of a number within a key
MAX_UNSIGNED: Final = (1 << 64) - 1
_WORDS: Final = frozenset(
    {
        *(form for word in ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
          for form in (word, word.title(), word.upper())),
        *(sign + form for sign in ("", "+", "-") for form in (".inf", ".Inf", ".INF")),
        "", "~", ".nan", ".NaN", ".NAN",
    }
)  # fmt: skip
_SEXAGESIMAL: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_POINTED: Final = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")
_INTEGER: Final = re.compile(
    r"[-+]?(?:0[xX](?P<b16>[0-9a-fA-F]+)|0[bB](?P<b2>[01]+)|0[oO]?(?P<b8>[0-7]+)|(?P<b10>[1-9][0-9]*|0))"
)
_SIGNED_INSIDE: Final = re.compile(r"0(?:b(?P<b2>[-+][01]+)|o(?P<b8>[-+][0-7]+))")
_DATE: Final = re.compile(r"[0-9]{4}-")
_DATES: Final = (
    "2006-1-2T15:4:5.999999999Z07:00", "2006-1-2t15:4:5.999999999Z07:00", "2006-1-2 15:4:5.999999999", "2006-1-2",
)  # fmt: skip
_NOT_PLAIN: Final = re.compile(
    r"""[#,\[\]{}&*!|>'"%@`]|[?:-](?:[ \t]|\Z)|---|\.\.\.|.*(?::(?:[ \t]|\Z)|[ \t]\#|\Z(?<=[ ])|\t)|[ ]""", re.VERBOSE
)
_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", '"': '\\"', "\\": "\\\\"}
_BASIC: Final = 0xFFFF  # the last character that is not escaped
_RUN: Final = re.compile(r"\d+")


def write(value: Any) -> str:
    """Write a document. Raises NotSupported."""
    return _block(value, 0)


def _block(value: Any, level: int) -> str:
    pad = "  " * level
    if value.__class__ is Object and value:
        named = {key if key.__class__ is str else json_text(key): item for key, item in value.items()}
        if len(named) != len(value):
            msg = "an object with two keys that YAML writes alike"
            raise NotSupported(msg)
        return "".join(f"{pad}{_key(name)}:{_nested(named[name], level)}" for name in _ordered(list(named)))
    if value.__class__ in {tuple, Set} and value:
        members = value.ordered() if value.__class__ is Set else value
        return "".join(pad + "-" + _item(item, level) for item in members)
    return pad + _scalar(value, level) + "\n"


def _nested(value: Any, level: int) -> str:
    """Write what follows a key."""
    if value.__class__ in {Object, tuple, Set} and value:
        return "\n" + _block(value, level + 1)
    return " " + _scalar(value, level + 1) + "\n"


def _item(value: Any, level: int) -> str:
    """Write what follows a dash."""
    if value.__class__ in {Object, tuple, Set} and value:
        return " " + _block(value, level + 1)[2 * (level + 1) :]
    return " " + _scalar(value, level + 1) + "\n"


def _key(name: str) -> str:
    if "\n" in name or len(name.encode()) > MAX_KEY:
        msg = "a long key, or one of several lines, as YAML"
        raise NotSupported(msg)
    return _string(name, 0)


def _scalar(value: Any, level: int) -> str:
    if value.__class__ is Object:
        return "{}"
    if value.__class__ in {tuple, Set}:
        return "[]"
    if value.__class__ is str:
        return _string(value, level)
    if value.__class__ is Decimal or (value.__class__ is int and not LEAST <= value <= MAX_UNSIGNED):
        return _float(value)
    return json_text(value)


def _float(value: numbers.Number) -> str:
    try:
        found = float(value)
    except OverflowError:
        found = float("inf")
    if abs(found) == float("inf"):
        msg = "a number beyond 64 bits, as YAML"
        raise NotSupported(msg)
    return verbs.general(found)


def _string(text: str, level: int) -> str:
    lines = text.split("\n")
    if not all(line.isprintable() for line in text.replace("\t", "\n").split("\n")):
        msg = "a string with control or other special characters, as YAML"
        raise NotSupported(msg)
    special = any(ord(char) > _BASIC for char in text)
    if len(lines) > 1:
        if special or text.endswith(" ") or " \n" in text:
            return _double_quoted(text)
        return _literal(text, lines, level)
    if _resolves(text) or special or "\t" in text:
        return _double_quoted(text)
    if _NOT_PLAIN.match(text):
        return "'" + text.replace("'", "''") + "'"
    return text


def _double_quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c) or (c if ord(c) <= _BASIC else f"\\U{ord(c):08X}") for c in text) + '"'


def _literal(text: str, lines: list[str], level: int) -> str:
    pad = "  " * max(level, 1)
    chomp = "" if text[-1] == "\n" else "-"
    if not text.strip("\n") or text.endswith("\n\n"):
        chomp = "+"
    hint = "2" if text[0] in " \n" else ""
    body = "\n".join(pad + line if line else "" for line in (lines if chomp == "-" else lines[:-1]))
    return f"|{hint}{chomp}\n{body}"


def _resolves(text: str) -> bool:
    """Return whether a reader of YAML would take the plain text for another kind of value."""
    if text in _WORDS or _SEXAGESIMAL.fullmatch(text):
        return True
    if text[0] == ".":
        return bool(_POINTED.fullmatch(text)) and _finite(text)
    if text[0] not in "+-0123456789":
        return False
    plain = text.replace("_", "")
    return _is_date(text) or _is_integer(plain) or bool(_FLOAT.fullmatch(plain) and _finite(plain))


def _finite(digits: str) -> bool:
    return abs(float(digits)) != float("inf")


def _is_date(text: str) -> bool:
    if not _DATE.match(text):
        return False
    for layout in _DATES:
        try:
            layouts.parse(layout, text)
        except BuiltinError:
            continue
        return True
    return False


def _is_integer(plain: str) -> bool:
    match = _INTEGER.fullmatch(plain) or _SIGNED_INSIDE.fullmatch(plain)
    if match is None:
        return False
    base, digits = next((int(name[1:]), digits) for name, digits in match.groupdict().items() if digits)
    sign = next((char for char in plain if char in "+-"), "")
    return abs(int(digits, base)) <= {"": MAX_UNSIGNED, "+": MOST, "-": -LEAST}[sign]


def _ordered(names: list[str]) -> list[str]:
    """Sort keys as OPA does: letters behind everything else, and numbers within them by their value."""
    names.sort(key=functools.cmp_to_key(_order))
    numbered = [name for name in names if _RUN.search(name)]
    if not numbered:
        return names
    # With digits the comparison is no order in some cases, and then the outcome depends on the way of sorting.
    certain = len(numbered) <= MAX_NUMBERED and all(
        _before(one, other) and not _before(other, one)
        for index, one in enumerate(names)
        for other in names[index + 1 :]
    )
    if not certain or any(
        len(run) > MAX_DIGITS or not run.isascii() for name in numbered for run in _RUN.findall(name)
    ):
        msg = "keys with digits that have no certain order, as YAML"
        raise NotSupported(msg)
    return names


def _order(one: str, other: str) -> int:
    return -1 if _before(one, other) else 1


def _before(one: str, other: str) -> bool:
    """Return whether a key comes before another."""
    at = next((index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        return len(one) < len(other)
    first, second = one[at], other[at]
    if first.isalpha() and second.isalpha():
        return first < second
    if first.isalpha() or second.isalpha():
        return first.isalpha() if at and one[at - 1].isdecimal() else second.isalpha()
    lead = ""
    if "0" in {first, second}:
        run = re.search(r"\d*\Z", one[:at])
        lead = "1" if run and run[0].strip("0") else ""
    digits = [_RUN.match(name, at) for name in (one, other)]
    mine, others = [match[0] if match else "" for match in digits]
    if int(lead + mine or 0) != int(lead + others or 0):
        return int(lead + mine or 0) < int(lead + others or 0)
    return len(mine) < len(others) if len(mine) != len(others) else first < second
