"""The grammar of modules: packages, imports, rules and their heads."""

import functools
from typing import Final

from anyplug.rego.parse import annotations
from anyplug.rego.parse.expressions import Expressions
from anyplug.rego.parse.lexer import Source, scan
from anyplug.rego.parse.tree import (  # fmt: skip
    ROOTS,
    Annotation,
    Array,
    Call,
    Comprehension,
    Expr,
    Import,
    Module,
    ObjectLiteral,
    Ref,
    Rule,
    Scalar,
    SetLiteral,
    Term,
    Var,
)
from anyplug.rego.values.rego_errors import Location, RegoErrors
from anyplug.rego.values.values import TRUE

MAX_KEPT: Final = 1_024  # files: when one of a set is edited, the others are not read again
LOGIC: Final = frozenset({"and", "or", "not"})
FUTURE: Final = frozenset({"in", "every", "contains", "if"}) | LOGIC


@functools.lru_cache(MAX_KEPT)
def parse_module(file: str, text: str) -> Module:
    """Read one file; a file that was parsed before is reused, since the tree is immutable. Raises RegoErrors."""
    source = Source(file, text)
    tokens, comments, _ = scan(source)
    return Parser(source, tokens).module(annotations.read(source, comments))


def parse_query(text: str, file: str = "query") -> list[Expr]:
    """Read a query: expressions. Raises RegoErrors."""
    source = Source(file, text)
    parser = Parser(source, scan(source)[0])
    if parser.token.kind == "end":
        parser.fail("empty query")
    body = parser.expressions("")
    if parser.token.kind != "end":
        parser.fail(f"unexpected {parser.token.text!r}")
    return body


