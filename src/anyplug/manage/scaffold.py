"""The templates of `anyplug new`: a small working plugin, for each format in some languages.

They are in folders `new-LANGUAGE` next to each format, as files that are valid in their own language: the words
PLUGIN_NAME and TOOL_NAME in them are replaced, and a file that begins with a shebang line becomes executable. Prints
nothing, and runs nothing.
"""

import importlib.util
import os
import re
import unicodedata
from contextlib import ExitStack
from typing import Final

import msgspec

from anyplug.formats import registry
from anyplug.formats.shared.new_plugins import WORD
from anyplug.home import digest
from anyplug.model import tool_names
from anyplug.model.errors import ScaffoldError, UsageError

EXAMPLE: Final = {"text": "to be or not to be"}  # example arguments
PLAIN, PROGRAM = 0o644, 0o755

_PLACEHOLDER: Final = re.compile(b"PLUGIN_NAME|TOOL_NAME")
KINDS: Final = {new.format: new for format in registry.PRECEDENCE if (new := format.NEW) is not None}


class File(msgspec.Struct, frozen=True):
    """A file of a plugin."""

    data: bytes
    mode: int


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that is not written yet."""

    name: str
    format: str
    language: str
    tool: str  # the full name
    files: dict[str, File]  # by path inside the plugin


def draft(name: str, format: str, language: str = "") -> Draft:
    """Create a plugin of a format in a language; raises UsageError."""
    kind = KINDS[format]
    language = language or kind.languages[0]
    if language not in kind.languages:
        known = "; ".join(f"{one} in {', '.join(KINDS[one].languages)}" for one in KINDS)
        raise UsageError(f"there is no template for {format} in {language}", f"the templates are {known}")
    _check_name(name, format)
    tool = kind.tool(name)
    _check_tool(tool, name, format)
    given = {b"PLUGIN_NAME": name.encode(), b"TOOL_NAME": tool.encode()}
    texts = {
        path: _PLACEHOLDER.sub(lambda found: given[found[0]], data)
        for path, data in _read_all(os.path.join(kind.folder, f"new-{language}")).items()
    }
    for path, module in kind.modules.get(language, {}).items():
        texts[path] = _read(_source(module))
    files = {path: File(data, PROGRAM if data.startswith(b"#!") else PLAIN) for path, data in texts.items()}
    return Draft(name=name, format=format, language=language, tool=tool, files=files)


def write(made: Draft, folder: str) -> None:
    """Write a plugin into a new or empty folder; if it raises ScaffoldError, nothing is left behind."""
    try:
        if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
            raise ScaffoldError(
                f"{folder} already exists",
                "choose another name, or another folder with --into; only an empty folder can be used",
            )
        with ExitStack() as undo:
            for path, file in made.files.items():
                _write(os.path.join(os.path.abspath(folder), path), file, undo)
            undo.pop_all()
    except OSError as error:
        where = error.filename or folder
        raise ScaffoldError(
            f"cannot write {where}: {error.strerror}",
            ("check the disk's free space and the folder's permissions, then try again"),
        ) from error


def _check_name(name: str, format: str) -> None:
    """Refuse names that the format refuses, or that commands would parse as an option or a path."""
    if "/" in name:
        parent, _, last = name.rstrip("/").rpartition("/")
        hint = f"use `{last or 'my-plugin'}`" + (f", and choose the folder with `--into {parent}`" if parent else "")
        raise UsageError(f"'{name}' is a path, not a name", hint)
    kind = KINDS[format]
    if not WORD.search(name) or name.startswith("-") or not kind.takes_name(name):
        bare = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()  # without accents
        better = "-".join(WORD.findall(bare)).lower() or "my-plugin"
        raise UsageError(
            f"a plugin for {format} cannot be named '{name}'",
            f"use {kind.signs}, and begin with a letter or digit, for example `{better}`",
        )


def _check_tool(tool: str, name: str, format: str) -> None:
    """Refuse reserved names, and those that agents would see truncated."""
    if whose := registry.reserved_by(tool, format):
        raise UsageError(f"the tool of '{name}' would be '{tool}', which is {whose}", "choose another name")
    if (over := len(tool) - tool_names.MODEL_NAME_LENGTH) > 0:
        raise UsageError(
            f"the tool of '{name}' would be '{tool}', but agents see only {tool_names.MODEL_NAME_LENGTH} characters "
            "of a name",
            f"choose a name that is shorter by {over}",
        )


def _read_all(folder: str) -> dict[str, bytes]:
    """Read the files below a folder; installers leave compiled Python there, too."""
    return {
        os.path.relpath(os.path.join(inside, name), folder): _read(os.path.join(inside, name))
        for inside, _, found in os.walk(folder)
        for name in sorted(found)
        if os.path.basename(inside) not in digest.NEVER
    }


def _source(module: str) -> str:
    """Return the file of a module without importing it; after a colon stands a file beside it."""
    module, _, beside = module.partition(":")
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    return os.path.join(os.path.dirname(found.origin), beside) if beside else found.origin


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, file: File, undo: ExitStack) -> None:
    _make_folder(os.path.dirname(path), undo)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode), "wb") as new:
        undo.callback(os.unlink, path)
        new.write(file.data)


def _make_folder(path: str, undo: ExitStack) -> None:
    if not os.path.isdir(path):
        _make_folder(os.path.dirname(path), undo)
        os.mkdir(path)
        undo.callback(os.rmdir, path)
