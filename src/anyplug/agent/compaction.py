"""Summarise older messages when the model's context is nearly full.

The summary is the model's, so extensions review it like any message before it is shown or stored.
"""

from typing import TYPE_CHECKING

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from anyplug.agent import conversation_events as events
from anyplug.agent.model_history import Spoken, carried
from anyplug.model.untrusted_text import for_models

if TYPE_CHECKING:
    from anyplug.agent.live_conversation import LiveConversation

FULL = 0.8  # share of the context that may be used before older messages are summarised
KEPT_TURNS = 2  # latest turns that are kept as they are
LONGEST = 60_000  # characters of older messages that are summarised: these must fit, too
ASK = """\
Summarise the conversation below for yourself, so that you can go on with it: what the person wants, what was done, what
was found (names, numbers, paths), what is open. At most 400 words. Only the summary.
"""
WITHHELD = "(the summary is not shown)"


async def compact(talk: "LiveConversation", spoken: "Spoken", turn: int) -> bool:
    """Replace older messages with a summary; return whether there was anything to replace.

    Raises what the model's library raises.
    """
    cut = _cut(spoken.messages)
    old, kept = spoken.messages[:cut], spoken.messages[cut:]
    if not old or spoken.model is None:
        return False
    name = f"{talk.id}-{turn}"
    talk.emit("pre_compact", compaction_id=name, message_count=len(old))
    agent = Agent(spoken.model)
    async with agent.run_stream(ASK + "\n" + _told(old)[-LONGEST:]) as answer:
        summary = await answer.get_output()
    shown = await _reviewed(talk, summary)
    spoken.messages = [ModelRequest(parts=[UserPromptPart(content=carried(summary))]), *kept]
    spoken.context_used = None
    talk.tell(events.Compacted(messages=len(old), summary=shown))
    talk.emit("post_compact", compaction_id=name, message_count=len(old), status="completed")
    return True


async def _reviewed(talk: "LiveConversation", summary: str) -> str:
    if not talk.host.guards.may_object("assistant_message"):
        return for_models(summary)
    ruling = await talk.host.guards.assistant_message(summary)
    return WITHHELD if ruling.blocked_by else for_models(str(ruling.value))


def _cut(messages: list[ModelMessage]) -> int:
    """Return where the latest turns begin."""
    begins = [
        at
        for at, message in enumerate(messages)
        if isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts)
    ]
    if len(begins) > KEPT_TURNS:
        return begins[-KEPT_TURNS]
    return begins[-1] if len(begins) > 1 else 0


def _told(messages: list[ModelMessage]) -> str:
    lines = []
    for message in messages:
        for part in message.parts:
            who = "Assistant" if isinstance(message, ModelResponse) else "Person"
            if isinstance(part, TextPart | UserPromptPart):
                lines.append(f"{who}: {part.content}")
            elif hasattr(part, "tool_name"):
                lines.append(
                    f"{part.part_kind} {part.tool_name}: {getattr(part, 'args', None) or getattr(part, 'content', '')}"
                )
    return "\n".join(lines)
