"""Run an anyplug command in the terminal while the chat's screen is hidden."""

import contextlib
import signal
import subprocess
from collections.abc import Sequence


def run(command: Sequence[str]) -> None:
    """Run a command that talks with the person, then wait until they have read what it said. Raises OSError."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl+C is for the command
    try:
        subprocess.run(command, check=False)
        with contextlib.suppress(EOFError):
            input("\nPress Enter to return to the chat. ")
    finally:
        signal.signal(signal.SIGINT, before)
