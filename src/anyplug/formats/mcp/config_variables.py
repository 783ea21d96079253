"""References in a server's configuration, as clients write them: `${NAME}`, `${env:NAME}`, `${NAME:-default}`.

They stand for the plugin's environment variables, for `${workspaceFolder}` (the caller's project) or for `${userHome}`.
An unresolvable reference is refused: an empty token would fail later, with a worse message.
"""

import os
import re
from collections.abc import Callable, Iterator

import msgspec

from anyplug.model.types import Endpoint

_REFERENCE = re.compile(  # what only another program can resolve is called as that program allows: ${input:api-key}
    r"\$\{(?:(?P<kind>[A-Za-z]+):(?!-))?(?P<name>(?(kind)[^{}:]+|[A-Za-z_][A-Za-z0-9_.]*))(?P<default>:-[^}]*)?\}"
)
FOLDERS = ("workspaceFolder", "userHome")
DATA = ("PLUGIN_DATA", "CLAUDE_PLUGIN_DATA")  # the plugin's data folder


class Unresolved(Exception):
    """A reference cannot be resolved."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(name)
        self.kind = kind  # empty: an environment variable
        self.name = name


def variables(endpoint: Endpoint, *, required: bool = False) -> Iterator[str]:
    """Yield the environment variables that a server's configuration refers to; `required`: only without a default."""
    for text in _texts(endpoint):
        for found in _REFERENCE.finditer(text):
            is_variable = found["kind"] in {None, "env"} and found["name"] not in (*FOLDERS, *DATA)
            if is_variable and not (required and found["default"] is not None):
                yield found["name"]


def with_defaults(text: str) -> str:
    """Replace each reference that has a default by it."""
    return _REFERENCE.sub(lambda found: (found["default"] or found[0]).removeprefix(":-"), text)


def resolve(endpoint: Endpoint, given: dict[str, str], project: str) -> Endpoint:
    """Replace every reference; raises Unresolved."""

    def value(found: re.Match[str]) -> str:
        kind, name, default = found["kind"], found["name"], found["default"]
        if kind in {None, "env"} and name in given:
            return given[name]
        if kind is None and name == "workspaceFolder":
            return project
        if kind is None and name == "userHome":
            return os.path.expanduser("~")
        if default is not None:
            return str(default)[2:]
        raise Unresolved("" if kind in {None, "env"} else str(kind), name)

    def resolved(text: str) -> str:
        return _REFERENCE.sub(value, text) if "${" in text else text

    return _mapped(endpoint, resolved)


def _mapped(endpoint: Endpoint, change: Callable[[str], str]) -> Endpoint:
    return msgspec.structs.replace(
        endpoint,
        command=change(endpoint.command),
        arguments=tuple(change(word) for word in endpoint.arguments),
        environment={name: change(text) for name, text in endpoint.environment.items()},
        cwd=change(endpoint.cwd),
        url=change(endpoint.url),
        headers={name: change(text) for name, text in endpoint.headers.items()},
    )


def _texts(endpoint: Endpoint) -> Iterator[str]:
    yield from (endpoint.command, *endpoint.arguments, endpoint.cwd, endpoint.url)
    yield from endpoint.environment.values()
    yield from endpoint.headers.values()
