"""Text for people: tables, errors, and a little colour where a terminal wants it. No meaning by colour alone."""

import os
import re
import sys
import textwrap
from collections.abc import Sequence

GAP = 2  # spaces between columns
NARROWEST = 24  # characters that the last column keeps on a narrow terminal
USUAL_WIDTH = 80  # where a terminal does not say
MINUTE, HOUR = 60, 3600  # seconds
WIDE_IF_PIPED = 200  # programs that read text lines want them whole

# What moves the cursor, changes colours or turns the writing's direction: a manifest could forge our words with it.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_COLOURS = re.compile("(\x1b\\[[0-9;:]*m)")

STATE_COLOURS = {
    "approved": "32",
    "new": "33",
    "changed": "33",
    "denied": "31",
    "broken": "31",
    "disabled": "2",
    "shadowed": "2",
}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[Sequence[str]] = ()) -> None:
    """Print rows in columns; the last column wraps. `below` has lines for each row, which stand under it."""
    rows = [[plain(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]
    before_last = sum(widths[:-1]) + GAP * (len(widths) - 1)
    room = max(NARROWEST, _width() - before_last)
    print(style("1", _line(headings, widths)))
    indent = " " * (widths[0] + GAP)
    for row, remarks in zip(rows, below or [()] * len(rows), strict=True):
        first, *more = textwrap.wrap(row[-1], room) or [""]
        print(paint_state(_line([*row[:-1], first], widths)))
        for text in more:
            print(" " * before_last + text)
        for remark in remarks:
            print(textwrap.fill(line(remark), _width(), initial_indent=indent, subsequent_indent=f"{indent}  "))


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one below the other; what has no value is left out."""
    shown = [(name, plain(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        first, *more = value.splitlines() or [""]
        print(f"{style('1', name.ljust(width))}  {first}")
        for line in more:
            print(" " * (width + GAP) + line)


def error(message: str, hint: str) -> None:
    """Print an error and its cure."""
    print(f"{style('31', 'error:', sys.stderr)} {plain(message)}", file=sys.stderr)
    if hint:
        print(f"hint: {plain(hint)}", file=sys.stderr)


def duration(seconds: float) -> str:
    """Say for how long something has been so."""
    if seconds < MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < HOUR else f"{seconds / HOUR:.1f} h"


def plain(text: str) -> str:
    """Make a stranger's text harmless for a terminal."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def data(text: str) -> None:
    """Print what a plugin gave, as `harmless`, with an end of line if it has none."""
    print(harmless(text), end="" if text.endswith("\n") else "\n")


def harmless(text: str) -> str:
    """Give what a plugin gave as it is where a program reads it, else without orders to the terminal but for colours.

    Those could fill the clipboard, which is a permission of its own, or rewrite what was said before.
    """
    if not sys.stdout.isatty():
        return text
    parts = _COLOURS.split(text.replace("\r\n", "\n"))
    ends = [] if len(parts) == 1 else ["\x1b[0m"]
    return "".join([part if place % 2 else plain(part) for place, part in enumerate(parts)] + ends)


def line(text: str) -> str:
    """Make a stranger's text one harmless line, so that it cannot pass for several of ours."""
    return plain(" ".join(text.split()))


def paint_state(line: str) -> str:
    """Colour the word that says where a plugin stands."""
    if not _colours(sys.stdout):
        return line
    for state, colour in STATE_COLOURS.items():
        line = line.replace(f" {state} ", f" {style(colour, state)} ", 1)
    return line


def style(code: str, text: str, stream: object = None) -> str:
    """Wrap a text in a colour, if the terminal has any."""
    return f"\x1b[{code}m{text}\x1b[0m" if _colours(stream or sys.stdout) else text


def count(number: int, noun: str) -> str:
    """Say how many of something there are."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def terminal_width() -> int:
    """Give the terminal's width, as `shutil` does without the 3 ms that its import takes."""
    try:
        return int(os.environ["COLUMNS"]) or USUAL_WIDTH
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or USUAL_WIDTH
    except (OSError, ValueError):
        return USUAL_WIDTH


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return (" " * GAP).join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _width() -> int:
    return terminal_width() if sys.stdout.isatty() else WIDE_IF_PIPED


def _colours(stream: object) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)()) and "NO_COLOR" not in os.environ
