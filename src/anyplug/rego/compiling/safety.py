"""Safety: every variable gets its value before it is used, and expressions are put into an order in which it does.

The order is OPA's: bodies are passed through from the top, as often as needed, and each expression is taken as soon
as what it needs is there. It decides in which order a comprehension finds its members.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from anyplug.rego.compiling import negation
from anyplug.rego.parse.tree import (  # fmt: skip
    ROOTS,
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
    Rule,
    Scalar,
    SetLiteral,
    SomeIn,
    Template,
    Term,
    Unify,
    Var,
)
from anyplug.rego.values.rego_errors import Fault, Location

UNSAFE: Final = "rego_unsafe_var_error"
EMPTY: Final[frozenset[str]] = frozenset()


class Vars(NamedTuple):
    """What must have a value before, and what gets one."""

    needs: frozenset[str]
    gives: frozenset[str]

    def __or__(self, other: "Vars") -> "Vars":
        return Vars(self.needs | other.needs, self.gives | other.gives)


NOTHING: Final = Vars(EMPTY, EMPTY)


def in_term(term: Term, bound: frozenset[str]) -> Vars:
    """Return what a term needs to be evaluated, and which variables it goes through."""
    if isinstance(term, Scalar):
        return NOTHING
    if isinstance(term, Var):
        return NOTHING if term.name in ROOTS or term.name in bound else Vars(frozenset((term.name,)), EMPTY)
    if isinstance(term, Ref):
        found = in_term(term.head, bound)
        for part in term.path:
            known = bound | found.gives
            found |= in_pattern(part, known) if isinstance(part, Var | Array | ObjectLiteral) else in_term(part, known)
        return _settled(found)
    if isinstance(term, Array | SetLiteral):
        return _all(term.items, bound)
    if isinstance(term, ObjectLiteral):
        return _all([each for pair in term.pairs for each in pair], bound)
    if isinstance(term, Call):
        return _all(term.args, bound)
    return Vars(term.free - bound, EMPTY)


def _all(terms: list[Term], bound: frozenset[str]) -> Vars:
    """Join terms that may be evaluated in any order: `a[i] + i` goes through `a` first."""
    _, found = in_turn(terms, bound)
    return found


def in_turn(terms: list[Term], bound: frozenset[str]) -> tuple[list[int], Vars]:
    """Order terms so that each has what it needs; return their indexes, and what all of them need and give."""
    if all(isinstance(term, Scalar) or (isinstance(term, Var) and term.name in bound) for term in terms):
        return list(range(len(terms))), NOTHING
    order: list[int] = []
    waiting = list(range(len(terms)))
    gives = EMPTY
    needs = EMPTY
    while waiting:
        left = []
        needs = EMPTY
        for index in waiting:
            found = in_term(terms[index], bound | gives)
            if found.needs:
                left.append(index)
                needs |= found.needs
            else:
                order.append(index)
                gives |= found.gives
        if len(left) == len(waiting):
            break
        waiting = left
    return order, Vars(needs, gives - needs)


def _settled(found: Vars) -> Vars:
    return found if found.needs.isdisjoint(found.gives) else Vars(found.needs, found.gives - found.needs)


def in_pattern(term: Term, bound: frozenset[str]) -> Vars:
    """Return what a pattern gives when a value is destructured by it, and what it needs for that."""
    if isinstance(term, Var):
        return NOTHING if term.name in bound or term.name in ROOTS else Vars(EMPTY, frozenset((term.name,)))
    found = NOTHING
    if isinstance(term, Array):
        for item in term.items:
            found |= in_pattern(item, bound)
    elif isinstance(term, ObjectLiteral):
        for key, value in term.pairs:
            found |= in_term(key, bound)
            found |= in_pattern(value, bound)
    else:
        return in_term(term, bound)
    return Vars(found.needs - found.gives, found.gives)


class Step(NamedTuple):
    """One step of a unification: evaluate `term`, destructure its value with `pattern`."""

    pattern: Term
    term: Term


def unification(left: Term, right: Term, bound: frozenset[str]) -> tuple[list[Step], Vars]:
    """Plan how two terms are made equal: collections of one shape are destructured beforehand."""
    waiting = list(_pairs(left, right))
    steps: list[Step] = []
    gives = EMPTY
    while waiting:
        known = bound | gives
        for index, (one, other) in enumerate(waiting):
            step = _step(one, other, known) or _step(other, one, known)
            if step is not None:
                steps.append(step[0])
                gives |= step[1]
                del waiting[index]
                break
        else:
            break
    needs = EMPTY
    for one, other in waiting:
        known = bound | gives
        first, second = in_term(one, known), in_term(other, known)
        needs |= first.needs | second.needs
    return steps, Vars(needs, gives)


def _step(pattern: Term, term: Term, known: frozenset[str]) -> tuple[Step, frozenset[str]] | None:
    value = in_term(term, known)
    if value.needs:
        return None
    part = in_pattern(pattern, known | value.gives)
    return None if part.needs else (Step(pattern, term), value.gives | part.gives)


def _pairs(left: Term, right: Term) -> Iterator[tuple[Term, Term]]:
    if isinstance(left, Array) and isinstance(right, Array) and len(left.items) == len(right.items):
        for one, other in zip(left.items, right.items, strict=True):
            yield from _pairs(one, other)
        return
    if isinstance(left, ObjectLiteral) and isinstance(right, ObjectLiteral) and len(left.pairs) == len(right.pairs):
        ours = {key.value: value for key, value in left.pairs if isinstance(key, Scalar)}
        theirs = {key.value: value for key, value in right.pairs if isinstance(key, Scalar)}
        if len(ours) == len(left.pairs) and ours.keys() == theirs.keys():
            for key, value in ours.items():
                yield from _pairs(value, theirs[key])
            return
    yield left, right


def in_expr(expr: Expr, bound: frozenset[str]) -> Vars:  # noqa: C901 - one branch for each kind
    """Return what an expression needs and gives."""
    found = NOTHING
    for each in expr.withs:
        found |= in_term(each.value, bound)
    if isinstance(expr, Holds):
        found |= in_term(expr.term, bound)
    elif isinstance(expr, Unify):
        found |= unification(expr.left, expr.right, bound)[1]
    elif isinstance(expr, SomeIn):
        found |= in_term(expr.domain, bound)
        for pattern in (expr.key, expr.value):
            if pattern is not None:
                found |= in_pattern(pattern, bound)
    elif isinstance(expr, Every):
        found |= in_term(expr.domain, bound)
        found |= Vars(expr.free - bound, EMPTY)
    elif isinstance(expr, Logic) or (isinstance(expr, Not) and expr.closure):
        found |= Vars(expr.free - bound, EMPTY)
    elif isinstance(expr, Not):
        for inner in expr.body:
            within = in_expr(inner, bound)
            found |= Vars(within.needs | within.gives, EMPTY)
    return _settled(found)


class Safety:
    """Orders the bodies of rules in place, and collects what is unsafe."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.count = 0

    def parts(self, expr: Expr) -> list[Expr]:
        """Return an expression, with what is evaluated before it if it is a negation."""
        return negation.references_first(expr, self.kept) if isinstance(expr, Not) and expr.eager else [expr]

    def kept(self, term: Term) -> Var:
        """Make a variable for what a reference gives."""
        self.count += 1
        return Var(term.at, f"reference$.{self.count}")

    def rule(self, rule: Rule) -> None:
        """Order a rule and its elses."""
        branch: Rule | None = rule
        args = frozenset(arg.name for arg in rule.args or [] if isinstance(arg, Var))
        while branch is not None:
            bound = self.body(branch.body, args)
            for head in (*branch.path, branch.member, branch.value):
                if head is not None:
                    self.head(head, bound)
            branch = branch.otherwise

    def head(self, term: Term, bound: frozenset[str]) -> None:
        """Check a term that is evaluated when a body holds."""
        found = in_term(term, bound)
        self.unsafe(found.needs, term.at)
        self.closures(term, bound | found.gives)

    def body(self, body: list[Expr], bound: frozenset[str]) -> frozenset[str]:
        """Put a body in order; return what is bound after it."""
        waiting = list(body)
        placed: list[Expr] = []
        while waiting:
            left: list[Expr] = []
            for expr in waiting:
                found = in_expr(expr, bound)
                if found.needs:
                    left.append(expr)
                else:
                    self.inside(expr, bound)
                    bound |= found.gives
                    placed += self.parts(expr)
            if len(left) == len(waiting):
                for expr in left:
                    self.unsafe(in_expr(expr, bound).needs, expr.at)
                break
            waiting = left
        body[:] = placed
        return bound

    def unsafe(self, names: frozenset[str], at: Location) -> None:
        """Record variables that never get a value."""
        for name in sorted(names):
            written = name.rpartition(".")[0]
            written = "_" if written.startswith("_$") else written
            fault = Fault(at, UNSAFE, f"var {written} is unsafe")
            if fault not in self.faults:
                self.faults.append(fault)

    def inside(self, expr: Expr, bound: frozenset[str]) -> None:
        """Order the closures of an expression that has its place."""
        for each in expr.withs:
            self.closures(each.value, bound)
        if isinstance(expr, Holds):
            self.closures(expr.term, bound | in_term(expr.term, bound).gives)
        elif isinstance(expr, Unify):
            bound |= in_expr(expr, bound).gives
            self.closures(expr.left, bound)
            self.closures(expr.right, bound)
        elif isinstance(expr, SomeIn):
            self.closures(expr.domain, bound)
        elif isinstance(expr, Every):
            self.closures(expr.domain, bound)
            self.body(expr.body, bound | {var.name for var in (expr.key, expr.value) if var is not None})
        elif isinstance(expr, Not):
            self.body(expr.body, bound)
        elif isinstance(expr, Logic):
            for operand in expr.operands:
                self.body(operand, bound)

    def closures(self, term: Term, bound: frozenset[str]) -> None:  # noqa: C901 - one branch for each kind
        """Order the closures in a term."""
        if isinstance(term, Ref):
            self.closures(term.head, bound)
            for part in term.path:
                self.closures(part, bound)
        elif isinstance(term, Array | SetLiteral):
            for item in term.items:
                self.closures(item, bound)
        elif isinstance(term, ObjectLiteral):
            for key, value in term.pairs:
                self.closures(key, bound)
                self.closures(value, bound)
        elif isinstance(term, Call):
            for arg in term.args:
                self.closures(arg, bound)
        elif isinstance(term, Comprehension):
            inner = self.body(term.body, bound)
            for head in (term.key, term.value):
                if head is not None:
                    self.head(head, inner)
        elif isinstance(term, Template):
            bodies = [part for part in term.parts if not isinstance(part, str)]
            for body, value in zip(bodies, term.values, strict=True):
                self.head(value, self.body(body, bound))
