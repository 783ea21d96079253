"""How much processor time the commands of one event may take to read.

An agent skips a hook that does not answer in time (Claude Code and Codex after 130 seconds), and other clients of the
daemon wait meanwhile. So a command that takes too long is refused before that.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from anyplug.model.errors import AnyplugError

MOST_S: Final = 3.0  # of the thread's processor time; 100,000 characters of an honest script take half of it
_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))


class TooSlow(AnyplugError):
    """A command takes too long to read."""

    def __init__(self) -> None:
        super().__init__("the command takes too long to read", "split it into shorter ones")


@contextmanager
def limited(used_s: float = 0.0) -> Iterator[None]:
    """Limit what happens inside, after `used_s` of the same event; an outer limit stays in force."""
    if _deadline.get() != float("inf"):
        yield
        return
    token = _deadline.set(time.thread_time() + MOST_S - used_s)
    try:
        yield
    finally:
        _deadline.reset(token)


def check() -> None:
    """Raise TooSlow if the time is used up."""
    if time.thread_time() > _deadline.get():
        raise TooSlow


def used_s() -> float:
    """Return how much of the limit that is in force is used up."""
    return MOST_S - (_deadline.get() - time.thread_time())
