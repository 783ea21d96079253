"""Scalars as text, in every style: plain, quoted, literal, folded. What a plain one means is decided elsewhere."""

import re
from typing import Final

from anyplug.rego.yaml.yaml_cursor import Cursor

_ESCAPES: Final = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_CODES: Final = {"x": 2, "u": 4, "U": 8}
_HEADER: Final = re.compile(r"([|>])(?:([-+])([1-9])?|([1-9])([-+])?)?[ \t]*(?:#[^\n]*)?(?:\n|$)")


class Scalars(Cursor):
    """Reads scalars."""

    def plain(self, indent: int) -> str:
        """Read a plain scalar, which may go on over lines that are indented."""
        lines: list[str] = []
        while True:
            start = self.pos
            while self.peek() not in {"", "\n"}:
                if self.indicator(":"):
                    raise self.fail("mapping values are not allowed in this context")
                if self.peek() == "#" and self.pos > start and self.text[self.pos - 1] in " \t":
                    break
                self.pos += 1
            lines.append(self.text[start : self.pos].strip())
            end = self.pos
            if self.peek() != "\n":
                break
            between = self.line_break()
            if self.document_ends() or self.col() < indent or self.peek() == "#":
                self.pos = end
                break
            lines.append(between)
        return "".join(lines)

    def flow_plain(self) -> str:
        """Read a plain scalar in brackets, which may go on over lines."""
        words: list[str] = []
        while True:
            start = self.pos
            while self.peek() not in {"", "\n", ",", "[", "]", "{", "}"}:
                char = self.peek()
                if char == ":" and self.peek(1) in {"", " ", "\n", "\t", ",", "]", "}", "["}:
                    break
                if char == "#" and self.pos > start and self.text[self.pos - 1] in " \t":
                    break
                self.pos += 1
            words.append(self.text[start : self.pos].strip())
            if self.peek() != "\n":
                return " ".join(words)
            self.blank()
            if self.peek() in {"", ",", "[", "]", "{", "}", ":"}:
                return " ".join(words)

    def quoted(self, *, one_line: bool = False) -> str:
        """Read a scalar in quotes."""
        quote = self.peek()
        self.pos += 1
        out: list[str] = []
        while True:
            char = self.peek()
            if char == "":
                raise self.fail("found unexpected end of stream")
            if char == "\n":
                if one_line:
                    raise self.fail("a key ends on its line")
                self.fold(out)
            elif char == quote == "'" and self.peek(1) == "'":
                out.append("'")
                self.pos += 2
            elif char == quote:
                self.pos += 1
                return "".join(out)
            elif char == "\\" and quote == '"':
                self.escape(out)
            else:
                out.append(char)
                self.pos += 1

    def fold(self, out: list[str]) -> None:
        """Join the lines of a quoted scalar."""
        while out and out[-1] in {" ", "\t"}:
            out.pop()
        out.append(self.line_break())
        if self.document_ends():
            raise self.fail("found unexpected document indicator")

    def escape(self, out: list[str]) -> None:
        """Read an escape."""
        char = self.peek(1)
        self.pos += 2
        if char == "\n":
            self.spaces()
        elif char in _CODES:
            digits = self.text[self.pos : self.pos + _CODES[char]]
            try:
                out.append(chr(int(digits, 16)))
            except (ValueError, OverflowError):
                raise self.fail("did not find expected hexdecimal number") from None
            self.pos += _CODES[char]
        elif char in _ESCAPES:
            out.append(_ESCAPES[char])
        else:
            raise self.fail("found unknown escape character")

    def literal(self, indent: int) -> str:
        """Read a block scalar."""
        match = _HEADER.match(self.text, self.pos)
        if match is None:
            raise self.fail("did not find expected comment or line break")
        style, chomp, width = match[1], match[2] or match[5] or "", match[3] or match[4]
        self.pos = match.end()
        inner = max(indent - 1, 0) + int(width) if width else 0
        lines: list[str] = []
        while self.pos < len(self.text):
            end = self.text.find("\n", self.pos)
            line = self.text[self.pos :] if end < 0 else self.text[self.pos : end]
            lead = len(line) - len(line.lstrip(" "))
            if line.strip(" "):
                if not inner:
                    inner = max(lead, indent)
                if lead < inner or lead < indent:
                    break
                if lead == 0 and line[:3] in {"---", "..."}:
                    break
            lines.append(line[inner:] if inner else "")
            self.pos = len(self.text) if end < 0 else end + 1
        return _chomped(lines, style, chomp)


def _chomped(lines: list[str], style: str, chomp: str) -> str:
    last = len(lines)
    while last and not lines[last - 1].strip(" "):
        last -= 1
    trailing = len(lines) - last
    body = [line if line.strip(" ") else "" for line in lines[:last]]
    text = "\n".join(body) if style == "|" else _folded(body)
    if chomp == "-" or (not text and chomp != "+"):
        return text
    return text + "\n" * (1 + trailing if chomp == "+" and text else trailing if chomp == "+" else 1)


def _folded(lines: list[str]) -> str:
    out: list[str] = []
    empty = 0
    previous = ""
    for line in lines:
        if not line:
            empty += 1
            continue
        if out:
            spaced = line[0] in " \t" or previous[0] in " \t"
            out.append("\n" * (empty + 1) if spaced else "\n" * empty or " ")
        else:
            out.append("\n" * empty)
        out.append(line)
        previous, empty = line, 0
    return "".join(out)
