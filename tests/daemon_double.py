"""A stand-in for the resident host: its record and its socket, with answers of a test's own."""

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self


class ResidentHost:
    """A resident host's socket, with answers of the test's own.

    `answer` is given a request and gives what is sent back: an object, bytes as they are, or None for silence.
    """

    def __init__(self, home: Path, answer: Callable[[dict[str, Any]], Any]) -> None:
        self.home, self.answer = home, answer
        self.attached: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self._path = str(home / "s")

    def __enter__(self) -> Self:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self._path)
        self._listening.listen()
        record = {"pid": os.getpid(), "socket": self._path, "version": "0", "started": 0}
        (self.home / "resident.json").write_text(json.dumps(record))
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        (self.home / "resident.json").unlink(missing_ok=True)
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _accept(self) -> None:
        serving = []
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                break
            serving.append(threading.Thread(target=self._serve, args=(connection,)))
            serving[-1].start()
        for thread in serving:
            thread.join()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as lines:
            for line in lines:
                said = json.loads(line)
                known = self.attached if "attach" in said else self.requests
                known.append(said)
                answer = {"attached": "a1", "pid": os.getpid()} if "attach" in said else self.answer(said)
                if answer == "hang up":
                    return
                if answer is not None:
                    lines.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n")
                    lines.flush()
