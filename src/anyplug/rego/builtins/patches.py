"""JSON patches, as in RFC 6902, for every kind of value."""

from decimal import Decimal
from typing import Any

from anyplug.rego.builtins.builtin_table import ANY, ARRAY, builtin
from anyplug.rego.builtins.objects import unescape
from anyplug.rego.evaluate.run_context import look
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported, OperandError
from anyplug.rego.values.values import Object, Set, type_name


@builtin("json.patch", ANY, ARRAY)
def json_patch(document: Any, patches: Any) -> Any:
    """Apply patches, as in RFC 6902; paths may also be arrays."""
    replaced = False
    for patch in patches:
        if patch.__class__ is not Object:
            msg = (
                f"must be an array of JSON-Patch objects, but at least one element is not an object: {type_name(patch)}"
            )
            raise OperandError(msg)
        if replaced:
            msg = "a patch of a document that a patch before has replaced: OPA crashes with some"
            raise NotSupported(msg)
        document = _patched(document, patch)
        replaced = patch.get("path") in {"", ()} and patch.get("op") != "test"
    return document


def _pointer(patch: Any, name: str) -> list[Any]:
    path = patch.get(name)
    if path.__class__ is str:
        if not path:
            return []
        return [unescape(part) for part in path.lstrip("/").split("/")]
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
    """Return the key that a part of a path means."""
    if document.__class__ is not tuple:
        return part
    if part == "-":
        return len(document)
    if part.__class__ is str and part.isdigit() and (part == "0" or part[0] != "0"):
        return int(part)
    if part.__class__ is int:
        return part
    if part.__class__ is Decimal or (part.__class__ is str and part[1:].isdigit()):
        msg = f"the array index {part} with a sign, a point or a leading zero"
        raise NotSupported(msg)
    msg = f"invalid array index {part!r}"
    raise BuiltinError(msg)


def _edit(document: Any, path: list[Any], value: Any, operation: str) -> Any:
    if not path:
        if operation == "remove":
            msg = "a patch that removes the whole document"
            raise NotSupported(msg)
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
        if key != value:
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
