"""The grammar of terms: tokens into the tree of `syntax`. Of expressions it only knows that some terms hold them."""

from abc import ABC, abstractmethod
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.parse.cursor import Cursor
from anyplug.rego.parse.lexer import Source, Token, unescape
from anyplug.rego.parse.tree import (  # fmt: skip
    Array,
    Call,
    Comprehension,
    Expr,
    ObjectLiteral,
    Ref,
    Scalar,
    SetLiteral,
    Term,
    Var,
)
from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import Location, NotSupported, RegoErrors
from anyplug.rego.values.values import FALSE, NULL, TRUE

ATOMS: Final = {"true": TRUE, "false": FALSE, "null": NULL}

# How strongly operators bind, and the builtins that they are.
MEMBERSHIP, RELATION, UNION = 1, 2, 3
OPERATORS: Final = {
    "==": (RELATION, "equal"), "!=": (RELATION, "neq"), "<": (RELATION, "lt"), "<=": (RELATION, "lte"),
    ">": (RELATION, "gt"), ">=": (RELATION, "gte"), "|": (UNION, "or"), "&": (4, "and"), "+": (5, "plus"),
    "-": (5, "minus"), "*": (6, "mul"), "/": (6, "div"), "%": (6, "rem"),
}  # fmt: skip
MEMBER_2: Final = ("internal", "member_2")
MEMBER_3: Final = ("internal", "member_3")


