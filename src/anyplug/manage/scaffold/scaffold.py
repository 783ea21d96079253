"""What `anyplug new` writes: a small plugin that works at once, for each format in some languages.

A folder beside this file holds each, FORMAT-LANGUAGE, as files that are valid in their own language: the words
PLUGIN_NAME and TOOL_NAME in them become names, and a file that begins with a shebang line becomes a program. zot's
extensions in Python get a copy of the SDK. Prints nothing, and runs nothing.
"""

import os
import re
import unicodedata
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import msgspec

from anyplug.formats.cyclop import format as cyclop
from anyplug.formats.shared import manifest
from anyplug.formats.stavrobot import manifests
from anyplug.home import digest
from anyplug.model import tool_names
from anyplug.model.errors import ScaffoldError, UsageError

ACTION: Final = "count"  # what the tool does: the part of its name that does not follow from the plugin's
EXAMPLE: Final = {"text": "to be or not to be"}  # arguments that it takes
SDK: Final = "anyplug_ext.py"
PLAIN, PROGRAM = 0o644, 0o755

_HERE: Final = os.path.dirname(os.path.abspath(__file__))
_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_PLACEHOLDER: Final = re.compile(b"PLUGIN_NAME|TOOL_NAME")
_ANY_CASE: Final = "Latin letters, digits, dots, hyphens and underscores"
_SMALL: Final = "small Latin letters, digits and hyphens"


class Kind(msgspec.Struct, frozen=True):
    """What there is for a format. Who names no language gets the first."""

    languages: tuple[str, ...]
    takes_name: Callable[[str], object]
    signs: str  # that a name may have


KINDS: Final = {
    "zot": Kind(("python", "node", "bash"), manifest.is_plain_name, _ANY_CASE),
    "cyclop": Kind(("python", "node", "bash"), cyclop.PLUGIN_NAME.fullmatch, _SMALL),
    "stavrobot": Kind(("python", "bash"), manifests.PLUGIN_NAME.fullmatch, _SMALL),
    "workbench": Kind(("node",), manifest.is_plain_name, _ANY_CASE),
}


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
    """Make a plugin of a format in a language; raises UsageError."""
    kind = KINDS[format]
    language = language or kind.languages[0]
    if language not in kind.languages:
        known = "; ".join(f"{one} in {', '.join(KINDS[one].languages)}" for one in KINDS)
        raise UsageError(f"there is no new plugin for {format} in {language}", f"there are {known}")
    _check_name(name, format)
    tool = _tool(name, format)
    _check_tool(tool, name, format)
    given = {b"PLUGIN_NAME": name.encode(), b"TOOL_NAME": tool.encode()}
    texts = {
        path: _PLACEHOLDER.sub(lambda found: given[found[0]], data)
        for path, data in _read_all(os.path.join(_HERE, f"{format}-{language}")).items()
    }
    if (format, language) == ("zot", "python"):
        texts[SDK] = _read(os.path.join(os.path.dirname(_HERE), "ext.py"))
    files = {path: File(data, PROGRAM if data.startswith(b"#!") else PLAIN) for path, data in texts.items()}
    return Draft(name=name, format=format, language=language, tool=tool, files=files)


def write(made: Draft, folder: str) -> None:
    """Write a plugin into a folder that is empty or not there yet; raises ScaffoldError, and leaves nothing then."""
    try:
        if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
            raise ScaffoldError(
                f"{folder} is there already",
                "choose another name, or another place with --into; only an empty folder is written into",
            )
        with ExitStack() as undo:
            for path, file in made.files.items():
                _write(os.path.join(os.path.abspath(folder), path), file, undo)
            undo.pop_all()
    except OSError as error:
        where = error.filename or folder
        raise ScaffoldError(f"cannot write {where}: {error.strerror}", "mend that, then try again") from error


def _check_name(name: str, format: str) -> None:
    """Refuse what the format refuses, and what commands would take for an option or a path."""
    if "/" in name:
        parent, _, last = name.rstrip("/").rpartition("/")
        hint = f"say `{last or 'my-plugin'}`" + (f", and where it goes with `--into {parent}`" if parent else "")
        raise UsageError(f"'{name}' is a path and not a name", hint)
    kind = KINDS[format]
    if not _WORD.search(name) or name.startswith("-") or not kind.takes_name(name):
        bare = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()  # without accents
        better = "-".join(_WORD.findall(bare)).lower() or "my-plugin"
        raise UsageError(
            f"a plugin for {format} cannot be named '{name}'",
            f"use {kind.signs}, and begin with a letter or digit; `{better}` would do",
        )


def _tool(name: str, format: str) -> str:
    """Name the tool as authors of the format do, so that nobody else has the same."""
    words = _WORD.findall(name.lower())
    if format == "stavrobot":
        return f"{name}.{ACTION}"  # the host puts the plugin's name before it
    if format == "workbench":
        return f"{words[0]}{''.join(word.capitalize() for word in words[1:])}.{ACTION}"
    return f"{'_'.join(words)}_{ACTION}"


def _check_tool(tool: str, name: str, format: str) -> None:
    """Refuse what is reserved, and what agents would see cut."""
    if whose := tool_names.reserved_by(tool, format):
        raise UsageError(f"the tool of '{name}' would be '{tool}': that is {whose}", "choose another name")
    if (over := len(tool) - tool_names.MODEL_NAME_LENGTH) > 0:
        raise UsageError(
            f"the tool of '{name}' would be '{tool}', "
            f"and agents see {tool_names.MODEL_NAME_LENGTH} characters of a name",
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
