"""What plain scalars mean: null, booleans, numbers, or the text itself."""

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from anyplug.rego.yaml.yaml_cursor import YamlError

_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")
_BASED: Final = re.compile(r"([-+]?)0(x|o|b|)([0-9a-fA-F_]+)$")
_DIGITS: Final = {"x": (16, "0123456789abcdefABCDEF"), "b": (2, "01"), "o": (8, "01234567"), "": (8, "01234567")}
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?$")
_SPECIAL: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_YES: Final = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
_NO: Final = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})


def meaning(text: str, tag: str, *, old_booleans: bool) -> Any:
    """Return what a plain scalar means. Raises YamlError."""
    if tag in {"!!str", "!"}:
        return text
    if text in _NULLS:
        return None
    if text in _TRUE or (old_booleans and text in _YES):
        return True
    if text in _FALSE or (old_booleans and text in _NO):
        return False
    if text[0] in "0123456789-+.":
        return _number(text)
    return text


def _number(text: str) -> Any:
    plain = text.replace("_", "")
    if _INT.match(text):
        return int(plain) if len(plain) < 4000 else text  # noqa: PLR2004 - what Python reads without a bound of its own
    if match := _BASED.match(text):
        base, alphabet = _DIGITS[match[2]]
        digits = match[3].replace("_", "")
        if digits and not digits.strip(alphabet):
            return int(match[1] + digits, base)
    if _FLOAT.match(text) and any(char.isdigit() for char in text):
        try:
            return Decimal(plain)
        except InvalidOperation:
            msg = f"number out of range: {text}"
            raise YamlError(msg) from None
    if _SPECIAL.match(text):
        msg = f"{text} is not a JSON number"
        raise YamlError(msg)
    return text
