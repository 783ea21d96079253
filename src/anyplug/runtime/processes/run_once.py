"""Run one program to its end: feed it, drain it, limit it, end it, on the event loop.

Ending works the same for timeouts, floods and cancellation: SIGTERM to the group, TERM_GRACE_S, SIGKILL to the group,
KILL_GRACE_S. Both pipes are read all the while, so that a program that writes on SIGTERM is not stuck. Only the process
itself is waited for: a grandchild that keeps the pipes open delays nobody. The rest of the group is killed when the
process has ended.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Callable

from anyio import CancelScope

from anyplug.runtime.processes import phases
from anyplug.runtime.processes.pipes import open_pipes
from anyplug.runtime.processes.program import Child, Ending, Finished, Program, Spawn, Waiting

TERM_GRACE_S = 1.0  # enough to flush and unlock, short enough for a waiting person
KILL_GRACE_S = 5.0  # a process in uninterruptible sleep may ignore even SIGKILL for a while
PATIENCE_S = 0.002  # many programs are done by then, and their pipes need no attention
CHUNK = 65_536  # bytes; the capacity of a Linux pipe
DRAIN_LIMIT = 16  # chunks read after the exit, in case a grandchild keeps writing


async def run(program: Program, spawn: Spawn, waiting: Waiting | None = None) -> Finished:
    """Run a program on pipes.

    `waiting` is its interpreter, started ahead; if that ends before the program began, another is started.
    Raises only if the caller is cancelled; the program is gone by then.
    """
    if waiting is not None and await waiting.settled():
        begun = waiting.release()
        exchange = _Exchange(program, begun.ours, begun.first, begun.answer)
        phases.tell_started()
        await exchange.run(begun.child)
        if exchange.has_answered or exchange.is_overdue:
            return exchange.finished()
    try:
        pipes = open_pipes()
    except OSError as error:
        return _not_started(error)
    exchange = _Exchange(program, pipes.ours)
    try:  # spawn first, then do the rest while the program starts
        child = spawn(program, *pipes.theirs)
    except OSError as error:
        exchange.close()
        return _not_started(error)
    except BaseException:
        exchange.close()
        raise
    finally:
        for fd in pipes.theirs:
            os.close(fd)
    phases.tell_started()
    await exchange.run(child)
    return exchange.finished()


def _not_started(error: OSError) -> Finished:
    return Finished(ending="not_started", errno=error.errno or 0, reason=error.strerror or str(error))


class _Exchange:
    """Three pipes and a child, from start to end."""

    def __init__(self, program: Program, ours: tuple[int, int, int], first: bytes = b"", answer: bytes = b"") -> None:
        """`first` is written before the program's own input, and `answer` comes before its own output."""
        self._program = program
        self._loop = asyncio.get_running_loop()
        self._unsent = memoryview(first + program.stdin if first else program.stdin)
        self._answer = answer
        self._stdout = _Drain(self._loop, program.max_stdout + len(answer), lambda: self._settle("too_large"))
        self._stderr = _Drain(self._loop, program.max_stderr)
        phases.offer_stderr(self._stderr.data)
        self._stdin, self._stdout.fd, self._stderr.fd = self._ours = ours
        self._ending: Ending = "exited"
        self._child: Child | None = None
        self._timers: tuple[asyncio.TimerHandle, ...] = ()
        self.exit: Finished | None = None
        self.settled: asyncio.Future[None] = self._loop.create_future()  # it ended, or must be ended
        self._ended: asyncio.Future[None] | None = None

    async def run(self, child: Child) -> None:
        """Attend to a started program until it has ended, or end it."""
        try:
            self.begin(child)
            await self.settled
        finally:
            if self.exit is None:
                with CancelScope(shield=True):
                    await self.end()
            self.close()

    @property
    def has_answered(self) -> bool:
        """Whether it said that it begins."""
        return b"".join(self._stdout.chunks[:1]).startswith(self._answer)

    @property
    def is_overdue(self) -> bool:
        """Whether its time is up."""
        return self._ending == "timed_out"

    def begin(self, child: Child) -> None:
        """Attend to the started program. Even if this raises, `end` can be called."""
        self._child = child
        self._loop.add_reader(child.fd, self._look)
        for fd in self._ours:
            os.set_blocking(fd, False)
        self._feed()
        self._timers = (
            self._loop.call_later(PATIENCE_S, self._attend),
            self._loop.call_later(self._program.timeout_s, self._settle, "timed_out"),
        )

    def _attend(self) -> None:
        """Serve the pipes of a program that does not end at once."""
        self._stdout.attend()
        self._stderr.attend()
        if self._stdin >= 0:
            self._loop.add_writer(self._stdin, self._feed)

    async def end(self) -> None:
        """End the whole group, whatever it does."""
        assert self._child is not None
        self._ended = self._loop.create_future()
        for number, grace in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
            self._child.signal(number)
            await asyncio.wait((self._ended,), timeout=grace)
            if self.exit is not None:
                return
        self.exit = Finished(ending="lost", reason="it does not exit, even after SIGKILL")

    def close(self) -> None:
        """Close everything; safe to call in any state."""
        for timer in self._timers:
            timer.cancel()
        self._hang_up()
        self._stdout.close()
        self._stderr.close()
        self._let_go()

    def finished(self) -> Finished:
        """Return how it ended."""
        assert self.exit is not None
        return Finished(
            ending=self._ending if self.exit.ending == "exited" else self.exit.ending,
            exit_code=self.exit.exit_code,
            stdout=b"".join(self._stdout.chunks)[len(self._answer) :],
            stderr=self._stderr.data(),
            errno=self.exit.errno,
            reason=self.exit.reason,
        )

    def _settle(self, ending: Ending) -> None:
        if not self.settled.done():
            self._ending = ending
            self.settled.set_result(None)

    def _look(self) -> None:
        """Handle an event of the child."""
        assert self._child is not None
        self.exit = self._child.poll()
        if self.exit is None:
            return
        self._let_go()
        self._stdout.empty()
        self._stderr.empty()
        self._settle("exited")
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _let_go(self) -> None:
        if self._child is not None:
            self._loop.remove_reader(self._child.fd)
            self._child.close()
            self._child = None

    def _feed(self) -> None:
        """Write what fits. A program that does not read, or has gone, is not an error."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._stdin, self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
        self._hang_up()

    def _hang_up(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1


class _Drain:
    """The reading end of one pipe: keeps up to `limit` bytes, and reads on unless the rest is an error."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, overflow: Callable[[], None] | None = None) -> None:
        self._loop = loop
        self._room = limit
        self._overflow = overflow
        self._attended = False
        self.fd = -1
        self.chunks: list[bytes] = []

    def data(self) -> bytes:
        """Return what was read and kept."""
        return b"".join(self.chunks)

    def attend(self) -> None:
        """Read from now on whenever there is data."""
        if self.fd >= 0:
            self._loop.add_reader(self.fd, self.read)
            self._attended = True

    def read(self) -> bool:
        """Read a chunk; return False if there is nothing now, or at the end."""
        try:
            chunk = os.read(self.fd, CHUNK) if self.fd >= 0 else b""
        except BlockingIOError:
            return False
        if self._room > 0:
            self.chunks.append(chunk[: self._room])
        self._room -= len(chunk)
        if self._room < 0 and self._overflow is not None:
            self._overflow()
            chunk = b""
        if not chunk:
            self.close()
        return bool(chunk)

    def empty(self) -> None:
        """Read what is in the pipe, without waiting for others that may hold it."""
        for _ in range(DRAIN_LIMIT):
            if not self.read():
                return

    def close(self) -> None:
        """Close it, once."""
        if self.fd >= 0:
            if self._attended:
                self._loop.remove_reader(self.fd)
            os.close(self.fd)
            self.fd = -1
