"""Nodes that may stand in a line: anchors, tags, aliases, merge keys, and collections in brackets."""

import re
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.yaml.meanings import meaning
from anyplug.rego.yaml.scalars import Scalars

MAX_ALIASED: Final = 100_000  # values that aliases may add to a document: a few lines can otherwise mean gigabytes
INDICATORS: Final = frozenset(",[]{}#&*!|>'\"%@`")
TAGS: Final = frozenset({"!", "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq"})
_NAME: Final = re.compile(r"[^\s,\[\]{}]+")


class Flow(Scalars):
    """Reads what may stand in brackets."""

    def __init__(self, text: str, *, old_booleans: bool, unique: bool) -> None:
        super().__init__(text)
        self.old_booleans = old_booleans
        self.unique = unique
        self.anchors: dict[str, Any] = {}
        self.aliased = 0

    # What every node may have.

    def properties(self) -> tuple[str, str]:
        """Read an anchor and a tag, if they stand here."""
        anchor = tag = ""
        while self.peek() in {"&", "!"}:
            mark = self.peek()
            self.pos += 1
            if mark == "&":
                anchor = self.name()
            else:
                match = _NAME.match(self.text, self.pos)
                tag = "!" + (match[0] if match else "")
                self.pos += len(tag) - 1
                if tag not in TAGS:
                    raise self.fail(f"tag {tag} is not supported")
            self.spaces()
        return anchor, tag

    def name(self) -> str:
        """Read an anchor's name."""
        match = _NAME.match(self.text, self.pos)
        if match is None:
            raise self.fail("did not find expected alphabetic or numeric character")
        self.pos = match.end()
        return match[0]

    def kept(self, anchor: str, tag: str, value: Any) -> Any:
        """Keep a value under its anchor, and check that it is what its tag says."""
        if anchor:
            self.anchors[anchor] = value
        if (tag == "!!map" and not isinstance(value, dict)) or (tag == "!!seq" and not isinstance(value, list)):
            raise self.fail(f"cannot take this for {tag}")
        return value

    def alias(self) -> Any:
        """Read a reference to an anchor."""
        self.pos += 1
        name = self.name()
        if name not in self.anchors:
            raise self.fail(f"unknown anchor '{name}' referenced")
        value = self.anchors[name]
        self.aliased += _size(value)
        if self.aliased > MAX_ALIASED:
            raise self.fail("document contains excessive aliasing")
        return value

    def scalar(self, text: str, tag: str) -> Any:
        """Return what a plain scalar means."""
        return meaning(text, tag, old_booleans=self.old_booleans)

    # Mappings.

    def once(self, key: str, seen: set[str]) -> None:
        """Refuse a key that was seen already, if none may stand twice."""
        if self.unique and key in seen:
            raise self.fail(f"the key `{key}` occurs twice")
        seen.add(key)

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

    def merged(self, value: Any) -> dict[str, Any]:
        """Return what a merge key stands for."""
        sources = value if isinstance(value, list) else [value]
        made: dict[str, Any] = {}
        for source in reversed(sources):
            if not isinstance(source, dict):
                raise self.fail("map merge requires map or sequence of maps as the value")
            made.update(source)
        return made

    # Collections in brackets.

    def flow(self) -> Any:
        """Read a collection in brackets."""
        self.deeper()
        try:
            return self.flow_map() if self.peek() == "{" else self.flow_list()
        finally:
            self.depth -= 1

    def flow_list(self) -> list[Any]:
        """Read a list in brackets."""
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
        """Read a mapping in braces."""
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
        """Go on to the next member, or to the bracket that closes."""
        if self.peek() == ",":
            self.pos += 1
            self.blank()
        elif self.peek() != close:
            raise self.fail(f"did not find expected ',' or '{close}'")

    def flow_node(self) -> Any:
        """Read one member."""
        anchor, tag = self.properties()
        char = self.peek()
        value: Any
        if char in {"[", "{"}:
            value = self.flow()
        elif char in {"'", '"'}:
            value = self.quoted()
        elif char == "*":
            value = self.alias()
        elif char == "" or char in INDICATORS:
            raise self.fail("did not find expected node content")
        else:
            value = self.scalar(self.flow_plain(), tag)
        return self.kept(anchor, tag, value)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1