class Parser(Expressions):
    """Reads a module."""

    def module(self, notes: list[Annotation]) -> Module:
        """Read everything up to the end."""
        at = self.here()
        if not self.takes("package"):
            self.fail("package expected")
        package = self.path()
        self.ends("package")
        if package[0] == "data":
            package = package[1:]
        made = Module(at, package, [], [], notes)
        while self.token.kind != "end":
            if self.is_("import") and not self.dotted():
                made.imports.append(self.import_())
            else:
                made.rules += self.rule()
        return made

    def ends(self, what: str) -> None:
        """Refuse what follows on the same line."""
        if not self.token.broken and self.token.kind != "end" and not self.takes(";"):
            self.fail(f"unexpected {self.token.text!r} after {what}")

    def path(self) -> tuple[str, ...]:
        """Read a.b["c"]."""
        if self.token.kind not in {"name", "keyword"}:
            self.fail("expected a path")
        made = self.follow(self.variable())
        if isinstance(made, Var):
            return (made.name,)
        name = self.callable(made.head, made.path) if isinstance(made, Ref) else None
        if name is None:
            self.fail("a path holds names only")
        return name

    def import_(self) -> Import:
        """Read an import, and switch on the keywords that it brings."""
        at = self.here()
        self.advance()
        path = self.path()
        alias = None
        if self.takes("as"):
            if self.token.kind != "name":
                self.fail("expected a name after as")
            alias = self.advance().text
        self.ends("import")
        if path[0] == "future":
            if path[1:2] != ("keywords",) or len(path) > 3 or (len(path) == 3 and path[2] not in FUTURE):  # noqa: PLR2004 - future.keywords.name
                raise self.fault(at, f"unexpected import of {'.'.join(path)}, must be a keyword of future.keywords")
            if alias:
                raise self.fault(at, "future keyword imports cannot be aliased")
            self.logic |= {path[2]} & LOGIC if len(path) == 3 else frozenset()  # noqa: PLR2004 - as above
        elif path[0] == "rego":
            if path != ("rego", "v1"):
                raise self.fault(at, f"invalid import of {'.'.join(path)}, must be rego.v1")
        elif path[0] not in ROOTS:
            raise self.fault(
                at, f"unexpected import path, must begin with one of: {{data, future, input, rego}}: {path[0]}"
            )
        return Import(at, path, alias)

    def fault(self, at: Location, message: str) -> Exception:
        """Make an error for a place that lies behind."""
        return self.source.fault(self.source.starts[at.row - 1] + at.col - 1, message)

    def rule(self) -> list[Rule]:
        """Read a rule, its elses, and the bodies chained to it."""
        at = self.here()
        default = False
        if self.is_("default") and not self.dotted():
            self.advance()
            default = True
        if self.token.kind not in {"name", "keyword"} or (self.token.kind == "keyword" and not self.dotted()):
            self.fail(f"unexpected {self.token.text!r}: expected a rule")
        made = self.head(at)
        made.default = default
        if default:
            self.default_rule(made)
            return [made]
        braced = self.rule_body(made)
        if not braced and made.value is None and made.member is None and not made.body:
            raise self.fault(at, "rule must have a value assignment, a body, or contains")
        rules = [made]
        last = made
        while self.is_("else") and not self.dotted():
            if made.member is not None or not self.is_ground(made.path):
                self.fail("else keyword cannot be used on partial rules")
            last.otherwise = last = self.otherwise(made)
        while braced and last is made and self.is_("{"):
            chained = Rule(self.here(), made.path, made.args, made.member, made.value, self.block())
            rules.append(chained)
        self.ends("rule")
        return rules

    def head(self, at: Location) -> Rule:
        """Read name, path, arguments, `contains` and value."""
        first = self.variable()
        path: list[Term] = [Scalar(first.at, first.name)]
        args: list[Term] | None = None
        member = value = None
        while not self.token.spaced and self.token.kind == "operator" and self.token.text in {".", "[", "("}:
            bracket = self.advance()
            if bracket.text == ".":
                if self.token.kind not in {"name", "keyword"}:
                    self.fail("expected a name after the dot")
                path.append(Scalar(self.here(), self.advance().text))
            elif bracket.text == "[":
                path.append(self.term())
                self.expect("]", "to close the rule's head")
            else:
                args = self.terms(")")
                break
        if self.is_("contains") and not self.dotted():
            if args is not None:
                self.fail("a function cannot be a partial set")
            self.advance()
            member = self.term()
        elif self.is_(":=") or self.is_("="):
            self.advance()
            value = self.term()
        return Rule(at, path, args, member, value, [])

    def rule_body(self, rule: Rule) -> bool:
        """Read `if` and a body; return whether it had braces."""
        if self.is_("if") and not self.dotted():
            self.advance()
            if self.is_("{") and self.peek().text == "}":
                self.fail("found empty body", self.peek())
            if self.is_("{") and not self.object_follows() and (body := self.braced()):
                rule.body = body
                return True
            rule.body = [self.expression()]
            return False
        if self.is_("{"):
            self.fail("`if` keyword is required before rule body")
        return False

    def braced(self) -> list[Expr] | None:
        """Read a body in braces; empty if these hold a term, such as a set or a comprehension."""
        start, nesting = self.index, self.nesting
        try:
            return self.block()
        except RegoErrors:
            self.go_to(start)
            self.nesting = nesting
            try:
                self.expression()
            except RegoErrors:
                plausible = False
            else:
                plausible = self.token.broken or self.token.kind == "end"
            self.go_to(start)
            self.nesting = nesting
            if not plausible:
                raise
            return None

    def object_follows(self) -> bool:
        """Return whether braces after `if` begin an operand of `and` or `or`."""
        return bool(self.logic) and self.closing_is_followed_by_word()

    def otherwise(self, rule: Rule) -> Rule:
        """Read one else."""
        at = self.here()
        self.advance()
        value: Term | None = None
        if self.is_(":=") or self.is_("="):
            self.advance()
            value = self.term()
        made = Rule(at, rule.path, rule.args, None, value or Scalar(at, TRUE), [])
        self.rule_body(made)
        if value is None and not made.body:
            self.fail("else needs a value or a body")
        return made

    def default_rule(self, rule: Rule) -> None:
        """Check that a default is a constant."""
        if rule.value is None or rule.member is not None:
            self.fail("default rules must have a value")
        if not self.is_ground(rule.path):
            raise self.fault(rule.at, "default rules must have ground references")
        if (self.is_("if") and not self.dotted()) or self.is_("{"):
            self.fail("default rules must not have a body")
        seen: set[str] = set()
        for arg in rule.args or []:
            if not isinstance(arg, Var):
                raise self.fault(rule.at, "default rules may only have variables as arguments")
            if arg.name in seen:
                raise self.fault(rule.at, "arguments of default rules must not be repeated")
            seen.add(arg.name)
        if not _constant(rule.value):
            raise self.fault(rule.value.at, "illegal default rule: value must be a constant or a comprehension")
        self.ends("rule")

    def is_ground(self, path: list[Term]) -> bool:
        """Return whether a head's path has no variables."""
        return all(isinstance(part, Scalar) for part in path)


def _constant(term: Term) -> bool:
    if isinstance(term, Var | Ref | Call):
        return False
    if isinstance(term, Array | SetLiteral):
        return all(map(_constant, term.items))
    if isinstance(term, ObjectLiteral):
        return all(_constant(key) and _constant(value) for key, value in term.pairs)
    return isinstance(term, Scalar | Comprehension)
