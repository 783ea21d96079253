"""Which first lines are understood, and which are left alone."""

import os
import sys

import pytest

from anyplug.runtime.processes.program import Program
from anyplug.runtime.warm import interpreters
from anyplug.runtime.warm.interpreters import Cold, Interpreter

PYTHON = os.path.realpath(sys.executable)
KNOWN = {
    f"#!{PYTHON}": ("python", True, False),
    f"#! {PYTHON} ": ("python", True, False),
    f"#!{PYTHON} -u": ("python", False, False),
    "#!/usr/bin/env python3": ("python", True, False),
    "#!/usr/bin/env -S python3 -u -W ignore": ("python", False, False),
    "#!/usr/bin/env -S python3 -X utf8": ("python", False, False),
    "#!/usr/bin/env node": ("node", True, False),
    "#!/usr/bin/env -S node --no-warnings --max-old-space-size=64": ("node", True, False),
    "#!/usr/bin/env -S uv run": ("python", True, True),
    "#!/usr/bin/env -S uv run --quiet --script": ("python", True, True),
    "#!/usr/bin/env -S uv run --script --python 3.11": ("python", True, True),
}
UNSURE = [
    "no first line",
    "#!",
    "#!python3",
    "#!/bin/sh",
    "#!/no/such/python3",
    f"#!{PYTHON} -I",
    f"#!{PYTHON} -E",
    f"#!{PYTHON} -S",
    f"#!{PYTHON} -uS",
    f"#!{PYTHON} -i",
    f"#!{PYTHON} -m json.tool",
    f"#!{PYTHON} -u -B",
    f"#!{PYTHON}\r",
    f"#!{PYTHON}\t-u",
    "#!/usr/bin/env python3 -u",
    "#!/usr/bin/env -i python3",
    "#!/usr/bin/env -S A=1 python3",
    "#!/usr/bin/env -S -i python3",
    "#!/usr/bin/env -S python3 -c 'x'",
    "#!/usr/bin/env -S ${X} python3",
    "#!/usr/bin/env -S python3 -W",
    "#!/usr/bin/env pypy3",
    "#!/usr/bin/env -S node -e 1",
    "#!/usr/bin/env -S node --require ./x.js",
    "#!/usr/bin/env -S node --permission",
    "#!/usr/bin/env -S node --experimental-permission",
    "#!/usr/bin/env -S uv tool run x",
    "#!/usr/bin/env -S uv run python",
    "#!/usr/bin/env -S uv run --with x --script",
    "#!/usr/bin/env uv",
    f"#!{PYTHON} {'-' * 300}",
    "#!/usr/bin/env pythön3",
]


@pytest.fixture
def examined(tmp_path):
    """Write programs, and examine each."""
    for name in ("node", "uv", "pypy3"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)

    def examine(line, name="run.py", **variables):
        script = tmp_path / name
        script.write_bytes(line.encode() + b"\nrest\n")
        path = f"{os.path.dirname(PYTHON)}:{tmp_path}:/usr/bin:/bin"
        return interpreters.examine(Program(argv=(str(script),), cwd="/", env={"PATH": path, **variables}))

    return examine


def test_first_lines_of_python_node_and_uv_are_understood(examined):
    for line, (kind, is_plain, by_uv) in KNOWN.items():
        found = examined(line)
        assert isinstance(found, Interpreter), (line, found)
        assert (found.kind, found.is_plain, found.by_uv) == (kind, is_plain, by_uv), line


def test_everything_else_is_left_alone_with_a_reason(examined):
    for line in UNSURE:
        found = examined(line)
        assert isinstance(found, Cold), (line, found)
        assert found.reason


def test_uv_takes_a_script_for_a_command_unless_its_name_says_otherwise(examined):
    assert isinstance(examined("#!/usr/bin/env -S uv run", name="run"), Cold)
    assert isinstance(examined("#!/usr/bin/env -S uv run --script", name="run"), Interpreter)


@pytest.mark.parametrize("name", ["PYTHONHOME", "PYTHONINSPECT", "PYTHONVERBOSE"])
def test_variables_that_change_how_an_interpreter_starts_are_left_alone(examined, name):
    assert isinstance(examined("#!/usr/bin/env python3", **{name: "1"}), Cold)
    assert isinstance(examined("#!/usr/bin/env node", **{name: "1"}), Interpreter)


def test_programs_with_arguments_are_left_alone():
    found = interpreters.examine(Program(argv=("/bin/sh", "/x"), cwd="/", env={}))
    assert isinstance(found, Cold)


def test_the_gate_comes_first_and_leaves_the_order_of_variables(examined, tmp_path):
    by = examined("#!/usr/bin/env python3")
    env = {"A": "1", "PYTHONPYCACHEPREFIX": "/cache", "PYTHONPATH": "/own", "B": "2"}
    gated = interpreters.gated(Program(argv=("/x",), cwd="/", env=env, stdin=b"secret"), by, "/gate", "word")
    assert list(gated.env) == [*env, interpreters.VARIABLE]
    assert (gated.env["PYTHONPATH"], gated.env["PYTHONPYCACHEPREFIX"], gated.stdin) == ("/gate:/own", "", b"")
