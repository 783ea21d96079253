"""The conversations that pages have open: each runs in the daemon, and any number of pages follow it."""

import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

import anyio

from anyplug.frontends.console.api_errors import Conflict, NothingHere
from anyplug.frontends.console.api_request import Server
from anyplug.frontends.console.event_ring import Ring
from anyplug.model.errors import AnyplugError

if TYPE_CHECKING:
    from anyplug.agent.conversation_events import ConversationEvent
    from anyplug.agent.live_conversation import LiveConversation

MOST_OPEN: Final = 20
IDLE_S: Final = 1800.0  # how long one stays open that no page follows
LOOK_S: Final = 30.0


class OpenConversation:
    """One conversation, while it is open."""

    def __init__(self, talk: "LiveConversation", place: Hashable) -> None:
        self.talk = talk
        self.place = place
        self.ring = Ring()
        self.streams = 0
        self.used = time.monotonic()
        self.over = anyio.Event()
        self.stop = talk.listen(self._heard)

    def _heard(self, event: "ConversationEvent") -> None:
        self.used = time.monotonic()
        self.ring.add(str(event.__struct_config__.tag), event)

    @property
    def is_idle(self) -> bool:
        """Whether nobody has followed it for long."""
        return not self.streams and time.monotonic() - self.used > IDLE_S


class PageConversations:
    """All that are open, by their ids."""

    def __init__(self) -> None:
        self._open: dict[str, OpenConversation] = {}

    def of(self, place: Hashable) -> dict[str, OpenConversation]:
        """Return those of a project."""
        return {name: one for name, one in self._open.items() if one.place == place}

    def find(self, name: str, place: Hashable) -> OpenConversation:
        """Return one. Raises NothingHere."""
        found = self._open.get(name)
        if found is None or found.place != place:
            raise NothingHere(f"no conversation '{name}' is open", "open it again with `resume`")
        found.used = time.monotonic()
        return found

    async def open(self, server: Server, place: Hashable, model: str, resume: str) -> str:
        """Open one, and return its id. Raises AnyplugError."""
        if resume in self._open:
            return self.find(resume, place).talk.id
        if len(self._open) >= MOST_OPEN:
            raise Conflict(f"{MOST_OPEN} conversations are open", "close one of them")
        outcome: list[str | AnyplugError] = []
        known = anyio.Event()
        server.run(lambda: self._keep(server, place, model, resume, outcome, known))
        await known.wait()
        if isinstance(outcome[0], AnyplugError):
            raise outcome[0]
        return outcome[0]

    async def _keep(
        self, server: Server, place: Hashable, model: str, resume: str, outcome: list[Any], known: anyio.Event
    ) -> None:
        """Hold one open, in the task that also closes it."""
        from anyplug.agent.open_conversation import open_conversation  # few pages talk to a model

        try:
            async with (
                server.inside(place) as host,
                open_conversation(host, model=model, resume=resume, kind="chat") as talk,
            ):
                one = self._open[talk.id] = OpenConversation(talk, place)
                outcome.append(talk.id)
                known.set()
                try:
                    while not one.over.is_set() and not one.is_idle:
                        with anyio.move_on_after(LOOK_S):
                            await one.over.wait()
                finally:
                    one.stop()
                    del self._open[talk.id]
        except AnyplugError as error:
            outcome.append(error)
        finally:
            if not outcome:
                outcome.append(NothingHere("the conversation could not be opened", "try again"))
            known.set()
