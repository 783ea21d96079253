"""Change one entry of a YAML text and leave every other byte: comments, order, indentation.

PyYAML decides whether a text is YAML and where its values are. Only block mappings are changed; a flow mapping
(`{a: 1}`) with something in it is refused. Pure: text in, text out.
"""

import json
import re
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from anyplug.manage.connect.edits import Malformed, Unfit, apart, line_end

if TYPE_CHECKING:
    import yaml

UNIT = "  "  # of indentation
MOST_VALUES = 1_000_000  # in one file, with each alias counted as what it stands for

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def read(text: str) -> dict[str, Any]:
    """Parse a text; an empty one is an empty object. Raises Malformed."""
    import yaml  # takes 20 ms to import, and one client has such a file

    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise Malformed(str(error).replace("\n", " ")) from error
    if found is not None and not isinstance(found, dict):
        raise Malformed("it is not a mapping")
    if _size(found, {}) > MOST_VALUES:
        raise Malformed(f"its aliases stand for more than {MOST_VALUES:,} values")
    return found or {}


def _size(value: Any, known: dict[int, float]) -> float:
    """Count the values in a document as if each alias were written out: a few can stand for billions."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = inf  # if it contains itself
        known[id(value)] = 1 + sum(_size(one, known) for one in (value.values() if isinstance(value, dict) else value))
    return known[id(value)]


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Set the value at a path, creating the mappings on the way. Raises Malformed, Unfit."""
    root, nl = _root(text), line_end(text)
    if root is None:
        begin = "" if not text or text.endswith("\n") else nl
        return f"{text}{begin}{_block(path[0], _nested(path[1:], value), '', nl)}"
    node, indent = root, ""
    for depth, key in enumerate(path):
        pairs = _pairs(node, path[:depth])
        indent = " " * pairs[0][0].start_mark.column
        found = next((of for name, of in pairs if name.value == key), None)
        if found is None:
            at = _line_stop(text, _end(text, node))
            begin = "" if text[:at].endswith("\n") else nl
            return apart(text, [(at, at, begin + _block(key, _nested(path[depth + 1 :], value), indent, nl))])
        if _is_empty(found) and (depth < len(path) - 1 or isinstance(value, dict)):
            rest = _lines(_nested(path[depth + 1 :], value), indent + UNIT, nl)
            start = len(text[: found.start_mark.index].rstrip(" "))
            stop = _line_stop(text, found.end_mark.index)
            tail = text[found.end_mark.index : stop].strip()
            return apart(text, [(start, stop, f"{f'  {tail}' if tail else ''}{nl}{rest}")])
        node = found
    if isinstance(value, dict):
        raise Unfit(f"'{'.'.join(path)}' is not a mapping")
    return apart(text, [(node.start_mark.index, _end(text, node), json.dumps(value, ensure_ascii=False))])


def drop(text: str, path: Sequence[str], made: int = 0) -> str:
    """Remove the value at a path, and as many mappings around it as we created, if they are then empty.

    Raises Malformed, Unfit.
    """
    holders = [_root(text)]
    for depth, key in enumerate(path):
        holder = holders[-1]
        found = None if holder is None else {n.value: v for n, v in _pairs(holder, path[:depth])}.get(key)
        if found is None:
            return text
        holders.append(found)
    at = len(path) - 1
    while made and at > 0 and len(_pairs(holders[at], path[:at])) == 1:
        at, made = at - 1, made - 1
    holder = holders[at]
    pairs = _pairs(holder, path[:at])
    name, value = next(pair for pair in pairs if pair[0].value == path[at])
    start = text.rfind("\n", 0, name.start_mark.index) + 1
    stop = _line_stop(text, _end(text, value))
    if len(pairs) > 1 or at == 0:
        return apart(text, [(start, stop, "")])
    around = next(name for name, _ in _pairs(holders[at - 1], path[: at - 1]) if name.value == path[at - 1])
    colon = text.index(":", around.end_mark.index) + 1
    return apart(text, [(colon, colon, " {}"), (start, stop, "")])


def _root(text: str) -> "yaml.Node | None":
    import yaml  # loaded before, because the text was parsed first

    try:
        return yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise Malformed(str(error).replace("\n", " ")) from error


def _pairs(node: Any, way: Sequence[str]) -> "list[tuple[yaml.Node, yaml.Node]]":
    """Return the keys and values of a block mapping. Raises Unfit."""
    what = f"'{'.'.join(way)}'" if way else "it"
    if not isinstance(getattr(node, "value", None), list) or node.id != "mapping":
        raise Unfit(f"{what} is not a mapping")
    if node.flow_style or not node.value:
        raise Unfit(f"{what} is written in braces")
    pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
    return pairs


def _is_empty(node: Any) -> bool:
    return (node.id == "scalar" and node.tag.endswith(":null")) or (node.id == "mapping" and not node.value)


def _end(text: str, node: Any) -> int:
    """Find where a value's last word ends; PyYAML's mark of a block is at the word after it."""
    while node.id != "scalar" and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return len(text[: node.end_mark.index].rstrip())


def _line_stop(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _block(key: str, value: Any, indent: str, nl: str) -> str:
    name = key if _PLAIN.fullmatch(key) else json.dumps(key, ensure_ascii=False)
    if isinstance(value, dict) and value:
        return f"{indent}{name}:{nl}{_lines(value, indent + UNIT, nl)}"
    return f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}{nl}"


def _lines(value: dict[str, Any], indent: str, nl: str) -> str:
    return "".join(_block(key, of, indent, nl) for key, of in value.items())
