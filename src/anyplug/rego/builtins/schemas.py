"""JSON Schema, the part that policies use: types, properties, items, fixed values, bounds and patterns.

A schema with any other keyword is refused when it is met: an answer that ignores half of it would be wrong.
"""

import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.builtins.builtin_table import ANY, MOST, NUMERIC, builtin
from anyplug.rego.builtins.encoding import read_json
from anyplug.rego.builtins.regexes import compiled
from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported
from anyplug.rego.values.text import json_string, json_text
from anyplug.rego.values.values import FALSE, NULL, TRUE, Atom, Object, Set, boolean, type_name

TYPES: Final = ("array", "boolean", "integer", "number", "null", "object", "string")
BOOLEANS: Final = frozenset({TRUE, FALSE})
DRAFTS: Final = frozenset(f"http://json-schema.org/draft-0{draft}/schema{end}" for draft in (6, 7) for end in ("", "#"))
ASIDE: Final = frozenset({"title", "description", "default", "examples", "$comment"})
NAMING: Final = frozenset({"$schema", "$id"})
BOUNDS: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
KNOWN: Final = frozenset(
    {"type", "properties", "required", "items", "enum", "const", "additionalProperties", "pattern", "uniqueItems"}
) | frozenset(BOUNDS + COUNTS)
MAX_BOUND: Final = 10**9  # from which OPA writes a number with an exponent
MAX_PLACES: Final = 4  # of a bound behind its point
MAX_FLOAT, MIN_FLOAT = 10**21, Decimal("1e-6")  # between which Go's JSON writes no exponent
_UNKNOWN: Final = re.compile(r"[a-z_]+")
_SIMPLE_ID: Final = re.compile(r"(?:https?://)?[A-Za-z0-9][A-Za-z0-9./_-]*#?")
ROOT: Final = "(Root)"


def _document(value: Any) -> Any:
    if value.__class__ is str:
        return read_json(value)
    if value.__class__ not in {Object, tuple}:
        msg = "wrong type, expected string or object"
        raise BuiltinError(msg)
    _require_json(value)
    return value


def _require_json(value: Any) -> None:
    """Refuse sets and keys that are not strings: OPA turns them into what JSON has."""
    if value.__class__ is Set or (value.__class__ is Object and not all(key.__class__ is str for key in value)):
        msg = "a document or schema with a set, or with a key that is not a string"
        raise NotSupported(msg)
    if value.__class__ is Object:
        for item in value.values():
            _require_json(item)
    elif value.__class__ is tuple:
        for item in value:
            _require_json(item)


def _check(schema: Any, *, root: bool = False) -> None:  # noqa: C901 - one branch for each kind
    """Raise BuiltinError for a schema that is wrong, and NotSupported for one that cannot be judged."""
    if schema in BOOLEANS and not root:
        return
    if schema.__class__ is not Object:
        raise _doubtful("a schema", schema)
    for key, value in schema.items():
        if key not in KNOWN and key not in ASIDE and not (root and key in NAMING):
            raise _doubtful("the JSON Schema keyword", key)
        if key in _CHECKS and not _CHECKS[key](value):
            raise _doubtful(f"the JSON Schema keyword {key} with", value)
    if any(schema.get(f"min{of}", 0) > schema.get(f"max{of}", MOST) for of in ("Length", "Properties")):
        raise _doubtful("a schema", schema)
    kinds = schema.get("type", ())
    for kind in kinds if kinds.__class__ is tuple else (kinds,):
        if kind not in TYPES:
            valid = " ".join(TYPES)
            msg = f"has a primitive type that is NOT VALID -- given: /{kind}/ Expected valid values are:[{valid}]"
            raise BuiltinError(msg)
    for inner in schema.get("properties", Object()).values():
        _check(inner)
    for key in ("items", "additionalProperties"):
        if key in schema:
            _check(schema[key])


def _doubtful(what: str, value: Any) -> NotSupported:
    return NotSupported(f"{what} {json_text(value)} is not supported")


def _is_text(value: Any) -> bool:
    return value.__class__ is str


def _is_object(value: Any) -> bool:
    return value.__class__ is Object


