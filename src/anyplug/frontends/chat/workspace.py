"""What the chat needs besides one conversation: opening others, and lists of plugins, conversations and records.

The chat knows only this protocol; `host_workspace` has it for a host in this process.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyplug.agent.conversation import Choice, Conversation
    from anyplug.frontends.chat.chat_state import PluginRow


class Workspace(Protocol):
    """The host as the chat sees it. Its methods may raise AnyplugError, which the chat shows with its hint."""

    cwd: str
    history: str  # the file of typed messages; empty: none

    tell: Callable[[str], None]  # is told of long work

    def want(self, model: str, resume: str) -> None:
        """Name what the first conversation will be, before `running`."""
        ...

    def load(self) -> None:
        """Import what takes long; called in a thread after the first frame."""
        ...

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Start the host; everything else is called inside."""
        ...

    def approval(self, plugin: str) -> "Sequence[str]":
        """Return the command by which the person reviews and approves a plugin."""
        ...

    def open(self, *, model: str = "", resume: str = "") -> "AbstractAsyncContextManager[Conversation]":
        """Open a conversation."""
        ...

    async def tools(self) -> "Sequence[Choice]":
        """List what the model can call."""
        ...

    async def plugins(self) -> "Sequence[PluginRow]":
        """List the plugins and their states."""
        ...

    async def models(self) -> "Sequence[Choice]":
        """List models that can be used."""
        ...

    async def conversations(self) -> "Sequence[Choice]":
        """List stored conversations, the latest first; the name is the id."""
        ...

    async def export(self, conversation: str, path: str) -> str:
        """Write a conversation as Markdown; return where it is."""
        ...

    async def reload(self) -> str:
        """Restart the plugins; return what that came to."""
        ...

    async def records(self) -> "Sequence[tuple[str, str, str]]":
        """List the latest calls: number and time, tool, outcome."""
        ...

    async def policies(self) -> "Sequence[tuple[str, str]]":
        """List the policies that apply here: id, what it does."""
        ...
