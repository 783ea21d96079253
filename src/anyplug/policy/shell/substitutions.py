"""What commands in substitutions print, if that follows from their words, as for `echo`, `printf`, `which`, `tr`.

Nothing is run. What is made of constants in a way that is not computed here is MADE: nobody computes a constant in good
faith, so callers that protect something may assume the worst; what comes from elsewhere is UNKNOWN.
"""

import binascii
import re
import sys
from collections.abc import Sequence
from typing import Final, Literal

from anyplug.model.late_patterns import late

Shell = Literal["bash", "sh", "zsh"]  # `sh` as dash is
SHELLS: Final[tuple[Shell, ...]] = ("bash", "sh", "zsh")
UNKNOWN: Final = "\0"
MADE: Final = "\ue010"
PRINTING: Final = frozenset({"echo", "printf", "print"})
PASSING: Final = frozenset({"cat", "head", "tail", "sort", "uniq", "tee", "xargs"})  # print what they read, or parts
TRANSFORMING: Final = frozenset(
    {
        "awk", "base32", "base64", "bunzip2", "cut", "dd", "egrep", "fgrep", "fold", "gawk", "grep", "gunzip", "gzip",
        "head", "iconv", "openssl", "paste", "perl", "rev", "sed", "sort", "tac", "tail", "tr", "uniq", "uudecode",
        "xxd", "xz", "zcat", "zlib-flate", "zstd",
    }
)  # fmt: skip
CUTTING: Final = frozenset({"cut", "paste"})  # make nothing that is not in their input
NONE: Final = UNKNOWN  # for a zero byte, which shells drop, and which ends words for others
NO_TEXT: Final = range(0xD800, 0xE100)  # surrogates, and the parser's own marks
LONGEST: Final = 4096  # characters that are computed with
_CODES: Final = r"u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([\s\S]))"
_ESCAPE: Final = late(rf"\\(?:x([0-9a-fA-F]{{1,2}})|0?([0-7]{{1,3}})|{_CODES}")
FORMAT: Final = late(rf"\\(?:x([0-9a-fA-F]{{1,2}})|([0-7]{{1,3}})|{_CODES}")
ECHOED: Final = late(rf"\\(?:x([0-9a-fA-F]{{1,2}})|0([0-7]{{0,3}})|{_CODES}")
_ECHOED_BY_DASH: Final = late(r"\\(?:((?!))|0?([0-7]{1,3})|((?!))|((?!))|([\s\S]))")
_STOPPING: Final = late(r"((?:[^\\]|\\[^c])*)\\c")  # nothing more is printed
_ECHO_FLAGS: Final = late(r"-[neE]+")
_DASH_FLAGS: Final = late(r"-n")
_PRINT_FLAGS: Final = late(r"-[a-zA-Z]+")
_NUMBER: Final = late(r"0|-?[1-9]\d*")
_UNQUOTED: Final = late(r"[\w./:@%+-]+")  # stays as it is where others are quoted
_COUNT: Final = late(r"(?:-([nc])|--(line|byte)s=)?([1-9]\d*)|-([1-9]\d*)")  # of `head` and `tail`
_LETTERS: Final = {
    "a": "\a", "b": "\b", "c": "", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"
}  # fmt: skip
_DIRECTIVE: Final = late(r"%([-+ #0]*)(\d*)(\.\d*)?([a-zA-Z%*(])")
_VARIABLE: Final = late(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))")
DECODING: Final = "@D"  # our own operation on a variable: decode it as `echo` of dash and zsh does
FORMATTING: Final = "@F"  # our own operation on a variable: use it as a template of `printf`
SPLIT: Final = "\ue015"  # behind `${`: its words are values for a template
BETWEEN: Final = "\x1f"  # the values for the template
_RANGE: Final = late(r"(.)-(.)", re.DOTALL)
_BASE64: Final = late(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_REPLACING: Final = late(r"s([/|,#!@])([\w .,:=@#%-]*)\1([\w .,:=@#%/-]*)\1(g?)")  # a script of `sed`
_CONTINUING: Final = late(r"\\[$`\\\n]")  # means something else in a here-document
_HEX: Final = late(r"(?:[0-9a-fA-F]{2}\s*){4,}")
_OF_URLS: Final = str.maketrans("-_", "+/")  # the other letters of base64


def printed(words: Sequence[str], shell: Shell = "bash") -> str:
    """Return what `echo`, `printf` or zsh's `print` prints in a shell."""
    name, rest = words[0].rpartition("/")[2], list(words[1:])
    if name == "printf":
        if rest[:1] == ["-v"]:
            rest = rest[2:]
        if rest[:1] == ["--"]:
            rest = rest[1:]
        return formatted(rest[0], rest[1:]) if rest else ""
    known = _PRINT_FLAGS if name == "print" else _DASH_FLAGS if shell == "sh" else _ECHO_FLAGS
    flags = ""
    while rest and known.fullmatch(rest[0]) and not (flags and shell == "sh"):
        flags += rest.pop(0)
    if name == "print":
        if not set(flags) <= set("-nlrRNe"):
            return UNKNOWN if any(mark in word for word in rest for mark in (UNKNOWN, "$")) else MADE
        rest = rest[1:] if rest[:1] == ["--"] else rest
        shell, flags = "zsh", flags.replace("r", "E").replace("R", "E").replace("N", "n")
    text = ("\n" if "l" in flags else " ").join(rest) + ("" if "n" in flags else "\n")
    is_decoded = shell != "bash" or "e" in flags
    if not is_decoded or flags.rfind("E") > flags.rfind("e"):
        return text
    if shell != "bash":
        text = _VARIABLE.sub(rf"${{\1\2{DECODING}}}", text)
    return echoed(text, shell)


def echoed(text: str, shell: Shell) -> str:
    """Decode escapes as `echo` does in a shell (in bash, with -e)."""
    found = _STOPPING.match(text)
    return unescaped(text[: found.end(1)] if found else text, _ECHOED_BY_DASH if shell == "sh" else ECHOED)


def formatted(template: str, values: list[str]) -> str:
    """Return what `printf` makes of a template, which is reused until no values are left."""
    if values and (found := _VARIABLE.fullmatch(template)):
        given = BETWEEN.join(values)
        return MADE if "}" in given else f"${{{found[1] or found[2]}{FORMATTING}{given}}}"
    parts: list[str] = _DIRECTIVE.split(template)  # texts, and between them flags, width, precision and letter
    if "$" in template and len(parts) > 1:
        return UNKNOWN  # whose value may have directives
    if any("%" in text for text in parts[::5]):
        return MADE
    waiting = values[::-1]
    made: list[str] = []
    while True:
        before = len(waiting)
        for at in range(0, len(parts), 5):
            made.append(unescaped(parts[at], FORMAT))
            made.append(_inserted(parts[at + 1 : at + 5], waiting) if parts[at + 1 :] else "")
        if not waiting or len(waiting) == before or sum(map(len, made)) > LONGEST:
            return "".join(made)


def _inserted(directive: Sequence[str | None], waiting: list[str]) -> str:  # noqa: C901 - one branch for each letter
    """Return what a directive makes of the next value; numbers and times that are not computed are UNKNOWN."""
    flags, width, precision, letter = (part or "" for part in directive)
    if letter == "%":
        return "%" if not flags + width + precision else MADE
    given = waiting.pop() if waiting else ""
    if "$" in given and "PWD" not in given:
        given = _VARIABLE.sub(r"${\1\2}", given).replace("${", f"${{{SPLIT}")
    if letter in {"d", "i"} and not flags and (not given or _NUMBER.fullmatch(given)):
        return UNKNOWN if precision else (given or "0").rjust(int(width or 0))
    if letter == "b":
        given = MADE if _STOPPING.match(given) else unescaped(given)
    elif letter == "c":
        given = given[:1]
    elif letter == "q":
        given = given if _UNQUOTED.fullmatch(given) else MADE
    elif letter != "s":
        return UNKNOWN
    if not width and not precision:
        return given
    if any(char in given for char in f"{UNKNOWN}$"):
        return UNKNOWN
    if set(flags) - {"-"} or not given.isascii():
        return MADE
    given = given[: int(precision[1:] or 0)] if precision else given
    return given.ljust(int(width or 0)) if flags else given.rjust(int(width or 0))


def unescaped(text: str, escapes: "re.Pattern[str] | None" = None) -> str:
    """Decode escapes as `printf %b` does, or others."""
    return (escapes or _ESCAPE).sub(_character, text) if "\\" in text else text


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
    two, octal, four, eight, letter = found.groups()
    if letter:
        return _LETTERS.get(letter, letter if letter in "\\'\"" else found[0])
    code = int(octal or "0", 8) & 0xFF if octal is not None else int(two or four or eight, 16)
    return chr(code) if code and code not in NO_TEXT and code <= sys.maxunicode else NONE


def transformed(name: str, words: Sequence[str], text: str) -> str:  # noqa: C901 - one branch for each program
    """Return what a command makes of its input; UNKNOWN if it is not computed, MADE if it is made of constants."""
    options = [word for word in words[1:] if word.startswith("-") and len(word) > 1]
    named = [word for word in words[1:] if word not in options and word != "-"]
    body = text.rstrip("\n")
    is_line = "\n" not in body and len(text) <= LONGEST
    is_plain = not (_CONTINUING.search(text) if "\\" in text else "")
    if (name == "cat" and not named and not options) or name == "tee":
        return text if is_plain else UNKNOWN
    if name == "xargs" and not options and is_line and not any(char in text for char in "'\"\\"):
        program = named[0].rpartition("/")[2] if named else "echo"
        return printed([*(named or ["echo"]), *text.split()]) if program in PRINTING else UNKNOWN
    if name in {"sort", "uniq"} and not named and set("".join(options)) <= set("-ru") and is_line:
        return text
    if name == "sort" and options in ([], ["-u"]) and not named and MADE not in text:
        lines = body.split("\n")
        return "\n".join(sorted(set(lines) if options else lines))
    is_constant = not any(char in text for char in f"{UNKNOWN}$") and bool(text.strip())
    if name in {"head", "tail"}:
        cut = _counted(name, options, named, text)
        if cut is not None and (is_constant or (is_line and cut == text)):
            return cut
    if not is_constant or len(text) > LONGEST:
        return UNKNOWN
    if MADE in text or not is_plain:
        return MADE
    if name == "rev" and not named and not options:
        return "\n".join(line[::-1] for line in body.split("\n"))
    if name == "tr":
        return _translated(words[1:], text)
    scripts = [word for word in words[1:] if word not in {"-e", "-E", "-r"}]
    replacing = _REPLACING.fullmatch(scripts[0]) if name == "sed" and len(scripts) == 1 else None
    if replacing and replacing[2] and "." not in replacing[2]:
        count = -1 if replacing[4] else 1
        return "\n".join(line.replace(replacing[2], replacing[3], count) for line in body.split("\n"))
    if name in {"base64", "xxd"} and not named:
        return _decoded(name, options, body)
    return MADE if name in TRANSFORMING else UNKNOWN


def _counted(name: str, options: Sequence[str], named: Sequence[str], text: str) -> str | None:
    """Return the beginning or the end of a text, as `head` and `tail` are told; None if that is not computed."""
    found = _COUNT.fullmatch("".join((*options, *named))) if options else None
    if (options and found is None) or (named and not options) or len(options) > 1 or len(named) > 1:
        return None
    count = int(found[3] or found[4]) if found else 10
    if found and (found[1] == "c" or found[2] == "byte"):
        return (text[:count] if name == "head" else text[-count:]) if text.isascii() else None
    lines = text.splitlines(keepends=True)
    return "".join(lines[:count] if name == "head" else lines[-count:])


def _decoded(name: str, options: Sequence[str], text: str) -> str:
    """Return what `base64 -d` and `xxd -r -p` make of a whole text."""
    letters = "".join(options)
    try:
        if name == "base64" and options in (["-d"], ["-D"], ["--decode"], ["-di"], ["-id"]):
            return binascii.a2b_base64(text.replace("\n", ""), strict_mode=True).decode().replace("\0", NONE)
        if name == "xxd" and set(letters) == set("-rp"):
            return bytes.fromhex(text).decode().replace("\0", NONE)
    except ValueError:
        pass
    return MADE


def _translated(words: Sequence[str], text: str) -> str:
    deletes = words[:1] == ["-d"]
    sets = [_characters(word) for word in (words[1:] if deletes else words)]
    wanted = 1 if deletes else 2
    if len(sets) != wanted or not text.isascii() or not all(one and one.isascii() for one in sets):
        return MADE
    if deletes:
        return "".join(char for char in text if char not in sets[0])
    target = sets[1] + sets[1][-1] * max(0, len(sets[0]) - len(sets[1]))
    return text.translate({ord(one): other for one, other in zip(sets[0], target, strict=False)})


def _characters(given: str) -> str:
    """Return the characters of a set; empty if it is not computed."""
    if any(mark in given for mark in ("[:", "[=", "*]")) or given.startswith("-"):
        return ""

    def between(found: re.Match[str]) -> str:
        first, last = ord(found[1]), ord(found[2])
        return "".join(map(chr, range(first, min(last, first + 255) + 1)))

    decoded = unescaped(given)
    return "" if any(one > two for one, two in _RANGE.findall(decoded)) else _RANGE.sub(between, decoded)
