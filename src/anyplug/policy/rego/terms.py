"""The grammar of terms and expressions: tokens into the tree of `syntax`."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NoReturn

from anyplug.policy.rego import numbers
from anyplug.policy.rego.errors import BuiltinError, Location, RegoErrors
from anyplug.policy.rego.lexer import Source, Token, scan, template_parts, unescape
from anyplug.policy.rego.syntax import (
    Array,
    Call,
    Comprehension,
    Every,
    Expr,
    Holds,
    Logic,
    Not,
    ObjectLiteral,
    Ref,
    Scalar,
    SetLiteral,
    SomeIn,
    SomeVars,
    Template,
    Term,
    Unify,
    Var,
    With,
)  # fmt: skip
from anyplug.policy.rego.values import FALSE, NULL, TRUE

MAX_NESTING: Final = 60  # of brackets: each takes some frames of Python's stack, here and in what follows
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


class Terms:
    """A cursor over tokens, and how terms and expressions are read at it."""

    def __init__(self, source: Source, tokens: list[Token], logic: frozenset[str] = frozenset()) -> None:
        self.source = source
        self.tokens = tokens
        self.index = 0
        self.token = tokens[0]
        self.nesting = 0
        self.logic = logic  # which of `and`, `or`, `not` are imported
        self.closed = False  # whether the member that was read last was a whole comprehension
        self.unions: set[int] = set()  # bars that are known not to begin a comprehension's body

    # The cursor.

    def advance(self) -> Token:
        """Give the token at the cursor, and go on."""
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
        """Say where the cursor is."""
        return self.source.at(self.token.start)

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Refuse what stands at the cursor."""
        raise self.source.fault((token or self.token).start, message)

    def is_(self, text: str) -> bool:
        """Whether an operator or keyword stands at the cursor."""
        token = self.token
        return token.text == text and token.kind in {"operator", "keyword"}

    def takes(self, text: str) -> bool:
        """Go on if an operator or keyword stands at the cursor."""
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

    def deeper(self) -> None:
        """Count brackets that are open."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail(f"nested more than {MAX_NESTING} levels deep")

    # Terms.

    def term(self, least: int = MEMBERSHIP, begun: Term | None = None) -> Term:
        """Read a term with operators that bind at least so strongly; `begun` is what was read of it already."""
        at = begun.at if begun else self.here()
        left = begun or self.factor()
        while True:
            token = self.token
            if token.kind == "keyword" and token.text == "in" and least <= MEMBERSHIP:
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

    def dotted(self) -> bool:
        """Whether a keyword is used as a name: a dot follows at once."""
        following = self.peek()
        return following.text == "." and following.kind == "operator" and not following.spaced

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
        """Give the value of a string or number."""
        text = token.text
        if token.kind == "raw":
            return text[1:-1].replace("\r", "")
        if token.kind == "string":
            return unescape(self.source, token.start + 1, text[1:-1])
        try:
            return numbers.parse(text)
        except BuiltinError as error:
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
        """Give the name that a reference is, if it is one."""
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
        items = [first]
        if self.takes(","):
            items += self.terms("]")
        else:
            self.expect("]", "or a comma")
        return Array(at, items)

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
        items = [first]
        if self.takes(","):
            items += self.terms("}")
        else:
            self.expect("}", "or a comma")
        return SetLiteral(at, items)

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

    def template(self) -> Term:
        """Read a string with expressions."""
        token = self.token
        node = Template(self.here(), [], [])
        for part in template_parts(self.source, token):
            if isinstance(part, str):
                node.parts.append(part)
                continue
            tokens, _, _ = scan(self.source, part[0], until="}")
            inner = Terms(self.source, tokens, self.logic)
            inner.nesting = self.nesting
            if inner.token.kind == "end":
                inner.fail("template expression without a term")
            at, term = inner.here(), inner.term()
            withs = inner.withs()
            if inner.token.kind != "end":
                inner.fail(f"unexpected {inner.token.text!r} in a template expression")
            result = Var(at, f"__template${at.row}:{at.col}")
            node.parts.append([Unify(at, withs, result, term, assign=True)])
            node.values.append(result)
        self.advance()
        return node

    # Expressions.

    def expressions(self, close: str) -> list[Expr]:
        """Read expressions up to a bracket, which is left there."""
        self.deeper()
        found: list[Expr] = []
        while True:
            found.append(self.expression())
            if self.takes(";"):
                if self.is_(close) or self.token.kind == "end":
                    break
                continue
            if self.is_(close) or self.token.kind == "end":
                break
            if not self.token.broken:
                self.fail(f"unexpected {self.token.text!r}: expected a line break, ';' or {close!r}")
        self.nesting -= 1
        return found

    def block(self) -> list[Expr]:
        """Read { expressions }."""
        self.expect("{", "before a body")
        if self.is_("}"):
            self.fail("found empty body")
        body = self.expressions("}")
        self.expect("}", "to close the body")
        return body

    def expression(self) -> Expr:
        """Read one expression with its `with`s."""
        self.deeper()
        made = self.disjunction()
        self.nesting -= 1
        found = self.withs()
        if found and isinstance(made, SomeVars):
            self.fail("unexpected with after some")
        made.withs = found + made.withs if isinstance(made, Not | Logic) and made.withs else made.withs + found
        return made

    def withs(self) -> list[With]:
        """Read `with target as value`, none or more."""
        found: list[With] = []
        while self.is_("with"):
            at = self.here()
            self.advance()
            target = self.follow_plain(self.variable())
            if not isinstance(target, Ref | Var):
                self.fail("with needs a reference as its target")
            self.expect("as", "after the target of with")
            found.append(With(at, target, self.term(RELATION)))
        return found

    def follow_plain(self, term: Term) -> Term:
        """Read a path without calls."""
        made = self.follow(term)
        if isinstance(made, Call):
            self.fail("a call cannot be the target of with")
        return made

    def word(self, text: str) -> bool:
        """Whether `and` or `or` stands at the cursor, and is imported."""
        token = self.token
        return token.kind == "name" and token.text == text and text in self.logic

    def disjunction(self) -> Expr:
        """Read operands of `or`."""
        return self.joined("or", self.conjunction)

    def conjunction(self) -> Expr:
        """Read operands of `and`."""
        return self.joined("and", self.operand)

    def joined(self, operator: str, read: Callable[[], Expr]) -> Expr:
        """Read operands of one operator."""
        at = self.here()
        first = read()
        if not self.word(operator):
            return first
        operands = [_body(first)]
        while self.word(operator):
            self.advance()
            operands.append(_body(read()))
        return Logic(at, [], operator, operands)

    def operand(self) -> Expr:
        """Read one operand: a body in braces, a group in parentheses, or a plain expression."""
        at = self.here()
        if self.is_("not") and not self.dotted():
            self.advance()
            if self.is_("{") and "not" in self.logic:
                return Not(at, [], self.block(), closure=True)
            inner = self.operand()
            return Not(at, [], _body(inner), closure=isinstance(inner, Logic))
        if self.logic:
            before = self.tokens[self.index - 1] if self.index else None
            after_word = before is not None and before.kind == "name" and before.text in {"and", "or"}
            if self.is_("{") and (after_word or self.closing_is_followed_by_word()):
                return Logic(at, [], "and", [self.block()])
            if self.is_("(") and self.group_has_logic():
                self.advance()
                inner = self.expression()
                self.expect(")", "to close the group")
                return Logic(at, [], "and", [[inner]])
        return self.plain()

    def closing_is_followed_by_word(self) -> bool:
        """Whether the brace at the cursor closes before `and` or `or`."""
        end = self.matching(self.index)
        following = self.tokens[min(end + 1, len(self.tokens) - 1)]
        return following.kind == "name" and following.text in self.logic

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

    def group_has_logic(self) -> bool:
        """Whether a parenthesis holds more than a term."""
        end = self.matching(self.index)
        depth = 0
        for position in range(self.index, end):
            token = self.tokens[position]
            if token.kind == "operator" and token.text in "[{":
                depth += 1
            elif token.kind == "operator" and token.text in "]}":
                depth -= 1
            elif not depth and (
                (token.kind == "name" and token.text in self.logic)
                or (token.kind == "keyword" and token.text in {"with", "not"})
            ):
                return True
        return False

    def plain(self) -> Expr:
        """Read an expression without `and`, `or` and `not`."""
        at = self.here()
        if self.is_("some") and not self.dotted():
            return self.some()
        if self.is_("every") and not self.dotted():
            return self.every()
        left = self.term()
        if self.is_(","):
            self.advance()
            value = self.term(RELATION)
            self.expect("in", "after two terms")
            return Holds(at, [], Call(at, MEMBER_3, [left, value, self.term(RELATION)]))
        if self.takes(":="):
            return Unify(at, [], left, self.term(), assign=True)
        if self.takes("="):
            return Unify(at, [], left, self.term())
        return Holds(at, [], left)

    def some(self) -> Expr:
        """Read `some`, in both of its forms."""
        at = self.here()
        self.advance()
        found = [self.term(RELATION)]
        while self.takes(","):
            found.append(self.term(RELATION))
        if self.takes("in"):
            if len(found) > 2:  # noqa: PLR2004 - a key and a value
                self.fail("some takes at most a key and a value before in")
            domain = self.term(RELATION)
            return SomeIn(at, [], found[0] if len(found) > 1 else None, found[-1], domain)
        names: list[Var] = []
        for term in found:
            if not isinstance(term, Var):
                self.fail("expected a variable after some")
            names.append(term)
        return SomeVars(at, [], names)

    def every(self) -> Expr:
        """Read `every`."""
        at = self.here()
        self.advance()
        names = [self.term(RELATION)]
        if self.takes(","):
            names.append(self.term(RELATION))
        variables = [name for name in names if isinstance(name, Var)]
        if len(variables) != len(names):
            self.fail("every declares variables only")
        self.expect("in", "after the variables of every")
        domain = self.term(RELATION)
        body = self.block()
        return Every(at, [], variables[0] if len(variables) > 1 else None, variables[-1], domain, body)


def _body(expr: Expr) -> list[Expr]:
    """Give an operand as a body; what was in braces already is one."""
    if isinstance(expr, Logic) and len(expr.operands) == 1 and not expr.withs:
        return expr.operands[0]
    return [expr]
