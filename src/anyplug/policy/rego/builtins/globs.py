"""Globs as patterns for RE2, and simple patterns that are asked for a text that fits both."""

import functools
import re
from typing import Any, Final, NamedTuple

from anyplug.policy.rego.errors import BuiltinError, NotSupported
from anyplug.policy.rego.values import NULL

_RANGE: Final = re.compile(r"!?[^-\\\[\]]-[^-\\\[\]]")
TOP: Final = 0x10FFFF  # the last character of Unicode


def delimiters(value: Any) -> str:
    """Read the second operand of glob.match: null means none, an empty array the dot."""
    if value is NULL:
        return ""
    if value.__class__ is not tuple:
        msg = "operand 2 must be one of {array, null}"
        raise BuiltinError(msg)
    for each in value:
        if each.__class__ is not str or len(each) != 1:
            msg = "operand 2 must be an array of single characters"
            raise BuiltinError(msg)
    return "".join(value) or "."


@functools.lru_cache(512)
def pattern(glob: str, separators: str) -> str:  # noqa: C901 - one branch for each kind
    """Translate a glob. Raises BuiltinError."""
    other = f"[^{re.escape(separators)}]" if separators else "."
    out: list[str] = []
    groups = at = 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "\\":
            if at >= len(glob):
                msg = f"trailing backslash in glob {glob!r}"
                raise BuiltinError(msg)
            out.append(re.escape(glob[at]))
            at += 1
        elif char == "*":
            if glob[at : at + 1] == "*":
                while glob[at : at + 1] == "*":
                    at += 1
                out.append(".*")
            else:
                out.append(f"{other}*")
        elif char == "?":
            out.append(other)
        elif char == "[":
            made, at = _choice(glob, at)
            out.append(made)
        elif char == "{":
            groups += 1
            out.append("(?:")
        elif char == "}" and groups:
            groups -= 1
            out.append(")")
        elif char == "," and groups:
            out.append("|")
        else:
            out.append(re.escape(char))
    if groups:
        msg = f"unexpected end of input in glob {glob!r}"
        raise BuiltinError(msg)
    return f"(?s)^(?:{''.join(out)})$"


def _choice(glob: str, at: int) -> tuple[str, int]:
    """Translate [abc], [a-z] and their negations."""
    end = at
    inner: list[str] = []
    negated = glob[end : end + 1] == "!"
    end += negated
    while end < len(glob) and glob[end] != "]":
        if glob[end] == "\\":
            end += 1
        char = glob[end : end + 1]
        if glob[end + 1 : end + 2] == "-" and glob[end + 2 : end + 3] not in {"", "]"}:
            last = glob[end + 2]
            if last < char and not _RANGE.fullmatch(glob[at : glob.find("]", at)]):
                msg = "a glob with a range beside other characters in brackets"
                raise NotSupported(msg)
            if last < char:
                msg = f"hi character {last!r} should be greater than lo {char!r}"
                raise BuiltinError(msg)
            inner.append(f"{_in_class(char)}-{_in_class(last)}")
            end += 3
        else:
            inner.append(_in_class(char))
            end += 1
    if "-" in glob[at:end] and not _RANGE.fullmatch(glob[at:end]):
        msg = "a glob with a range beside other characters in brackets"
        raise NotSupported(msg)
    if end >= len(glob) or not inner:
        msg = f"bad character list in glob {glob!r}"
        raise BuiltinError(msg)
    return f"[{'^' if negated else ''}{''.join(inner)}]", end + 1


def _in_class(char: str) -> str:
    return "\\" + char if char in "\\]^-[" else char


class Token(NamedTuple):
    """Characters, as ranges, and how often: once, some (+) or any (*)."""

    ranges: tuple[tuple[int, int], ...]
    repeat: str


ANYTHING: Final = ((0, TOP),)


def _invalid(text: str, at: int, message: str) -> BuiltinError:
    return BuiltinError(f"input:{text}, pos:{at + 1}, {message}: the input provided is invalid")


def tokens(text: str) -> list[Token]:
    """Read a simple pattern: characters, `.`, `[a-z]`, each maybe with + or *. Raises BuiltinError."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
            if at >= len(text):
                raise _invalid(text, at, "input ends with a \\ (escape) character")
            ranges: tuple[tuple[int, int], ...] = ((ord(text[at]), ord(text[at])),)
        elif char == ".":
            ranges = ANYTHING
        elif char == "[":
            ranges, at = _set(text, at)
        elif char == "]":
            raise _invalid(text, at, "set-close ']' with no preceding '['")
        elif char in "+*":
            raise _invalid(text, at, f"flag '{char}' must be preceded by a non-flag")
        else:
            ranges = ((ord(char), ord(char)),)
        at += 1
        repeat = ""
        if text[at : at + 1] in {"+", "*"}:
            repeat = text[at]
            at += 1
        found.append(Token(ranges, repeat))
    return found


def _set(text: str, at: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """Read [a-z], up to its closing bracket."""
    start = at
    at += 1
    found: list[tuple[int, int]] = []
    while at < len(text) and text[at] != "]":
        if text[at] == "\\":
            at += 1
        char = text[at : at + 1]
        if not char:
            break
        if char == "-" or (text[at + 1 : at + 2] == "-" and not text[at + 2 : at + 3].isalnum()):
            msg = "regex.globs_match of a range without a letter or digit at each end"
            raise NotSupported(msg)
        if text[at + 1 : at + 2] == "-" and text[at + 2 : at + 3] not in {"", "]"}:
            last = text[at + 2]
            if last < char:
                raise _invalid(text, at, "range is out of order")
            found.append((ord(char), ord(last)))
            at += 3
        else:
            found.append((ord(char), ord(char)))
            at += 1
    if at >= len(text):
        raise _invalid(text, start, "found [ without matching ]")
    return tuple(found), at


def intersect(left: list[Token], right: list[Token]) -> bool:
    """Whether some text fits both: a walk over pairs of positions."""
    seen = {(0, 0)}
    waiting = [(0, 0)]

    def reach(place: tuple[int, int]) -> None:
        if place not in seen:
            seen.add(place)
            waiting.append(place)

    while waiting:
        one, other = waiting.pop()
        if one == len(left) and other == len(right):
            return True
        if one < len(left) and left[one].repeat == "*":
            reach((one + 1, other))
        if other < len(right) and right[other].repeat == "*":
            reach((one, other + 1))
        if one < len(left) and other < len(right) and _meet(left[one].ranges, right[other].ranges):
            for first in [one + 1, one] if left[one].repeat else [one + 1]:
                for second in [other + 1, other] if right[other].repeat else [other + 1]:
                    reach((first, second))
    return False


def _meet(ours: tuple[tuple[int, int], ...], theirs: tuple[tuple[int, int], ...]) -> bool:
    return any(a <= d and c <= b for a, b in ours for c, d in theirs)
