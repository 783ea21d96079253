"""Conversations for tests: opened on a host, with everything that they tell kept."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

from anyplug.agent.conversation_events import Asked, ConversationEvent
from anyplug.agent.live_conversation import LiveConversation
from anyplug.agent.open_conversation import open_conversation
from anyplug.call.consent import Answer
from anyplug.host.host import Host

PATIENCE_S = 60.0
STEP_S = 0.01

T = TypeVar("T")


class Told:
    """What a conversation has told."""

    def __init__(self, talk: LiveConversation, word: Answer | None = None) -> None:
        self.talk = talk
        self.events: list[ConversationEvent] = []
        self._word = word
        talk.listen(self._hear)

    def _hear(self, event: ConversationEvent) -> None:
        self.events.append(event)
        if isinstance(event, Asked) and self._word is not None:
            self.talk.answer(event.question.id, self._word)

    def of(self, kind: type[T]) -> list[T]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait until something holds."""
        with anyio.fail_after(PATIENCE_S):
            while not holds():
                await anyio.sleep(STEP_S)


@asynccontextmanager
async def conversation(
    host: Host, model: str = "demo", word: Answer | None = "once", **options: Any
) -> AsyncIterator[Told]:
    """Open a conversation in which questions get an answer at once."""
    async with open_conversation(host, model=model, **options) as talk:
        yield Told(talk, word)


async def turn(told: Told, text: str) -> list[ConversationEvent]:
    """Send a message, wait for the end, and return what was told meanwhile."""
    before = len(told.events)
    await told.talk.send(text)
    with anyio.fail_after(PATIENCE_S):
        await told.talk.settled()
    return told.events[before:]
