"""A cursor over tokens: what every grammar is read with."""

from typing import Final, NoReturn

from anyplug.rego.parse.lexer import Source, Token
from anyplug.rego.values.rego_errors import Location

MAX_NESTING: Final = 60  # of brackets: each takes some frames of Python's stack, here and in what follows


class Cursor:
    """A place in a list of tokens."""

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.index = 0
        self.token = tokens[0]
        self.nesting = 0

    def advance(self) -> Token:
        """Return the token at the cursor, and go on."""
        token = self.token
        self.index += 1
        self.token = self.tokens[min(self.index, len(self.tokens) - 1)]
        return token

    def go_to(self, index: int) -> None:
        """Put the cursor back."""
        self.index = index
        self.token = self.tokens[index]

    def peek(self, ahead: int = 1) -> Token:
        """Look at a token further on."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def here(self) -> Location:
        """Return where the cursor is."""
        return self.source.at(self.token.start)

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Refuse what is at the cursor."""
        raise self.source.fault((token or self.token).start, message)

    def is_(self, text: str) -> bool:
        """Return whether an operator or keyword is at the cursor."""
        token = self.token
        return token.text == text and token.kind in {"operator", "keyword"}

    def takes(self, text: str) -> bool:
        """Go on if an operator or keyword is at the cursor."""
        if self.is_(text):
            self.advance()
            return True
        return False

    def expect(self, text: str, where: str) -> Token:
        """Go on, or refuse."""
        if not self.is_(text):
            found = self.token.text or "end of file"
            self.fail(f"unexpected {found!r}: expected {text!r} {where}")
        return self.advance()

    def dotted(self) -> bool:
        """Return whether a keyword is used as a name: a dot follows at once."""
        following = self.peek()
        return following.text == "." and following.kind == "operator" and not following.spaced

    def deeper(self) -> None:
        """Count brackets that are open."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail(f"nested more than {MAX_NESTING} levels deep")

    def matching(self, index: int) -> int:
        """Find the bracket that closes the one at an index."""
        depth = 0
        for position in range(index, len(self.tokens)):
            token = self.tokens[position]
            if token.kind == "operator":
                if token.text in "([{":
                    depth += 1
                elif token.text in ")]}":
                    depth -= 1
                    if not depth:
                        return position
        return len(self.tokens) - 1
