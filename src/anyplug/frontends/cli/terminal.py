"""Talk to the person at the terminal, on stderr because stdout is for data."""

import contextlib
import os
import sys

from anyplug.frontends.cli import render


def can_ask() -> bool:
    """Return whether there is a person to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def say(*lines: str, fold: bool = False) -> None:
    """Show a message."""
    render.say(*lines, fold=fold)


def put(question: str) -> None:
    """Print a question without waiting for the answer. What was typed before is no answer to it."""
    if os.name == "posix" and sys.stdin.isatty():
        import termios  # Windows has none

        with contextlib.suppress(termios.error):  # the terminal has just gone
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
    render.ask(question)


def answer() -> str:
    """Read a line; empty if there is none."""
    try:
        return sys.stdin.readline().rstrip("\n")
    finally:
        render.answered()
