"""Text for people: lines, tables, errors, and a little colour where a terminal wants it. No meaning by colour alone.

All output of the command line goes through here, and all text is treated as untrusted: one line in a call is one line
on the screen, with hidden characters shown as escapes, so that no plugin can imitate a line of ours. Only `trusted`
prints text as it is, and `data` what a plugin returned to a program that reads it.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import msgspec

from anyplug.model.late_patterns import late
from anyplug.model.untrusted_text import escaped_json, for_people, lines_for_people, visible

GAP = 2  # spaces between columns
NARROWEST = 24  # characters that the last column keeps on a narrow terminal
USUAL_WIDTH = 80  # if the terminal does not tell
MINUTE, HOUR = 60, 3600  # seconds
LONGEST_CELL = 500  # characters of a table's cell
TAB = 8  # columns
ESCAPE = 10  # characters of the longest escape
WIDE_IF_PIPED = 200  # programs that read lines want them whole

_COLOUR = late("\x1b\\[[0-9;:]{0,40}m")  # colours and emphasis
_HIDES = late("(?<![0-9])0*8(?![0-9])")  # the number that hides text, except as one of the 256 colours
_BY_NUMBER = late("[34]8[;:]5[;:][0-9]{1,3}")
QUOTE = "| "  # before each line of a plugin's text
HANG = 4  # indentation of continuation lines
NARROW = 0x1100  # from this character on, many are two cells wide


def nothing() -> None:
    """Do nothing."""


before_line: Callable[[], None] = nothing  # clears a line that reports progress
is_asking = False  # a question waits for its answer, which nothing may overwrite

STATE_COLOURS = {
    "approved": "32",
    "new": "33",
    "changed": "33",
    "denied": "31",
    "broken": "31",
    "disabled": "2",
    "shadowed": "2",
}


def out(*lines: str) -> None:
    """Print lines to stdout."""
    before_line()
    for line in lines:
        print(for_people(line))
    sys.stdout.flush()


def heading(text: str) -> None:
    """Print a line that stands out."""
    print(style("1", for_people(text)))


def say(*lines: str, fold: bool = False) -> None:
    """Print lines to stderr; `fold` those that a plugin can make long, because a terminal wraps to column 0."""
    before_line()
    for line in lines:
        print("\n".join(_folded(for_people(line), sys.stderr)) if fold else for_people(line), file=sys.stderr)
    sys.stderr.flush()


def ask(question: str) -> None:
    """Print a question to stderr and leave the cursor behind it, until `answered`."""
    global is_asking  # noqa: PLW0603 - as there is one terminal
    is_asking = True
    before_line()
    print(f"{for_people(question)} ", end="", file=sys.stderr, flush=True)


def answered() -> None:
    """Let progress be shown again."""
    global is_asking  # noqa: PLW0603 - as there is one terminal
    is_asking = False


def quote(text: str) -> None:
    """Print several lines of a plugin's text, each marked as such."""
    for line in lines_for_people(text, QUOTE):
        print("\n".join(_folded(line, sys.stdout, QUOTE)))
    sys.stdout.flush()


def say_quoted(text: str) -> None:
    """Print an untrusted text to stderr, whole and with each line marked, for a person to read before agreeing.

    Tabs stay; every other hidden character is shown as an escape.
    """
    for line in text.rstrip("\n").split("\n"):
        shown = QUOTE + visible(line)
        print(
            "\n".join(_folded(shown.expandtabs(TAB), sys.stderr, QUOTE) if sys.stderr.isatty() else [shown]),
            file=sys.stderr,
        )
    sys.stderr.flush()


def stream(text: str) -> None:
    """Print lines of a plugin that are a command's only output; on a terminal they are marked, and have its colours."""
    for line in text.split("\n"):
        shown = in_colour(line.expandtabs(TAB).rstrip())
        print(QUOTE + shown if sys.stdout.isatty() else shown)
    sys.stdout.flush()


def in_colour(text: str) -> str:
    """Return a line of a plugin with its colours, or without if they are not wanted. Other sequences become visible."""
    if "\x1b" not in text:
        return for_people(text)
    parts = [for_people(part) for part in _COLOUR.sub("\n", text).split("\n")]
    codes = ["" if _HIDES.search(_BY_NUMBER.sub("", code)) else code for code in _COLOUR.findall(text)]
    if not _colours(sys.stdout):
        return "".join(parts)
    shown = parts[0] + "".join(f"{code}{part}" for code, part in zip(codes, parts[1:], strict=True))
    return f"{shown}\x1b[0m" if codes else shown


