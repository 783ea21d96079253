"""Loads MCP's SDK, which takes about a second: in a thread, by whoever needs it first."""

import threading

# Its parts import each other: two threads that begin with different ones would meet modules that are half made.
_lock = threading.Lock()


def load() -> None:
    """Import all of it; at once, if it has been."""
    with _lock:
        import mcp  # noqa: F401 - for all who import parts of it afterwards
