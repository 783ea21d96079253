"""Values as YAML, as Go's YAML writer writes them: keys sorted, lists not indented, quotes only where needed."""

import re
from decimal import Decimal
from typing import Any, Final

from anyplug.policy.rego.errors import NotSupported
from anyplug.policy.rego.texts import json_text
from anyplug.policy.rego.values import Object, Set

_SIMPLE: Final = re.compile(r"[A-Za-z0-9._/+-](?:[A-Za-z0-9 ._/@=()+-]*[A-Za-z0-9._/@=()+-])?")
_QUOTED: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
MAX_INTEGER: Final = (1 << 63) - 1
MAX_LINE: Final = 80  # characters: Go's writer folds longer ones


def write(value: Any) -> str:
    """Write a document."""
    return _block(value, 0)


def _block(value: Any, level: int) -> str:
    pad = "  " * level
    if value.__class__ is Object and value:
        names = sorted((key if key.__class__ is str else json_text(key), key) for key in value.ordered())
        return "".join(f"{pad}{_scalar(name)}:{_nested(value[key], level)}" for name, key in names)
    if value.__class__ in {tuple, Set} and value:
        members = value.ordered() if value.__class__ is Set else value
        return "".join(pad + "-" + _item(item, level) for item in members)
    return pad + _scalar(value) + "\n"


def _nested(value: Any, level: int) -> str:
    """Write what stands behind a key."""
    if value.__class__ is Object and value:
        return "\n" + _block(value, level + 1)
    if value.__class__ in {tuple, Set} and value:
        return "\n" + _block(value, level + 1)
    return " " + _scalar(value) + "\n"


def _item(value: Any, level: int) -> str:
    """Write what stands behind a dash."""
    if value.__class__ in {Object, tuple, Set} and value:
        return " " + _block(value, level + 1)[2 * (level + 1) :]
    return " " + _scalar(value) + "\n"


def _scalar(value: Any) -> str:
    if value.__class__ is Object:
        return "{}"
    if value.__class__ in {tuple, Set}:
        return "[]"
    if value.__class__ is Decimal or (value.__class__ is int and abs(value) > MAX_INTEGER):
        msg = "a number that is no integer of 63 bits, as YAML"
        raise NotSupported(msg)
    if value.__class__ is not str:
        return json_text(value)
    if not value:
        return '""'
    if not _SIMPLE.fullmatch(value) or len(value) > MAX_LINE:
        msg = "a string with more than letters, digits and some signs, as YAML"
        raise NotSupported(msg)
    if value.lower() in _QUOTED or value[0] in "0123456789-+.":
        return f'"{value}"' if value.lower() in _QUOTED or value.isdigit() else _refuse()
    return value


def _refuse() -> str:
    msg = "a string that may be taken for a number, as YAML"
    raise NotSupported(msg)
