"""What commands in substitutions print, if that follows from their words, as for `echo`, `printf`, `which`, `tr`.

Nothing is run. What is made of constants in a way that is not computed here is MADE: nobody computes a constant in good
faith, so callers that protect something may assume the worst; what comes from elsewhere is UNKNOWN.
"""

import binascii
import re
from collections.abc import Sequence
from typing import Final

from anyplug.model.late_patterns import late

UNKNOWN: Final = "\0"
MADE: Final = "\ue010"
OUR_NAMES: Final = ("anyplug", "cupcake")
PRINTING: Final = frozenset({"echo", "printf", "print"})
LOCATING: Final = frozenset({"which", "command", "type", "whereis"})
PASSING: Final = frozenset({"cat", "head", "tail", "sort", "uniq", "tee", "xargs"})  # print what they read
FOLLOWING: Final = frozenset({"readlink", "realpath"})
TRANSFORMING: Final = frozenset(
    {
        "awk", "base32", "base64", "bunzip2", "cut", "fold", "gawk", "gunzip", "gzip", "openssl", "paste", "perl",
        "rev", "sed", "tac", "tr", "uudecode", "xxd", "xz", "zcat", "zlib-flate", "zstd",
    }
)  # fmt: skip
CUTTING: Final = frozenset({"cut", "paste"})  # make nothing that is not in their input
NO_TEXT: Final = range(0xD800, 0xE100)  # surrogates, and the parser's own marks
LONGEST: Final = 4096  # characters that are computed with
_ESCAPE: Final = late(r"\\(?:x([0-9a-fA-F]{1,2})|0?([0-7]{1,3})|u([0-9a-fA-F]{1,4})|([\s\S]))")
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "e": "\x1b", "c": "", "a": "", "b": "", "f": "\f", "v": "\v"}
_DIRECTIVE: Final = late(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?([a-zA-Z]))")
_VARIABLE: Final = late(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))")
FORMATTING: Final = "@F"  # our own operation on a variable: use it as a template of `printf`
BETWEEN: Final = "\x1f"  # the values for the template
_RANGE: Final = late(r"(.)-(.)", re.DOTALL)
_BASE64: Final = late(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_REPLACING: Final = late(r"s([/|,#!@])([\w .,:=@#%-]*)\1([\w .,:=@#%/-]*)\1(g?)")  # a script of `sed`
_HEX: Final = late(r"(?:[0-9a-fA-F]{2}\s*){4,}")
_OF_URLS: Final = str.maketrans("-_", "+/")  # the other letters of base64


def output(commands: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Return what commands print, one after another or as a pipeline; each is its words and its input."""
    text: str | None = None
    for words, fed in commands:
        name = words[0].rpartition("/")[2] if words else ""
        given = "\n".join(fed) if fed else text
        if name == "pwd":
            text = "$PWD"
        elif name in PRINTING:
            text = (text or "") + printed(words)
        elif name in LOCATING and len(words) > 1:
            text = f"{UNKNOWN}/bin/{words[-1].rpartition('/')[2]}"
        elif name in FOLLOWING and len(words) > 1:
            text = words[-1]
        elif name == "dirname" and len(words) > 1:
            text = _above(words[-1])
        elif name == "basename" and len(words) > 1:
            text = words[1].rstrip("/").rpartition("/")[2].removesuffix(words[2] if len(words) > 2 else "")  # noqa: PLR2004
        elif given is not None:
            text = transformed(name, words, given)
    return UNKNOWN if text is None else text.rstrip("\n")


def printed(words: Sequence[str]) -> str:
    """Return what `echo` or `printf` prints."""
    name, rest = words[0].rpartition("/")[2], list(words[1:])
    if name == "printf":
        if rest[:1] == ["-v"]:
            rest = rest[2:]
        if rest[:1] == ["--"]:
            rest = rest[1:]
        return formatted(rest[0], rest[1:]) if rest else ""
    flags = ""
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        flags += rest.pop(0)
    text = " ".join(rest)
    return (unescaped(text) if "e" in flags else text) + ("" if "n" in flags else "\n")


def formatted(template: str, values: list[str]) -> str:
    """Return what `printf` makes of a template, which is reused until no values are left."""
    if values and (found := _VARIABLE.fullmatch(template)):
        given = BETWEEN.join(values)
        return MADE if "}" in given else f"${{{found[1] or found[2]}{FORMATTING}{given}}}"
    waiting = values[::-1]
    made: list[str] = []

    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%"
        given = waiting.pop() if waiting else ""
        return unescaped(given) if found[1] == "b" else given[:1] if found[1] == "c" else given

    while True:
        before = len(waiting)
        made.append(_DIRECTIVE.sub(value, unescaped(template)))
        if not waiting or len(waiting) == before or sum(map(len, made)) > LONGEST:
            return "".join(made)


def unescaped(text: str) -> str:
    """Decode escapes as `printf` and `echo -e` do."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def decoded(text: str) -> list[str]:
    """Return the decoded parts of a text that look encoded: base64, hexadecimal, and the text reversed."""
    found = [text[::-1]]
    for part in _BASE64.findall(text):
        try:
            raw = binascii.a2b_base64(part.translate(_OF_URLS) + "=" * (-len(part) % 4))
        except ValueError:
            continue
        found.append(raw.decode(errors="ignore"))
    found += [bytes.fromhex(part).decode(errors="ignore") for part in _HEX.findall(text)]
    return [one for one in found if one.isprintable() or "\n" in one]


def wide(text: str) -> str:
    """Return what `powershell -EncodedCommand` makes of a text; empty if it is not encoded."""
    if not _BASE64.fullmatch(text):
        return ""
    try:
        made = binascii.a2b_base64(text).decode("utf-16-le")
    except ValueError:
        return ""
    return made if made.isascii() else ""


def _character(found: re.Match[str]) -> str:
    two, octal, four, letter = found.groups()
    if letter:
        return _LETTERS.get(letter, letter if letter in "\\'\"" else found[0])
    code = int(octal, 8) & 0xFF if octal else int(two or four, 16)
    return chr(code) if code and code not in NO_TEXT else "?"


def _above(path: str) -> str:
    """Return the parent of a path; above our own program, everything is ours."""
    if any(name in path for name in OUR_NAMES) or MADE in path:
        return MADE
    return path.rstrip("/").rpartition("/")[0] or UNKNOWN


def transformed(name: str, words: Sequence[str], text: str) -> str:
    """Return what a command makes of its input."""
    if name in PASSING:
        return text
    is_constant = not any(char in text for char in f"{UNKNOWN}$") and bool(text.strip())
    if not is_constant or len(text) > LONGEST:
        return UNKNOWN
    body = text.rstrip("\n")
    if name == "rev":
        return "\n".join(line[::-1] for line in body.split("\n"))
    if name == "tr" and MADE not in text:
        return _translated(words[1:], body)
    scripts = [word for word in words[1:] if word not in {"-e", "-E", "-r"}]
    if name == "sed" and len(scripts) == 1 and (found := _REPLACING.fullmatch(scripts[0])) and "." not in found[2]:
        return "\n".join(line.replace(found[2], found[3], -1 if found[4] else 1) for line in body.split("\n"))
    if name in {"base64", "xxd"} and any(word.startswith(("-d", "--d", "-r")) for word in words):
        return next(iter(decoded(body)[1:]), MADE)
    return MADE if name in TRANSFORMING else UNKNOWN


def _translated(words: Sequence[str], text: str) -> str:
    options = "".join(word for word in words if word.startswith("-") and len(word) > 1)
    sets = [_characters(word) for word in words if not word.startswith("-") or len(word) == 1]
    if not sets or "c" in options.lower() or any("[:" in one for one in words):
        return MADE
    if "d" in options:
        return "".join(char for char in text if char not in sets[0])
    if len(sets) < 2 or not sets[1]:  # noqa: PLR2004
        return MADE
    target = sets[1] + sets[1][-1] * max(0, len(sets[0]) - len(sets[1]))
    return text.translate({ord(one): other for one, other in zip(sets[0], target, strict=False)})


def _characters(given: str) -> str:
    def between(found: re.Match[str]) -> str:
        first, last = ord(found[1]), ord(found[2])
        return "".join(map(chr, range(first, min(last, first + 255) + 1)))

    return _RANGE.sub(between, unescaped(given))
