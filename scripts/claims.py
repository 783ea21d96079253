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
    tests: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for claim, name in _marked(path):
            tests.setdefault(claim, []).append(f"{path.relative_to(ROOT)}::{name}")
    known = {claim.id for claim in stated}
    if unknown := tests.keys() - known:
        sys.exit(f"docs/claims.toml does not state what tests claim to hold: {', '.join(sorted(unknown))}")
    if untested := [claim.id for claim in stated if claim.id not in tests]:
        sys.exit(f"no test holds these claims of docs/claims.toml: {', '.join(untested)}")
    if len(known) != len(stated):
        sys.exit("docs/claims.toml states an id twice")
    return [Held(claim, tuple(tests[claim.id])) for claim in stated]


def _marked(path: Path) -> Iterator[tuple[str, str]]:
    """Find the tests of a file that are marked, or whose class or module is, each with the claim."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            of_class = list(_claims(node.decorator_list))
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test_"):
                    for claim in (*of_class, *_claims(inner.decorator_list)):
                        yield claim, inner.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for claim in _claims(node.decorator_list):
                yield claim, node.name


def _claims(decorators: list[ast.expr]) -> Iterator[str]:
    for decorator in decorators:
        if (
            isinstance(decorator, ast.Call)
            and isinstance(decorator.func, ast.Attribute)
            and decorator.func.attr == "claim"
            and decorator.args
            and isinstance(decorator.args[0], ast.Constant)
        ):
            yield str(decorator.args[0].value)
