"""What is asked while code is written: names for constants, builtins and nodes, and what of them `with` may replace."""

from typing import Any

from anyplug.rego.builtins import every
from anyplug.rego.evaluate.rule_tree import Node
from anyplug.rego.generated.code import Code
from anyplug.rego.parse.tree import With
from anyplug.rego.values.rego_errors import Location


class Namespace:
    """The names of one policy set's code, and what of it `with` may replace."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.code = Code(root)
        self.mocks: set[tuple[str, ...]] = set()
        self.patches: set[tuple[Any, ...]] = set()
        self._constants: dict[Any, str] = {}

    def constant(self, value: Any) -> str:
        """Return the name of a constant."""
        key = (value.__class__, repr(value)) if not isinstance(value, str) else (str, value)
        name = self._constants.get(key)
        if name is None:
            name = self._constants[key] = self.code.constant(value)
        return name

    def location(self, at: Location) -> int:
        """Return the number of a place."""
        self.code.locations.append(at)
        return len(self.code.locations) - 1

    def builtin(self, name: tuple[str, ...], *, adapted: bool = False) -> tuple[str, bool, bool]:
        """Return a builtin's name in the code, whether it takes the context, and whether it gives several answers."""
        found = every.TABLE[".".join(name)]
        return self.code.builtin(found.name, found.module, adapted=adapted), found.context, found.many

    def node(self, node: Node) -> str:
        """Return the name of a node of the tree."""
        return self.code.node(node)

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

    def query(self, lines: list[str]) -> Any:
        """Run code that defines a function `query`, and give that function."""
        self.code.run("\n".join(lines))
        return self.code.names.pop("query")
