"""One-time links, and the browser sessions that they become.

A link is made for a person who runs `anyplug ui`. It works once and for a short time; it becomes a cookie that scripts
cannot read, and a key that only the page's own scripts can read. Browsers send the cookie to every port of a machine,
also to one where a plugin listens; a request with only the cookie decides nothing. A session belongs to the origin at
which its link was opened, and to one project: a browser has a cookie for each, and every page names its own. An agent's
token never becomes a session. Nothing is on disk, so all sessions end with the daemon.
"""

import hashlib
import hmac
import secrets
import time
import urllib.parse
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, NamedTuple

from anyplug.call.consent import Attachment

if TYPE_CHECKING:
    from anyplug.frontends.http.listener import Listener

LINK_S: Final = 60.0  # for a browser to start
IDLE_S: Final = 12 * 3600.0  # a working day without the page
MOST_LINKS: Final = 20  # unused ones; a person opens one
MOST_SESSIONS: Final = 100
KEY_BYTES: Final = 32
PROJECT_LETTERS: Final = 16  # of its name in cookies and pages: enough to tell projects apart, and no secret
COOKIE: Final = "anyplug_session"
PAGE_HEADER: Final = b"x-anyplug-page"
PAGE_QUERY: Final = "page"  # names the project where a browser sends no such header: streams and downloads


class Opened(NamedTuple):
    """What a link became."""

    cookie: str  # the `Set-Cookie` header
    page: str  # the key that the page sends with what it asks for: the project's name, a dot, and a secret


class BrowserSession:
    """One browser that a person opened with a link."""

    def __init__(self, place: Hashable, origin: bytes) -> None:
        """`place` is the project that the page shows, `origin` where its link was opened."""
        self.place = place
        self.origin = origin
        self.project = hashlib.sha256(repr(place).encode()).hexdigest()[:PROJECT_LETTERS]
        self.page = f"{self.project}.{secrets.token_urlsafe(KEY_BYTES)}"
        self.attachment = Attachment("console")
        self.used = time.monotonic()

    def is_of_page(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether a request comes from the page that the link opened."""
        return hmac.compare_digest(headers.get(PAGE_HEADER, b""), self.page.encode())


class BrowserSessions:
    """The links that can still be opened, and the sessions."""

    def __init__(self, listener: "Listener", *, clock: Callable[[], float] = time.monotonic) -> None:
        """Name the cookie after the port: browsers send a cookie to all ports of a machine."""
        self._cookie = f"{COOKIE}_{listener.port}_"  # and the project
        self._listener = listener
        self._clock = clock
        self._links: dict[bytes, tuple[float, Hashable]] = {}  # by the hash of the key: until when, and for what
        self._sessions: dict[bytes, BrowserSession] = {}  # by the hash of the cookie

    def link(self, place: Hashable) -> str:
        """Return the key of a new link."""
        now = self._clock()
        self._links = {key: known for key, known in self._links.items() if known[0] > now}
        while len(self._links) >= MOST_LINKS:
            del self._links[next(iter(self._links))]
        key = secrets.token_urlsafe(KEY_BYTES)
        self._links[_hash(key)] = (now + LINK_S, place)
        return key

    def may_open_at(self, host: bytes) -> bool:
        """Return whether links are for this address."""
        return self._listener.may_enter_at(host)

    def open(self, key: str, host: bytes) -> Opened | None:
        """Use a link; return its session's secrets, or None if it was used, is too old, or is for another origin."""
        if not self.may_open_at(host):
            return None
        until, place = self._links.pop(_hash(key), (0.0, None))
        if until <= self._clock():
            return None
        now = self._clock()
        self._sessions = {name: known for name, known in self._sessions.items() if now - known.used < IDLE_S}
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda name: self._sessions[name].used)]
        value = secrets.token_urlsafe(KEY_BYTES)
        session = self._sessions[_hash(value)] = BrowserSession(place, self._origin(host))
        session.used = now
        return Opened(f"{self._cookie}{session.project}={value}; {self._attributes}", session.page)

    def of(self, headers: dict[bytes, bytes], query: bytes = b"") -> BrowserSession | None:
        """Return the session of a request, if it carries a valid cookie and asks at its session's origin.

        A page says which project it shows; a request that names none must have a single session's cookie.
        """
        value = _value(headers.get(b"cookie", b""), self._cookie, _project(headers, query))
        if value is None:
            return None
        session = self._sessions.get(_hash(value))
        now = self._clock()
        if session is None or session.origin != self._origin(headers[b"host"]) or now - session.used >= IDLE_S:
            return None
        session.used = now
        return session

    def close(self, session: BrowserSession) -> str:
        """End a session; return the `Set-Cookie` header that makes the browser forget it."""
        self._sessions = {name: known for name, known in self._sessions.items() if known is not session}
        return f"{self._cookie}{session.project}=; Max-Age=0; {self._attributes}"

    def _origin(self, host: bytes) -> bytes:
        return b"%s://%s" % (self._listener.scheme.encode(), host.lower())

    @property
    def _attributes(self) -> str:
        return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if self._listener.tls else "")


def _project(headers: dict[bytes, bytes], query: bytes) -> str:
    """Return the project that a page names in its request."""
    if (key := headers.get(PAGE_HEADER)) is not None:
        return key.partition(b".")[0].decode("latin-1")
    return urllib.parse.parse_qs(query.decode("latin-1")).get(PAGE_QUERY, [""])[0]


def _value(header: bytes, prefix: str, project: str) -> str | None:
    """Return a cookie; None if it is missing or occurs twice, since another page on this machine could add one."""
    found = [
        value
        for part in header.decode("latin-1").split(";")
        for key, _, value in [part.strip().partition("=")]
        if (key == prefix + project if project else key.startswith(prefix))
    ]
    return found[0] if len(found) == 1 else None


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()  # so that comparing takes the same time for every guess
