"""Mask secrets as `•••` in texts, values and streams, also in the forms in which they commonly leak. Pure.

A secret is searched for in the text as it is, and in the text with its escapes decoded (`escaped_text`) up to three
times, so each character may have any spelling. It is also searched for in hexadecimal and base64: alone, split into
lines, or as part of something longer such as a login header. The password of a URL also counts by itself, and so does
each long line of a multi-line secret, because programs print them that way. Secrets that are truncated, spelled out or
encrypted are not found. The running time is linear in the length of the text.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from anyplug.home.plugin_config import SHOWN_SECRET
from anyplug.model.errors import AnyplugError, CallError
from anyplug.model.late_patterns import late
from anyplug.model.schema_words import TYPES, WORDS
from anyplug.model.types import Block, Result
from anyplug.secrets import escaped_text

S = TypeVar("S", bound=msgspec.Struct)

SHORTEST = 6  # characters; shorter ones occur in too many innocent words
SHORTEST_LINE = 16  # characters of a line of a longer secret, such as a private key
LONGEST = 16_384  # characters; anything longer is a file, and searching for it would cost more than it hides

_SHOWN_DATA = SHOWN_SECRET.encode()
_PASSWORD = late(r"\w[\w+.-]*://[^/\s:@]*:([^/\s@]+)@")
_BASE64_LEAD = (0, 2, 3)  # characters that depend on the 0, 1 or 2 bytes before
_BASE64_BITS = 6
_LINES = (76, 64)  # base64 characters that programs put on a line
_HEX_LINE = 60  # digits per line, as in `xxd -p`
_BLANKLESS = 12  # minimum length of hexadecimal or base64 text to be found with spaces inside
_ROUNDS = 3  # nested escapes: JSON in JSON in a URL

_PAIR = late(rb"(?:0[xX])?([0-9a-fA-F]{2})")
_DUMP = late(rb"(?:(?:0[xX])?[0-9a-fA-F]{2}[:,;_.\- \t\r\n]{1,3}){5,}(?:0[xX])?[0-9a-fA-F]{2}")

NOTHING_KEPT: frozenset[str] = frozenset()
_NOT_TEXT = frozenset({"data", "path"})  # fields of a block: base64, and a path on this machine
_MEDIA = frozenset({"image", "audio"})  # MCP's blocks with base64 under `data`
_SCHEMAS = frozenset({"input_schema", "output_schema"})  # fields of tools


def forms(secret: str) -> set[str]:
    """Return every form of a secret to search for; none if it is too short or too long."""
    found: set[str] = set()
    for whole in _wholes(secret):
        found |= _spellings(whole)
        if "\n" in whole:
            found |= {line for line in map(str.strip, whole.split("\n")) if len(line) >= SHORTEST_LINE}
    return found


def _wholes(secret: str) -> set[str]:
    """Return the parts of a secret that are secret by themselves: all of it, and the password of a URL."""
    whole = secret.strip()
    if not SHORTEST <= len(whole) <= LONGEST:
        return set()
    if (address := _PASSWORD.match(whole)) and len(address[1]) >= SHORTEST:
        return {whole, address[1], _unquoted(address[1])}
    return {whole}


class Mask:
    """Masks a set of secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Take the secrets; those that are too short are ignored."""
        secrets = list(secrets)
        found = {form for secret in secrets for form in forms(secret)}
        # Longest first, so that a secret that begins with another is masked whole.
        self._forms = sorted(found, key=lambda form: (-len(form), form))
        self._data = sorted((_encoded(form) for form in found), key=lambda form: (-len(form), form))
        self._shortest = min(map(len, found), default=0)  # characters; many values are shorter than any secret
        wholes = {whole for secret in secrets for whole in _wholes(secret)}
        digits = {_encoded(form) for whole in wholes for form in _digits(whole) if len(form) >= _BLANKLESS}
        self._blankless = sorted(digits, key=lambda form: (-len(form), form))
        self._hex = sorted({_encoded(whole).hex().encode() for whole in wholes}, key=len, reverse=True)
        self._numbers = frozenset(form for form in found if form.lstrip("-").replace(".", "", 1).isdecimal())

    def __bool__(self) -> bool:
        return bool(self._forms)

    # Compiled only on a match: searching for each form is faster than the pattern, and usually enough.
    @cached_property
    def _data_pattern(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(re.escape, self._data)))

    @cached_property
    def _blankless_pattern(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(re.escape, self._blankless)))

    def text(self, text: str) -> str:
        """Mask the secrets in a text."""
        if not self._forms or len(text) < self._shortest:
            return text
        errors = "surrogateescape"  # non-UTF-8 secrets are stored that way
        try:
            data = text.encode(errors=errors)
        except UnicodeEncodeError:
            errors = "surrogatepass"
            data = text.encode(errors=errors)
        hidden = self.data(data)
        return text if hidden is data else hidden.decode(errors=errors)

    def data(self, data: bytes) -> bytes:
        """Mask the secrets in bytes."""
        places = self._places(data)
        return _hidden(data, places) if places else data

    def _places(self, data: bytes, rounds: int = _ROUNDS) -> list[tuple[int, int]]:
        """Find the ranges of secrets, however they are escaped; sorted and disjoint."""
        found = self._found(data)
        said = escaped_text.said(data) if rounds else data
        if said != data and (inner := self._places(said, rounds - 1)):
            reading = escaped_text.read(data)  # only now, because tracking positions is slow
            assert reading is not None
            found += [reading.place(*place) for place in inner]
        return _joined(found)

    def _found(self, data: bytes) -> list[tuple[int, int]]:
        """Find secrets in a text without decoding it."""
        found: list[tuple[int, int]] = []
        if any(form in data for form in self._data):
            found += [match.span() for match in self._data_pattern.finditer(data)]
        if self._blankless and b"\n" in data:
            dense = escaped_text.without_blanks(data)
            if any(form in dense for form in self._blankless):
                reading = escaped_text.read_without_blanks(data)
                found += [reading.place(*match.span()) for match in self._blankless_pattern.finditer(dense)]
        return found + self._found_in_dumps(data)

    def _found_in_dumps(self, data: bytes) -> list[tuple[int, int]]:
        """Find secrets in bytes that are written one by one, such as `0x68, 0x75` or `68:75`."""
        found = []
        for run in _DUMP.finditer(data) if self._hex else ():
            pairs = list(_PAIR.finditer(data, *run.span()))
            digits = b"".join([pair[1] for pair in pairs]).lower()
            for form in self._hex:
                at = digits.find(form)
                while at >= 0:
                    if at % 2 == 0:
                        found.append((pairs[at // 2].start(), pairs[(at + len(form)) // 2 - 1].end()))
                    at = digits.find(form, at + 1)
        return found

    def decided(self, data: bytes) -> tuple[bytes, bytes]:
        """Mask the start of a stream; return what is final, and the rest, which depends on what follows."""
        places = self._places(data)
        undecided = self._undecided(data, 0)
        for begin, end in places:
            if begin < undecided < end:  # what looked like the start of a secret belongs to this one
                undecided = self._undecided(data, end)
        certain = [place for place in places if place[0] < undecided]
        return _hidden(data[:undecided], certain), data[undecided:]

    def value(self, value: Any) -> Any:
        """Mask the secrets in a JSON value or a struct."""
        try:
            return self._value(value)
        except RecursionError:  # nested too deeply to inspect
            return SHOWN_SECRET

    def messages(self, value: Any) -> Any:
        """Mask the secrets in a JSON value with messages for a model, except in the data of pictures and sounds."""
        if isinstance(value, list):
            return [self.messages(item) for item in value]
        if not isinstance(value, dict):
            return self.value(value)
        kept = _NOT_TEXT if value.get("type") in _MEDIA else NOTHING_KEPT
        return {self.value(key): item if key in kept else self.messages(item) for key, item in value.items()}

    def beginning(self, text: str, longest: int) -> str:
        """Mask the secrets in the beginning of a text, and drop a secret that begins at its end."""
        if len(text) <= longest:
            return self.text(text)
        data = text[:longest].encode(errors="surrogatepass")
        return self.decided(data)[0].decode(errors="replace")

    def result(self, result: Result) -> Result:
        """Mask the secrets in a call's result, except in paths, binary data, and what the host says of it."""
        metadata = self.value(result.metadata)
        return msgspec.structs.replace(
            result,
            content=tuple(self.struct(block, _NOT_TEXT) for block in result.content),
            structured=self.value(result.structured),
            metadata=metadata if isinstance(metadata, dict) else {},
            error=result.error and self.struct(result.error, frozenset({"code"})),
        )

    def struct(self, given: S, kept: frozenset[str]) -> S:
        """Mask the secrets in all fields of a struct that are not `kept`, and in what is inside them."""
        fields = [name for name in given.__struct_fields__ if name not in kept]
        masked = {name: getattr(given, name) for name in fields}
        masked = {name: (self.schema if name in _SCHEMAS else self.value)(value) for name, value in masked.items()}
        return msgspec.structs.replace(given, **masked)

    def schema(self, schema: Any) -> Any:
        """Mask the secrets in a schema, the names in it included, but not its own words."""
        try:
            return self._schema(schema)
        except RecursionError:  # nested too deeply to inspect
            return {}

    def _schema(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._schema(key): self._schema(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._schema(item) for item in value]
        return value if isinstance(value, str) and (value in WORDS or value in TYPES) else self._value(value)

    def error(self, error: AnyplugError) -> None:
        """Mask the secrets in an error's texts."""
        error.message, error.hint = self.text(error.message), self.text(error.hint)
        error.args = (error.message,)
        if isinstance(error, CallError):
            error.partial, error.metadata = self.text(error.partial), self.value(error.metadata)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._value(key): self._value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self._value(item) for item in value])
        if isinstance(value, msgspec.Struct):
            return self.struct(value, _NOT_TEXT if isinstance(value, Block) else NOTHING_KEPT)
        if self._numbers and isinstance(value, int | float) and repr(value) in self._numbers:
            return SHOWN_SECRET
        return value

    def _undecided(self, data: bytes, begin: int, rounds: int = _ROUNDS) -> int:
        """Return where an incomplete secret or escape may begin at the end of the data; its length if there is none."""
        earliest = max(begin, escaped_text.begun(data))
        whole = data[:earliest]
        earliest = min(earliest, self._begun(whole, begin))
        reading = escaped_text.read(whole[begin:]) if rounds else None
        if reading is None:
            return earliest
        inner = self._undecided(reading.text, 0, rounds - 1)
        return earliest if inner == len(reading.text) else min(earliest, begin + reading.before(inner))

    def _begun(self, data: bytes, begin: int) -> int:
        """Return where an incomplete literal secret may begin at the end of the data."""
        earliest = len(data)
        for form in self._data:
            at = max(begin, len(data) - len(form) + 1)
            while (at := data.find(form[:1], at, earliest)) >= 0:
                if form.startswith(data[at:]):
                    earliest = at
                    break
                at += 1
        return earliest