class Terms(Cursor, ABC):
    """Reads terms."""

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        super().__init__(source, tokens)
        self.closed = False  # whether the member that was read last was a whole comprehension
        self.unions: set[int] = set()  # bars that are known not to begin a comprehension's body

    @abstractmethod
    def expressions(self, close: str) -> list[Expr]:
        """Read expressions up to a bracket, which is left there."""

    @abstractmethod
    def template(self) -> Term:
        """Read a string with expressions."""

    def term(self, least: int = MEMBERSHIP, begun: Term | None = None) -> Term:
        """Read a term with operators that bind at least so strongly; `begun` is what was read of it already."""
        at = begun.at if begun else self.here()
        left = begun or self.factor()
        while True:
            token = self.token
            if token.kind == "keyword" and token.text == "in" and least <= MEMBERSHIP and not self.dotted():
                self.advance()
                left = Call(at, MEMBER_2, [left, self.term(RELATION)])
                continue
            found = OPERATORS.get(token.text) if token.kind == "operator" else None
            if found is None or found[0] < least:
                return left
            self.advance()
            left = Call(at, (found[1],), [left, self.term(found[0] + 1)])

    def factor(self) -> Term:
        """Read a term without operators, and the path behind it."""
        self.deeper()
        try:
            return self.follow(self.primary())
        finally:
            self.nesting -= 1

    def primary(self) -> Term:  # noqa: C901 - one branch for each kind
        """Read what a term begins with."""
        token, at = self.token, self.here()
        kind, text = token.kind, token.text
        if kind == "name":
            return self.variable()
        if kind in {"string", "raw", "number"}:
            self.advance()
            return Scalar(at, self.literal(token))
        if kind == "template":
            return self.template()
        if kind == "keyword":
            if text in ATOMS and not self.dotted():
                self.advance()
                return Scalar(at, ATOMS[text])
            if self.dotted() or (text == "contains" and self.peek().text == "(" and not self.peek().spaced):
                return self.variable()
            self.fail(f"unexpected {text} keyword")
        if text == "[":
            return self.array()
        if text == "{":
            return self.braces()
        if text == "(":
            self.advance()
            inner = self.grouped()
            self.expect(")", "to close the parenthesis")
            return inner
        if text == "-" and self.peek().kind == "number" and not self.peek().spaced:
            self.advance()
            value = self.literal(self.advance())
            return Scalar(at, value.copy_negate() if isinstance(value, Decimal) else -value)
        return self.fail(f"unexpected {text!r}: expected a term" if text else "unexpected end of input")

    def grouped(self) -> Term:
        """Read what stands in parentheses."""
        at, first = self.here(), self.term()
        if self.is_(","):
            self.advance()
            second = self.term(RELATION)
            self.expect("in", "after two terms in parentheses")
            return Call(at, MEMBER_3, [first, second, self.term(RELATION)])
        return first

    def literal(self, token: Token) -> Any:
        """Return the value of a string or number."""
        text = token.text
        if token.kind == "raw":
            return text[1:-1].replace("\r", "")
        if token.kind == "string":
            return unescape(self.source, token.start + 1, text[1:-1])
        try:
            return numbers.parse(text)
        except NotSupported as error:
            return self.fail(str(error), token)

    def variable(self) -> Var:
        """Read a variable; each `_` is one of its own."""
        at, token = self.here(), self.advance()
        if token.text == "_":
            return Var(at, f"_${token.start}")
        return Var(at, token.text)

    def follow(self, term: Term) -> Term:
        """Read a path and calls, which follow without space."""
        path: list[Term] = []
        at = term.at
        while not self.token.spaced and self.token.kind == "operator":
            if self.token.text == ".":
                self.advance()
                token, here = self.token, self.here()
                if token.kind not in {"name", "keyword"} or token.spaced:
                    self.fail("expected a name after the dot")
                self.advance()
                path.append(Scalar(here, token.text))
            elif self.token.text == "[":
                self.advance()
                path.append(self.term())
                self.expect("]", "to close the reference")
            elif self.token.text == "(":
                name = self.callable(term, path)
                if name is None:
                    self.fail("only names can be called")
                self.advance()
                term, path = Call(at, name, self.terms(")")), []
            else:
                break
        return Ref(at, term, path) if path else term

    def callable(self, term: Term, path: list[Term]) -> tuple[str, ...] | None:
        """Return the name that a reference is, if it is one."""
        if not isinstance(term, Var):
            return None
        parts = [part.value for part in path if isinstance(part, Scalar) and isinstance(part.value, str)]
        return (term.name, *parts) if len(parts) == len(path) else None

    def terms(self, close: str) -> list[Term]:
        """Read terms up to a bracket; a comma may stand behind the last."""
        found: list[Term] = []
        while not self.takes(close):
            found.append(self.term())
            if not self.takes(","):
                self.expect(close, "or a comma")
                break
        return found

    def array(self) -> Term:
        """Read an array, or its comprehension."""
        at = self.here()
        self.advance()
        if self.takes("]"):
            return Array(at, [])
        first = self.member(at, "array", "]")
        if isinstance(first, Comprehension) and self.closed:
            return first
        return Array(at, self.items(first, "]"))

    def braces(self) -> Term:
        """Read an object, a set, or a comprehension of these."""
        at = self.here()
        self.advance()
        if self.takes("}"):
            return ObjectLiteral(at, [])
        first = self.member(at, "set", "}")
        if isinstance(first, Comprehension) and self.closed:
            return first
        if self.takes(":"):
            return self.pairs(at, first)
        return SetLiteral(at, self.items(first, "}"))

    def items(self, first: Term, close: str) -> list[Term]:
        """Read what follows the first member, up to a bracket."""
        if self.takes(","):
            return [first, *self.terms(close)]
        self.expect(close, "or a comma")
        return [first]

    def pairs(self, at: Location, key: Term) -> Term:
        """Read an object behind its first key, or its comprehension."""
        value = self.member(at, "object", "}", key)
        if isinstance(value, Comprehension) and self.closed:
            return value
        pairs = [(key, value)]
        while not self.takes("}"):
            self.expect(",", "or a closing brace")
            if self.takes("}"):
                break
            key = self.term()
            self.expect(":", "after an object's key")
            pairs.append((key, self.term()))
        return ObjectLiteral(at, pairs)

    def member(self, at: Location, kind: str, close: str, key: Term | None = None) -> Term:
        """Read the first member of a bracket, or the whole comprehension if it is one; `closed` says which.

        `{a | b}` is a comprehension and `{a | b, c}` a set with a union in it. What was read once is not read
        again, so that no nesting takes more than twice as long.
        """
        value = self.term(UNION + 1)
        self.closed = False
        if not self.is_("|"):
            return self.term(begun=value)
        bar, nesting = self.index, self.nesting
        if bar in self.unions:
            return self.term(begun=value)
        self.advance()
        try:
            body = self.expressions(close)
            self.expect(close, "to close the comprehension")
        except RegoErrors:
            self.unions.add(bar)
            self.go_to(bar)
            self.nesting = nesting
            try:
                value = self.term(begun=value)
                plausible = self.is_(",") or self.is_(":") or self.is_(close)
            except RegoErrors:
                plausible = False
            if not plausible:
                raise
            self.closed = False
            return value
        self.closed = True
        return Comprehension(at, kind, key, value, body)
