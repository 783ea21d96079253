"""Read the daemon's lines: one by one, or as they arrive while a person is being asked."""

import socket
from collections import deque

STEP = 1 << 16  # bytes read at a time


class DaemonLines:
    """Reads lines from a socket, with a look at those that have arrived already."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._begun: list[bytes] = []  # a line that is not complete yet
        self._whole: deque[bytes] = deque()

    def fileno(self) -> int:
        """Return the socket, for waiting."""
        return self._connection.fileno()

    def readline(self) -> bytes:
        """Read a line; at the end what is left, or nothing. Raises OSError, and TimeoutError as the socket does."""
        while not self._whole:
            if not self._receive():
                rest = b"".join(self._begun)
                self._begun = []
                return rest
        return self._whole.popleft()

    def arrived(self) -> list[bytes]:
        """Read once what has arrived, and take all complete lines. Raises OSError, and EOFError at the end."""
        if not self._receive():
            raise EOFError
        lines = list(self._whole)
        self._whole.clear()
        return lines

    def put_back(self, lines: list[bytes]) -> None:
        """Let lines be read again, before all others."""
        self._whole.extendleft(reversed(lines))

    def _receive(self) -> bool:
        """Read once; return False at the end."""
        given = self._connection.recv(STEP)
        first, newline, rest = given.partition(b"\n")
        self._begun.append(first)
        if newline:
            *whole, begun = rest.split(b"\n")
            self._whole.append(b"".join(self._begun) + b"\n")
            self._whole.extend(line + b"\n" for line in whole)
            self._begun = [begun]
        return bool(given)
