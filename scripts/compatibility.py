"""The table of clients and packages that were tried, from the tests that use them.

A test says what it exercises with `@pytest.mark.exercises("NAME", "column", …)`, where NAME is a package of
requirements/dev.txt or of the Makefile's CLIENTS. An unknown name or column stops the generator, and so CI.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from claims import ROOT, TESTS

COLUMNS = {
    "connect": "reads what `connect` or `export` writes",
    "tools": "lists and calls tools",
    "failures": "gets failed calls as results",
    "images": "gets images and documents",
    "approvals": "asks its user before a call",
    "resources": "reads resources",
    "prompts": "gets prompts",
    "elicitation": "is asked what a server wants to know",
    "sampling": "answers for a model",
    "tasks": "runs tasks",
    "policies": "its own tools are gated",
}
MARKER = "exercises"


def table_of_clients() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the headings and the rows: a client or package, its version, and a tick for each thing exercised."""
    tried: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, *columns in _marks(path):
            if unknown := sorted(set(columns) - COLUMNS.keys()):
                sys.exit(f"{path.relative_to(ROOT)}: no column is named {', '.join(unknown)}")
            tried.setdefault(name, set()).update(columns)
    known = _versions()
    if unknown := sorted(tried.keys() - known.keys()):
        sys.exit(f"neither requirements/dev.txt nor the Makefile's CLIENTS has {', '.join(unknown)}")
    used = [column for column in COLUMNS if any(column in columns for columns in tried.values())]
    rows = [
        (f"`{name}`", known[name], *("✓" if column in tried[name] else "" for column in used))
        for name in sorted(tried, key=lambda name: name.lstrip("@"))
    ]
    return ("client or package", "version", *used), rows


def _versions() -> dict[str, str]:
    locked = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    found = dict(re.findall(r"^([a-z0-9][a-z0-9_.-]*)==(\S+)", locked, re.MULTILINE))
    clients = re.search(r"^CLIENTS := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert clients is not None
    return found | {name: version for name, _, version in (one.rpartition("@") for one in clients[1].split()) if name}


def _marks(path: Path) -> Iterator[list[str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == MARKER
            and ast.unparse(node.func.value) == "pytest.mark"
        ):
            yield [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
