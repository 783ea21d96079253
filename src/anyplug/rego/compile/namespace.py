"""The names that generated code refers to: constants, builtins, nodes of the tree, and the functions themselves."""

from collections.abc import Callable
from typing import Any, Final

from anyplug.rego import builtins
from anyplug.rego.builtins.operators import ORDERINGS
from anyplug.rego.evaluate import run_context
from anyplug.rego.evaluate.merge import frozen
from anyplug.rego.evaluate.rule_tree import Node
from anyplug.rego.parse.tree import With
from anyplug.rego.values.rego_errors import BuiltinError, Location
from anyplug.rego.values.text import rego_text
from anyplug.rego.values.values import EMPTY_SET, FALSE, NULL, TRUE, Object, Set


def shown(value: Any) -> str:
    """Show a value in a template string."""
    if value is None:
        return "<undefined>"
    return value if value.__class__ is str else rego_text(value)


def holds(context: run_context.Context, name: str, where: int, *args: Any) -> bool:
    """Call a builtin whose quick form does not fit its arguments."""
    try:
        return builtins.TABLE[name].call(*args) is TRUE
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


class Namespace:
    """The names of one policy set's code, and what of it `with` may replace."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.locations: list[Location] = []  # the code has their numbers
        self.mocks: set[tuple[str, ...]] = set()
        self.patches: set[tuple[Any, ...]] = set()
        self._names: dict[str, Any] = dict(GIVEN)
        self._constants: dict[Any, str] = {}
        self._count = 0

    # What is asked while code is written.

    def constant(self, value: Any) -> str:
        """Return the name of a constant."""
        key = (value.__class__, repr(value)) if not isinstance(value, str) else (str, value)
        name = self._constants.get(key)
        if name is None:
            self._count += 1
            name = self._constants[key] = f"K{self._count}"
            self._names[name] = value
        return name

    def location(self, at: Location) -> int:
        """Return the number of a place."""
        self.locations.append(at)
        return len(self.locations) - 1

    def builtin(self, name: tuple[str, ...], *, adapted: bool = False) -> tuple[str, bool, bool]:
        """Return a builtin's name in the code, whether it takes the context, and whether it gives several answers."""
        found = builtins.TABLE[".".join(name)]
        code = "b_" + "_".join(name) + ("_adapted" if adapted else "")
        if code not in self._names:
            self._names[code] = found.adapted if adapted else found.call
        return code, found.context, found.many

    def node(self, node: Node) -> str:
        """Return the name of a node of the tree."""
        name = f"N{id(node)}"
        self._names[name] = node
        return name

    def replace(self, found: With) -> None:
        """Record what one `with` replaces."""
        if found.path[0] == "data":
            self.patches.add(found.path[1:])
        if found.path[0] != "input":
            self.mocks.add(found.path)

    def mocked(self, name: tuple[str, ...]) -> bool:
        """Return whether some `with` replaces a function; documents above it do, too."""
        return name in self.mocks

    def patched(self, path: tuple[Any, ...]) -> bool:
        """Return whether some `with` replaces a document at or above a path."""
        return any(path[: len(patch)] == patch for patch in self.patches)

    def forget_constants(self) -> None:
        """Release what is needed only while rules are written; the constants themselves stay."""
        self._constants.clear()

    # Code.

    def run(self, source: str) -> None:
        """Run generated code: it holds only names of ours and constants, whatever the policies say."""
        exec(compile(source, "<rego>", "exec"), self._names)  # noqa: S102 - see above

    def define_later(self, name: str, source: str) -> None:
        """Define a function whose code is run when it is first called: most policies of a set rarely are."""

        def first(*args: Any) -> Any:
            self.run(source)
            return self._names[name](*args)

        self._names[name] = first

    def named(self, name: str) -> Callable[[Any], Any]:
        """Return a function that calls what the code calls by that name, then or now."""
        names = self._names

        def evaluate(context: Any) -> Any:
            return names[name](context)

        return evaluate

    def query(self, lines: list[str]) -> Any:
        """Run code that defines a function `query`, and give that function."""
        self.run("\n".join(lines))
        return self._names.pop("query")