def json(value: Any) -> None:
    """Print data for programs, with hidden characters escaped."""
    trusted(escaped_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def trusted(text: str) -> None:
    """Print a text of ours as it is, such as JSON without hidden characters."""
    print(text, end="" if text.endswith("\n") else "\n")


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[Sequence[str]] = (), *, ours: bool = False
) -> None:
    """Print rows in columns; the last column wraps. `below` has further lines for each row.

    `ours`: the first column is our own text.
    """
    rows = [
        [
            for_people(first, LONGEST_CELL) if ours else _name(first),
            *(for_people(" ".join(cell.split()), LONGEST_CELL) for cell in rest),
        ]
        for first, *rest in rows
    ]
    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]
    before_last = sum(widths[:-1]) + GAP * (len(widths) - 1)
    room = max(NARROWEST, _width() - before_last)
    print(style("1", _line(headings, widths)))
    indent = " " * (widths[0] + GAP)
    import textwrap  # few commands print a table

    for row, remarks in zip(rows, below or [()] * len(rows), strict=True):
        first, *more = textwrap.wrap(row[-1], room) or [""]
        print(paint_state(_line([*row[:-1], first], widths)))
        for text in more:
            print(" " * before_last + text)
        for remark in remarks:
            print(textwrap.fill(for_people(remark), _width(), initial_indent=indent, subsequent_indent=f"{indent}  "))


def fields(pairs: Sequence[tuple[str, str | Sequence[str]]], *, whole: bool = False) -> None:
    """Print names and values, one per line; skip empty values. A list has a line for each item.

    `whole`: without truncation.
    """
    shown = [(name, _lines_of(value, whole=whole)) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, (first, *more) in shown:
        print(f"{style('1', name.ljust(width))}  {first}")
        for line in more:
            print(" " * (width + GAP) + line)


def _lines_of(value: str | Sequence[str], *, whole: bool) -> list[str]:
    if whole:
        lines = [value.strip()] if isinstance(value, str) else value
        return [for_people(line.replace("\t", "    ").rstrip(), len(line) * ESCAPE) for line in lines]
    if not isinstance(value, str):
        return [for_people(line) for line in value]
    value = value.strip()
    return lines_for_people(value, QUOTE) if "\n" in value else [for_people(value)]


def error(message: str, hint: str) -> None:
    """Print an error and its hint; further lines of a message are treated as a plugin's."""
    first, *more = lines_for_people(message.strip(), "")
    print(f"{style('31', 'error:', sys.stderr)} {first}", file=sys.stderr)
    for line in more:
        print("\n".join(_folded(f"  {QUOTE}{line}", sys.stderr, f"  {QUOTE}")), file=sys.stderr)
    if hint:
        print(for_people(f"hint: {hint}"), file=sys.stderr)


def duration(seconds: float) -> str:
    """Format a duration."""
    if seconds < MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < HOUR else f"{seconds / HOUR:.1f} h"


def data(text: str) -> None:
    """Print what a plugin returned, as `for_stdout` changes it."""
    trusted(for_stdout(text))


def for_stdout(text: str) -> str:
    """Return what a plugin returned: unchanged for a program, without escape sequences for a terminal.

    Those could fill the clipboard, which needs its own permission, or overwrite earlier output.
    """
    if not sys.stdout.isatty():
        return text
    return visible(text)


def data_line(text: str) -> None:
    """Print one line about what a plugin returned. A name with a line end in it must not look like two."""
    trusted(for_people(text, len(text) * ESCAPE))


def line(text: str) -> str:
    """Join a text with several lines, such as a description, into one."""
    return for_people(" ".join(text.split()))


def paint_state(line: str) -> str:
    """Colour the word for a plugin's state."""
    if not _colours(sys.stdout):
        return line
    for state, colour in STATE_COLOURS.items():
        line = line.replace(f" {state} ", f" {style(colour, state)} ", 1)
    return line


def style(code: str, text: str, stream: object = None) -> str:
    """Colour a text, if the terminal supports it."""
    return f"\x1b[{code}m{text}\x1b[0m" if _colours(stream or sys.stdout) else text


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def terminal_width() -> int:
    """Return the terminal's width, as `shutil` does without the 3 ms that its import takes."""
    try:
        return int(os.environ["COLUMNS"]) or USUAL_WIDTH
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or USUAL_WIDTH
    except (OSError, ValueError):
        return USUAL_WIDTH


def _name(cell: str) -> str:
    """Quote a name that begins a line and could pass for a sentence of ours."""
    shown = for_people(cell, LONGEST_CELL)
    return f"'{shown}'" if " " in shown else shown


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return (" " * GAP).join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _folded(line: str, stream: TextIO, prefix: str = "") -> list[str]:
    """Break a line before the terminal does."""
    if not stream.isatty() or _cells(line) < (width := max(terminal_width(), NARROWEST)):
        return [line]
    hang = prefix or " " * (len(line) - len(line.lstrip()) + HANG)
    found = []
    while _cells(line) >= width:
        fits = next(place for place in range(len(line), 0, -1) if _cells(line[:place]) < width)
        blank = line.rfind(" ", len(hang) + 1, fits + 1)
        cut = blank if blank > 0 else fits
        found.append(line[:cut])
        line = hang + line[cut:].lstrip()
    return [*found, line]


def _cells(text: str) -> int:
    return len(text) if text.isascii() else sum(2 if ord(char) >= NARROW else 1 for char in text)


def _width() -> int:
    return terminal_width() if sys.stdout.isatty() else WIDE_IF_PIPED


def _colours(stream: object) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)()) and "NO_COLOR" not in os.environ
