"""The transcript: one widget that draws all blocks of a conversation line by line.

Rows are rendered once for each width. When the width changes, the visible blocks are rendered at once, and the others
while nothing else happens. It follows its end until the person scrolls up.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from anyplug.frontends.chat.block_rows import BlockRows
from anyplug.frontends.chat.one_shot_timers import OneShotTimers
from anyplug.frontends.chat.row_search import RowSearch, styled
from anyplug.frontends.chat.streaming_answer import StreamingAnswer
from anyplug.frontends.chat.transcript_blocks import Block, Painter

if TYPE_CHECKING:
    from rich.style import Style
    from textual.selection import Selection

IDLE_S = 0.02  # between two spells of rendering what is out of sight
SPELL_S = 0.008  # of each, so that keys never wait


class Transcript(OneShotTimers, ScrollView, can_focus=True):
    """Everything that was said, as rows."""

    BINDINGS = [
        Binding("n", "app.search_next", show=False),
        Binding("N", "app.search_previous", show=False),
        Binding("escape", "app.leave", show=False),
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "app.follow", show=False),
    ]
    DEFAULT_CSS = """
    Transcript {
        background: $t-bg; color: $t-text; scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: scroll;
        scrollbar-gutter: stable;
    }
    """

    class Followed(Message):
        """It follows its end, or no longer does."""

    def __init__(self, painter: Painter) -> None:
        super().__init__(id="transcript")
        self.follows = True
        self._painter = painter
        self._rows = BlockRows(painter)
        self._answer = StreamingAnswer(self)
        self._search = RowSearch()
        self._is_reflowing = False
        self._is_held = False
        self._base: Style | None = None

    # Blocks.

    @property
    def blocks(self) -> list[Block]:
        """All blocks, the oldest first."""
        return list(self._rows.blocks)

    @property
    def text(self) -> str:
        """Everything it shows."""
        return "\n".join(row.text.rstrip() for row in self._strips())

    def show(self, block: Block) -> None:
        """Go to the beginning of a block that is too tall to be seen whole."""
        if len(block.rows) > self.scrollable_content_region.height:
            self.scroll_to(y=self._rows.top(self._rows.blocks.index(block)), animate=False, immediate=True)

    def _strips(self) -> Iterator[Strip]:
        return (row for block in self._rows.blocks for row in block.rows)

    def add(self, block: Block, before: Block | None = None) -> Block:
        """Add a block at the end, or before another."""
        self._rows.add(block, before)
        self._resized()
        return block

    def changed(self, block: Block) -> None:
        """Draw a block again, because it has changed."""
        self._rows.changed(block)
        self._resized()

    def drop(self, block: Block) -> None:
        """Take a block away."""
        self._rows.drop(block)
        self._resized()

    def clear(self) -> None:
        """Take all blocks away."""
        width = self._rows.width
        self._rows = BlockRows(self._painter)
        self._rows.width = width
        self._answer = StreamingAnswer(self)
        self._measure()
        self.follows = True
        self.refresh()

    def repaint(self, painter: Painter) -> None:
        """Draw everything in another palette."""
        self._painter = painter
        self._rows.use_palette(painter)
        self._reflow()

    def toggle_all(self) -> None:
        """Unfold all calls, or fold them if all are unfolded."""
        calls = [block for block in self._rows.blocks if hasattr(block, "is_open")]
        is_open = not all(call.is_open for call in calls)
        with self.at_once():
            for call in calls:
                if call.is_open != is_open:
                    call.toggle()
                    self.changed(call)

    # The answer that streams in.

    def stream(self, text: str) -> None:
        """Add a piece of the answer."""
        self._answer.add(text)

    def flush(self) -> None:
        """Show the pieces that have come."""
        self._answer.flush()

    def finish(self, text: str | None = None, also: tuple[Block, ...] = ()) -> None:
        """End the answer; a given text replaces what was streamed, and other blocks follow it."""
        self._answer.finish(text, also)
        self._answer = StreamingAnswer(self)

    @property
    def has_news(self) -> bool:
        """Whether pieces of the answer have come that are not shown yet."""
        return self._answer.has_news

    @property
    def is_streaming(self) -> bool:
        """Whether an answer has begun and not ended."""
        return self._answer.has_begun

    # Rows.

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Show several changes together."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self._resized()

    def _resized(self) -> None:
        if self._is_held:
            return
        self._measure()
        if self.follows:
            self.scroll_end(animate=False, immediate=True, x_axis=False)
        self.refresh()

    def _measure(self) -> None:
        """Set how far it scrolls, without a new layout of the screen: its own size stays."""
        self.set_reactive(Transcript.virtual_size, Size(self.scrollable_content_region.width, len(self._rows)))
        self.vertical_scrollbar.window_virtual_size = len(self._rows)

    def render_line(self, y: int) -> Strip:
        """Draw one row of the screen."""
        row = y + self.scroll_offset.y
        width = self.size.width
        if self._base is None:
            self._base = self.rich_style  # costs more than the rest of a row
        base = self._base
        strip = self._rows.strip(row)
        if strip is None:
            return Strip.blank(width, base)
        if self._search.is_on:
            strip = self._search.marked(strip, row)
        if (selection := self.text_selection) is not None and (span := selection.get_span(row)) is not None:
            end = strip.cell_length if span[1] == -1 else span[1]
            strip = styled(strip, span[0], end, self.screen.get_component_rich_style("screen--selection"))
        return strip.apply_style(base).apply_offsets(0, row).adjust_cell_length(width, base)

    def get_selection(self, selection: "Selection") -> tuple[str, str] | None:
        """Return the selected text."""
        return "\n".join(line.rstrip() for line in selection.extract(self._rows.text).split("\n")), "\n"

    def notify_style_update(self) -> None:
        """Forget the style of the ground: it has changed."""
        super().notify_style_update()
        self._base = None

    def selection_updated(self, selection: "Selection | None") -> None:
        """Draw the selection."""
        self.refresh()

    @property
    def allow_select(self) -> bool:
        """Whether text can be selected with the mouse."""
        return True

    def on_click(self, event: events.Click) -> None:
        """Unfold the call that was clicked."""
        if self.text_selection is not None:
            return
        found = self._rows.at(int(event.y) + self.scroll_offset.y)
        if found is not None and found[0].toggle():
            self.changed(found[0])

    # Width and palette.

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._reflow()

    def _reflow(self) -> None:
        """Draw what is in sight, and have the rest drawn while nothing else happens."""
        region, rows = self.scrollable_content_region, self._rows
        rows.width = max(0, region.width - 1)  # a column before the scroll bar stays free
        if not rows.width:
            return
        if self.follows:
            seen = 0
            for index in range(len(rows.blocks) - 1, -1, -1):
                rows.renew(index)
                seen += len(rows.blocks[index].rows)
                if seen >= region.height:
                    break
            self._resized()
        else:
            self._keep_place(region.height)
        if not self._is_reflowing and any(map(rows.is_stale, rows.blocks)):
            self._is_reflowing = True
            self.set_timer(IDLE_S, self._reflow_more)
        self._search.renew(self._strips())
        self.refresh()

    def _reflow_more(self) -> None:
        """Draw some blocks that are out of sight, and keep those in sight in their place."""
        until = time.monotonic() + SPELL_S
        rows = self._rows
        stale = [index for index in range(len(rows.blocks) - 1, -1, -1) if rows.is_stale(rows.blocks[index])]
        first, above, done = rows.index(self.scroll_offset.y), 0, 0
        for index in stale:
            by = rows.renew(index)
            above += by if index < first else 0
            done += 1
            if time.monotonic() > until:
                break
        self._measure()
        if self.follows:
            self.scroll_end(animate=False, immediate=True, x_axis=False)
        elif above:
            self.scroll_to(y=self.scroll_offset.y + above, animate=False, immediate=True)
        if done < len(stale):
            self.set_timer(IDLE_S, self._reflow_more)
        else:
            self._is_reflowing = False
            self._search.renew(self._strips())
        self.refresh()

    def _keep_place(self, height: int) -> None:
        """Draw blocks from the first one in sight on, which keeps its place."""
        rows = self._rows
        if not rows.blocks:
            return
        first = rows.index(self.scroll_offset.y)
        inside = self.scroll_offset.y - rows.top(first)
        seen = -inside
        for index in range(first, len(rows.blocks)):
            rows.renew(index)
            seen += len(rows.blocks[index].rows)
            if seen >= height:
                break
        self._measure()
        y = rows.top(first) + min(inside, len(rows.blocks[first].rows))
        self.scroll_to(y=y, animate=False, immediate=True)

    # Scrolling.

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end as long as it is in sight."""
        super().watch_scroll_y(old_value, new_value)
        follows = new_value >= self.max_scroll_y
        if follows != self.follows:
            self.follows = follows
            self.post_message(self.Followed())

    def follow(self) -> None:
        """Go to the end, and follow it."""
        self.follows = True
        self.scroll_end(animate=False, immediate=True, x_axis=False)
        self.post_message(self.Followed())

    @property
    def rows_below(self) -> int:
        """The number of rows that are below the screen."""
        return max(0, int(self.max_scroll_y - self.scroll_offset.y))

    # Search.

    def search(self, query: str) -> None:
        """Mark all places of a text, ignoring case, and go to the last one."""
        self._search.begin(query, self._strips())
        self._show_hit()

    def search_step(self, by: int) -> None:
        """Go to the next place, or the previous one."""
        self._search.renew(self._strips())
        self._search.step(by)
        self._show_hit()

    @property
    def search_place(self) -> tuple[int, int]:
        """Which hit is shown, of how many."""
        return self._search.place

    def _show_hit(self) -> None:
        row = self._search.row
        height = self.scrollable_content_region.height
        if row is not None and not self.scroll_offset.y <= row < self.scroll_offset.y + height:
            self.scroll_to(y=max(0, row - height // 2), animate=False, immediate=True)
        self.refresh()
