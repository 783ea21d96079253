"""Text into tokens. A token knows whether space or a line break stands before it, since Rego's grammar asks."""

import bisect
import re
from typing import Final, NamedTuple

from anyplug.rego.values.rego_errors import PARSE_ERROR, Fault, Location, RegoErrors

KEYWORDS: Final = frozenset(
    ("package", "import", "as", "default", "else", "some", "every", "in", "if", "contains", "not", "with", "true",
     "false", "null")
)  # fmt: skip
MAX_SOURCE: Final = 4 * 1024 * 1024  # characters of one file: policies are written by people

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
  | (?P<comment>\#[^\n]*)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<raw>`[^`]*`)
  | (?P<template>\$["`])
  | (?P<operator>:=|==|!=|<=|>=|[-+*/%&|=<>,;:.()\[\]{}])
    """,
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4})|(.))', re.DOTALL)
_SIMPLE: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Token(NamedTuple):
    """kind is name, keyword, number, string, raw, template, operator or end."""

    kind: str
    text: str
    start: int
    end: int
    spaced: bool  # white space or a comment before it
    broken: bool  # a line break before it


class Source:
    """One file's text, and where its lines begin."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.templates: dict[int, int] = {}  # where each template string ends: nested ones are looked at only once

    def at(self, offset: int) -> Location:
        """Return where an offset is."""
        low = bisect.bisect_right(self.starts, offset) - 1
        return Location(self.file, low + 1, offset - self.starts[low] + 1)

    def fault(self, offset: int, message: str, code: str = PARSE_ERROR) -> RegoErrors:
        """Make the error that says what is wrong at an offset."""
        return RegoErrors([Fault(self.at(offset), code, message)])


class Comment(NamedTuple):
    """A comment that has its line to itself or not."""

    start: int
    text: str


def scan(source: Source, start: int = 0, until: str = "") -> tuple[list[Token], list[Comment], int]:  # noqa: C901 - one branch for each kind
    """Read tokens from an offset to the end, or to the brace that closes a template's expression.

    Return the tokens with an end token last, the comments, and the offset behind. Raises RegoErrors.
    """
    text, position = source.text, start
    if len(text) > MAX_SOURCE:
        raise source.fault(0, f"a policy of more than {MAX_SOURCE} characters")
    tokens: list[Token] = []
    comments: list[Comment] = []
    spaced = broken = False
    depth = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise source.fault(position, _complaint(text, position))
        kind, found, begin = match.lastgroup, match[0], position
        position = match.end()
        if kind == "space" or kind == "comment":  # noqa: PLR1714 - a set would be slower, and this runs for each token
            spaced = True
            if kind == "comment":
                comments.append(Comment(begin, found))
            elif "\n" in found:
                broken = True
            continue
        if kind == "name" and found in KEYWORDS:
            kind = "keyword"
        elif kind == "number" and position < len(text) and (text[position].isalnum() or text[position] == "_"):
            raise source.fault(begin, "illegal number format")
        elif kind == "template":
            position = _template_end(source, begin)
        elif until and found == "{":
            depth += 1
        elif until and found == until:
            if not depth:
                tokens.append(Token("end", "", begin, begin, spaced, broken))
                return tokens, comments, position
            depth -= 1
        tokens.append(Token(kind or "", found, begin, position, spaced, broken))
        spaced = broken = False
    if until:
        raise source.fault(start, "template expression without an end")
    tokens.append(Token("end", "", position, position, spaced=True, broken=True))
    return tokens, comments, position


def _complaint(text: str, position: int) -> str:
    if text[position] in '"`':
        return "non-terminated string"
    return f"illegal token {text[position]!r}"


def _template_end(source: Source, start: int) -> int:
    """Find where a template string ends: its expressions may hold strings and templates again."""
    if start not in source.templates:
        source.templates[start] = _find_template_end(source, start)
    return source.templates[start]


def _find_template_end(source: Source, start: int) -> int:
    text, quote = source.text, source.text[start + 1]
    position = start + 2
    while position < len(text):
        char = text[position]
        if char == quote:
            return position + 1
        if char == "\\":
            position += 2 if quote == '"' or text[position + 1 : position + 2] == "{" else 1
        elif char == "{":
            position = scan(source, position + 1, until="}")[2]
        elif char == "\n" and quote == '"':
            break
        else:
            position += 1
    raise source.fault(start, "non-terminated string")


def template_parts(source: Source, token: Token) -> list[str | tuple[int, int]]:
    """Cut a template string into texts and the offsets of its expressions."""
    text, quote = source.text, source.text[token.start + 1]
    parts: list[str | tuple[int, int]] = []
    begin = position = token.start + 2
    last = token.end - 1

    def keep(until: int) -> None:
        if until > begin:
            raw = text[begin:until]
            parts.append(raw.replace("\\{", "{") if quote == "`" else unescape(source, begin, raw.replace("\\{", "{")))

    while position < last:
        if text[position] == "\\":
            position += 2 if quote == '"' or text[position + 1] == "{" else 1
        elif text[position] == "{":
            keep(position)
            end = scan(source, position + 1, until="}")[2]
            parts.append((position + 1, end - 1))
            begin = position = end
        else:
            position += 1
    keep(last)
    return parts


def unescape(source: Source, start: int, inner: str) -> str:
    """Return what a quoted string means. Raises RegoErrors for an escape that JSON does not have."""
    if "\\" not in inner:
        return inner

    def meant(match: re.Match[str]) -> str:
        simple, code, wrong = match.groups()
        if wrong is not None:
            raise source.fault(start + match.start(), f"illegal escape sequence \\{wrong}")
        return _SIMPLE[simple] if simple else chr(int(code, 16))

    plain = _ESCAPE.sub(meant, inner)
    if any("\ud800" <= char <= "\udfff" for char in plain):  # pairs of escapes; a lone one becomes U+FFFD, as in Go
        plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return plain
