"""A task group whose tasks may be started from callbacks of the event loop, too.

Readers, timers and extensions' frames are callbacks. Where sniffio is installed, anyio asks it which event loop runs,
and in a callback it does not know, unless somebody has told it.
"""

from contextlib import suppress
from typing import Any

import anyio
import anyio.abc


def create() -> anyio.abc.TaskGroup:
    """Create one."""
    group = anyio.create_task_group()
    plain = group.start_soon

    def start_soon(*given: Any, **more: Any) -> Any:
        with suppress(ImportError):  # without sniffio, anyio always finds out
            import sniffio  # comes with other libraries, or not at all

            sniffio.current_async_library_cvar.set("asyncio")
        return plain(*given, **more)

    group.start_soon = start_soon  # type: ignore[assignment, misc]
    return group
