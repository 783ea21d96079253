"""The page's files: read once, each with a hash that browsers compare, compressed where the build has that.

Names below `assets/` contain a hash of their content, so browsers keep them for good; everything else is asked about
each time. Any path without a file is a view of the page, and gets `index.html`.
"""

import hashlib
import mimetypes
import os
import urllib.parse
from typing import Final

import msgspec

from anyplug.frontends.console import page_headers
from anyplug.frontends.console.browser_sessions import BrowserSessions
from anyplug.frontends.http import refusals
from anyplug.frontends.http.asgi import Receive, Scope, Send
from anyplug.frontends.http.response import Reply

FOLDER: Final = os.path.join(os.path.dirname(__file__), "page")
INDEX: Final = "index.html"
ENCODINGS: Final = ((b"br", ".br"), (b"gzip", ".gz"))  # best first; built beside the file
FOR_GOOD: Final = b"public, max-age=31536000, immutable"
ASK_AGAIN: Final = b"no-cache"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
NOT_READ: Final = refusals.Refusal(
    405, "usage", "files can only be read", "the API is below /api/v1", headers=((b"allow", b"GET, HEAD"),)
)
ELSEWHERE: Final = ("/api", "/mcp")  # paths that are never views of the page


class _File(msgspec.Struct, frozen=True):
    body: bytes
    kind: bytes
    tag: bytes
    encoded: dict[bytes, bytes]  # by encoding


class StaticFiles:
    """Serves the page, and lets people in who come with a link."""

    def __init__(self, sessions: BrowserSessions, folder: str = FOLDER) -> None:
        self._sessions = sessions
        self._files = _read(folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        reply = Reply(send)
        if scope["method"] not in {"GET", "HEAD"}:
            return await reply.refuse(NOT_READ)
        path = scope["path"].lstrip("/")
        if not path and scope["method"] == "GET" and (key := _key(scope["query_string"])):
            return await self._let_in(key, dict(scope["headers"])[b"host"], send)
        if scope["path"].startswith(ELSEWHERE):
            return await reply.refuse(refusals.NOTHING_HERE)
        file = self._files.get(path)
        if file is None:
            # A missing script must not be answered with a page; but tools and plugins may have a dot in their names.
            is_view = not path.startswith("assets/") and ("/" in path or "." not in path)
            is_view = is_view and ".." not in path.split("/")
            if not is_view or INDEX not in self._files:
                return await reply.refuse(refusals.NOTHING_HERE)
            path, file = INDEX, self._files[INDEX]
        return await _send(send, path, file, dict(scope["headers"]))

    async def _let_in(self, key: str, host: bytes, send: Send) -> None:
        """Exchange the key of a link for a cookie, and a key of the page, which browsers send to nobody."""
        opened = self._sessions.open(key, host)
        refused = b"expired" if self._sessions.may_open_at(host) else b"elsewhere"
        headers: refusals.Headers = [
            (b"location", b"/#page=%s" % opened.page.encode() if opened else b"/?login=%s" % refused),
            (b"cache-control", b"no-store"),
            (b"content-length", b"0"),
            *page_headers.PAGE,
        ]
        if opened:
            headers.append((b"set-cookie", opened.cookie.encode()))
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def _send(send: Send, path: str, file: _File, headers: dict[bytes, bytes]) -> None:
    answer: refusals.Headers = [
        (b"etag", file.tag),
        (b"cache-control", FOR_GOOD if path.startswith("assets/") else ASK_AGAIN),
        (b"vary", b"accept-encoding"),
        *page_headers.PAGE,
    ]
    if file.tag in [tag.strip() for tag in headers.get(b"if-none-match", b"").split(b",")]:
        await send({"type": "http.response.start", "status": 304, "headers": answer})
        await send({"type": "http.response.body", "body": b""})
        return
    body, accepted = file.body, _accepted(headers.get(b"accept-encoding", b""))
    for name, _ in ENCODINGS:
        if name in accepted and name in file.encoded:
            body = file.encoded[name]
            answer.append((b"content-encoding", name))
            break
    answer += [(b"content-type", file.kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": answer})
    await send({"type": "http.response.body", "body": body})


def _accepted(header: bytes) -> set[bytes]:
    """Return the encodings that a client takes; one with `q=0` is refused."""
    found = set()
    for part in header.split(b","):
        name, _, quality = part.partition(b";")
        if quality.replace(b" ", b"") not in {b"q=0", b"q=0.0"}:
            found.add(name.strip().lower())
    return found


def _key(query: bytes) -> str:
    """Return the key in the address of a link."""
    found = urllib.parse.parse_qs(query.decode("latin-1"), max_num_fields=20) if b"key=" in query else {}
    return (found.get("key") or [""])[0]


def _read(folder: str) -> dict[str, _File]:
    """Read all files that the package contains."""
    found: dict[str, _File] = {}
    packed = tuple(ending for _, ending in ENCODINGS)
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            if name.endswith(packed):
                continue
            with open(path, "rb") as file:
                body = file.read()
            encoded = {}
            for encoding, ending in ENCODINGS:
                if os.path.exists(path + ending):
                    with open(path + ending, "rb") as file:
                        encoded[encoding] = file.read()
            ending = os.path.splitext(name)[1]
            kind = TYPES.get(ending) or mimetypes.types_map.get(ending, "application/octet-stream")
            tag = b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()
            found[os.path.relpath(path, folder).replace(os.sep, "/")] = _File(body, kind.encode(), tag, encoded)
    return found
