"""What the chat knows about its conversation besides the transcript: for the header, the status line and the column."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anyplug.agent.conversation_events import Usage
    from anyplug.call.consent import Question
    from anyplug.model.types import Note
    from anyplug.peers.panels import Panel


class PluginRow(NamedTuple):
    """A plugin as the column shows it."""

    name: str
    state: str
    health: str = ""
    tools: int = 0
    description: str = ""


class Running(NamedTuple):
    """A call that runs."""

    tool: str
    since: float
    progress: str = ""


@dataclass
class ChatState:
    """The state of one conversation."""

    conversation: str = ""
    model: str = ""
    provider: str = ""
    cwd: str = ""
    title: str = ""
    tools: int = 0
    plugins: int = 0
    is_open: bool = False
    loading: str = "loading…"  # what is being done until it is open
    fault: str = ""  # why it could not be opened
    turn: int = 0  # the running one, or 0
    held: str = ""  # that an answer is under review
    usage: "Usage | None" = None
    queued: tuple[str, ...] = ()
    questions: "list[Question]" = field(default_factory=list)
    notes: "list[Note]" = field(default_factory=list)
    panels: "list[Panel]" = field(default_factory=list)
    calls: dict[str, Running] = field(default_factory=dict)
    rows: list[PluginRow] = field(default_factory=list)

    def forget_conversation(self) -> None:
        """Begin another conversation."""
        self.is_open, self.turn, self.usage, self.queued, self.held = False, 0, None, (), ""
        for kept in (self.notes, self.questions, self.panels, self.calls):
            kept.clear()

    @property
    def folder(self) -> str:
        """The last part of the working folder."""
        return self.cwd.rstrip("/").rpartition("/")[2] or self.cwd

    @property
    def model_name(self) -> str:
        """The model as people read it."""
        return "demo (offline)" if self.model == "demo" else self.model


def count(number: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
