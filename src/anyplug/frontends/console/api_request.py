"""One request to the API, read: its parameters, its body, and who makes it."""

import urllib.parse
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeVar

import msgspec

from anyplug.call import trace_context
from anyplug.call.consent import Attachment
from anyplug.call.open_questions import OpenQuestions
from anyplug.frontends.console.browser_sessions import BrowserSession, BrowserSessions
from anyplug.frontends.console.live_project import LiveProject
from anyplug.home.settings import Home
from anyplug.host.host import Host
from anyplug.model.errors import UsageError

T = TypeVar("T")

USUAL_PAGE: Final = 100
LARGEST_PAGE: Final = 500


class Server(Protocol):
    """The process that serves the API, as its handlers see it."""

    home: Home
    sessions: BrowserSessions
    started: float
    pid: int
    url: str

    @property
    def questions(self) -> OpenQuestions:
        """The open questions of all projects."""
        ...

    def inside(self, place: Hashable) -> AbstractAsyncContextManager[Host]:
        """Keep the host of a project open inside the block."""
        ...

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin work that goes on when its request has been answered."""
        ...


class ApiRequest:
    """One request."""

    __slots__ = ("_body", "_live", "_queries", "content_type", "headers", "place", "server", "session", "values")

    def __init__(
        self,
        server: Server,
        values: dict[str, str],
        query: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        session: BrowserSession | None,
        place: Hashable,
    ) -> None:
        self.server = server
        self.values = values  # of the path's parameters
        self.headers = headers
        self.session = session
        self.place = place
        self.content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        self._body = body
        self._queries = _read_query(query)
        self._live: LiveProject | None = None

    def enter(self, live: LiveProject) -> None:
        """Name the project that the request is about, while it is open."""
        self._live = live

    @property
    def live(self) -> LiveProject:
        """The project that the request is about."""
        assert self._live is not None
        return self._live

    @property
    def host(self) -> Host:
        """Its host."""
        return self.live.host

    @property
    def is_console(self) -> bool:
        """Whether a person's browser session makes it."""
        return self.session is not None

    def attachment(self) -> Attachment:
        """Return the caller. Programs with a token cannot be told apart, so each request is one of its own."""
        if self.session is not None:
            return self.session.attachment
        attachment = Attachment("api", line="api")
        attachment.trace = trace_context.read(self.headers)
        return attachment

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self._body

    def read(self, kind: type[T]) -> T:
        """Read the body as JSON; an empty one counts as an empty object. Raises UsageError."""
        try:
            return msgspec.json.decode(self._body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(
                f"the request's body cannot be read: {error}", "`/api/v1/openapi.json` describes it"
            ) from error

    def text(self, name: str) -> str:
        """Return a query parameter; an empty string if it is missing."""
        return self._queries.get(name, "")

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a parameter that is 1 or 0, true or false. Raises UsageError."""
        given = self.text(name).lower()
        if given not in {"", "0", "1", "true", "false"}:
            raise UsageError(f"the parameter '{name}' must be true or false", "")
        return default if not given else given in {"1", "true"}

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number within bounds. Raises UsageError."""
        given = self.text(name)
        if not given:
            return default
        if not given.isascii() or not given.isdecimal() or not least <= int(given[:20]) <= most:
            raise UsageError(f"the parameter '{name}' must be a number from {least} to {most}", "")
        return int(given)

    @property
    def limit(self) -> int:
        """How many items a page may have."""
        return self.number("limit", USUAL_PAGE, 1, LARGEST_PAGE)

    def page(self, items: list[Any]) -> dict[str, Any]:
        """Return a page of a list that is in memory."""
        start = self.number("cursor", 0, 0, 1 << 31)
        end = start + self.limit
        return {"items": items[start:end], "next": str(end) if end < len(items) else None}


def _read_query(query: bytes) -> dict[str, str]:
    """Read the query; raises UsageError if a parameter occurs twice."""
    if not query:
        return {}
    try:
        pairs = urllib.parse.parse_qsl(
            query.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="strict"
        )
    except ValueError as error:
        raise UsageError("the query of the address cannot be read", "percent-encode its values as UTF-8") from error
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UsageError("a parameter occurs twice in the address", "")
    return found
