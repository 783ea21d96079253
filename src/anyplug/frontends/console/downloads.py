"""`/files/ID`: files that tools wrote, as downloads. They are never shown on our origin.

A file can be downloaded by who was given the result that names it. The id is unguessable; the path is never taken from
a request.
"""

import os
import re
import secrets
import urllib.parse
from typing import Any, Final

import anyio.to_thread

from anyplug.frontends.console.api_errors import NothingHere
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.console_app import Answer
from anyplug.frontends.console.endpoints import ROOT, Endpoint
from anyplug.home import untrusted_files
from anyplug.model.untrusted_text import for_people

LARGEST: Final = 64 << 20  # bytes
MOST_KNOWN: Final = 1_000  # downloads; the oldest is forgotten
UNGUESSABLE: Final = 16  # bytes of an id
PLAIN: Final = b"application/octet-stream"  # browsers open nothing of this type

_known: dict[str, tuple[str, str]] = {}  # by id: a path and a name
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def with_downloads(request: ApiRequest, content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each file of a result where it can be downloaded."""
    return [{**block, "download": _link(block)} if block["type"] == "file" else block for block in content]


def _link(block: dict[str, Any]) -> str:
    while len(_known) >= MOST_KNOWN:
        del _known[next(iter(_known))]
    name = secrets.token_urlsafe(UNGUESSABLE)
    _known[name] = (block["path"], block["name"])
    return f"{ROOT}/files/{name}"


async def download(request: ApiRequest) -> Answer:
    """Return a file, for saving."""
    path, name = _known.get(request.values["file"], ("", ""))
    try:
        content = await anyio.to_thread.run_sync(untrusted_files.read, path, LARGEST) if path else b""
    except OSError as error:
        raise NothingHere(f"the file cannot be read: {error.strerror}", "call the tool again") from error
    if not path:
        raise NothingHere("there is no such file, or it was written too long ago", "call the tool again")
    plain = _UNSAFE.sub("_", os.path.basename(name))[:100] or "file"
    whole = urllib.parse.quote(for_people(os.path.basename(name), 200), safe="", errors="replace")
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{whole}"
    headers = (
        (b"content-type", PLAIN),
        (b"content-length", b"%d" % len(content)),
        (b"content-disposition", disposition.encode("ascii")),
        (b"cache-control", b"no-store"),
    )
    return Answer(body=content, headers=headers)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/files/{file}",
        name="downloadFile",
        for_tokens=True,
        about="Download a file that a tool wrote",
        handle=download,
        kind="file",
        needs_host=False,
    )
]
