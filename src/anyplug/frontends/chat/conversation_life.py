"""Load heavy modules after the first frame, and open one conversation after another until the person leaves.

A conversation lives in one task of the application's loop, so that it is opened and closed where it began.
"""

import asyncio
from typing import TYPE_CHECKING, Protocol

from anyplug.frontends.chat import markdown_rows
from anyplug.frontends.chat.chat_face import Face
from anyplug.frontends.chat.transcript_blocks import UserBlock

if TYPE_CHECKING:
    from anyplug.agent.conversation import Conversation
    from anyplug.frontends.chat.chat_events import Receiver


class Living(Face, Protocol):
    """What it uses of the screen."""

    def say_loading(self, what: str) -> None:
        """Show what is being done before the conversation is open."""
        ...

    def load(self) -> None:
        """Load what the screen itself needs; called in a thread."""
        ...

    async def learn_commands(self) -> None:
        """Learn the extensions' slash commands."""
        ...


class ConversationLife:
    """The conversation that is open, and the next one."""

    def __init__(self, app: Living, model: str, resume: str) -> None:
        self.conversation: Conversation | None = None
        self.receiver: Receiver | None = None
        self.is_leaving = False
        self._app = app
        self._wanted = (model, resume)
        self._ends = asyncio.Event()  # this conversation
        self._opening = ""  # what is said when the next one is open

    async def live(self) -> None:
        """Load, then hold one conversation after the other; what goes wrong is shown."""
        app = self._app
        app.say_loading("loading model…")
        try:
            await asyncio.to_thread(self._load)
            from anyplug.frontends.chat.chat_events import Receiver  # imported in the thread

            self.receiver = Receiver(app)
            app.say_loading("starting plugins…")
            while not self.is_leaving:
                await self._hold(self.receiver)
        except Exception as error:  # noqa: BLE001 - whatever a host, plugin or provider does, the screen says it
            self._report(error)
        finally:
            self.conversation = None

    async def _hold(self, receiver: "Receiver") -> None:
        """Hold one conversation after the other, until the person leaves or the daemon ends."""
        app = self._app
        app.workspace.want(*self._wanted)
        async with app.workspace.running():
            while not self.is_leaving:
                model, resume = self._wanted
                self._ends.clear()
                async with app.workspace.open(model=model, resume=resume) as conversation:
                    is_lost = await self._show(receiver, conversation)
                if is_lost:
                    self._go_on_without_daemon(conversation.id)
                    return

    def _go_on_without_daemon(self, conversation: str) -> None:
        """Open the conversation again as it was stored, which it is as soon as something was said."""
        app = self._app
        resume = conversation if any(isinstance(block, UserBlock) for block in app.transcript.blocks) else ""
        for text in reversed(app.state.queued):
            app.composer.give_back(text)
        self.open_other(resume)
        app.say_loading("the daemon ended; starting plugins…")
        self._opening = "the daemon ended, and what ran in it was cancelled"

    def _load(self) -> None:
        markdown_rows.warm_up()
        self._app.workspace.load()
        self._app.load()

    async def _show(self, receiver: "Receiver", conversation: "Conversation") -> bool:
        """Show a conversation until it ends; return whether the daemon has ended."""
        self.conversation = conversation
        receiver.replay(conversation.so_far())
        if self._opening:
            self._app.fault_line(self._opening, "the conversation continues without it")
            self._opening = ""
        stop = conversation.listen(receiver.hear)
        ends, lost = (asyncio.ensure_future(waiting) for waiting in (self._ends.wait(), conversation.lost()))
        try:
            await self._app.learn_commands()
            await asyncio.wait({ends, lost}, return_when=asyncio.FIRST_COMPLETED)
            return not ends.done()
        finally:
            ends.cancel()
            lost.cancel()
            stop()
            self.conversation = None

    def _report(self, error: Exception) -> None:
        app = self._app
        message = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
        app.state.fault = "no conversation"
        app.state.loading = ""
        app.fault_line(message, getattr(error, "hint", "") or "`anyplug doctor` tests this machine")
        app.draw()

    def open_other(self, resume: str) -> None:
        """Leave this conversation for a new one or a stored one."""
        app = self._app
        self._wanted = (app.state.model, resume)
        app.transcript.clear()
        app.state.forget_conversation()
        self._ends.set()
        app.draw()

    def end(self) -> None:
        """Close the conversation."""
        self._ends.set()
