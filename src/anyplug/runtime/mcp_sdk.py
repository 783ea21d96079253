"""Load MCP's SDK, which takes about a second: in a thread, on first use."""

import functools
import gc
import logging
import threading

# Its parts import each other: two threads that begin with different ones would see half-initialised modules.
_lock = threading.Lock()
_LOGGER = logging.getLogger("mcp")
_SILENT = logging.NullHandler()


def load() -> None:
    """Import all of it; immediate after the first time."""
    with _lock:
        import mcp  # noqa: F401 - for all who import parts of it afterwards
    # What it logs quotes answers of servers. Without a handler, Python prints warnings to the terminal as they are.
    _LOGGER.addHandler(_SILENT)


@functools.cache
def set_aside() -> None:
    """Exempt everything loaded so far from garbage collections; only for processes of ours that serve clients.

    A full collection of what the SDK and its types consist of takes 70 ms, in which all clients wait. An embedding
    program decides for itself. Only the first time has an effect.
    """
    gc.collect()
    gc.freeze()
