"""Masks: secrets become `•••` in texts, values and streams, also in the forms in which they usually leak. Pure.

A secret is looked for as it is, as JSON (once and twice) and HTML write it, as a URL has it, in hexadecimal digits,
and in base64, alone, in lines, or as a part of something longer, such as the header of a login. Of an address the
password counts by itself, of several lines each long one, because programs print them so. What is cut, spelled or
encrypted is not found.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from anyplug.config import SHOWN_SECRET
from anyplug.errors import AnyplugError, CallError
from anyplug.model import Block, File, Resource, Result, Text

S = TypeVar("S", bound=msgspec.Struct)

SHORTEST = 6  # characters; what is shorter stands in too many innocent words
SHORTEST_LINE = 16  # characters of a line of a longer secret, such as a private key
LONGEST = 16_384  # characters; what is longer is a file, and searching for it would cost more than it hides

_SHOWN_DATA = SHOWN_SECRET.encode()
_PASSWORD = re.compile(r"\w[\w+.-]*://[^/\s:@]*:([^/\s@]+)@")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_LEFT_BY_SOME = (b"", b"/", b"!'()*")  # strict; Python's quote; JavaScript's encodeURIComponent
_BASE64_LEAD = (0, 2, 3)  # characters that depend on the 0, 1 or 2 bytes before
_BASE64_BITS = 6
_LINES = (76, 64)  # characters of base64 that programs put into one
_HEX_LINE = 60  # digits; as `xxd -p` does
# What Go, and others for the sake of HTML, write for these in JSON; and how HTML itself has them.
_FOR_HTML_IN_JSON = str.maketrans({"&": "\\u0026", "<": "\\u003c", ">": "\\u003e"})
_IN_HTML = (
    str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"}),
    str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}),
    str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}),
    str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"}),
)

NOTHING_KEPT: frozenset[str] = frozenset()


def forms(secret: str) -> set[str]:
    """Give every form of a secret that is looked for; none if it is too short or too long."""
    whole = secret.strip()
    if not SHORTEST <= len(whole) <= LONGEST:
        return set()
    found = _spellings(whole)
    if (address := _PASSWORD.match(whole)) and len(address[1]) >= SHORTEST:
        found |= _spellings(address[1]) | _spellings(_unquoted(address[1]))
    if "\n" in whole:
        found |= {line for line in map(str.strip, whole.split("\n")) if len(line) >= SHORTEST_LINE}
    return found


class Mask:
    """Hides a set of secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Take the secrets; those that are too short are left alone."""
        found = {form for secret in secrets for form in forms(secret)}
        # Longest first: what begins like another secret must not leave its own end behind.
        self._forms = sorted(found, key=lambda form: (-len(form), form))
        self._data = sorted((_encoded(form) for form in found), key=lambda form: (-len(form), form))
        self._numbers = frozenset(form for form in found if form.lstrip("-").replace(".", "", 1).isdecimal())

    def __bool__(self) -> bool:
        return bool(self._forms)

    # Compiled only when something is found: looking for each form is faster than the pattern, and mostly all.
    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._forms)))

    @cached_property
    def _data_pattern(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(re.escape, self._data)))

    def text(self, text: str) -> str:
        """Hide the secrets in a text."""
        for form in self._forms:
            if form in text:
                return self._pattern.sub(SHOWN_SECRET, text)
        return text

    def data(self, data: bytes) -> bytes:
        """Hide the secrets in bytes."""
        for form in self._data:
            if form in data:
                return self._data_pattern.sub(_SHOWN_DATA, data)
        return data

    def decided(self, data: bytes) -> tuple[bytes, bytes]:
        """Hide the secrets in the beginning of a stream; give what is certain, and what depends on what follows."""
        done, at = [], 0
        undecided = self._undecided(data, at)
        while True:
            found = self._data_pattern.search(data, at)
            if found is None or found.start() >= undecided:
                done.append(data[at:undecided])
                return b"".join(done), data[undecided:]
            done += [data[at : found.start()], _SHOWN_DATA]
            at = found.end()
            if at > undecided:  # what looked like the beginning of a secret was a part of this one
                undecided = self._undecided(data, at)

    def value(self, value: Any, kept: frozenset[str] = NOTHING_KEPT) -> Any:
        """Hide the secrets in a JSON value or a struct; the fields `kept` of structs stay as they are."""
        try:
            return self._value(value, kept)
        except RecursionError:  # nested more deeply than we can look
            return SHOWN_SECRET

    def result(self, result: Result) -> Result:
        """Hide the secrets in all that a call gave, except for names, paths and binary data."""
        metadata = self.value(result.metadata)
        return msgspec.structs.replace(
            result,
            content=tuple(self._block(block) for block in result.content),
            structured=self.value(result.structured),
            metadata=metadata if isinstance(metadata, dict) else {},
            error=self.value(result.error, frozenset({"code"})),
        )

    def struct(self, given: S, kept: frozenset[str]) -> S:
        """Hide the secrets in all fields of a struct that are not `kept`."""
        fields = [name for name in given.__struct_fields__ if name not in kept]
        return msgspec.structs.replace(given, **{name: self.value(getattr(given, name), kept) for name in fields})

    def schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Hide the secrets in the texts of a schema; what names an argument stays."""
        try:
            return self._schema(schema)
        except RecursionError:  # nested more deeply than we can look
            return {}

    def _schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {key: value if key == "required" else self._schema_value(value) for key, value in schema.items()}

    def error(self, error: AnyplugError) -> None:
        """Hide the secrets in what an error says."""
        error.message, error.hint = self.text(error.message), self.text(error.hint)
        error.args = (error.message,)
        if isinstance(error, CallError):
            error.partial, error.metadata = self.text(error.partial), self.value(error.metadata)

    def _value(self, value: Any, kept: frozenset[str]) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._value(key, kept): self._value(item, kept) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self._value(item, kept) for item in value])
        if isinstance(value, msgspec.Struct):
            return self.struct(value, kept)
        if self._numbers and isinstance(value, int | float) and repr(value) in self._numbers:
            return SHOWN_SECRET
        return value

    def _schema_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._schema(value)
        if isinstance(value, list):
            return [self._schema_value(item) for item in value]
        return self.value(value)

    def _block(self, block: Block) -> Block:
        match block:
            case Text():
                return Text(self.text(block.text))
            case Resource():
                return msgspec.structs.replace(block, uri=self.text(block.uri), text=self.text(block.text))
            case File():
                return msgspec.structs.replace(block, name=self.text(block.name))
            case _:
                return block

    def _undecided(self, data: bytes, begin: int) -> int:
        """Find where the end of the data may be the beginning of a secret; its length if nowhere."""
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
    """Hides secrets in a stream: what may be the beginning of one waits for what follows, or for the end."""

    def __init__(self, mask: Callable[[], Mask | None]) -> None:
        """Begin; `mask` gives what hides the secrets at the moment."""
        self._mask = mask
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take what came; give what may be seen by now."""
        mask = self._mask()
        if mask is None:
            chunk, self._held = self._held + chunk, b""
            return chunk
        done, self._held = mask.decided(self._held + chunk)
        return done

    def end(self) -> bytes:
        """Give what was waiting: nothing follows."""
        held, self._held = self._held, b""
        mask = self._mask()
        return held if mask is None else mask.data(held)


def _spellings(secret: str) -> set[str]:
    """Give the forms of one text."""
    once = _in_json(secret)
    found = {secret, once, _in_json(once), once.replace("/", r"\/"), once.translate(_FOR_HTML_IN_JSON)}
    found |= {secret.translate(signs) for signs in _IN_HTML}
    digits = _encoded(secret).hex()
    found |= {form for one in (digits, digits.upper()) for form in (one, *_lines(one, _HEX_LINE))}
    if not secret.isascii():
        import json  # 3 ms, and most secrets are ASCII

        found.add(json.dumps(secret)[1:-1])
    for left in _LEFT_BY_SOME:
        quoted = _quoted(secret, left)
        lower = re.sub("%..", lambda escape: escape[0].lower(), quoted)
        found |= {quoted, lower, quoted.replace("%20", "+"), lower.replace("%20", "+")}
    return found | _base64(_encoded(secret))


def _in_json(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode()[1:-1]
    except UnicodeEncodeError:  # a variable of the environment that is no text
        return text


def _quoted(text: str, left: bytes) -> str:
    return "".join(chr(byte) if byte in _UNRESERVED or byte in left else f"%{byte:02X}" for byte in _encoded(text))


def _unquoted(text: str) -> str:
    from urllib.parse import unquote  # 8 ms, for addresses with a password only

    return unquote(text)


def _base64(data: bytes) -> set[str]:
    """Give the base64 of some data, and what is always the same of it inside of longer data."""
    whole = b2a_base64(data, newline=False).decode()
    found = {whole, whole.rstrip("="), *(line for width in _LINES for line in _lines(whole, width))}
    for before, lead in enumerate(_BASE64_LEAD):
        certain = (before + len(data)) * 8 // _BASE64_BITS
        found.add(b2a_base64(bytes(before) + data, newline=False).decode()[lead:certain])
    return found | {form.translate(_URL_SAFE) for form in found}


def _lines(text: str, width: int) -> list[str]:
    """Give the long lines into which a text is put, if it is put into several."""
    found = [text[at : at + width] for at in range(0, len(text), width)]
    return [line for line in found if len(line) >= SHORTEST_LINE] if len(found) > 1 else []


_URL_SAFE = str.maketrans("+/", "-_")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