class Stream:
    """Masks secrets in a stream: a possible start of a secret is held back until more data or the end arrives."""

    def __init__(self, mask: Callable[[], Mask | None]) -> None:
        """`mask` returns the current mask."""
        self._mask = mask
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Add a chunk; return what can be shown so far."""
        mask = self._mask()
        if mask is None:
            chunk, self._held = self._held + chunk, b""
            return chunk
        done, self._held = mask.decided(self._held + chunk)
        return done

    def end(self) -> bytes:
        """End the stream; return what was held back."""
        held, self._held = self._held, b""
        mask = self._mask()
        return held if mask is None else mask.data(held)


def _hidden(data: bytes, places: list[tuple[int, int]]) -> bytes:
    """Mask these ranges."""
    done, at = [], 0
    for begin, end in places:
        done += [data[at:begin], _SHOWN_DATA]
        at = end
    return b"".join([*done, data[at:]])


def _joined(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges and merge those that overlap."""
    if len(places) < 2:  # noqa: PLR2004 - which do not meet
        return places
    found: list[tuple[int, int]] = []
    for begin, end in sorted(places):
        if found and begin < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _spellings(secret: str) -> set[str]:
    """Return the encoded forms of a text. Escapes do not matter here, because texts are searched decoded."""
    found = {secret, secret.replace(" ", "+")}
    data = _encoded(secret)
    if not secret.isascii():  # its bytes may be escaped one by one as if they were characters, and in an older encoding
        found.add(data.decode("latin-1"))
        with suppress(UnicodeEncodeError):
            found.add(secret.encode("latin-1").decode(errors="surrogateescape"))
    if (
        escaped_text.said(data) != data
    ):  # decoding changes it together with the escapes around it, as common encoders write them
        found |= _written(secret)
    for _ in range(_ROUNDS):  # what looks like an escape in the secret itself is decoded as well
        reading = escaped_text.read(data)
        if reading is None:
            break
        data = reading.text
        if len(data) >= SHORTEST:
            found.add(data.decode(errors="surrogateescape"))
    return found | _digits(secret)


