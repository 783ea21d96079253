"""A watchdog of the event loop: names callbacks that keep everybody else waiting.

What counts is the time in which a callback uses the processor or waits for something, such as a lock, a disk or another
thread. That other programs have the processor meanwhile does not count. For tests and long runs: it costs some
microseconds for each callback.
"""

import asyncio
import asyncio.events
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

LIMIT_S = 0.1
VARIABLE = "ANYPLUG_WATCHDOG_MS"  # turns it on in processes of ours
STEP_S = 0.02  # between looks at what runs
DEEPEST = 8  # frames that are named
NS = 1e9


class Stall(NamedTuple):
    """A callback that took too long."""

    name: str
    seconds: float
    stack: str  # where it was, if it was seen


Report = Callable[[Stall], object]


@contextmanager
def watching(report: Report, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Report what keeps the event loop of this thread busy for too long, inside the block."""
    dog = _Watchdog(report, limit_s)
    run = asyncio.events.Handle._run  # noqa: SLF001 - there is no other place that all callbacks pass

    def watched(handle: asyncio.Handle) -> None:
        if threading.get_ident() != dog.thread:
            run(handle)
            return
        before = dog.begin(handle)
        try:
            run(handle)
        finally:
            dog.end(before)

    asyncio.events.Handle._run = watched  # type: ignore[method-assign, assignment] # noqa: SLF001
    looker = threading.Thread(target=dog.look, name="watchdog", daemon=True)
    looker.start()
    try:
        yield
    finally:
        asyncio.events.Handle._run = run  # type: ignore[method-assign] # noqa: SLF001
        dog.close()
        looker.join()


def to_stderr(stall: Stall) -> None:
    """Print a stall for the log."""
    said = f"[watchdog] {stall.name} kept the event loop for {stall.seconds * 1000:.0f} ms\n{stall.stack}\n"
    os.write(sys.stderr.fileno(), said.encode(errors="replace"))


class _Watchdog:
    def __init__(self, report: Report, limit_s: float) -> None:
        self.thread = threading.get_ident()
        self._report = report
        self._limit_s = limit_s
        self._times = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._over = threading.Event()
        self._current: tuple[float, asyncio.Handle] | None = None
        self._stack = ""

    def begin(self, handle: asyncio.Handle) -> tuple[float, int, asyncio.Handle]:
        self._stack = ""
        begun = time.perf_counter()
        self._current = (begun, handle)
        return begun, self._descheduled_ns(), handle

    def end(self, before: tuple[float, int, asyncio.Handle]) -> None:
        self._current = None
        begun, waited_ns, handle = before
        seconds = time.perf_counter() - begun
        if seconds > self._limit_s:
            seconds -= (self._descheduled_ns() - waited_ns) / NS
            if seconds > self._limit_s:
                self._report(Stall(_name(handle), seconds, self._stack))

    def look(self) -> None:
        """Note where a slow callback is, as long as there are callbacks."""
        while not self._over.wait(STEP_S):
            current = self._current
            if current is not None and not self._stack and time.perf_counter() - current[0] > self._limit_s / 2:
                frame = sys._current_frames().get(self.thread)  # noqa: SLF001 - its only way
                self._stack = "".join(traceback.format_stack(frame)[-DEEPEST:])

    def close(self) -> None:
        self._over.set()
        os.close(self._times)

    def _descheduled_ns(self) -> int:
        """Return how long this thread was ready to run, and others had the processor."""
        return int(os.pread(self._times, 100, 0).split()[1])


def _name(handle: asyncio.Handle) -> str:
    callback: Any = handle._callback  # type: ignore[attr-defined] # noqa: SLF001 - it is only shown
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')})"
    return str(getattr(callback, "__qualname__", callback))
