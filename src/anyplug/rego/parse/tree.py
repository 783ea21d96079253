"""The syntax tree of a policy: packages, rules, expressions, terms.

Terms have values, expressions hold or do not, a body is a list of expressions. Nodes have a position.
"""

from typing import Any, Final

import msgspec

from anyplug.rego.values.rego_errors import Location

ROOTS: Final = frozenset({"data", "input"})  # the documents that every reference to one begins with


class Node(msgspec.Struct, eq=False):
    """Anything with a position."""

    at: Location


class Scalar(Node):
    """null, a boolean, a number or a string: already a value."""

    value: Any


class Var(Node):
    """A variable; after names are resolved, a local one with a unique name."""

    name: str


class Ref(Node):
    """A head (a variable, `data`, `input`, or any term) and a path."""

    head: "Term"
    path: "list[Term]"


class Array(Node):
    """[a, b]."""

    items: "list[Term]"


class SetLiteral(Node):
    """{a, b}."""

    items: "list[Term]"


class ObjectLiteral(Node):
    """{a: b}."""

    pairs: "list[tuple[Term, Term]]"


class Call(Node):
    """A builtin or a function: its dotted name as written, later its full path."""

    name: tuple[str, ...]
    args: "list[Term]"


class Comprehension(Node):
    """[value | body], {value | body} or {key: value | body}; kind is array, set or object."""

    kind: str
    key: "Term | None"
    value: "Term"
    body: "list[Expr]"
    free: frozenset[str] = frozenset()  # once names are resolved: the variables of bodies around it


class Template(Node):
    """A string with expressions in it."""

    parts: "list[str | list[Expr]]"  # an expression is kept as the body of what it gives
    values: "list[Term]"  # what each of these bodies gives
    free: frozenset[str] = frozenset()


Term = Scalar | Var | Ref | Array | SetLiteral | ObjectLiteral | Call | Comprehension | Template


class With(Node):
    """`with target as value`; once names are resolved, the target is `path`."""

    target: Ref | Var
    value: Term
    path: tuple[str, ...] = ()  # begins with input or data, else it names a builtin
    function: tuple[str, ...] = ()  # the function or builtin that stands in, if the value is one


class Expr(Node):
    """What every expression has."""

    withs: list[With]


class Holds(Expr):
    """A term that must be defined and not false."""

    term: Term


class Unify(Expr):
    """a = b; `assign` if it was written := and so declares its left side.

    `of_call` if it was written as a call with one argument more, which is its left side.
    """

    left: Term
    right: Term
    assign: bool = False
    of_call: bool = False


class SomeVars(Expr):
    """Some a, b."""

    names: list[Var]


class SomeIn(Expr):
    """Some key, value in domain."""

    key: Term | None
    value: Term
    domain: Term


class Every(Expr):
    """Every key, value in domain { body }."""

    key: Var | None
    value: Var
    domain: Term
    body: list[Expr]
    free: frozenset[str] = frozenset()


class Not(Expr):
    """Not an expression; `closure` if it was written with braces and may have its own variables.

    `eager` if its operands are evaluated before it, as they are without `import future.keywords.not`.
    """

    body: list[Expr]
    closure: bool
    free: frozenset[str] = frozenset()
    eager: bool = False


class Logic(Expr):
    """Bodies joined by `and` or by `or`."""

    operator: str
    operands: list[list[Expr]]
    free: frozenset[str] = frozenset()


class Rule(Node):
    """One rule, or one `else` of it.

    `path` is the head's reference; of a partial set the last part is `member`.
    """

    path: list[Term]
    args: list[Term] | None
    member: Term | None
    value: Term | None
    body: list[Expr]
    default: bool = False
    otherwise: "Rule | None" = None


class Import(Node):
    """`import path as alias`."""

    path: tuple[Any, ...]
    alias: str | None


class Annotation(Node):
    """One METADATA comment: its scope, what it says, and the line after it."""

    scope: str | None
    content: dict[str, Any]
    end_row: int


class Module(Node):
    """One file."""

    package: tuple[str, ...]
    imports: list[Import]
    rules: list[Rule]
    annotations: list[Annotation]
