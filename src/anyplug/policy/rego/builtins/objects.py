"""Objects and JSON documents: look-ups, unions, filters, patches, and what is written and read as JSON."""

import json
from typing import Any, Final

from anyplug.policy.rego import numbers
from anyplug.policy.rego.builtins.registry import ANY, KEYS, OBJECT, STRING, builtin, can_be_read, wrong
from anyplug.policy.rego.documents import from_json
from anyplug.policy.rego.errors import BuiltinError, NotSupported, OperandError
from anyplug.policy.rego.runtime import look
from anyplug.policy.rego.texts import json_indented, json_text
from anyplug.policy.rego.values import FALSE, TRUE, Object, Set, boolean, type_name

PATHS: Final = "one of {set, array} containing string paths or array of path segments"
MAX_TEXT: Final = 16 * 1024 * 1024  # characters of a document that is read
OPTIONS: Final = frozenset({"pretty", "indent", "prefix"})


@builtin("object.get", OBJECT, ANY, ANY)
def object_get(value: Any, key: Any, default: Any) -> Any:
    """Look a key up, or a path of keys."""
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
    """Give the keys."""
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
    made = Object(left)
    for key, value in right.items():
        ours = made.get(key)
        made[key] = object_union(ours, value) if ours.__class__ is Object and value.__class__ is Object else value
    return made


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
    """Whether an object, set or array has everything that another has."""
    kinds = (whole.__class__, part.__class__)
    if kinds == (Object, Object):
        return boolean(_has(whole, part))
    if kinds == (Set, Set):
        return boolean(part <= whole)
    if kinds == (tuple, tuple):
        size = len(part)
        return boolean(any(whole[at : at + size] == part for at in range(len(whole) - size + 1)))
    if kinds == (tuple, Set):
        return boolean(all(item in whole for item in part))
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


def _unescape(part: str) -> str:
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
            found.append(tuple(_unescape(part) for part in path.lstrip("/").split("/")) if path else ())
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
        made = Object()
        for key, item in value.items():
            if key not in away:
                made[key] = item
            elif away[key] is not None:
                made[key] = _removed(item, away[key])
        return made
    if value.__class__ is Set:
        return Set(
            _removed(item, away[item]) if item in away else item
            for item in value
            if item not in away or away[item] is not None
        )
    if value.__class__ is tuple:
        found = []
        for index, item in enumerate(value):
            key = index if index in away else str(index)
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
        return tuple(
            _filtered(item, kept[index] if index in kept else kept[str(index)])
            for index, item in enumerate(value)
            if index in kept or str(index) in kept
        )
    return value


# Patches.


@builtin("json.patch", ANY, frozenset({tuple}))
def json_patch(document: Any, patches: Any) -> Any:
    """Apply patches, as RFC 6902 has them; paths may also be arrays."""
    for patch in patches:
        if patch.__class__ is not Object:
            msg = (
                f"must be an array of JSON-Patch objects, but at least one element is not an object: {type_name(patch)}"
            )
            raise OperandError(msg)
        document = _patched(document, patch)
    return document


def _pointer(patch: Any, name: str) -> list[Any]:
    path = patch.get(name)
    if path.__class__ is str:
        if not path:
            return []
        return [_unescape(part) for part in path.removeprefix("/").split("/")]
    if path.__class__ is tuple:
        return list(path)
    msg = f"attribute '{name}' is missing or not a path"
    raise BuiltinError(msg)


def _patched(document: Any, patch: Any) -> Any:
    operation = patch.get("op")
    path = _pointer(patch, "path")
    if operation in {"add", "replace", "test"} and patch.get("value") is None:
        msg = f"missing required attribute 'value' for operation {operation}"
        raise BuiltinError(msg)
    if operation == "add":
        return _edit(document, path, patch["value"], "add")
    if operation == "replace":
        _found(document, path)
        return _edit(document, path, patch["value"], "replace")
    if operation == "remove":
        _found(document, path)
        return _edit(document, path, None, "remove")
    if operation == "test":
        if _found(document, path) != patch["value"]:
            msg = f"value from EditTree != patch value at {'/'.join(map(str, path))}"
            raise BuiltinError(msg)
        return document
    if operation in {"move", "copy"}:
        source = _pointer(patch, "from")
        value = _found(document, source)
        if operation == "move":
            document = _edit(document, source, None, "remove")
        return _edit(document, path, value, "add")
    msg = f"unrecognized op {operation!r}"
    raise BuiltinError(msg)


