"""Resolve names: which are rules, imports and builtins, and which are variables, each in the body that it belongs to.

Returns new trees in which every local variable has a unique name, rules and imports are references to `data` or
`input`, and calls name a builtin or the full path of a function.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from anyplug.rego.compiling import negation
from anyplug.rego.compiling.globals import Globals
from anyplug.rego.compiling.scopes import Scope, declarations, mentions
from anyplug.rego.parse.tree import (  # fmt: skip
    ROOTS,
    Array,
    Call,
    Comprehension,
    Every,
    Expr,
    Holds,
    Logic,
    Module,
    Not,
    ObjectLiteral,
    Ref,
    Rule,
    Scalar,
    SetLiteral,
    SomeIn,
    SomeVars,
    Template,
    Term,
    Unify,
    Var,
    With,
)
from anyplug.rego.values.rego_errors import COMPILE_ERROR, PARSE_ERROR, TYPE_ERROR, Fault, Location
from anyplug.rego.values.values import TRUE

METADATA_CHAIN: Final = ("rego", "metadata", "chain")
METADATA_RULE: Final = ("rego", "metadata", "rule")
EQ: Final = ("eq",)
PRINT: Final = ("print",)


class Names:
    """Resolves one module, or one query."""

    def __init__(
        self,
        module: Module | None,
        rules: frozenset[str],
        arity: Callable[[tuple[str, ...]], int | None],
        chain: Mapping[int, Any] | None = None,
    ) -> None:
        """Take the names of the package's rules, and a function that returns how many arguments a function takes."""
        self.faults: list[Fault] = []
        self.globals = Globals(module, rules, arity, self.faults)
        self.arity = arity
        self.chain = chain or {}
        self.rule: Rule | None = None
        self.count = 0

    def fault(self, at: Location, message: str, code: str = COMPILE_ERROR) -> None:
        """Record a fault, and continue to find more."""
        self.faults.append(Fault(at, code, message))

    # Scopes.

    def new(self, scope: Scope, name: str) -> str:
        """Make a variable of a scope."""
        self.count += 1
        made = f"{name}.{self.count}"
        scope.names[name] = made
        scope.own.add(made)
        return made

    def declare(self, scope: Scope, var: Var) -> Var:
        """Declare a variable in a body."""
        if var.name in ROOTS:
            self.fault(var.at, f"variables must not shadow {var.name}")
        if var.name in scope.declared:
            self.fault(var.at, f"var {var.name} assigned above")
        elif var.name in scope.used and not var.name.startswith("_$"):
            self.fault(var.at, f"var {var.name} referenced above")
        scope.declared.add(var.name)
        scope.later.discard(var.name)
        made = self.new(scope, var.name)
        scope.mentioned.add(made)
        return Var(var.at, made)

    def declare_pattern(self, scope: Scope, term: Term, fresh: dict[str, Var] | None = None) -> Term:
        """Declare every variable of a pattern; other terms in it are only resolved."""
        fresh = {} if fresh is None else fresh
        if isinstance(term, Var):
            if term.name not in fresh:
                fresh[term.name] = self.declare(scope, term)
            return fresh[term.name]
        if isinstance(term, Array):
            return Array(term.at, [self.declare_pattern(scope, item, fresh) for item in term.items])
        if isinstance(term, ObjectLiteral):
            return ObjectLiteral(
                term.at,
                [(self.term(scope, key), self.declare_pattern(scope, value, fresh)) for key, value in term.pairs],
            )
        return self.term(scope, term)

    def enter(self, parent: Scope | None, body: list[Expr], also: list[Term] | None = None) -> Scope:
        """Open a body: the variables that it mentions itself, and nobody around it has, are its own."""
        scope = Scope(parent)
        for name in mentions(body, also or [], self.globals.function):
            if name not in ROOTS and (parent is None or not parent.shows(name)) and not self.globals.knows(name):
                self.new(scope, name)
        scope.later.update(declarations(body))
        return scope

    # Rules.

    def resolve_rule(self, rule: Rule) -> Rule:
        """Resolve a rule and its elses."""
        self.rule = rule
        outer = Scope(None)
        args: list[Term] | None = None
        extra: list[tuple[Var, Term]] = []
        if rule.args is not None:
            args = []
            for arg in rule.args:
                if isinstance(arg, Var) and arg.name not in outer.declared:
                    args.append(self.declare(outer, arg))
                else:
                    args.append(Var(arg.at, self.new(outer, f"arg${len(args)}")))
                    extra.append((args[-1], arg))  # type: ignore[arg-type]
            outer.own.clear()
        return self.resolve_branch(rule, outer, args, extra)

    def resolve_branch(self, rule: Rule, outer: Scope, args: list[Term] | None, extra: list[tuple[Var, Term]]) -> Rule:
        """Resolve one body with its head; arguments that are patterns are destructured in it."""
        heads = [term for term in (*rule.path, rule.member, rule.value) if term is not None]
        scope = self.enter(outer, rule.body, [*heads[1:], *(term for _, term in extra)])
        fresh = {name: Var(rule.at, own) for name, own in outer.names.items()}
        made: list[Expr] = [Unify(var.at, [], var, self.declare_pattern(scope, term, fresh)) for var, term in extra]
        made += self.exprs(scope, rule.body)
        value = rule.value
        if value is None and rule.member is None:
            value = Scalar(rule.at, TRUE)
        resolved = Rule(
            rule.at,
            [self.term(scope, part) if not isinstance(part, Scalar) else part for part in rule.path],
            args,
            None if rule.member is None else self.term(scope, rule.member),
            None if value is None else self.term(scope, value),
            made,
            rule.default,
        )
        if rule.otherwise:
            resolved.otherwise = self.resolve_branch(rule.otherwise, outer, args, extra)
        return resolved

    def resolve_query(self, body: list[Expr]) -> tuple[list[Expr], dict[str, str]]:
        """Resolve a query; also return its variables, by their names as written."""
        scope = self.enter(None, body)
        made = self.exprs(scope, body)
        return made, {name: own for name, own in scope.names.items() if "$" not in name}

    # Expressions.

    def exprs(self, scope: Scope, body: list[Expr]) -> list[Expr]:
        """Resolve the expressions of a body, in order."""
        found: list[Expr] = []
        for expr in body:
            made = self.expr(scope, expr)
            if isinstance(made, Not) and made.eager:
                found += negation.calls_first(made, lambda term: self.kept(scope, term))
            elif made is not None:
                found.append(made)
        return found

    def kept(self, scope: Scope, term: Term) -> Var:
        """Make a variable for what a term gives."""
        made = Var(term.at, self.new(scope, "kept$"))
        scope.mentioned.add(made.name)
        return made

    def expr(self, scope: Scope, expr: Expr) -> Expr | None:  # noqa: C901 - one branch for each kind
        """Resolve one expression; declarations vanish."""
        withs = [self.with_(scope, each) for each in expr.withs]
        if isinstance(expr, Holds):
            return self.holds(scope, expr, withs)
        if isinstance(expr, Unify):
            right = self.term(scope, expr.right)
            if expr.assign:
                if not isinstance(expr.left, Var | Array | ObjectLiteral):
                    self.fault(expr.at, "cannot assign to this term", PARSE_ERROR)
                left = self.declare_pattern(scope, expr.left)
            else:
                left = self.term(scope, expr.left)
            return Unify(expr.at, withs, left, right, expr.assign)
        if isinstance(expr, SomeVars):
            for var in expr.names:
                self.declare(scope, var)
            return None
        if isinstance(expr, SomeIn):
            domain = self.term(scope, expr.domain)
            fresh: dict[str, Var] = {}
            key = None if expr.key is None else self.declare_pattern(scope, expr.key, fresh)
            return SomeIn(expr.at, withs, key, self.declare_pattern(scope, expr.value, fresh), domain)
        if isinstance(expr, Every):
            return self.every(scope, expr, withs)
        if isinstance(expr, Not):
            if not expr.closure:
                return Not(expr.at, withs, self.exprs(scope, expr.body), closure=False, eager=expr.eager)
            body, free = self.closure(scope, expr.body)
            return Not(expr.at, withs, body, closure=True, free=free)
        assert isinstance(expr, Logic)
        operands = [self.closure(scope, operand) for operand in expr.operands]
        free = frozenset().union(*(found for _, found in operands))
        return Logic(expr.at, withs, expr.operator, [body for body, _ in operands], free)

    def holds(self, scope: Scope, expr: Holds, withs: list[With]) -> Expr:
        """Resolve a term; a call with one argument more than it takes gives its result there."""
        term = self.term(scope, expr.term, statement=True)
        if isinstance(term, Call):
            if term.name == EQ and len(term.args) == 2:  # noqa: PLR2004 - two sides
                return Unify(expr.at, withs, term.args[0], term.args[1])
            arity = self.arity(term.name)
            if arity is not None and arity >= 0 and len(term.args) == arity + 1:
                call = Call(term.at, term.name, term.args[:-1])
                return Unify(expr.at, withs, term.args[-1], call, of_call=True)
        return Holds(expr.at, withs, term)

    def every(self, scope: Scope, expr: Every, withs: list[With]) -> Every:
        """Resolve `every`: its variables are seen in its body only."""
        domain = self.term(scope, expr.domain)
        inner = self.enter(scope, expr.body)
        key = None if expr.key is None else self.declare(inner, expr.key)
        inner.declared.clear()
        value = self.declare(inner, expr.value)
        inner.declared.clear()
        body = self.exprs(inner, expr.body)
        return Every(expr.at, withs, key, value, domain, body, inner.leave())

    def closure(self, scope: Scope, body: list[Expr]) -> tuple[list[Expr], frozenset[str]]:
        """Resolve a body with its own variables."""
        inner = self.enter(scope, body)
        return self.exprs(inner, body), inner.leave()

    def with_(self, scope: Scope, each: With) -> With:
        """Resolve what is replaced, and by what."""
        head = each.target if isinstance(each.target, Var) else each.target.head
        assert isinstance(head, Var)
        rest = [] if isinstance(each.target, Var) else each.target.path
        parts = [part.value for part in rest if isinstance(part, Scalar) and isinstance(part.value, str)]
        path = self.globals.full_name((head.name, *parts))
        if len(parts) != len(rest):
            self.fault(each.at, "with keyword target must be a reference with constant path")
        elif path[0] not in ROOTS and self.arity(path) is None:
            self.fault(each.at, "with keyword target must reference existing input, data, or a function", TYPE_ERROR)
        function = self.globals.function(each.value, scope) if path[0] != "input" else ()
        value: Term = Scalar(each.at, TRUE) if function else self.term(scope, each.value)
        return With(each.at, each.target, value, path, function)

    # Terms.

    def term(self, scope: Scope, term: Term, *, statement: bool = False) -> Term:
        """Resolve a term."""
        if isinstance(term, Scalar):
            return term
        if isinstance(term, Var):
            return self.var(scope, term)
        if isinstance(term, Ref):
            head = self.term(scope, term.head)
            path = [self.term(scope, part) for part in term.path]
            if isinstance(head, Ref):
                return Ref(term.at, head.head, [*head.path, *path])
            return Ref(term.at, head, path)
        if isinstance(term, Array):
            return Array(term.at, [self.term(scope, item) for item in term.items])
        if isinstance(term, SetLiteral):
            return SetLiteral(term.at, [self.term(scope, item) for item in term.items])
        if isinstance(term, ObjectLiteral):
            return ObjectLiteral(
                term.at, [(self.term(scope, key), self.term(scope, value)) for key, value in term.pairs]
            )
        if isinstance(term, Call):
            return self.call(scope, term, statement=statement)
        if isinstance(term, Template):
            return self.template(scope, term)
        return self.comprehension(scope, term)

    def var(self, scope: Scope, term: Var) -> Term:
        """Resolve a variable: a local one first, then rules and imports."""
        found = scope.find(term.name)
        if found is not None:
            scope.mentioned.add(found)
            return Var(term.at, found)
        if term.name in ROOTS:
            return term
        if self.globals.knows(term.name):
            return self.globals.reference(term)
        made = self.new(scope, term.name)  # in a place that opens no body: it will be reported as unsafe
        scope.mentioned.add(made)
        return Var(term.at, made)

    def call(self, scope: Scope, term: Call, *, statement: bool) -> Term:
        """Resolve a call, and check how many arguments it gives."""
        name = self.globals.full_name(term.name)
        if name == PRINT:
            return Call(term.at, name, [self.shown(scope, arg) for arg in term.args])
        args = [self.term(scope, arg) for arg in term.args]
        if name in {METADATA_CHAIN, METADATA_RULE} and self.rule is not None:
            chain, own = self.chain.get(id(self.rule), ((), {}))
            return Scalar(term.at, chain if name == METADATA_CHAIN else own)
        if name == ("set",) and not args:
            return SetLiteral(term.at, [])
        arity = self.arity(name)
        if arity is None:
            self.fault(term.at, f"undefined function {'.'.join(name)}", TYPE_ERROR)
        elif arity >= 0 and len(args) != arity and not (statement and len(args) == arity + 1):
            what = "too many" if len(args) > arity else "not enough"
            self.fault(
                term.at, f"{'.'.join(name)}: {what} arguments: it takes {arity}, and {len(args)} are given", TYPE_ERROR
            )
        return Call(term.at, name, args)

    def shown(self, scope: Scope, term: Term) -> Term:
        """Make an argument of `print` a text: one that is undefined is shown as such, and stops nothing."""
        result = Var(term.at, "printed$")
        return self.template(scope, Template(term.at, [[Unify(term.at, [], result, term, assign=True)]], [result]))

    def comprehension(self, scope: Scope, term: Comprehension) -> Comprehension:
        """Resolve a comprehension: its head sees the variables of its body."""
        heads = [term.value] if term.key is None else [term.key, term.value]
        inner = self.enter(scope, term.body, heads)
        body = self.exprs(inner, term.body)
        key = None if term.key is None else self.term(inner, term.key)
        value = self.term(inner, term.value)
        return Comprehension(term.at, term.kind, key, value, body, inner.leave())

    def template(self, scope: Scope, term: Template) -> Template:
        """Resolve a string with expressions: each is a closure."""
        made = Template(term.at, [], [])
        values = iter(term.values)
        free: set[str] = set()
        for part in term.parts:
            if isinstance(part, str):
                made.parts.append(part)
                continue
            inner = self.enter(scope, [])
            made.parts.append(self.exprs(inner, part))
            made.values.append(self.term(inner, next(values)))
            free |= inner.leave()
        made.free = frozenset(free)
        return made
