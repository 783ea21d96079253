"""JSON Schema: check arguments, and convert words from a command line. Pure."""

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from anyplug.model import schema_patterns

_PREPARED_LIMIT = 4096
_MOST_WORK = 2_000_000  # subschemas that one check may apply, about 70 ns each; the event loop waits meanwhile
_FLAT = 2  # depth of arguments without nested values
_MOST_COPIED = 1_000_000  # values that listing all violations may copy, about 100 ns each
_TEXT_PER_VALUE = 50  # characters that take as long to copy as a value
_MOST_NAMED = 100  # violations listed per check
_TOO_MUCH = "they cannot be checked: checking this schema would take too long"

# A schema of arguments has at least one of these, unless it accepts anything.
KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties", "$ref", "allOf", "anyOf", "oneOf"})

# Which keywords apply to the same value, and which to the values inside it.
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
_INSIDE = frozenset({
    "properties", "patternProperties", "additionalProperties", "propertyNames", "items", "prefixItems",
    "additionalItems", "contains", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
})  # fmt: skip
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})  # each value is a schema
_DEFINITIONS = frozenset({"$defs", "definitions"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MEANT = {
    "string": "string", "str": "string", "text": "string", "char": "string", "date": "string", "datetime": "string",
    "integer": "integer", "int": "integer", "long": "integer", "int32": "integer", "int64": "integer",
    "number": "number", "float": "number", "double": "number", "decimal": "number", "num": "number",
    "boolean": "boolean", "bool": "boolean", "array": "array", "list": "array", "tuple": "array",
    "object": "object", "dict": "object", "map": "object", "record": "object", "null": "null", "none": "null",
}  # fmt: skip
_ALL_TYPES = "string, number, integer, boolean, array, object or null"
_SHAPES: dict[str, type | tuple[type, ...]] = {  # of values that clients check
    "enum": list, "description": str, "title": str, "pattern": str, "format": str, "minimum": (int, float),
    "maximum": (int, float), "minLength": int, "maxLength": int, "minItems": int, "maxItems": int, "uniqueItems": bool,
}  # fmt: skip
# What can be checked without the library: of a schema, and of its properties. Neither holds other schemas.
_PLAIN = frozenset({"type", "properties", "required", "description", "title"})
_PLAIN_PROPERTY = frozenset({
    "type", "description", "title", "default", "minimum", "maximum", "minLength", "maxLength", "pattern", "format",
})  # fmt: skip
_SAID = frozenset({"type", "description", "title", "default"})  # all that a property may say about a value to be plain
_SAFE_INTEGER = 2**53  # larger ones are not the same number everywhere
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})

_HOLDING = (dict, list)
_UNKNOWN = object()  # a subschema that was not found

_NOTHING: dict[str, Any] = {}
_Weigh = Callable[[dict[str, Any]], int]

# By identity; keeping the schema keeps its id unique.
_prepared: dict[int, tuple[dict[str, Any], Any, "_Work"]] = {}
_files: dict[int, tuple[dict[str, Any], tuple[str, ...]]] = {}


