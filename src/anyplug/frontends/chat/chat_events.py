"""Update the screen for each event of a conversation.

Events are told apart by their tag: their classes are heavier to import than the first frame may wait for.
"""

import time
from typing import TYPE_CHECKING, Any

from anyplug.frontends.chat.chat_bars import NOTE_SIGNS, NOTE_TOKENS
from anyplug.frontends.chat.chat_state import Running, count
from anyplug.frontends.chat.shown_text import one_line
from anyplug.frontends.chat.transcript_blocks import CallBlock, LineBlock, QuoteBlock, UserBlock
from anyplug.frontends.design_tokens import CANCELLED, RUNNING, WAITING, Sign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyplug.agent import conversation_events as said
    from anyplug.frontends.chat.chat_face import Face
    from anyplug.frontends.design_tokens import Token
    from anyplug.peers.panels import Panel

ANSWERS = {
    "once": "Allowed once", "attachment": "Allowed for this chat", "always": "Always allowed", "no": "Not allowed",
    "withdrawn": "No longer asked",
}  # fmt: skip
PLACES = {"console": "the console", "terminal": "the terminal", "": "another window"}
OFFER = "Ctrl+S sends to the model:"
OFFER_SENT = "Sent to the model:"
MOST_NOTES = 50  # kept below the transcript; older ones go into it
LEVELS: "dict[str, tuple[str, Token]]" = {"info": ("·", "muted"), "warn": ("▲", "warn"), "error": ("!", "risk")}


