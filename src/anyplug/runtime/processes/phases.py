"""Who wants to know about the program of the present call while it runs.

A trace of the call is told that it was started, and a job gets what it has written to stderr so far.
"""

from collections.abc import Callable
from contextvars import ContextVar

Stderr = Callable[[], bytes]

started: ContextVar[Callable[[], object] | None] = ContextVar("started", default=None)
listening: ContextVar[Callable[[Stderr], object] | None] = ContextVar("listening", default=None)


def tell_started() -> None:
    """Report that the program was started."""
    if (tell := started.get()) is not None:
        tell()


def offer_stderr(stderr: Stderr) -> None:
    """Offer what the program has written to stderr so far."""
    if (listen := listening.get()) is not None:
        listen(stderr)
