"""Markdown as rows of the transcript: cut into blocks while it streams, rendered block by block.

Raw HTML is shown as it is written, and a link shows its address, so that no text of a model can hide another. rich's
Markdown and its lexers are imported on first use: the screen is drawn before them.
"""

import io
import re
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from anyplug.frontends.chat.shown_text import visible
from anyplug.frontends.design_tokens import Token

if TYPE_CHECKING:
    from rich.console import RenderableType

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
LARGEST_RENDERED = 30_000  # characters of one block; colours for more would hold up the keys


def console_for(colours: dict[Token, str]) -> Console:
    """Return the console that renders rows in a palette."""
    raised = f" on {colours['raised']}"
    return Console(
        color_system="truecolor",
        force_terminal=True,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        file=io.StringIO(),  # nothing is ever printed: rows are rendered, and drawn by the screen
        theme=Theme(
            {
                "markdown.h1": f"bold {colours['text']}",
                "markdown.h2": f"bold {colours['accent']}",
                "markdown.h3": f"bold {colours['text']}",
                "markdown.h4": f"bold {colours['muted']}",
                "markdown.h5": f"bold {colours['muted']}",
                "markdown.h6": colours["muted"],
                "markdown.code": colours["accent"] + raised,
                "markdown.code_block": colours["text"] + raised,
                "markdown.block_quote": colours["muted"],
                "markdown.item.bullet": colours["accent"],
                "markdown.item.number": colours["accent"],
                "markdown.list": colours["text"],
                "markdown.link": f"underline {colours['accent']}",
                "markdown.link_url": f"underline {colours['accent']}",
                "markdown.hr": colours["border"],
                "markdown.table.border": colours["border"],
                "markdown.table.header": f"bold {colours['text']}",
            }
        ),
    )


def split_finished(text: str) -> tuple[list[str], str]:
    """Split text at blank lines outside fences; return the finished blocks, and the tail that may still grow."""
    blocks: list[str] = []
    start = at = 0
    fence = ""
    while (end := text.find("\n", at)) != -1:
        line = text[at:end]
        if found := FENCE.match(line):
            sign = found[1]
            if not fence:
                fence = sign
            elif sign[0] == fence[0] and len(sign) >= len(fence) and not line.strip().strip(sign[0]):
                fence = ""
        at = end + 1
        if not fence and not line.strip():
            if block := text[start:end].strip("\n"):
                blocks.append(block)
            start = at
    return blocks, text[start:]


def render(text: str, colours: dict[Token, str]) -> "RenderableType":
    """Return a block of Markdown as something a console renders."""
    shown = visible(text)
    if len(shown) > LARGEST_RENDERED:
        return Text(shown, style=colours["text"])
    made: RenderableType = _markdown()(shown, colours)
    return made


def warm_up() -> None:
    """Import what rendering needs; called in a thread."""
    _markdown()


_made: list[Any] = []


def _markdown() -> Any:
    if not _made:
        from anyplug.frontends.chat.markdown_elements import Prose  # takes longer to import than the first frame may

        _made.append(Prose)
    return _made[0]
