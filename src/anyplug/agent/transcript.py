"""The transcript of a conversation: the events that were shown, which are stored and exported.

Text that an extension redacted is not in it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from anyplug.agent import conversation_events as events
from anyplug.agent.conversation_events import ConversationEvent
from anyplug.model.types import Audio, Image, Resource, Result, Text
from anyplug.model.untrusted_text import escaped_json, visible

KEPT = (
    events.UserMessage,
    events.AssistantMessage,
    events.ToolStarted,
    events.ToolEnded,
    events.Compacted,
)
MOST_KEPT = 5_000  # events; older ones are forgotten, as models have long had them summarised
LONGEST_TEXT = 64_000  # characters of a result that are kept; models rarely get more
CUT = "… (cut)"


class Transcript:
    """The kept events of one conversation, in order."""

    def __init__(self, kept: Iterable[ConversationEvent] = ()) -> None:
        self.events: list[ConversationEvent] = list(kept)
        self._saved = len(self.events)
        self._begin = 0  # the number of the first event

    def keep(self, event: ConversationEvent) -> bool:
        """Keep an event if it belongs to the transcript; return whether it does."""
        if not isinstance(event, KEPT):
            return False
        self.events.append(_bounded(event))
        return True

    def unsaved(self) -> list[ConversationEvent]:
        """Return the events that were not returned before."""
        news = self.events[self._saved :]
        self._saved = len(self.events)
        return news

    @property
    def messages(self) -> int:
        """The number of messages of the person and the model."""
        return sum(isinstance(event, events.UserMessage | events.AssistantMessage) for event in self.events)

    @property
    def turns(self) -> int:
        """The number of turns so far."""
        return sum(isinstance(event, events.UserMessage) for event in self.events)


def _bounded(event: ConversationEvent) -> ConversationEvent:
    if not isinstance(event, events.ToolEnded):
        return event
    return msgspec.structs.replace(event, result=_bounded_result(event.result))


def _bounded_result(result: Result) -> Result:
    """Leave out pictures and sound, and what is too long; the structured form, too, if it is large."""
    blocks: list[Any] = []
    for block in result.content:
        match block:
            case Text() if len(block.text) > LONGEST_TEXT:
                blocks.append(Text(block.text[:LONGEST_TEXT] + CUT))
            case Image() | Audio():
                blocks.append(Text(f"({block.mime_type})"))
            case Resource() if len(block.text) + len(block.data) > LONGEST_TEXT:
                blocks.append(msgspec.structs.replace(block, text=block.text[:LONGEST_TEXT], data=""))
            case _:
                blocks.append(block)
    structured = result.structured
    try:
        if len(msgspec.json.encode(structured)) > LONGEST_TEXT:
            structured = None
    except (TypeError, ValueError):
        structured = None
    return msgspec.structs.replace(result, content=tuple(blocks), structured=structured)


def markdown(kept: Sequence[ConversationEvent], title: str) -> str:
    """Return a conversation as Markdown, with hidden characters as escapes: people open it in editors and terminals."""
    parts = [f"# {title or 'Conversation'}"]
    for event in kept:
        match event:
            case events.UserMessage():
                who = f"{event.plugin} (extension)" if event.plugin else "You"
                parts.append(f"## {who}\n\n{event.text}")
            case events.AssistantMessage():
                parts.append(f"## Model\n\n{event.text or f'*withheld: {event.withheld}*'}")
            case events.ToolStarted():
                given = escaped_json(msgspec.json.format(msgspec.json.encode(event.arguments)).decode())
                parts.append(f"### {event.tool} ({event.plugin})\n\n{_fenced(given, 'json')}")
            case events.ToolEnded():
                word = "failed" if event.result.is_error else "done"
                parts.append(f"*{word}, {event.result.duration_ms:.0f} ms*\n\n{_fenced(event.result.text)}")
            case events.Compacted():
                parts.append(f"*{event.messages} older messages were summarised:*\n\n{event.summary}")
    return visible("\n\n".join(parts)) + "\n"


def _fenced(text: str, language: str = "") -> str:
    """Put a text into a fence that it cannot end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
