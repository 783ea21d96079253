"""One interpreter that waits at its gate, from its start to the call that it serves, or to its end without one."""

import asyncio
import os
import signal
from contextlib import suppress

from anyplug.runtime.processes.pipes import open_pipes
from anyplug.runtime.processes.program import Begun, Child, Program, Spawn
from anyplug.runtime.warm import interpreters
from anyplug.runtime.warm.gate_folder import GATES
from anyplug.runtime.warm.interpreters import Interpreter

WORD_BYTES = 8  # of chance in the word that both sides say
READY_S = 20.0  # until it waits: it takes 20 ms, with uv 100, and a busy machine may need longer
END_S = 5.0  # until one that was killed is gone
PAGE = os.sysconf("SC_PAGE_SIZE")
LEAST_BYTES = {"python": 8 << 20, "node": 40 << 20}  # what one uses, whatever it says
OF_UV = 12 << 20  # bytes that uv uses besides, while it waits for its child
ANSWER = b"!"  # one byte, so that it comes in one piece
LONGEST_WORD = 100  # bytes


class Waiting:
    """A started interpreter. Belongs to the event loop's thread."""

    def __init__(self, program: Program, by: Interpreter, spawn: Spawn) -> None:
        """Start it. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._word = os.urandom(WORD_BYTES).hex()
        self._heard = b""
        self.fault = ""  # why it did not come to wait
        self.is_waiting = self.is_gone = False
        self.bytes = LEAST_BYTES[by.kind] + (OF_UV if by.by_uv else 0)
        self._extra = OF_UV if by.by_uv else 0
        self._settled: asyncio.Future[None] = self._loop.create_future()  # it waits, or never will
        self._ended: asyncio.Future[None] | None = None
        pipes = open_pipes()
        try:
            self._child: Child | None = spawn(interpreters.gated(program, by, GATES, self._word), *pipes.theirs)
        except BaseException:
            _close(pipes.ours)
            raise
        finally:
            _close(pipes.theirs)
        self._ours: tuple[int, int, int] | None = pipes.ours
        os.set_blocking(pipes.ours[1], False)
        self._loop.add_reader(pipes.ours[1], self._hear)
        self._loop.add_reader(self._child.fd, self._look)
        self._timer = self._loop.call_later(READY_S, self._fail, f"it was not ready within {READY_S:.0f}s")

    async def settled(self) -> bool:
        """Wait until it waits; return False if it never will."""
        await asyncio.shield(self._settled)
        return self.is_waiting

    def release(self) -> Begun:
        """Hand it over to a call. It must be waiting."""
        assert self._ours is not None
        assert self._child is not None
        self._loop.remove_reader(self._ours[1])
        self._loop.remove_reader(self._child.fd)
        begun = Begun(self._ours, self._child, self._word.encode(), ANSWER)
        self._ours = self._child = None
        self.is_waiting, self.is_gone = False, True
        return begun

    def dismiss(self) -> None:
        """End it; safe to call in any state."""
        if not self.is_gone:
            self._fail("")

    async def ended(self) -> None:
        """Wait, not for long, until a dismissed one is gone."""
        if self._ended is not None:
            await asyncio.wait((self._ended,), timeout=END_S)

    def _hear(self) -> None:
        """Read the word, and nothing else."""
        assert self._ours is not None
        try:
            part = os.read(self._ours[1], LONGEST_WORD)
        except BlockingIOError:
            return
        self._heard += part
        word, has_end, rest = self._heard.partition(b"\n")
        said, _, pages = word.partition(b" ")
        if has_end and said == self._word.encode() and pages.isdigit() and not rest and not self.is_waiting:
            self.bytes = max(self.bytes, min(int(pages), 1 << 32) * PAGE + self._extra)
            self.is_waiting = True
            self._timer.cancel()
            self._settle()
        elif has_end or not part or not self._word.encode().startswith(self._heard[: len(self._word)]):
            self._fail("it does not wait at the gate" if part else "it ended before the script began")

    def _look(self) -> None:
        """Handle the end of a process that nobody released."""
        assert self._child is not None
        if self._child.poll() is not None:
            self._fail("it ended before the script began")
            self._let_go()

    def _fail(self, why: str) -> None:
        """End it, whether it waits or not yet."""
        if self.is_gone:
            return
        self.fault, self.is_waiting, self.is_gone = why, False, True
        self._timer.cancel()
        if self._ours is not None:
            self._loop.remove_reader(self._ours[1])
            _close(self._ours)
            self._ours = None
        if self._child is not None:
            with suppress(OSError):  # its sandbox is gone, and it with that
                self._child.signal(signal.SIGKILL)
            self._ended = self._loop.create_future()
            self._timer = self._loop.call_later(END_S, self._let_go)
        self._settle()

    def _let_go(self) -> None:
        self._timer.cancel()
        if self._child is not None:
            self._loop.remove_reader(self._child.fd)
            self._child.close()
            self._child = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _settle(self) -> None:
        if not self._settled.done():
            self._settled.set_result(None)


def _close(descriptors: tuple[int, int, int]) -> None:
    for fd in descriptors:
        os.close(fd)
