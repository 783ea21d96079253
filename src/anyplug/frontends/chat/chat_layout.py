"""The chat's layout: its widgets, the first frame and what is added after it, and how all of it is drawn.

The first frame needs only Textual and a few widgets; the others are imported while the person looks at it. Knows the
state that is drawn, but no conversation, and of the keys only those that move around on the screen.
"""

import time
from typing import TYPE_CHECKING

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.geometry import Size
from textual.widgets import Static

from anyplug.frontends.chat import chat_themes
from anyplug.frontends.chat.chat_bars import Bar, Header, Notes, Queue, StatusLine
from anyplug.frontends.chat.chat_driver import hardened
from anyplug.frontends.chat.chat_state import ChatState
from anyplug.frontends.chat.composer import Composer
from anyplug.frontends.chat.one_shot_timers import OneShotTimers
from anyplug.frontends.chat.side_column import SideColumn

if TYPE_CHECKING:
    from textual.driver import Driver

    from anyplug.frontends.chat.search_bar import SearchBar

REST = 3  # after a part of the streaming answer was drawn, wait this many times as long as that took: keys come first
LONGEST_REST_S = 0.5
KEY_S = 0.05  # for how long after a key nothing else is drawn
SIDE_FROM = 140  # columns; narrower terminals have no side column
SAID_S = 5.0  # for which a passing message stays in the status line


