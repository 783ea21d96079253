"""What a host sends to a spawner: in order, and without ever waiting for it.

A socket takes only so much of a burst of starts while the spawner is busy or stands still. The rest waits here, each
request with descriptors of its own, and is sent as the spawner takes it.
"""

import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Sequence

from anyplug.runtime.sandbox import packets

STEP_S = 0.005  # between attempts to send what waits
MOST = 1000  # starts that wait: each holds four descriptors


class Outbox:
    """The requests to one spawner. Its methods belong to the event loop's thread, but for `close`."""

    def __init__(self, peer: socket.socket) -> None:
        """Take over a socket that never blocks."""
        self._peer = peer
        self._lock = threading.Lock()  # descriptors must be closed once
        self._waiting: deque[tuple[bytes, list[int]]] = deque()

    def send(self, packet: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a request, now or as soon as the spawner takes it. Raises OSError if it is gone, or far behind."""
        with self._lock:
            if not self._waiting:
                try:
                    self._peer.sendmsg([packet], packets.rights(descriptors))
                except BlockingIOError:
                    pass
                else:
                    return
            if descriptors and len(self._waiting) >= MOST:
                raise BlockingIOError(errno.EAGAIN, "too many programs wait to be started")
            self._waiting.append((packet, _copies(descriptors)))
            if len(self._waiting) == 1:
                self._try_again_soon()

    def close(self) -> None:
        """Forget what waits: whoever waits for the end of such a start sees its pipe closed."""
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
                except OSError:  # the spawner is gone, or this is more than can be sent: its pipe closes, unanswered
                    pass
                _close(self._waiting.popleft()[1])

    def _try_again_soon(self) -> None:
        import asyncio  # whoever starts programs has it; `show`, which only tries what holds, needs none of it

        asyncio.get_running_loop().call_later(STEP_S, self._go_on)

    def _forget(self) -> None:
        while self._waiting:
            _close(self._waiting.popleft()[1])


def _copies(descriptors: Sequence[int]) -> list[int]:
    """Give descriptors of our own for the same; raises OSError, and then there are none."""
    made: list[int] = []
    try:
        made.extend(map(os.dup, descriptors))  # what was made before one fails is in the list
    except OSError:
        _close(made)
        raise
    return made


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)
