"""The composer: where the person types. It has the focus unless the person moves it away."""

import asyncio
import time

from textual import events
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Edit, EditResult

# Keys that the chat decides about. They are handled in the order in which they are typed: a priority binding would be
# run before the letters typed ahead of it arrive here.
ACTIONS = {
    "tab": "tab",
    "alt+up": "take_back",
    "pageup": "scroll_transcript(-1)",
    "pagedown": "scroll_transcript(1)",
    "ctrl+end": "follow",
    "ctrl+home": "scroll_top",
    "escape": "leave",
    "ctrl+c": "copy_or_clear",
    "ctrl+d": "quit_if_empty",
    "ctrl+f": "search",
    "ctrl+o": "unfold",
    "ctrl+y": "copy_answer",
    "ctrl+g": "edit",
    "ctrl+t": "change_theme",
    "ctrl+r": "try_again",
    "f1": "help",
    "shift+tab": "browse",
}
NEW_LINE = frozenset({"shift+enter", "alt+enter", "ctrl+j"})
FOR_THE_CHAT = frozenset({*ACTIONS, "enter", "up", "down"})


def harmless(text: str) -> str:
    """Return a text without escape sequences and invisible characters: extensions insert text, and people paste it."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    from anyplug.model.untrusted_text import for_models  # ASCII, as in the first frame, does not need it

    return for_models(text)


class Composer(TextArea):
    """Several lines of input: Enter sends, Shift+Enter, Alt+Enter and Ctrl+J begin a new line."""

    DEFAULT_CSS = """
    Composer {
        height: auto; min-height: 1; max-height: 10; border: none; padding: 0; background: $t-bg; color: $t-text;
        scrollbar-size-vertical: 1;
        &:focus { border: none; }
        & .text-area--cursor { background: $t-accent; color: $t-bg; }
        & .text-area--cursor-line { background: $t-bg; }
        & .text-area--placeholder { color: $t-muted; }
        & .text-area--suggestion { color: $t-muted; }
    }
    """

    class Sent(Message):
        """The person wants this sent."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Browsed(Message):
        """The person wants an earlier message, or a later one."""

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

    def __init__(self) -> None:
        super().__init__(
            id="composer", soft_wrap=True, show_line_numbers=False, tab_behavior="focus", highlight_cursor_line=False
        )
        self.keyed_at = 0.0  # when the last key came
        self.is_served = asyncio.Event()  # the rest of the screen is there: keys that need it wait for that
        self.placeholder = "Ask something, or type / for commands"

    async def on_key(self, event: events.Key) -> None:
        """Handle what is not editing; the class below does the rest."""
        key, self.keyed_at = event.key, time.monotonic()
        if key in FOR_THE_CHAT:
            await self.is_served.wait()
        if key == "enter":
            text = self.text
            self.put("")
            self.post_message(self.Sent(text))
        elif key in NEW_LINE:
            self.insert("\n")
        elif key == "up" and (self.cursor_at_first_line or not self.text):
            self.post_message(self.Browsed(-1))
        elif key == "down" and self.cursor_at_last_line:
            self.post_message(self.Browsed(1))
        elif key in ACTIONS:
            await self.app.run_action(ACTIONS[key])
        else:
            return
        event.stop()
        event.prevent_default()

    def edit(self, edit: Edit) -> EditResult:
        """Take typed, pasted and inserted text without what a terminal would obey."""
        edit.text = harmless(edit.text)
        return super().edit(edit)

    def load_text(self, text: str) -> None:
        """Replace the text, in the same way."""
        super().load_text(harmless(text))

    def give_back(self, text: str) -> None:
        """Put back what was not sent, before what has been typed since."""
        self.put(f"{text}\n{self.text}" if self.text.strip() else text)

    def put(self, text: str) -> None:
        """Replace what is typed."""
        self.text = text
        self.move_cursor(self.document.end)

    def complete(self, length: int, text: str) -> None:
        """Replace the last characters before the cursor."""
        row, column = self.cursor_location
        self.replace(text, (row, column - length), (row, column), maintain_selection_offset=False)
        self.move_cursor((row, column - length + len(text)))

    @property
    def word(self) -> str:
        """The word before the cursor, without blanks."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        return before[max(before.rfind(" "), before.rfind("\t")) + 1 :]

    def on_paste(self, event: events.Paste) -> None:
        """Turn other line endings into newlines, before the text is inserted by the class below."""
        event.text = event.text.replace("\r\n", "\n").replace("\r", "\n")
