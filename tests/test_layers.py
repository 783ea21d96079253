"""The folder names are the architecture: imports point one way, in no circle, and late ones say why."""

import ast
import functools
import os
import pathlib

import pytest

import anyplug

SOURCE = os.path.dirname(anyplug.__file__)
PACKAGE = "anyplug"

# From the ground up, as in the picture of the design; what stands in one line may import what stands in the same.
LAYERS = {
    "ground": (
        "model errors settings schema store names permissions environment liveness journal mark logs digest config "
        "escapes mask vault secrecy home_folder untrusted_files untrusted_text secret_names values slips audit_head "
        "protected_paths"
    ),
    "runtime": "runtime",
    "formats": "formats policy",
    "around": (
        "discovery registry approval gate watch jobs audit catalog shapes install staging sources checkup trail offers "
        "peers place allowances confinement interception learning protection doctor panels notices commands chains "
        "gates trust recording live surroundings job_runs loading looks audience tally connect export views surface "
        "search policing refusals scaffold inheritance leftovers preparation upkeep snapshots own_folder "
        "signal_runs pins"
    ),
    "host": "host",
    "frontends": "frontends __main__ ext",  # ext is for authors of extensions, and imports nothing of ours
}
RANKS = {name: rank for rank, words in enumerate(LAYERS.values()) for name in words.split()}
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


def rank(module: str) -> int:
    return RANKS[module.split(".")[1]]


def test_every_module_has_its_place_in_the_picture():
    assert {name.split(".")[1] for name in FILES if name not in EXEMPT} <= set(RANKS)


@pytest.mark.parametrize("module", sorted(set(FILES) - EXEMPT))
def test_imports_point_only_downwards(module):
    upwards = [name for name, _ in imports(module) if name not in EXEMPT and rank(name) > rank(module)]
    assert upwards == []


def test_no_imports_go_in_a_circle():
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join((*way, module))
        if module not in done:
            for name, _ in sorted(imports(module)):
                if name not in EXEMPT:
                    visit(name, (*way, module))
            done.add(module)

    for module in sorted(set(FILES) - EXEMPT):
        visit(module, ())


@pytest.mark.parametrize("module", sorted(set(FILES) - PACKAGES))
def test_no_module_imports_its_own_packages_init(module):
    package = module.rpartition(".")[0]
    assert [(name, part) for name, part in imports(module) if name == package] == []


@pytest.mark.parametrize("module", sorted(FILES))
def test_an_import_inside_a_function_says_why(module):
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
        block = number
        while block - 1 in late:  # one comment is enough for imports that stand together
            block -= 1
        around = lines[block - 2] if block >= 2 else ""
        says = any("#" in lines[line - 1] for line in range(block, number + 1))
        assert says or around.strip().startswith("#"), f"{module}:{number}: {lines[number - 1].strip()}"


@pytest.mark.parametrize("module", sorted(FILES))
def test_every_module_says_what_it_is_for(module):
    assert ast.get_docstring(tree(module))


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
    for module in ("model", "errors", "names", "permissions", "schema"):
        names = {
            name
            for node in ast.walk(tree(f"{PACKAGE}.{module}"))
            if isinstance(node, ast.Import)
            for name in [node.names[0].name]
        }
        assert names.isdisjoint({"os", "socket", "subprocess", "pathlib", "sqlite3"})


def test_no_two_test_files_have_one_name():
    names = [path.name for path in pathlib.Path(__file__).parent.rglob("test_*.py")]
    assert [name for name in names if names.count(name) > 1] == []
