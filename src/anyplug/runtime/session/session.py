"""One long-lived peer: newline-delimited JSON both ways, over the pipes of a child process.

Frames are delivered in order; an owner who cannot follow may pause them. `incoming` says what a frame is, and
`outgoing` how a peer is written to that does not read. While more than LARGEST_BUFFER waits for it, it is sent nothing
more. One that closes its end and lives on is given up. When the peer ends, everyone who waits for it fails at once.

A peer that has just answered within QUICK_S, and is the only one that is asked anything, is waited for awake.

The order of an orderly end: a last frame, stdin closed, STOP_S, SIGTERM, TERM_S, SIGKILL. All to the whole
group, and what is left of the group when the process has ended is killed.
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
from anyplug.runtime.session.reader import LONE, Decode, Incoming, Miss, Receive
from anyplug.runtime.session.stderr import LastWords, Sieve
from anyplug.runtime.session.writer import Outgoing

LONGEST_LINE = 4 << 20  # bytes, as zot has it
LARGEST_BUFFER = 16 << 20  # bytes of a frame; and those that may wait for the peer to read before one more is added
CROWDED = f"more than {LARGEST_BUFFER >> 20} MiB wait for it to be read"
ROOM_STEP_S = 0.005  # between looks whether it has read some of it
DEAF_S = 1.0  # how long a peer may live on when it has closed its stdin or stdout
STOP_S = 2.0  # how long a peer may take to leave when asked
TERM_S = 1.0  # and after SIGTERM
KILL_S = 5.0  # and after SIGKILL, in uninterruptible sleep
# To sleep until an answer comes, and to be woken, takes some 50 µs, and what runs then runs with cold caches: awake, a
# call takes two thirds of the time, and no more of the processor. `python -m bench sessions` measures it in the row
# "call of an extension".
QUICK_S = 0.0002
DRAIN_LIMIT = 256  # chunks read after the end, in case a grandchild goes on writing


SEPARATOR = "\u2028".encode()[:2]  # with which the separators of lines and paragraphs begin

_encode = msgspec.json.Encoder().encode
_sessions: set["Session"] = set()  # that have not ended


class PeerGone(Exception):
    """The peer has ended, or was given up. The text says how."""

    def __init__(self, reason: str, exit_code: int | None = None, stderr: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_code = exit_code
        self.stderr = stderr


class NotSent(Exception):
    """A frame was not sent, and the peer is as it was. The text says why."""


class FrameTooLong(NotSent):
    """The frame is more than may ever wait for the peer."""


class Crowded(NotSent):
    """Too much waits for the peer already."""


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
        missed: Miss = lambda _: None,
        decode: Decode | None = None,
    ) -> None:
        """Start it; raises OSError if it cannot be started.

        `receive`, `ended` and `missed`, which hears of a line that is no frame, are called on the loop. Frames are
        objects, but for those that `decode` knows.
        What it says on stderr passes through the `sieve` before anybody sees it.
        """
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()  # in which frames are received, whoever waits for them
        self._ended = ended
        self._log = log
        self._questions = Questions(self._loop)
        self._asked = 0.0  # when it was last sent something, in the loop's time
        self._is_quick = False  # it answered within QUICK_S when it was last asked just one thing
        self._may_stay_awake = _processors() > 1  # it cannot answer while we wait awake on the only one
        self._deaf: asyncio.TimerHandle | None = None  # gives it up, if it has closed a pipe and lives on
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
        """Whether somebody waits for an answer."""
        return bool(self._questions.open)

    @property
    def pid(self) -> int | None:
        """The peer's process, where it is known."""
        return self._child.pid

    @property
    def stderr_end(self) -> str:
        """The last that it said on stderr."""
        return self._last_words.end

    @property
    def is_amid_a_line(self) -> bool:
        """Whether it has begun a line and not ended it yet."""
        return self._incoming.is_amid_a_line

    def expects(self, name: str) -> bool:
        """Whether somebody waits for the answer of that name."""
        return name in self._questions.open

    async def ask(self, name: str, frame: Any, timeout_s: float | None) -> Any:
        """Send a question, once there is room for it, and wait for the answer of that name.

        Raises TimeoutError, PeerGone, NotSent, or what the question was failed with.
        """
        left_s = await self.wait_for_room(timeout_s) if self.is_crowded else timeout_s
        future = self.expect(name, left_s)
        try:
            self.send(frame)
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
        if has_time and self._is_quick:
            self._loop.call_soon(self._wait_awake, context=self._context)
        self._asked = self._loop.time()
        self._outgoing.write(line, at_once=has_time)

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits for the peer that it is sent nothing more."""
        return self._outgoing.waiting > LARGEST_BUFFER

    async def wait_for_room(self, within_s: float | None) -> float | None:
        """Wait until the peer has read what waits for it, or is gone; give what is left of the time.

        Raises Crowded if there is nothing left.
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
            self._last_words.heed()  # what it said about earlier questions is not why it ends
        return self._questions.expect(name, timeout_s)

    def answer(self, name: str, value: Any) -> bool:
        """Hand an answer to who waits for it; False if nobody does (any more)."""
        future = self._questions.take(name)
        if future is None:
            return False
        self._is_quick = not self._questions.open and self._loop.time() - self._asked < QUICK_S
        future.set_result(value)
        return True

    def fail(self, name: str, error: Exception) -> None:
        """Fail whoever waits for the answer of that name, if anybody does."""
        self._questions.fail(name, error)

    def forget(self, name: str) -> None:
        """Stop waiting for an answer."""
        self._questions.forget(name)

    def pause(self) -> None:
        """Read no frames until `resume`: what the peer says meanwhile waits in its pipe, and then it waits itself."""
        self._incoming.pause()

    def resume(self) -> None:
        """Read frames again."""
        self._incoming.resume()

    def malformed(self, why: str) -> None:
        """Count a line that is no frame, and say so in the log."""
        self._incoming.malformed(why)

    def give_up(self, reason: str) -> None:
        """End a peer that cannot be worked with, and listen no more; whoever waits learns the reason."""
        if self._gone is None and not self._given_up:
            self._given_up = reason
            self._incoming.is_muted = True
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
            except (PeerGone, NotSent):
                pass  # then the end of its stdin says it
            self._outgoing.close_when_sent()
            for number, grace in ((None, STOP_S), (signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
                if number is not None:
                    self._log(f"[anyplug] it does not leave by itself: {signal.Signals(number).name}\n".encode())
                    self._child.signal(number)
                await asyncio.wait((self._left,), timeout=grace)
                if self._left.done():
                    return
            self._finish(Finished(ending="lost", reason="it does not end, even after SIGKILL"))

    def _open(self, program: Program, spawn: Spawn) -> tuple[int, int, int]:
        """Start the child; gives our ends of its stdin, stdout and stderr."""
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

    def _wait_awake(self) -> None:
        """Wait for the answer to the only question that is open, as long as it should take."""
        if not self._may_stay_awake or any(other.is_asked for other in tuple(_sessions) if other is not self):
            return
        until = self._asked + QUICK_S
        while len(self._questions.open) == 1 and not self._incoming.read():
            if self._loop.time() > until:
                self._is_quick = False  # until it answers soon again
                return

    def _give_up_soon(self, reason: str) -> None:
        if self._deaf is None and not self._outgoing.is_closing:
            self._deaf = self._loop.call_later(DEAF_S, self.give_up, reason)

    def _look(self) -> None:
        """Something happened to the child."""
        finished = self._child.poll()
        if finished is not None:
            self._finish(finished)

    def _finish(self, finished: Finished) -> None:
        """Deliver what is left in the pipes, then tell everyone that it is over."""
        self._loop.remove_reader(self._child.fd)
        _sessions.discard(self)
        for read in (self._last_words.read, self._incoming.read):
            for _ in range(DRAIN_LIMIT):
                if not read():
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
    """Write a frame on one line, also for those who take other characters for line breaks, as Python may.

    Half of a character, which cannot be written, becomes a mark.
    """
    try:
        line = _encode(frame)
    except UnicodeEncodeError:
        import json  # 10 ms, and few frames need it

        line = LONE.sub("\ufffd", json.dumps(frame, ensure_ascii=False, separators=(",", ":"))).encode()
    if SEPARATOR in line:
        line = line.replace(SEPARATOR + b"\xa8", b"\\u2028").replace(SEPARATOR + b"\xa9", b"\\u2029")
    return line


def _processors() -> int:
    """Count those that we may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _how(finished: Finished) -> str:
    """Say how a process ended."""
    if finished.exit_code is None:
        return finished.reason or "it is gone"
    if finished.exit_code < 0:
        why = f": {finished.reason}" if finished.reason else ""
        return f"it was killed by {signal_name(-finished.exit_code)}{why}"
    return f"it exited with {finished.exit_code}"
