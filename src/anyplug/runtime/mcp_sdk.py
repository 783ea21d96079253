"""Load MCP's SDK, which takes about a second: in a thread, on first use."""

import threading

# Its parts import each other: two threads that begin with different ones would see half-initialised modules.
_lock = threading.Lock()


def load() -> None:
    """Import all of it; immediate after the first time."""
    with _lock:
        import mcp  # noqa: F401 - for all who import parts of it afterwards
