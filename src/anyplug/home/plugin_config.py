"""A plugin's `config.json`: the user's values, kept in the plugin's folder because its tools read it there.

Tools rewrite it too, so it is read again at each use and merged, never cached. A file that cannot be parsed is never
overwritten. The key `permissions` (which tools may run) is honoured and never written.
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
LARGEST = 256 << 10  # bytes; real ones have a few hundred, and it is read on the event loop, where others wait


def read(plugin: Plugin) -> dict[str, Any]:
    """Read the values; raises ConfigError if the file is invalid."""
    path = os.path.join(plugin.path, FILE)
    try:
        value = msgspec.json.decode(untrusted_files.read(path, LARGEST).removeprefix(b"\xef\xbb\xbf"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        # The plugin could have created a link to a file that it may not read itself.
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        cure = CURE_FOR_SHORTAGE if is_shortage(error) else "fix the file; it was not changed"
        raise ConfigError(f"cannot read {path}: {why}", cure) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}", "fix the file; it was not changed") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must contain a JSON object", "fix the file; it was not changed")
    return value


def missing(plugin: Plugin, values: dict[str, Any]) -> list[str]:
    """List the required keys that have no value. An empty string does not count as one."""
    return [
        key.name
        for key in plugin.config
        if key.required and key.default is msgspec.UNSET and values.get(key.name) in (None, "")
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


def allowed(values: dict[str, Any]) -> frozenset[str] | None:
    """Return the tools that the file's `permissions` let run; None if all may."""
    given = values.get(PERMISSIONS, [EVERYTHING])
    if not isinstance(given, list) or EVERYTHING in given:
        return None
    return frozenset(name for name in given if isinstance(name, str))


def _typed(key: ConfigKey, word: str) -> Any:
    """Convert a word to the type of the default, so that a number stays one."""
    if isinstance(key.default, str) or key.default in (None, msgspec.UNSET):
        return word
    if isinstance(key.default, bool) and word.lower() in {"true", "false"}:
        return word.lower() == "true"
    try:
        return msgspec.json.decode(word)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return word


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
