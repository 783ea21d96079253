"""What zsh makes of the value of a variable: `$x[1,4]`, `$x:h`, `$x:s/a/b/`, `${(L)x}`.

Values are patterns, as in `word_values`. A result that is made of constants and not computed here is MADE.
"""

import re
from collections.abc import Iterable
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.shell.substitutions import MADE, UNKNOWN

_SUBSCRIPT: Final = late(r"\[([^\[\]]*)\]")
_MODIFIER: Final = late(r":(?:(g?)s(.)((?:(?!\2).)*)\2((?:(?!\2).)*)(?:\2|\Z)|([aAcehlPqQrtux])|g?&)", re.DOTALL)
_POSITION: Final = late(r"(0|-?[1-9]\d{0,8})(?:,(0|-?[1-9]\d{0,8}))?")
_QUOTE: Final = late(r"['\"\\]")
_ON_PATHS: Final = "aAcehPrt"  # modifiers that leave the parts of a path as they are
HERE: Final = "$PWD"
_GROUP: Final = late(r"\([^()]*\)")
_EXCEPT: Final = late(r"(?<=[^/])~.+", re.DOTALL)
_REPEATED: Final = late(r"[^/]#+|\^[^/]*")
MOST_NESTED: Final = 4  # groups in groups
MOST_MODIFIERS: Final = 16


def suffix(word: str, at: int) -> int:
    """Return where a subscript and modifiers that begin at a position end."""
    if found := _SUBSCRIPT.match(word, at):
        at = found.end()
    for _ in range(MOST_MODIFIERS):
        found = _MODIFIER.match(word, at)
        if found is None:
            break
        at = found.end()
    return at


def parted(text: str) -> tuple[str, list["re.Match[str]"]]:
    """Split a suffix into its subscript and its modifiers."""
    found = _SUBSCRIPT.match(text)
    return found[1] if found else "", list(_MODIFIER.finditer(text, found.end() if found else 0))


def sliced(value: str, key: str) -> str:
    """Return some characters of a value; the value itself if the key names an element."""
    found = _POSITION.fullmatch(key)
    if found is None:
        return MADE if "," in key and "$" not in value and UNKNOWN not in value else value
    if "$" in value or UNKNOWN in value or MADE in value:
        return MADE if MADE in value else UNKNOWN
    first, last = int(found[1]), int(found[2] or found[1])
    start = max(first - 1 if first >= 0 else len(value) + first, 0)
    return value[start : last if last >= 0 else max(len(value) + last + 1, 0)]


def changed(values: Iterable[str], modifiers: "list[re.Match[str]]") -> list[str]:
    """Return values with modifiers, also with those of each of its words: it may be a list."""
    each = ((_modified(one, modifiers), " ".join(_modified(part, modifiers) for part in one.split())) for one in values)
    return [value for pair in each for value in pair]


def _modified(value: str, modifiers: "list[re.Match[str]]") -> str:
    """Return a value with modifiers."""
    for found in modifiers:
        every, mark, old, new, letter = found.groups()
        if MADE in value or value == UNKNOWN:
            return value
        if (letter or "") not in _ON_PATHS and ("$" in value or UNKNOWN in value):
            return UNKNOWN
        if letter:
            value = _by_letter(value, letter)
        elif mark and old:
            value = value.replace(old, new.replace("&", old), -1 if every else 1)
        else:
            return MADE
    return value


def _by_letter(value: str, letter: str) -> str:
    if value == HERE and letter in "htre":
        return f"{HERE}/.." if letter == "h" else UNKNOWN
    folder, slash, name = value.rstrip("/").rpartition("/")
    _, dot, ending = name.rpartition(".")
    if letter == "h":
        return folder or slash or "."
    if letter == "t":
        return name
    if letter == "r":
        return value[: len(value) - len(ending) - 1] if dot else value
    if letter == "e":
        return ending if dot else ""
    if letter in "aAP":
        return value if value[:1] in {"/", "$", "~", UNKNOWN} else f"{HERE}/{value}"
    if letter == "c":
        return f"{UNKNOWN}/bin/{value}"
    if letter == "Q":
        return _QUOTE.sub("", value)
    return {"l": value.lower, "u": value.upper}.get(letter, lambda: value)()


def in_cases(value: str, flags: str) -> list[str]:
    """Return a value as the flags L, U and C write it."""
    changes = {"L": str.lower, "U": str.upper, "C": str.title}
    return [change(value) for flag, change in changes.items() if flag in flags]


def globbed(value: str) -> str:
    """Return a value whose patterns count, as that of `$~x`, with what only zsh reads as one replaced by UNKNOWN."""
    for _ in range(MOST_NESTED if "(" in value else 0):
        value = _GROUP.sub(UNKNOWN, value)
    return _REPEATED.sub(UNKNOWN, _EXCEPT.sub("", value)) if any(char in value for char in "#^~") else value
