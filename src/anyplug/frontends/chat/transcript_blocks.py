"""What the transcript consists of: messages, pieces of answers, tool calls, notes and status lines, as rows.

A block renders itself for one width and is asked again when the width, the palette or the block changes.
"""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.strip import Strip

from anyplug.frontends.chat import markdown_rows
from anyplug.frontends.chat.shown_text import cut_in_the_middle, one_line, visible
from anyplug.frontends.design_tokens import CANCELLED, DENIED, DONE, FAILED, RUNNING, Sign, Token

MARGIN = 2  # columns before the text of a message, and of the signs there
LONGEST_FOLDED = 6  # rows of a result until somebody unfolds it
LONGEST_UNFOLDED = 2_000  # rows; the rest is in the audit
LONGEST_RESULT = 200_000  # characters that are looked at
MOST_ARGUMENTS = 8  # rows of arguments until somebody unfolds them
BAR = "▎"
CODES_OF_DENIAL = frozenset({"denied", "not_approved", "disabled", "not_enforceable", "needs_answer"})


class Painter:
    """A palette, and the console that renders with it."""

    def __init__(self, colours: dict[Token, str]) -> None:
        self.colours = colours
        self.console: Console = markdown_rows.console_for(colours)

    def rows(self, content: RenderableType, width: int) -> list[list[Segment]]:
        """Render something as rows of segments, without blank rows around it."""
        options = self.console.options.update(width=max(1, width), height=None)
        rows = self.console.render_lines(content, options, pad=False)
        while rows and not _text_of(rows[-1]).strip():
            rows.pop()
        while rows and not _text_of(rows[0]).strip():
            rows.pop(0)
        return rows

    def style(self, token: Token, more: str = "") -> Style:
        """Return the style of a token."""
        return Style.parse(f"{more} {self.colours[token]}".strip())


def _text_of(row: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in row)


class Block:
    """A part of the transcript, with the rows that it had when it was rendered last."""

    gap = True  # a blank row comes before it

    def __init__(self) -> None:
        self.rows: list[Strip] = []
        self.stamp: tuple[int, int] = (0, 0)  # width and generation of the rows

    def draw(self, painter: Painter, width: int) -> list[Strip]:
        """Return its rows for a width."""
        raise NotImplementedError

    def toggle(self) -> bool:
        """Fold or unfold it; return whether that changes anything."""
        return False


def _strips(painter: Painter, content: RenderableType, width: int, first: Text, others: str = "") -> list[Strip]:
    """Render something with a sign before its first row and as much space before the others."""
    margin = first.cell_len
    lead = list(first.render(painter.console))
    rest = [Segment(others or " " * margin)]
    rows = painter.rows(content, width - margin)
    return [Strip([*(lead if number == 0 else rest), *row]) for number, row in enumerate(rows)]


class UserBlock(Block):
    """A message to the model."""

    def __init__(self, text: str, plugin: str = "") -> None:
        super().__init__()
        self.text, self.plugin = text, plugin

    def draw(self, painter: Painter, width: int) -> list[Strip]:
        """Return its rows."""
        content = Text(overflow="fold")
        if self.plugin:
            content.append(f"from {one_line(self.plugin)}: ", style=painter.style("muted"))
        content.append(visible(self.text), style=painter.style("text", "bold"))
        return _strips(painter, content, width, Text("› ", style=painter.style("accent", "bold")))


