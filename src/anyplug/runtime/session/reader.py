"""Read frames from a peer's pipe, tolerating anything else it may write there.

A frame is one JSON object on one line. A line that is too long, has too many values, or is not an object, is skipped,
counted and logged, and the next line is read. A peer whose frames take long to handle is then left waiting for several
times as long, so that they delay others only so much.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from anyplug.model import json_values
from anyplug.model.late_patterns import late

FEW = json_values.SHORTEST_VALUE * json_values.MOST_VALUES  # bytes, which have no more values than we pass on
CHUNK = 65_536  # bytes; the capacity of a Linux pipe
LEAST = 4_096  # bytes read at a time from a peer whose frames take long
TURN_S = 0.001  # how long the frames of one peer may delay all others
LONG_S = 0.02  # of work for one peer's frames, after which it waits
REST_TIMES, LONGEST_REST_S = 4, 5.0  # how much longer it waits than its frames took
QUOTED = 80  # bytes quoted of an invalid line
LOOKED_AT = 512  # the same, for callers that want to know what it should have been
LOGGED_FAULTS = 200  # invalid lines that are logged; the rest is only counted, because writing costs more than sending

SURROGATE = b"\\ud"  # how half of a character outside the BMP is written
LONE = late("[\ud800-\udfff]")  # what is left of one without its other half
TOO_MANY = f"a line of more than {json_values.MOST_VALUES:,} values"
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Unread(NamedTuple):
    """A line that is not a frame."""

    part: bytes  # the start of the line; if it is too long, also its end, once that has come
    why: str
    is_too_long: bool = False
    is_end: bool = False
    end: bytes = b""  # of a line that was read whole


Receive = Callable[[Any], None]
Miss = Callable[[Unread], None]
Decode = Callable[[bytes], Any]  # raises one of UNREADABLE for what it does not know


class Counts(msgspec.Struct):
    """Counts of what was received."""

    frames: Counter[str] = msgspec.field(default_factory=Counter)
    malformed: int = 0
    too_long: int = 0


class Incoming:
    """The reading end of a pipe, on the event loop."""

    def __init__(
        self,
        fd: int,
        loop: asyncio.AbstractEventLoop,
        *,
        receive: Receive,
        closed: Callable[[], None],
        log: Callable[[bytes], None],
        longest_line: int,
        missed: Miss,
        decode: Decode | None = None,
    ) -> None:
        """Start reading. `closed` is called at the end, `missed` for each invalid line.

        `decode` may decode the frames that it knows into something other than an object, and raise for all others.
        """
        self._fd = fd
        self._loop = loop
        self._receive = receive
        self._closed = closed
        self._log = log
        self._longest_line = longest_line
        self._missed = missed
        self._decode = decode
        self._line = bytearray()  # an incomplete line
        self._is_skipping = False
        self._tail = b""  # the last part of a skipped line
        self._appetite = LEAST  # bytes to read at a time
        self._is_paused = False
        self._rest: asyncio.TimerHandle | None = None  # it waits until then
        self.is_muted = False  # further input is ignored
        self.counts = Counts()
        self.resume()

    def pause(self) -> None:
        """Stop reading until `resume`: the peer's output stays in its pipe, and then the peer blocks."""
        self._is_paused = True
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Continue reading, after the rest that it may have to wait for."""
        self._is_paused = False
        if self._fd >= 0 and self._rest is None:
            self._loop.add_reader(self._fd, self.read)

    def close(self) -> None:
        """Stop reading."""
        if self._rest is not None:
            self._rest.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def read(self) -> bool:
        """Read a chunk and deliver its lines; return False if there is nothing now, or at the end."""
        try:
            chunk = os.read(self._fd, self._appetite) if self._fd >= 0 else b""
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            if self._line and not self._is_skipping:
                self._deliver(bytes(self._line))  # a last line needs no newline
            self._line.clear()
            self._closed()
            return False
        begun, worked = self._loop.time(), time.thread_time()
        self._take(chunk)
        taken_s = self._loop.time() - begun
        if taken_s > TURN_S:
            self._appetite = max(LEAST, self._appetite // 2)
            worked_s = time.thread_time() - worked  # without what other programs took meanwhile
            if worked_s > LONG_S and self._rest is None and self._fd >= 0:
                self._loop.remove_reader(self._fd)
                self._rest = self._loop.call_later(min(REST_TIMES * worked_s, LONGEST_REST_S), self._rested)
        elif taken_s < TURN_S / 4 and len(chunk) == self._appetite:
            self._appetite = min(CHUNK, self._appetite * 2)
        return True

    def _rested(self) -> None:
        self._rest = None
        if not self._is_paused:
            self.resume()

    def _take(self, chunk: bytes) -> None:
        """Deliver the complete lines."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if self._is_skipping:
                self._is_skipping = False
                self._miss_end(self._tail + line)
            elif self._line:
                self._line += line
                self._deliver(bytes(self._line))
            else:
                self._deliver(line)
            self._line.clear()
        if self._is_skipping:
            self._tail = (self._tail + rest)[-LOOKED_AT:]
            return
        self._line += rest
        if len(self._line) > self._longest_line:
            self._is_skipping = True
            self._tail = bytes(self._line[-LOOKED_AT:])
            self._too_long(self._line)
            self._line.clear()

    @property
    def is_amid_a_line(self) -> bool:
        """Whether a line is incomplete."""
        return bool(self._line)

    def malformed(self, why: str) -> None:
        """Count and log an invalid line."""
        self.counts.malformed += 1
        self._complain(why)

    def _deliver(self, line: bytes) -> None:
        """Decode a line and pass it on. Invalid lines are counted and skipped."""
        if self.is_muted:
            return
        if len(line) > self._longest_line:
            self._too_long(line)
            self._miss_end(line)
            return
        if len(line) > FEW and json_values.has_too_many(line):
            self._too_long(line, TOO_MANY)
            self._miss_end(line, TOO_MANY)
            return
        if self._decode is not None:
            try:
                known = self._decode(line)
            except UNREADABLE:
                pass  # then it is an ordinary object
            else:
                self._receive(known)
                return
        try:
            frame = _read(line)
        except UNREADABLE as error:
            reason = str(error).removeprefix("JSON is malformed: ")
            self._miss(line, f"malformed JSON: {reason}" if line.strip() else "an empty line")
            return
        if not isinstance(frame, dict):
            self._miss(line, "a frame must be a JSON object")
            return
        self._receive(frame)

    def _miss(self, line: bytes, why: str) -> None:
        """Record an invalid line; only the log quotes it, because it may contain secrets."""
        self.malformed(f"{why}: {_quoted(line)}" if line.strip() else why)
        self._missed(Unread(line[:LOOKED_AT], why, end=line[-LOOKED_AT:]))

    def _too_long(self, line: bytes | bytearray, why: str = "") -> None:
        why = why or f"a line of more than {self._longest_line:,} bytes"
        self.counts.too_long += 1
        self._complain(f"skipped {why}")
        self._missed(Unread(bytes(line[:LOOKED_AT]), why, is_too_long=True))

    def _miss_end(self, line: bytes, why: str = "") -> None:
        """Report the end of a line that was too long: some peers put the type last."""
        if not self.is_muted:
            why = why or f"a line of more than {self._longest_line:,} bytes"
            self._missed(Unread(line[-LOOKED_AT:], why, is_too_long=True, is_end=True))

    def _complain(self, why: str) -> None:
        faults = self.counts.malformed + self.counts.too_long
        if faults <= LOGGED_FAULTS:
            rest = "; further ones are only counted" if faults == LOGGED_FAULTS else ""
            self._log(f"[anyplug] {why}{rest}\n".encode())


def _read(line: bytes) -> Any:
    """Decode a line as JSON; raises one of UNREADABLE.

    Text cut in the middle of a character is accepted, with a replacement mark: half of a surrogate pair, as JavaScript
    writes it, or invalid UTF-8.
    """
    try:
        return msgspec.json.decode(line)
    except UNREADABLE:
        if line.isascii() and SURROGATE not in line.lower():
            raise
        import json  # takes 10 ms to import, and few lines need it

        try:
            whole = json.dumps(
                json.loads(line.decode("utf-8-sig", errors="replace"), parse_constant=_refuse), ensure_ascii=False
            )
        except ValueError:
            pass
        else:
            return msgspec.json.decode(LONE.sub("\ufffd", whole))
        raise


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _quoted(line: bytes) -> str:
    """Quote the beginning of a line, to help find where it was printed."""
    return ascii(line[:QUOTED].decode(errors="replace")) + ("…" if len(line) > QUOTED else "")