class Receiver:
    """Applies events to the state and the widgets of one chat."""

    def __init__(self, app: "Face") -> None:
        self.app = app
        self.calls: dict[str, CallBlock] = {}
        self.last_answer = ""
        self._offers: list[CallBlock] = []  # whose text for a model was not sent; a key sends the last one's

    def hear(self, event: Any) -> None:
        """Apply one event. A fault of ours in one must not hide those that follow."""
        tag = type(event).__struct_config__.tag
        try:
            getattr(self, f"_{tag}")(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, the conversation goes on
            said = f"anyplug itself failed to show something ({tag}): {type(error).__name__}: {error}"
            self.app.fault_line(said, "`/sessions` opens the conversation again; report this")

    def replay(self, events: "Sequence[Any]") -> None:
        """Show what was said before this face listened to a conversation, and forget the one before it."""
        self.calls.clear()
        self._offers.clear()
        self.last_answer = ""
        for event in events:
            self.hear(event)
        for block in self.calls.values():
            block.sign = CANCELLED
            self.app.transcript.changed(block)
        self.calls.clear()
        self.app.state.calls.clear()
        self.app.state.turn = 0
        self.app.draw()

    def _opened(self, event: "said.Opened") -> None:
        app, state = self.app, self.app.state
        was_open, model = state.is_open and state.conversation == event.conversation, state.model
        state.conversation, state.model, state.provider = event.conversation, event.model, event.provider
        state.cwd, state.title = event.cwd, event.title
        state.tools, state.plugins, state.is_open, state.fault = event.tools, event.plugins, True, ""
        if not was_open:
            app.welcome(resumed=event.resumed)
        elif model != event.model:
            app.note_line(f"model: {state.model_name}")
        app.refresh_plugins()
        app.draw()

    def _user(self, event: "said.UserMessage") -> None:
        self.app.forget_welcome()
        self._settle_notes()
        self.app.transcript.add(UserBlock(event.text, event.plugin))
        self.app.transcript.follow()

    def _queued(self, event: "said.Queued") -> None:
        self.app.state.queued = event.texts
        self.app.draw()

    def _turn_started(self, event: "said.TurnStarted") -> None:
        self.app.state.turn = event.turn or 1
        self.app.draw()

    def _text(self, event: "said.TextDelta") -> None:
        self.app.transcript.stream(event.text)

    def _held(self, event: "said.TextHeld") -> None:
        by = f" by {one_line(event.by, 40)}" if event.by else ""
        self.app.state.held = f"held for review{by}, {count(event.characters, 'character')}"
        self.app.draw()

    def _assistant(self, event: "said.AssistantMessage") -> None:
        app = self.app
        app.state.held = ""
        if event.withheld:
            app.transcript.finish("", (LineBlock(f"withheld: {event.withheld}", sign="✗", token="risk", gap=True),))
        elif event.changed_by:
            line = LineBlock(f"changed by {one_line(event.changed_by, 40)}", sign="▲", token="warn")
            app.transcript.finish(event.text, (line,))
        else:
            app.transcript.finish(event.text)
        if event.text and not event.withheld:
            self.last_answer = event.text
        app.draw()

    def _tool_started(self, event: "said.ToolStarted") -> None:
        block = CallBlock(event.tool, event.plugin, event.arguments)
        self.calls[event.call] = block
        self.app.state.calls[event.call] = Running(event.tool, time.monotonic())
        self.app.transcript.flush()
        self.app.transcript.add(block)
        self.app.draw()

    def _tool_progress(self, event: "said.ToolProgress") -> None:
        share = f"{event.progress:g}" + (f" of {event.total:g}" if event.total else "")
        text = f"{share}: {event.message}" if event.message else share
        if (block := self.calls.get(event.call)) is not None:
            block.progress = text
            self.app.transcript.changed(block)
        if (running := self.app.state.calls.get(event.call)) is not None:
            self.app.state.calls[event.call] = running._replace(progress=text)
        self.app.draw()

    def _tool_ended(self, event: "said.ToolEnded") -> None:
        block = self.calls.pop(event.call, None)
        self.app.state.calls.pop(event.call, None)
        if block is not None:
            block.end(event.result, event.verdict, event.record, event.waited_ms)
            if event.offered:
                self._offer(block, event.offered)
            self.app.transcript.changed(block)
        self.app.draw()

    def _offer(self, block: CallBlock, text: str) -> None:
        """Show at a card that a key sends its text to the model; the key is the latest card's."""
        if self._offers:
            self._show_offer(self._offers[-1], "")
        block.offered, block.offer = text, OFFER
        self._offers.append(block)

    def take_offer(self) -> CallBlock | None:
        """Return the card whose text the person sends to the model; it is offered no more."""
        shown = self.app.transcript.blocks
        self._offers = [block for block in self._offers if block in shown]  # others were cleared away
        if not self._offers:
            return None
        block = self._offers.pop()
        self._show_offer(block, OFFER_SENT)
        if self._offers:
            self._show_offer(self._offers[-1], OFFER)
        return block

    def _show_offer(self, block: CallBlock, said: str) -> None:
        block.offer = said
        if block in self.app.transcript.blocks:
            self.app.transcript.changed(block)

    def _asked(self, event: "said.Asked") -> None:
        state = self.app.state
        if all(question.id != event.question.id for question in state.questions):
            state.questions.append(event.question)
            self.app.bell()
        self._mark(event.question.tool, event.question.arguments, WAITING)
        self.app.draw()

    def _answered(self, event: "said.Answered") -> None:
        state = self.app.state
        found = next((question for question in state.questions if question.id == event.question), None)
        if found is None:
            return
        state.questions.remove(found)
        self._mark(found.tool, found.arguments, RUNNING)
        if event.by != "chat" and event.answer != "withdrawn":
            where = PLACES.get(event.by, one_line(event.by, 40))
            self.app.say(f"{ANSWERS.get(event.answer, event.answer)} in {where}: {one_line(found.tool, 60)}")
        self.app.draw()

    def _mark(self, tool: str, arguments: dict[str, Any], sign: Sign) -> None:
        """Show at a call's card that it waits, or goes on."""
        for block in self.calls.values():
            if block.tool == tool and block.arguments == arguments:
                block.wait(sign)
                self.app.transcript.changed(block)
                return

    def _note(self, event: "said.Noted") -> None:
        notes = self.app.state.notes
        notes.append(event.note)
        if len(notes) > MOST_NOTES:
            self._keep(notes.pop(0))
        self.app.draw()

    def _notes_removed(self, event: "said.NotesRemoved") -> None:
        notes = self.app.state.notes
        notes[:] = [note for note in notes if note.plugin != event.plugin]
        self.app.draw()

    def _settle_notes(self) -> None:
        """Move the notes into the transcript: something new begins."""
        for note in self.app.state.notes:
            self._keep(note)
        self.app.state.notes.clear()

    def _keep(self, note: Any) -> None:
        level = note.level if note.level in NOTE_TOKENS else "info"
        text = f"[{one_line(note.plugin, 40)}] {note.message}"
        self.app.transcript.add(LineBlock(text, sign=NOTE_SIGNS[level], token=NOTE_TOKENS[level]))

    def _panel(self, event: "said.PanelDrawn") -> None:
        self._draw_panel(event.panel)

    def _draw_panel(self, panel: "Panel") -> None:
        panels = self.app.state.panels
        known = [number for number, other in enumerate(panels) if (other.owner, other.id) == (panel.owner, panel.id)]
        if not panel.is_open:
            for number in reversed(known):
                del panels[number]
        elif known:
            panels[known[0]] = panel
        else:
            panels.append(panel)
        self.app.show_panel()

    def _command(self, event: "said.CommandEnded") -> None:
        outcome = event.outcome
        for note in outcome.notes:
            if note not in self.app.state.notes:
                self.app.state.notes.append(note)
        if outcome.error is not None:
            self.app.fault_line(outcome.error.message, outcome.error.hint)
        elif outcome.display:
            name = f"/{outcome.command.removeprefix('/')}"
            source = f"{name} of {outcome.plugin}" if outcome.plugin else name
            self.app.transcript.add(QuoteBlock(source, outcome.display))
        if outcome.panel is not None and outcome.panel.is_open:
            self._draw_panel(outcome.panel)
        if outcome.insert:
            self.app.composer.insert(outcome.insert)
        self.app.draw()

    def _status(self, event: "said.Status") -> None:
        sign, token = LEVELS[event.level]
        self.app.transcript.flush()  # what the model had said before comes first
        self.app.transcript.add(LineBlock(event.text, sign=sign, token=token, hint=event.hint))

    def _usage(self, event: "said.Usage") -> None:
        self.app.state.usage = event
        self.app.draw()

    def _compacted(self, event: "said.Compacted") -> None:
        text = f"{count(event.messages, 'older message')} summarised, because the conversation had become too long"
        self.app.transcript.add(LineBlock(text, sign="·", hint=event.summary))

    def _tools_changed(self, event: "said.ToolsChanged") -> None:
        self.app.state.tools, self.app.state.plugins = event.tools, event.plugins
        self.app.refresh_plugins()
        self.app.draw()

    def _plugin_found(self, event: "said.PluginFound") -> None:
        may = ", ".join(one_line(permission, 60) for permission in event.permissions) or "nothing"
        self.app.transcript.add(
            LineBlock(
                f"new plugin: {one_line(event.plugin, 60)}, from {one_line(event.path)}. It asks for: {may}",
                sign="?",
                token="ask",
                hint=f"nothing of it runs until you approve it: `/approve {one_line(event.plugin, 60)}`",
                gap=True,
            )
        )
        self.app.refresh_plugins()

    def _turn_ended(self, event: "said.TurnEnded") -> None:
        app, state = self.app, self.app.state
        state.turn, state.held = 0, ""
        app.transcript.finish()
        for call, block in list(self.calls.items()):
            block.sign = CANCELLED if event.stop == "cancelled" else block.sign
            app.transcript.changed(block)
            state.calls.pop(call, None)
        self.calls.clear()
        if event.stop == "cancelled":
            app.transcript.add(LineBlock("cancelled", sign="–", gap=True))
        app.draw()
