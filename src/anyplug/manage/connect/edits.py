"""Text edits and errors shared by the two configuration languages."""

from collections.abc import Iterable

Edit = tuple[int, int, str]  # from, to, replacement


class Malformed(Exception):
    """A text is invalid in its language. Tells where and why."""


class Unfit(Exception):
    """A text is valid, but its layout leaves no place for our entry. Tells why."""


def apart(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap, with positions in the original; of two at one place the later goes second."""
    for start, end, new in sorted(edits, key=lambda edit: edit[:2])[::-1]:
        text = text[:start] + new + text[end:]
    return text


def line_end(text: str) -> str:
    """Return a text's line ending."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