def _written(secret: str) -> set[str]:
    """Return a text as written in JSON, HTML and URLs."""
    import html  # few secrets need these three
    import json
    from urllib.parse import quote

    once = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(form)[1:-1] for form in once}
    in_url = {quote(_encoded(secret), safe=safe) for safe in ("", "/", "!'()*")}
    return once | twice | in_url | {html.escape(secret), html.escape(secret, quote=False)}


def _digits(secret: str) -> set[str]:
    """Return a text in hexadecimal and base64, in each encoding that it may have."""
    found: set[str] = set()
    for data in {_encoded(secret), secret.encode("latin-1", errors="ignore")}:
        if len(data) >= len(secret):  # else it has letters that Latin-1 lacks
            found |= {form for one in (data.hex(), data.hex().upper()) for form in (one, *_lines(one, _HEX_LINE))}
            found |= _base64(data)
    return found


def _unquoted(text: str) -> str:
    from urllib.parse import unquote  # takes 8 ms to import; only for URLs with a password

    return unquote(text)


def _base64(data: bytes) -> set[str]:
    """Return the base64 of some data, and the part of it that is constant inside longer data."""
    whole = b2a_base64(data, newline=False).decode()
    found = {whole, whole.rstrip("="), *(line for width in _LINES for line in _lines(whole, width))}
    for before, lead in enumerate(_BASE64_LEAD):
        certain = (before + len(data)) * 8 // _BASE64_BITS
        found.add(b2a_base64(bytes(before) + data, newline=False).decode()[lead:certain])
    return found | {form.translate(_URL_SAFE) for form in found}


def _lines(text: str, width: int) -> list[str]:
    """Return the long lines of a wrapped text; none if it fits on one line."""
    found = [text[at : at + width] for at in range(0, len(text), width)]
    return [line for line in found if len(line) >= SHORTEST_LINE] if len(found) > 1 else []


_URL_SAFE = str.maketrans("+/", "-_")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
