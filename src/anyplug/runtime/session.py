"""One long-lived peer: newline-delimited JSON both ways, over the pipes of a child process.

A frame is one JSON object on one line, of at most LONGEST_LINE bytes unless its owner sets another limit. What is
longer, or is no object, is skipped, counted and logged, and the session goes on. Frames are delivered in order;
an owner who cannot follow may pause them. Writing never blocks: what the peer does not read yet waits in a
buffer, and a peer that reads nothing for STALL_S, or lets the buffer grow past LARGEST_BUFFER, is given up; so is
one that closes its end and lives on. When the peer ends, everyone who waits for it fails at once.

The order of an orderly end: a last frame, stdin closed, STOP_S, SIGTERM, TERM_S, SIGKILL. All to the whole
group, and what is left of the group when the process has ended is killed.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from anyplug.runtime.guard import signal_name
from anyplug.runtime.program import Child, Finished, Program, Spawn

LONGEST_LINE = 4 << 20  # bytes, as zot has it
LARGEST_BUFFER = 16 << 20  # bytes that wait for the peer to read
STALL_S = 5.0  # how long a peer may read nothing while something waits for it
DEAF_S = 1.0  # how long a peer may live on when it has closed its stdin or stdout
STOP_S = 2.0  # how long a peer may take to leave when asked
TERM_S = 1.0  # and after SIGTERM
KILL_S = 5.0  # and after SIGKILL, in uninterruptible sleep
CHUNK = 65_536  # bytes; the capacity of a Linux pipe
STDERR_KEPT = 4_096  # bytes of the end of stderr, for messages
DRAIN_LIMIT = 64  # chunks read after the end, in case a grandchild goes on writing
LOGGED_FAULTS = 200  # bad lines that are logged; the rest is only counted, because writing costs more than sending

Receive = Callable[[dict[str, Any]], None]


class Sieve(Protocol):
    """What a stream passes through, which may hold some of it back for a while."""

    def feed(self, chunk: bytes, /) -> bytes:
        """Take what came; give what comes out."""
        ...

    def end(self) -> bytes:
        """Give what was held back."""
        ...


class PeerGone(Exception):
    """The peer has ended, or was given up. The text says how."""

    def __init__(self, reason: str, exit_code: int | None = None, stderr: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_code = exit_code
        self.stderr = stderr


class Counts(msgspec.Struct):
    """What came in."""

    frames: Counter[str] = msgspec.field(default_factory=Counter)
    malformed: int = 0
    too_long: int = 0


class Session:
    """A started peer. All its methods belong to the event loop's thread."""

    def __init__(
        self,
        program: Program,
        spawn: Spawn,
        *,
        receive: Receive,
        ended: Callable[[PeerGone], None],
        log: Callable[[bytes], None],
        sieve: Sieve | None = None,
        longest_line: int = LONGEST_LINE,
        skipped: Callable[[], None] = lambda: None,
    ) -> None:
        """Start it; raises OSError if it cannot be started.

        `receive`, `ended` and `skipped`, which hears of a line that was too long, are called on the loop.
        What it says on stderr passes through the `sieve` before anybody sees it.
        """
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._ended = ended
        self._log = log
        self._sieve = sieve
        self._longest_line = longest_line
        self._skipped = skipped
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._deadlines: dict[str, float] = {}  # of those, in the loop's time
        self._clock: asyncio.TimerHandle | None = None  # not later than the first of them
        self._unsent = bytearray()
        self._is_due = False  # the loop is about to flush
        self._is_blocked = False  # the peer's pipe is full, and the loop says when it is not
        self._stall: asyncio.TimerHandle | None = None
        self._deaf: asyncio.TimerHandle | None = None
        self._line = bytearray()
        self._skipping = False
        self._stderr_end = b""
        self._gone: PeerGone | None = None
        self._given_up = ""
        self._closing = False
        self._left: asyncio.Future[None] = self._loop.create_future()
        self.counts = Counts()
        self.started = time.time()
        self._open(program, spawn)

    @property
    def gone(self) -> PeerGone | None:
        """How it ended, once it has."""
        return self._gone

    @property
    def is_given_up(self) -> bool:
        """Whether it was told to end at once, and may not have ended yet."""
        return bool(self._given_up)

    @property
    def pid(self) -> int | None:
        """The peer's process, where it is known."""
        return self._child.pid

    @property
    def stderr_end(self) -> str:
        """The last that it said on stderr."""
        return self._stderr_end.decode(errors="replace")

    def send(self, frame: Any) -> None:
        """Send one frame; raises PeerGone."""
        if self._gone is not None:
            raise self._gone
        if self._stdin < 0:
            raise PeerGone("it is being stopped")
        self._unsent += msgspec.json.encode(frame) + b"\n"
        if not self._is_blocked:
            self._flush_soon()
        if len(self._unsent) > LARGEST_BUFFER:
            self.give_up(f"it does not read: more than {LARGEST_BUFFER >> 20} MiB wait for it")
            raise PeerGone(self._given_up)

    def expect(self, name: str, timeout_s: float | None = None) -> "asyncio.Future[Any]":
        """Give a future for the answer of that name. It fails with PeerGone when the peer ends, or TimeoutError."""
        if self._gone is not None:
            raise self._gone
        future = self._loop.create_future()
        self._waiting[name] = future
        if timeout_s is not None:
            self._deadlines[name] = until = self._loop.time() + timeout_s
            if self._clock is None or until < self._clock.when():
                self._set_clock(until)
        return future

    def answer(self, name: str, value: Any) -> bool:
        """Hand an answer to who waits for it; False if nobody does (any more)."""
        future = self._waiting.pop(name, None)
        if future is None or future.done():
            return False
        future.set_result(value)
        return True

    def forget(self, name: str) -> None:
        """Stop waiting for an answer."""
        self._waiting.pop(name, None)
        self._deadlines.pop(name, None)

    def pause(self) -> None:
        """Read no frames until `resume`: what the peer says meanwhile waits in its pipe, and then it waits itself."""
        if self._stdout >= 0:
            self._loop.remove_reader(self._stdout)

    def resume(self) -> None:
        """Read frames again."""
        if self._stdout >= 0:
            self._loop.add_reader(self._stdout, self._read_frames)

    def malformed(self, why: str) -> None:
        """Count a line that is no frame, and say so in the log."""
        self.counts.malformed += 1
        self._complain(why)

    def give_up(self, reason: str) -> None:
        """End a peer that cannot be worked with, and listen no more; whoever waits learns the reason."""
        if self._gone is None and not self._given_up:
            self._given_up = reason
            self._child.signal(signal.SIGKILL)

    async def left(self) -> None:
        """Wait until it has ended, for a bounded time."""
        await asyncio.wait((self._left,), timeout=KILL_S)

    async def stop(self, goodbye: Any = None) -> None:
        """Let the peer leave in order, and end it if it does not. To be shielded by the caller."""
        if self._gone is None:
            try:
                if goodbye is not None:
                    self.send(goodbye)
            except PeerGone:
                pass
            self._hang_up_when_sent()
            for number, grace in ((None, STOP_S), (signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
                if number is not None:
                    self._child.signal(number)
                await asyncio.wait((self._left,), timeout=grace)
                if self._left.done():
                    return
            self._finish(Finished(ending="lost", reason="it does not end, even after SIGKILL"))

    def _open(self, program: Program, spawn: Spawn) -> None:
        child_in, self._stdin = os.pipe()
        self._stdout, child_out = os.pipe()
        self._stderr, child_err = os.pipe()
        try:
            for fd in (self._stdin, self._stdout, self._stderr):
                os.set_blocking(fd, False)
            self._child: Child = spawn(program, child_in, child_out, child_err)
        except BaseException:
            for fd in (self._stdin, self._stdout, self._stderr):
                os.close(fd)
            raise
        finally:
            for fd in (child_in, child_out, child_err):
                os.close(fd)
        self._loop.add_reader(self._stdout, self._read_frames)
        self._loop.add_reader(self._stderr, self._read_stderr)
        self._loop.add_reader(self._child.fd, self._look)

    def _set_clock(self, when: float) -> None:
        """See to deadlines then. One timer is enough for all: nearly every answer comes in time."""
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self._loop.call_at(when, self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        self._clock = None
        now = self._loop.time()
        for name in [name for name, until in self._deadlines.items() if until <= now]:
            del self._deadlines[name]
            future = self._waiting.pop(name, None)
            if future is not None and not future.done():
                future.set_exception(TimeoutError())
        if self._deadlines:
            self._set_clock(min(self._deadlines.values()))

    def _flush_soon(self) -> None:
        """Write at once to a peer that has nothing to do; one that has is woken once for all that is sent now."""
        if len(self._waiting) <= 1 or len(self._unsent) > CHUNK:
            self._flush()
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what fits, and come back for the rest."""
        self._is_due = False
        if self._stdin < 0:
            return
        try:
            while self._unsent:
                written = os.write(self._stdin, self._unsent)
                del self._unsent[:written]
                if self._is_blocked:
                    self._watch_for_a_stall(restart=True)
        except BlockingIOError:
            self._watch_for_a_stall()
            if not self._is_blocked:
                self._is_blocked = True
                self._loop.add_writer(self._stdin, self._flush)
            return
        except OSError:
            self._unsent.clear()
            self._give_up_soon("it closed its stdin")  # mostly it is ending, and then its end comes first
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._stdin)
            self._watch_for_a_stall(on=False)
        if self._closing:
            self._hang_up()

    def _watch_for_a_stall(self, *, restart: bool = False, on: bool = True) -> None:
        if self._stall is not None and (restart or not on):
            self._stall.cancel()
            self._stall = None
        if on and self._stall is None and self._unsent:
            self._stall = self._loop.call_later(STALL_S, self.give_up, f"it has read nothing for {STALL_S:.0f}s")

    def _give_up_soon(self, reason: str) -> None:
        if self._deaf is None and not self._closing:
            self._deaf = self._loop.call_later(DEAF_S, self.give_up, reason)

    def _hang_up_when_sent(self) -> None:
        self._closing = True
        if not self._unsent:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1

    def _read_frames(self) -> bool:
        """Read a chunk and deliver its lines; False if there is nothing now, or nothing more ever."""
        try:
            chunk = os.read(self._stdout, CHUNK) if self._stdout >= 0 else b""
        except BlockingIOError:
            return False
        if not chunk:
            self._stdout = self._shut(self._stdout)
            if self._line and not self._skipping:
                self._deliver(bytes(self._line))  # a last line needs no newline
            self._line.clear()
            self._give_up_soon("it closed its stdout")
            return False
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif self._line:
                self._line += line
                self._deliver(bytes(self._line))
            else:
                self._deliver(line)
            self._line.clear()
        if not self._skipping:
            self._line += rest
            if len(self._line) > self._longest_line:
                self._skipping = True
                self._line.clear()
                self._too_long()
        return True

    def _deliver(self, line: bytes) -> None:
        """Decode a line and pass it on. What is no frame is counted and survived."""
        if self._given_up:
            return
        if len(line) > self._longest_line:
            self._too_long()
            return
        try:
            frame = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.malformed(f"malformed JSON: {error}")
            return
        if not isinstance(frame, dict):
            self.malformed("a frame must be a JSON object")
            return
        self._receive(frame)

    def _too_long(self) -> None:
        self.counts.too_long += 1
        self._complain(f"skipped a line of more than {self._longest_line:,} bytes")
        self._skipped()

    def _complain(self, why: str) -> None:
        faults = self.counts.malformed + self.counts.too_long
        if faults <= LOGGED_FAULTS:
            rest = "; more of the kind are only counted" if faults == LOGGED_FAULTS else ""
            self._log(f"[anyplug] {why}{rest}\n".encode())

    def _read_stderr(self) -> bool:
        try:
            chunk = os.read(self._stderr, CHUNK) if self._stderr >= 0 else b""
        except BlockingIOError:
            return False
        if not chunk:
            self._stderr = self._shut(self._stderr)
            return False
        self._keep(chunk if self._sieve is None else self._sieve.feed(chunk))
        return True

    def _keep(self, said: bytes) -> None:
        if said:
            self._stderr_end = (self._stderr_end + said)[-STDERR_KEPT:]
            self._log(said)

    def _look(self) -> None:
        """Something happened to the child."""
        finished = self._child.poll()
        if finished is not None:
            self._finish(finished)

    def _finish(self, finished: Finished) -> None:
        """Deliver what is left in the pipes, then tell everyone that it is over."""
        self._loop.remove_reader(self._child.fd)
        for read in (self._read_stderr, self._read_frames):
            for _ in range(DRAIN_LIMIT):
                if not read():
                    break
        self._stdout, self._stderr = self._shut(self._stdout), self._shut(self._stderr)
        if self._sieve is not None:
            self._keep(self._sieve.end())
        self._watch_for_a_stall(on=False)
        for timer in (self._deaf, self._clock):
            if timer is not None:
                timer.cancel()
        self._hang_up()
        self._child.close()
        gone = self._gone = PeerGone(self._given_up or _how(finished), finished.exit_code, self.stderr_end.strip())
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(gone)
                future.exception()  # whoever gave up waiting will not ask for it
        if not self._left.done():
            self._left.set_result(None)
        self._ended(gone)

    def _shut(self, fd: int) -> int:
        if fd >= 0:
            self._loop.remove_reader(fd)
            os.close(fd)
        return -1


def _how(finished: Finished) -> str:
    """Say how a process ended."""
    if finished.exit_code is None:
        return finished.reason or "it is gone"
    if finished.exit_code < 0:
        why = f": {finished.reason}" if finished.reason else ""
        return f"it was killed by {signal_name(-finished.exit_code)}{why}"
    return f"it exited with {finished.exit_code}"
