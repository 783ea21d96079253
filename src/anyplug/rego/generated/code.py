"""The code of a compiled policy set: everything that evaluating it needs, in memory and as bytes.

Functions and builtins are loaded when they are first called: most policies of a set rarely are.
"""

import importlib
import marshal
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.builtins.builtin_table import TABLE
from anyplug.rego.builtins.operators import ORDERINGS
from anyplug.rego.evaluate import run_context
from anyplug.rego.evaluate.merge import frozen
from anyplug.rego.evaluate.rule_tree import Node
from anyplug.rego.values.rego_errors import BuiltinError, Location
from anyplug.rego.values.text import rego_text
from anyplug.rego.values.values import EMPTY_SET, FALSE, NULL, TRUE, Object, Set

ATOMS: Final = {"null": NULL, "false": FALSE, "true": TRUE}


def shown(value: Any) -> str:
    """Show a value in a template string."""
    if value is None:
        return "<undefined>"
    return value if value.__class__ is str else rego_text(value)


def holds(context: run_context.Context, call: Callable[..., Any], name: str, where: int, *args: Any) -> bool:
    """Call a builtin whose quick form does not fit its arguments."""
    try:
        return call(*args) is TRUE
    except BuiltinError as error:
        context.failed(error, name, where)
        return False


GIVEN: Final[dict[str, Any]] = {
    "BuiltinError": BuiltinError, "COLLECTIONS": run_context.COLLECTIONS,
    "COUNTED": frozenset({tuple, Object, Set, str}),
    "EMPTY_SET": EMPTY_SET, "FALSE": FALSE, "MISSING": run_context.MISSING, "NULL": NULL, "ONCE": run_context.ONCE,
    "Object": Object, "SEQUENCES": frozenset({tuple, Set}), "Set": Set, "TRUE": TRUE, "add_at": run_context.add_at,
    "add_member_at": run_context.add_member_at, "force": run_context.force, "frozen": frozen, "holds": holds,
    "look": run_context.look, "look_stored": run_context.look_stored, "member": run_context.member,
    "members": run_context.members, "pairs": run_context.pairs, "shown": shown, **ORDERINGS,
}  # fmt: skip


class Code:
    """The tree of rules, and the names that generated functions refer to."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.locations: list[Location] = []  # the functions have their numbers
        self.names: dict[str, Any] = dict(GIVEN)
        self._sources: dict[str, str | bytes] = {}  # of functions, as text or compiled
        self.constants: dict[str, Any] = {}
        self._builtins: dict[str, tuple[str, str, bool]] = {}  # by its name here: name, module, whether it is adapted
        self.nodes: dict[str, Node] = {}

    def constant(self, value: Any) -> str:
        """Name a constant."""
        name = f"K{len(self.constants)}"
        self.constants[name] = self.names[name] = value
        return name

    def node(self, node: Node) -> str:
        """Name a node of the tree."""
        name = f"N{id(node)}"
        self.nodes[name] = self.names[name] = node
        return name

    def builtin(self, name: str, module: str, *, adapted: bool) -> str:
        """Name a builtin, which is imported when it is first called; what is adapted takes the context first."""
        code = "b_" + name.replace(".", "_") + ("_adapted" if adapted else "")
        if code not in self._builtins:
            self._builtins[code] = (name, module, adapted)

            def first(*args: Any) -> Any:
                importlib.import_module(module)
                found = TABLE[name]
                self.names[code] = call = found.adapted if adapted else found.call
                return call(*args)

            self.names[code] = first
        return code

    def function(self, name: str, source: str | bytes) -> None:
        """Define a function by its source, which is run when it is first called."""
        self._sources[name] = source

        def first(*args: Any) -> Any:
            self.run(source)
            return self.names[name](*args)

        self.names[name] = first

    def named(self, name: str) -> Callable[[Any], Any]:
        """Return a function that calls what the code calls by that name, then or now."""
        names = self.names

        def evaluate(context: Any) -> Any:
            return names[name](context)

        return evaluate

    def run(self, source: str | bytes) -> None:
        """Run generated code: it holds only names of ours and constants, whatever the policies say."""
        code = compile(source, "<rego>", "exec") if isinstance(source, str) else marshal.loads(source)  # noqa: S302 - ours
        exec(code, self.names)  # noqa: S102 - see above

    def plain(self, path: str) -> Node | None:
        """Return the node whose rules alone say what a reference such as data.a.b is; None if it is not as simple."""
        root, *parts = path.split(".")
        if root != "data" or not all(map(str.isidentifier, parts)):
            return None
        node = self.root
        for part in parts:
            if node.evaluate is not None or node.dynamic is not None or (found := node.children.get(part)) is None:
                return None
            node = found
        return node if node.evaluate is not None else None

    def packed(self) -> bytes:
        """Return the code as bytes, for the Python that runs."""
        nodes = list(self.root.nodes())
        numbers = {id(node): number for number, node in enumerate(nodes)}
        return marshal.dumps(
            (
                [(_packed(node.path), node.calls, node.called_partially, node.function, node.depths) for node in nodes],
                {name: _compiled(source) for name, source in self._sources.items()},
                {name: _packed(value) for name, value in self.constants.items()},
                self._builtins,
                {name: numbers[id(node)] for name, node in self.nodes.items()},
                [(where.file, where.row, where.col) for where in self.locations],
            )
        )


def unpacked(content: bytes) -> Code:
    """Make code of its bytes, which must be our own. Raises whatever is wrong with them."""
    nodes, sources, constants, builtins, numbers, locations = marshal.loads(content)  # noqa: S302 - see above
    code = Code(Node(()))
    made: list[Node] = []
    for path, calls, partially, function, depths in nodes:
        node = code.root
        for part in _unpacked(path):
            node = node.child(part)
        node.function, node.depths = function, depths
        node.take(code.named, calls, partially)
        made.append(node)
    for name, source in sources.items():
        code.function(name, source)
    for name, value in constants.items():
        code.constants[name] = code.names[name] = _unpacked(value)
    for name, module, adapted in builtins.values():
        code.builtin(name, module, adapted=adapted)
    for name, number in numbers.items():
        code.nodes[name] = code.names[name] = made[number]
    code.locations = [Location(*where) for where in locations]
    return code


def _compiled(source: str | bytes) -> str | bytes:
    """Compile a source; what Python cannot compile stays as it is, and fails when it is called."""
    try:
        return marshal.dumps(compile(source, "<rego>", "exec")) if isinstance(source, str) else source
    except (SyntaxError, RecursionError, MemoryError):
        return source


def _packed(value: Any) -> Any:
    """Return a value as what `marshal` writes: texts and integers as they are, all else with its kind."""
    kind = value.__class__
    if kind is str or kind is int:
        return value
    if kind is tuple:
        return ("array", *map(_packed, value))
    if kind is Set:
        return ("set", *map(_packed, value.ordered()))
    if kind is Object:
        return ("object", *(_packed(each) for pair in value.items() for each in pair))
    return ("number", str(value)) if kind is Decimal else ("atom", value.text)


def _unpacked(packed: Any) -> Any:
    if packed.__class__ is not tuple:
        return packed
    kind, *rest = packed
    if kind in {"number", "atom"}:
        return Decimal(rest[0]) if kind == "number" else ATOMS[rest[0]]
    items = tuple(map(_unpacked, rest))
    if kind == "array":
        return items
    return Set(items) if kind == "set" else Object(zip(items[::2], items[1::2], strict=True))
