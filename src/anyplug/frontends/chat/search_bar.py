"""Search in the transcript."""

from typing import TYPE_CHECKING

from textual import events
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

if TYPE_CHECKING:
    from textual.app import ComposeResult


ACTIONS = {
    "enter": "search_next",
    "down": "search_next",
    "up": "search_previous",
    "escape": "leave",
    "tab": "browse",
    "ctrl+f": "browse",
}


class SearchInput(Input):
    """What is searched for."""

    async def on_key(self, event: events.Key) -> None:
        """Move among the matches, or leave."""
        if (action := ACTIONS.get(event.key)) is not None:
            event.stop()
            event.prevent_default()
            await self.app.run_action(action)


class SearchBar(Horizontal):
    """A row with the text and the number of matches."""

    DEFAULT_CSS = """
    SearchBar {
        display: none; height: 1; background: $t-raised; padding: 0 1;
        & #search-label { width: auto; color: $t-muted; }
        & #search-place { width: auto; color: $t-muted; padding: 0 1; }
        & SearchInput { height: 1; border: none; padding: 0; background: $t-raised; color: $t-text; width: 1fr; }
        & SearchInput:focus { border: none; }
    }
    """

    class Changed(Message):
        """Another text is searched for."""

        def __init__(self, query: str) -> None:
            super().__init__()
            self.query = query

    def __init__(self) -> None:
        super().__init__(id="search")
        self._input = SearchInput(id="search-input", compact=True)
        self._place = Static(id="search-place", markup=False)

    def compose(self) -> "ComposeResult":
        """Hold a label, the input and the number of matches."""
        yield Static("search: ", id="search-label", markup=False)
        yield self._input
        yield self._place

    def open(self) -> None:
        """Show it, and take the focus."""
        self.display = True
        self._input.focus()

    def close(self) -> None:
        """Hide it."""
        self.display = False
        self._input.value = ""

    @property
    def wanted(self) -> str:
        """What is searched for."""
        return self._input.value

    def show_place(self, place: tuple[int, int]) -> None:
        """Show which match it is, of how many."""
        number, total = place
        self._place.update(f"{number} of {total}" if total else "no match" if self._input.value else "")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search again."""
        event.stop()
        self.post_message(self.Changed(event.value))

    def on_paste(self, event: events.Paste) -> None:
        """Search for one line."""
        event.text = " ".join(event.text.split())
