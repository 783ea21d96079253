"""The host's side of the nurse: has it started with the first spawner, and asks it for each.

An interpreter with what a spawner imports takes 17 ms to start, and 3 MB that nobody shares; a fork of one that is
there takes a millisecond, and half of that memory.
"""

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import Protocol

from anyplug.runtime.confine import packets

PACKAGES = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
BOOT = "import sys; sys.path.append(sys.argv.pop()); from anyplug.runtime.confine.nurse import main; main()"
START_S = 10.0  # it starts in 17 ms and forks in one; a machine under load may take longer
ANSWER_LIMIT = 64  # bytes


class Marking(Protocol):
    """What marks those that are started inside it as the host's."""

    @property
    def environment(self) -> dict[str, str]:
        """What they carry."""
        ...

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class NurseGone(OSError):
    """The nurse was killed, or does not answer; the next one is another."""


class Offspring:
    """The process of a spawner, by the descriptor of it that it sent."""

    def __init__(self, pidfd: int) -> None:
        self.pid = _number(pidfd)
        self._pidfd = pidfd

    def kill(self) -> None:
        """End it at once; with process 1 of a namespace the kernel ends all that is in there."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def end(self, grace_s: float) -> None:
        """Wait until it has ended, and kill it if that takes longer than this. There is nothing to know of it then."""
        if not self._has_ended(grace_s):
            self.kill()
            self._has_ended(grace_s)
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _has_ended(self, within_s: float) -> bool:
        if self._pidfd < 0:
            return True
        either = select.poll()
        either.register(self._pidfd, select.POLLIN)
        return bool(either.poll(within_s * 1000))


class Nursery:
    """Makes spawners for one host, from any of its threads."""

    def __init__(self, marking: Marking) -> None:
        self._marking = marking
        self._lock = threading.Lock()
        self._nurse: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def make_spawner(self, end: socket.socket) -> None:
        """Have a spawner made that serves this end of a pair of sockets.

        Raises OSError; NurseGone if another attempt may succeed, with another pair: somebody may have this one's end.
        """
        with self._lock:
            failure = self._ask(end)
        if failure:
            raise OSError(failure, os.strerror(failure))

    def close(self) -> None:
        """Let the nurse go. Its spawners stay as long as they are wanted."""
        with self._lock:
            self._dismiss()

    def _ask(self, end: socket.socket) -> int:
        """Ask the nurse; give the number of what went wrong. One that does not answer is ended; raises NurseGone."""
        requests = self._requests or self._start()
        try:
            packets.send(requests, b"spawner", [end.fileno()])
            if answer := requests.recv(ANSWER_LIMIT):
                return int(answer)
            failure = NurseGone(errno.EPIPE, os.strerror(errno.EPIPE))
        except TimeoutError:
            failure = NurseGone(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            if self._nurse is not None:
                self._nurse.kill()  # it was given the time already
        except ConnectionError:
            failure = NurseGone(errno.EPIPE, os.strerror(errno.EPIPE))
        self._dismiss()
        raise failure

    def _start(self) -> socket.socket:
        requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, self._marking:
                self._nurse = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", BOOT, str(theirs.fileno()), PACKAGES],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=self._marking.environment,
                    cwd="/",
                    start_new_session=True,
                )
        except BaseException:
            requests.close()
            raise
        requests.settimeout(START_S)
        self._requests = requests
        return requests

    def _dismiss(self) -> None:
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._nurse is not None:
            try:
                self._nurse.wait(START_S)
            except subprocess.TimeoutExpired:
                self._nurse.kill()
                self._nurse.wait()
            self._nurse = None


def _number(pidfd: int) -> int:
    """Give the number of a process, as this side counts; 0 if that is not to be known."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Pid:")), 0)
    except (OSError, ValueError):
        return 0
