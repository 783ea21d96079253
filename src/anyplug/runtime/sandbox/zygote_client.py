"""The host's side of the zygote: starts it with the first spawner, and asks it for each.

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

from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.sandbox import packets

PACKAGES = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
BOOT = "import sys; sys.path.append(sys.argv.pop()); from anyplug.runtime.sandbox.zygote import main; main()"
START_S = 10.0  # it starts in 17 ms and forks in one; a machine under load may take longer
ANSWER_LIMIT = 64  # bytes

_making = threading.Lock()


class ZygoteGone(OSError):
    """The zygote was killed, or does not answer; the next one is another."""


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


class ZygoteClient:
    """Makes spawners for one host, from any of its threads."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._lock = threading.Lock()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def make_spawner(self, end: socket.socket) -> None:
        """Have a spawner made that serves this end of a pair of sockets.

        Raises OSError; ZygoteGone if another attempt may succeed, with another pair: somebody may have this one's end.
        """
        with self._lock:
            failure = self._ask(end)
        if failure:
            raise OSError(failure, os.strerror(failure))

    def close(self) -> None:
        """Let the zygote go. Its spawners stay as long as they are wanted."""
        with self._lock:
            self._dismiss()

    def _ask(self, end: socket.socket) -> int:
        """Ask the zygote; give the number of what went wrong. One that does not answer is ended; raises ZygoteGone."""
        requests = self._requests or self._start()
        try:
            packets.send(requests, b"spawner", [end.fileno()])
            if answer := requests.recv(ANSWER_LIMIT):
                return int(answer)
            failure = ZygoteGone(errno.EPIPE, os.strerror(errno.EPIPE))
        except TimeoutError:
            failure = ZygoteGone(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            if self._zygote is not None:
                self._zygote.kill()  # it was given the time already
        except ConnectionError:
            failure = ZygoteGone(errno.EPIPE, os.strerror(errno.EPIPE))
        self._dismiss()
        raise failure

    def _start(self) -> socket.socket:
        requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, self._guard:
                self._zygote = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", BOOT, str(theirs.fileno()), PACKAGES],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=self._guard.environment,
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
        if self._zygote is not None:
            try:
                self._zygote.wait(START_S)
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()
            self._zygote = None


def zygote_of(guard: Guard) -> ZygoteClient:
    """Return the guard's zygote, which ends with it."""
    with _making:
        if not isinstance(guard.zygote, ZygoteClient):
            guard.zygote = ZygoteClient(guard)
        return guard.zygote


def _number(pidfd: int) -> int:
    """Return the number of a process, as this side counts; 0 if that is not to be known."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Pid:")), 0)
    except (OSError, ValueError):
        return 0
