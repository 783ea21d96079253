"""The card of a waiting question, docked above the composer: what would run, with what, and what it could touch.

It never takes the focus by itself. Its letters work only after the person went to it, and not for half a second after
it appeared, changed or was reached. "Always" wants Enter as well.
"""

from typing import TYPE_CHECKING

from rich.text import Text
from textual import events
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Static

from anyplug.frontends.chat.one_shot_timers import OneShotTimers
from anyplug.frontends.chat.shown_text import one_line, visible
from anyplug.frontends.chat.transcript_blocks import Painter, argument_row
from anyplug.frontends.design_tokens import READS, risks

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.timer import Timer

    from anyplug.call.consent import Answer, Question
    from anyplug.frontends.design_tokens import Token

GUARD_S = 0.5  # after it appeared, changed or was reached, so that nobody answers what they have not read
BORDER = 4  # columns of the border and the space beside it
SHARE = 0.6  # of the screen
LEAST_ROWS = 2
NOTHING = ("args", "")  # what a slash command without words gets
MOST_IN_A_SENTENCE = 2  # permissions; more are a list
MOST_ARGUMENTS = 3  # rows, until the person asks for details
BUTTONS: tuple[tuple[str, str, "Answer | str"], ...] = (
    ("y", "Once", "once"),
    ("c", "This chat", "attachment"),
    ("a", "Always…", "always"),
    ("n", "Don't allow", "no"),
    ("d", "Details", "details"),
)
SCROLLS: "dict[str, Callable[[VerticalScroll], None]]" = {
    "up": lambda body: body.scroll_up(animate=False),
    "down": lambda body: body.scroll_down(animate=False),
    "pageup": lambda body: body.scroll_page_up(animate=False),
    "pagedown": lambda body: body.scroll_page_down(animate=False),
}


