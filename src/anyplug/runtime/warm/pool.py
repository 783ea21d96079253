"""How many interpreters wait, and for what: as many as recent calls make likely, within a budget for the whole host.

A line is one program as it would be started now: its command, environment, working folder, and the sandbox. If any of
that is different at a call, the waiting process is ended, and the call starts cold. Nothing is kept for a program that
was not called recently. Knows programs, not plugins; `group` is whatever ends together.
"""

import asyncio
import math
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import msgspec
from anyio import CancelScope
from anyio.abc import TaskGroup

from anyplug.runtime.processes.program import PrivateTmp, Program, Spawn
from anyplug.runtime.warm import interpreters
from anyplug.runtime.warm.gate_folder import GATES
from anyplug.runtime.warm.interpreters import Cold, Interpreter
from anyplug.runtime.warm.waiting import LEAST_BYTES, OF_UV, Waiting

IDLE_S = 300.0  # after the last call; an agent that thinks for longer can wait for 30 ms
BUSY_S = 10.0  # in which calls are counted
CALLS_FOR_EACH = 2  # calls in that time for which one more is kept
MOST_EACH = 12  # of one program
LOOK_S = 5.0  # between checks of what is no longer needed
ATTEMPTS = 2  # until a program counts as one that cannot be started ahead
CPUS = os.cpu_count() or 1
MOST_CLOSING = 8  # whose /tmp is removed after the answer; with more, calls wait, so that no backlog fills the disk
AT_ONCE = max(1, CPUS // 2)  # that are being started: calls come first

MakeTmp = Callable[[], AbstractAsyncContextManager[PrivateTmp]]


class Kept:
    """A waiting interpreter, and its own /tmp if it has one."""

    def __init__(self, waiting: Waiting, tmp: PrivateTmp | None, stack: AsyncExitStack, stamp: object) -> None:
        self.waiting, self.tmp, self._stack = waiting, tmp, stack
        self.stamp = stamp  # of what it was started from

    @asynccontextmanager
    async def own_tmp(self) -> AsyncIterator[PrivateTmp]:
        """Provide the call with its /tmp."""
        assert self.tmp is not None
        yield self.tmp

    async def close(self) -> None:
        """End it if it is still there, and remove its /tmp."""
        self.waiting.dismiss()
        await self.waiting.ended()
        await self._stack.aclose()


class Source(msgspec.Struct, frozen=True):
    """Where a program runs, and what else decides whether a waiting interpreter is still the right one."""

    group: str
    spawn: Spawn
    is_current: Callable[[], bool]  # whether anything may still be started there
    make_tmp: MakeTmp | None = None
    fault: Callable[[Interpreter], str] = lambda _: ""  # why it must not be started ahead now
    stamp: Callable[[], object] = lambda: None  # changes with what is loaded besides the script
    tell: Callable[[str], None] = lambda _: None  # why it turned out that it cannot be started ahead


class _Line:
    """One program, and the processes that wait for its calls."""

    def __init__(self, pattern: Program, source: Source) -> None:
        self.pattern, self.source = pattern, source
        self.by = interpreters.examine(pattern)
        self.script = _identity(pattern.argv[0])
        self.kept: deque[Kept] = deque()
        self.starting = 0
        self.failures = 0
        self.calls: deque[float] = deque(maxlen=MOST_EACH * CALLS_FOR_EACH)
        self.bytes = 0 if isinstance(self.by, Cold) else LEAST_BYTES[self.by.kind] + OF_UV * self.by.by_uv

    @property
    def used(self) -> float:
        return self.calls[-1] if self.calls else 0.0

    def fits(self, pattern: Program, spawn: Spawn) -> bool:
        """Return whether nothing has changed that the start depends on."""
        return (
            self.source.spawn is spawn
            and (self.pattern is pattern or self.pattern == pattern)
            and self.script == _identity(pattern.argv[0])
            and (isinstance(self.by, Cold) or interpreters.is_same(self.by))
        )

    def is_short(self, now: float) -> bool:
        """Return whether more should wait. Asks the kernel last, because each call asks this of every line."""
        if isinstance(self.by, Cold) or now - self.used > IDLE_S:
            return False
        recent = sum(now - moment < BUSY_S for moment in self.calls)
        wanted = min(MOST_EACH, max(1, math.ceil(recent / CALLS_FOR_EACH)))
        return len(self.kept) + self.starting < wanted and self.source.is_current()


class Pool:
    """The waiting interpreters of one host. Belongs to its event loop."""

    def __init__(self, tasks: TaskGroup, *, enabled: bool, budget: int) -> None:
        """`budget` is in bytes."""
        self._tasks = tasks
        self._budget = budget if enabled else 0
        self._lines: dict[Hashable, _Line] = {}
        self._proven: dict[object, bool] = {}
        self._calls = 0  # that run now
        self._starting = 0
        self._closing = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.hits = self.misses = 0

    @property
    def count(self) -> int:
        """How many interpreters wait."""
        return sum(len(line.kept) for line in self._lines.values())

    @property
    def is_on(self) -> bool:
        """Whether anything is started ahead."""
        return self._budget > 0 and not self._is_closed

    def follow(self, *, enabled: bool, budget: int) -> None:
        """Use other settings from now on."""
        self._budget = budget if enabled else 0
        if not self._budget:
            self._drop(lambda _: True)

    def begin(
        self, key: Hashable, program: Program, spawn: Spawn, make_source: Callable[[], Source], *, is_off: bool = False
    ) -> Kept | None:
        """Report a call; return a process that waits for it, if there is one. `end` must follow.

        `make_source` is called when something has changed since the last call.
        """
        self._calls += 1
        if is_off or not self.is_on:
            return None
        pattern = program if not program.stdin and program.files is None else _pattern(program)
        line = self._lines.get(key)
        if line is None or not line.fits(pattern, spawn):
            if line is not None:
                self._dismiss(line)
            line = self._lines[key] = _Line(pattern, make_source())
        line.calls.append(time.monotonic())
        if isinstance(line.by, Cold):
            return None
        kept = self._best(line)
        self.hits, self.misses = self.hits + (kept is not None), self.misses + (kept is None)
        return kept

    async def end(self, kept: Kept | None) -> None:
        """Report that a call has ended, with what waited for it if anything did; start what the next ones may need.

        The answer does not wait until the call's /tmp is removed, unless many are still being removed.
        """
        self._calls -= 1
        self._grow()
        if kept is None:
            return
        if self._closing < MOST_CLOSING and not self._is_closed:
            self._close_soon(kept)
        else:
            await self._close(kept)

    def keep_only(self, is_wanted: Callable[[str], bool]) -> None:
        """End the processes that wait in all other groups."""
        self._drop(lambda line: not is_wanted(line.source.group))

    async def close(self) -> None:
        """End everything."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        left = [kept for line in self._lines.values() for kept in line.kept]
        self._lines.clear()
        for kept in left:
            kept.waiting.dismiss()
        for kept in left:
            await kept.close()

    def _best(self, line: _Line) -> Kept | None:
        """Return one that waits, else one that soon will: it is ahead of any that starts now."""
        stamp = line.source.stamp()
        stale = [kept for kept in line.kept if kept.stamp != stamp or kept.waiting.is_gone]
        for kept in stale:
            line.kept.remove(kept)
            self._close_soon(kept)
        best = next((kept for kept in line.kept if kept.waiting.is_waiting), None)
        if best is None and line.kept:
            best = line.kept[0]
        if best is not None:
            line.kept.remove(best)
        return best

    def _grow(self) -> None:
        """Start one more, where it is wanted most, unless calls need the processors now."""
        now = time.monotonic()
        while self.is_on and self._starting < AT_ONCE and self._calls < CPUS:
            short = [line for line in self._lines.values() if line.is_short(now)]
            line = max(short, key=lambda line: (-len(line.kept), line.used), default=None)
            if line is None or not self._make_room(line, now):
                break
            self._starting += 1
            line.starting += 1
            self._tasks.start_soon(self._start, line)
        if self._timer is None and self._lines and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _make_room(self, wanting: _Line, now: float) -> bool:
        """Return whether the budget allows one more; end what was not used for longest, if that makes room."""
        lines = sorted(self._lines.values(), key=lambda line: line.used)
        total = sum(kept.waiting.bytes for line in lines for kept in line.kept)
        total += sum(line.bytes * line.starting for line in lines)
        for line in lines:
            while total + wanting.bytes > self._budget and line is not wanting and line.kept:
                if now - line.used < BUSY_S and len(line.kept) == 1:
                    break
                kept = line.kept.popleft()
                total -= kept.waiting.bytes
                self._close_soon(kept)
        return total + wanting.bytes <= self._budget

    def _trim(self, newest: Kept) -> None:
        """End the newest one if it turns out to use more than there was room for."""
        total = sum(kept.waiting.bytes for line in self._lines.values() for kept in line.kept)
        for line in self._lines.values():
            if total > self._budget and newest in line.kept:
                line.kept.remove(newest)
                self._close_soon(newest)

    async def _start(self, line: _Line) -> None:
        """Start one, and wait until it waits."""
        stack = AsyncExitStack()
        kept: Kept | None = None
        try:
            fault = await self._started(line, stack) if isinstance(line.by, Interpreter) else ""
            kept = fault if isinstance(fault, Kept) else None
            if kept is not None:
                line.kept.append(kept)
                if await kept.waiting.settled():
                    line.bytes, line.failures = kept.waiting.bytes, 0
                    self._trim(kept)
                fault = kept.waiting.fault
            if fault:
                line.failures += 1
                if line.failures >= ATTEMPTS:
                    line.by = Cold(str(fault))
                    line.source.tell(str(fault))
        except OSError:  # too many files are open, or the sandbox is being replaced
            return  # it would fail again: the timer tries, and the end of the next call
        finally:
            self._starting -= 1
            line.starting -= 1
            with CancelScope(shield=True):  # the host is ending, perhaps
                if kept is None:
                    await stack.aclose()
                elif kept in line.kept and (kept.waiting.is_gone or line not in self._lines.values()):
                    line.kept.remove(kept)
                    await kept.close()
        if not self._is_closed:
            self._grow()

    async def _started(self, line: _Line, stack: AsyncExitStack) -> Kept | str:
        """Start one; return why not, if so. Raises OSError."""
        assert isinstance(line.by, Interpreter)
        source, by = line.source, line.by
        if fault := source.fault(by):
            line.failures = ATTEMPTS
            return fault
        program, tmp = line.pattern, None
        if source.make_tmp is not None:
            tmp = await stack.enter_async_context(source.make_tmp())
            program = msgspec.structs.replace(program, tmp=tmp.cover)
        if not by.by_uv and not await self._is_proven(line, program):
            line.failures = ATTEMPTS
            return "its interpreter does not wait at the gate"
        stamp = source.stamp()
        if not self.is_on or not source.is_current():
            return ""
        return Kept(Waiting(program, by, source.spawn), tmp, stack, stamp)

    async def _is_proven(self, line: _Line, program: Program) -> bool:
        """Return whether this interpreter stops at the gate, tried with a script of ours that does no harm."""
        assert isinstance(line.by, Interpreter)
        by = line.by
        key = (by.words, by.identity, id(line.source.spawn))
        if key not in self._proven:
            script = os.path.join(GATES, "proof.cjs" if by.kind == "node" else "proof.py")
            trial = Waiting(msgspec.structs.replace(program, argv=(*by.words, script)), by, line.source.spawn)
            try:
                self._proven[key] = await trial.settled()
            finally:
                trial.dismiss()
            await trial.ended()
        return self._proven[key]

    def _look(self) -> None:
        """End what is no longer needed."""
        self._timer = None
        now = time.monotonic()
        self._drop(lambda line: not line.source.is_current() or now - line.used > IDLE_S)
        self._grow()

    def _drop(self, is_needless: Callable[[_Line], bool]) -> None:
        for key, line in [*self._lines.items()]:
            if is_needless(line):
                self._dismiss(line)
                del self._lines[key]

    def _dismiss(self, line: _Line) -> None:
        while line.kept:
            self._close_soon(line.kept.popleft())

    def _close_soon(self, kept: Kept) -> None:
        kept.waiting.dismiss()
        self._tasks.start_soon(self._close, kept)

    async def _close(self, kept: Kept) -> None:
        self._closing += 1
        try:
            with CancelScope(shield=True):
                await kept.close()
        finally:
            self._closing -= 1


def _pattern(program: Program) -> Program:
    """Return what the calls of a program have in common."""
    return msgspec.structs.replace(program, stdin=b"", files=None)


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
