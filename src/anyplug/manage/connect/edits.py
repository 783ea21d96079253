"""What the two languages of configuration files share: edits of a text, and the two ways in which a text may not do."""

from collections.abc import Iterable

Edit = tuple[int, int, str]  # from here to there, this instead


class Malformed(Exception):
    """A text is not what its name says. Says where and why."""


class Unfit(Exception):
    """A text is right, and written in a way in which we cannot put our entry. Says why."""


def apart(text: str, edits: Iterable[Edit]) -> str:
    """Make edits that do not overlap, each placed in the text as it is; of two in one place the later goes behind."""
    for start, end, new in sorted(edits, key=lambda edit: edit[:2])[::-1]:
        text = text[:start] + new + text[end:]
    return text


def line_end(text: str) -> str:
    """Return what a text ends its lines with."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
