"""One long-lived peer: newline-delimited JSON both ways, over the pipes of a child process.

Frames are delivered in order; a slow owner may pause them. `reader` defines frames, and `writer` how to write to a peer
that does not read. While more than LARGEST_BUFFER is unread, nothing more is sent. A peer that closes its end but keeps
running is given up. When the peer ends, all waiting requests fail at once.

If a peer last answered within QUICK_S, and has the only open request, we wait for it without sleeping. Between such
requests the event loop runs only once in TURN_S: each turn costs a system call, and about 5 µs.

An orderly end: a last frame, stdin closed, STOP_S, SIGTERM, TERM_S, SIGKILL. All to the whole group, and the rest of
the group is killed when the process has ended.
"""

import asyncio
import contextvars
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from anyplug.runtime.processes.guard import signal_name
from anyplug.runtime.processes.pipes import open_pipes
from anyplug.runtime.processes.program import Child, Finished, Program, Spawn
from anyplug.runtime.session.pending import Questions
from anyplug.runtime.session.reader import CHUNK, LEAST, LONE, TURN_S, Decode, Incoming, Miss, Receive
from anyplug.runtime.session.stderr import LastWords, StreamFilter
from anyplug.runtime.session.writer import Outgoing

LONGEST_LINE = 4 << 20  # bytes, as in zot
LARGEST_BUFFER = 16 << 20  # bytes of a frame; and unread bytes before one more is added
CROWDED = f"more than {LARGEST_BUFFER >> 20} MiB are waiting to be read by it"
ROOM_STEP_S = 0.005  # between checks whether it has read some of it
DEAF_S = 1.0  # how long a peer may run after closing its stdin or stdout
STOP_S = 2.0  # how long a peer may take to exit when asked
TERM_S = 1.0  # and after SIGTERM
KILL_S = 5.0  # and after SIGKILL, in uninterruptible sleep
# Sleeping until an answer comes takes about 50 µs, with cold caches afterwards: without sleeping, a call takes two
# thirds of the time, and no more CPU. `python -m bench sessions` measures it in the row "call of an extension".
QUICK_S = 0.0002
# Chunks read after the end: what a pipe holds in any case, and more for so long, in case a grandchild keeps writing.
DRAINED, DRAIN_LIMIT, DRAIN_S = CHUNK // LEAST, 256, 0.25


SEPARATOR = "\u2028".encode()[:2]  # the first bytes of the line and paragraph separators

_encode = msgspec.json.Encoder().encode
_sessions: set["Session"] = set()  # that have not ended


