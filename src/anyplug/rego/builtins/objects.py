"""Objects: look-ups, unions, subsets, and what is removed or filtered by paths."""

from typing import Any, Final

from anyplug.rego.builtins.builtin_table import ANY, KEYS, OBJECT, builtin, wrong
from anyplug.rego.evaluate.run_context import look
from anyplug.rego.values.rego_errors import OperandError
from anyplug.rego.values.values import Object, Set, boolean, type_name

PATHS: Final = "one of {set, array} containing string paths or array of path segments"


@builtin("object.get", OBJECT, ANY, ANY)
def object_get(value: Any, key: Any, default: Any) -> Any:
    """Look up a key, or a path of keys."""
    if key.__class__ is not tuple:
        found = value.get(key)
        return default if found is None else found
    for part in key:
        value = look(value, part)
        if value is None:
            return default
    return value


@builtin("object.keys", OBJECT)
def object_keys(value: Any) -> Any:
    """Return the keys."""
    return Set(value)


def _keys(value: Any) -> set[Any]:
    return set(value)


@builtin("object.remove", OBJECT, KEYS)
def object_remove(value: Any, keys: Any) -> Any:
    """Leave keys out."""
    away = _keys(keys)
    return Object({key: item for key, item in value.items() if key not in away})


@builtin("object.filter", OBJECT, KEYS)
def object_filter(value: Any, keys: Any) -> Any:
    """Leave all but some keys out."""
    kept = _keys(keys)
    return Object({key: item for key, item in value.items() if key in kept})


@builtin("object.union", OBJECT, OBJECT)
def object_union(left: Any, right: Any) -> Any:
    """Merge two objects, deeply; the second wins."""
    made = dict(left)
    for key, value in right.items():
        ours = made.get(key)
        made[key] = object_union(ours, value) if ours.__class__ is Object and value.__class__ is Object else value
    return Object(made)


@builtin("object.union_n", frozenset({tuple}))
def object_union_n(objects: Any) -> Any:
    """Merge objects, deeply; later ones win."""
    made = Object()
    for index, each in enumerate(objects):
        if each.__class__ is not Object:
            msg = f"operand 1 must be array of objects but got array containing {type_name(each)} at {index}"
            raise OperandError(msg)
        made = object_union(made, each)
    return made


@builtin("object.subset", ANY, ANY)
def object_subset(whole: Any, part: Any) -> Any:
    """Return whether an object, set or array has everything that another has."""
    kinds = (whole.__class__, part.__class__)
    if kinds == (Object, Object):
        return boolean(_has(whole, part))
    if kinds == (Set, Set):
        return boolean(part <= whole)
    if kinds == (tuple, tuple):
        size = len(part)
        return boolean(any(whole[at : at + size] == part for at in range(len(whole) - size + 1)))
    if kinds == (tuple, Set):
        # As OPA counts: an item of the array that is there twice stands for two of the set.
        return boolean(whole and sum(item in part for item in whole) >= len(part))
    msg = "both arguments object.subset must be of the same type or array and set"
    raise OperandError(msg)


def _has(whole: Any, part: Any) -> bool:
    if whole.__class__ is Object and part.__class__ is Object:
        return all(key in whole and _has(whole[key], value) for key, value in part.items())
    if whole.__class__ is Set and part.__class__ is Set:
        return bool(part <= whole)
    if whole.__class__ is tuple and part.__class__ is tuple:
        size = len(part)
        return any(whole[at : at + size] == part for at in range(len(whole) - size + 1))
    return bool(whole == part)


# Paths.


def unescape(part: str) -> str:
    """Return what a part of a JSON pointer means."""
    return part.replace("~1", "/").replace("~0", "~")


def _paths(value: Any) -> list[tuple[Any, ...]]:
    """Read the second operand of json.filter and json.remove."""
    if value.__class__ not in {tuple, Set}:
        raise wrong(2, "one of {set, array}", value)
    found: list[tuple[Any, ...]] = []
    for path in value.ordered() if value.__class__ is Set else value:
        if path.__class__ is tuple:
            found.append(path)
        elif path.__class__ is str:
            found.append(tuple(unescape(part) for part in path.lstrip("/").split("/")) if path else ())
        else:
            raise wrong(2, PATHS, path)
    return found


def _trie(paths: list[tuple[Any, ...]]) -> dict[Any, Any]:
    """Join paths into a tree; one that another begins with ends there."""
    root: dict[Any, Any] = {}
    for path in paths:
        node: dict[Any, Any] | None = root
        for part in path[:-1]:
            following = node.setdefault(part, {})  # type: ignore[union-attr]
            if following is None:
                node = None
                break
            node = following
        if node is not None and path:
            node[path[-1]] = None
    return root


def _index(key: Any) -> Any:
    return int(key) if key.__class__ is str and key.isdigit() else key


@builtin("json.remove", OBJECT, ANY)
def json_remove(value: Any, paths: Any) -> Any:
    """Leave out what lies at some paths."""
    return _removed(value, _trie(_paths(paths)))


def _removed(value: Any, away: dict[Any, Any]) -> Any:
    if value.__class__ is Object:
        return Object(
            {
                key: item if key not in away else _removed(item, away[key])
                for key, item in value.items()
                if key not in away or away[key] is not None
            }
        )
    if value.__class__ is Set:
        return Set(
            _removed(item, away[item]) if item in away else item
            for item in value
            if item not in away or away[item] is not None
        )
    if value.__class__ is tuple:
        found = []
        for index, item in enumerate(value):
            key = str(index)  # as in OPA: an index that is a number removes nothing
            if key not in away:
                found.append(item)
            elif away[key] is not None:
                found.append(_removed(item, away[key]))
        return tuple(found)
    return value


@builtin("json.filter", OBJECT, ANY)
def json_filter(value: Any, paths: Any) -> Any:
    """Leave out all but what lies at some paths."""
    return _filtered(value, _trie(_paths(paths)))


def _filtered(value: Any, kept: dict[Any, Any] | None) -> Any:
    if kept is None:
        return value
    if value.__class__ is Object:
        return Object({key: _filtered(item, kept[key]) for key, item in value.items() if key in kept})
    if value.__class__ is Set:
        return Set(_filtered(item, kept[item]) for item in value if item in kept)
    if value.__class__ is tuple:
        # OPA finds items by the text of their index only, not by its number.
        return tuple(_filtered(item, kept[str(index)]) for index, item in enumerate(value) if str(index) in kept)
    return value
