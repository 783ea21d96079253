"""The rows around the transcript: the header, the notes, the queued messages and the status line."""

from rich.text import Text
from textual.widgets import Static

from anyplug.frontends.chat.chat_state import ChatState, count
from anyplug.frontends.chat.shown_text import one_line, visible
from anyplug.frontends.design_tokens import Token

MOST_NOTES = 4  # rows; older ones are in the transcript
NOTE_TOKENS: dict[str, Token] = {"info": "muted", "success": "ok", "warn": "warn", "error": "risk"}
NOTE_SIGNS = {"info": "·", "success": "✓", "warn": "▲", "error": "!"}


class Bar(Static):
    """A row or more of ours, drawn from the state."""

    def __init__(self, state: ChatState, colours: dict[Token, str], name: str) -> None:
        super().__init__(id=name, markup=False)
        self.state, self.colours = state, colours

    def draw(self) -> None:
        """Draw it from the state."""
        raise NotImplementedError

    def repaint(self, colours: dict[Token, str]) -> None:
        """Draw it in another palette."""
        self.colours = colours
        self.draw()

    def both_ends(self, left: Text, right: Text) -> Text:
        """Put two texts at both ends of the row; the left one is cut if they do not fit."""
        room = self.size.width
        if left.cell_len + right.cell_len + 1 > room:
            left = left.copy()
            left.truncate(max(0, room - right.cell_len - 1), overflow="ellipsis")
        space = Text(" " * max(1, room - left.cell_len - right.cell_len))
        return Text(no_wrap=True).append_text(left).append_text(space).append_text(right)

    def on_resize(self) -> None:
        """Draw it for the new width."""
        self.draw()


class Header(Bar):
    """Where the chat is, with which model, and what it can call."""

    DEFAULT_CSS = "Header { height: 1; padding: 0 1; background: $t-raised; color: $t-text; }"

    def draw(self) -> None:
        """Draw it."""
        state, colours = self.state, self.colours
        left = Text(no_wrap=True)
        left.append("anyplug", style=f"bold {colours['accent']}")
        for part in (state.title or state.folder, state.model_name):
            if part:
                left.append(" │ ", style=colours["border"])
                left.append(one_line(part, 60), style=colours["text"])
        right = Text(style=colours["muted"])
        if state.is_open:
            right.append(f"{count(state.tools, 'tool')}, {count(state.plugins, 'plugin')}")
        self.update(self.both_ends(left, right))


class Notes(Bar):
    """The latest notes of extensions, below the transcript."""

    DEFAULT_CSS = "Notes { display: none; height: auto; max-height: 4; padding: 0 3; color: $t-text; }"

    def draw(self) -> None:
        """Draw them."""
        text = Text(overflow="ellipsis", no_wrap=True)
        for note in self.state.notes[-MOST_NOTES:]:
            level = note.level if note.level in NOTE_TOKENS else "info"
            colour = self.colours[NOTE_TOKENS[level]]
            text.append(f"[{one_line(note.plugin, 40)}] ", style=self.colours["muted"])
            text.append(f"{level}: ", style=colour)
            text.append(f"{one_line(note.message, 300)}\n", style=colour)
        text.rstrip()
        self.display = bool(self.state.notes)
        self.update(text)


class Queue(Bar):
    """The messages that wait for the end of the turn."""

    DEFAULT_CSS = "Queue { display: none; height: auto; max-height: 4; padding: 0 3; color: $t-muted; }"

    def draw(self) -> None:
        """Draw them."""
        text = Text(overflow="ellipsis", no_wrap=True, style=self.colours["muted"])
        for number, message in enumerate(self.state.queued):
            last = "   Alt+Up takes it back" if number == len(self.state.queued) - 1 else ""
            text.append(f"queued: {one_line(message, 200)}{last}\n")
        text.rstrip()
        self.display = bool(self.state.queued)
        self.update(text)


class StatusLine(Bar):
    """What keys do now, and what the conversation has used."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; background: $t-raised; color: $t-muted; }"

    def __init__(self, state: ChatState, colours: dict[Token, str], name: str) -> None:
        super().__init__(state, colours, name)
        self.below = 0  # rows below the screen
        self.place = ""  # where the focus is: composer, question, panel, transcript or search
        self.said = ""  # for a moment, in place of the keys

    def draw(self) -> None:
        """Draw it."""
        state, colours = self.state, self.colours
        left = Text(style=colours["muted"], no_wrap=True)
        if state.fault:
            left.append(f"! {visible(state.fault)}  ", style=colours["risk"])
        elif not state.is_open:
            left.append(f"{state.loading}  ", style=colours["accent"])
        elif state.held:
            left.append(f"{state.held}  ", style=colours["warn"])
        elif state.turn:
            left.append("● working  ", style=colours["accent"])
        right = Text(style=colours["muted"])
        if self.below:
            right.append(f"↓ {count(self.below, 'line')}, Ctrl+End  ", style=colours["accent"])
        right.append(self._used())
        if self.said:
            left.append(self.said, style=colours["text"])
        else:
            room = self.size.width - right.cell_len
            for key, what in self._keys():
                if left.cell_len + len(key) + 1 + len(what) < room - 1:
                    left.append(key, style=f"bold {colours['text']}")
                    left.append(f" {what}  ")
            left.rstrip()
        self.update(self.both_ends(left, right))

    def _keys(self) -> list[tuple[str, str]]:
        state = self.state
        if state.fault:
            return [("Ctrl+R", "try again"), ("Ctrl+D", "quit")]
        if self.place == "panel":
            return [("Esc", "close panel"), *([("F2", "answer")] if state.questions else [])]
        if self.place == "question":
            return [("Esc", "back"), ("↑↓", "scroll")]
        if self.place == "transcript":
            return [("↑↓", "scroll"), ("n N", "matches"), ("Tab", "back")]
        if self.place == "search":
            return [("Enter", "next"), ("↑", "previous"), ("Esc", "close")]
        keys = [("Esc", "cancel turn")] if state.turn else []
        if state.questions:
            keys.append(("Tab", "answer"))
        return [*keys, ("/", "commands"), ("F1", "help"), ("@", "files"), ("Ctrl+F", "search")]

    def _used(self) -> str:
        usage = self.state.usage
        if usage is None:
            return ""
        parts = []
        tokens = [number for number in (usage.input_tokens, usage.output_tokens) if number is not None]
        if tokens:
            parts.append(count(sum(tokens), "token"))
        if usage.cost_usd is not None:
            parts.append(dollars(usage.cost_usd))
        return "  ".join(parts)


def dollars(amount: float) -> str:
    """Format a cost: small ones in more digits."""
    return f"${amount:.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.4f}"  # noqa: PLR2004 - ten cents
