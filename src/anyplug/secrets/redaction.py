"""Track each plugin's secrets as they change: its configuration, granted variables, stored secrets.

A value that was ever passed to a plugin stays masked for the host's lifetime, because its processes may still know it.
"""

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from anyplug.home import plugin_config
from anyplug.model import permissions
from anyplug.model.errors import AnyplugError, ConfigError
from anyplug.model.types import Offer, Plugin, Result
from anyplug.secrets.mask import Mask, Stream
from anyplug.secrets.vault import Secrets, SecretsUnusable

S = TypeVar("S", bound=msgspec.Struct)

MOST_OTHERS = 1_000  # values that the manifest does not declare; each is judged by name, on the event loop
MOST = 100  # values per plugin; a tool that gets a new token in each call must not slow the host down
# What a plugin registers by name, and the fields that the host goes by: a masked name could not be called.
_BY_NAME = ("tools", "services", "commands")
_USED_BY = frozenset({"name", "own_name", "uri", "own_uri", "plugin", "process", "program", "namespace", "taken_name"})
STEADY_NS = 50_000_000  # a file modified more recently than this may change again without a new timestamp


class Redaction:
    """The secrets of one plugin."""

    def __init__(self, plugin: Plugin, granted: tuple[str, ...], secrets: Secrets) -> None:
        self.plugin = plugin
        self.granted = granted
        self._secrets = secrets
        self._path = os.path.join(plugin.path, plugin_config.FILE)
        self._stamp: tuple[int, ...] = ()
        self._values: dict[str, None] = {}  # newest last
        self._mask: Mask | None = None

    def mask(self) -> Mask | None:
        """Return the mask for its current secrets; None if it has none."""
        if self.plugin.config:
            self._follow()
        return self._mask

    def look(self, variables: Mapping[str, str] = os.environ) -> None:
        """Read the environment and the stored secrets. Must be called before any of them is passed to the plugin."""
        from anyplug.secrets import env_vars  # its patterns take milliseconds to compile

        names = permissions.environment_names(self.granted)
        found = [value for name in names if env_vars.is_masked(name, value := variables.get(name, ""))]
        found += [value for name, value in _declared(self.plugin) if env_vars.is_masked(name, value)]
        try:
            found += self._secrets.values(self.plugin).values()
        except SecretsUnusable:
            pass  # so it is not passed to the plugin either
        self._add(found)
        self._follow()

    def text(self, text: str) -> str:
        """Mask its secrets in a text."""
        mask = self.mask()
        return text if mask is None else mask.text(text)

    def beginning(self, text: str, longest: int) -> str:
        """Mask its secrets in the first characters of a text, and drop a possible start of a secret after them."""
        mask = self.mask()
        return text[:longest] if mask is None else mask.beginning(text, longest)

    def schema(self, schema: Any) -> Any:
        """Mask its secrets in a schema."""
        mask = self.mask()
        return schema if mask is None else mask.schema(schema)

    def messages(self, value: dict[str, Any]) -> dict[str, Any]:
        """Mask its secrets in messages for a model."""
        mask = self.mask()
        masked: dict[str, Any] = value if mask is None else mask.messages(value)
        return masked

    def data(self, data: bytes, *, is_cut: bool = False) -> bytes:
        """Mask its secrets in bytes; if they were cut off, drop a possible start of a secret at the end."""
        mask = self.mask()
        if mask is None:
            return data
        return mask.decided(data)[0] if is_cut else mask.data(data)

    def stream(self) -> Stream:
        """Return a stream that masks its secrets."""
        return Stream(self.mask)

    def result(self, result: Result) -> Result:
        """Mask its secrets in a call's result."""
        mask = self.mask()
        return result if mask is None else mask.result(result)

    def error(self, error: AnyplugError) -> None:
        """Mask its secrets in an error's texts."""
        mask = self.mask()
        if mask is not None:
            mask.error(error)

    def struct(self, given: S, kept: frozenset[str]) -> S:
        """Mask its secrets in all fields of a struct that are not `kept`."""
        mask = self.mask()
        return given if mask is None else mask.struct(given, kept)

    def offer(self, offer: Offer) -> Offer:
        """Mask its secrets in what it registered, except in the names of tools and commands.

        Resources that have one in their URI are left out.
        """
        mask = self.mask()
        if mask is None:
            return offer
        masked = mask.struct(offer, frozenset({*_BY_NAME, "resources", "intercepts"}))
        named = {kind: tuple(mask.struct(one, _USED_BY) for one in getattr(offer, kind)) for kind in _BY_NAME}
        found = (one for one in offer.resources if mask.text(one.uri) == one.uri)
        resources = tuple(mask.struct(one, _USED_BY - {"name"}) for one in found)
        return msgspec.structs.replace(masked, resources=resources, **named)

    def _follow(self) -> None:
        """Read the configuration again if it changed: tools rewrite it."""
        if not self.plugin.config:
            return
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return
        stamp = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        if stamp == self._stamp:
            return
        try:
            values = plugin_config.read(self.plugin)
            secrets = list(_in_config(self.plugin, values))
        except (ConfigError, RecursionError):
            return  # it may be in the middle of being written
        self._stamp = stamp if time.time_ns() - found.st_mtime_ns > STEADY_NS else ()
        self._add(secrets)

    def _add(self, found: list[str]) -> None:
        if all(value in self._values for value in found):
            return
        for value in found:
            self._values.pop(value, None)
            self._values[value] = None
        for value in list(self._values)[:-MOST]:
            del self._values[value]
        self._mask = Mask(self._values) or None