def _found(document: Any, path: list[Any]) -> Any:
    for part in path:
        document = look(document, _at(document, part))
        if document is None:
            msg = f"path {'/'.join(map(str, path))} does not exist"
            raise BuiltinError(msg)
    return document


def _at(document: Any, part: Any) -> Any:
    """Give the key that a part of a path means."""
    if document.__class__ is not tuple:
        return part
    if part == "-":
        return len(document)
    if part.__class__ is str and part.isdigit() and (part == "0" or part[0] != "0"):
        return int(part)
    if part.__class__ is int:
        return part
    msg = f"invalid array index {part!r}"
    raise BuiltinError(msg)


def _edit(document: Any, path: list[Any], value: Any, operation: str) -> Any:
    if not path:
        if operation == "remove":
            return None
        return value
    key, rest = _at(document, path[0]), path[1:]
    if rest:
        inner = look(document, key)
        if inner is None:
            msg = f"path {key!r} does not exist"
            raise BuiltinError(msg)
        changed = _edit(inner, rest, value, operation)
        if document.__class__ is Set:
            return Set((document - {inner}) | {changed})
        return _with(document, key, changed, "replace")
    return _with(document, key, value, operation)


def _with(document: Any, key: Any, value: Any, operation: str) -> Any:
    if document.__class__ is Object:
        if operation == "remove":
            return Object({name: item for name, item in document.items() if name != key})
        return Object({**document, key: value})
    if document.__class__ is Set:
        if operation == "remove":
            return Set(document - {key})
        if key not in {value, "-"}:
            msg = "a set's path must be the value that is added"
            raise BuiltinError(msg)
        return Set(document | {value})
    if document.__class__ is tuple:
        if key.__class__ is not int or not 0 <= key <= len(document) - (operation != "add"):
            msg = f"index {key} is out of bounds"
            raise BuiltinError(msg)
        if operation == "add":
            return (*document[:key], value, *document[key:])
        return (*document[:key], *(() if operation == "remove" else (value,)), *document[key + 1 :])
    msg = f"cannot go into a {type_name(document)}"
    raise BuiltinError(msg)


# Reading and writing.


def _no_constant(name: str) -> Any:
    msg = f"invalid character {name[0]!r} looking for beginning of value"
    raise BuiltinError(msg)


def read_json(text: str) -> Any:
    """Read a JSON document. Raises BuiltinError for what is none."""
    if len(text) > MAX_TEXT:
        msg = f"a document of more than {MAX_TEXT} characters"
        raise NotSupported(msg)
    try:
        return from_json(
            json.loads(text, parse_float=numbers.parse, parse_int=numbers.parse, parse_constant=_no_constant)
        )
    except (ValueError, RecursionError, ArithmeticError, NotSupported) as error:
        raise BuiltinError(str(error)) from None


@builtin("json.marshal", ANY)
def json_marshal(value: Any) -> Any:
    """Write a value as JSON."""
    return json_text(value)


@builtin("json.marshal_with_options", ANY, OBJECT)
def json_marshal_with_options(value: Any, options: Any) -> Any:
    """Write a value as JSON, on several lines if asked."""
    for key in options.ordered():
        if key not in OPTIONS:
            msg = f'operand 2 object contained unknown key "{key}"'
            raise OperandError(msg)
        wanted = TRUE if key == "pretty" else ""
        if options[key].__class__ is not wanted.__class__ or (key == "pretty" and options[key] not in {TRUE, FALSE}):
            kind = "boolean" if key == "pretty" else "string"
            msg = f"operand 2 key {key} failed cast to {kind}"
            raise OperandError(msg)
    pretty = options.get("pretty", TRUE if {"indent", "prefix"} & set(options) else FALSE)
    if pretty is FALSE:
        return json_text(value)
    prefix = options.get("prefix", "")
    return prefix + json_indented(value, prefix, options.get("indent", "\t"))


@builtin("json.unmarshal", STRING)
def json_unmarshal(text: Any) -> Any:
    """Read JSON."""
    return read_json(text)


@builtin("json.is_valid", ANY)
def json_is_valid(text: Any) -> Any:
    """Whether a text is JSON."""
    return can_be_read(read_json, text)
