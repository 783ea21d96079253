"""Globs as patterns for RE2, and simple patterns that are asked for a text that fits both."""

import functools
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from anyplug.rego.values.rego_errors import BuiltinError, NotSupported
from anyplug.rego.values.text import valid
from anyplug.rego.values.values import NULL

_RANGE: Final = re.compile(r"!?[^-\\\[\]]-[^-\\\[\]]")
MAX_REPEATS: Final = 64  # in a pair of simple patterns: their intersection is searched recursively


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
    if end < len(glob) and not inner:
        msg = "a glob with empty brackets"
        raise NotSupported(msg)
    if end >= len(glob):
        msg = f"bad character list in glob {glob!r}"
        raise BuiltinError(msg)
    return f"[{'^' if negated else ''}{''.join(inner)}]", end + 1


def _in_class(char: str) -> str:
    return "\\" + char if char in "\\]^-[" else char


Ranges = tuple[tuple[int, int], ...]


class Token(NamedTuple):
    """One element of a simple pattern: its characters as merged ranges, and how often it repeats."""

    ranges: Ranges | None  # None for the dot, which also meets an empty class
    repeat: str  # "", "+" or "*"

    def meets(self, other: "Token") -> bool:
        """Return whether some character fits both."""
        if self.ranges is None or other.ranges is None:
            return True
        return any(a <= d and c <= b for a, b in self.ranges for c, d in other.ranges)


def _characters(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each character and whether a backslash stands before it. Raises BuiltinError."""
    characters = iter(text)
    for char in characters:
        if char != "\\":
            yield char, False
            continue
        escaped = next(characters, None)
        if escaped is None:
            raise _invalid(text, "input ends with a \\ (escape) character")
        yield escaped, True


def _invalid(text: str, reason: str) -> BuiltinError:
    return BuiltinError(f"input:{text}, pos:{len(text)}, {reason}: the input provided is invalid")


def tokens(text: str) -> list[Token]:
    """Read a simple pattern: characters, `.`, `[a-z]`, each with an optional + or *. Raises BuiltinError."""
    found: list[Token] = []
    text = valid(text)
    characters = _characters(text)
    repeatable = False
    for char, escaped in characters:
        if char in {"+", "*"} and not escaped:
            if not repeatable:
                raise _invalid(text, f"flag {char!r} must be preceded by a non-flag")
            found[-1] = found[-1]._replace(repeat=char)
            repeatable = False
            continue
        ranges: Ranges | None = ((ord(char), ord(char)),)
        if not escaped:
            if char == "]":
                raise _invalid(text, "set-close ']' with no preceding '['")
            ranges = None if char == "." else _class(text, characters) if char == "[" else ranges
        found.append(Token(ranges, ""))
        repeatable = True
    return _simplified(found)


def _class(text: str, characters: Iterator[tuple[str, bool]]) -> Ranges:
    """Read a class of characters up to its closing bracket."""
    found: list[tuple[int, int]] = []
    low: int | None = None  # where a range may begin
    for char, escaped in characters:
        if char == "]" and not escaped:
            return _merged(found)
        if char == "-" and not escaped:
            high, plain = next(characters, ("", True))
            if low is None or not high or (high in {"]", "-"} and not plain) or ord(high) < low:
                raise _invalid(text, "a range is incomplete or out of order")
            found.append((low, ord(high)))
            low = None
        else:
            low = ord(char)
            found.append((low, low))
    raise _invalid(text, "found [ without matching ]")


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    """Merge ranges that touch, so that equal classes compare equal."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def _simplified(found: list[Token]) -> list[Token]:
    """Join neighbours that repeat the same class, as OPA does."""
    out: list[Token] = []
    for token in found:
        if out and token.repeat and out[-1].repeat and token.ranges == out[-1].ranges:
            out[-1] = token._replace(repeat="+" if "+" in {token.repeat, out[-1].repeat} else "*")
        else:
            out.append(token)
    return out


class Intersection:
    """Search two simple patterns for a text that fits both, as OPA does.

    OPA's search overlooks some texts: a repetition stops where its successor fits. Finding them here would
    make a rule hold that does not hold in OPA, so this takes the same steps.
    """

    def __init__(self, context: Any, left: list[Token], right: list[Token]) -> None:
        if sum(bool(token.repeat) for token in (*left, *right)) > MAX_REPEATS:
            msg = f"regex.globs_match with more than {MAX_REPEATS} repetitions"
            raise NotSupported(msg)
        self.context = context
        self.left, self.right = left, right
        self.known: dict[tuple[bool, int, int], bool] = {}

    def exists(self) -> bool:
        """Return whether both begin and end alike, and the rest meets."""
        start = 0
        for one, other in zip(self.left, self.right, strict=False):
            if one.repeat or other.repeat:
                break
            if not one.meets(other):
                return False
            start += 1
        start = max(start - 1, 0)
        cut = 0
        for one, other in zip(reversed(self.left[start:]), reversed(self.right[start:]), strict=False):
            if one.repeat or other.repeat:
                break
            if not one.meets(other):
                return False
            cut += 1
        cut = max(cut - 1, 0)
        self.left = self.left[start : len(self.left) - cut]
        self.right = self.right[start : len(self.right) - cut]
        return self._meet(0, 0, swapped=False)

    def _sides(self, *, swapped: bool) -> tuple[list[Token], list[Token]]:
        return (self.right, self.left) if swapped else (self.left, self.right)

    def _meet(self, at: int, beside: int, *, swapped: bool) -> bool:
        """Return whether the patterns meet from these places on."""
        key = (swapped, at, beside)
        if key not in self.known:
            self.known[key] = self._walk(at, beside, swapped=swapped)
        return self.known[key]

    def _walk(self, at: int, beside: int, *, swapped: bool) -> bool:
        one, other = self._sides(swapped=swapped)
        while at < len(one) and beside < len(other):
            self.context.spend(1)
            if one[at].repeat:
                return self._repeat(at, beside, swapped=swapped)
            if other[beside].repeat:
                return self._repeat(beside, at, swapped=not swapped)
            if not one[at].meets(other[beside]):
                return False
            at += 1
            beside += 1
        return at == len(one) and beside == len(other)

    def _repeat(self, at: int, beside: int, *, swapped: bool) -> bool:
        """Go on where the first pattern has a repetition."""
        one, other = self._sides(swapped=swapped)
        if one[at].repeat == "*":
            return self._star(at, beside, swapped=swapped)
        if not one[at].meets(other[beside]):
            return False
        if self._star(at, beside + 1, swapped=swapped):
            return True
        return bool(other[beside].repeat) and self._meet(at + 1, beside, swapped=swapped)

    def _star(self, at: int, beside: int, *, swapped: bool) -> bool:
        """Let a repetition take what follows in the other pattern, until its successor fits."""
        one, other = self._sides(swapped=swapped)
        following = one[at + 1] if at + 1 < len(one) else None
        for index in range(beside, len(other)):
            self.context.spend(1)
            if following and other[index].meets(following) and self._meet(at + 1, index, swapped=swapped):
                return True
            if not other[index].meets(one[at]):
                return False
        return following is None
