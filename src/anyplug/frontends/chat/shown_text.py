"""Untrusted text as the screen shows it: control characters become visible, markup is not read, colours are kept."""

import re

from rich.text import Text

TAB = 4  # columns
COLOUR = re.compile("\x1b\\[[0-9;:]{0,40}m")
CONCEALS = re.compile("(?<![0-9])0*8(?![0-9])")  # the number that hides text
BY_NUMBER = re.compile("[34]8[;:](?:5[;:][0-9]{1,3}|2(?:[;:][0-9]{0,3}){1,4})")


def visible(text: str) -> str:
    """Return a text with its line breaks, and every other control or hidden character as an escape."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    from anyplug.model import untrusted_text  # ASCII, as in the first frame, does not need it

    return untrusted_text.visible(text.replace("\r\n", "\n").expandtabs(TAB))


def one_line(text: str, longest: int = 200) -> str:
    """Return a text as one line, cut to `longest` characters."""
    line = visible(" ".join(text[: 4 * longest].split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def cut_in_the_middle(text: str, width: int) -> str:
    """Return a line of at most `width` characters that keeps both ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def coloured(line: str) -> Text:
    """Return one line of a plugin's panel with its colours; all other sequences become visible."""
    if "\x1b" not in line:
        return Text(visible(line.replace("\n", " ")))
    parts = [visible(part.replace("\n", " ")) for part in COLOUR.split(line)]
    codes = ["" if CONCEALS.search(BY_NUMBER.sub("", code)) else code for code in COLOUR.findall(line)]
    return Text.from_ansi(parts[0] + "".join(code + part for code, part in zip(codes, parts[1:], strict=True)))
