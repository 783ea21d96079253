"""The grammar of expressions, and of the bodies that they make: tokens into the tree of `syntax`."""

from collections.abc import Callable

from anyplug.rego.parse.lexer import Source, Token, scan, template_parts
from anyplug.rego.parse.terms import MEMBER_3, RELATION, Terms
from anyplug.rego.parse.tree import (  # fmt: skip
    Call,
    Every,
    Expr,
    Holds,
    Logic,
    Not,
    Ref,
    SomeIn,
    SomeVars,
    Template,
    Term,
    Unify,
    Var,
    With,
)


class Expressions(Terms):
    """Reads expressions and bodies."""

    def __init__(self, source: Source, tokens: list[Token], logic: frozenset[str] = frozenset()) -> None:
        super().__init__(source, tokens)
        self.logic = logic  # which of `and`, `or`, `not` are imported

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
        while self.is_("with") and not self.dotted():
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
        """Return whether `and` or `or` is at the cursor, and is imported."""
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
            for word in ("every", "some"):
                if self.is_(word) and not self.dotted():
                    self.fail(f"unexpected {word} keyword: illegal negation of '{word}'")
            inner = self.operand()
            is_group = isinstance(inner, Logic)
            return Not(at, [], _body(inner), closure=is_group, eager=not is_group and "not" not in self.logic)
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
        """Return whether the brace at the cursor closes before `and` or `or`."""
        end = self.matching(self.index)
        following = self.tokens[min(end + 1, len(self.tokens) - 1)]
        return following.kind == "name" and following.text in self.logic

    def group_has_logic(self) -> bool:
        """Return whether a parenthesis holds more than a term."""
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

    def template(self) -> Term:
        """Read a string with expressions."""
        token = self.token
        node = Template(self.here(), [], [])
        for part in template_parts(self.source, token):
            if isinstance(part, str):
                node.parts.append(part)
                continue
            tokens, _, _ = scan(self.source, part[0], until="}")
            inner = Expressions(self.source, tokens, self.logic)
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


def _body(expr: Expr) -> list[Expr]:
    """Return an operand as a body; what was in braces already is one."""
    if isinstance(expr, Logic) and len(expr.operands) == 1 and not expr.withs:
        return expr.operands[0]
    return [expr]
