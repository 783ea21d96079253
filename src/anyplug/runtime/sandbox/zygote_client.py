"""The host's side of the zygote: start it with the first spawner, and request each spawner.

An interpreter with a spawner's imports takes 17 ms to start, and 3 MB of unshared memory; a fork takes a millisecond,
and half of that memory.
"""

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading

from anyplug.runtime.processes.guard import Guard, end
from anyplug.runtime.sandbox import packets

PACKAGES = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
BOOT = "import sys; sys.path.append(sys.argv.pop()); from anyplug.runtime.sandbox.zygote import main; main()"
START_S = 10.0  # it starts in 17 ms and forks in one; a busy machine may need longer
ANSWER_LIMIT = 64  # bytes

_making = threading.Lock()


class ZygoteGone(OSError):
    """The zygote was killed, or does not answer; the next request starts another."""


class Offspring:
    """A spawner's process, by the descriptor that it sent."""

    def __init__(self, pidfd: int) -> None:
        self.pid = _number(pidfd)
        self._pidfd = pidfd

    def kill(self) -> None:
        """Kill it at once; with process 1 of a namespace the kernel kills everything in there."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def end(self, grace_s: float) -> None:
        """Wait until it has ended, and kill it after a grace period."""
        if not self._has_ended(grace_s):
            self.kill()
            self._has_ended(grace_s)
        self.let_go()

    def let_go(self) -> None:
        """Close the descriptor of a process that is ending, or has ended."""
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
    """Creates spawners for one host, from any of its threads."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._lock = threading.Lock()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def make_spawner(self, end: socket.socket) -> None:
        """Create a spawner that serves this end of a socket pair.

        Raises OSError; ZygoteGone if another attempt may succeed, with another pair: this one's end may be in use.
        """
        with self._lock:
            failure = self._ask(end)
        if failure:
            raise OSError(failure, os.strerror(failure))

    def get_ready(self) -> None:
        """Start the zygote, unless there is one. Raises OSError."""
        with self._lock:
            if self._requests is None:
                self._start()

    def leave(self) -> None:
        """Let the zygote end, without waiting for it. Its spawners live as long as they are needed."""
        with self._lock:
            self._hang_up()

    def close(self) -> None:
        """End the zygote, and wait until the last of its spawners has ended."""
        with self._lock:
            self._dismiss()

    def _ask(self, end: socket.socket) -> int:
        """Send a request; return the error number. A zygote that does not answer is killed; raises ZygoteGone."""
        requests = self._requests or self._start()
        try:
            packets.send(requests, b"spawner", [end.fileno()])
            if answer := requests.recv(ANSWER_LIMIT):
                return int(answer)
            failure = ZygoteGone(errno.EPIPE, os.strerror(errno.EPIPE))
        except TimeoutError:
            failure = ZygoteGone(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            if self._zygote is not None:
                self._zygote.kill()  # it already had its time
        except ConnectionError:
            failure = ZygoteGone(errno.EPIPE, os.strerror(errno.EPIPE))
        self._dismiss()
        raise failure

    def _start(self) -> socket.socket:
        requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, self._guard.around_helper():
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

    def _hang_up(self) -> None:
        if self._requests is not None:
            self._requests.close()
            self._requests = None

    def _dismiss(self) -> None:
        self._hang_up()
        if self._zygote is not None:
            end(self._zygote, START_S)
            self._zygote = None


def zygote_of(guard: Guard) -> ZygoteClient:
    """Return the guard's zygote, which ends with it."""
    with _making:
        if not isinstance(guard.zygote, ZygoteClient):
            guard.zygote = ZygoteClient(guard)
        return guard.zygote


def _number(pidfd: int) -> int:
    """Return a process's number on this side; 0 if unknown."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Pid:")), 0)
    except (OSError, ValueError):
        return 0
