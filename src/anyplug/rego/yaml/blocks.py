"""Documents, and collections whose shape is their indentation."""

from typing import Any

from anyplug.rego.yaml.flow import INDICATORS, Flow
from anyplug.rego.yaml.yaml_cursor import YamlError


class Blocks(Flow):
    """Reads one document."""

    def document(self) -> Any:
        """Read everything up to the end."""
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
        self.deeper()
        try:
            return self.block_node(indent)
        finally:
            self.depth -= 1

    def block_node(self, indent: int) -> Any:
        """Read a collection, or what stands in a line."""
        column = self.col()
        if self.indicator("-"):
            return self.sequence(column)
        if self.indicator("?"):
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
        """Read a list whose dashes are in a column."""
        items: list[Any] = []
        while not self.document_ends() and self.col() == column and self.indicator("-"):
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
        """Read a mapping whose keys are in a column."""
        made: dict[str, Any] = {}
        seen: set[str] = set()
        while not self.document_ends() and self.col() == column:
            if self.indicator("?"):
                raise self.fail("complex keys are not supported")
            if not self.key_ahead():
                if self.indicator("-"):
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
            if not self.document_ends() and (self.col() > column or (self.col() == column and self.indicator("-"))):
                if self.col() == column:
                    return self.kept(anchor, tag, self.sequence(column))
                return self.kept(anchor, tag, self.block(column + 1))
            return self.kept(anchor, tag, self.scalar("", tag))
        if self.indicator("-"):
            raise self.fail("block sequence entries are not allowed in this context")
        if self.key_ahead():
            raise self.fail("mapping values are not allowed in this context")
        return self.kept(anchor, tag, self.inline(column + 1, tag))

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
        elif char in {"|", ">"}:
            return self.literal(indent)
        elif char in INDICATORS:
            raise self.fail(f"found character '{char}' that cannot start any token")
        else:
            return self.scalar(self.plain(indent), tag)
        self.spaces()
        if not self.line_ends():
            raise self.fail("did not find expected key")
        return value

    # Keys.

    def key_ahead(self) -> bool:
        """Return whether a key stands here, and its colon."""
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
            return self.indicator(":")
        except YamlError:
            return False
        finally:
            self.pos = start

    def plain_key(self) -> int | None:
        """Find the colon that ends a plain key on this line."""
        char = self.peek()
        if char in INDICATORS or char in {"", "\n"} or (char in "-?:" and self.peek(1) in {"", " ", "\n"}):
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
        """Read a key, up to its colon."""
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
