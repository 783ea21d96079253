"""`/events`: everything that happens in a project, as server-sent events that can be resumed."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Final

import anyio

from anyplug import __version__
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.console_app import Stream
from anyplug.frontends.console.endpoints import Endpoint, Query
from anyplug.frontends.console.event_ring import Event, Ring, encoded

BEAT_S: Final = 15.0  # between signs of life; proxies close connections that are silent for a minute


async def follow(request: ApiRequest) -> Stream:
    """Return the events from now on, or from the last one that the client has."""
    live = request.live
    hello = encoded({"version": __version__, "project": request.host.project, "is_console": request.is_console})
    last = request.headers.get(b"last-event-id", b"").decode("latin-1") or request.text("after")
    watched = live.watched(by_a_person=request.is_console)
    return Stream(stream(live.ring, last, b"event: hello\ndata: " + hello + b"\n\n", watched))


async def stream(ring: Ring, last: str, first: bytes, watched: AbstractContextManager[None]) -> AsyncIterator[bytes]:
    """Yield events as bytes, as long as the client reads them."""
    with watched:
        number = ring.number_of(last) if last else ring.last
        yield b"retry: 1000\n\n" + first
        while True:
            events = ring.after(number) if number is not None else None
            if events is None:
                number = ring.last
                yield _reset(ring, "some events since then are no longer kept")
            elif events:
                number = events[-1].number
                yield b"".join(_lines(ring, event) for event in events)
            else:
                with anyio.move_on_after(BEAT_S) as scope:
                    await ring.wait()
                if scope.cancelled_caught:
                    yield b": still here\n\n"


def _lines(ring: Ring, event: Event) -> bytes:
    return b"id: %s-%d\nevent: %s\ndata: %s\n\n" % (ring.epoch.encode(), event.number, event.name.encode(), event.data)


def _reset(ring: Ring, why: str) -> bytes:
    return b"id: %s-%d\nevent: reset\ndata: %s\n\n" % (ring.epoch.encode(), ring.last, encoded({"reason": why}))


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/events",
        name="followEvents",
        about="Follow everything that happens; `Last-Event-ID` resumes",
        handle=follow,
        kind="events",
        queries=(Query("after", "the id of the last event that the client has"),),
    )
]
