"""The host's side of the spawner: the same `Spawn` as the direct one, for programs that want a /tmp of their own."""

import itertools
import os
import socket
import subprocess
import sys
from typing import Any

import msgspec

from anyplug.runtime.guard import Guard
from anyplug.runtime.program import Finished, Program

SPAWNER = os.path.join(os.path.dirname(__file__), "spawner.py")
START_S = 10.0  # it starts in 30 ms and answers in microseconds; a machine under load may take longer
ANSWER_LIMIT = 4096  # bytes


class NamespacesRefused(Exception):
    """This machine does not let us make a mount namespace; the text says what it answered."""


class NamespacedChild:
    """A program that the spawner started."""

    def __init__(self, spawn: "NamespacedSpawn", number: int, answers: int) -> None:
        self._spawn = spawn
        self._number = number
        self.pid: int | None = None  # the spawner knows it
        self.fd = answers

    def poll(self) -> Finished | None:
        """Say how it ended, or None while it runs."""
        try:
            answer = os.read(self.fd, ANSWER_LIMIT).decode()
        except BlockingIOError:
            return None
        word, _, rest = answer.partition(" ")
        if word == "exit":
            return Finished(ending="exited", exit_code=int(rest))
        if word == "error":
            number, _, reason = rest.partition(" ")
            return Finished(ending="not_started", errno=int(number), reason=reason)
        return Finished(ending="lost", reason="the process that had started it is gone")

    def signal(self, number: int) -> None:
        """Send a signal to the whole group."""
        self._spawn.send({"signal": self._number, "number": number})

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self.fd)


class NamespacedSpawn:
    """Starts programs in mount namespaces of their own, by way of one spawner process."""

    def __init__(self, guard: Guard) -> None:
        """Start the spawner and wait for its word; raises NamespacesRefused. Blocks: call it in a thread."""
        self._numbers = itertools.count(1)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, guard:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", SPAWNER, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=guard.environment,
                cwd="/",
                start_new_session=True,
            )
        # Also for what is sent later: many starts at once fill the socket, and the spawner empties it in no time.
        self._requests.settimeout(START_S)
        try:
            word = self._requests.recv(ANSWER_LIMIT).decode()
        except TimeoutError:
            word = f"the spawner did not answer within {START_S:.0f}s"
        if word != "ready":
            self.close()
            raise NamespacesRefused(word or "the spawner ended at once")

    def __call__(self, program: Program, stdin: int, stdout: int, stderr: int) -> NamespacedChild:
        """Ask for a start; whether it succeeded comes with the first `poll`. Raises OSError if nobody is there."""
        number = next(self._numbers)
        request = {
            "start": number,
            "argv": program.argv,
            "env": program.env,
            "cwd": program.cwd,
            "tmp": program.tmp,
            "visible": program.visible,
        }
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            socket.send_fds(self._requests, [_encode(request)], [stdin, stdout, stderr, writing])
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return NamespacedChild(self, number, reading)

    @property
    def is_alive(self) -> bool:
        """Whether the spawner still runs."""
        return self._process.poll() is None

    def send(self, request: dict[str, int]) -> None:
        """Send a request without descriptors; if nobody is there, there is nothing to signal either."""
        try:
            self._requests.send(msgspec.json.encode(request))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            pass

    def close(self) -> None:
        """Let the spawner go; it kills what still runs."""
        self._requests.close()
        try:
            self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _encode(request: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(request)
    except UnicodeEncodeError:  # a path or a variable that is no text, which only the standard library writes
        import json  # 10 ms, and hardly anybody has such

        return json.dumps(request).encode()
