"""Send requests to a spawner in order, without ever waiting for it.

A socket takes only part of a burst of starts while the spawner is busy or stopped. The rest waits here, each request
with its own descriptors, and is sent as the spawner takes it.
"""

import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Sequence

from anyplug.runtime.sandbox import packets

STEP_S = 0.005  # between attempts to send the waiting requests
MOST = 1000  # waiting starts: each holds four descriptors


class Outbox:
    """The requests to one spawner. Its methods belong to the event loop's thread, except for `close`."""

    def __init__(self, peer: socket.socket) -> None:
        """Take ownership of a non-blocking socket."""
        self._peer = peer
        self._lock = threading.Lock()  # descriptors must be closed only once
        self._waiting: deque[tuple[bytes, list[int]]] = deque()

    def send(self, packet: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a request now, or as soon as the spawner takes it. Raises OSError if it is gone, or far behind."""
        with self._lock:
            if not self._waiting:
                try:
                    self._peer.sendmsg([packet], packets.rights(descriptors))
                except BlockingIOError:
                    pass
                else:
                    return
            if descriptors and len(self._waiting) >= MOST:
                raise BlockingIOError(errno.EAGAIN, "too many programs are waiting to be started")
            self._waiting.append((packet, _copies(descriptors)))
            if len(self._waiting) == 1:
                self._try_again_soon()

    def close(self) -> None:
        """Drop the waiting requests: their callers see their pipes closed."""
        with self._lock:
            self._forget()

    def _go_on(self) -> None:
        with self._lock:
            while self._waiting:
                packet, descriptors = self._waiting[0]
                try:
                    self._peer.sendmsg([packet], packets.rights(descriptors))
                except BlockingIOError:
                    self._try_again_soon()
                    return
                except OSError:  # the spawner is gone, or this is too large: its pipe closes unanswered
                    pass
                _close(self._waiting.popleft()[1])

    def _try_again_soon(self) -> None:
        import asyncio  # already imported by callers that start programs; `show`, which only tests, does not need it

        asyncio.get_running_loop().call_later(STEP_S, self._go_on)

    def _forget(self) -> None:
        while self._waiting:
            _close(self._waiting.popleft()[1])


def _copies(descriptors: Sequence[int]) -> list[int]:
    """Duplicate descriptors; raises OSError, leaving none open."""
    made: list[int] = []
    try:
        made.extend(map(os.dup, descriptors))  # those made before a failure are in the list
    except OSError:
        _close(made)
        raise
    return made


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)
