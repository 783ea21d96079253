"""YAML into plain values: for METADATA comments and `yaml.unmarshal`.

Reads one document: block and flow collections, every style of scalar, anchors, aliases, merge keys, the core tags.
Complex keys (`? `), directives and other tags are refused. Knows nothing of Rego.
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

MAX_DEPTH: Final = 100  # of collections
MAX_ALIASED: Final = 100_000  # values that aliases may add to a document: a few lines can otherwise mean gigabytes

_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")
_BASED: Final = re.compile(r"([-+]?)0(x[0-9a-fA-F_]+|o?[0-7_]+|b[01_]+)$")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?$")
_SPECIAL: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_YES: Final = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
_NO: Final = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})
_ESCAPES: Final = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_CODES: Final = {"x": 2, "u": 4, "U": 8}
_INDICATORS: Final = frozenset(",[]{}#&*!|>'\"%@`")
_HEADER: Final = re.compile(r"([|>])(?:([-+])([1-9])?|([1-9])([-+])?)?[ \t]*(?:#[^\n]*)?(?:\n|$)")
_NAME: Final = re.compile(r"[^\s,\[\]{}]+")


class YamlError(ValueError):
    """What was read is no YAML, or YAML that is not supported; `row` is 0 where that is not known."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(f"line {row}: {message}" if row else message)
        self.message = message
        self.row = row


def load(text: str, *, old_booleans: bool = False, unique: bool = False) -> Any:
    """Read one document; `old_booleans` takes yes, no, on and off for booleans, `unique` no key twice.

    Raises YamlError.
    """
    try:
        return _Reader(text, old_booleans, unique).document()
    except RecursionError:
        msg = "nested too deeply"
        raise YamlError(msg) from None


