"""What an endpoint of the API is: its method and path, what it takes and answers, and the function that serves it.

The table of endpoints is the API: requests are routed by it, and the OpenAPI document is generated from it.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from anyplug.frontends.console.api_request import ApiRequest

ROOT: Final = "/api/v1"

Handle = Callable[[ApiRequest], Awaitable[Any]]
Kind = Literal["json", "events", "text", "file", "nothing"]


class Query(msgspec.Struct, frozen=True):
    """A query parameter."""

    name: str
    about: str
    type: Literal["string", "integer", "number", "boolean"] = "string"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str  # below ROOT; `{name}` is a parameter
    name: str  # unique; its operationId
    about: str
    handle: Handle
    body: Any = None  # the type of the request; None: it has none
    answer: Any = None  # the type of the answer
    kind: Kind = "json"
    status: int = 200
    queries: tuple[Query, ...] = ()
    for_tokens: bool = False  # also for a program's token; otherwise only for the page, which a person opened
    is_open: bool = False  # needs no credentials
    upload: str = ""  # a content type that it takes besides JSON
    needs_host: bool = True
    runs_tools: bool = False  # its work is cancelled when a program that asked for it hangs up

    @property
    def is_for_people(self) -> bool:
        """Whether a token is refused: what a person sees and decides is not for agents."""
        return not (self.for_tokens or self.is_open)

    @property
    def is_for_page(self) -> bool:
        """Whether a cookie alone is not enough. Streams and downloads are asked for by the browser itself."""
        return not self.is_open and (self.method != "GET" or (self.is_for_people and self.kind == "json"))


PAGING: Final = (
    Query("limit", "how many items at most (1 to 500)", "integer"),
    Query("cursor", "the `next` of the page before"),
)


class Table:
    """All endpoints, found by method and path."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.all = tuple(endpoints)
        self._routes = [(_pattern(one.path), one) for one in self.all]
        self._known: dict[tuple[str, str], Endpoint] = {
            (one.method, one.path): one for one in self.all if "{" not in one.path
        }

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]] | frozenset[str]:
        """Find the endpoint of a path below ROOT, with its parameters; otherwise the methods that the path has."""
        if (known := self._known.get((method, path))) is not None:
            return known, {}
        methods = set()
        for pattern, endpoint in self._routes:
            if (found := pattern.fullmatch(path)) is not None:
                if endpoint.method == method:
                    return endpoint, found.groupdict()
                methods.add(endpoint.method)
        return frozenset(methods)


def _pattern(path: str) -> re.Pattern[str]:
    """Return a pattern for a path. The first parameter may contain slashes: a tool's name may be PLUGIN/TOOL."""
    parts = re.split(r"\{(\w+)\}", path)
    text = "".join(
        f"(?P<{part}>{'.+' if part == 'tool' else '[^/]+'})" if number % 2 else re.escape(part)
        for number, part in enumerate(parts)
    )
    return re.compile(text)
