"""The chat's application: its layout, its keys, and the one conversation that it shows.

The first frame needs only Textual and the widgets. `conversation_life` loads everything else after it, and
`typed_messages` has the way of what the person types.
"""

import asyncio
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.geometry import Size
from textual.widgets import Static

from anyplug.frontends.chat import chat_themes
from anyplug.frontends.chat.chat_bars import Bar, Header, Notes, Queue, StatusLine
from anyplug.frontends.chat.chat_driver import hardened
from anyplug.frontends.chat.chat_state import ChatState
from anyplug.frontends.chat.composer import Composer
from anyplug.frontends.chat.one_shot_timers import OneShotTimers
from anyplug.frontends.chat.shown_text import one_line
from anyplug.frontends.chat.side_column import SideColumn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from textual.driver import Driver
    from textual.worker import Worker

    from anyplug.agent.conversation import Choice, Conversation
    from anyplug.frontends.chat.panel_view import PanelView
    from anyplug.frontends.chat.question_card import QuestionCard
    from anyplug.frontends.chat.search_bar import SearchBar
    from anyplug.frontends.chat.workspace import Workspace

PAINT_S = 0.03  # for the terminal to have the first frame, before imports keep the interpreter busy
FLUSH_S = 0.05  # how often the streaming answer is drawn at most
REST = 3  # times as long as that took, nothing more of it is drawn: keys come first, also on a busy machine
LONGEST_REST_S = 0.5
KEY_S = 0.05  # after a key, in which only that is drawn
TICK_S = 1.0  # how often times in the column are drawn
SIDE_FROM = 140  # columns of a terminal from which on there is room for the side column
SAID_S = 5.0  # how long a passing message stays in the status line
CANCELLING = "cancelling…"
AGAIN_S = 2.0  # within which a second Ctrl+C quits
ENDING = (signal.SIGTERM, signal.SIGHUP)
CLOSE_S = 8.0  # how long plugins may take to end


