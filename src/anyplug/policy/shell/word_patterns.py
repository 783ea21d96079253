"""Partly unknown words as patterns: whether one may match a protected place, and says so.

A pattern is a text with globs, UNKNOWN (anything, also several folders) and MADE (the same, and deliberately
unreadable). A wholly unknown word may match everything, so that alone means nothing; some literal part of it must lead
to the protected place, or belong to its name.
"""

import functools
import os
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.shell.substitutions import MADE, UNKNOWN

MARKS: Final = UNKNOWN + MADE
FEWEST_KNOWN: Final = 3  # characters by which a name is recognised
LONGEST_PART: Final = 255  # characters of a name
_BRACKETS: Final = late(r"\[[!^]?\]?(?:\[[:.=][^\[\]]*[:.=]\]|[^\]])*\]")
_UNKNOWN: Final = late(f"[{UNKNOWN}{MADE}]")
_OPEN: Final = late(rf"[{UNKNOWN}{MADE}*?]")
_ENDING: Final = late(r"\.jsonc?$")
_GATED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in (".claude", ".codex", ".opencode"))


def is_unknown(text: str) -> bool:
    """Return whether a text has unknown parts."""
    return UNKNOWN in text or MADE in text


def is_open(text: str) -> bool:
    """Return whether a text may match several others, and something in it is known."""
    return MADE in text or (is_unknown(text) and bool(_OPEN.sub("", text).strip("/.")[:1] or "." in text))


def simplified(word: str) -> str:
    """Replace every bracket expression by `?`."""
    if "[" not in word or "]" not in word:
        return word
    return os.sep.join(_without_brackets(part) for part in word.split(os.sep))


def _without_brackets(part: str) -> str:
    if len(part) <= LONGEST_PART:
        return _BRACKETS.sub("?", part)
    first, last = part.find("["), part.rfind("]")
    return f"{part[:first]}*{part[last + 1 :]}" if 0 <= first < last else part


def may_be(given: str, path: str, place: str, *, removes: bool, has_moved: bool, has_dots: bool) -> bool:
    """Return whether a word, as given and as an absolute path, may match a place or its content, and says so.

    `removes`: parents of the place count, too. `has_moved`: the line changed its folder before.
    """
    if given.startswith((UNKNOWN, MADE)) and not has_moved:
        path = given
    if not fits(path, place, removes=removes, has_dots=has_dots):
        return False
    if MADE in given:
        return True
    user = os.path.expanduser("~")
    if not path.startswith((UNKNOWN, MADE)) and (has_moved or os.path.isabs(given)) and not is_of_project(place):
        above = os.path.dirname(path[: match.start()] if (match := _OPEN.search(path)) else path)
        if above == user:
            if removes:
                return True
        elif above.startswith(user + os.sep) or above == os.path.dirname(place):
            return True
    return any(is_told(part, telling) for part in given.split(os.sep) for telling in _telling(place))


def is_told(part: str, name: str) -> bool:
    """Return whether a part of a path may be a name, and enough of it is known to say so."""
    if not fits(part.casefold(), name, removes=False, has_dots=True, is_whole=True):
        return False
    literal = known(_ENDING.sub("", part))
    return len(literal) >= FEWEST_KNOWN or (name.startswith(".") and part.startswith("."))


def known(text: str) -> str:
    """Return what is known of a text."""
    return _OPEN.sub("", text)


def _telling(place: str) -> tuple[str, ...]:
    """Return the names by which a place is recognised."""
    for inner in _GATED:
        if inner in place:
            return (inner.strip(os.sep), os.path.basename(place)) if "opencode" in inner else (inner.strip(os.sep),)
    name = os.path.basename(place)
    is_ours = any(one in name for one in ("cupcake", "anyplug", "opencode"))
    return (name,) if is_ours else ()


def is_of_project(place: str) -> bool:
    """Return whether a place is in a project, where unknown words are common."""
    name = os.path.basename(place)
    is_gate = name.startswith((".cupcake", ".opencode", "opencode.json")) or any(inner in place for inner in _GATED)
    return is_gate and os.path.dirname(place) != os.path.expanduser("~")


@functools.lru_cache(maxsize=64)
def _positions(place: str) -> tuple[dict[str, int], int, int, int]:
    """Return, as bits, where each character of a path is, non-slashes, leading dots, and the ends of folders."""
    at: dict[str, int] = {}
    for number, char in enumerate(place):
        at[char] = at.get(char, 0) | 1 << number
    slashes = at.get(os.sep, 0)
    every = (1 << len(place)) - 1
    return at, every & ~slashes, at.get(".", 0) & (slashes << 1 | 1), slashes | 1 << len(place)


def fits(pattern: str, place: str, *, removes: bool, has_dots: bool, is_whole: bool = False) -> bool:
    """Return whether a pattern may match a place or its content; if it `removes`, also a parent folder."""
    at, names, dots, ends = _positions(place)
    size = len(place)
    whole = 1 << size
    reached, before = 1, ""
    for char in pattern:
        if char in {UNKNOWN, MADE}:
            lowest = reached & -reached
            reached = ((whole << 1) - 1) & ~(lowest - 1)
            if reached and not is_whole:
                return True  # the rest may be inside it
        elif char in {"*", "?"}:
            free = names if has_dots or before not in {os.sep, ""} else names & ~dots
            step = reached
            reached = 0 if char == "?" else reached
            while step := (step & free) << 1:
                reached |= step
                if char == "?":
                    break
                free = names
        else:
            if char == os.sep and reached & whole and not is_whole:
                return True
            reached = (reached & at.get(char, 0)) << 1
        if not reached:
            return False
        before = char
    return bool(reached & (ends if removes else whole))
