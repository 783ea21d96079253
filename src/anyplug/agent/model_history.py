"""A model's transcript in the agent library's form, rebuilt from what was shown; valid however a turn ended."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from anyplug.agent import conversation_events as events
from anyplug.integrations.model_content import failure_text
from anyplug.integrations.pydantic_ai import content_of
from anyplug.model.types import Result

if TYPE_CHECKING:
    from pydantic_ai.models import Model

CANCELLED = "the person cancelled this call"
WITHHELD = "(withheld)"


class Spoken:
    """What the model has read and said, in its own words, as long as the conversation is open."""

    def __init__(self, messages: Sequence[ModelMessage]) -> None:
        self.messages = list(messages)
        self.model: Model | None = None
        self.context_used: float | None = None
        self.is_edited = False  # some of what the model said was not shown as it was


def returned(name: str, call: str, result: Result) -> ToolReturnPart:
    """Return a result as the answer to a model's call."""
    if result.is_error:
        return ToolReturnPart(tool_name=name, content=failure_text(result), tool_call_id=call, outcome="failed")
    return ToolReturnPart(tool_name=name, content=content_of(result), tool_call_id=call)


def closed(messages: Sequence[ModelMessage], before: int = 0, partial: str = "") -> list[ModelMessage]:
    """Return a history that every provider accepts, of a turn that may have ended anywhere.

    Each open call gets a return. `partial` is what the model had said of an answer; a question after the first `before`
    messages that it has not begun to answer is left out.
    """
    kept = list(messages)
    if kept and isinstance(kept[-1], ModelRequest):
        if partial:
            kept.append(ModelResponse(parts=[TextPart(content=partial)]))
        elif before and len(kept) == before + 1:
            return kept[:before]
    answered = {part.tool_call_id for message in kept for part in message.parts if isinstance(part, ToolReturnPart)}
    for at in range(len(kept) - 1, -1, -1):
        message = kept[at]
        if isinstance(message, ModelResponse):
            missing = [_cancelled(part) for part in message.tool_calls if part.tool_call_id not in answered]
            if missing:
                _insert(kept, at + 1, missing)
    return kept


def _cancelled(call: ToolCallPart) -> ToolReturnPart:
    return ToolReturnPart(
        tool_name=call.tool_name, content=CANCELLED, tool_call_id=call.tool_call_id, outcome="interrupted"
    )


def _insert(messages: list[ModelMessage], at: int, returns: list[ToolReturnPart]) -> None:
    after = messages[at] if at < len(messages) else None
    if isinstance(after, ModelRequest):
        messages[at] = ModelRequest(parts=[*returns, *after.parts], instructions=after.instructions)
    else:
        messages.insert(at, ModelRequest(parts=list(returns)))


def carried(summary: str) -> str:
    """Return how a model is told of what was summarised."""
    return f"(Summary of the conversation so far:)\n{summary}"


def rebuilt(shown: Sequence[events.ConversationEvent]) -> list[ModelMessage]:
    """Return a history for the model from what was shown of a conversation."""
    history = _History()
    for event in shown:
        history.add(event)
    return closed(history.messages)


class _History:
    def __init__(self) -> None:
        self.messages: list[ModelMessage] = []
        self._names: dict[str, str] = {}  # of open calls

    def add(self, event: events.ConversationEvent) -> None:
        match event:
            case events.Compacted():
                self.messages = []
                self._asked(UserPromptPart(content=carried(event.summary)))
            case events.UserMessage():
                self._asked(UserPromptPart(content=event.text))
            case events.AssistantMessage():
                self._said(TextPart(content=event.text or WITHHELD))
            case events.ToolStarted():
                name = self._names[event.call] = event.model_name or event.tool
                self._said(ToolCallPart(tool_name=name, args=json.dumps(event.arguments), tool_call_id=event.call))
            case events.ToolEnded() if event.call in self._names:
                self._asked(returned(self._names.pop(event.call), event.call, event.result))

    def _said(self, part: Any) -> None:
        last = self.messages[-1] if self.messages else None
        if isinstance(last, ModelResponse):
            self.messages[-1] = ModelResponse(parts=[*last.parts, part])
        else:
            self.messages.append(ModelResponse(parts=[part]))

    def _asked(self, part: Any) -> None:
        last = self.messages[-1] if self.messages else None
        if isinstance(last, ModelRequest):
            self.messages[-1] = ModelRequest(parts=[*last.parts, part])
        else:
            self.messages.append(ModelRequest(parts=[part]))