class QuestionCard(OneShotTimers, Vertical, can_focus=True):
    """The first waiting question, and how many there are."""

    DEFAULT_CSS = """
    QuestionCard {
        display: none; height: auto; padding: 0 1; background: $t-raised; color: $t-text;
        border: round $t-ask; border-title-color: $t-ask; border-subtitle-color: $t-muted;
        &:focus { border: heavy $t-ask; }
        & #question-body { height: auto; scrollbar-size-vertical: 1; background: $t-raised; }
        & #question-text, & #question-keys { height: auto; }
    }
    """

    class Answered(Message):
        """The person answered."""

        def __init__(self, question: str, word: "Answer") -> None:
            super().__init__()
            self.question, self.word = question, word

    class Left(Message):
        """The person goes back to the composer."""

    def __init__(self, painter: Painter) -> None:
        super().__init__(id="question")
        self.painter = painter
        self.is_ready = False  # its letters work
        self._question: Question | None = None
        self._count = 0
        self._wants_enter = False
        self._has_details = False
        self._timer: Timer | None = None
        self._button_spans: list[tuple[int, int, str]] = []
        self._given = ""  # the question that was answered, until the conversation says so
        self._body = VerticalScroll(Static(id="question-text", markup=False), id="question-body", can_focus=False)
        self._keys = Static(id="question-keys", markup=False)

    def compose(self) -> "ComposeResult":
        """Hold the text, which scrolls, and the keys below it."""
        yield self._body
        yield self._keys

    def keep_within(self, height: int) -> None:
        """Take at most its share of the screen."""
        self._body.styles.max_height = max(LEAST_ROWS, int(height * SHARE) - 3)

    def show(self, questions: "list[Question]") -> None:
        """Show the first of these, or nothing."""
        before = self._question
        self._question = questions[0] if questions else None
        self._count = len(questions)
        self.display = bool(questions)
        if self._question is not before:
            self._wants_enter = self._has_details = False
            self._wait()
        self._draw()

    @property
    def question(self) -> "Question | None":
        """The question that it shows."""
        return self._question

    def repaint(self, painter: Painter) -> None:
        """Draw it in another palette."""
        self.painter = painter
        self._draw()

    # Keys.

    def watch_has_focus(self, has_focus: bool) -> None:
        """Wait a moment, then take letters; forget half an answer."""
        super().watch_has_focus(has_focus)
        self._wants_enter = False
        if self.is_mounted:
            self._wait()
            self._draw()

    def on_resize(self) -> None:
        """Wait again: its keys have moved."""
        self._wait()
        self._draw()

    def _wait(self) -> None:
        self.is_ready = False
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(GUARD_S, self._get_ready)

    def _get_ready(self) -> None:
        self.is_ready = self._question is not None and self._question.id != self._given
        self._draw()

    def on_key(self, event: events.Key) -> None:
        """Answer, show details, or go back."""
        if event.key in SCROLLS:
            SCROLLS[event.key](self._body)
        if event.key not in {"ctrl+c", "ctrl+d", "ctrl+f"}:
            event.stop()
            event.prevent_default()
        if event.key in {"escape", "tab", "shift+tab"}:
            if self._wants_enter:
                self._wants_enter = False
                self._draw()
            else:
                self.post_message(self.Left())
        elif not self.is_ready:
            if event.is_printable:
                self._wait()  # somebody is typing, not answering
        elif event.key == "enter" and self._wants_enter:
            self._give("always")
        else:
            self._press(event.character or "")

    def _press(self, letter: str) -> None:
        word = next((word for key, _, word in self._buttons() if key == letter), None)
        if word == "details":
            self._has_details = not self._has_details
            self._draw()
        elif word == "always":
            self._wants_enter = True
            self._draw()
        elif word is not None:
            self._give(word)  # type: ignore[arg-type]  # the words of buttons besides `details` are answers

    def on_click(self, event: events.Click) -> None:
        """Press the button that was clicked."""
        place = event.get_content_offset(self._keys)
        if place is None or not self.has_focus or not self.is_ready or self._wants_enter:
            return
        letter = next((key for start, end, key in self._button_spans if start <= place.x < end), "")
        self._press(letter)

    def _give(self, word: "Answer") -> None:
        if self._question is not None:
            self._given, self.is_ready = self._question.id, False
            self.post_message(self.Answered(self._question.id, word))

    def _buttons(self) -> list[tuple[str, str, str]]:
        may_last = self._question is None or self._question.may_last
        return [row for row in BUTTONS if may_last or row[2] != "always"]

    # Drawing.

    def _draw(self) -> None:
        question = self._question
        if question is None or not self.is_mounted:
            return
        asked = f"{one_line(question.plugin, 40)} wants to {one_line(question.wants, 60)}"
        if question.caller:
            asked = f"{one_line(question.caller, 40)} wants {asked.replace(' wants to ', ' to ', 1)}"
        marks = "  ".join(f"{shape} {word}" for shape, word, _ in risks(question.permissions))
        self.border_title = Text(f"? WAITING FOR YOU: {asked}")
        self.border_subtitle = Text(f"{marks}  1/{self._count}")
        self._body.query_one(Static).update(self._content(question, self._row_width))
        self._keys.update(self._last_row())

    @property
    def _row_width(self) -> int:
        """How wide a row is; known before the card is shown for the first time, too."""
        if self.content_size.width:
            return self.content_size.width
        return self.parent.content_size.width - BORDER if isinstance(self.parent, Vertical) else 0

    def _content(self, question: "Question", width: int) -> Text:
        painter = self.painter
        arguments = [(name, value) for name, value in question.arguments.items() if (name, value) != NOTHING]
        shown = arguments if self._has_details else arguments[:MOST_ARGUMENTS]
        rows = [argument_row(name, value, painter, width, whole=self._has_details) for name, value in shown]
        if left := len(arguments) - len(shown):
            rows.append(Text(f"… {left} more, under Details", style=painter.style("muted")))
        rows += [Text(text, style=painter.style(token)) for text, token in self._sentences(question)]
        return Text("\n", overflow="fold").join(rows)

    def _sentences(self, question: "Question") -> list[tuple[str, "Token"]]:
        said: list[tuple[str, Token]] = []
        if question.asker and not question.asker.startswith("permission:"):  # the warning says what that is
            said.append((f"Your policy {one_line(question.asker)} wants your answer.", "text"))
        if question.callers:
            said.append((f"Called by {' > '.join(one_line(name, 60) for name in question.callers)}.", "text"))
        said += _abilities(question.permissions)
        if question.lent:
            lent = one_line(", ".join(question.lent))
            said.append((f"{one_line(question.caller, 40)} itself was not granted {lent}.", "warn"))
        if question.warning:
            said.append((f"▲ {visible(question.warning)}", "warn"))
        if self._has_details:
            granted = one_line(", ".join(question.permissions)) or "nothing"
            said.append((f"Granted: {granted}", "muted"))
        return said

    def _last_row(self) -> Text:
        painter = self.painter
        strong, quiet = painter.style("ask", "bold"), painter.style("muted")
        if not self.has_focus:
            return Text.assemble(("Tab", strong), (" to answer", quiet))
        if self._wants_enter:
            said = "For every chat and agent, until the plugin changes. "
            return Text.assemble((said, painter.style("warn")), ("Enter", strong), (" to confirm, Esc back", quiet))
        row = Text()
        self._button_spans = []
        for key, label, _ in self._buttons():
            start = row.cell_len
            row.append(f"[{key}]", style=strong if self.is_ready else quiet)
            name = "Hide details" if key == "d" and self._has_details else label
            row.append(f" {name}", style=painter.style("text") if self.is_ready else quiet)
            self._button_spans.append((start, row.cell_len, key))
            row.append("  ")
        row.append("Esc back", style=quiet)
        return row


def _abilities(permissions: tuple[str, ...]) -> "list[tuple[str, Token]]":
    """Return what permissions allow: in one sentence, or as a list."""
    from anyplug.model.permissions import describe  # the first frame has no question

    parts = [one_line(describe(permission)).replace(": .", " in this folder") for permission in permissions]
    if len(parts) <= MOST_IN_A_SENTENCE:
        return [(f"While it runs, it can {' and '.join(parts) or 'compute, and nothing else'}.", "text")]
    rows: list[tuple[str, Token]] = [("While it runs, it can", "text")]
    for permission, part in zip(permissions, parts, strict=True):
        shape, _, token = risks((permission,))[0]
        rows.append((f"  {shape} {part}", "text" if token == READS[2] else token))
    return rows
