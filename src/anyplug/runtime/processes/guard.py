"""The host's side of the guardian: start it before the first child, mark children, end it.

A mark is a soft RLIMIT_LOCKS that the host sets only during the spawn (so that an embedding program's own children stay
unmarked), and a token in the child's environment.
"""

import errno
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
from typing import Protocol

from anyplug.runtime.processes.guardian import RLIMIT_LOCKS, read

GUARDIAN = os.path.join(os.path.dirname(__file__), "guardian.py")
TOKEN_VARIABLE = "ANYPLUG_GUARD"
TAG_BITS = 40
LARGEST_TAG = 2**60
GOODBYE_S = 5.0  # an orderly sweep takes milliseconds; a machine out of memory may need longer

_marking = threading.Lock()  # limits belong to the whole process, which may contain several hosts


class Closes(Protocol):
    """Something that is closed with the guard."""

    def close(self) -> None:
        """Release everything."""
        ...


class Guard:
    """Nothing spawned inside `with guard:` outlives its host, even after SIGKILL. Linux only."""

    def __init__(self, scratch: str = "") -> None:
        """`scratch` is a folder that is removed with the host."""
        self.is_in_force = sys.platform == "linux" and _unlimited()
        self._scratch = scratch
        self._tag = LARGEST_TAG - secrets.randbits(TAG_BITS)
        self._limits = (0, 0)
        self._token = secrets.token_hex(12)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self.zygote: Closes | None = None  # what creates the spawners of confined programs, once one is needed

    @property
    def environment(self) -> dict[str, str]:
        """The variables for children. A host inside a plugin of another host keeps that one's token."""
        outer = os.environ.get(TOKEN_VARIABLE)
        return {TOKEN_VARIABLE: f"{outer},{self._token}" if outer else self._token}

    def __enter__(self) -> None:
        """Mark whatever is spawned from here on. Raises OSError once it is closed: nothing would end such a process."""
        if self.is_in_force:
            _marking.acquire()
            try:
                self._ensure()
                self._limits = resource.getrlimit(RLIMIT_LOCKS)
                resource.setrlimit(RLIMIT_LOCKS, (self._tag, self._limits[1]))
            except BaseException:
                _marking.release()
                raise

    def __exit__(self, *_: object) -> None:
        """Remove the mark."""
        if self.is_in_force:
            resource.setrlimit(RLIMIT_LOCKS, self._limits)
            _marking.release()

    def marks(self, pid: int) -> bool:
        """Return whether a process descends from one that was spawned here, even if its parents are gone."""
        token, tag = self._token.encode(), f" {self._tag} ".encode()
        return token in read(f"/proc/{pid}/environ") or tag in read(f"/proc/{pid}/limits")

    def close(self) -> None:
        """Let the guardian sweep once, and wait for it."""
        with _marking:  # a concurrent spawn has either started a guardian or finds this closed
            self._is_closed = True
            process, self._process = self._process, None
        if self.zygote is not None:
            self.zygote.close()
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ensure(self) -> None:
        if self._is_closed:
            raise OSError(errno.ESHUTDOWN, "the host has ended")
        if self._process is not None:
            if self._process.poll() is None:
                return
            assert self._process.stdin is not None
            self._process.stdin.close()  # it was killed, so start another
        arguments = [os.getpid(), self._tag, self._token, os.getpgrp(), self._scratch]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARDIAN, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,  # killing the host's group must not kill the guardian
        )


def _unlimited() -> bool:
    """Return whether the limit that carries the mark is unset, as it is unless set on purpose."""
    return resource.getrlimit(RLIMIT_LOCKS)[1] == resource.RLIM_INFINITY


def signal_name(number: int) -> str:
    """Return a signal's name for people."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
