"""The helper processes of a host, which a command starts before it imports the host: they take as long to start."""

import sys
import threading
from contextlib import suppress

from anyplug.home.scratch_folders import Scratch
from anyplug.runtime.processes.guard import Guard


class Helpers:
    """The guardian and the zygote of one host, and the scratch folder that they share with it."""

    def __init__(self, home: str, *, waits: bool = True) -> None:
        """Unless they are to be waited for, they may end a moment after `close`, but nothing that a plugin started."""
        self.scratch = Scratch(home)
        self.guard = Guard(self.scratch.path, waits=waits)
        self._starting: threading.Thread | None = None

    def begin(self) -> None:
        """Start them now, in a thread; otherwise each is started when it is first needed."""
        if sys.platform != "linux":
            return
        from anyplug.runtime.sandbox.zygote_client import zygote_of  # only confined programs need it

        def start() -> None:
            with suppress(OSError):  # who needs it tries again, and says what is wrong
                zygote_of(self.guard).get_ready()

        self._starting = threading.Thread(target=start, daemon=True)
        self._starting.start()

    def close(self) -> None:
        """End them. Blocks."""
        if self._starting is not None:
            self._starting.join()
        self.guard.close()
        self.scratch.close()