def _are_names(value: Any) -> bool:
    return value.__class__ is tuple and all(map(_is_text, value)) and len(set(value)) == len(value)


def _are_kinds(value: Any) -> bool:
    return value.__class__ is str or _are_names(value)


def _are_fixed(value: Any) -> bool:
    return (
        value.__class__ is tuple
        and bool(value)
        and all(map(_is_fixed, value))
        and len(value) == len({_written(each) for each in value})
    )


def _is_fixed(value: Any) -> bool:
    return value.__class__ not in {Object, tuple} and bool(_written(value))


def _is_count(value: Any) -> bool:
    return value.__class__ is int and 0 <= value <= MOST


def _is_bound(value: Any) -> bool:
    """Return whether OPA writes a bound as we do."""
    if value.__class__ is Decimal and not -MAX_PLACES <= value.as_tuple().exponent < 0:  # type: ignore[operator]
        return False
    return value.__class__ in NUMERIC and abs(value) < MAX_BOUND and not (value.__class__ is Decimal and abs(value) < 1)


def _is_pattern(value: Any) -> bool:
    try:
        return value.__class__ is str and "\\B" not in value and bool(compiled(value))
    except BuiltinError:
        return False


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(BOUNDS, _is_bound), **dict.fromkeys(COUNTS, _is_count), "pattern": _is_pattern,
    "uniqueItems": BOOLEANS.__contains__, "enum": _are_fixed, "const": _is_fixed, "required": _are_names,
    "type": _are_kinds, "properties": _is_object, "title": _is_text, "description": _is_text,
    "$schema": DRAFTS.__contains__, "$id": lambda value: value.__class__ is str and bool(_SIMPLE_ID.fullmatch(value)),
}  # fmt: skip


def _written(value: Any) -> str:
    """Write a value as OPA does before it compares: numbers as floats of 64 bits. Raises NotSupported."""
    if value.__class__ is Object:
        return "{" + ",".join(f"{json_string(key)}:{_written(value[key])}" for key in sorted(value)) + "}"
    if value.__class__ is tuple:
        return "[" + ",".join(map(_written, value)) + "]"
    if value.__class__ not in NUMERIC:
        return json_text(value)
    if not (value == 0 and value.__class__ is int) and not MIN_FLOAT < abs(value) < MAX_FLOAT:
        raise _doubtful("a schema that fixes a value beside", value)
    short = Decimal(repr(float(value))).normalize()
    return format(short, "f")


def _kind(value: Any) -> str:
    name = type_name(value)
    if name == "number":
        whole = value.__class__ is int or value == value.to_integral_value()
        return "integer" if whole else "number"
    return name


class _Errors:
    def __init__(self) -> None:
        self.found: list[Object] = []

    def add(self, field: str, kind: str, description: str) -> None:
        self.found.append(
            Object({"desc": description, "error": f"{field}: {description}", "field": field, "type": kind})
        )


def _validate(value: Any, schema: Any, field: str, errors: _Errors) -> None:  # noqa: C901 - one branch for each kind
    if schema.__class__ is Atom:
        if schema is FALSE:
            errors.add(field, "false", "False always fails validation")
        return
    kinds = schema.get("type", ())
    wanted = kinds if kinds.__class__ is tuple else (kinds,)
    given = _kind(value)
    if wanted and given not in wanted and not (given == "integer" and "number" in wanted):
        expected = wanted[0] if len(wanted) == 1 else f"[{','.join(wanted)}]"
        errors.add(field, "invalid_type", f"Invalid type. Expected: {expected}, given: {given}")
        return
    if value.__class__ in NUMERIC:
        _bounds(value, schema, field, errors)
    elif value.__class__ is str:
        _text(value, schema, field, errors)
    elif value.__class__ is Object:
        _members(value, schema, field, errors)
    elif value.__class__ is tuple:
        _items(value, schema, field, errors)
    if "const" in schema and _written(value) != _written(schema["const"]):
        errors.add(field, "const", f"{field} does not match: {_written(schema['const'])}")
    if "enum" in schema:
        listed = [_written(each) for each in schema["enum"]]
        if _written(value) not in listed:
            errors.add(field, "enum", f"{field} must be one of the following: {', '.join(listed)}")


