"""The strings in programs of other languages, as these programs put them together.

Strings that stand side by side or are added are joined, escapes and `chr(46)` are decoded, and so are base64,
hexadecimal and reversed strings if the program mentions such a thing. What is made of variables is not computed:
`composed` tells which names the pieces of a program could make.
"""

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.shell import substitutions

MOST_STRINGS: Final = 64  # of one program
MOST_PIECES: Final = 512
MOST_REPLACED: Final = 8  # calls of `replace`, and lists of numbers, that are computed
SHORTEST_MADE: Final = 4  # characters of a name that is looked for among the pieces
_STRING: Final = late(
    r"""'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)"|`((?:\\.|[^`\\])*)`|\b(?:qw|qx|q|qq)\s*[({\[<|/]([^)}\]>|/]*)|%[wx][({\[]([^)}\]]*)""",
    re.DOTALL,
)
_JOINING: Final = late(r"\s*(?:\+|\.\.?|<>|~|&)?\s*[fFrRbBuU]{0,2}")  # between two strings that become one
_CHARACTER: Final = late(r"\b(?:chr|(?:String\.)?fromCharCode|string\.char)\s*\(\s*(0x[0-9a-fA-F]+|\d+)\s*\)")
_CODE: Final = late(r"\\u\{([0-9a-fA-F]{1,6})\}")
_HERE: Final = late(r"\b(?:getcwd|cwd|listdir|scandir|readdir|walk|Path)\s*\(\s*\)|\bDir\.pwd\b|\b__dirname\b")
_HOME: Final = late(r"\bhomedir\(\)|\bPath\.home\(\)|\benv\.HOME\b|\bDir\.home\b")
_INSERTED: Final = late(r"""[$#]?\{\s*"([^"{}]*)"\s*\}""")  # a string in a string
_REPLACED: Final = late(r"""replace(?:All)?\(\s*["']([^"']+)["']\s*,\s*["']([^"']*)["']""")
_CODES: Final = late(r"\b\d{2,3}(?:\s*,\s*\d{2,3}){3,}\b")  # of characters
_DECODING: Final = late(r"b64|base64|hex|atob|decode|pack|H\*|rot_?13|revers|::-1|-1\]", re.IGNORECASE)
_WALKING: Final = late(r"""\bPath\(\s*(?:(["'])([^"'\\]*)\1)?\s*\)\s*\.\s*rglob\(\s*(["'])([^"'/\\]+)\3\s*\)""")
PLACEHOLDER: Final = late(r"[$#]?\{[\w.!:\[\]]*\}|%[-\d.]*[sdr]")  # where a program inserts a value
_GLOBBED: Final = late(r"<([\w./-]*[*?][\w./*?-]*)>")  # of Perl
_PIECE: Final = late(r"[\w.-]+")


def walks(program: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the folders that a program searches for names, with the names, and the program without these calls."""
    found = [(one[2] or ".", one[4]) for one in itertools.islice(_WALKING.finditer(program), MOST_STRINGS)]
    return _WALKING.sub("walk", program, count=MOST_STRINGS), found


def strings(program: str) -> list[str]:
    """Return the strings in a program, and what is made of them."""
    return [text for one in readings(program) for text in one]


def readings(program: str) -> list[list[str]]:
    """Return the strings in a program as they are written, as they are joined, and as they are decoded."""
    program = _CHARACTER.sub(lambda found: f'"{_character(found[1])}"', program)
    program = _GLOBBED.sub(r'"\1"', program)
    program = _INSERTED.sub(r"\1", _HOME.sub('"~"', _HERE.sub('"."', program)))
    plain: list[str] = []
    joined: list[str] = []
    end = -1
    for one in _STRING.finditer(program):
        text = next(filter(None, one.groups()), "")
        plain.append(text)
        is_joined = end >= 0 and _JOINING.fullmatch(program, end, one.start()) is not None
        joined[-1:] = [joined[-1] + _unescaped(text)] if is_joined else [*joined[-1:], _unescaped(text)]
        end = one.end()
        if len(plain) == MOST_STRINGS:
            break
    decoded: list[str] = []
    if _DECODING.search(program):
        decoded = [text for one in joined for text in (*substitutions.decoded(one), codecs.encode(one, "rot13"))]
    for found in itertools.islice(_REPLACED.finditer(program), MOST_REPLACED):
        decoded += [one.replace(found[1], found[2]) for one in joined if found[1] in one]
    for found in itertools.islice(_CODES.finditer(program), MOST_REPLACED):
        decoded.append("".join(map(_character, re.findall(r"\d+", found[0]))))
    return [plain, joined if joined != plain else [], decoded]


def pieces(text: str) -> set[str]:
    """Return the words of a program, of which it may make names."""
    whole = PLACEHOLDER.sub(lambda found: f" {found[0].strip('{}$#%')} ", text)
    words = [found[0] for found in itertools.islice(_PIECE.finditer(whole), MOST_PIECES)]
    return {*words, *(part for word in words for part in word.split(".") if part)}


def composed(parts: set[str], names: Iterable[str]) -> Iterator[str]:
    """Yield the names that two or more parts make."""
    for name in names:
        if len(name) < SHORTEST_MADE or name in parts:
            continue
        fitting = [part for part in parts if part in name]
        reached = {0}
        for at in range(len(name) if len(fitting) > 1 else 0):
            if at in reached:
                reached |= {at + len(part) for part in fitting if name.startswith(part, at)}
        if len(name) in reached:
            yield name


def _unescaped(text: str) -> str:
    return substitutions.unescaped(_CODE.sub(lambda found: _character(f"0x{found[1]}"), text))


def _character(number: str) -> str:
    code = int(number, 0) if not number.isdigit() else int(number)
    return chr(code) if ord(" ") <= code < substitutions.NO_TEXT.start else " "
