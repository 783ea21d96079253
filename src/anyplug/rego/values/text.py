"""Values as text: as JSON, and as Rego writes them."""

import json
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import NotSupported
from anyplug.rego.values.values import Atom, Object, Set

GO_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def raw(value: str) -> bytes:
    """Return the bytes of a string; those that are not UTF-8 are kept as surrogates."""
    return value.encode("utf-8", "surrogateescape")


def valid(value: str) -> str:
    """Replace what is not UTF-8, as Go does where it writes JSON."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in value)
    return value


def json_string(value: str) -> str:
    """Quote a string as Go's encoding/json does."""
    value = valid(value)
    return json.dumps(value, ensure_ascii=False).translate(GO_ESCAPES)


def json_text(value: Any) -> str:
    """Write a value as compact JSON, keys sorted, as Go's encoding/json does."""
    kind = value.__class__
    if kind is str:
        return json_string(value)
    if kind is int or kind is Decimal:
        return numbers.text(value)
    if kind is Atom:
        text: str = value.text
        return text
    if kind is Object:
        names = sorted((key if key.__class__ is str else json_text(key), item) for key, item in _items(value))
        _require_different(names)
        return "{" + ",".join(f"{json_string(name)}:{text}" for name, text in names) + "}"
    members = value.ordered() if kind is Set else value
    return "[" + ",".join([json_text(item) for item in members]) + "]"


def _require_different(names: list[tuple[str, str]]) -> None:
    if len(names) != len({name for name, _ in names}):
        msg = "an object with two keys that JSON writes alike"
        raise NotSupported(msg)


def _items(value: Object) -> list[tuple[Any, str]]:
    return [(key, json_text(value[key])) for key in value.ordered()]


def json_indented(value: Any, prefix: str, indent: str, level: int = 0) -> str:
    """Write a value as JSON on several lines, as Go's json.MarshalIndent does."""
    kind = value.__class__
    inner, outer = "\n" + prefix + indent * (level + 1), "\n" + prefix + indent * level
    if kind is Object and value:
        pairs = sorted(
            (
                key if key.__class__ is str else json_text(key),
                json_indented(value[key], prefix, indent, level + 1),
            )
            for key in value
        )
        _require_different(pairs)
        return "{" + inner + ("," + inner).join(f"{json_string(name)}: {text}" for name, text in pairs) + outer + "}"
    if kind in {tuple, Set} and value:
        members = value.ordered() if kind is Set else value
        return (
            "["
            + inner
            + ("," + inner).join(json_indented(item, prefix, indent, level + 1) for item in members)
            + outer
            + "]"
        )
    return json_text(value)


def rego_string(value: str) -> str:
    """Quote a string as Rego's terms are written (Go's strconv.Quote)."""
    out = ['"']
    for char in value:
        code = ord(char)
        if char in _QUOTED:
            out.append(_QUOTED[char])
        elif code < 0x20 or code == 0x7F:  # noqa: PLR2004 - the control characters of ASCII
            out.append(f"\\x{code:02x}")
        elif 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 - a byte that is not UTF-8
            out.append(f"\\x{code - 0xDC00:02x}")
        elif code > 0x7E and not char.isprintable():  # noqa: PLR2004 - beyond ASCII
            out.append(f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")  # noqa: PLR2004 - the basic plane
        else:
            out.append(char)
    out.append('"')
    return "".join(out)


_QUOTED: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def rego_text(value: Any) -> str:
    """Write a value as a term of Rego."""
    kind = value.__class__
    if kind is str:
        return rego_string(value)
    if kind is Object:
        return "{" + ", ".join(f"{rego_text(key)}: {rego_text(item)}" for key, item in value.pairs()) + "}"
    if kind is Set:
        return "{" + ", ".join(map(rego_text, value.ordered())) + "}" if value else "set()"
    if kind is tuple:
        return "[" + ", ".join(map(rego_text, value)) + "]"
    return json_text(value)
