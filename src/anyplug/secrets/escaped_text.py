"""Decode escaped text and keep track of positions, to find a text however it is written.

Each character may be literal, or escaped as in JSON, JavaScript, C, HTML and URLs, in any mixture. Escape sequences of
terminals and invisible characters mean nothing: they are removed when a text is shown (`model/untrusted_text`). Pure.
"""

import re
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from anyplug.model.late_patterns import late

_HEX = rb"[0-9a-fA-F]"
# What `untrusted_text.for_models` removes, in UTF-8. It begins with one class of bytes, which is searched for fast.
_NOTHING = (
    rb"[\x00-\x08\x0e-\x1b\x1f\x7f\xc2\xcd\xd8\xe1-\xe3\xed-\xf4](?:(?<=\x1b)\[[0-?]*[ -/]*[@-~]"
    rb"|(?<=[\x00-\x7f])|(?<=\xc2)[\x80-\x84\x86-\x9f\xad]|(?<=\xcd)\x8f|(?<=\xd8)\x9c"
    rb"|(?<=\xe1)(?:\x85[\x9f\xa0]|\x9e[\xb4\xb5]|\xa0[\x8b-\x8f])"
    rb"|(?<=\xe2)(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf]|\xa0\x80)|(?<=\xe3)\x85\xa4"
    rb"|(?<=\xed)[\xa0-\xbf][\x80-\xbf]|(?<=\xee)[\x80-\xbf]{2}"
    rb"|(?<=\xef)(?:[\x80-\xa3][\x80-\xbf]|\xb7[\x90-\xaf]|\xb8[\x80-\x8f]|\xbb\xbf|\xbe\xa0|\xbf[\xb0-\xbb\xbe\xbf])"
    rb"|(?<=[\xf0-\xf3])[\x8f\x9f\xaf\xbf]\xbf[\xbe\xbf]"
    rb"|(?<=\xf0)(?:\x93\x90[\xb0-\xbf]|\x96\xbf\xa4|\x9b\xb2[\xa0-\xa3]|\x9d\x85[\x99\xb3-\xba])"
    rb"|(?<=\xf3)(?:\xa0[\x80-\xbf]{2}|[\xb0-\xbf][\x80-\xbf]{2})|(?<=\xf4)[\x80-\x8f][\x80-\xbf]{2})"
)
_ESCAPE = late(
    rb"\\(?:u([dD][89abAB]" + _HEX + rb"{2})\\u([dD][c-fC-F]" + _HEX + rb"{2})"
    rb"|(?:u\{0*(" + _HEX + rb"{1,6})\}|u(" + _HEX + rb"{4})|x(" + _HEX + rb"{2})|U00(" + _HEX + rb"{6}))"
    rb"|([0-3][0-7]{2}|[0-7]{1,2})|([abfnrtv!-/:-@\[-`{-~]))"
    rb"|%(" + _HEX + rb"{2})"
    rb"|&(?:#0*([0-9]{1,7})|#[xX]0*(" + _HEX + rb"{1,6})|([A-Za-z][A-Za-z0-9]{1,31}));?"
    rb"|%u(" + _HEX + rb"{4})"  # as JavaScript's `escape` writes
    rb"|(" + _NOTHING + rb")"
)
_SIGNS = late(rb"[\\%&]")
_NOTHINGS = late(_NOTHING)
# The beginning of an escape at the end of the data so far.
_BEGUN = late(
    rb"(?:\\u[dD][89abAB]"
    + _HEX
    + rb"{2})?\\(?:u\{?"
    + _HEX
    + rb"{0,7}|x"
    + _HEX
    + rb"?|U"
    + _HEX
    + rb"{0,7}|[0-3][0-7]?|[4-7])?\Z"
    rb"|\\u[dD][89abAB]" + _HEX + rb"{2}\Z|%(?:u" + _HEX + rb"{0,3}|" + _HEX + rb")?\Z|&(?:#[xX]?)?[0-9A-Za-z]{0,32}\Z"
    rb"|\x1b(?:\[[0-?]*[ -/]*)?\Z|[\xc2\xcd\xd8]\Z|[\xe1-\xe3\xed-\xef][\x80-\xbf]?\Z|[\xf0-\xf4][\x80-\xbf]{0,2}\Z"
)
LONGEST_ESCAPE = 48  # bytes of an incomplete escape that may continue
_CONTROLS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_HYPHENS = dict.fromkeys(map(ord, "\u2010\u2013\u2014\u2015\u2212"), "-")  # what entities name that looks like one
_HIGH, _LOW, _ABOVE = 0xD800, 0xDC00, 0x10000  # surrogates, and the first code point they stand for
_LARGEST = 0x10FFFF
_BLANKS = b" \t\r\n"
MOST_KNOWN = 4_096  # escapes cached with their decoded form
_known: dict[bytes, bytes] = {}


