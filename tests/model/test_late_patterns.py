"""Patterns that are compiled when they are first used."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys

import pytest

import anyplug
from anyplug.model import late_patterns
from anyplug.model.late_patterns import late
from rows import each_row

SOURCE = os.path.dirname(anyplug.__file__)


def users():
    """Give the modules that define such patterns."""
    found = []
    for folder, _, names in os.walk(SOURCE):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".py"):
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                if "late(" not in text:  # to parse every module takes seconds
                    continue
                calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
                if any(isinstance(call, ast.Name) and call.id == "late" for call in calls):
                    found.append(os.path.relpath(path, SOURCE)[:-3].replace(os.sep, "."))
    return sorted(found)


def patterns(value, depth=3):
    """Give the patterns in a module's values, also those in its collections."""
    if isinstance(value, late_patterns._Late):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from patterns(item, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from patterns(item, depth - 1)


@each_row("name", users())
def test_all_patterns_are_valid(name):
    module = importlib.import_module(f"anyplug.{name}")
    found = list(patterns(dict(vars(module))))
    for value in vars(module).values():
        if inspect.isclass(value):
            found += patterns(dict(vars(value)))
    assert found, "none of its patterns was found"
    for pattern in found:
        assert pattern.pattern


def test_it_behaves_as_a_compiled_pattern():
    text = late(r"(?P<first>a+)b", re.IGNORECASE)
    real = re.compile(r"(?P<first>a+)b", re.IGNORECASE)
    for name in ("pattern", "flags", "groups", "groupindex"):
        assert getattr(text, name) == getattr(real, name)
    assert text.sub("x", "AAB ab") == real.sub("x", "AAB ab") == "x x"
    assert text.fullmatch("ab")["first"] == "a"
    assert [found[0] for found in text.finditer("abAB")] == ["ab", "AB"]
    assert late(b"a").search(b"cab").span() == (1, 2)


def test_an_invalid_pattern_is_found_on_first_use():
    with pytest.raises(re.error):
        late("(").search("x")


def test_an_import_compiles_none():
    program = (
        "import re\nseen = []\nreal = re.compile\n"
        "from anyplug.model import late_patterns\n"
        "late_patterns.re = type('', (), {'compile': lambda *a: seen.append(a) or real(*a)})\n"
        "import anyplug.policy.self_protection, anyplug.policy.event_log\nprint(len(seen))"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said == "0\n"