def violations(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """List the ways in which arguments violate a schema; an invalid schema allows everything."""
    known = _prepared.get(id(schema))
    if known is None:
        if "jsonschema_rs" not in sys.modules and _fits_plainly(schema, arguments):
            return []  # importing it takes longer than a short command can spare
        if len(_prepared) >= _PREPARED_LIMIT:
            _prepared.clear()
        work = _Work(schema)
        known = _prepared[id(schema)] = (schema, None if work.is_endless else _prepare(schema), work)
    _, check, work = known
    try:
        if work.is_endless:
            return [_TOO_MUCH]
        if check is None:
            return []
        if work.is_too_much(arguments):
            return [_TOO_MUCH]
        if check.is_valid(arguments):
            return []
        if work.has_costly_errors(arguments):
            return [_first(check, arguments)]
        return [_describe(error) for error in islice(check.iter_errors(arguments), _MOST_NAMED)]
    except ValueError as error:  # a set, for example: msgspec can encode it, but it is not JSON
        return [str(error)]


def _fits_plainly(schema: dict[str, Any], arguments: dict[str, Any]) -> bool:
    """Return whether arguments fit a schema, beyond doubt: False says nothing."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if schema.get("type") != "object" or not _PLAIN.issuperset(schema) or not isinstance(properties, dict):
        return False
    if not isinstance(required, list) or not all(isinstance(name, str) and name in arguments for name in required):
        return False
    if not all(isinstance(about, dict) and _PLAIN_PROPERTY.issuperset(about) for about in properties.values()):
        return False
    return all(_is_plainly(properties.get(name), value) for name, value in arguments.items())


def _is_plainly(about: Any, value: Any) -> bool:
    """Return whether a value is of the type that is all that its schema asks for."""
    kind = about.get("type") if about is not None and _SAID.issuperset(about) else None
    if isinstance(value, str):
        return kind == "string" and value.isascii()
    if isinstance(value, bool):
        return kind == "boolean"
    return kind == "integer" and isinstance(value, int) and abs(value) < _SAFE_INTEGER


def fault(schema: dict[str, Any]) -> str:
    """Return why a schema is unusable, with the place in it; empty if it is usable."""
    try:
        _compile(schema)
    except ValueError as error:
        return str(error)
    return ""


def slip(schema: Any) -> str:
    """Return the first obvious mistake in a schema of arguments; empty if there is none."""
    if not isinstance(schema, dict):
        return f"it must be an object, not {type(schema).__name__}"
    kind, properties, required = (schema.get(key) for key in ("type", "properties", "required"))
    if kind is not None and kind != "object":
        return f'its "type" must be "object", not {kind!r}'
    if properties is not None and not isinstance(properties, dict):
        return f'its "properties" must be an object, not {type(properties).__name__}'
    for name, about in (properties or {}).items():
        if not isinstance(about, dict | bool):
            return f'\'{name}\' in it must be an object like {{"type": "string"}}'
    if required is not None and not isinstance(required, list):
        return f'its "required" must be a list of names, not {type(required).__name__}'
    if schema and not KEYWORDS.intersection(schema):
        return 'it has no "properties", where arguments are named'
    return ""


def repaired(given: Any) -> Any:
    """Return a subschema as its author most likely meant it, so that clients accept it.

    Types of other languages become JSON's, `"required": true` at a property goes into the list around it, a bare
    `"string"` becomes a schema, and what cannot be meant is left out. The description stays.
    """
    if isinstance(given, bool):
        return given
    if isinstance(given, str):
        given = {"type": given}
    if not isinstance(given, dict):
        return {}
    parts = {key: part for key, value in given.items() if (part := _part(key, value)) is not _UNKNOWN}
    return _with_required({**_types(given.get("type")), **parts}, given)


def _part(key: str, value: Any) -> Any:
    """Return the value of a keyword as it was most likely meant; `_UNKNOWN` if it is left out."""
    if key in _BY_NAME | _DEFINITIONS:
        # `dependencies` may list names.
        named = value.items() if isinstance(value, dict) else ()
        parts = {name: part if isinstance(part, list) else repaired(part) for name, part in named}
        return parts if isinstance(value, dict) else _UNKNOWN
    if key in _IN_PLACE | _INSIDE:
        if isinstance(value, list):
            return [repaired(part) for part in value] or _UNKNOWN
        return repaired(value) if key not in _LISTS else _UNKNOWN
    if key in {"type", "required"} or not isinstance(value, _SHAPES.get(key, object)):
        return _UNKNOWN
    return value


def _types(value: Any) -> dict[str, Any]:
    words = value if isinstance(value, list) else str(value).split("|") if isinstance(value, str) else []
    kinds = [_MEANT.get(word.strip().lower(), "") if isinstance(word, str) else "" for word in words]
    if not kinds or not all(kinds):
        return {}  # it may be anything then
    unique = list(dict.fromkeys(kinds))
    return {"type": unique[0] if len(unique) == 1 else unique}


def _with_required(schema: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    listed = given.get("required")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    properties = given.get("properties")
    for name, part in properties.items() if isinstance(properties, dict) else ():
        if isinstance(part, dict) and part.get("required") is True:
            names.append(name)
    return {**schema, "required": list(dict.fromkeys(names))} if names else schema


def _one(_: dict[str, Any]) -> int:
    return 1


class _Work:
    """Bounds how many subschemas a check applies, and how much text its patterns search.

    A schema of a few lines can check every value 2^30 times.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._most_flat = -1  # a number of flat arguments that is known to be cheap enough
        # By the identity of a subschema, the depth of the value, and what is counted.
        self._known: dict[tuple[int, int, _Weigh], int] = {}
        self._has_patterns = schema_patterns.has_any(schema)
        self.is_endless = self._has_patterns and schema_patterns.take_long_to_compile(schema)
        given = schema.get("properties")
        self._properties = given if isinstance(given, dict) else {}
        self._around = {key: value for key, value in schema.items() if key != "properties"}

    def is_too_much(self, arguments: Any) -> bool:
        """Return whether checking these arguments may take too long."""
        if isinstance(arguments, dict) and len(arguments) <= self._most_flat and not self._has_patterns:
            for one in arguments.values():
                if isinstance(one, _HOLDING):
                    break
            else:
                return False
        depth, count = _size(arguments)
        if count > _MOST_WORK:
            return True
        try:
            if self._most_flat < 0:
                self._most_flat = _MOST_WORK // self._at_most(self._schema, _FLAT) - 1
            if count * self._at_most(self._schema, depth) > _MOST_WORK:
                return True
            return self._has_patterns and self._searched(arguments, depth) > schema_patterns.MOST_TEXT
        except RecursionError:
            return True

    def has_costly_errors(self, arguments: Any) -> bool:
        """Return whether listing all violations may take too long: each comes with a copy of its value."""
        depth, count = _size(arguments)
        characters, _ = schema_patterns.length(arguments)
        size = count + characters // _TEXT_PER_VALUE
        return count * self._at_most(self._schema, depth) * size > _MOST_COPIED

    def _searched(self, arguments: Any, depth: int) -> int:
        """Bound the text that patterns search. A long text costs nothing where its own property has no pattern."""
        parts = [(self._around, arguments, depth)]
        if isinstance(arguments, dict):
            named = ((self._properties.get(name), value) for name, value in arguments.items())
            parts += [(part, value, depth - 1) for part, value in named if part is not None]
        total = 0
        for part, value, levels in parts:
            once = self._at_most(part, levels, schema_patterns.once)
            again = self._at_most(part, levels, schema_patterns.backtracking)
            if once or again:
                characters, squares = schema_patterns.length(value)
                total += characters * once + squares * again
        return total

    def _at_most(self, schema: Any, depth: int, weigh: "_Weigh" = _one) -> int:
        """Bound the number of subschemas that a schema applies to a value nested `depth` levels deep."""
        if not isinstance(schema, dict):
            return _MOST_WORK + 1 if schema is _UNKNOWN else weigh(_NOTHING)
        place = (id(schema), depth, weigh)
        if place not in self._known:
            self._known[place] = _MOST_WORK + 1  # in case it applies itself to the same value
            total = weigh(schema)
            for part, is_inside in self._parts(schema):
                if total <= _MOST_WORK and (depth or not is_inside):
                    total += self._at_most(part, depth - is_inside, weigh)
            if _UNEVALUATED & schema.keys():  # which must know what all others applied to
                total *= 2
            self._known[place] = min(total, _MOST_WORK + 1)
        return self._known[place]

    def _parts(self, schema: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
        """Yield the subschemas of a schema, each with whether it applies to the values inside the value."""
        for key in (_IN_PLACE | _INSIDE) & schema.keys():
            held = schema[key]
            if isinstance(held, dict) and key in _BY_NAME:
                held = list(held.values())
            for part in held if isinstance(held, list) else [held]:
                yield part, key in _INSIDE
        for key in _REFERENCES & schema.keys():
            yield self._referred(str(schema[key])), False

    def _referred(self, reference: str) -> Any:
        """Resolve a reference if it is a plain path."""
        found: Any = self._schema
        for step in reference.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = found.get(name) if isinstance(found, dict) else None
        is_path = reference == "#" or reference.startswith("#/")
        return _UNKNOWN if found is None or not is_path else found


def _size(value: Any) -> tuple[int, int]:
    """Return how deep a value is nested, and how many values it holds; it stops at too many."""
    depth, level, count = 0, [value], 0
    while level and count <= _MOST_WORK:
        depth, count = depth + 1, count + len(level)
        level = [
            one
            for held in level
            if isinstance(held, _HOLDING)
            for one in (held.values() if isinstance(held, dict) else held)
        ]
    return depth, count


def _prepare(schema: dict[str, Any]) -> Any:
    try:
        return _compile(schema)
    except ValueError:
        return None


def _compile(schema: dict[str, Any]) -> Any:
    """Create a validator; raises ValueError."""
    import jsonschema_rs  # takes 34 ms to import, and only calls need it

    try:
        return jsonschema_rs.validator_for(
            schema,
            retriever=_refuse,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=schema_patterns.BACKTRACKING),
        )
    except jsonschema_rs.ValidationError as error:
        place = ".".join(str(part) for part in error.instance_path)
        said = f"use {_ALL_TYPES}" if place.endswith("type") else error.message
        raise ValueError(f"'{place}': {said}" if place else error.message) from error
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error).partition("\n")[0]) from error


