"""A cursor over the text of one document: where it is, and what lies between contents."""

from typing import Final

MAX_DEPTH: Final = 100  # of collections


class YamlError(ValueError):
    """The text is not YAML, or uses unsupported YAML; `row` is 0 if unknown."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(f"line {row}: {message}" if row else message)
        self.message = message
        self.row = row


class Cursor:
    """A place in a text."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
        self.pos = 0
        self.depth = 0

    def fail(self, message: str) -> YamlError:
        """Make the error that says what is wrong here."""
        return YamlError(message, self.text.count("\n", 0, self.pos) + 1)

    def col(self) -> int:
        """Return how far into its line the cursor is."""
        return self.pos - (self.text.rfind("\n", 0, self.pos) + 1)

    def peek(self, ahead: int = 0) -> str:
        """Look at one character; nothing at the end."""
        return self.text[self.pos + ahead : self.pos + ahead + 1]

    def spaces(self) -> None:
        """Skip blanks on this line."""
        while self.peek() in {" ", "\t"}:
            self.pos += 1

    def line_ends(self) -> bool:
        """Return whether only a comment stands on the rest of the line."""
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
        """Return whether the text, or the document in it, ends here."""
        return self.pos >= len(self.text) or (
            self.col() == 0 and self.text[self.pos : self.pos + 3] in {"---", "..."} and self.peek(3) in {"", " ", "\n"}
        )

    def indicator(self, char: str) -> bool:
        """Return whether an indicator stands here, and does not begin a word."""
        return self.peek() == char and self.peek(1) in {"", " ", "\n", "\t"}

    def line_break(self) -> str:
        """Skip line breaks and the blanks around them; return what they mean in a scalar that goes on behind them."""
        breaks = 0
        while self.peek() in {" ", "\t", "\n"}:
            breaks += self.peek() == "\n"
            self.pos += 1
        return "\n" * (breaks - 1) if breaks > 1 else " "

    def deeper(self) -> None:
        """Count collections that are open."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("nested too deeply")
