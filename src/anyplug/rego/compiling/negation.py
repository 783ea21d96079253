"""Negation as OPA evaluates it: what a negated expression is about comes first, outside the negation.

`not startswith(input.a, "x")` is read as `a := input.a; not startswith(a, "x")`, so a body with an undefined operand
does not hold. Only the outermost call, a reference that is negated itself, and the sides of `==` and `=` are evaluated
inside. With `import future.keywords.not` everything is, and none of this applies. OPA takes calls out before it looks
for unsafe variables, and references after that.
"""

from collections.abc import Callable
from typing import Final

from anyplug.rego.parse.tree import (  # fmt: skip
    Array,
    Call,
    Expr,
    Holds,
    Not,
    ObjectLiteral,
    Ref,
    Scalar,
    SetLiteral,
    Term,
    Unify,
    Var,
    With,
)

EQUAL: Final = ("equal",)

Fresh = Callable[[Term], Var]
Take = Callable[[Term], Term]


def calls_first(expr: Not, fresh: Fresh) -> list[Expr]:
    """Take nested calls out of a negation; return what is evaluated in its place, one after another."""
    first = _Eager(fresh)

    def take(term: Term) -> Term:
        if isinstance(term, Ref):
            head = term.head if isinstance(term.head, Var) else first.keep(_within(term.head, take))
            return Ref(term.at, head, [take(part) for part in term.path])
        made = _within(term, take)
        return first.keep(made) if isinstance(term, Call) else made

    def outermost(term: Term) -> Term:
        return _within(term, take) if isinstance(term, Call) else take(term)

    inner = expr.body[0]
    if isinstance(inner, Holds):
        made: Expr = Holds(inner.at, inner.withs, outermost(inner.term))
    elif isinstance(inner, Unify) and not inner.assign:
        right = outermost(inner.right) if inner.of_call else take(inner.right)
        made = Unify(inner.at, inner.withs, take(inner.left), right, of_call=inner.of_call)
    else:
        return [expr]
    return first.before(expr, made, fresh)


def references_first(expr: Not, fresh: Fresh) -> list[Expr]:
    """Take references out of a negation whose calls have been taken out, and whose variables are safe."""
    first = _Eager(fresh)

    def take(term: Term) -> Term:
        made = _within(term, take)
        return first.keep(made) if isinstance(made, Ref) else made

    def outermost(term: Term) -> Term:
        return _within(term, take) if isinstance(term, Ref) else take(term)

    inner = expr.body[0]
    if isinstance(inner, Holds) and isinstance(inner.term, Call):
        call = inner.term
        made: Expr = Holds(
            inner.at,
            inner.withs,
            Call(call.at, call.name, list(map(outermost if call.name == EQUAL else take, call.args))),
        )
    elif isinstance(inner, Holds):
        made = Holds(inner.at, inner.withs, outermost(inner.term))
    elif isinstance(inner, Unify) and not inner.assign:
        left = take(inner.left) if inner.of_call else outermost(inner.left)
        made = Unify(inner.at, inner.withs, left, outermost(inner.right), of_call=inner.of_call)
    else:
        return [expr]
    return first.before(expr, made, fresh)


class _Eager:
    """What is evaluated before a negation."""

    def __init__(self, fresh: Fresh) -> None:
        self._fresh = fresh
        self._found: list[tuple[Var, Term]] = []

    def keep(self, term: Term) -> Var:
        self._found.append((self._fresh(term), term))
        return self._found[-1][0]

    def before(self, expr: Not, inner: Expr, fresh: Fresh) -> list[Expr]:
        if not self._found:
            return [expr]
        made: list[Expr] = []
        withs: list[With] = []
        for each in (*expr.withs, *inner.withs):
            if isinstance(each.value, Scalar | Var) or each.function:
                withs.append(each)
                continue
            value = fresh(each.value)
            made.append(Unify(each.at, [], value, each.value))
            withs.append(With(each.at, each.target, value, each.path, each.function))
        inner.withs = []
        made += [Unify(term.at, withs, var, term) for var, term in self._found]
        return [*made, Not(expr.at, withs, [inner], closure=False, eager=True)]


def _within(term: Term, take: Take) -> Term:
    """Return a term with its parts replaced; closures stay as they are."""
    if isinstance(term, Ref):
        return Ref(term.at, term.head, [take(part) for part in term.path])
    if isinstance(term, Array):
        return Array(term.at, list(map(take, term.items)))
    if isinstance(term, SetLiteral):
        return SetLiteral(term.at, list(map(take, term.items)))
    if isinstance(term, ObjectLiteral):
        return ObjectLiteral(term.at, [(take(key), take(value)) for key, value in term.pairs])
    return Call(term.at, term.name, list(map(take, term.args))) if isinstance(term, Call) else term