def _bounds(value: numbers.Number, schema: Any, field: str, errors: _Errors) -> None:
    for key, kind, fails, words in (
        ("maximum", "number_lte", operator.gt, "less than or equal to"),
        ("exclusiveMaximum", "number_lt", operator.ge, "less than"),
        ("minimum", "number_gte", operator.lt, "greater than or equal to"),
        ("exclusiveMinimum", "number_gt", operator.le, "greater than"),
    ):
        if key in schema and fails(value, schema[key]):
            limit = schema[key]
            written = str(limit) if limit.__class__ is int else format(limit.normalize(), "f")
            errors.add(field, kind, f"Must be {words} {written}")


def _text(value: str, schema: Any, field: str, errors: _Errors) -> None:
    if len(value) < schema.get("minLength", 0):
        text = f"String length must be greater than or equal to {schema['minLength']}"
        errors.add(field, "string_gte", text)
    if len(value) > schema.get("maxLength", MOST):
        errors.add(field, "string_lte", f"String length must be less than or equal to {schema['maxLength']}")
    if "pattern" in schema and compiled(schema["pattern"]).search(value) is None:
        errors.add(field, "pattern", f"Does not match pattern '{schema['pattern']}'")


def _items(value: tuple[Any, ...], schema: Any, field: str, errors: _Errors) -> None:
    if "items" in schema:
        for index, item in enumerate(value):
            _validate(item, schema["items"], _below(field, str(index)), errors)
    if len(value) < schema.get("minItems", 0):
        errors.add(field, "array_min_items", f"Array must have at least {schema['minItems']} items")
    if len(value) > schema.get("maxItems", MOST):
        errors.add(field, "array_max_items", f"Array must have at most {schema['maxItems']} items")
    if schema.get("uniqueItems") is TRUE:
        seen: dict[str, int] = {}
        for index, item in enumerate(value):
            text = _written(item)
            if text in seen:
                errors.add(field, "unique", f"array items[{seen[text]},{index}] must be unique")
            seen[text] = index


def _members(value: Any, schema: Any, field: str, errors: _Errors) -> None:
    properties = schema.get("properties", Object())
    if len(value) < schema.get("minProperties", 0):
        errors.add(field, "array_min_properties", f"Must have at least {schema['minProperties']} properties")
    if len(value) > schema.get("maxProperties", MOST):
        errors.add(field, "array_max_properties", f"Must have at most {schema['maxProperties']} properties")
    for name in schema.get("required", ()):
        if name not in value:
            errors.add(field, "required", f"{name} is required")
    for name, item in value.pairs():
        if name in properties:
            _validate(item, properties[name], _below(field, name), errors)
        elif schema.get("additionalProperties") is FALSE:
            errors.add(field, "additional_property_not_allowed", f"Additional property {name} is not allowed")
        elif schema.get("additionalProperties", TRUE).__class__ is Object:
            _validate(item, schema["additionalProperties"], _below(field, name), errors)


def _below(field: str, name: Any) -> str:
    return str(name) if field == ROOT else f"{field}.{name}"


@builtin("json.match_schema", ANY, ANY)
def match_schema(document: Any, schema: Any) -> Any:
    """Check a document: whether it fits, and what is wrong. OPA gives the errors of an object in any order."""
    value, wanted = _document(document), _document(schema)
    _check(wanted, root=True)
    errors = _Errors()
    _validate(value, wanted, ROOT, errors)
    return (boolean(not errors.found), tuple(errors.found))


@builtin("json.verify_schema", ANY)
def verify_schema(schema: Any) -> Any:
    """Check a schema: whether it is one. Raises NotSupported if it is invalid, since OPA words that differently."""
    kind: Any = ""
    try:
        wanted = _document(schema)
        kind = wanted.get("type") if wanted.__class__ is Object else ""
        _check(wanted, root=True)
    except BuiltinError as error:
        if kind.__class__ is str and kind not in TYPES and _UNKNOWN.fullmatch(kind):
            return (FALSE, f"jsonschema: {error}")
        raise NotSupported(str(error)) from None
    return (TRUE, NULL)
