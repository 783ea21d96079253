"""Read the configuration that MCP clients share: `mcpServers`, each a program to start or an address.

    {"mcpServers": {"NAME": {"command": "...", "args": ["..."], "env": {"K": "V"}, "cwd": "..."},
                    "NAME": {"url": "https://...", "headers": {"K": "V"}, "type": "http"}}}

VS Code's `servers`, alone or inside `mcp`, is read in the same way. Knows nothing about folders, trust or the protocol.
"""

import errno
import os
from typing import Any, Literal

import msgspec

from anyplug.formats.shared import manifest
from anyplug.model.types import Endpoint, Plugin
from anyplug.model.untrusted_text import for_people, is_clean

LONGEST_NAME = 100  # characters of a server's name, which is part of its tools' names
KEY = "mcpServers"
URL_KEYS = ("url", "serverUrl", "httpUrl")  # the last two are Windsurf's and Gemini's
HOMES = ("${userHome}", "${HOME}", "${env:HOME}")  # references to the user's home folder
PROJECT = "${workspaceFolder}"
OWN_FOLDER = ("${PLUGIN_ROOT}", "${CLAUDE_PLUGIN_ROOT}", "${__dirname}")  # references to the plugin's own folder
TRANSPORTS: dict[str, Literal["", "http", "sse"]] = {
    "": "",
    "stdio": "",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}


class BadServer(Exception):
    """A server's entry is invalid. The text tells why."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


def servers(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Find the servers' part of a configuration; None if it has none."""
    nested = raw.get("mcp")
    for holder, key in ((raw, KEY), (raw, "servers"), (nested, "servers")):
        if isinstance(holder, dict) and isinstance(found := holder.get(key), dict):
            return found
    return None


def read(raw: dict[str, Any], report: manifest.Report, where: str) -> tuple[list[Endpoint], bool]:
    """Read every valid server, and return whether others are disabled; faults are reported by name."""
    found = servers(raw)
    if not found:
        lacks = "names no servers" if found is not None else f"has no '{KEY}'"
        report.error(
            f"{os.path.basename(where)} {lacks} at {where}", f'write {{"{KEY}": {{"NAME": {{"command": ...}}}}}}'
        )
        return [], False
    endpoints: list[Endpoint] = []
    some_off = False
    for name, entry in found.items():
        try:
            if isinstance(entry, dict) and (entry.get("disabled") is True or entry.get("enabled") is False):
                some_off = True
            else:
                endpoints.append(endpoint(name, entry))
        except BadServer as bad:
            shown = for_people(name, LONGEST_NAME)
            report.warn(f"server '{shown}' is invalid: {bad}", bad.hint, "bad_server")
    if not endpoints and not some_off:
        report.error(f"there is no valid server at {where}", "fix one of them")
    return endpoints, some_off


def pieces(path: str) -> dict[str, str]:
    """Return the part of another program's configuration that counts: each server's entry.

    Raises OSError if there is none.
    """
    report = manifest.Report()
    raw = manifest.read_object(path, report, largest=manifest.LARGEST_FILE)
    found = servers(raw) if raw is not None else None
    if found is None:
        raise OSError(errno.EINVAL, f"it has no '{KEY}'", path)
    return {
        f"server '{name}'": msgspec.json.encode(entry, order="deterministic").decode() for name, entry in found.items()
    }


def at_home(text: str) -> str:
    """Replace references to the user's home folder by `~`, which means the same for every caller."""
    for name in HOMES:
        text = text.replace(name, "~")
    return text


def in_folder(found: Endpoint, folder: str) -> Endpoint:
    """Replace references to the plugin's own folder by its path."""
    texts = (found.command, *found.arguments, found.cwd, *found.environment.values())
    if not any(name in text for text in texts for name in OWN_FOLDER):
        return found

    def placed(text: str) -> str:
        for name in OWN_FOLDER:
            text = text.replace(name, folder)
        return text

    return msgspec.structs.replace(
        found,
        command=placed(found.command),
        arguments=tuple(placed(word) for word in found.arguments),
        cwd=placed(found.cwd),
        environment={name: placed(text) for name, text in found.environment.items()},
    )


def program(plugin: Plugin, endpoint: Endpoint) -> str:
    """Return the path of a server's program; a bare name is looked up in the PATH."""
    given = os.path.expanduser(at_home(endpoint.command))
    if "/" not in given or plugin.is_file:
        return given
    return os.path.normpath(os.path.join(plugin.path, given))


def named_files(plugin: Plugin) -> tuple[str, ...]:
    """Return the files in a plugin's folder that its command lines name, whatever their type."""
    if plugin.is_file or not plugin.endpoints:
        return ()
    words = {
        word.partition("=")[2] if word.startswith("-") and "=" in word else word
        for endpoint in plugin.endpoints
        for word in (endpoint.command, *endpoint.arguments)
    }
    found = set()
    for word in words:
        path = os.path.normpath(os.path.join(plugin.path, word))
        if manifest.is_inside(path, plugin.path) and os.path.isfile(path):
            found.add(path[len(plugin.path) + 1 :])
    return tuple(sorted(found))


def endpoint(name: str, entry: Any) -> Endpoint:
    """Read one server; raises BadServer."""
    if not name.strip() or name != name.strip() or not is_clean(name) or len(name) > LONGEST_NAME:
        raise BadServer("its name cannot be part of a tool's name", "use letters, digits, hyphens, underscores")
    if not isinstance(entry, dict):
        raise BadServer("its entry is not an object", 'write it like {"command": "...", "args": []}')
    command = _text(entry, "command")
    url = next((address for key in URL_KEYS if (address := _text(entry, key))), "")
    kind = _text(entry, "type") or _text(entry, "transport")
    if kind not in TRANSPORTS:
        raise BadServer(f"its type '{kind}' is not known", f"use {', '.join(known for known in TRANSPORTS if known)}")
    if bool(command) == bool(url):
        has = "both a command and a url" if command else "neither a command nor a url"
        raise BadServer(f"it has {has}", "use one of the two")
    if url and not url.startswith(("http://", "https://", "${")):
        raise BadServer(f"its url '{url}' is not http or https", "begin it with https://")
    return Endpoint(
        name=name,
        command=command,
        arguments=_words(entry),
        environment=_texts(entry, "env"),
        cwd=_text(entry, "cwd"),
        url=url,
        headers=_texts(entry, "headers"),
        transport=TRANSPORTS[kind],
    )


def _text(entry: dict[str, Any], field: str) -> str:
    value = entry.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadServer(f"'{field}' must be a string", "put it into quotes")
    return _without_nul(value, field)


def _words(entry: dict[str, Any]) -> tuple[str, ...]:
    value = entry.get("args") or []
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadServer("'args' must be a list of strings", 'write it like ["--port", "8000"]')
    return tuple(_without_nul(word, "args") for word in value)


def _texts(entry: dict[str, Any], field: str) -> dict[str, str]:
    value = entry.get(field) or {}
    if not isinstance(value, dict):
        raise BadServer(f"'{field}' must be an object", 'write it like {"NAME": "value"}')
    given: dict[str, str] = {}
    for name, text in value.items():
        if not isinstance(text, str):
            raise BadServer(f"'{field}' has a value that is not a string: {name}", "put it into quotes")
        if not name or "=" in name:
            raise BadServer(f"'{field}' has an invalid name: '{name}'", "use letters, digits, underscores")
        given[_without_nul(name, field)] = _without_nul(text, field)
    return given


def _without_nul(text: str, field: str) -> str:
    if "\0" in text:
        raise BadServer(f"'{field}' must not contain NUL", "remove it")
    return text
