"""The requirements of the five guides for plugin authors, each with the tests that hold it.

`tests/requirements.toml` states them; a test says which it holds with `@pytest.mark.requirement("ZOT-12")`. The
generator stops, and so does CI, at a requirement without a test and at a test of a requirement that is not stated.
"""

import sys
import tomllib
from pathlib import Path

from claims import TESTS, tests_marked

REQUIREMENTS = TESTS / "requirements.toml"
ABOUT = (
    "What the guides of the five formats promise to authors, in our words, and the tests that hold it. "
    "`requirements.toml` states the requirements; tests name them with `@pytest.mark.requirement`."
)


def requirements_page() -> str:
    """Write the table of requirements; exit with an error if a requirement has no test or a test no requirement."""
    guides: dict[str, dict[str, str]] = tomllib.loads(REQUIREMENTS.read_text(encoding="utf-8"))
    tests = tests_marked("requirement")
    stated = [id for texts in guides.values() for id in texts]
    if unheld := [id for id in stated if id not in tests]:
        sys.exit(f"no test holds these requirements of tests/requirements.toml: {', '.join(unheld)}")
    if unknown := sorted(tests.keys() - {*stated}):
        sys.exit(f"tests/requirements.toml does not state what tests claim to hold: {', '.join(unknown)}")
    parts = [f"# Requirements\n\n{ABOUT}"]
    for guide, texts in guides.items():
        rows = [f"| {id} | {text} | {'<br>'.join(_link(test) for test in tests[id])} |" for id, text in texts.items()]
        parts.append("\n".join([f"## {guide}\n", "| id | requirement | tests |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}]({Path(path).relative_to('tests')})"
