"""Keep the current project out of where this program looks for its own modules.

`PYTHONPATH` may name the project, and `python -m anyplug` puts the current folder first. Plugins and agents may write
there, and a file called `json.py` would then run as this program, outside the sandbox. What the interpreter itself
loads comes before any code of ours: plugins may not write files with these names (`protected`). Imports only what the
interpreter has loaded by then.
"""

import os
import sys

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "PYTHONPATH"
# What the interpreter, the console script and `-m` load before our first line, and what loads these files.
AT_START = (
    "sitecustomize", "usercustomize", "anyplug", "encodings", "re", "enum", "types", "operator", "functools",
    "collections", "keyword", "reprlib", "copyreg", "warnings", "contextlib", "importlib", "zipimport", "runpy",
    "pkgutil", "linecache", "tokenize", "token", "weakref", "_distutils_hack", "_virtualenv",
)  # fmt: skip
SUFFIXES = ("py", "pyc", "so", "abi3.so", "cpython-*")  # of modules; a project may have a `types.ts`
METADATA = ("*.dist-info", "*.egg-info")  # they name modules that are loaded by themselves


def leave_out_project() -> None:
    """Remove the project's folders from `sys.path`, and from the variable for programs of ours that this one starts."""
    if sys.flags.isolated:
        return
    try:
        os.getcwd()
    except OSError:  # it is gone, and nothing is imported from there
        return
    folder = _project()
    ours = os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 2))
    given = os.environ.get(VARIABLE, "").split(os.pathsep) if not sys.flags.ignore_environment else []
    named = {os.path.abspath(entry) for entry in given if _is_project(entry, folder)}
    if not sys.flags.safe_path and sys.path and os.path.abspath(sys.path[0]) == os.getcwd():
        named.add(os.getcwd())  # `-m`
    sys.path[:] = [
        entry for entry in sys.path if os.path.abspath(entry) not in named or os.path.realpath(entry) == ours
    ]


def environment(variables: "Mapping[str, str]") -> dict[str, str]:
    """Return the variables for a program of ours that starts in another folder, from where it would not know this."""
    found, folder = dict(variables), _project()
    kept = [entry for entry in found.get(VARIABLE, "").split(os.pathsep) if entry and not _is_project(entry, folder)]
    if kept:
        found[VARIABLE] = os.pathsep.join(map(os.path.abspath, kept))
    else:
        found.pop(VARIABLE, None)
    return found


def protected(variables: "Mapping[str, str]", project: str) -> "Iterator[str]":
    """Yield the patterns of files that would run as this program if a plugin created them."""
    for folder in {os.path.realpath(project), _project(project)} - {""}:  # for `python -m anyplug`, or `PYTHONPATH=.`
        for name in AT_START:
            yield from (os.path.join(folder, f"{name}.{suffix}") for suffix in SUFFIXES)
            yield os.path.join(folder, name, "__init__.*")
    for entry in variables.get(VARIABLE, "").split(os.pathsep) if variables.get(VARIABLE) else ():
        folder = os.path.realpath(os.path.join(project, entry))
        names = set(AT_START)
        if not _is_project(entry, _project(project)):
            names |= {*sys.stdlib_module_names, *(name.partition(".")[0] for name in list(sys.modules))}
            yield from (os.path.join(folder, name) for name in METADATA)
        for name in sorted(names):
            yield os.path.join(folder, f"{name}.*")
            yield os.path.join(folder, name, "__init__.*")


def _project(folder: str = "") -> str:
    """Return the repository of a folder, by default the current one, or the folder; empty for the user's home."""
    try:
        at = here = os.path.realpath(folder or os.getcwd())
    except OSError:  # it is gone
        return ""
    while not os.path.lexists(os.path.join(at, ".git")) and at != os.path.dirname(at):
        at = os.path.dirname(at)
    found = at if at != os.path.dirname(at) else here
    home = os.path.realpath(os.path.expanduser("~"))
    return "" if f"{home}/".startswith(f"{found.rstrip('/')}/") else found


def _is_project(entry: str, project: str) -> bool:
    """Return whether an entry of the variable is the project, in it or above it; relative ones change with it."""
    return not os.path.isabs(entry) or (bool(project) and _is_in(os.path.realpath(entry), project))


def _is_in(folder: str, project: str) -> bool:
    inside, outside = f"{folder.rstrip('/')}/", f"{project}/"
    return inside.startswith(outside) or outside.startswith(inside)