def _declared(plugin: Plugin) -> Iterator[tuple[str, str]]:
    """Yield the named values that an MCP configuration passes to its servers."""
    for endpoint in plugin.endpoints:
        yield from endpoint.environment.items()
        yield from endpoint.headers.items()


class Redactions:
    """The secrets of each plugin of a host."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._known: dict[str, Redaction] = {}

    def of(self, plugin: Plugin, granted: tuple[str, ...] | None = None) -> Redaction:
        """Return a plugin's secrets; `granted` is what it may use from now on."""
        known = self._known.get(plugin.path)
        if known is None:
            known = self._known[plugin.path] = Redaction(plugin, granted or (), self._secrets)
            known.look()
        elif known.plugin.config is not plugin.config or (granted is not None and known.granted is not granted):
            known.plugin = plugin
            known.granted = known.granted if granted is None else granted
            known.look()
        elif plugin.config:
            known.mask()
        return known


def _in_config(plugin: Plugin, values: dict[str, Any]) -> Iterator[str]:
    """Find the secrets in a configuration: as the manifest declares, else by name.

    Undeclared values that tools store there are judged as strictly as environment variables, because their names were
    not chosen for us. A default is not secret: anyone can read it in the manifest.
    """
    declared = {key.name: key for key in plugin.config}
    others = (leaf for name, value in values.items() if name not in declared for leaf in _by_name(name, value))
    yield from itertools.islice(others, MOST_OTHERS)  # first: if there are too many, the last ones stay masked
    for name, value in values.items():
        key = declared.get(name)
        if key is not None and key.secret and value != key.default:
            yield from _leaves(value)


def _by_name(name: str, value: Any) -> Iterator[str]:
    from anyplug.secrets import env_vars  # its patterns take milliseconds to compile

    if isinstance(value, dict):
        for key, item in value.items():
            yield from _by_name(key, item)
    elif isinstance(value, list):
        for item in value:
            yield from _by_name(name, item)
    else:
        yield from (leaf for leaf in _leaves(value) if env_vars.looks_secret(name, leaf))


def _leaves(value: Any) -> Iterator[str]:
    """Yield the strings and numbers in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield repr(value)
