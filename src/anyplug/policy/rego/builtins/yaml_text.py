"""Values as YAML, as Go's YAML writer writes them: keys sorted, lists not indented, quotes only where needed."""

import re
from typing import Any, Final

from anyplug.policy.rego import yaml
from anyplug.policy.rego.texts import json_string, json_text
from anyplug.policy.rego.values import Object, Set

_PLAIN: Final = re.compile(r"[^\s\-?:,\[\]{}#&*!|>'\"%@`][^\n\t]*$|-[^\s][^\n]*$")


def write(value: Any) -> str:
    """Write a document."""
    return _block(value, 0)


def _block(value: Any, level: int) -> str:
    pad = "  " * level
    if value.__class__ is Object and value:
        names = sorted((key if key.__class__ is str else json_text(key), key) for key in value.ordered())
        return "".join(f"{pad}{_scalar(name)}:{_nested(value[key], level)}" for name, key in names)
    if value.__class__ in {tuple, Set} and value:
        members = value.ordered() if value.__class__ is Set else value
        return "".join(pad + "-" + _item(item, level) for item in members)
    return pad + _scalar(value) + "\n"


def _nested(value: Any, level: int) -> str:
    """Write what stands behind a key."""
    if value.__class__ is Object and value:
        return "\n" + _block(value, level + 1)
    if value.__class__ in {tuple, Set} and value:
        return "\n" + _block(value, level)
    if value.__class__ is str and "\n" in value and value.strip() and not value.startswith((" ", "\n")):
        return _literal(value, level + 1)
    return " " + _scalar(value) + "\n"


def _item(value: Any, level: int) -> str:
    """Write what stands behind a dash."""
    if value.__class__ in {Object, tuple, Set} and value:
        return " " + _block(value, level + 1)[2 * (level + 1) :]
    if value.__class__ is str and "\n" in value and value.strip() and not value.startswith((" ", "\n")):
        return _literal(value, level + 1)
    return " " + _scalar(value) + "\n"


def _literal(value: str, level: int) -> str:
    body = value.rstrip("\n")
    ends = len(value) - len(body)
    mark = "|-" if not ends else "|" if ends == 1 else "|+"
    pad = "  " * level
    lines = "".join((pad + line if line else "") + "\n" for line in body.split("\n"))
    return f" {mark}\n{lines}" + "\n" * max(ends - 1, 0)


def _scalar(value: Any) -> str:
    if value.__class__ is Object:
        return "{}"
    if value.__class__ in {tuple, Set}:
        return "[]"
    if value.__class__ is not str:
        return json_text(value)
    if not value:
        return '""'
    if not value.isprintable():
        return json_string(value)
    if _PLAIN.match(value) and ": " not in value and " #" not in value and not value.endswith((":", " ")):
        try:
            return value if isinstance(yaml.load(value, old_booleans=True), str) else f'"{value}"'
        except yaml.YamlError:
            pass
    return "'" + value.replace("'", "''") + "'"
