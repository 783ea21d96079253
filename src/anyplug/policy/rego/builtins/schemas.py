"""JSON Schema, the part that policies use: types, properties, items, required and fixed values.

A schema with any other keyword is refused when it is met: an answer that ignores half of it would be wrong.
"""

import re
from typing import Any, Final

from anyplug.policy.rego.builtins.encoding import read_json
from anyplug.policy.rego.builtins.registry import ANY, builtin
from anyplug.policy.rego.errors import BuiltinError, NotSupported
from anyplug.policy.rego.texts import json_text
from anyplug.policy.rego.values import FALSE, NULL, TRUE, Atom, Object, boolean, type_name

TYPES: Final = ("array", "boolean", "integer", "number", "null", "object", "string")
ASIDE: Final = frozenset({"$schema", "$id", "id", "title", "description", "default", "examples", "$comment"})
KNOWN: Final = frozenset({"type", "properties", "required", "items", "enum", "const", "additionalProperties"})
_NAMED: Final = re.compile(r"given: /[a-z_]+/")
ROOT: Final = "(Root)"


def _document(index: int, value: Any) -> Any:
    if value.__class__ is str:
        return read_json(value)
    if value.__class__ is not Object:
        msg = f"a document or schema that is no string or object, but {type_name(value)}"
        raise NotSupported(msg)
    return value


def _check(schema: Any) -> None:  # noqa: C901 - one branch for each kind
    """Refuse a schema that is wrong, or that says what is not supported."""
    if schema in {TRUE, FALSE}:
        return
    if schema.__class__ is not Object:
        msg = "schema is invalid"
        raise BuiltinError(msg)
    for key in ("required", "enum"):
        items = schema.get(key, ())
        if items.__class__ is not tuple or len(items) != len(set(items)) or (key in schema and not items):
            msg = f"the JSON Schema keyword {key} with anything but different items"
            raise NotSupported(msg)
    for key in schema:
        if key not in KNOWN and key not in ASIDE:
            msg = f"the JSON Schema keyword {key} is not supported"
            raise NotSupported(msg)
    kinds = schema.get("type", ())
    for kind in kinds if kinds.__class__ is tuple else (kinds,):
        if kind not in TYPES:
            valid = " ".join(TYPES)
            msg = f"has a primitive type that is NOT VALID -- given: /{kind}/ Expected valid values are:[{valid}]"
            raise BuiltinError(msg)
    properties = schema.get("properties", Object())
    if properties.__class__ is not Object:
        msg = "Invalid type. Expected: valid schema, given: properties"
        raise BuiltinError(msg)
    for inner in properties.values():
        _check(inner)
    for key in ("items", "additionalProperties"):
        if key in schema:
            _check(schema[key])


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


def _validate(value: Any, schema: Any, field: str, errors: _Errors) -> None:  # noqa: C901 - one branch for each keyword
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
    if "const" in schema or "enum" in schema:
        fixed = (*schema.get("enum", ()), schema.get("const", ""))
        if any(each.__class__ is not str for each in fixed) or value.__class__ is not str:
            msg = "the JSON Schema keywords const and enum with other than strings"
            raise NotSupported(msg)
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(json_text(item) for item in schema["enum"])
        errors.add(field, "enum", f"{field} must be one of the following: {listed}")
    if "const" in schema and value != schema["const"]:
        errors.add(field, "const", f"{field} does not match: {json_text(schema['const'])}")
    if value.__class__ is Object:
        _members(value, schema, field, errors)
    elif value.__class__ is tuple and "items" in schema:
        for index, item in enumerate(value):
            _validate(item, schema["items"], _below(field, str(index)), errors)


def _members(value: Any, schema: Any, field: str, errors: _Errors) -> None:
    properties = schema.get("properties", Object())
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
    """Check a document: whether it fits, and what is wrong."""
    value, wanted = _document(1, document), _document(2, schema)
    _check(wanted)
    errors = _Errors()
    _validate(value, wanted, ROOT, errors)
    return (boolean(not errors.found), tuple(errors.found))


@builtin("json.verify_schema", ANY)
def verify_schema(schema: Any) -> Any:
    """Check a schema: whether it is one. Raises NotSupported for what is none, since OPA has other words for it."""
    try:
        _check(_document(1, schema))
    except BuiltinError as error:
        if "NOT VALID" in str(error) and "type" in str(error) and _NAMED.search(str(error)):
            return (FALSE, f"jsonschema: {error}")
        raise NotSupported(str(error)) from None
    return (TRUE, NULL)
