"""Show people that something long is being done: a line on stderr that turns, and is gone at the end.

Absent in pipes, and for work that is over at once. It is drawn by a thread, because what it reports on keeps the main
thread busy, and without rich, which takes 53 ms to import.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anyplug.frontends.cli import render
from anyplug.model.untrusted_text import for_people

DELAY_S = 0.4  # shorter work needs no report
STEP_S = 0.1
LATE_S = 3.0  # from then on the line also says how long it has taken
TURNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN_TURNS = "|/-\\"
ERASE = "\r\x1b[K"


Say = Callable[[str], None]  # changes what the line says


@contextmanager
def shown(what: str) -> Iterator[Say]:
    """Report on the work inside, if a person is watching."""
    is_nested = render.before_line is not render.nothing
    if is_nested or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    line = _Line(for_people(what))
    try:
        yield line.say
    finally:
        line.end()


class _Line:
    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._is_drawn = False
        render.before_line = self.erase
        self._thread = threading.Thread(target=self._turn, daemon=True)
        self._thread.start()

    def say(self, what: str) -> None:
        self._what = for_people(what)

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self.erase()
        render.before_line = render.nothing

    def erase(self) -> None:
        """Clear the line, so that something else can be printed there."""
        with self._lock:
            if self._is_drawn:
                sys.stderr.write(ERASE)
                sys.stderr.flush()
                self._is_drawn = False

    def _turn(self) -> None:
        turns = TURNS if (sys.stderr.encoding or "").lower().startswith("utf") else PLAIN_TURNS
        number = 0
        is_over = self._over.wait(DELAY_S)
        while not is_over:
            took = time.monotonic() - self._began
            text = self._what + (f" ({took:.0f} s)" if took >= LATE_S else "")
            with self._lock:
                if render.is_asking:
                    is_over = self._over.wait(STEP_S)
                    continue
                sys.stderr.write(f"{ERASE}{turns[number % len(turns)]} {text[: render.terminal_width() - 3]}")
                sys.stderr.flush()
                self._is_drawn = True
            number += 1
            is_over = self._over.wait(STEP_S)
