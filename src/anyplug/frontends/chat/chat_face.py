"""The part of the screen that the chat's commands and events use."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyplug.agent.conversation import Choice, Conversation
    from anyplug.frontends.chat.chat_state import ChatState
    from anyplug.frontends.chat.composer import Composer
    from anyplug.frontends.chat.transcript_view import Transcript
    from anyplug.frontends.chat.workspace import Workspace


class Face(Protocol):
    """The screen of one conversation."""

    state: "ChatState"
    workspace: "Workspace"
    transcript: "Transcript"
    composer: "Composer"

    @property
    def conversation(self) -> "Conversation | None":
        """The conversation that is open."""
        ...

    def draw(self) -> None:
        """Draw everything that comes from the state."""
        ...

    def bell(self) -> None:
        """Ring the terminal's bell."""
        ...

    def say(self, what: str) -> None:
        """Show a passing message in the status line."""
        ...

    def note_line(self, text: str) -> None:
        """Add a line of ours to the transcript."""
        ...

    def fault_line(self, text: str, hint: str = "") -> None:
        """Add a red line to the transcript, with its cure."""
        ...

    def welcome(self, *, resumed: int) -> None:
        """Show the first lines of a conversation."""
        ...

    def forget_welcome(self) -> None:
        """Take the requests away that a number stands for."""
        ...

    def show_panel(self) -> None:
        """Show the panel that was opened last."""
        ...

    def refresh_plugins(self) -> None:
        """Learn what is installed now, beside the keys."""
        ...

    async def learn_plugins(self) -> None:
        """Learn what is installed now."""
        ...

    async def extension_commands(self) -> "Sequence[Choice]":
        """List the extensions' slash commands."""
        ...

    def open_other(self, resume: str) -> None:
        """Leave this conversation for a new one or a stored one."""
        ...

    def run_in_terminal(self, command: "Sequence[str]") -> None:
        """Run a command that talks with the person in the terminal."""
        ...

    async def action_leave_chat(self) -> None:
        """Close the conversation, end the plugins, and leave."""
        ...
