"""The folder names are the architecture: imports point one way, in no circle, and late ones say why."""

import ast
import functools
import os
import pathlib

import pytest

import anyplug

SOURCE = os.path.dirname(anyplug.__file__)
PACKAGE = "anyplug"

# From the ground up. A folder may import itself and what stands above it in this list, never its own line's others.
LAYERS = (
    "model rego ext",
    "home",
    "secrets runtime",
    "audit formats policy",
    "catalog",
    "launch",
    "peers manage fleet",
    "call",
    "host",
    "integrations",
    "agent",
    "frontends",
    "__main__",
)
RANKS = {name: rank for rank, words in enumerate(LAYERS) for name in words.split()}
ROLES = {"__init__", "format", "peer"}  # names that mean the same in every folder that has one
pytestmark = pytest.mark.xdist_group("source")  # one worker parses all modules
EXEMPT = {PACKAGE}  # its names are imported on first use, for those who use the library


def files() -> dict[str, str]:
    """Every module's name and its file."""
    found = {}
    for folder, folders, names in os.walk(SOURCE):
        folders[:] = [name for name in folders if name.isidentifier()]  # the others hold plugins for `anyplug new`
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                parts = os.path.relpath(path, os.path.dirname(SOURCE))[:-3].split(os.sep)
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


FILES = files()
PACKAGES = {name for name, path in FILES.items() if path.endswith("__init__.py")}


@functools.cache
def tree(module: str) -> ast.Module:
    with open(FILES[module], encoding="utf-8") as file:
        return ast.parse(file.read())


@functools.cache
def imports(module: str) -> frozenset[tuple[str, str]]:
    """What a module imports of ours, wherever it does: modules, each with a name if only that is imported."""
    found = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relative to itself"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add((whole, "") if whole in FILES else (node.module or "", alias.name))
    return frozenset((name, part) for name, part in found if name == PACKAGE or name.startswith(PACKAGE + "."))


def folder(module: str) -> str:
    return module.split(".")[1]


def test_the_root_has_only_folders():
    assert sorted(name for name in FILES if name.count(".") == 1 and name not in PACKAGES) == ["anyplug.__main__"]


def test_every_folder_has_its_place_in_the_list():
    assert {folder(name) for name in FILES if name not in EXEMPT} == set(RANKS)


def test_imports_point_only_downwards():
    upwards = [
        f"{module} imports {name}"
        for module in set(FILES) - EXEMPT
        for name, _ in imports(module)
        if name not in EXEMPT and folder(name) != folder(module) and RANKS[folder(name)] >= RANKS[folder(module)]
    ]
    assert upwards == []


def test_no_two_modules_have_one_name():
    names = [name.rpartition(".")[2] for name in FILES if name not in PACKAGES]
    assert {name for name in names if names.count(name) > 1} <= ROLES


def check_circles(graph: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(node: str, way: tuple[str, ...]) -> None:
        assert node not in way, " -> ".join((*way, node))
        if node not in done:
            for other in sorted(graph.get(node, ())):
                visit(other, (*way, node))
            done.add(node)

    for node in sorted(graph):
        visit(node, ())


def test_no_imports_go_in_a_circle_neither_between_modules_nor_between_folders():
    edges = {(module, name) for module in set(FILES) - EXEMPT for name, _ in imports(module) if name not in EXEMPT}
    for depth in range(2, 1 + max(name.count(".") for name in FILES) + 1):
        graph: dict[str, set[str]] = {}
        for module, name in edges:
            above, below = (".".join(path.split(".")[:depth]) for path in (module, name))
            if above != below:
                graph.setdefault(above, set()).add(below)
        check_circles(graph)


def test_no_module_imports_its_own_packages_init():
    for module in set(FILES) - PACKAGES:
        package = module.rpartition(".")[0]
        assert [part for name, part in imports(module) if name == package] == [], module


def test_an_import_inside_a_function_says_why():
    for module in FILES:
        check_late_imports(module)


def check_late_imports(module: str) -> None:
    with open(FILES[module], encoding="utf-8") as file:
        lines = file.read().splitlines()
    functions = [node for node in ast.walk(tree(module)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {
        node.lineno: node
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    for number in sorted(late):
        first = last = number
        while first - 1 in late:  # one comment is enough for imports that stand together
            first -= 1
        while last + 1 in late:
            last += 1
        around = lines[first - 2] if first >= 2 else ""
        says = any("#" in lines[line - 1] for line in range(first, last + 1))
        assert says or around.strip().startswith("#"), f"{module}:{number}: {lines[number - 1].strip()}"


def test_every_module_says_what_it_is_for():
    assert [module for module in FILES if not ast.get_docstring(tree(module))] == []


def test_every_exported_name_exists():
    for name in anyplug.__all__:
        assert getattr(anyplug, name) is not None
    with pytest.raises(AttributeError):
        anyplug.nothing  # noqa: B018


def test_type_checkers_see_the_names_that_are_exported():
    seen = [
        (alias.name, node.module)
        for node in ast.walk(tree(PACKAGE))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE}.")
        for alias in node.names
    ]
    assert dict(seen) == anyplug._EXPORTS


def test_the_pure_ground_does_no_input_or_output():
    for module in (name for name in FILES if folder(f"{name}.") == "model"):
        names = {
            name for node in ast.walk(tree(module)) if isinstance(node, ast.Import) for name in [node.names[0].name]
        }
        assert names.isdisjoint({"os", "socket", "subprocess", "pathlib", "sqlite3"})


def test_no_two_test_files_have_one_name():
    names = [path.name for path in pathlib.Path(__file__).parent.rglob("test_*.py")]
    assert [name for name in names if names.count(name) > 1] == []