class ChatApp(OneShotTimers, App[int], inherit_bindings=False):
    """The chat."""

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
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", show=False),
        Binding("f2", "answer", show=False, priority=True),
        Binding("ctrl+c", "copy_or_clear", show=False),
        Binding("ctrl+d", "quit_if_empty", show=False),
        Binding("ctrl+f", "search", show=False),
        Binding("ctrl+o", "unfold", show=False),
        Binding("ctrl+y", "copy_answer", show=False),
        Binding("ctrl+g", "edit", show=False),
        Binding("ctrl+s", "send_offer", show=False),
        Binding("ctrl+t", "change_theme", show=False),
        Binding("escape", "leave", show=False),
        Binding("ctrl+r", "try_again", show=False),
        Binding("tab", "compose", show=False),
        Binding("shift+tab", "browse", show=False),
        Binding("pageup", "scroll_transcript(-1)", show=False),
        Binding("pagedown", "scroll_transcript(1)", show=False),
        Binding("ctrl+end", "follow", show=False),
        Binding("ctrl+home", "scroll_top", show=False),
    ]

    def __init__(self, workspace: "Workspace", *, model: str = "", resume: str = "", theme: str = "dark") -> None:
        """Show a conversation of a workspace, the stored one `resume` if it is given."""
        super().__init__()
        for known in chat_themes.textual_themes():
            self.register_theme(known)
        self.palette = theme
        if theme == "dark":  # as Textual's own: assigning it would parse the style sheets a second time
            self.set_reactive(App.theme, chat_themes.PREFIX + theme)
            self.stylesheet.set_variables(self.get_css_variables())
        else:
            self.theme = chat_themes.PREFIX + theme
        self.workspace = workspace
        self.state = ChatState(cwd=workspace.cwd, model=model)
        self._resume = resume
        self._is_model_chosen = bool(model)
        self._asked_to_quit = 0.0
        self._rests_until = 0.0  # before the next part of the streaming answer is drawn
        self._living: Worker[None] | None = None  # opens conversations, and what they run in

    @property
    def conversation(self) -> "Conversation | None":
        """The conversation that is open."""
        return self.life.conversation

    def get_driver_class(self) -> "type[Driver]":
        """Return the driver: one that outlives its terminal."""
        return hardened(super().get_driver_class())

    # The frame.

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

    async def _complete(self) -> None:
        """Add what the first frame does not show, because nothing has happened yet."""
        from anyplug.frontends.chat.completion_list import CompletionList  # all of them are imported after the frame
        from anyplug.frontends.chat.conversation_life import ConversationLife
        from anyplug.frontends.chat.panel_view import PanelView
        from anyplug.frontends.chat.question_card import QuestionCard
        from anyplug.frontends.chat.search_bar import SearchBar
        from anyplug.frontends.chat.transcript_blocks import Painter
        from anyplug.frontends.chat.transcript_view import Transcript
        from anyplug.frontends.chat.typed_messages import TypedMessages

        self.typed = TypedMessages(self)
        self.life = ConversationLife(self, self.state.model, self._resume)
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
        self.composer.is_served.set()
        self.typed.suggest()

    @property
    def bars(self) -> list[Bar]:
        """The rows that are drawn from the state."""
        return [self.header, self.notes, self.queue, self.status]

    def on_mount(self) -> None:
        """Show the frame, and load after it."""
        self.composer.focus()
        self.workspace.tell = self._say_from_host
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, lambda: self.aside(self.action_leave_chat))
        self.call_after_refresh(self.set_timer, PAINT_S, self._load)

    def on_unmount(self) -> None:
        """Leave signals to others again."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.remove_signal_handler(number)

    def _say_from_host(self, text: str) -> None:
        """Show what the host says about long work, from whichever thread."""
        if self._thread_id == threading.get_ident():
            self.say(one_line(text))
        else:
            self.call_from_thread(self.say, one_line(text))

    async def _load(self) -> None:
        await self._complete()
        self._begin_living()
        self.set_interval(FLUSH_S, self._draw_answer)
        self.set_interval(TICK_S, self._tick)

    def aside(self, work: "Callable[[], Awaitable[None]]") -> None:
        """Do something beside the keys; what goes wrong in it must not end the chat."""
        self.run_worker(work, exit_on_error=False)

    def _draw_answer(self) -> None:
        """Draw what has come of the answer, unless a key waits to be drawn."""
        now = time.monotonic()
        if self.transcript.has_news and now > max(self._rests_until, self.composer.keyed_at + KEY_S):
            self.transcript.flush()
            self.call_after_refresh(self._rest_after, now)

    def _rest_after(self, begun: float) -> None:
        """Leave time for keys, now that what was flushed is drawn."""
        now = time.monotonic()
        self._rests_until = now + min(REST * (now - begun), LONGEST_REST_S)

    def _begin_living(self) -> None:
        self._living = self.run_worker(self._live, exit_on_error=False)

    async def _live(self) -> None:
        try:
            await self.life.live()
        finally:
            if self.life.is_leaving:
                self.exit(0)

    def load(self) -> None:
        """Load what the screen itself needs; called in a thread."""
        self.typed.history.load(self.workspace.history)

    def action_try_again(self) -> None:
        """Open the conversation again after it could not be opened."""
        if self.state.fault:
            self.state.fault = ""
            self._begin_living()

    def say_loading(self, what: str) -> None:
        """Show what is being done before the conversation is open."""
        self.state.loading = what
        self.draw()

    # Drawing.

    def draw(self) -> None:
        """Draw everything that comes from the state."""
        for bar in self.bars:
            bar.draw()
        self.side.draw()
        was_at_card = self.card.has_focus
        self.card.show(self.state.questions)
        if was_at_card and not self.state.questions:
            self._leave_card()
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

    def _tick(self) -> None:
        if self.state.calls:
            self.side.draw()

    def say(self, what: str) -> None:
        """Show a passing message in the status line."""
        self.status.said = what
        self.status.draw()
        self.set_timer(SAID_S, lambda: self._unsay(what))

    def _unsay(self, what: str) -> None:
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
        if self.composer.is_served.is_set():
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

    # The empty state.

    def welcome(self, *, resumed: int) -> None:
        """Show the first lines of a conversation."""
        if resumed:
            return
        self.aside(self._welcome_with_examples)

    async def _welcome_with_examples(self) -> None:
        from anyplug.agent.example_requests import example_requests  # none is needed for the first frame
        from anyplug.frontends.chat.welcome_lines import welcome
        from anyplug.model.tool_names import OURS

        self.typed.examples = example_requests({tool.name for tool in await self.workspace.tools()})
        has_plugins = any(plugin.name not in OURS for plugin in await self.workspace.plugins())
        if not self.transcript.blocks:
            lines = welcome(
                self.state.model, self.typed.examples, has_plugins=has_plugins, is_chosen=self._is_model_chosen
            )
            self.transcript.add(lines)

    def forget_welcome(self) -> None:
        """Take the requests away that a number stands for."""
        self.typed.examples = []

    # What the person sends.

    def on_composer_sent(self, event: Composer.Sent) -> None:
        """Complete, run or send what was typed."""
        self.typed.take(event.text)

    def on_text_area_changed(self) -> None:
        """Show what fits what is typed."""
        if self.composer.is_served.is_set():
            self.typed.suggest()

    def on_completion_list_picked(self) -> None:
        """Take the suggestion that was clicked."""
        self.typed.accept()

    def on_composer_browsed(self, event: Composer.Browsed) -> None:
        """Move in the list, else in the history."""
        self.typed.browse(event.by)

    def open_other(self, resume: str) -> None:
        """Leave this conversation for a new one or a stored one."""
        self.life.open_other(resume)

    async def learn_commands(self) -> None:
        """Learn the extensions' slash commands."""
        await self.typed.learn_commands()

    async def extension_commands(self) -> "Sequence[Choice]":
        """List the extensions' slash commands."""
        return await self.conversation.commands() if self.conversation is not None else ()

    def refresh_plugins(self) -> None:
        """Learn what is installed now."""
        self.aside(self.learn_plugins)

    async def learn_plugins(self) -> None:
        """Learn what is installed now."""
        self.state.rows = list(await self.workspace.plugins())
        await self.learn_commands()
        self.side.draw()

    # Questions and panels.

    def on_question_card_answered(self, event: "QuestionCard.Answered") -> None:
        """Pass the person's answer on."""
        if self.conversation is not None:
            self.conversation.answer(event.question, event.word)

    def on_question_card_left(self) -> None:
        """Go back from the card."""
        self._leave_card()

    def _leave_card(self) -> None:
        (self.panel if self.state.panels else self.composer).focus()

    def on_panel_view_pressed(self, event: "PanelView.Pressed") -> None:
        """Send a key to the panel's extension."""
        if self.conversation is not None and (panel := self.panel.panel) is not None:
            self.conversation.press(panel.id, panel.owner, event.key, event.text)

    def on_panel_view_pasted(self, event: "PanelView.Pasted") -> None:
        """Send pasted text to the panel's extension."""
        if self.conversation is not None and (panel := self.panel.panel) is not None:
            self.conversation.paste(panel.id, panel.owner, event.text)

    def on_panel_view_closed(self) -> None:
        """Close the panel, and tell its extension."""
        panel = self.panel.panel
        if panel is None:
            return
        if self.conversation is not None:
            self.conversation.close_panel(panel.id, panel.owner)
        others = self.state.panels
        others[:] = [other for other in others if (other.owner, other.id) != (panel.owner, panel.id)]
        self.show_panel()

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Return whether a key may do this now: all act on what comes after the first frame."""
        return self.composer.is_served.is_set()

    def action_tab(self) -> None:
        """Accept a suggestion, else go to the question."""
        if self.completions.is_open:
            self.typed.accept()
        else:
            self.action_answer()

    def action_answer(self) -> None:
        """Go to the question that waits."""
        if self.state.questions:
            self.card.focus()

    def action_compose(self) -> None:
        """Go back to the composer."""
        self.composer.focus()

    def action_browse(self) -> None:
        """Go to the transcript."""
        self.transcript.focus()

    async def action_leave(self) -> None:
        """Close what is open; else cancel the turn; else clear the notes."""
        if self.completions.display:
            self.completions.hide()
        elif self.searching.display:
            self._close_search()
        elif not self.composer.has_focus:
            self.composer.focus()
        elif self.state.turn and self.conversation is not None:
            self.say(CANCELLING)
            await self.conversation.cancel()
            self._unsay(CANCELLING)
        elif self.state.notes:
            self.state.notes.clear()
            self.draw()

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

    def action_take_back(self) -> None:
        """Take back the message that was queued last."""
        if self.conversation is not None and (text := self.conversation.take_back()):
            typed = self.composer.text
            self.composer.put(f"{text}\n{typed}" if typed.strip() else text)

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

    def _close_search(self) -> None:
        self.searching.close()
        self.transcript.search("")
        self.composer.focus()

    def action_unfold(self) -> None:
        """Unfold or fold all tool calls."""
        self.transcript.toggle_all()

    def action_help(self) -> None:
        """Show keys and commands."""
        self.aside(partial(self.typed.run_command, "/help"))

    def action_send_offer(self) -> None:
        """Send the model the text that the latest card offers, with its source."""
        if self.conversation is None or self.life.receiver is None:
            return
        if (card := self.life.receiver.take_offer()) is not None:
            source = (
                f"{one_line(card.tool, 60)} of {one_line(card.plugin, 60)}" if card.plugin else one_line(card.tool, 60)
            )
            self.aside(partial(self.typed.send, f"From {source}:\n\n{card.offered}"))

    def action_copy_answer(self) -> None:
        """Copy the last answer."""
        text = self.life.receiver.last_answer if self.life.receiver is not None else ""
        if text:
            self.copy_to_clipboard(text)
            self.say("copied the last answer")

    async def action_copy_or_clear(self) -> None:
        """Copy the selection; else clear the input; twice, quit."""
        if selected := self.composer.selected_text or self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            self.say("copied")
        elif self.composer.text:
            self.typed.history.add(self.composer.text)
            self.composer.put("")
            self.say("cleared; Up brings it back")
        elif time.monotonic() - self._asked_to_quit < AGAIN_S:
            await self.action_leave_chat()
        else:
            self._asked_to_quit = time.monotonic()
            self.say("Ctrl+C again quits")

    async def action_quit_if_empty(self) -> None:
        """Quit, if nothing is typed."""
        if not self.composer.text:
            await self.action_leave_chat()
        else:
            self.composer.action_delete_right()

    async def action_leave_chat(self) -> None:
        """Close the conversation, end the plugins, and leave."""
        if self._living is None or self._living.is_finished or self.life.is_leaving:
            self.exit(0)
            return
        self.life.is_leaving = True
        self.state.is_open = False
        self.say_loading("stopping plugins…")
        self.set_timer(CLOSE_S, lambda: self.exit(0))
        if self.conversation is None:  # it is being opened
            self._living.cancel()
            return
        if self.state.turn:
            await self.conversation.cancel()
        self.life.end()

    def action_change_theme(self) -> None:
        """Go on with the next palette."""
        names = list(chat_themes.PALETTES)
        self.use_palette(names[(names.index(self.palette) + 1) % len(names)])
        self.say(f"theme: {self.palette}")

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

    def run_in_terminal(self, command: "Sequence[str]") -> None:
        """Run a command that talks with the person in the terminal."""
        from anyplug.frontends.chat import terminal_command  # only needed here

        with self.suspend():
            terminal_command.run(command)

    def action_edit(self) -> None:
        """Write the message in the person's editor."""
        from anyplug.frontends.chat import external_editor  # only needed here

        try:
            with self.suspend():
                text = external_editor.edited(self.composer.text)
        except (OSError, ValueError) as error:
            self.fault_line(f"{one_line(external_editor.command())} could not be started: {error}", "set EDITOR")
        else:
            self.composer.put(text)
