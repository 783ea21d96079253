"""Change one table of a TOML text and leave every other byte.

The standard library decides whether a text is TOML; a small scanner finds tables and values. What would need more than
that to change, such as an inline table, is refused. Pure: text in, text out.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from anyplug.manage.connect.edits import Edit, Malformed, Unfit, apart, line_end

BOM = "\ufeff"

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|("(?:[^"\\\n]|\\.)*")|'([^'\n]*)')[ \t]*""")
_PIECE = re.compile(
    r'''#[^\n]*|"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[\[{]|[\]}]|\n|[^#"'\[\]{}\n]+''',
    re.DOTALL,
)


class Line(NamedTuple):
    """A table header, or a key with its value."""

    path: tuple[str, ...]
    is_header: bool
    is_list: bool  # `[[...]]`
    start: int  # where its line begins
    value: int  # where its value begins
    end: int  # where its value ends
    stop: int  # where the next line begins


def read(text: str) -> dict[str, Any]:
    """Parse a text. Raises Malformed."""
    import tomllib  # takes 27 ms to import, and only one client has such a file

    try:
        return tomllib.loads(text.removeprefix(BOM))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Malformed(str(error)) from error


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Set the value at a path: a key of an existing table, or a new table at the end. Raises Unfit."""
    nl = line_end(text)
    *table, key = path
    body = _body(text, tuple(table))
    if body is not None and not isinstance(value, dict):
        header, pairs = body
        for pair in pairs:
            if pair.path == (key,):
                return apart(text, [(pair.value, pair.end, _written(value))])
        last = pairs[-1] if pairs else header
        begin = "" if text[: last.stop].endswith("\n") else nl
        return apart(text, [(last.stop, last.stop, f"{begin}{_name(key)} = {_written(value)}{nl}")])
    if not isinstance(value, dict):
        raise Unfit(f"'{'.'.join(table)}' is not written as a separate table, `[{'.'.join(map(_name, table))}]`")
    begin = "" if not text.removeprefix(BOM) or text.endswith("\n") else nl
    gap = nl if text.removeprefix(BOM) else ""
    lines = [f"[{'.'.join(map(_name, path))}]", *(f"{_name(name)} = {_written(of)}" for name, of in value.items())]
    return f"{text}{begin}{gap}{nl.join(lines)}{nl}"


def drop(text: str, path: Sequence[str], made: int = 0) -> str:
    """Remove a table with everything below it. Raises Unfit."""
    whole, ours = tuple(path), False
    cuts: list[Edit] = []
    for line in _lines(text):
        if line.is_header:
            ours = line.path[: len(whole)] == whole
        if ours and cuts and not line.is_header:
            cuts[-1] = (cuts[-1][0], line.stop, "")
        elif ours:
            # The empty line before it was added with it; adjacent subtables leave no gap.
            blank = re.search(r"(?:(?<=\n)|\A)[ \t]*\r?\n\Z", text[: line.start])
            cuts.append((blank.start() if blank else line.start, line.stop, ""))
    if not cuts:
        raise Unfit(f"'{'.'.join(path)}' is not written as a separate table, `[{'.'.join(map(_name, path))}]`")
    return apart(text, cuts)


def _body(text: str, path: tuple[str, ...]) -> tuple[Line, list[Line]] | None:
    """Find a table's header and content."""
    header: Line | None = None
    pairs: list[Line] = []
    for line in _lines(text):
        if line.is_header:
            if header is not None:
                break
            if line.path == path and not line.is_list:
                header = line
        elif header is not None:
            pairs.append(line)
    return (header, pairs) if header is not None else None


def _lines(text: str) -> Iterator[Line]:
    """Yield headers and keys. The text must be valid TOML."""
    at = 1 if text.startswith(BOM) else 0
    while at < len(text):
        start = at
        at = _past_blanks(text, at)
        if text[at : at + 1] in {"#", "\r", "\n", ""}:
            at = _line_stop(text, at)
            continue
        is_header = text[at] == "["
        is_list = text.startswith("[[", at)
        path, at = _path(text, at + is_header + is_list)
        value = _past_blanks(text, at + 1)
        end, stop = (at, _line_stop(text, at)) if is_header else _value_end(text, value)
        yield Line(path, is_header, is_list, start, value, end, stop)
        at = stop


def _path(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """Parse a dotted key; return it and where it ends."""
    parts: list[str] = []
    while found := _KEY.match(text, at):
        bare, quoted, literal = found.groups()
        parts.append(bare if bare is not None else literal if literal is not None else _unquoted(quoted))
        at = found.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    return tuple(parts), at


def _unquoted(quoted: str) -> str:
    import tomllib  # already loaded, because the text was parsed first

    return str(tomllib.loads(f"key = {quoted}")["key"])


def _value_end(text: str, at: int) -> tuple[int, int]:
    """Find where a value ends, and where the next line begins."""
    depth, end = 0, at
    while found := _PIECE.match(text, at):
        piece, at = found[0], found.end()
        if piece == "\n" and not depth:
            return end, at
        depth += (piece in "[{") - (piece in "]}")
        if not piece.startswith("#") and piece.strip():
            end = found.start() + len(piece.rstrip())
    return end, len(text)


def _past_blanks(text: str, at: int) -> int:
    while text[at : at + 1] in {" ", "\t"}:
        at += 1
    return at


def _line_stop(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _name(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key)


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
