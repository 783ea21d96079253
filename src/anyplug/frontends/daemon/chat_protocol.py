"""The protocol between a client of kind "chat" and the daemon: one JSON object per line, both ways.

The daemon's first lines after the greeting are the events of what is shown so far, then {"ready": true}; from then on
each event is a line with its `type`. A client's line names what to `do`; those with an `id` are answered by {"id",
"result"}. The conversation lasts as long as its client.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from anyplug.agent.conversation import Choice
from anyplug.agent.conversation_events import ConversationEvent
from anyplug.call.consent import Answer
from anyplug.frontends.daemon.protocol import BadFrame


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """One line of a client."""


class Send(_Line, frozen=True, kw_only=True, tag="send"):
    """Send a message, or run a command."""

    text: str


class Cancel(_Line, frozen=True, kw_only=True, tag="cancel"):
    """Cancel the turn; answered when it has ended."""

    id: int


class TakeBack(_Line, frozen=True, kw_only=True, tag="take_back"):
    """Remove the last queued message."""

    id: int


class GiveAnswer(_Line, frozen=True, kw_only=True, tag="answer"):
    """Answer a question."""

    question: str
    word: Answer


class ListCommands(_Line, frozen=True, kw_only=True, tag="commands"):
    """List the slash commands."""

    id: int


class UseModel(_Line, frozen=True, kw_only=True, tag="model"):
    """Go on with another model."""

    model: str


class Press(_Line, frozen=True, kw_only=True, tag="press"):
    """Send a key to a panel."""

    panel: str
    owner: str
    key: str
    text: str = ""


class Paste(_Line, frozen=True, kw_only=True, tag="paste"):
    """Send pasted text to a panel."""

    panel: str
    owner: str
    text: str


class ClosePanel(_Line, frozen=True, kw_only=True, tag="close_panel"):
    """Close a panel."""

    panel: str
    owner: str


class Settled(_Line, frozen=True, kw_only=True, tag="settled"):
    """Answered when nothing runs and nothing is queued."""

    id: int


ClientLine = Send | Cancel | TakeBack | GiveAnswer | ListCommands | UseModel | Press | Paste | ClosePanel | Settled
_LINE = msgspec.json.Decoder(ClientLine)
_EVENT = msgspec.json.Decoder(ConversationEvent)
_CHOICES = msgspec.json.Decoder(tuple[Choice, ...])


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the daemon that is no event."""

    id: int | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    ready: bool = False
    error: dict[str, str] | None = None


_SAID = msgspec.json.Decoder(Said)


def read_line(line: bytes) -> ClientLine:
    """Read a client's line; raises BadFrame."""
    try:
        read: ClientLine = _LINE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "the chat and the daemon have different versions; run `anyplug stop`, then try again"
        raise BadFrame(f"the daemon does not understand the chat: {error}", hint) from error
    return read


def read_said(line: bytes) -> ConversationEvent | Said:
    """Read a line of the daemon. Raises msgspec.DecodeError."""
    if line.startswith(b'{"type"'):
        event: ConversationEvent = _EVENT.decode(line)
        return event
    said: Said = _SAID.decode(line)
    return said


def choices(raw: bytes) -> Sequence[Choice]:
    """Read a list of commands."""
    read: Sequence[Choice] = _CHOICES.decode(raw)
    return read


def encoded(value: Any) -> bytes:
    """Return a line."""
    return msgspec.json.encode(value) + b"\n"