class ChatLayout(OneShotTimers, App[int], inherit_bindings=False):
    """The screen of the chat."""

    TITLE = "anyplug"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $t-bg; color: $t-text; layers: base; }
    #header { split: top; }
    #status { split: bottom; }
    #side { split: right; }
    #input { split: bottom; height: auto; padding: 0 1; background: $t-bg; border-top: solid $t-border; }
    Transcript { height: 1fr; padding: 0 0 0 1; }
    #input:focus-within { border-top: solid $t-accent; }
    #prompt { width: 2; color: $t-accent; text-style: bold; }
    Composer { width: 1fr; }
    """

    def __init__(self, state: ChatState, theme: str) -> None:
        """Draw `state` in a palette."""
        super().__init__()
        self.state = state
        self._rests_until = 0.0  # before the next part of the streaming answer is drawn
        for known in chat_themes.textual_themes():
            self.register_theme(known)
        self.palette = theme
        if theme == "dark":  # as Textual's own: assigning it would parse the style sheets a second time
            self.set_reactive(App.theme, chat_themes.PREFIX + theme)
            self.stylesheet.set_variables(self.get_css_variables())
        else:
            self.theme = chat_themes.PREFIX + theme

    def get_driver_class(self) -> "type[Driver]":
        """Return the driver: one that outlives its terminal."""
        return hardened(super().get_driver_class())

    def compose(self) -> ComposeResult:
        """Lay out the first frame. Each row takes its edge of what those before it leave."""
        colours = chat_themes.PALETTES[self.palette]
        self.header = Header(self.state, colours, "header")
        self.status = StatusLine(self.state, colours, "status")
        self.side = SideColumn(self.state, colours)
        self.composer = Composer()
        yield self.header
        yield self.status
        if self.size.width >= SIDE_FROM:
            yield self.side
        with Horizontal(id="input"):
            yield Static("›", id="prompt", markup=False)
            yield self.composer

    async def add_the_rest(self) -> None:
        """Add what the first frame does not show, because nothing has happened yet."""
        from anyplug.frontends.chat.completion_list import CompletionList  # all of them are imported after the frame
        from anyplug.frontends.chat.panel_view import PanelView
        from anyplug.frontends.chat.question_card import QuestionCard
        from anyplug.frontends.chat.search_bar import SearchBar
        from anyplug.frontends.chat.transcript_blocks import Painter
        from anyplug.frontends.chat.transcript_view import Transcript

        self.painter = Painter(chat_themes.PALETTES[self.palette])
        colours = self.painter.colours
        self.transcript = Transcript(self.painter)
        self.notes = Notes(self.state, colours, "notes")
        self.panel = PanelView(colours)
        self.card = QuestionCard(self.painter)
        self.queue = Queue(self.state, colours, "queue")
        self.completions = CompletionList(colours)
        self.searching = SearchBar()
        between = (self.transcript, self.notes, self.panel, self.card, self.queue, self.completions, self.searching)
        with self.batch_update():
            if not self.side.is_attached:
                await self.mount(self.side, after=self.status)
            await self.mount_all(between, before="#input")
            self._fit(self.size)

    @property
    def bars(self) -> list[Bar]:
        """The rows that are drawn from the state."""
        return [self.header, self.notes, self.queue, self.status]

    @property
    def is_complete(self) -> bool:
        """Whether everything is there that keys act on."""
        return self.composer.is_served.is_set()

    def draw_answer(self) -> None:
        """Draw what has come of the answer, unless a key waits to be drawn."""
        now = time.monotonic()
        if self.transcript.has_news and now > max(self._rests_until, self.composer.keyed_at + KEY_S):
            self.transcript.flush()
            self.call_after_refresh(self._rest_after, now)

    def _rest_after(self, begun: float) -> None:
        """Leave time for keys, now that what was flushed is drawn."""
        now = time.monotonic()
        self._rests_until = now + min(REST * (now - begun), LONGEST_REST_S)

    def draw(self) -> None:
        """Draw everything that comes from the state."""
        for bar in self.bars:
            bar.draw()
        self.side.draw()
        was_at_card = self.card.has_focus
        self.card.show(self.state.questions)
        if was_at_card and not self.state.questions:
            self.leave_card()
        self.show_panel()
        waiting = len(self.state.questions)
        self.set_title_of_terminal(f"({waiting}) anyplug" if waiting else "anyplug")

    def set_title_of_terminal(self, title: str) -> None:
        """Name the terminal's window, once for each change."""
        if title != self.title and self._driver is not None and not self.is_headless:
            self._driver.write(f"\x1b]2;{title}\x07")
        self.title = title

    def show_panel(self) -> None:
        """Show the panel that was opened last; it has the keys until it closes."""
        panels = self.state.panels
        before = self.panel.panel
        self.panel.show(panels[-1] if panels else None, has_question=bool(self.state.questions))
        if panels and before is None and not self.card.has_focus:
            self.panel.focus()
        elif not panels and before is not None and self.focused in {None, self.panel}:
            self.composer.focus()
        self._say_place()

    def tick(self) -> None:
        """Draw times that pass."""
        if self.state.calls:
            self.side.draw()

    def say(self, what: str) -> None:
        """Show a passing message in the status line."""
        self.status.said = what
        self.status.draw()
        self.set_timer(SAID_S, lambda: self.unsay(what))

    def unsay(self, what: str) -> None:
        """Take a passing message away, if it is still shown."""
        if self.status.said == what:
            self.status.said = ""
            self.status.draw()

    def note_line(self, text: str) -> None:
        """Add a line of ours to the transcript."""
        from anyplug.frontends.chat.transcript_blocks import LineBlock  # imported by now

        self.transcript.add(LineBlock(text, sign="·"))

    def fault_line(self, text: str, hint: str = "") -> None:
        """Add a red line to the transcript, with its cure."""
        from anyplug.frontends.chat.transcript_blocks import LineBlock  # imported by now

        self.transcript.add(LineBlock(text, sign="!", token="risk", hint=hint))

    def on_resize(self, event: events.Resize) -> None:
        """Show the side column where there is room."""
        if self.is_complete:
            self._fit(event.size)

    def _fit(self, size: Size) -> None:
        self.side.display = size.width >= SIDE_FROM
        self.side.draw()
        self.card.keep_within(size.height)

    def on_descendant_focus(self) -> None:
        """Show what keys do now."""
        self._say_place()

    def _say_place(self) -> None:
        focused = self.focused
        place = "composer" if focused is None else focused.id or ""
        place = "search" if place == "search-input" else place
        if place != self.status.place:
            self.status.place = place
            self.status.draw()

    def on_transcript_followed(self) -> None:
        """Show how much is below."""
        self.status.below = 0 if self.transcript.follows else self.transcript.rows_below
        self.status.draw()

    def use_palette(self, name: str) -> None:
        """Draw everything in another palette."""
        self.palette = name
        self.theme = chat_themes.PREFIX + name
        self.painter = type(self.painter)(chat_themes.PALETTES[name])
        colours = self.painter.colours
        for bar in self.bars:
            bar.repaint(colours)
        self.side.repaint(colours)
        self.completions.repaint(colours)
        self.panel.repaint(colours)
        self.transcript.repaint(self.painter)
        self.card.repaint(self.painter)

    def leave_card(self) -> None:
        """Go from the card to the open panel, else to the composer."""
        (self.panel if self.state.panels else self.composer).focus()

    # Keys that only move around on the screen.

    def action_answer(self) -> None:
        """Go to the open question."""
        if self.state.questions:
            self.card.focus()

    def action_compose(self) -> None:
        """Go back to the composer."""
        self.composer.focus()

    def action_browse(self) -> None:
        """Go to the transcript."""
        self.transcript.focus()

    def action_scroll_transcript(self, pages: int) -> None:
        """Scroll by pages."""
        height = max(1, self.transcript.scrollable_content_region.height - 2)
        self.transcript.scroll_relative(y=pages * height, animate=False)

    def action_scroll_top(self) -> None:
        """Go to the beginning."""
        self.transcript.scroll_home(animate=False)

    def action_follow(self) -> None:
        """Go to the end, and follow it."""
        self.transcript.follow()

    def action_search(self) -> None:
        """Search in the transcript."""
        if self.searching.is_attached:
            self.searching.open()

    def on_search_bar_changed(self, event: "SearchBar.Changed") -> None:
        """Search again."""
        self.transcript.search(event.query)
        self.searching.show_place(self.transcript.search_place)

    def action_search_next(self) -> None:
        """Go to the next match."""
        self.transcript.search_step(1)
        self.searching.show_place(self.transcript.search_place)

    def action_search_previous(self) -> None:
        """Go to the match before."""
        self.transcript.search_step(-1)
        self.searching.show_place(self.transcript.search_place)

    def close_search(self) -> None:
        """Close the search, and go back to the composer."""
        self.searching.close()
        self.transcript.search("")
        self.composer.focus()

    def action_unfold(self) -> None:
        """Unfold or fold all tool calls."""
        self.transcript.toggle_all()

    def action_change_theme(self) -> None:
        """Go on with the next palette."""
        names = list(chat_themes.PALETTES)
        self.use_palette(names[(names.index(self.palette) + 1) % len(names)])
        self.say(f"theme: {self.palette}")
