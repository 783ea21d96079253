"""What a conversation tells the faces that show it: the terminal chat, the page, `ask --json`.

Each event is one JSON object with its `type`. All text in them may be shown: what an extension redacted is not in it.
It knows nothing about models, and imports nothing heavy.
"""

from typing import Any, Literal

import msgspec

from anyplug.call.consent import Answer, Question
from anyplug.call.slash_commands import CommandOutcome
from anyplug.model.types import Failure, Note, Result
from anyplug.peers.panels import Panel

StopReason = Literal["end", "cancelled", "blocked", "error", "limit"]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """One event."""


class Opened(_Event, frozen=True, kw_only=True, tag="opened"):
    """The conversation can be used; sent again when its model changes."""

    conversation: str  # its id
    model: str  # as `--model` takes it, or `demo`
    provider: str
    cwd: str
    title: str = ""
    tools: int = 0
    plugins: int = 0
    resumed: int = 0  # messages it had before


class UserMessage(_Event, frozen=True, kw_only=True, tag="user"):
    """A message to the model."""

    text: str
    plugin: str = ""  # the extension that submitted it, if no person typed it


class Queued(_Event, frozen=True, kw_only=True, tag="queued"):
    """The messages that wait for the end of the turn."""

    texts: tuple[str, ...] = ()


class TurnStarted(_Event, frozen=True, kw_only=True, tag="turn_started"):
    """The model was given something to answer."""

    turn: int


class TextDelta(_Event, frozen=True, kw_only=True, tag="text"):
    """A part of the answer, while nobody reviews it."""

    turn: int
    text: str


class TextHeld(_Event, frozen=True, kw_only=True, tag="held"):
    """The answer is held back until extensions have reviewed it."""

    turn: int
    characters: int
    by: str = ""


class AssistantMessage(_Event, frozen=True, kw_only=True, tag="assistant"):
    """A whole message of the model, as it may be shown: it replaces what was streamed of it."""

    turn: int
    text: str
    changed_by: str = ""  # the extension that rewrote it
    withheld: str = ""  # why it is not shown at all


class ToolStarted(_Event, frozen=True, kw_only=True, tag="tool_started"):
    """The model calls a tool."""

    call: str  # the model's id of the call
    tool: str
    plugin: str
    arguments: dict[str, Any]
    permissions: tuple[str, ...] = ()  # of the plugin
    model_name: str = ""  # what the model calls the tool


class ToolProgress(_Event, frozen=True, kw_only=True, tag="tool_progress"):
    """A tool's report."""

    call: str
    progress: float
    total: float | None = None
    message: str = ""


class ToolEnded(_Event, frozen=True, kw_only=True, tag="tool_ended"):
    """A call ended."""

    call: str
    result: Result
    verdict: str = ""  # who decided about it: `person`, `policy:ID rule`, a guard's name
    record: int = 0  # its number in the audit
    waited_ms: float = 0.0  # how much of its duration it waited for the person's answers
    offered: str = ""  # a text in it that is meant for a model: a face may offer to send it


class Asked(_Event, frozen=True, kw_only=True, tag="asked"):
    """A call waits for the person's answer."""

    question: Question


class Answered(_Event, frozen=True, kw_only=True, tag="answered"):
    """A question was answered or is no longer asked."""

    question: str  # its id
    answer: Answer | Literal["withdrawn"]
    by: str = ""  # where: `chat`, `console`, `terminal`


class Noted(_Event, frozen=True, kw_only=True, tag="note"):
    """An extension's note for the person."""

    note: Note


class NotesRemoved(_Event, frozen=True, kw_only=True, tag="notes_removed"):
    """An extension takes its notes back."""

    plugin: str


class PanelDrawn(_Event, frozen=True, kw_only=True, tag="panel"):
    """A panel was opened, redrawn or closed."""

    panel: Panel


class CommandEnded(_Event, frozen=True, kw_only=True, tag="command"):
    """A slash command of an extension ended; what it wants done with the model is done already."""

    outcome: CommandOutcome


class Status(_Event, frozen=True, kw_only=True, tag="status"):
    """One line for the person: what happened, why, and what to do."""

    level: Literal["info", "warn", "error"]
    text: str
    hint: str = ""


class Usage(_Event, frozen=True, kw_only=True, tag="usage"):
    """What the conversation has used so far; None: the provider does not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    context_used: float | None = None  # share of the model's context, 0 to 1


class Compacted(_Event, frozen=True, kw_only=True, tag="compacted"):
    """Older messages were summarised, because the context became too long."""

    messages: int
    summary: str


class ToolsChanged(_Event, frozen=True, kw_only=True, tag="tools_changed"):
    """What can be called has changed."""

    tools: int
    plugins: int


class PluginFound(_Event, frozen=True, kw_only=True, tag="plugin_found"):
    """A plugin waits for its first approval."""

    plugin: str
    path: str
    permissions: tuple[str, ...] = ()


class TurnEnded(_Event, frozen=True, kw_only=True, tag="turn_ended"):
    """The turn is over. If it ended badly, a `Status` has said so already, with the cure."""

    turn: int
    stop: StopReason
    error: Failure | None = None


ConversationEvent = (
    Opened
    | UserMessage
    | Queued
    | TurnStarted
    | TextDelta
    | TextHeld
    | AssistantMessage
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | Asked
    | Answered
    | Noted
    | NotesRemoved
    | PanelDrawn
    | CommandEnded
    | Status
    | Usage
    | Compacted
    | ToolsChanged
    | PluginFound
    | TurnEnded
)
