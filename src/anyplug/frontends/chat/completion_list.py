"""The list above the composer: slash commands or files that match the typed text. It never takes the focus."""

from typing import NamedTuple

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from anyplug.frontends.chat.shown_text import one_line
from anyplug.frontends.design_tokens import Token

MOST_SHOWN = 8  # rows


class Suggestion(NamedTuple):
    """One row: what is inserted, and what it is."""

    text: str
    about: str = ""
    source: str = ""  # the plugin, or empty
    takes_more: bool = False  # an argument follows


class CompletionList(Static):
    """Suggestions, one of them marked."""

    DEFAULT_CSS = """
    CompletionList {
        display: none; height: auto; max-height: 10; padding: 0 1; background: $t-raised; color: $t-text;
        border-top: solid $t-border; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    class Picked(Message):
        """A row was clicked."""

    def __init__(self, colours: dict[Token, str]) -> None:
        super().__init__(id="completions", markup=False)
        self.colours = colours
        self._rows: list[Suggestion] = []
        self._at = self._top = 0
        self._none = ""

    @property
    def is_open(self) -> bool:
        """Whether there is something to choose."""
        return bool(self._rows)

    @property
    def marked(self) -> Suggestion | None:
        """The marked row."""
        return self._rows[self._at] if self._rows else None

    @property
    def rows(self) -> list[Suggestion]:
        """All rows."""
        return self._rows

    def show(self, rows: list[Suggestion], none: str = "") -> None:
        """Show these rows; `none` says that nothing fits."""
        if rows == self._rows and none == self._none:
            return
        self._rows, self._none = rows, none
        self._at = self._top = 0
        self.display = bool(rows or none)
        self._draw()

    def hide(self) -> None:
        """Show nothing."""
        self.show([])

    def step(self, by: int) -> None:
        """Mark another row."""
        self._at = (self._at + by) % len(self._rows)
        self._top = min(max(self._top, self._at - MOST_SHOWN + 1), self._at)
        self._draw()

    def on_click(self, event: events.Click) -> None:
        """Mark the row that was clicked."""
        at = self._top + int(event.y)
        if 0 <= at < len(self._rows):
            self._at = at
            self.post_message(self.Picked())

    def repaint(self, colours: dict[Token, str]) -> None:
        """Draw it in another palette."""
        self.colours = colours
        self._draw()

    def _draw(self) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        width = min(28, max((len(row.text) for row in self._rows), default=0))
        for number, row in enumerate(self._rows[self._top : self._top + MOST_SHOWN], self._top):
            is_marked = number == self._at
            text.append("▸ " if is_marked else "  ", style=self.colours["accent"])
            text.append(
                one_line(row.text, 60).ljust(width), style=f"bold {self.colours['accent' if is_marked else 'text']}"
            )
            text.append(f"  {one_line(row.about, 120)}", style=self.colours["text" if is_marked else "muted"])
            if row.source:
                text.append(f"  ({one_line(row.source, 40)})", style=self.colours["muted"])
            text.append("\n")
        left = len(self._rows) - MOST_SHOWN
        if left > 0:
            text.append(f"  {self._at + 1} of {len(self._rows)}", style=self.colours["muted"])
        elif not self._rows:
            text.append(f"  {self._none}", style=self.colours["muted"])
        text.rstrip()
        self.update(text)