class PeerGone(Exception):
    """The peer has ended, or was given up. The text tells how."""

    def __init__(self, reason: str, exit_code: int | None = None, stderr: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_code = exit_code
        self.stderr = stderr


class NotSent(Exception):
    """A frame was not sent, and the peer is unaffected. The text tells why."""


class FrameTooLong(NotSent):
    """The frame is larger than what may ever be buffered."""


class Crowded(NotSent):
    """Too much is already waiting for the peer."""


class Session:
    """A running peer. All its methods belong to the event loop's thread."""

    def __init__(
        self,
        program: Program,
        spawn: Spawn,
        *,
        receive: Receive,
        ended: Callable[[PeerGone], None],
        log: Callable[[bytes], None],
        sieve: StreamFilter | None = None,
        longest_line: int = LONGEST_LINE,
        missed: Miss = lambda _: None,
        decode: Decode | None = None,
    ) -> None:
        """Start it; raises OSError if it cannot be started.

        `receive`, `ended` and `missed`, for lines that are not frames, are called on the loop. Frames are objects,
        except for those that `decode` knows. Its stderr passes through the `sieve` first.
        """
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()  # in which frames are received, whatever task waits for them
        self._ended = ended
        self._log = log
        self._questions = Questions(self._loop)
        self._asked = 0.0  # when something was last sent, in the loop's time
        self._was_alone = False  # the last request, when it was sent
        self._is_quick = False  # it answered its last single request within QUICK_S
        self._turn_ends = 0.0  # in the loop's time: until then others need not run between two requests
        self._may_stay_awake = _processors() > 1  # on a single CPU it cannot answer while we wait
        self._deaf: asyncio.TimerHandle | None = None  # gives it up if it closed a pipe and keeps running
        self._gone: PeerGone | None = None
        self._given_up = ""
        self._left: asyncio.Future[None] = self._loop.create_future()
        self.started = time.monotonic()
        stdin, stdout, stderr = self._open(program, spawn)
        self._outgoing = Outgoing(
            stdin, self._loop, give_up=self.give_up, closed=lambda: self._give_up_soon("it closed its stdin")
        )
        self._incoming = Incoming(
            stdout,
            self._loop,
            receive=receive,
            closed=lambda: self._give_up_soon("it closed its stdout"),
            log=log,
            longest_line=longest_line,
            missed=missed,
            decode=decode,
        )
        self.counts = self._incoming.counts
        self._last_words = LastWords(stderr, self._loop, log, sieve)
        self._loop.add_reader(self._child.fd, self._look)
        _sessions.add(self)

    @property
    def gone(self) -> PeerGone | None:
        """How it ended, once it has."""
        return self._gone

    @property
    def is_given_up(self) -> bool:
        """Whether it was told to end at once, and may not have ended yet."""
        return bool(self._given_up)

    @property
    def is_asked(self) -> bool:
        """Whether a request is open."""
        return bool(self._questions.open)

    @property
    def pid(self) -> int | None:
        """The peer's process, if known."""
        return self._child.pid

    @property
    def stderr_end(self) -> str:
        """The end of its stderr."""
        return self._last_words.end

    @property
    def is_amid_a_line(self) -> bool:
        """Whether it has written part of a line."""
        return self._incoming.is_amid_a_line

    def expects(self, name: str) -> bool:
        """Return whether an answer of that name is awaited."""
        return name in self._questions.open

    async def ask(self, name: str, frame: Any, timeout_s: float | None) -> Any:
        """Send a request, once there is room for it, and wait for the answer of that name.

        Raises TimeoutError, PeerGone, NotSent, or the error that the request was failed with.
        """
        left_s = await self.wait_for_room(timeout_s) if self.is_crowded else timeout_s
        future = self.expect(name, left_s)
        try:
            self.send(frame)
            self._was_alone = len(self._questions.open) == 1
            if self._was_alone and self._is_quick:
                if self._asked < self._turn_ends:
                    self._context.run(self._wait_awake)
                else:
                    self._loop.call_soon(self._begin_turn, context=self._context)
            return await future
        finally:
            self._questions.forget(name)

    def send(self, frame: Any) -> None:
        """Send one frame; raises PeerGone, or NotSent."""
        if self._gone is not None:
            raise self._gone
        if not self._outgoing.is_open:
            raise PeerGone("it is being stopped")
        line = _written(frame) + b"\n"
        if len(line) > LARGEST_BUFFER:
            reason = f"a frame of {len(line):,} bytes is more than the {LARGEST_BUFFER >> 20} MiB that can be sent"
            self._log(f"[anyplug] {reason}\n".encode())
            raise FrameTooLong(reason)
        if self.is_crowded:
            raise Crowded(CROWDED)
        has_time = len(self._questions.open) <= 1
        self._asked = self._loop.time()
        self._outgoing.write(line, at_once=has_time)

    @property
    def is_crowded(self) -> bool:
        """Whether so much is unread that nothing more is sent."""
        return self._outgoing.waiting > LARGEST_BUFFER

    async def wait_for_room(self, within_s: float | None) -> float | None:
        """Wait until the peer has read what is waiting, or is gone; return the remaining time.

        Raises Crowded if none remains.
        """
        until = self._loop.time() + within_s if within_s is not None else math.inf
        while self.is_crowded and self._gone is None:
            if self._loop.time() >= until:
                raise Crowded(CROWDED)
            await asyncio.sleep(ROOM_STEP_S)
        return max(ROOM_STEP_S, until - self._loop.time()) if within_s is not None else None

    def expect(self, name: str, timeout_s: float | None = None) -> "asyncio.Future[Any]":
        """Return a future for the answer of that name. It fails with PeerGone when the peer ends, or TimeoutError."""
        if self._gone is not None:
            raise self._gone
        if not self._questions.open:
            self._last_words.heed()  # its stderr about earlier requests is not why it ends
        return self._questions.expect(name, timeout_s)

    def answer(self, name: str, value: Any) -> bool:
        """Deliver an answer; return False if nobody waits for it (any more)."""
        future = self._questions.take(name)
        if future is None:
            return False
        is_single = self._was_alone and not self._questions.open
        self._is_quick = is_single and self._loop.time() - self._asked < QUICK_S
        future.set_result(value)
        return True

    def fail(self, name: str, error: Exception) -> None:
        """Fail the request of that name, if it is open."""
        self._questions.fail(name, error)

    def forget(self, name: str) -> None:
        """Stop waiting for an answer."""
        self._questions.forget(name)

    def pause(self) -> None:
        """Stop reading frames until `resume`: the peer's output stays in its pipe, and then the peer blocks."""
        self._incoming.pause()

    def resume(self) -> None:
        """Continue reading frames."""
        self._incoming.resume()

    def malformed(self, why: str) -> None:
        """Count and log an invalid line."""
        self._incoming.malformed(why)

    def give_up(self, reason: str) -> None:
        """End a peer that is unusable, and ignore its output; waiting requests fail with the reason."""
        if self._gone is None and not self._given_up:
            self._given_up = reason
            self._incoming.is_muted = True
            self._child.signal(signal.SIGKILL)

    async def left(self) -> None:
        """Wait until it has ended, for a bounded time."""
        await asyncio.wait((self._left,), timeout=KILL_S)

    async def stop(self, goodbye: Any = None) -> None:
        """Let the peer exit in order, and kill it if it does not. Must be shielded by the caller."""
        if self._gone is None:
            try:
                if goodbye is not None:
                    self.send(goodbye)
            except (PeerGone, NotSent):
                pass  # then the end of its stdin tells it
            self._outgoing.close_when_sent()
            for number, grace in ((None, STOP_S), (signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
                if number is not None:
                    self._log(f"[anyplug] it does not exit by itself: {signal.Signals(number).name}\n".encode())
                    self._child.signal(number)
                await asyncio.wait((self._left,), timeout=grace)
                if self._left.done():
                    return
            self._finish(Finished(ending="lost", reason="it does not exit, even after SIGKILL"))

    def _open(self, program: Program, spawn: Spawn) -> tuple[int, int, int]:
        """Start the child; return our ends of its stdin, stdout and stderr."""
        pipes = open_pipes()
        try:
            for fd in pipes.ours:
                os.set_blocking(fd, False)
            self._child: Child = spawn(program, *pipes.theirs)
        except BaseException:
            for fd in pipes.ours:
                os.close(fd)
            raise
        finally:
            for fd in pipes.theirs:
                os.close(fd)
        return pipes.ours

    def _begin_turn(self) -> None:
        """Wait without sleeping, now that others have run."""
        self._turn_ends = self._loop.time() + TURN_S
        self._wait_awake()

    def _wait_awake(self) -> None:
        """Wait without sleeping for the answer to the only open request, as long as it should take."""
        if not self._may_stay_awake or any(other.is_asked for other in tuple(_sessions) if other is not self):
            return
        until = self._asked + QUICK_S
        while len(self._questions.open) == 1 and not self._incoming.read():
            if self._loop.time() > until:
                self._is_quick = False  # until it answers quickly again
                return

    def _give_up_soon(self, reason: str) -> None:
        if self._deaf is None and not self._outgoing.is_closing:
            self._deaf = self._loop.call_later(DEAF_S, self.give_up, reason)

    def _look(self) -> None:
        """Handle an event of the child."""
        finished = self._child.poll()
        if finished is not None:
            self._finish(finished)

    def _finish(self, finished: Finished) -> None:
        """Deliver what is left in the pipes, then report the end."""
        self._loop.remove_reader(self._child.fd)
        _sessions.discard(self)
        for read in (self._last_words.read, self._incoming.read):
            until = self._loop.time() + DRAIN_S
            for chunk in range(DRAIN_LIMIT):
                if not read() or (chunk >= DRAINED and self._loop.time() > until):
                    break
        self._incoming.close()
        self._last_words.close()
        if self._deaf is not None:
            self._deaf.cancel()
        self._outgoing.close()
        self._child.close()
        reason = self._given_up or _how(finished)
        gone = self._gone = PeerGone(reason, finished.exit_code, self._last_words.news)
        self._questions.fail_all(gone)
        if not self._left.done():
            self._left.set_result(None)
        self._ended(gone)


def _written(frame: Any) -> bytes:
    """Encode a frame as one line, also for readers with other ideas of line breaks, such as Python.

    Half a character, which cannot be encoded, becomes a replacement mark.
    """
    try:
        line = _encode(frame)
    except UnicodeEncodeError:
        import json  # takes 10 ms to import, and few frames need it

        line = LONE.sub("\ufffd", json.dumps(frame, ensure_ascii=False, separators=(",", ":"))).encode()
    if SEPARATOR in line:
        line = line.replace(SEPARATOR + b"\xa8", b"\\u2028").replace(SEPARATOR + b"\xa9", b"\\u2029")
    return line


def _processors() -> int:
    """Count the CPUs that we may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _how(finished: Finished) -> str:
    """Describe how a process ended."""
    if finished.exit_code is None:
        return finished.reason or "it is gone"
    if finished.exit_code < 0:
        why = f": {finished.reason}" if finished.reason else ""
        return f"it was killed by {signal_name(-finished.exit_code)}{why}"
    return f"it exited with {finished.exit_code}"
