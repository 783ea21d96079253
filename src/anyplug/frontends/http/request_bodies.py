"""Read request bodies, limited individually and in total. The connection limits the time."""

from anyplug.frontends.http.asgi import Message, Receive
from anyplug.frontends.http.rate_limits import BUSY, WAIT_S
from anyplug.frontends.http.refusals import Refusal, overloaded, too_large

IN_STEP = 16  # bodies of the largest size that may be in memory at once


class Bodies:
    """The bodies of all running requests in memory."""

    def __init__(self, most: int) -> None:
        """`most` is the largest size of one body, in bytes."""
        self._most = most
        self._most_held = most * IN_STEP
        self._held = 0

    async def read(self, declared: int, receive: Receive, most: int = 0) -> bytes | Refusal | None:
        """Read a body, which must be released later; or return why not. None if the client has left.

        `most` replaces the usual largest size.
        """
        most = most or self._most
        if declared > most:
            return too_large(most)
        chunks: list[bytes] = []
        size, body = 0, None
        try:
            while body is None:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                chunks.append(message["body"])
                size += len(message["body"])
                self._held += len(message["body"])
                if size > most:
                    return too_large(most)
                if self._held > max(self._most_held, most):
                    return overloaded(BUSY, "too many large requests are running", WAIT_S)
                if not message["more_body"]:
                    body = b"".join(chunks)
            return body
        finally:
            if body is None:
                self._held -= size

    def release(self, body: bytes) -> None:
        """Record that its request has ended."""
        self._held -= len(body)


def replaying(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first replays the body, then continues with the original."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
