"""A plugin's `config.json`: the user's values, kept in the plugin's folder because its tools read it there.

Tools rewrite it too, so it is read again at each use and merged, never cached. A file that cannot be parsed is never
overwritten. The key `permissions` (which tools may run) is honoured, and written only if a person says so.
"""

import errno
import os
from typing import Any

import msgspec

from anyplug.home import untrusted_files
from anyplug.model.errors import CURE_FOR_SHORTAGE, ConfigError, UsageError, is_shortage
from anyplug.model.types import ConfigKey, Plugin

FILE = "config.json"
PERMISSIONS = "permissions"
EVERYTHING = "*"
SHOWN_SECRET = "•••"
KINDS = {"number": "1.5", "integer": "5", "boolean": "true", "array": "'[1]'", "object": "'{}'"}  # with an example
LARGEST_EXACT = 1 << 53  # of integers that every JSON reader takes for the same number
LARGEST = 256 << 10  # bytes; real ones have a few hundred, and it is read on the event loop, where others wait


def read(plugin: Plugin) -> dict[str, Any]:
    """Read the values; raises ConfigError if the file is invalid."""
    path = os.path.join(plugin.path, FILE)
    try:
        text = untrusted_files.read(path, LARGEST).removeprefix(b"\xef\xbb\xbf")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        # The plugin could have created a link to a file that it may not read itself.
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise ConfigError(
            f"cannot read {path}: {why}", CURE_FOR_SHORTAGE if is_shortage(error) else _cure(plugin)
        ) from error
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {_place(text) or error}", _cure(plugin)) from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must contain a JSON object", _cure(plugin))
    return value


def _cure(plugin: Plugin) -> str:
    return f"fix the file, or start over with `anyplug config {plugin.name} --reset`; it was not changed"


def _place(text: bytes) -> str:
    """Return where a text is not JSON, without quoting it: it may contain secrets."""
    import json  # only needed after a mistake

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    except (ValueError, RecursionError):
        pass
    return ""


def missing(plugin: Plugin, values: dict[str, Any], tool: str = "") -> list[str]:
    """List the required keys that have no value, for one tool or for all. An empty string does not count as one."""
    return [
        key.name
        for key in plugin.config
        if key.required and key.default is msgspec.UNSET and values.get(key.name) in (None, "")
        if not tool or not key.tools or tool in key.tools
    ]


def fill_in_defaults(plugin: Plugin, values: dict[str, Any]) -> dict[str, Any]:
    """Add the defaults of missing keys, because tools look for them in the file."""
    absent = {
        key.name: key.default for key in plugin.config if key.default is not msgspec.UNSET and key.name not in values
    }
    if absent:
        values = values | absent
        _write(plugin, values)
    return values


def change(plugin: Plugin, given: dict[str, str], unset: list[str]) -> dict[str, Any]:
    """Set and unset keys; raises UsageError for keys that the plugin does not know."""
    known = {key.name: key for key in plugin.config}
    unknown = [name for name in (*given, *unset) if name not in known or name == PERMISSIONS]
    if unknown:
        has = f"its values are {', '.join(known)}" if known else "it has no configuration"
        raise UsageError(f"plugin '{plugin.name}' has no configuration value '{unknown[0]}'", has)
    values = read(plugin) | {name: _typed(known[name], word) for name, word in given.items()}
    for name in unset:
        values.pop(name, None)
    _write(plugin, values)
    return values


def switch(plugin: Plugin, tools: dict[str, bool]) -> dict[str, Any]:
    """Switch tools on and off by their own names; raises UsageError for tools that the plugin does not have."""
    known = [tool.own_name for tool in plugin.tools]
    if unknown := [name for name in tools if name not in known]:
        raise UsageError(f"plugin '{plugin.name}' has no tool '{unknown[0]}'", f"its tools are {', '.join(known)}")
    values = read(plugin)
    allowed_now = allowed(values)
    are_on = [name for name in known if tools.get(name, allowed_now is None or name in allowed_now)]
    values[PERMISSIONS] = [EVERYTHING] if are_on == known else are_on
    _write(plugin, values)
    return values


def reset(plugin: Plugin) -> str:
    """Replace all values by the defaults, whatever the file contains; return the name of the copy of the old one."""
    kept = f"{FILE}.before-reset"
    try:
        with untrusted_files.hold(plugin.path) as held:
            os.replace(FILE, kept, src_dir_fd=held.fd, dst_dir_fd=held.fd)
    except FileNotFoundError:
        kept = ""
    except OSError as error:
        raise ConfigError(
            f"cannot replace {os.path.join(plugin.path, FILE)}: {error.strerror}", "check the folder's permissions"
        ) from error
    fill_in_defaults(plugin, {})
    return kept


def allowed(values: dict[str, Any]) -> frozenset[str] | None:
    """Return the tools that the file's `permissions` let run; None if all may."""
    given = values.get(PERMISSIONS, [EVERYTHING])
    if not isinstance(given, list) or EVERYTHING in given:
        return None
    return frozenset(name for name in given if isinstance(name, str))


def _typed(key: ConfigKey, word: str) -> Any:
    """Convert a word to the type that the manifest names, or to that of the default.

    Without either, what is written as a JSON number, boolean, list or object is one, except for a secret.
    """
    kind = key.kind or _kind_of(key.default)
    if kind == "string" or (not kind and key.secret):
        return word
    if kind == "boolean" and word.lower() in {"true", "false"}:
        return word.lower() == "true"
    try:
        value = msgspec.json.decode(word)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = word
    if kind in KINDS and not _is_of(kind, value):
        like = "" if key.kind else f", as its default {msgspec.json.encode(key.default).decode()}"
        raise UsageError(f"'{key.name}' must be of type {kind}{like}, not {word}", f"write {key.name}={KINDS[kind]}")
    if not kind and not _is_written_so(value, word):  # an identifier such as 007 or 12345678901234567890
        return word
    return value


def _kind_of(default: Any) -> str:
    if default is None or default is msgspec.UNSET:
        return ""
    kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    return kinds.get(type(default), "")


def _is_of(kind: str, value: Any) -> bool:
    if kind in {"number", "integer"}:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (kind == "number" or isinstance(value, int))
    return isinstance(value, {"boolean": bool, "array": list}.get(kind, dict))


def _is_written_so(value: Any, word: str) -> bool:
    if isinstance(value, dict | list | str):
        return True
    is_exact = not isinstance(value, int) or abs(value) <= LARGEST_EXACT
    return value is not None and is_exact and msgspec.json.encode(value).decode() == word


def _write(plugin: Plugin, values: dict[str, Any]) -> None:
    path = os.path.join(plugin.path, FILE)
    text = _encoded(values)
    # A new file with an unpredictable name: the plugin could have created a link under a known one.
    new = f"{FILE}.{os.urandom(6).hex()}.tmp"
    try:
        with untrusted_files.hold(plugin.path) as held:
            fd = held.create(new)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(text)
                os.replace(new, FILE, src_dir_fd=held.fd, dst_dir_fd=held.fd)
            except BaseException:
                os.unlink(new, dir_fd=held.fd)
                raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "check the folder's permissions") from error


def _encoded(values: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.format(msgspec.json.encode(values), indent=2)
    except UnicodeEncodeError as error:
        raise UsageError("a value is not UTF-8 text", "check the value, or the terminal's encoding") from error
