"""The chat's application: its keys, the one conversation that it shows, and what the person answers.

`chat_layout` draws. `conversation_life` loads everything that the first frame does not need, and opens conversations;
`typed_messages` handles what the person types.
"""

import asyncio
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from anyplug.frontends.chat.chat_layout import ChatLayout
from anyplug.frontends.chat.chat_state import ChatState
from anyplug.frontends.chat.composer import Composer
from anyplug.frontends.chat.shown_text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from textual.worker import Worker

    from anyplug.agent.conversation import Choice, Conversation
    from anyplug.frontends.chat.panel_view import PanelView
    from anyplug.frontends.chat.question_card import QuestionCard
    from anyplug.frontends.chat.workspace import Workspace

PAINT_S = 0.03  # for the terminal to have the first frame, before imports keep the interpreter busy
FLUSH_S = 0.05  # how often the streaming answer is drawn at most
TICK_S = 1.0  # how often the times in the side column are drawn
CANCELLING = "cancelling…"
AGAIN_S = 2.0  # within which a second Ctrl+C quits
ENDING = (signal.SIGTERM, signal.SIGHUP)
CLOSE_S = 8.0  # how long plugins may take to end


class ChatApp(ChatLayout, inherit_bindings=False):
    """The chat."""

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
        super().__init__(ChatState(cwd=workspace.cwd, model=model), theme)
        self.workspace = workspace
        self._resume = resume
        self._is_model_chosen = bool(model)
        self._asked_to_quit = 0.0
        self._living: Worker[None] | None = None  # opens conversations, and what they run in

    @property
    def conversation(self) -> "Conversation | None":
        """The conversation that is open."""
        return self.life.conversation

    # From the first frame to the open conversation.

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
        from anyplug.frontends.chat.conversation_life import ConversationLife  # imported after the first frame
        from anyplug.frontends.chat.typed_messages import TypedMessages

        self.typed = TypedMessages(self)
        self.life = ConversationLife(self, self.state.model, self._resume)
        await self.add_the_rest()
        self.composer.is_served.set()
        self.typed.suggest()
        self._begin_living()
        self.set_interval(FLUSH_S, self.draw_answer)
        self.set_interval(TICK_S, self.tick)

    def aside(self, work: "Callable[[], Awaitable[None]]") -> None:
        """Do something beside the keys; what goes wrong in it must not end the chat."""
        self.run_worker(work, exit_on_error=False)

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

    # The first lines.

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
        if self.is_complete:
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
        self.leave_card()

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
        return self.is_complete

    def action_tab(self) -> None:
        """Accept a suggestion, else go to the question."""
        if self.completions.is_open:
            self.typed.accept()
        else:
            self.action_answer()

    async def action_leave(self) -> None:
        """Close what is open; else cancel the turn; else clear the notes."""
        if self.completions.display:
            self.completions.hide()
        elif self.searching.display:
            self.close_search()
        elif not self.composer.has_focus:
            self.composer.focus()
        elif self.state.turn and self.conversation is not None:
            self.say(CANCELLING)
            await self.conversation.cancel()
            self.unsay(CANCELLING)
        elif self.state.notes:
            self.state.notes.clear()
            self.draw()

    def action_take_back(self) -> None:
        """Take back the message that was queued last."""
        if self.conversation is not None and (text := self.conversation.take_back()):
            typed = self.composer.text
            self.composer.put(f"{text}\n{typed}" if typed.strip() else text)

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
