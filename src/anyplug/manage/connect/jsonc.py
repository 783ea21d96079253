"""Change one entry of a JSON text and leave every other byte: comments, order, indentation, trailing commas.

Reads JSON with `//` and `/* */` comments and trailing commas, as editors do. Pure: text in, text out.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from anyplug.manage.connect.edits import Edit, Malformed, Unfit, apart, line_end

BOM = "\ufeff"
DEEPEST = 200  # levels; deeper texts are not configurations, and would exhaust the stack
USUAL_UNIT = "  "  # of indentation, if the text has none

_BLANK = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*.*?\*/)*+", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_SCALAR = re.compile(r"(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])")


class Node(NamedTuple):
    """A value and its position."""

    start: int
    end: int
    value: Any
    members: "list[Member] | None" = None  # of an object
    items: "list[Node] | None" = None  # of an array


class Member(NamedTuple):
    """A key of an object with its value and position."""

    key: str
    start: int
    node: Node
    comma: int  # position of the comma after it; -1 if there is none


def read(text: str) -> dict[str, Any]:
    """Parse a text; an empty one is an empty object. Raises Malformed."""
    root = tree(text)
    if root is None:
        return {}
    if not isinstance(root.value, dict):
        raise Malformed("it is not an object")
    return root.value


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Set the value at a path, creating the objects on the way. Raises Malformed, Unfit."""
    root, nl = tree(text), line_end(text)
    if root is None:
        before = "" if not text.removeprefix(BOM) or text.endswith("\n") else nl
        return f"{text}{before}{_written(_nested(path, value), USUAL_UNIT, '', nl)}{nl}"
    node, depth, member = _reach(root, path)
    unit = _unit(text, root)
    if member is not None and depth == len(path):
        return apart(text, [(node.start, node.end, _written(value, unit, _indent_of(text, member.start), nl))])
    assert node.members is not None
    is_wide = "\n" in text[node.start : node.end] or (not node.members and "\n" in text.strip())
    indent = _member_indent(text, node, unit)
    rest = _nested(path[depth + 1 :], value)
    written = _written(rest, unit, indent, nl) if is_wide else json.dumps(rest, ensure_ascii=False)
    entry = f"{json.dumps(path[depth], ensure_ascii=False)}: {written}"
    return apart(text, _insertion(text, node, entry, nl + indent if is_wide else "", nl))


def append(text: str, path: Sequence[str], value: Any) -> str:
    """Add a value to the end of the list at a path, creating that. Raises Malformed, Unfit."""
    root = tree(text)
    node, depth, _ = _reach(root, path) if root is not None else (None, 0, None)
    if node is None or depth < len(path):
        return put(text, path, [value])
    if node.items is None:
        raise Unfit(f"'{'.'.join(path)}' is not a list")
    if not node.items:
        return apart(text, [(node.start, node.end, json.dumps([value], ensure_ascii=False))])
    last = node.items[-1]
    indent = _begins_line(text, last.start)
    gap = " " if indent is None else line_end(text) + indent
    return apart(text, [(last.end, last.end, f",{gap}{json.dumps(value, ensure_ascii=False)}")])


def drop_item(text: str, path: Sequence[str], index: int) -> str:
    """Remove a value from the list at a path. Raises Malformed, Unfit."""
    root = tree(text)
    node = _reach(root, path)[0] if root is not None else None
    if node is None or node.items is None:
        raise Unfit(f"'{'.'.join(path)}' is not a list")
    items = node.items
    if len(items) == 1:
        return apart(text, [(node.start + 1, node.end - 1, "")])
    if index + 1 < len(items):
        return apart(text, [(items[index].start, items[index + 1].start, "")])
    return apart(text, [(items[index - 1].end, items[index].end, "")])


def drop(text: str, path: Sequence[str], made: int = 0) -> str:
    """Remove the value at a path, and as many objects around it as we created, if they are then empty.

    Raises Malformed, Unfit.
    """
    while True:
        root = tree(text)
        if root is None:
            return text
        holders = [root]
        for depth, key in enumerate(path):
            member = _find(holders[-1], key, path[:depth])
            if member is None:
                return text
            holders.append(member.node)
        at = len(path) - 1
        while made and at > 0 and len(holders[at].members or ()) == 1:
            at, made = at - 1, made - 1
        text = apart(text, _removal(text, holders[at], path[at]))  # again, if the key occurs twice


def tree(text: str) -> Node | None:
    """Parse a whole text, with positions; None if it is empty apart from comments. Raises Malformed."""
    at = _skip(text, 1 if text.startswith(BOM) else 0)
    if at == len(text):
        return None
    node = _value(text, at, 0)
    at = _skip(text, node.end)
    if at != len(text):
        raise _wrong(text, at, "something follows the end")
    return node


def _value(text: str, at: int, depth: int) -> Node:
    if depth > DEEPEST:
        raise _wrong(text, at, f"it is nested deeper than {DEEPEST} levels")
    match text[at : at + 1]:
        case "{":
            return _object(text, at, depth)
        case "[":
            return _array(text, at, depth)
        case '"':
            end = _string_end(text, at)
            return Node(at, end, json.loads(text[at:end]))
    found = _SCALAR.match(text, at)
    if found is None:
        raise _wrong(text, at, "a value is missing" if text[at : at + 1] in {"", ",", "}", "]"} else "no value")
    return Node(at, found.end(), json.loads(found[0]))


