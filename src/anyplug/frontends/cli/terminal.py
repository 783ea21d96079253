"""The person at the terminal: what they are told, and what they answer. On stderr, because stdout is for data."""

import sys

from anyplug.frontends.cli import render


def can_ask() -> bool:
    """Return whether a person sits at the other end."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def say(*lines: str, fold: bool = False) -> None:
    """Tell them what they have to know."""
    render.say(*lines, fold=fold)


def put(question: str) -> None:
    """Put a question without waiting for the answer."""
    render.ask(question)


def answer() -> str:
    """Read their line; an empty one if they have none to give."""
    return sys.stdin.readline().rstrip("\n")