class Part(NamedTuple):
    """An escape: its decoded range, and its range in the original."""

    begin: int
    end: int
    from_: int
    to: int


class Reading:
    """A text whose escapes were decoded once."""

    def __init__(self, text: bytes, parts: list[Part]) -> None:
        self.text = text
        self._parts = parts
        self._begins = [part.begin for part in parts]

    def place(self, begin: int, end: int) -> tuple[int, int]:
        """Return the range in the original for a range in the text."""
        return self.before(begin), self._after(end)

    def before(self, at: int) -> int:
        """Return the position in the original for a position in the text."""
        number = bisect_right(self._begins, at) - 1
        if number < 0:
            return at
        part = self._parts[number]
        return part.from_ if at < part.end else part.to + at - part.end

    def _after(self, at: int) -> int:
        number = bisect_left(self._begins, at) - 1
        if number < 0:
            return at
        part = self._parts[number]
        return part.to if at < part.end else part.to + at - part.end


def read(text: bytes) -> Reading | None:
    """Decode the escapes of a text once; return None if there are none."""
    if not _has_escapes(text):
        return None
    said: list[bytes] = []
    parts: list[Part] = []
    at = length = 0
    for found in _ESCAPE.finditer(text):
        meant = _meant(found)
        if meant is None:
            continue
        begin, end = found.span()
        length += begin - at
        said += [text[at:begin], meant]
        parts.append(Part(length, length + len(meant), begin, end))
        length += len(meant)
        at = end
    return Reading(b"".join([*said, text[at:]]), parts) if parts else None


def said(text: bytes) -> bytes:
    """Decode like `read` but without positions: several times faster."""
    return _ESCAPE.sub(_known_or_read, text) if _has_escapes(text) else text


def _has_escapes(text: bytes) -> bool:
    return _SIGNS.search(text) is not None or _NOTHINGS.search(text) is not None


def _known_or_read(escape: re.Match[bytes]) -> bytes:
    written = escape[0]
    meant = _known.get(written)
    if meant is None:
        read = _meant(escape)
        meant = written if read is None else read
        if len(_known) < MOST_KNOWN and len(written) <= LONGEST_ESCAPE:
            _known[written] = meant
    return meant


def without_blanks(text: bytes) -> bytes:
    """Return a text without the spaces and line ends that separate digits."""
    return text.translate(None, _BLANKS)


def read_without_blanks(text: bytes) -> Reading:
    """Do the same, keeping track of positions."""
    parts, said, at, length = [], [], 0, 0
    for found in re.finditer(rb"[ \t\r\n]+", text):
        length += found.start() - at
        said.append(text[at : found.start()])
        parts.append(Part(length, length, found.start(), found.end()))
        at = found.end()
    return Reading(b"".join([*said, text[at:]]), parts)


def begun(text: bytes) -> int:
    """Return where an incomplete escape begins at the end of the text; the text's length if there is none."""
    begin = max(0, len(text) - LONGEST_ESCAPE)
    found = _BEGUN.search(text, begin)
    return found.start() if found else len(text)


def _meant(escape: re.Match[bytes]) -> bytes | None:
    high, low, *points, octal, sign, byte, decimal, digits, name, wide, nothing = escape.groups()
    if nothing is not None:
        return b""
    if byte is not None:
        return bytes.fromhex(byte.decode())
    if sign is not None:
        return _CONTROLS.get(sign, sign)
    if octal is not None:
        return bytes([int(octal, 8)])
    if high is not None:
        return _encoded(_ABOVE + ((int(high, 16) - _HIGH) << 10) + int(low, 16) - _LOW)
    if name is not None:
        return _named(name.decode(), is_ended=escape[0].endswith(b";"))
    if decimal is not None:
        return _encoded(int(decimal))
    return _encoded(int(next(filter(None, (*points, digits, wide))), 16))


def _named(name: str, *, is_ended: bool) -> bytes | None:
    from html.entities import html5  # takes 2 ms to import; only for texts with an entity

    if meant := html5.get(f"{name};"):
        return meant.translate(_HYPHENS).encode()
    for end in range(len(name), 1, -1):  # old names need no semicolon, and may stand before other letters
        if meant := html5.get(name[:end]):
            return f"{meant}{name[end:]}{';' if is_ended and end < len(name) else ''}".encode()
    return None


def _encoded(point: int) -> bytes | None:
    return chr(point).encode(errors="surrogatepass") if point <= _LARGEST else None
