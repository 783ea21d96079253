"""Write one line of JSON for each HTTP request: when, what, who, how it ended, how long it took.

The query is left out, because links to the console carry a key there. The file is opened for each line, so that
programs which rotate logs need tell nobody.
"""

import os
import time
from collections.abc import Callable

import msgspec

from anyplug.frontends.http.asgi import App, Message, Receive, Scope, Send

LONGEST_PATH = 500  # characters


class AccessLog:
    """An application that logs what another one answers; `path` returns the file of the moment, or an empty string."""

    def __init__(self, app: App, path: Callable[[], str]) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not self._path():
            await self._app(scope, receive, send)
            return
        begun, status, size = time.time(), 0, 0

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            client = scope.get("client")
            self._write(
                {
                    "at": round(begun, 3),
                    "client": client[0] if client else "",
                    "method": scope["method"],
                    "path": scope["path"][:LONGEST_PATH],
                    "status": status,  # 0: the client left before there was an answer
                    "bytes": size,
                    "ms": round((time.time() - begun) * 1000, 1),
                }
            )

    def _write(self, line: dict[str, object]) -> None:
        """Append a line; a full disk must not stop the service."""
        path = os.path.expanduser(self._path())
        try:
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            os.write(file, msgspec.json.encode(line) + b"\n")
        except OSError:
            pass
        finally:
            os.close(file)
