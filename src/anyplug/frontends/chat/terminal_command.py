"""A command of anyplug in the person's own terminal, while the chat's screen is away."""

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
            input("\nEnter goes back to the chat. ")
    finally:
        signal.signal(signal.SIGINT, before)
