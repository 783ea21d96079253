"""uvicorn's connection protocol, with the limits that it lacks.

A request, head and body, must arrive within a time after its first byte, or after the connection was made. A connection
whose answer is not read is closed. Invalid HTTP is answered in our format.

The number of connections is limited. Connections that have not shown the token yet are limited further, and the oldest
of them makes room for the next: a client that opens hundreds without the token only closes its own.
"""

import asyncio
import http
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from anyplug.frontends.http.refusals import MALFORMED, TOO_SLOW, Refusal, overloaded, render
from anyplug.home.settings import HttpSettings

STALL_S = 30.0  # how long a client may leave our data unread
HEAD_BYTES = 32_768  # of a request's line and headers, unless all come in one read; MCP needs a few hundred
SPARE_CONNECTIONS = 256  # beyond those with a call or stream: kept open for a next request
MOST_STRANGERS = 128  # connections that have not shown the token yet: a client shows it within milliseconds
KNOWN = "anyplug.known"  # in the scope of a request that carried the token
WAIT_S = 1.0  # idle connections are closed after some seconds, so there is room soon


class Connection(H11Protocol):
    """A connection limited in time and number."""

    most: ClassVar[int]
    receive_s: ClassVar[float]
    strangers: ClassVar["dict[Connection, None]"]  # oldest first

    _arriving: asyncio.TimerHandle | None = None
    _stalling: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start waiting for a request, or refuse the client."""
        super().connection_made(transport)
        self._make_room_for_strangers()
        self.strangers[self] = None
        if len(self.connections) > self.most:
            self._refuse(overloaded(503, f"{self.most} connections are open", WAIT_S))
        else:
            self._arriving = self.loop.call_later(self.receive_s, self._refuse, TOO_SLOW)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        super().connection_lost(exc)
        self.strangers.pop(self, None)
        self._stop_waiting()
        if self._stalling is not None:
            self._stalling.cancel()

    def handle_events(self) -> None:
        """Process what has arrived, and check whether something is missing."""
        self._is_stranger()  # before the next request replaces the last one
        super().handle_events()
        if self.transport.is_closing() or self._has_arrived():
            self._stop_waiting()
        elif self._arriving is None:
            self._arriving = self.loop.call_later(self.receive_s, self._refuse, TOO_SLOW)

    def pause_writing(self) -> None:
        """Start the timeout for a client that does not read."""
        super().pause_writing()
        self._stalling = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the timeout."""
        super().resume_writing()
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None

    def send_400_response(self, msg: str) -> None:
        """Answer that this is not HTTP."""
        self._refuse(MALFORMED)

    def _is_stranger(self) -> bool:
        """Return whether no request on this connection has carried the token yet."""
        if self in self.strangers and self.cycle is not None and self.scope.get(KNOWN):
            del self.strangers[self]
        return self in self.strangers

    def _make_room_for_strangers(self) -> None:
        for oldest in list(self.strangers):
            if len(self.strangers) < MOST_STRANGERS:
                return
            if oldest._is_stranger():  # noqa: SLF001 - another connection of the same class
                oldest._refuse(overloaded(503, f"{MOST_STRANGERS} newer connections are open", WAIT_S))  # noqa: SLF001
                self.strangers.pop(oldest, None)

    def _has_arrived(self) -> bool:
        """Return whether nothing is missing: a complete request, or none that has begun."""
        if self.cycle is None or not self.cycle.response_complete:
            return self.cycle is not None and not self.cycle.more_body
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _stop_waiting(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _refuse(self, refusal: Refusal) -> None:
        """Answer in place of the application, unless it has begun to, and close the connection."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            headers, body = render(refusal)
            phrase = http.HTTPStatus(refusal.status).phrase.encode()
            lines = [b"HTTP/1.1 %d %s" % (refusal.status, phrase), b"connection: close"]
            lines += [name + b": " + value for name, value in headers]
            self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()


def connections_within(settings: HttpSettings) -> type[Connection]:
    """Return the class of connections with these limits, as uvicorn wants it."""
    most = settings.calls + settings.streams + SPARE_CONNECTIONS
    return type("BoundedConnection", (Connection,), {"most": most, "receive_s": settings.receive_s, "strangers": {}})
