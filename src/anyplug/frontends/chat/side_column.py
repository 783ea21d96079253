"""The side column of wide terminals: running and waiting calls, the plugins, and the conversation."""

import time
from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Static

from anyplug.frontends.chat.chat_bars import dollars
from anyplug.frontends.chat.chat_state import ChatState, count
from anyplug.frontends.chat.shown_text import one_line
from anyplug.frontends.design_tokens import Token

if TYPE_CHECKING:
    from textual.app import ComposeResult

WIDTH = 42  # columns of text
SHOWN_AFTER_S = 1.0  # how long a call takes before its time is shown
STATE_TOKENS: dict[str, Token] = {
    "approved": "ok", "new": "ask", "changed": "ask", "denied": "risk", "broken": "risk", "disabled": "muted",
    "shadowed": "muted",
}  # fmt: skip
STATE_SIGNS = {"approved": "✓", "new": "?", "changed": "?", "denied": "✗", "broken": "!"}


class SideColumn(VerticalScroll, can_focus=False):
    """Four lists, drawn from the state."""

    DEFAULT_CSS = """
    SideColumn {
        display: none; width: 44; padding: 0 1; background: $t-raised; color: $t-text; scrollbar-size-vertical: 1;
        & Static { height: auto; }
    }
    """

    def __init__(self, state: ChatState, colours: dict[Token, str]) -> None:
        super().__init__(id="side")
        self.state, self.colours = state, colours
        self._text = Static(markup=False)

    def compose(self) -> "ComposeResult":
        """Hold one text."""
        yield self._text

    def repaint(self, colours: dict[Token, str]) -> None:
        """Draw it in another palette."""
        self.colours = colours
        self.draw()

    def draw(self) -> None:
        """Draw it, if it is shown."""
        if not self.display:
            return
        text = Text(no_wrap=True, overflow="ellipsis")
        for title, rows in (
            ("Now", self._now()),
            ("Waiting", self._waiting()),
            ("Plugins", self._plugins()),
            ("Conversation", self._conversation()),
        ):
            text.append(f"{title}\n", style=f"bold {self.colours['accent']}")
            for row in rows:
                text.append_text(row)
                text.append("\n")
            text.append("\n")
        text.rstrip()
        self._text.update(text)

    def _row(self, sign: str, token: Token, name: str, about: str = "") -> Text:
        row = Text(f"{sign} ", style=self.colours[token])
        row.append(one_line(name, 60), style=self.colours["text"])
        if about:
            row.append(f"  {one_line(about, 60)}", style=self.colours["muted"])
        row.truncate(WIDTH - 1, overflow="ellipsis")
        return row

    def _quiet(self, text: str) -> list[Text]:
        return [Text(text, style=self.colours["muted"])]

    def _now(self) -> list[Text]:
        rows = []
        asked = [question.tool for question in self.state.questions]
        for call in self.state.calls.values():
            if call.tool in asked:  # it is listed below
                continue
            seconds = time.monotonic() - call.since
            taken = f"{seconds:.0f} s" if seconds >= SHOWN_AFTER_S else ""
            rows.append(self._row("●", "accent", call.tool, " ".join(filter(None, (taken, call.progress)))))
        if not rows and self.state.turn:
            said = "your answer is needed" if self.state.questions else "the model is answering"
            return [self._row("●", "accent", said)]
        return rows or self._quiet("nothing runs")

    def _waiting(self) -> list[Text]:
        rows = [self._row("?", "ask", question.tool, question.plugin) for question in self.state.questions]
        rows += [self._row("…", "muted", message) for message in self.state.queued]
        return rows or self._quiet("no questions")

    def _plugins(self) -> list[Text]:
        rows = []
        for plugin in self.state.rows:
            about = plugin.health if plugin.state == "approved" and plugin.health else plugin.state
            if plugin.state == "approved" and not plugin.health:
                about = count(plugin.tools, "tool") if plugin.tools else ""
            sign = STATE_SIGNS.get(plugin.state, "–")
            rows.append(self._row(sign, STATE_TOKENS.get(plugin.state, "muted"), plugin.name, about))
        return rows or self._quiet("none installed")

    def _conversation(self) -> list[Text]:
        state, usage = self.state, self.state.usage
        facts = [("model", state.model_name), ("folder", state.cwd)]
        if usage is not None:
            if usage.input_tokens is not None:
                facts.append(("in", count(usage.input_tokens, "token")))
            if usage.output_tokens is not None:
                facts.append(("out", count(usage.output_tokens, "token")))
            if usage.cost_usd is not None:
                facts.append(("cost", dollars(usage.cost_usd)))
            if usage.context_used is not None:
                facts.append(("context", _gauge(usage.context_used)))
        rows = []
        for name, value in facts:
            row = Text(f"{name:<9}", style=self.colours["muted"])
            row.append(_end_of(value, WIDTH - 10), style=self.colours["text"])
            rows.append(row)
        return rows


def _gauge(share: float) -> str:
    full = round(min(1.0, max(0.0, share)) * 10)
    return f"{'█' * full}{'░' * (10 - full)} {share:.0%}"


def _end_of(text: str, width: int) -> str:
    line = one_line(text)
    return line if len(line) <= width else "…" + line[-(width - 1) :]
