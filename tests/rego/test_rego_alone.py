"""The package could stand alone: it knows nothing of the program around it."""

import ast
import os

from anyplug import rego

HOME = os.path.dirname(rego.__file__)


def test_it_imports_nothing_of_ours():
    found = set()
    for folder, _, names in os.walk(HOME):
        for name in names:
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    tree = ast.parse(file.read())
                found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {
        module for module in found if module.startswith("anyplug") and not module.startswith(rego.__name__)
    } == set()


def test_every_name_of_its_face_exists():
    assert sorted(rego.__all__) == rego.__all__
    for name in rego.__all__:
        assert getattr(rego, name) is not None
