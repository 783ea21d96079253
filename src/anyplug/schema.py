"""JSON Schema: checking arguments, and typing words from a command line. Pure."""

from typing import Any

import msgspec

_PREPARED_LIMIT = 4096
_BACKTRACKING = 100_000  # steps a stranger's pattern may take

# What a schema of arguments has at least one of, unless it takes anything.
KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties", "$ref", "allOf", "anyOf", "oneOf"})

_prepared: dict[int, tuple[dict[str, Any], Any]] = {}  # by identity; holding the schema keeps its id its own


def violations(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """List in what the arguments break the schema; a schema that is none breaks nothing."""
    known = _prepared.get(id(schema))
    if known is None:
        if len(_prepared) >= _PREPARED_LIMIT:
            _prepared.clear()
        known = _prepared[id(schema)] = (schema, _prepare(schema))
    check = known[1]
    try:
        if check is None or check.is_valid(arguments):
            return []
        return [_describe(error) for error in check.iter_errors(arguments)]
    except ValueError as error:  # a set, say: it can be written as JSON, and is none
        return [str(error)]


def fault(schema: dict[str, Any]) -> str:
    """Say what makes a schema unusable; empty if nothing does."""
    try:
        _compile(schema)
    except ValueError as error:
        return str(error).partition("\n")[0]
    return ""


def slip(schema: Any) -> str:
    """Say what is wrong at first sight with a schema of arguments; empty if nothing is."""
    if not isinstance(schema, dict):
        return f"it must be an object, not {type(schema).__name__}"
    kind, properties, required = (schema.get(key) for key in ("type", "properties", "required"))
    if kind is not None and kind != "object":
        return f'its "type" must be "object", not {kind!r}'
    if properties is not None and not isinstance(properties, dict):
        return f'its "properties" must be an object, not {type(properties).__name__}'
    for name, about in (properties or {}).items():
        if not isinstance(about, dict | bool):
            return f'what it says of \'{name}\' must be an object like {{"type": "string"}}'
    if required is not None and not isinstance(required, list):
        return f'its "required" must be a list of names, not {type(required).__name__}'
    if schema and not KEYWORDS.intersection(schema):
        return 'it has no "properties"; arguments are named there'
    return ""


def _prepare(schema: dict[str, Any]) -> Any:
    try:
        return _compile(schema)
    except ValueError:
        return None


def _compile(schema: dict[str, Any]) -> Any:
    """Make a validator; raises ValueError."""
    import jsonschema_rs  # 34 ms, and only calls need it

    try:
        return jsonschema_rs.validator_for(
            schema,
            retriever=_refuse,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKING),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(str(error)) from error


def _refuse(uri: str) -> Any:
    """Fetch nothing: a stranger's schema must not make us read files or talk to the network."""
    raise ValueError(f"references are not followed: {uri}")


def _describe(error: Any) -> str:
    place = ".".join(str(part) for part in error.instance_path)
    return f"{place}: {error.message}" if place else str(error.message)


def file_schema(description: str) -> dict[str, Any]:
    """Give the schema of an argument that is a file."""
    return {
        "type": "object",
        "description": description,
        "properties": {
            "filename": {"type": "string"},
            "data": {"type": "string", "contentEncoding": "base64"},
        },
        "required": ["filename", "data"],
    }


def is_file(schema: dict[str, Any]) -> bool:
    """Whether an argument is a file."""
    properties = schema.get("properties")
    return isinstance(properties, dict) and set(properties) == {"filename", "data"}


def type_word(schema: dict[str, Any], word: str) -> Any:
    """Read one word of a command line as what the schema wants; as it stands where it does not say."""
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
        return word  # the check, or the plugin, says what is wrong with it


def _kinds_of_choices(schema: dict[str, Any]) -> list[Any]:
    """Give the types that `enum`, `anyOf` or `oneOf` allow."""
    if isinstance(values := schema.get("enum"), list):
        return ["string" if isinstance(value, str) else "other" for value in values]
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    return [choice.get("type") for choice in choices if isinstance(choice, dict)]