def _refuse(uri: str) -> Any:
    """Fetch nothing: a plugin's schema must not make us read files or use the network."""
    raise ValueError(f"references are not followed: {uri}")


def _first(check: Any, arguments: Any) -> str:
    """Return the first violation."""
    import jsonschema_rs  # imported by now

    try:
        check.validate(arguments)
    except jsonschema_rs.ValidationError as error:
        return _describe(error)
    return ""


def _describe(error: Any) -> str:
    place = ".".join(str(part) for part in error.instance_path)
    return f"{place}: {error.message}" if place else str(error.message)


def file_schema(description: str) -> dict[str, Any]:
    """Return the schema of a file argument."""
    return {
        "type": ["string", "object"],
        "description": f"{description} (the path of a file, or its filename and data)".lstrip(),
        "properties": {
            "filename": {"type": "string"},
            "data": {"type": "string", "contentEncoding": "base64"},
        },
        "required": ["filename", "data"],
    }


def is_file(schema: dict[str, Any]) -> bool:
    """Return whether an argument is a file."""
    properties = schema.get("properties")
    return isinstance(properties, dict) and set(properties) == {"filename", "data"}


def files(schema: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the arguments that are files."""
    known = _files.get(id(schema))
    if known is None:
        if len(_files) >= _PREPARED_LIMIT:
            _files.clear()
        properties: Any = schema.get("properties")
        about = properties.items() if isinstance(properties, dict) else ()
        names = tuple(name for name, wanted in about if isinstance(wanted, dict) and is_file(wanted))
        known = _files[id(schema)] = (schema, names)
    return known[1]


def type_word(schema: dict[str, Any], word: str) -> Any:
    """Convert a command-line word to the schema's type; return it unchanged if the schema has none."""
    wanted = schema.get("type")
    kinds = wanted if isinstance(wanted, list) else [wanted]
    if "string" in kinds:
        return None if word == "null" and "null" in kinds else word
    if kinds == [None]:
        kinds = _kinds_of_choices(schema)
        if not kinds or "string" in kinds:
            return word
    try:
        return msgspec.json.decode(word.lower() if "boolean" in kinds and word.lower() in {"true", "false"} else word)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return word  # the check or the plugin will report what is wrong with it


def _kinds_of_choices(schema: dict[str, Any]) -> list[Any]:
    """Return the types that `enum`, `anyOf` or `oneOf` allow."""
    if isinstance(values := schema.get("enum"), list):
        return ["string" if isinstance(value, str) else "other" for value in values]
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    return [choice.get("type") for choice in choices if isinstance(choice, dict)]
