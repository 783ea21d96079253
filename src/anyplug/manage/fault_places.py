"""Locate a problem in a manifest: the line and column of the words that its message quotes.

A message names the server, the tool or the field in quotes, from the outside in; the first must stand in the manifest,
and each of the others is looked for in what belongs to the one before.
"""

import os
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from anyplug.formats import registry
from anyplug.formats.shared import manifest
from anyplug.manage.connect import jsonc
from anyplug.manage.connect.edits import Malformed
from anyplug.manage.connect.jsonc import Node
from anyplug.model.types import Plugin, Problem

OF_A_FILE: Final = "not_executable"  # a problem of the program, not of the manifest that names it
NAME: Final = "name"  # an object whose name is quoted is meant as a whole
MOST_FILES: Final = 200  # manifests of one plugin

_QUOTED = re.compile(r"(?<!\w)'([^']{1,200})'(?!\w)|\bat index (\d+)")
_ABSENT = re.compile(r"\b(?:missing|has no|there is no|names no|declares no)\b")  # what is quoted there is not there
_OF_A_TOOL = re.compile(r"\btool '")
_PLACED = re.compile(r"\bline \d+")


def placed(plugin: Plugin) -> tuple[Problem, ...]:
    """Return a plugin's problems, each with its place in the manifest where that can be told."""
    trees = list(_trees(plugin)) if plugin.problems else []
    return tuple(_placed(problem, trees, plugin.path) for problem in plugin.problems)


def _placed(problem: Problem, trees: list[tuple[str, str, Node]], folder: str) -> Problem:
    message = problem.message
    if _PLACED.search(message) or problem.code == OF_A_FILE:
        return problem
    named = [tree for tree in trees if tree[0] in message]
    trees = [*trees[1:], *trees[:1]] if _OF_A_TOOL.search(message) else trees  # some formats describe tools elsewhere
    for path, text, root in named or trees:
        if (at := _find(root, message)) is not None:
            line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            place = f"line {line}, column {column}"
            whole = f"{path}, {place}"
            said = (
                message.replace(path, whole, 1) if named else f"{message}, in {os.path.relpath(path, folder)}, {place}"
            )
            return msgspec.structs.replace(problem, message=said)
    return problem


def _find(root: Node, message: str) -> int | None:
    """Return where the innermost thing stands that a message names; None if it names none."""
    within, at = root, None
    for found in _QUOTED.finditer(message):
        word, index = found.groups()
        if index is not None:
            item = _item(within, int(index))
            within, at = (item, item.start) if item is not None else (within, at)
            continue
        matches = [] if _ABSENT.search(message) and at is None else list(_matches(within, word))
        if at is None:
            matches = next(filter(None, (list(_matches(part, word)) for part in _parts(root, message))), matches)
        elif not matches:
            matches = _at_end(within, word.split("."))
        if not matches and at is None:
            return None
        if matches:
            at, within = matches[-1 if message.startswith("Duplicate") else 0]
    return at


def _at_end(within: Node, path: list[str]) -> list[tuple[int, Node]]:
    """Return where a path of keys ends; empty if it does not begin with a key of what is inside."""
    inner = [member.node for member in within.members or ()]
    node = next((one for one in inner if any(below.key == path[0] for below in one.members or ())), None)
    at = 0
    for key in path:
        if node is None:
            break
        steps = [(member.start, member.node) for member in node.members or () if member.key == key]
        steps += [(item.start, item) for index, item in enumerate(node.items or ()) if str(index) == key]
        if not steps:
            break
        at, node = steps[0]
    return [(at, node)] if at and node is not None else []


def _parts(root: Node, message: str) -> list[Node]:
    """Return the fields that a message speaks of, as in "unknown permission", in its order."""
    spoken = [
        (found.start(), member)
        for member in root.members or ()
        if (found := re.search(rf"(?<!')\b{re.escape(member.key.removesuffix('s'))}s?\b(?!')", message, re.IGNORECASE))
    ]
    return [Node(root.start, root.end, None, [member]) for _, member in sorted(spoken, key=lambda one: one[0])]


def _matches(root: Node, word: str) -> Iterator[tuple[int, Node]]:
    """Yield where a word is a key or a value, with what belongs to it, at the outermost level that has it."""
    level = [root]
    while level:
        found, below = [], list[Node]()
        for node in level:
            for member in node.members or ():
                if member.key == word:
                    found.append((member.start, member.node))
                elif member.node.value == word:
                    found.append((member.node.start, node if member.key == NAME else member.node))
                below.append(member.node)
            found += [(item.start, item) for item in node.items or () if item.value == word]
            below += node.items or ()
        if found:
            yield from [(start, node) for start, node in found if node in level] or found
            return
        level = below


def _item(root: Node, index: int) -> Node | None:
    """Return an item of the tools, the only list whose items messages count."""
    tools = next((member.node for member in root.members or () if member.key == "tools"), None)
    items = tools.items if tools is not None else None
    return items[index] if items is not None and index < len(items) else None


def _trees(plugin: Plugin) -> Iterator[tuple[str, str, Node]]:
    """Yield the path, text and structure of each readable manifest: the plugin's own, then those of its tools."""
    format = registry.BY_NAME.get(plugin.format)
    if format is None or not format.MANIFEST.endswith(".json") or not os.path.isdir(plugin.path):
        return
    folders = sorted(entry.path for entry in os.scandir(plugin.path) if entry.is_dir(follow_symlinks=False))
    for folder in (plugin.path, *folders[:MOST_FILES]):
        path = os.path.join(folder, format.MANIFEST)
        try:
            text = manifest.read_file(path, folder=plugin.path).removeprefix(manifest.BOM).decode()
            root = jsonc.tree(text)
        except (OSError, UnicodeDecodeError, Malformed, ValueError, RecursionError):
            continue
        if root is not None:
            yield path, text, root
