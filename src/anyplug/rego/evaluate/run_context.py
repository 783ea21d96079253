"""The runtime of compiled policies: the state of one evaluation, look-ups, iteration, and views of the data tree."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from anyplug.rego.evaluate.merge import merge, overlay, put
from anyplug.rego.evaluate.rule_tree import Node
from anyplug.rego.values.rego_errors import (
    BuiltinError,
    BuiltinFailed,
    ConflictError,
    Exhausted,
    Location,
    NotSupported,
)
from anyplug.rego.values.values import FALSE, TRUE, Object, Set, ordered

Path = tuple[Any, ...]
CHUNK: Final = 256  # steps between two looks at the clock
DEFAULT_STEPS: Final = 20_000_000  # of one evaluation: some seconds, far more than any policy needs
COPIED: Final = 64  # steps that go along into the context of a `with`
ONCE: Final = (0,)
MISSING: Final = object()
COLLECTIONS: Final[frozenset[Any]] = frozenset({tuple, Object, Set})


class Meter:
    """What an evaluation may still use, shared by everything that belongs to it."""

    __slots__ = ("deadline", "steps")

    def __init__(self, steps: int, seconds: float | None) -> None:
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.steps = steps

    def refill(self, over: int) -> int:
        """Return the next steps, if there are any and there is time; `over` of them are used already."""
        self.steps -= CHUNK + over
        if self.steps < 0:
            msg = "the policy takes too many steps"
            raise Exhausted(msg)
        if self.deadline is not None and time.monotonic() > self.deadline:
            msg = "the policy takes too much time"
            raise Exhausted(msg)
        return CHUNK


class Context:
    """One evaluation under one input: `with` creates another."""

    __slots__ = (
        "data", "failures", "fired", "input", "left", "locations", "memo", "meter", "mocks", "now", "outer", "patches",
        "printed", "strict", "tree",
    )  # fmt: skip

    def __init__(self, tree: Node, input: Any, data: Object, meter: Meter, *, strict: bool) -> None:
        self.tree = tree
        self.input = input
        self.data = data
        self.meter = meter
        self.strict = strict
        self.memo: dict[Any, Any] = {}
        self.mocks: dict[tuple[str, ...], Any] = {}
        self.patches: tuple[Path, ...] = ()
        self.outer = self  # the evaluation that `with` stands in
        self.left = 0
        self.now: dict[str, Any] = {}  # what must stay the same during an evaluation, such as the time
        self.failures: list[tuple[str, str, Location]] = []
        self.printed: list[str] = []
        self.fired: dict[int, None] = {}  # bodies that held, if the policies are traced
        self.locations: list[Location] = []

    # Bounds.

    def spend(self, steps: int) -> None:
        """Count steps. Raises Exhausted."""
        self.left -= steps
        if self.left < 0:
            self.left = self.meter.refill(-self.left)

    # With.

    def under(
        self, replaced: Iterable[tuple[Path, Any]], mocks: Iterable[tuple[tuple[str, ...], Any, int]]
    ) -> "Context":
        """Return the context in which `with` has its effect: values by path, and functions by name."""
        made = self.copy()
        for path, value in replaced:
            if path[0] == "input":
                made.input = put(made.input, path[1:], value)
            else:
                made.data = put(made.data, path[1:], value)
                made.patches = (*made.patches, path[1:])
        if mocks:
            made.mocks = {**self.mocks, **{name: (value, kind) for name, value, kind in mocks}}
        return made

    def copy(self) -> "Context":
        """Return the same state, with nothing remembered."""
        made = Context(self.tree, self.input, self.data, self.meter, strict=self.strict)
        made.mocks, made.patches, made.left, made.now = self.mocks, self.patches, COPIED, self.now
        self.spend(COPIED)
        made.failures, made.printed, made.locations = self.failures, self.printed, self.locations
        made.fired = self.fired
        return made

    def unmocked(self) -> "Context":
        """Return the context in which a mock runs: it calls the originals."""
        made = self.copy()
        made.mocks = {}
        return made

    def patched(self, path: Path) -> bool:
        """Return whether `with` replaced what lies at a path, or above it."""
        return any(path[: len(patch)] == patch for patch in self.patches)

    # What generated code calls when something goes wrong.

    def failed(self, error: BuiltinError, name: str, where: int) -> None:
        """Record that a builtin failed: undefined, or the end of a strict evaluation."""
        at = self.locations[where]
        message = f"{name}: {error}"
        if self.strict:
            raise BuiltinFailed(message, at, error.code)
        self.failures.append((message, error.code, at))

    def conflict(self, message: str, where: int) -> ConflictError:
        """Make the error for two values where one may be."""
        return ConflictError(message, self.locations[where])

    def refused(self, name: str, where: int) -> NotSupported:
        """Make the error for a builtin that exists only to be replaced."""
        return NotSupported(f"the builtin {name} is not supported", self.locations[where])

    # Mocked calls.

    def call(self, name: tuple[str, ...], original: Callable[..., Any], *args: Any) -> Any:
        """Call a function or builtin that some `with` may replace; the original takes this context first."""
        mock = self.mocks.get(name)
        if mock is None:
            return original(self, *args)
        value, kind = mock
        if not kind:
            return value
        return value(self.unmocked(), *args)

    # The data tree.

    def rule(self, node: Node) -> Any:
        """Evaluate the rules of a node that `with` may have replaced."""
        if self.patched(node.path):
            return self.base(node.path)
        return node.evaluate(self) if node.evaluate is not None else None

    def base(self, path: Path) -> Any:
        """Look up a document below `data`."""
        value: Any = self.data
        for part in path:
            value = look(value, part)
            if value is None:
                return None
        return value

    def view(self, node: Node) -> Any:
        """Return a node of the tree, to be gone through."""
        if self.patches and self.patched(node.path):
            return self.base(node.path)
        dynamic = node.dynamic(self) if node.dynamic is not None else None
        return View(self, node, self.base(node.path), dynamic, node.depths)

    def extent(self, node: Node) -> Any:
        """Return everything below a node as one object."""
        found = self.memo.get(node.path)
        if found is None:
            found = self.memo[node.path] = force(self.view(node))
        return found


class View:
    """A node of the data tree where rules and documents meet: nothing is evaluated before it is asked for."""

    __slots__ = ("base", "context", "depths", "dynamic", "node")

    def __init__(self, context: Context, node: Node, base: Any, dynamic: Any, depths: frozenset[int]) -> None:
        self.context = context
        self.node = node
        self.base = base
        self.dynamic = dynamic
        self.depths = depths  # below here, at which what partial rules give is a value and no longer a path

    def known(self) -> tuple[Any, ...]:
        """Return the keys that something may be found under."""
        found = dict.fromkeys(self.node.children)
        for more in (self.base, self.dynamic):
            if more.__class__ is Object:
                found.update(dict.fromkeys(more))
        return ordered(found)

    def step(self, key: Any) -> Any:
        """Go down by a key: another view, a value, or None."""
        dynamic = self.dynamic.get(key) if self.dynamic.__class__ is Object else None
        child = self.node.children.get(key)
        if child is None:
            return dynamic if dynamic is not None else look(self.base, key)
        context = self.context
        if context.patches and context.patched(child.path):
            return context.base(child.path)
        if child.evaluate is not None:
            value = child.evaluate(context)
            return value if dynamic is None else merge(value, dynamic)
        if child.function:
            return dynamic
        depths = frozenset(depth - 1 for depth in self.depths)
        if dynamic is not None and 0 in depths and child.children:
            msg = "object keys must be unique"
            raise ConflictError(msg)
        if child.dynamic is not None:
            dynamic = merge(child.dynamic(context), dynamic)
            depths |= child.depths
        return View(context, child, look(self.base, key), dynamic, depths)

    def extent(self) -> Object:
        """Return everything below as one object; documents win over rules."""
        made: dict[Any, Any] = {}
        for key in self.node.children:
            value = self.step(key)
            if value is not None:
                made[key] = value.extent() if value.__class__ is View else value
        if self.dynamic.__class__ is Object:
            for key, value in self.dynamic.items():
                made.setdefault(key, value)
        found = Object(made)
        return overlay(found, self.base) if self.base.__class__ is Object else found


def force(value: Any) -> Any:
    """Return the value that a view is."""
    return value.extent() if value.__class__ is View else value


def look(value: Any, key: Any) -> Any:
    """Look up a key in any value; None is undefined."""
    kind = value.__class__
    if kind is Object:
        return value.get(key)
    if kind is tuple:
        if key.__class__ is int and 0 <= key < len(value):
            return value[key]
        return None
    if kind is Set:
        return key if key in value else None
    if kind is View:
        return value.step(key)
    return None


def look_stored(value: Any, key: Any) -> Any:
    """Look up a key in a document below `data`, where an object's key may also be asked for as a number."""
    found = look(value, key)
    if found is None and key.__class__ is int and value.__class__ is Object:
        return value.get(str(key))
    return found