class _Reader:
    def __init__(self, text: str, old_booleans: bool, unique: bool) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
        self.old_booleans = old_booleans
        self.unique = unique
        self.pos = 0
        self.depth = 0
        self.anchors: dict[str, Any] = {}
        self.aliased = 0

    def fail(self, message: str) -> YamlError:
        return YamlError(message, self.text.count("\n", 0, self.pos) + 1)

    def once(self, key: str, seen: set[str]) -> None:
        if self.unique and key in seen:
            raise self.fail(f"the key `{key}` stands here a second time")
        seen.add(key)

    # Places.

    def col(self) -> int:
        return self.pos - (self.text.rfind("\n", 0, self.pos) + 1)

    def peek(self, ahead: int = 0) -> str:
        return self.text[self.pos + ahead : self.pos + ahead + 1]

    def spaces(self) -> None:
        while self.peek() in {" ", "\t"}:
            self.pos += 1

    def line_ends(self) -> bool:
        """Whether only a comment stands on the rest of the line."""
        char = self.peek()
        return char in {"", "\n"} or (char == "#" and (self.pos == 0 or self.text[self.pos - 1] in " \t\n"))

    def blank(self) -> None:
        """Skip to the next content."""
        while self.pos < len(self.text):
            start = self.pos
            self.spaces()
            if not self.line_ends():
                if "\t" in self.text[start : self.pos] and self.col() == self.pos - start:
                    raise self.fail("found character '\\t' that cannot start any token")
                return
            end = self.text.find("\n", self.pos)
            self.pos = len(self.text) if end < 0 else end + 1

    def document_ends(self) -> bool:
        return self.pos >= len(self.text) or (
            self.col() == 0 and self.text[self.pos : self.pos + 3] in {"---", "..."} and self.peek(3) in {"", " ", "\n"}
        )

    def dash(self, char: str = "-") -> bool:
        return self.peek() == char and self.peek(1) in {"", " ", "\n", "\t"}

    # Documents and blocks.

    def document(self) -> Any:
        self.blank()
        if self.peek() == "%":
            raise self.fail("directives are not supported")
        if self.document_ends() and self.peek() == "-":
            self.pos += 3
            self.blank()
        value = None if self.document_ends() else self.block(0)
        self.blank()
        if self.text[self.pos : self.pos + 3] == "..." and self.col() == 0:
            self.pos += 3
            self.blank()
        if self.pos < len(self.text):
            if self.document_ends():
                raise self.fail("expected a single document in the stream")
            raise self.fail("did not find expected key")
        return value

    def block(self, indent: int) -> Any:
        """Read the node at the cursor; its lines are indented by at least so much."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("nested too deeply")
        try:
            return self.block_node(indent)
        finally:
            self.depth -= 1

    def block_node(self, indent: int) -> Any:
        column = self.col()
        if self.dash():
            return self.sequence(column)
        if self.dash("?"):
            raise self.fail("complex keys are not supported")
        if self.key_ahead():
            return self.mapping(column)
        anchor, tag = self.properties()
        if anchor or tag:
            if not self.line_ends():
                return self.kept(anchor, tag, self.inline(indent, tag))
            self.blank()
            if self.document_ends() or self.col() < indent:
                return self.kept(anchor, tag, self.scalar("", tag))
            return self.kept(anchor, tag, self.block(indent))
        return self.inline(indent, "")

    def sequence(self, column: int) -> list[Any]:
        items: list[Any] = []
        while not self.document_ends() and self.col() == column and self.dash():
            self.pos += 1
            self.spaces()
            if self.line_ends():
                self.blank()
                items.append(None if self.document_ends() or self.col() <= column else self.block(column + 1))
            else:
                items.append(self.block(column + 1))
            self.blank()
        if not self.document_ends() and self.col() > column:
            raise self.fail("did not find expected '-' indicator")
        return items

    def mapping(self, column: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        seen: set[str] = set()
        while not self.document_ends() and self.col() == column:
            if self.dash("?"):
                raise self.fail("complex keys are not supported")
            if not self.key_ahead():
                if self.dash():
                    break
                raise self.fail("could not find expected ':'")
            key = self.key()
            self.once(key, seen)
            self.pos += 1  # the colon
            self.spaces()
            value = self.mapped(column)
            if key == "<<":
                made = {**self.merged(value), **made}
            else:
                made[key] = value
            self.blank()
        if not self.document_ends() and self.col() > column:
            raise self.fail("did not find expected key")
        return made

    def mapped(self, column: int) -> Any:
        """Read what follows a key's colon."""
        anchor, tag = self.properties()
        if self.line_ends():
            self.blank()
            if not self.document_ends() and (self.col() > column or (self.col() == column and self.dash())):
                if self.col() == column:
                    return self.kept(anchor, tag, self.sequence(column))
                return self.kept(anchor, tag, self.block(column + 1))
            return self.kept(anchor, tag, self.scalar("", tag))
        if self.dash():
            raise self.fail("block sequence entries are not allowed in this context")
        if self.key_ahead():
            raise self.fail("mapping values are not allowed in this context")
        return self.kept(anchor, tag, self.inline(column + 1, tag))

    def merged(self, value: Any) -> dict[str, Any]:
        sources = value if isinstance(value, list) else [value]
        made: dict[str, Any] = {}
        for source in reversed(sources):
            if not isinstance(source, dict):
                raise self.fail("map merge requires map or sequence of maps as the value")
            made.update(source)
        return made

    # Keys.

    def key_ahead(self) -> bool:
        start = self.pos
        try:
            self.properties()
            char = self.peek()
            if char in {"'", '"'}:
                self.quoted(one_line=True)
            elif char == "*":
                self.pos += 1
                self.name()
            elif char in {"[", "{"}:
                return False
            else:
                found = self.plain_key()
                if found is None:
                    return False
                self.pos = found
            self.spaces()
            return self.peek() == ":" and self.peek(1) in {"", " ", "\n", "\t"}
        except YamlError:
            return False
        finally:
            self.pos = start

    def plain_key(self) -> int | None:
        """Find the colon that ends a plain key on this line."""
        char = self.peek()
        if char in _INDICATORS or char in {"", "\n"} or (char in "-?:" and self.peek(1) in {"", " ", "\n"}):
            return None
        position = self.pos
        while position < len(self.text) and self.text[position] != "\n":
            char = self.text[position]
            if char == ":" and self.text[position + 1 : position + 2] in {"", " ", "\n", "\t"}:
                return position
            if char == "#" and self.text[position - 1] in " \t":
                return None
            position += 1
        return None

    def key(self) -> str:
        _, tag = self.properties()
        if self.peek() in {"'", '"'}:
            value: Any = self.quoted(one_line=True)
            self.spaces()
            return str(value)
        if self.peek() == "*":
            value = self.alias()
            self.spaces()
        else:
            end = self.plain_key()
            assert end is not None
            text = self.text[self.pos : end].rstrip()
            self.pos = end
            if text == "<<":
                return text
            value = self.scalar(text, tag)
        return self.key_text(value)

    def key_text(self, value: Any) -> str:
        """Name a key as JSON does."""
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | Decimal):
            return str(value)
        if value is None:
            return "null"
        raise self.fail("a collection cannot be a key")

    # Scalars and flow.

    def properties(self) -> tuple[str, str]:
        anchor = tag = ""
        while self.peek() in {"&", "!"} and self.peek():
            mark = self.peek()
            self.pos += 1
            if mark == "&":
                anchor = self.name()
            else:
                match = _NAME.match(self.text, self.pos)
                tag = "!" + (match[0] if match else "")
                self.pos += len(tag) - 1
                if tag not in {"!", "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq"}:
                    raise self.fail(f"tag {tag} is not supported")
            self.spaces()
        return anchor, tag

    def name(self) -> str:
        match = _NAME.match(self.text, self.pos)
        if match is None:
            raise self.fail("did not find expected alphabetic or numeric character")
        self.pos = match.end()
        return match[0]

    def kept(self, anchor: str, tag: str, value: Any) -> Any:
        if anchor:
            self.anchors[anchor] = value
        if (tag == "!!map" and not isinstance(value, dict)) or (tag == "!!seq" and not isinstance(value, list)):
            raise self.fail(f"cannot take this for {tag}")
        return value

    def alias(self) -> Any:
        self.pos += 1
        name = self.name()
        if name not in self.anchors:
            raise self.fail(f"unknown anchor '{name}' referenced")
        value = self.anchors[name]
        self.aliased += _size(value)
        if self.aliased > MAX_ALIASED:
            raise self.fail("document contains excessive aliasing")
        return value

    def inline(self, indent: int, tag: str) -> Any:
        """Read a node that begins on this line and is no block collection."""
        char = self.peek()
        if char == "*":
            value = self.alias()
        elif char in {"[", "{"}:
            value = self.flow()
        elif char in {"'", '"'}:
            value = self.quoted()
            value = self.scalar(value, tag) if tag not in {"", "!", "!!str"} else value
        elif char in {"|", ">"} and char:
            return self.literal(indent)
        elif char in _INDICATORS:
            raise self.fail(f"found character '{char}' that cannot start any token")
        else:
            return self.scalar(self.plain(indent), tag)
        self.spaces()
        if not self.line_ends():
            raise self.fail("did not find expected key")
        return value

    def plain(self, indent: int) -> str:
        """Read a plain scalar, which may go on over lines that are indented."""
        lines: list[str] = []
        breaks = 0
        while True:
            start = self.pos
            while self.peek() not in {"", "\n"}:
                char = self.peek()
                if char == ":" and self.peek(1) in {"", " ", "\n", "\t"}:
                    raise self.fail("mapping values are not allowed in this context")
                if char == "#" and self.pos > start and self.text[self.pos - 1] in " \t":
                    break
                self.pos += 1
            if lines:
                lines.append("\n" * (breaks - 1) if breaks > 1 else " ")
            lines.append(self.text[start : self.pos].strip())
            end = self.pos
            if self.peek() != "\n":
                break
            breaks = 0
            while self.peek() in {" ", "\t", "\n"} and self.peek():
                breaks += self.peek() == "\n"
                self.pos += 1
            if self.document_ends() or self.col() < indent or self.peek() == "#":
                self.pos = end
                break
        return "".join(lines)

    def quoted(self, *, one_line: bool = False) -> str:
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
        breaks = 0
        while self.peek() in {" ", "\t", "\n"} and self.peek():
            breaks += self.peek() == "\n"
            self.pos += 1
        if self.document_ends():
            raise self.fail("found unexpected document indicator")
        out.append("\n" * (breaks - 1) if breaks > 1 else " ")

    def escape(self, out: list[str]) -> None:
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
        elif char in _ESCAPES and char:
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
                if lead < inner or (lead < indent):
                    break
                if lead == 0 and line[:3] in {"---", "..."}:
                    break
            lines.append(line[inner:] if inner else "")
            self.pos = len(self.text) if end < 0 else end + 1
        return _chomped(lines, style, chomp)

    def flow(self) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("nested too deeply")
        try:
            return self.flow_map() if self.peek() == "{" else self.flow_list()
        finally:
            self.depth -= 1

    def flow_list(self) -> list[Any]:
        self.pos += 1
        items: list[Any] = []
        self.blank()
        while self.peek() != "]":
            value = self.flow_node()
            self.blank()
            if self.peek() == ":":  # a pair in a list is a mapping of one
                self.pos += 1
                self.blank()
                value = {self.key_text(value): None if self.peek() in {",", "]"} else self.flow_node()}
                self.blank()
            items.append(value)
            self.separator("]")
        self.pos += 1
        return items

    def flow_map(self) -> dict[str, Any]:
        self.pos += 1
        made: dict[str, Any] = {}
        seen: set[str] = set()
        self.blank()
        while self.peek() != "}":
            key = self.key_text(self.flow_node())
            self.once(key, seen)
            self.blank()
            value = None
            if self.peek() == ":":
                self.pos += 1
                self.blank()
                if self.peek() not in {",", "}"}:
                    value = self.flow_node()
                    self.blank()
            if key == "<<":
                made = {**self.merged(value), **made}
            else:
                made[key] = value
            self.separator("}")
        self.pos += 1
        return made

    def separator(self, close: str) -> None:
        if self.peek() == ",":
            self.pos += 1
            self.blank()
        elif self.peek() != close:
            raise self.fail(f"did not find expected ',' or '{close}'")

    def flow_node(self) -> Any:
        anchor, tag = self.properties()
        char = self.peek()
        value: Any
        if char in {"[", "{"}:
            value = self.flow()
        elif char in {"'", '"'}:
            value = self.quoted()
        elif char == "*":
            value = self.alias()
        elif char == "" or char in _INDICATORS:
            raise self.fail("did not find expected node content")
        else:
            value = self.scalar(self.flow_plain(), tag)
        return self.kept(anchor, tag, value)

    def flow_plain(self) -> str:
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

    def scalar(self, text: str, tag: str) -> Any:
        """Give what a plain scalar means."""
        if tag in {"!!str", "!"}:
            return text
        if text in _NULLS:
            return None
        if text in _TRUE or (self.old_booleans and text in _YES):
            return True
        if text in _FALSE or (self.old_booleans and text in _NO):
            return False
        if text[0] in "0123456789-+.":
            return _number(text)
        return text


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


def _number(text: str) -> Any:
    plain = text.replace("_", "")
    if _INT.match(text):
        return int(plain) if len(plain) < 4000 else text  # noqa: PLR2004 - what Python reads without a bound of its own
    if match := _BASED.match(text):
        base = {"x": 16, "b": 2}.get(match[2][0], 8)
        digits = match[2].lstrip("xob").replace("_", "")
        return int(match[1] + digits, base) if digits else text
    if _FLOAT.match(text) and any(char.isdigit() for char in text):
        try:
            return Decimal(plain)
        except InvalidOperation:
            msg = f"number out of range: {text}"
            raise YamlError(msg) from None
    if _SPECIAL.match(text):
        msg = f"{text} is no JSON number"
        raise YamlError(msg)
    return text


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1
