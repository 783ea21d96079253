"""An extension's panel: its lines in their colours, and every key but Esc and Ctrl+C for the extension."""

from typing import TYPE_CHECKING

from rich.text import Text
from textual import events
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from anyplug.frontends.chat.shown_text import coloured, one_line
from anyplug.frontends.design_tokens import Token

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from anyplug.peers.panels import Panel

GUIDE_KEYS = frozenset(
    {"up", "down", "left", "right", "enter", "tab", "home", "end", "pageup", "pagedown", "backspace", "delete"}
)  # as zot's guide and Textual both name them
MOST_LINES = 2_000
CURSORS = ("▸", "▶", "❯", "→", "›", ">", "➜", "»", "●")  # how panels mark the line that keys act on


class PanelView(VerticalScroll, can_focus=True):
    """The panel that was opened last."""

    BINDINGS = []
    DEFAULT_CSS = """
    PanelView {
        display: none; height: auto; max-height: 60%; padding: 0 1; background: $t-bg; color: $t-text;
        border: round $t-border; border-title-color: $t-text; border-subtitle-color: $t-muted;
        scrollbar-size-vertical: 1;
        &:focus { border: heavy $t-accent; border-title-color: $t-accent; }
        & Static { height: auto; }
    }
    """

    class Pressed(Message):
        """A key for the panel."""

        def __init__(self, key: str, text: str = "") -> None:
            super().__init__()
            self.key, self.text = key, text

    class Pasted(Message):
        """Pasted text for the panel."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        """The person closes the panel."""

    def __init__(self, colours: dict[Token, str]) -> None:
        super().__init__(id="panel")
        self.colours = colours
        self._content = Static(markup=False)
        self._lines: list[Text] = []
        self._shown: Panel | None = None
        self._has_question = False

    def compose(self) -> "ComposeResult":
        """Hold one text."""
        yield self._content

    @property
    def panel(self) -> "Panel | None":
        """The panel that it shows."""
        return self._shown

    def show(self, panel: "Panel | None", *, has_question: bool) -> None:
        """Show a panel, or nothing."""
        if panel == self._shown and has_question == self._has_question:
            return
        before, self._shown, self._has_question = self._shown, panel, has_question
        self.display = panel is not None
        if panel is None:
            return
        name = f"{one_line(panel.title, 60)} (extension {one_line(panel.owner, 40)})"
        self.border_title = Text(name)
        how = "keys go here, Esc closes" + (", F2 answers the question" if has_question else "")
        self.border_subtitle = Text(how)
        is_same = before is not None and (before.owner, before.id) == (panel.owner, panel.id)
        self._draw(panel)
        if not is_same:
            self.scroll_home(animate=False)
        self._keep_cursor_in_sight(panel)

    def repaint(self, colours: dict[Token, str]) -> None:
        """Draw it in another palette."""
        self.colours = colours
        if self._shown is not None:
            self._draw(self._shown)

    def _draw(self, panel: "Panel") -> None:
        lines = [coloured(part) for line in panel.lines[:MOST_LINES] for part in line.split("\n")]
        if panel.footer:
            lines += [Text(part.plain, style=self.colours["muted"]) for part in map(coloured, panel.footer.split("\n"))]
        self._content.update(Text("\n").join(lines))

    def _keep_cursor_in_sight(self, panel: "Panel") -> None:
        """Scroll to the line that looks as if keys acted on it."""
        for number, line in enumerate(panel.lines):
            if coloured(line).plain.lstrip().startswith(CURSORS) or "\x1b[7m" in line:
                height = max(1, self.scrollable_content_region.height)
                top = int(self.scroll_offset.y)
                if not top <= number < top + height:
                    self.call_after_refresh(self.scroll_to, y=max(0, number - height // 2), animate=False)
                return

    def on_key(self, event: events.Key) -> None:
        """Pass the key on, unless it closes the panel."""
        event.stop()
        event.prevent_default()
        if event.key in {"escape", "ctrl+c"}:
            self.post_message(self.Closed())
        elif event.is_printable and event.character:
            self.post_message(self.Pressed("rune", event.character))
        else:
            self.post_message(self.Pressed(event.key if event.key in GUIDE_KEYS else "unknown"))

    def on_paste(self, event: events.Paste) -> None:
        """Pass pasted text on."""
        event.stop()
        self.post_message(self.Pasted(event.text))
