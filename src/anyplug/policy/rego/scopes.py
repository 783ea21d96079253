"""Scopes: which variables a body has, and which of them it mentions."""

from collections.abc import Callable, Iterator

from anyplug.policy.rego import walk
from anyplug.policy.rego.syntax import Array, Call, Expr, Not, ObjectLiteral, Ref, SetLiteral, Term, Var


class Scope:
    """The variables of one body, inside another."""

    def __init__(self, parent: "Scope | None") -> None:
        self.parent = parent
        self.names: dict[str, str] = {}  # as written → its own name
        self.declared: set[str] = set()  # as written, like the next
        self.used: set[str] = set()
        self.own: set[str] = set()  # by their own names, like the next
        self.mentioned: set[str] = set()  # also those of bodies around this one

    def find(self, name: str) -> str | None:
        """Look a name up, here and around."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                scope.used.add(name)
                return scope.names[name]
            scope = scope.parent
        return None

    def has(self, name: str) -> bool:
        """Whether a name is known, here or around."""
        return name in self.names or (self.parent is not None and self.parent.has(name))

    def leave(self) -> frozenset[str]:
        """Give the variables of bodies around this one that it mentions: the next of these mentions them, too."""
        free = frozenset(self.mentioned - self.own)
        if self.parent is not None:
            self.parent.mentioned |= free
        return free


def mentions(body: list[Expr], terms: list[Term], function: Callable[[Term], object]) -> Iterator[str]:
    """Give the variables that stand in a body itself, or in `terms`, and not in a closure.

    `function` says which values of `with` are no variables, but functions that stand in.
    """
    for expr in body:
        for each in expr.withs:
            if not function(each.value):
                yield from _vars(each.value)
        for term in walk.terms_of(expr):
            yield from _vars(term)
        if isinstance(expr, Not) and not expr.closure:
            yield from mentions(expr.body, [], function)
    for term in terms:
        yield from _vars(term)


def _vars(term: Term) -> Iterator[str]:
    """Give the variables of a term that do not stand in closures."""
    if isinstance(term, Var):
        yield term.name
    elif isinstance(term, Ref):
        yield from _vars(term.head)
        for part in term.path:
            yield from _vars(part)
    elif isinstance(term, Array | SetLiteral):
        for item in term.items:
            yield from _vars(item)
    elif isinstance(term, ObjectLiteral):
        for key, value in term.pairs:
            yield from _vars(key)
            yield from _vars(value)
    elif isinstance(term, Call):
        for arg in term.args:
            yield from _vars(arg)
