"""The security claims of the docs, each with the tests that hold it.

`docs/claims.toml` states the claims; a test says which one it holds with `@pytest.mark.claim("id")`. A claim without
a test, and a test of a claim that nobody states, stop the generator, and so CI.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent
CLAIMS = ROOT / "docs" / "claims.toml"
TESTS = ROOT / "tests"


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sentence that the project answers for."""

    id: str
    area: str
    text: str
    limits: str = ""  # what it does not cover


class Held(msgspec.Struct, frozen=True):
    """A claim, and the tests that hold it: `path::name`."""

    claim: Claim
    tests: tuple[str, ...]


def held_claims() -> list[Held]:
    """Read all claims with their tests; exit with an error if the two do not fit."""
    stated = msgspec.convert(tomllib.loads(CLAIMS.read_text(encoding="utf-8")), dict[str, list[Claim]])["claim"]
    tests = tests_marked("claim")
    known = {claim.id for claim in stated}
    if unknown := tests.keys() - known:
        sys.exit(f"docs/claims.toml does not state what tests claim to hold: {', '.join(sorted(unknown))}")
    if untested := [claim.id for claim in stated if claim.id not in tests]:
        sys.exit(f"no test holds these claims of docs/claims.toml: {', '.join(untested)}")
    if len(known) != len(stated):
        sys.exit("docs/claims.toml states an id twice")
    return [Held(claim, tuple(tests[claim.id])) for claim in stated]


def tests_marked(marker: str) -> dict[str, list[str]]:
    """Find the tests (`path::name`) that carry a marker themselves or by their class, by the marker's arguments."""
    tests: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for id, name in _marked(path, marker):
            tests.setdefault(id, []).append(f"{path.relative_to(ROOT)}::{name}")
    return tests


def _marked(path: Path, marker: str) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            of_class = list(_arguments(node.decorator_list, marker))
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test_"):
                    for id in (*of_class, *_arguments(inner.decorator_list, marker)):
                        yield id, inner.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for id in _arguments(node.decorator_list, marker):
                yield id, node.name


def _arguments(decorators: list[ast.expr], marker: str) -> Iterator[str]:
    for decorator in decorators:
        if (
            isinstance(decorator, ast.Call)
            and isinstance(decorator.func, ast.Attribute)
            and decorator.func.attr == marker
        ):
            for argument in decorator.args:
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)