def pairs(context: Context, value: Any) -> Iterable[tuple[Any, Any]]:
    """Go through keys and values of any collection; of nothing else there are any."""
    kind = value.__class__
    if kind is tuple:
        found: Any = enumerate(value)
        size = len(value)
    elif kind is Object:
        found = value.pairs()
        size = len(found)
    elif kind is Set:
        found = [(item, item) for item in value.ordered()]
        size = len(found)
    elif kind is View:
        found = [(key, inner) for key in value.known() if (inner := value.step(key)) is not None]
        size = len(found)
    else:
        return ()
    context.left -= size
    if context.left < 0:
        context.spend(0)
    return found  # type: ignore[no-any-return]


def members(context: Context, value: Any) -> Iterable[Any]:
    """Go through the values of any collection."""
    kind = value.__class__
    if kind is tuple:
        found = value
    elif kind is Set:
        found = value.ordered()
    elif kind is Object:
        found = [value[key] for key in value.ordered()]
    elif kind is View:
        found = [inner for key in value.known() if (inner := value.step(key)) is not None]
    else:
        return ()
    context.left -= len(found)
    if context.left < 0:
        context.spend(0)
    return found  # type: ignore[no-any-return]


def member(value: Any, collection: Any) -> Any:
    """`value in collection`."""
    kind = collection.__class__
    if kind is tuple or kind is Set:
        return TRUE if value in collection else FALSE
    if kind is Object:
        return TRUE if value in collection.values() else FALSE
    return FALSE


def member_at(key: Any, value: Any, collection: Any) -> Any:
    """`key, value in collection`."""
    found = look(collection, key) if collection.__class__ in COLLECTIONS else None
    return TRUE if found is not None and found == value else FALSE


def add_at(made: dict[Any, Any], path: Path, value: Any, context: Context, where: int) -> None:
    """Put what a partial rule gives under its path, in a tree of dicts that nobody else has yet."""
    for part in path[:-1]:
        made = made.setdefault(part, {})
        if made.__class__ is not dict:
            raise context.conflict("object keys must be unique", where)
    found = made.setdefault(path[-1], value)
    if found is not value and (found.__class__ is dict or found != value):
        raise context.conflict("object keys must be unique", where)


def add_member_at(made: dict[Any, Any], path: Path, value: Any, context: Context, where: int) -> None:
    """Put a member into a partial set under a path."""
    for part in path[:-1]:
        made = made.setdefault(part, {})
        if made.__class__ is not dict:
            raise context.conflict("object keys must be unique", where)
    found = made.setdefault(path[-1], set())
    if found.__class__ is not set:
        raise context.conflict("object keys must be unique", where)
    found.add(value)
