"""Find mistakes of extension authors by examining the folder, for `check`. Nothing of it runs.

Only what is almost certainly a mistake is reported: an extension may have its own keys, files and modules.
"""

import ast
import os
import re
import sys
import warnings

import anyplug
from anyplug.formats.shared import manifest
from anyplug.formats.zot.format import KEYS, MANIFEST
from anyplug.home import digest
from anyplug.model.types import Launch, Plugin, Problem

BAD_CODE = "bad_code"
SDK = "anyplug_ext"
SDK_FILE = os.path.join(os.path.dirname(os.path.abspath(anyplug.__file__)), "ext", "__init__.py")
OTHER_MODULES = (b"sys.path", b"# /// script")  # in a program that also gets modules from elsewhere
PYTHON_SUFFIX = ".py"

# Programs that run a file named in their arguments.
_INTERPRETER = re.compile(
    r"(python|pypy|uv|node|deno|bun|tsx|ts-node|ruby|perl|lua|php|julia|Rscript|go|env|(ba|z|fi|da|k)?sh)[\d.]*"
)


def slips(plugin: Plugin) -> list[Problem]:
    """List likely mistakes."""
    report = manifest.Report()
    _look_at_keys(plugin, report)
    if plugin.launch is not None:
        _look_at_arguments(plugin, plugin.launch, report)
        for path in _python_files(plugin, plugin.launch):
            _look_at_python(plugin, path, report)
    return report.problems


def _look_at_keys(plugin: Plugin, report: manifest.Report) -> None:
    given = manifest.read_object(os.path.join(plugin.path, MANIFEST), manifest.Report()) or {}
    said = "\n".join(problem.hint for problem in plugin.problems)
    manifest.find_slips(given, KEYS, MANIFEST, report, said)


def _look_at_arguments(plugin: Plugin, launch: Launch, report: manifest.Report) -> None:
    """Check the file that an interpreter should run, and names similar to an existing file."""
    word = _script(launch)
    path = os.path.join(plugin.path, word)
    if not word or os.path.exists(path):
        return
    folder, name = os.path.split(path)
    meant = manifest.near(name, os.listdir(folder)) if os.path.isdir(folder) else ""
    if meant:
        report.warn(
            f"'args' names {word}, which does not exist", f"did you mean {os.path.join(word[: -len(name)], meant)}?"
        )
    elif _INTERPRETER.fullmatch(os.path.basename(launch.program)):
        report.warn(f"'args' names {word}, which does not exist", "a path is relative to the extension's folder")


def _script(launch: Launch) -> str:
    """Return the first argument that looks like a program; empty if there is none."""
    return next((word for word in launch.arguments if _is_programs_name(word)), "")


def _is_programs_name(word: str) -> bool:
    suffix = os.path.splitext(word)[1].lower()
    return suffix in digest.CODE_SUFFIXES and not word.startswith("-") and not re.search(r"\s|://", word)


def _python_files(plugin: Plugin, launch: Launch) -> list[str]:
    """Return the plugin's own files that Python should run."""
    paths = [os.path.normpath(os.path.join(plugin.path, word)) for word in (launch.program, _script(launch)) if word]
    own = dict.fromkeys(path for path in paths if manifest.is_inside(path, plugin.path) and os.path.isfile(path))
    return [path for path in own if path.endswith(PYTHON_SUFFIX) or b"python" in _shebang(path)]


def _shebang(path: str) -> bytes:
    try:
        line = manifest.read_file(path).partition(b"\n")[0]
    except OSError:
        return b""
    return line if line.startswith(b"#!") else b""


def _look_at_python(plugin: Plugin, path: str, report: manifest.Report) -> None:
    """Compile a program without running it, and check for its SDK."""
    name = os.path.relpath(path, plugin.path)
    if b"python2" in _shebang(path):
        return
    try:
        source = manifest.read_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's warnings are for the author
            tree = ast.parse(source, name)
            compile(tree, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        report.error(f"{name}{line}: {error.msg}", _cure_for_syntax(), BAD_CODE)
        return
    except ValueError as error:
        report.error(f"{name}: {error}", _cure_for_syntax(), BAD_CODE)
        return
    except (OSError, RecursionError, MemoryError):
        return  # not readable, which is reported elsewhere, or nested too deeply to be checked
    if _imports_sdk(tree) and not _has_sdk(path) and not any(sign in source for sign in OTHER_MODULES):
        report.warn(
            f"{name} imports {SDK}, but there is no {SDK}.py next to it",
            f"cp {os.path.normpath(SDK_FILE)} {os.path.join(os.path.dirname(path), SDK)}.py",
            BAD_CODE,
        )


def _cure_for_syntax() -> str:
    ours = ".".join(map(str, sys.version_info[:2]))
    return f"fix it there; this is the error of Python {ours}; a newer version may accept the file"


def _imports_sdk(tree: ast.Module) -> bool:
    """Return whether it needs the SDK to start: an import inside a function or a `try` may never run."""
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level]
    return SDK in {name.partition(".")[0] for name in names}


def _has_sdk(path: str) -> bool:
    beside = os.path.join(os.path.dirname(os.path.realpath(path)), SDK)  # Python looks where a link leads
    return os.path.exists(f"{beside}.py") or os.path.isdir(beside)
