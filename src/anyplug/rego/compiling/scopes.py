"""Scopes: which variables a body has, and which of them it mentions."""

from collections.abc import Callable, Iterator

from anyplug.rego.parse import walk
from anyplug.rego.parse.tree import (
    Array,
    Call,
    Expr,
    Not,
    ObjectLiteral,
    Ref,
    SetLiteral,
    SomeIn,
    SomeVars,
    Term,
    Unify,
    Var,
)


class Scope:
    """The variables of one body, inside another."""

    def __init__(self, parent: "Scope | None") -> None:
        self.parent = parent
        self.names: dict[str, str] = {}  # as written → its own name
        self.declared: set[str] = set()  # as written, like the next
        self.used: set[str] = set()
        self.later: set[str] = set()  # declared further down: closures before that do not see them
        self.own: set[str] = set()  # by their own names, like the next
        self.mentioned: set[str] = set()  # also those of bodies around this one

    def find(self, name: str) -> str | None:
        """Look up a name, here and around."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or name not in scope.later):
                scope.used.add(name)
                return scope.names[name]
            scope = scope.parent
        return None

    def has(self, name: str) -> bool:
        """Return whether a name is known, here or around."""
        return name in self.names or (self.parent is not None and self.parent.shows(name))

    def shows(self, name: str) -> bool:
        """Return whether a closure at this point sees a name."""
        return (name in self.names and name not in self.later) or (self.parent is not None and self.parent.shows(name))

    def leave(self) -> frozenset[str]:
        """Return the variables of bodies around this one that it mentions: the next of these mentions them, too."""
        free = frozenset(self.mentioned - self.own)
        if self.parent is not None:
            self.parent.mentioned |= free
        return free


def declarations(body: list[Expr]) -> Iterator[str]:
    """Name the variables that the expressions of a body declare."""
    for expr in body:
        if isinstance(expr, Unify) and expr.assign:
            yield from _vars(expr.left)
        elif isinstance(expr, SomeVars):
            yield from (var.name for var in expr.names)
        elif isinstance(expr, SomeIn):
            yield from _vars(expr.value)
            if expr.key is not None:
                yield from _vars(expr.key)


def mentions(body: list[Expr], terms: list[Term], function: Callable[[Term], object]) -> Iterator[str]:
    """Return the variables that stand in a body itself, or in `terms`, and not in a closure.

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
    """Return the variables of a term that do not stand in closures."""
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
