"""Walks: through a document, and through graphs given as objects of lists."""

from typing import Any

from anyplug.rego.builtins.builtin_table import ANY, LIST, OBJECT, builtin
from anyplug.rego.evaluate.run_context import COLLECTIONS
from anyplug.rego.values.values import Object, Set


@builtin("walk", ANY, context=True, many=True)
def walk(context: Any, document: Any) -> Any:
    """Return every path and value of a document: policies walk through the same one again and again, so it is kept."""
    key = ("walk", id(document))
    found = context.memo.get(key)
    if found is None:
        steps: list[tuple[tuple[Any, ...], Any]] = []
        _walk(context, (), document, steps)
        found = context.memo[key] = (document, tuple(steps))  # with the document, so that its id stays its own
    else:
        context.spend(len(found[1]))
    return found[1]


def _walk(context: Any, path: tuple[Any, ...], value: Any, steps: list[tuple[tuple[Any, ...], Any]]) -> None:
    steps.append((path, value))
    pairs: Any = ()
    if isinstance(value, Object):
        pairs = value.pairs()
    elif isinstance(value, Set):
        pairs = [(item, item) for item in value.ordered()]
    elif isinstance(value, tuple):
        pairs = enumerate(value)
    context.spend(1 + len(path))
    for key, item in pairs:
        if item.__class__ in COLLECTIONS:
            _walk(context, (*path, key), item, steps)
        else:
            steps.append(((*path, key), item))


def _neighbours(value: Any) -> tuple[Any, ...]:
    if value.__class__ is tuple:
        return value
    return value.ordered() if value.__class__ is Set else ()


@builtin("graph.reachable", OBJECT, LIST, context=True)
def reachable(context: Any, graph: Any, starts: Any) -> Any:
    """Return every node that can be reached."""
    found: set[Any] = set()
    waiting = list(_neighbours(starts))
    while waiting:
        node = waiting.pop()
        if node in graph and node not in found:
            found.add(node)
            following = _neighbours(graph[node])
            context.spend(1 + len(following))
            waiting += following
    return Set(found)


@builtin("graph.reachable_paths", OBJECT, LIST, context=True)
def reachable_paths(context: Any, graph: Any, starts: Any) -> Any:
    """Return every path that ends where nothing new follows."""
    found: set[tuple[Any, ...]] = set()
    for start in _neighbours(starts):
        if start not in graph:
            continue
        waiting: list[tuple[Any, ...]] = [(start,)]
        while waiting:
            path = waiting.pop()
            neighbours = _neighbours(graph[path[-1]])
            # A start that leads to itself is followed once more, as in OPA.
            following = [node for node in neighbours if node in graph and (node not in path or len(path) == 1)]
            context.spend(1 + len(path) + len(following))
            waiting += [(*path, node) for node in following]
            if len(following) < len(neighbours) or not neighbours:
                found.add(path)
    return Set(found)
