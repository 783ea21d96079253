"""The interface of a conversation, whether it runs in this process or in the daemon."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from anyplug.agent.conversation_events import ConversationEvent
from anyplug.call.consent import Answer

Hear = Callable[[ConversationEvent], object]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to choose from: a slash command, a tool, a file, a stored conversation."""

    name: str
    description: str = ""
    plugin: str = ""  # empty: the host's own


class Conversation(Protocol):
    """One conversation. None of its methods raises for what a model, a provider or a plugin does."""

    id: str

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Register a callback for all events from now on; call the returned function to stop."""
        ...

    def so_far(self) -> Sequence[ConversationEvent]:
        """Return the events of what is shown up to now: `Opened`, the messages and calls, panels, open questions."""
        ...

    async def send(self, text: str) -> None:
        """Send a message; during a turn it is queued. A line that begins with a slash is a command."""
        ...

    async def cancel(self) -> None:
        """Cancel the running turn, its tool calls included."""
        ...

    def take_back(self) -> str:
        """Remove the last queued message, and return it."""
        ...

    def answer(self, question: str, word: Answer) -> None:
        """Answer a question of this conversation."""
        ...

    async def commands(self) -> Sequence[Choice]:
        """List the extensions' slash commands."""
        ...

    async def use_model(self, model: str) -> None:
        """Go on with another model."""
        ...

    def press(self, panel: str, owner: str, key: str, text: str = "") -> None:
        """Send a key to a panel."""
        ...

    def paste(self, panel: str, owner: str, text: str) -> None:
        """Send pasted text to a panel."""
        ...

    def close_panel(self, panel: str, owner: str) -> None:
        """Close a panel."""
        ...

    async def settled(self) -> None:
        """Wait until nothing runs and nothing is queued."""
        ...

    async def lost(self) -> None:
        """Wait until it cannot go on, because the daemon that it runs in has ended."""
        ...
