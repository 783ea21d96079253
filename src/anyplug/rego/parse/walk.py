"""Walk syntax trees: every term and every expression of a rule."""

from anyplug.rego.parse.tree import (  # fmt: skip
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
    Term,
    Unify,
    Var,
    With,
)


def of_rule(rule: Rule) -> list[Term | With]:
    """Return every term and `with` of a rule and its elses."""
    found: list[Term | With] = []
    branch: Rule | None = rule
    while branch is not None:
        for term in (*branch.path, branch.member, branch.value):
            if term is not None:
                _term(term, found)
        _body(branch.body, found)
        branch = branch.otherwise
    return found


def of_body(body: list[Expr]) -> list[Term | With]:
    """Return every term and `with` of a body."""
    found: list[Term | With] = []
    _body(body, found)
    return found


def _body(body: list[Expr], found: list[Term | With]) -> None:
    for expr in body:
        for each in expr.withs:
            found.append(each)
            _term(each.value, found)
        for term in terms_of(expr):
            _term(term, found)
        for inner in _bodies(expr):
            _body(inner, found)


def terms_of(expr: Expr) -> list[Term]:
    """Return the terms of an expression itself: not those of its `with`s and of its bodies."""
    if isinstance(expr, Holds):
        return [expr.term]
    if isinstance(expr, Unify):
        return [expr.left, expr.right]
    if isinstance(expr, SomeIn):
        return [term for term in (expr.key, expr.value, expr.domain) if term is not None]
    return [expr.domain] if isinstance(expr, Every) else []


def _bodies(expr: Expr) -> list[list[Expr]]:
    if isinstance(expr, Every | Not):
        return [expr.body]
    return expr.operands if isinstance(expr, Logic) else []


def _term(term: Term, found: list[Term | With]) -> None:  # noqa: C901 - one branch for each kind
    found.append(term)
    inner: list[Term] = []
    if isinstance(term, Scalar | Var):
        return
    if isinstance(term, Ref):
        inner = term.path if isinstance(term.head, Var) else [term.head, *term.path]
    elif isinstance(term, Array | SetLiteral):
        inner = term.items
    elif isinstance(term, ObjectLiteral):
        inner = [each for pair in term.pairs for each in pair]
    elif isinstance(term, Call):
        inner = term.args
    elif isinstance(term, Comprehension):
        inner = [term.value] if term.key is None else [term.key, term.value]
        _body(term.body, found)
    else:
        for part in term.parts:
            if not isinstance(part, str):
                _body(part, found)
    for each in inner:
        if isinstance(each, Scalar):
            found.append(each)
        else:
            _term(each, found)