class ProseBlock(Block):
    """A finished part of an answer, in Markdown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def draw(self, painter: Painter, width: int) -> list[Strip]:
        """Return its rows."""
        content = markdown_rows.render(self.text, painter.colours)
        return _strips(painter, content, width, Text(" " * MARGIN))


class TailBlock(Block):
    """The end of an answer while it streams: plain, so that each piece of it costs little."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text = text
        self._drawn: tuple[Painter, int] | None = None
        self._whole: list[Strip] = []  # the rows of its complete lines
        self._up_to = 0

    def draw(self, painter: Painter, width: int) -> list[Strip]:
        """Return its rows, wrapping only what is new."""
        if self._drawn != (painter, width):
            self._drawn, self._whole, self._up_to = (painter, width), [], 0
        while (end := self.text.find("\n", self._up_to)) != -1:
            line = self.text[self._up_to : end]
            self._up_to = end + 1
            if line.strip() or self._whole:
                self._whole += self._wrapped(line, painter, width)
        last = self.text[self._up_to :]
        return [*self._whole, *(self._wrapped(last, painter, width) if last.strip() else [])]

    def _wrapped(self, line: str, painter: Painter, width: int) -> list[Strip]:
        content = Text(visible(line), style=painter.style("text"), overflow="fold")
        return _strips(painter, content, width, Text(" " * MARGIN)) or [Strip.blank(0)]


class LineBlock(Block):
    """One line for the person, of ours or of an extension: a sign, what happened, and how to fix it."""

    def __init__(self, text: str, *, sign: str = "", token: Token = "muted", hint: str = "", gap: bool = False) -> None:
        super().__init__()
        self.text, self.sign, self.token, self.hint, self.gap = text, sign, token, hint, gap

    def draw(self, painter: Painter, width: int) -> list[Strip]:
        """Return its rows."""
        content = Text(visible(self.text), style=painter.style(self.token), overflow="fold")
        if self.hint:
            content.append(f"\n{visible(self.hint)}", style=painter.style("muted"))
        sign = Text(f"{self.sign or ' '} ", style=painter.style(self.token))
        return _strips(painter, content, width, sign)


