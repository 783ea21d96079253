"""The newest events of a project, so that a page that reconnects misses none.

Readers read from the ring at their own pace: nobody has a queue that could grow. One that falls behind, or comes back
with an id that is too old, is told to start over.
"""

import secrets
from collections import deque
from typing import Any, Final

import anyio
import msgspec

from anyplug.model.untrusted_text import encodable

MOST_EVENTS: Final = 2_000
MOST_BYTES: Final = 8 << 20  # of all events in the ring
LARGEST: Final = 256 << 10  # bytes of one event; a larger one only says that something happened


class Event(msgspec.Struct, frozen=True):
    """One event, ready to be sent."""

    number: int
    name: str
    data: bytes  # JSON, which has no line breaks


class Ring:
    """The events of one project."""

    def __init__(self, most: int = MOST_EVENTS) -> None:
        self.epoch = secrets.token_hex(4)  # differs after a restart, when numbers begin again
        self.last = 0
        self._most = most
        self._events: deque[Event] = deque()
        self._size = 0
        self._news = anyio.Event()

    def add(self, name: str, value: Any) -> None:
        """Add an event."""
        data = encoded(value)
        if len(data) > LARGEST:
            name, data = "reset", b'{"reason":"an event was too large to send"}'
        self.last += 1
        self._events.append(Event(self.last, name, data))
        self._size += len(data)
        while len(self._events) > self._most or self._size > MOST_BYTES:
            self._size -= len(self._events.popleft().data)
        news, self._news = self._news, anyio.Event()
        news.set()

    def after(self, number: int) -> list[Event] | None:
        """Return the events after a number; None if some of them are gone."""
        if number > self.last or (self._events and number + 1 < self._events[0].number):
            return None
        if not self._events:
            return [] if number == self.last else None
        start = number + 1 - self._events[0].number
        return [self._events[at] for at in range(start, len(self._events))]

    async def wait(self) -> None:
        """Wait for the next event."""
        await self._news.wait()

    def number_of(self, name: str) -> int | None:
        """Return the number in an event's id; None if it is not one of ours, or of an earlier run."""
        epoch, _, number = name.partition("-")
        if epoch != self.epoch or not number.isascii() or not number.isdecimal():
            return None
        return int(number[:20])


def encoded(value: Any) -> bytes:
    """Encode a value as JSON, also if a plugin wrote half characters."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_mended(msgspec.to_builtins(value)))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list) else value
