"""The host's side of the guardian: start it before the first child, mark children, end it.

A mark is a soft RLIMIT_LOCKS that the host sets only during the spawn (so that an embedding program's own children stay
unmarked), and a token in the child's environment.
"""

import errno
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from anyplug.runtime.processes.guardian import GOODBYE, NOTHING_LEFT, RLIMIT_LOCKS, read

if TYPE_CHECKING:  # most of what uses this has imported it already
    import asyncio
    from collections.abc import Iterator

GUARDIAN = os.path.join(os.path.dirname(__file__), "guardian.py")
TOKEN_VARIABLE = "ANYPLUG_GUARD"
TAG_BYTES = 5
LARGEST_TAG = 2**60
AGAIN_S = 1.0  # before the next attempt to replace a guardian
GOODBYE_S = 5.0  # an orderly sweep takes milliseconds; a machine out of memory may need longer

_marking = threading.Lock()  # limits belong to the whole process, which may contain several hosts


class Closes(Protocol):
    """Something that is closed with the guard."""

    def leave(self) -> None:
        """Begin to end."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class Guard:
    """Nothing spawned inside `with guard:` outlives its host, even after SIGKILL. Linux only."""

    def __init__(self, scratch: str = "", *, waits: bool = True) -> None:
        """`scratch` is a folder that is removed with the host.

        Unless the guard `waits`, its processes may end a moment after it was closed, but none that a plugin started.
        """
        self.is_in_force = sys.platform == "linux" and _unlimited()
        self._scratch = scratch
        self._waits = waits
        self._tag = LARGEST_TAG - int.from_bytes(os.urandom(TAG_BYTES), "big")
        self._limits = (0, 0)
        self._token = os.urandom(12).hex()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # which notices the end of the guardian
        self._pidfd = -1  # of the guardian, while the loop watches it
        self.must_sweep = False  # at the end; unless the kernel has ended all programs with their namespaces
        self.spawners: set[object] = set()  # of programs in namespaces that have not ended
        self.zygote: Closes | None = None  # what creates the spawners of confined programs, once one is needed

    @property
    def environment(self) -> dict[str, str]:
        """The variables for children. A host inside a plugin of another host keeps that one's token."""
        outer = os.environ.get(TOKEN_VARIABLE)
        return {TOKEN_VARIABLE: f"{outer},{self._token}" if outer else self._token}

    def __enter__(self) -> None:
        """Mark whatever is spawned from here on. Raises OSError once it is closed: nothing would end such a process."""
        self.must_sweep = True
        self._mark()

    def __exit__(self, *_: object) -> None:
        """Remove the mark."""
        self._unmark()

    @contextmanager
    def around_helper(self) -> "Iterator[None]":
        """Mark a process that starts no programs by itself, and ends with the host."""
        self._mark()
        try:
            yield
        finally:
            self._unmark()

    def _mark(self) -> None:
        if self.is_in_force:
            _marking.acquire()
            try:
                self._ensure()
                self._limits = resource.getrlimit(RLIMIT_LOCKS)
                resource.setrlimit(RLIMIT_LOCKS, (self._tag, self._limits[1]))
            except BaseException:
                _marking.release()
                raise

    def _unmark(self) -> None:
        if self.is_in_force:
            resource.setrlimit(RLIMIT_LOCKS, self._limits)
            _marking.release()

    def watch(self, loop: "asyncio.AbstractEventLoop") -> None:
        """Replace the guardian as soon as it dies, as long as this event loop runs. Called on the loop."""
        with _marking:
            self._loop = loop
            if self._process is not None:  # it was started ahead
                self._follow(self._process.pid)

    def _follow(self, pid: int) -> None:
        """Watch a guardian, on the event loop."""
        self._unfollow()
        if self._loop is None:  # another thread has closed this meanwhile
            return
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:  # it is gone already, or there are no descriptors: the next start replaces it
            return
        self._loop.add_reader(self._pidfd, self._replace)

    def _unfollow(self) -> None:
        if self._pidfd >= 0 and self._loop is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _replace(self) -> None:
        """Start another guardian after one has died."""
        self._unfollow()
        if self._is_closed:
            return
        try:
            with _marking:
                self._ensure()
        except OSError:
            if self._loop is not None:
                self._loop.call_later(AGAIN_S, self._replace)

    def marks(self, pid: int) -> bool:
        """Return whether a process descends from one that was spawned here, even if its parents are gone."""
        token, tag = self._token.encode(), f" {self._tag} ".encode()
        return token in read(f"/proc/{pid}/environ") or tag in read(f"/proc/{pid}/limits")

    def close(self) -> None:
        """Let the guardian sweep once, if anything may be left, and wait for it."""
        with _marking:  # a concurrent spawn has either started a guardian or finds this closed
            self._is_closed = True
            process, self._process = self._process, None
        self._stop_watching()
        if self.zygote is not None:
            self.zygote.leave()
        must_sweep = self.must_sweep or bool(self.spawners)
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):  # it was killed
                process.stdin.write(GOODBYE if must_sweep else NOTHING_LEFT)
                process.stdin.close()
        if self._waits or must_sweep:
            self._await_helpers(process)
        else:  # a command exits meanwhile; in a process that goes on, no zombies stay
            threading.Thread(target=self._await_helpers, args=(process,), daemon=True).start()

    def _await_helpers(self, process: "subprocess.Popen[bytes] | None") -> None:
        if self.zygote is not None:
            self.zygote.close()
        if process is not None:
            end(process, GOODBYE_S)

    def _stop_watching(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None or self._pidfd < 0:
            return
        over = threading.Event()

        def stop() -> None:
            loop.remove_reader(self._pidfd)
            over.set()

        try:
            loop.call_soon_threadsafe(stop)
        except RuntimeError:  # the loop is over
            over.set()
        over.wait(GOODBYE_S)
        os.close(self._pidfd)
        self._pidfd = -1

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
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is over
                self._loop.call_soon_threadsafe(self._follow, self._process.pid)


def _unlimited() -> bool:
    """Return whether the limit that carries the mark is unset, as it is unless set on purpose."""
    return resource.getrlimit(RLIMIT_LOCKS)[1] == resource.RLIM_INFINITY


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Wait until a child has ended, and kill it after a grace period."""
    if process.poll() is None:
        with suppress(OSError), open(os.pidfd_open(process.pid), "rb", buffering=0) as ended:
            either = select.poll()  # `Popen.wait` with a timeout looks every few milliseconds
            either.register(ended, select.POLLIN)
            either.poll(grace_s * 1000)
        if process.poll() is None:
            process.kill()
    process.wait()


def signal_name(number: int) -> str:
    """Return a signal's name for people."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