class ListBlock(Block):
    """A list of ours, such as that of tools: rows of cells in columns, the last of which wraps."""

    def __init__(self, title: str, rows: Sequence[Sequence[tuple[str, Token]]], note: str = "") -> None:
        super().__init__()
        self.title, self.rows_of_cells, self.note = title, rows, note

    def draw(self, painter: Painter, width: int) -> list[Strip]:
        """Return its rows."""
        parts: list[RenderableType] = [Text(self.title, style=painter.style("accent", "bold"))]
        if self.rows_of_cells:
            table = Table.grid(padding=(0, 2, 0, 0))
            last = max(map(len, self.rows_of_cells)) - 1
            for number in range(last + 1):
                table.add_column(overflow="fold", max_width=None if number == last else max(8, width * 2 // 5))
            for cells in self.rows_of_cells:
                table.add_row(*(Text(visible(text), style=painter.style(token)) for text, token in cells))
            parts.append(table)
        if self.note:
            parts.append(Text(visible(self.note), style=painter.style("muted"), overflow="fold"))
        return _strips(painter, Group(*parts), width, Text(" " * MARGIN))


class TextBlock(Block):
    """Prepared text of ours, such as a list of tools; the given styles are names of tokens."""

    def __init__(self, parts: Sequence[tuple[str, Token]], *, gap: bool = True) -> None:
        super().__init__()
        self.parts, self.gap = parts, gap

    def draw(self, painter: Painter, width: int) -> list[Strip]:
        """Return its rows."""
        content = Text(overflow="fold")
        for text, token in self.parts:
            content.append(visible(text), style=painter.style(token, "bold" if token == "accent" else ""))
        return _strips(painter, content, width, Text(" " * MARGIN))


class QuoteBlock(Block):
    """What an extension shows, marked as its words."""

    def __init__(self, source: str, text: str) -> None:
        super().__init__()
        self.source, self.text = source, text

    def draw(self, painter: Painter, width: int) -> list[Strip]:
        """Return its rows."""
        bar = Text(f"{BAR} ", style=painter.style("border"))
        head = _strips(painter, Text(one_line(self.source), style=painter.style("muted")), width, bar)
        body = []
        for line in visible(self.text).rstrip("\n").split("\n"):
            content = Text(line or " ", style=painter.style("text"), overflow="fold")
            rows = painter.rows(content, width - MARGIN) or [[]]
            body += [Strip([*bar.render(painter.console), *row]) for row in rows]
        return [*head, *body]


class CallBlock(Block):
    """A tool call: the card that says what runs, who allowed it, how long it took and what came back."""

    def __init__(self, tool: str, plugin: str, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.tool, self.plugin, self.arguments = tool, plugin, arguments
        self.sign: Sign = RUNNING
        self.progress = ""
        self.verdict = ""
        self.reason = ""
        self.hint = ""
        self.result = ""
        self.duration_ms: float | None = None
        self.record = 0
        self.is_open = False
        self.offered = ""  # a text in its result that is meant for a model
        self.offer = ""  # what a key does with that text now, or what was done

    def wait(self, sign: Sign) -> None:
        """Show that it waits for an answer, or runs."""
        if self.duration_ms is None:
            self.sign = sign

    def end(self, result: Any, verdict: str, record: int, waited_ms: float = 0.0) -> None:
        """Show how it ended; its time is that of the tool, without what it waited for the person."""
        self.result = result.text[:LONGEST_RESULT] or _other_content(result)
        self.verdict, self.record, self.progress = verdict, record, ""
        self.duration_ms = max(0.0, result.duration_ms - waited_ms)
        error = result.error
        if error is None:
            self.sign = FAILED if result.is_error else DONE
            return
        self.sign = {"cancelled": CANCELLED}.get(error.code, DENIED if error.code in CODES_OF_DENIAL else FAILED)
        self.reason, self.hint = error.message, error.hint
        if self.result.strip() == error.message.strip():
            self.result = ""

    def toggle(self) -> bool:
        """Fold or unfold it."""
        self.is_open = not self.is_open
        return True

    def draw(self, painter: Painter, width: int) -> list[Strip]:
        """Return its rows."""
        inner = width - MARGIN
        token = self.sign[2]
        rows = [_aligned(self._title(painter), self._outcome(painter), inner)]
        rows += self._argument_rows(painter, inner)
        if self.progress:
            rows.append(Text(one_line(self.progress, inner), style=painter.style("accent")))
        lines = [row for content in rows for row in painter.rows(content, inner)]
        lines += self._reason_rows(painter, inner)
        lines += self._result_rows(painter, inner)
        lines += self._offer_rows(painter, inner)
        ground = Style.parse(f"on {painter.colours['raised']}")
        bar = Segment(BAR + " ", painter.style(token) + ground)
        return [Strip([bar, *Segment.apply_style(row, ground)]).extend_cell_length(width, ground) for row in lines]

    def _title(self, painter: Painter) -> Text:
        shape = self.sign[0]
        title = Text()
        title.append(f"{shape} ", style=painter.style(self.sign[2], "bold"))
        title.append(one_line(self.tool, 60), style=painter.style("text", "bold"))
        if self.plugin:
            title.append(f"  {one_line(self.plugin, 40)}", style=painter.style("muted"))
        return title

    def _outcome(self, painter: Painter) -> Text:
        said = Text()
        said.append(self.sign[1], style=painter.style(self.sign[2]))
        parts = []
        if self.duration_ms is not None:
            parts.append(_duration(self.duration_ms))
        if self.verdict:
            parts.append(f"by {by_whom(self.verdict)}")
        if self.record:
            parts.append(f"#{self.record}")
        said.append("".join(f"  {part}" for part in parts), style=painter.style("muted"))
        return said

    def _argument_rows(self, painter: Painter, width: int) -> list[Text]:
        rows = [argument_row(name, value, painter, width, whole=self.is_open) for name, value in self.arguments.items()]
        if not self.is_open and len(rows) > MOST_ARGUMENTS:
            left = len(rows) - MOST_ARGUMENTS + 1
            rows = [*rows[: MOST_ARGUMENTS - 1], Text(f"… {left} more arguments", style=painter.style("muted"))]
        return rows

    def _reason_rows(self, painter: Painter, width: int) -> list[list[Segment]]:
        rows = []
        if self.reason:
            rows += painter.rows(Text(visible(self.reason), style=painter.style("risk"), overflow="fold"), width)
        if self.hint:
            rows += painter.rows(Text(visible(self.hint), style=painter.style("muted"), overflow="fold"), width)
        return rows

    def _result_rows(self, painter: Painter, width: int) -> list[list[Segment]]:
        if not self.result.strip():
            return []
        text = (
            self.result
            if self.is_open
            else "\n".join(self.result.split("\n", LONGEST_FOLDED + 1)[: LONGEST_FOLDED + 1])
        )
        rows = painter.rows(Text(visible(text), style=painter.style("text"), overflow="fold"), width)
        most = LONGEST_UNFOLDED if self.is_open else LONGEST_FOLDED
        hidden = self.result.count("\n") + 1 - most if not self.is_open else len(rows) - most
        if len(rows) > most:
            rows = rows[: most - 1] if hidden > 0 or self.is_open else rows[:most]
            more = "the rest is in `/audit`" if self.is_open else "Ctrl+O shows all"
            count = max(self.result.count("\n") + 1 - len(rows), 1)
            rows += painter.rows(
                Text(f"… {count} more {'line' if count == 1 else 'lines'}, {more}", style=painter.style("muted")), width
            )
        return rows

    def _offer_rows(self, painter: Painter, width: int) -> list[list[Segment]]:
        if not self.offer:
            return []
        row = Text(self.offer, style=painter.style("accent", "bold"), overflow="fold")
        if not self.is_open:
            row.append(f"  {one_line(self.offered)}", style=painter.style("muted"))
            row.truncate(width, overflow="ellipsis")
        else:
            row.append(f"\n{visible(self.offered)}", style=painter.style("muted"))
        return painter.rows(row, width)


def argument_row(name: str, value: Any, painter: Painter, width: int, *, whole: bool = False) -> Text:
    """Return `name: value` on one row, cut in the middle; `whole`: as many rows as it takes."""
    key = f"{one_line(name, 40)}: "
    said = visible(json.dumps(value, ensure_ascii=False))
    row = Text(key, style=painter.style("muted"), overflow="fold", no_wrap=not whole)
    row.append(said if whole else cut_in_the_middle(said, max(8, width - len(key))), style=painter.style("text"))
    return row


def _aligned(left: Text, right: Text, width: int) -> Text:
    """Put two texts at both ends of a row; what does not fit goes to the next."""
    space = width - left.cell_len - right.cell_len
    return left + Text(" " * space if space > 1 else "\n  ") + right


def _duration(ms: float) -> str:
    if ms < 1_000:  # noqa: PLR2004 - a second
        return f"{ms:.0f} ms"
    return f"{ms / 1_000:.1f} s"


def by_whom(verdict: str) -> str:
    """Name who decided about a call, in the words of a person who reads it."""
    who, _, rest = verdict.partition(" ")
    said = {"person": "you", "named": "your --plugin", "approval": "your approval", "host": "anyplug"}.get(who, who)
    return one_line(f"{said} {rest}" if rest and said == who else said, 60)


def _other_content(result: Any) -> str:
    """Describe what a result has besides text."""
    lines = []
    for block in result.content:
        kind = type(block).__name__.lower()
        if kind in {"image", "audio"}:
            lines.append(f"[{kind} {block.mime_type}, {len(block.data) * 3 // 4:,} bytes]")
        elif kind == "file":
            lines.append(f"[file {block.name}: {block.path}]")
        elif kind == "resource":
            lines.append(f"[{block.name or block.uri}]")
    if not lines and result.structured is not None:
        return json.dumps(result.structured, ensure_ascii=False, indent=2, default=str)
    return "\n".join(lines)
