"""Explain what is wrong in `settings.toml`: in which table, at which key, and what is allowed there.

Used only for an invalid file: a valid one is read without this. Knows no setting by name.
"""

import re
import types
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

BARE = re.compile("[A-Za-z0-9_-]+")  # a key that needs no quotes
LONGEST_SHOWN = 60  # characters of a value
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string in quotes"}
CURE = "fix it, or remove it to use the default"


class Mistake(msgspec.Struct, frozen=True):
    """A mistake, and how to fix it."""

    message: str
    hint: str


def find(value: Any, kind: Any, place: tuple[str, ...] = ()) -> Mistake | None:
    """Return the first mistake in a value of this type; None if there is none."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        pass
    else:
        return None
    if isinstance(value, dict):
        inside = _settings_of(kind, value)
        for key, one in value.items() if inside else ():
            if key not in inside:
                return _unknown(key, list(inside), place)
            if found := find(one, inside[key], (*place, key)):
                return found
    return _unfit(value, kind, place)


def _settings_of(kind: Any, value: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a table, each with its type; none if no table is allowed there."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.name: field.type for field in msgspec.structs.fields(kind)}
    return dict.fromkeys(value, get_args(kind)[1]) if get_origin(kind) is dict else {}


def _unknown(key: str, known: list[str], place: tuple[str, ...]) -> Mistake:
    near = get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the settings are: {', '.join(known)}"
    return Mistake(f"{_table(place)}there is no setting {_quoted(key)}", hint)


def _unfit(value: Any, kind: Any, place: tuple[str, ...]) -> Mistake:
    shown = msgspec.json.encode(value).decode()
    shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}…"
    choices = [choice for choice in get_args(kind) if isinstance(choice, str)] if isinstance(value, str) else []
    near = get_close_matches(value, choices, n=1) if choices else []
    *table, key = place
    return Mistake(
        f"{_table(tuple(table))}{_quoted(key)} is {shown}, but must be {_words(kind)}",
        f'did you mean "{near[0]}"?' if near else CURE,
    )


def _words(kind: Any) -> str:
    """Describe the values that a type allows."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(f'"{choice}"' for choice in inside)
    if origin is Annotated:
        least = next((meta.gt for meta in inside[1:] if isinstance(meta, msgspec.Meta)), None)
        return _words(inside[0]) + (f" above {least}" if least is not None else "")
    if origin in {Union, types.UnionType}:
        return " or ".join(_words(one) for one in inside if one is not type(None))
    if origin is tuple:
        return "a list, each item " + _words(inside[0])
    return WORDS.get(kind, "a table")


def _table(place: tuple[str, ...]) -> str:
    return f"[{'.'.join(map(_quoted, place))}] " if place else ""


def _quoted(key: str) -> str:
    return key if BARE.fullmatch(key) else msgspec.json.encode(key).decode()