def _object(text: str, start: int, depth: int) -> Node:
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if members and members[-1].comma < 0:
            raise _wrong(text, at, "a comma or a closing brace is missing")
        if text[at : at + 1] != '"':
            raise _wrong(text, at, "a key in quotes or a closing brace is missing")
        end = _string_end(text, at)
        colon = _skip(text, end)
        if text[colon : colon + 1] != ":":
            raise _wrong(text, colon, "a colon is missing")
        node = _value(text, _skip(text, colon + 1), depth + 1)
        after = _skip(text, node.end)
        comma = after if text[after : after + 1] == "," else -1
        members.append(Member(json.loads(text[at:end]), at, node, comma))
        at = _skip(text, comma + 1) if comma >= 0 else after
    return Node(start, at + 1, {member.key: member.node.value for member in members}, members)


def _array(text: str, start: int, depth: int) -> Node:
    items: list[Node] = []
    at, has_comma = _skip(text, start + 1), True
    while text[at : at + 1] != "]":
        if not has_comma:
            raise _wrong(text, at, "a comma or a closing bracket is missing")
        node = _value(text, at, depth + 1)
        items.append(node)
        at = _skip(text, node.end)
        has_comma = text[at : at + 1] == ","
        at = _skip(text, at + 1) if has_comma else at
    return Node(start, at + 1, [item.value for item in items], items=items)


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None  # the pattern also matches an empty string
    return found.end()


def _string_end(text: str, at: int) -> int:
    found = _STRING.match(text, at)
    if found is None:
        raise _wrong(text, at, "a string is not closed, or contains an invalid character")
    return found.end()


def _wrong(text: str, at: int, what: str) -> Malformed:
    line = text.count("\n", 0, at) + 1
    return Malformed(f"line {line}, column {at - text.rfind(chr(10), 0, at)}: {what}")


def _reach(root: Node, path: Sequence[str]) -> tuple[Node, int, Member | None]:
    """Follow a path as far as it exists; return the last value, how many keys led there, and its member."""
    node, last = root, None
    for depth, key in enumerate(path):
        member = _find(node, key, path[:depth])
        if member is None:
            return node, depth, last
        node, last = member.node, member
    return node, len(path), last


def _find(node: Node, key: str, way: Sequence[str]) -> Member | None:
    """Find a member; of duplicate keys the last counts, as for every JSON reader."""
    if node.members is None:
        raise Unfit(f"'{'.'.join(way)}' is not an object" if way else "it is not an object")
    return next((member for member in reversed(node.members) if member.key == key), None)


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _insertion(text: str, node: Node, entry: str, wide: str, nl: str) -> list[Edit]:
    """Compute how to insert an entry at the end of an object, on its own line if `wide` is not empty."""
    assert node.members is not None
    close = node.end - 1
    at = len(text[:close].rstrip(" \t\r\n"))  # after the last comment, too
    if node.members:
        last = node.members[-1]
        trailing = last.comma >= 0
        comma = [] if trailing else [(last.node.end, last.node.end, ",")]
        return [*comma, (at, at, f"{wide or ' '}{entry}{',' if trailing else ''}")]
    if not wide:
        return [(at, at, entry if at == node.start + 1 else f" {entry}")]
    is_open = "\n" in text[at:close]
    return [(at, at, f"{wide}{entry}{'' if is_open else nl + _indent_of(text, node.start)}")]


def _removal(text: str, node: Node, key: str) -> list[Edit]:
    """Compute how to remove a member with the whitespace before it and a comma."""
    members = node.members or []
    index = max(at for at, member in enumerate(members) if member.key == key)
    member, is_last = members[index], index == len(members) - 1
    start = len(text[: member.start].rstrip(" \t\r\n"))
    end = member.node.end
    if (
        len(members) == 1
        and not (text[node.start + 1 : start] + text[max(end, member.comma + 1) : node.end - 1]).strip()
    ):
        return [(node.start + 1, node.end - 1, "")]
    after = text[max(end, member.comma + 1) :].lstrip(" \t")
    if not after.startswith(("\n", "\r", "}")):
        start = member.start  # what follows must not end up in a comment at the end of the previous line
    cuts = [(start, end, "")]
    if member.comma >= 0:
        cuts.append((member.comma, member.comma + 1, ""))
    elif is_last and index:
        before = members[index - 1].comma
        cuts.append((before, before + 1, ""))
    return cuts


def _written(value: Any, unit: str, indent: str, nl: str) -> str:
    """Format a value on several lines; lists stay on one."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = indent + unit
    lines = [
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {_written(of, unit, inner, nl)}" for key, of in value.items()
    ]
    return f"{{{nl}{f',{nl}'.join(lines)}{nl}{indent}}}"


def _unit(text: str, root: Node) -> str:
    """Return the indentation of one level."""
    return next((indent for member in root.members or () if (indent := _begins_line(text, member.start))), USUAL_UNIT)


def _member_indent(text: str, node: Node, unit: str) -> str:
    for member in node.members or ():
        indent = _begins_line(text, member.start)
        if indent is not None:
            return indent
    return _indent_of(text, node.start) + unit


def _begins_line(text: str, at: int) -> str | None:
    """Return the whitespace before a position if nothing else precedes it on its line."""
    before = text[text.rfind("\n", 0, at) + 1 : at].removeprefix(BOM)
    return before if "\n" in text[:at] and not before.strip() else None


def _indent_of(text: str, at: int) -> str:
    """Return the indentation of a position's line."""
    line = text[text.rfind("\n", 0, at) + 1 : at].removeprefix(BOM)
    return line[: len(line) - len(line.lstrip(" \t"))]
