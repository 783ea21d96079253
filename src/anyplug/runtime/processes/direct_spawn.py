"""Start a process: `Popen`'s vfork path, a new session, a pidfd to wait on.

Free of event-loop state. Never forks the host: `preexec_fn`, `user=` and `group=` are not used, because their cost
grows with the host's memory.
"""

import os
import signal
import subprocess
import threading

from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Finished, Program


class DirectChild:
    """A child process of the host itself."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid: int | None = popen.pid
        self.fd = _exit_descriptor(popen)

    def poll(self) -> Finished:
        """Return how it ended; kill the rest of its group before its number is free."""
        self.signal(signal.SIGKILL)
        code = self._popen.wait()
        return Finished(ending="exited", exit_code=code)

    def signal(self, number: int) -> None:
        """Send a signal to the whole group."""
        if self._popen.returncode is None:
            try:
                os.killpg(self._popen.pid, number)
            except (ProcessLookupError, PermissionError):  # macOS reports EPERM for a group of zombies
                pass

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


class DirectSpawn:
    """Starts programs as children of the host."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __call__(self, program: Program, stdin: int, stdout: int, stderr: int) -> DirectChild:
        """Start it; raises OSError if it cannot be started."""
        with self._guard:
            popen = subprocess.Popen(
                program.argv,
                cwd=program.cwd,
                env=program.env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        return DirectChild(popen)


def _exit_descriptor(popen: subprocess.Popen[bytes]) -> int:
    """Return a descriptor that becomes readable when the process has ended and is not yet reaped."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(popen.pid)
    # No pidfd (macOS): a thread waits without reaping, and closes the write end of a pipe.
    reading, writing = os.pipe()

    def wait() -> None:
        os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
        os.close(writing)

    threading.Thread(target=wait, daemon=True).start()
    return reading
