"""Route extensions' own messages to one of the conversations that share a host.

A message goes to the conversation whose call or command of that extension is under way, else to the one that was last
active; never to two. A panel stays with the conversation in which it was opened. What can be called concerns all.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from anyplug.peers.notices import Notice, PanelChanged, SnapshotChanged

if TYPE_CHECKING:
    from anyplug.host.host import Host


class Hearer(Protocol):
    """A conversation, as notices know it."""

    id: str

    def heard(self, notice: Notice) -> None:
        """Handle a notice that is for this conversation."""
        ...


class Floor:
    """The conversations of one host."""

    def __init__(self) -> None:
        self._present: list[Hearer] = []  # the last active one last
        self._work: list[tuple[str, Hearer]] = []  # plugins whose calls or commands are under way, latest last
        self._panels: dict[tuple[str, str], Hearer] = {}
        self._stop: Callable[[], None] | None = None
        self.greeted = ""  # the conversation that the host's plugins were greeted with, once it has begun

    def enter(self, host: "Host", hearer: Hearer) -> None:
        """Route notices to a conversation from now on."""
        self._present.append(hearer)
        if self._stop is None:
            self._stop = host.listen(self._hear)

    def leave(self, hearer: Hearer) -> list[tuple[str, str]]:
        """Stop routing notices to a conversation; return the panels that it had open, by owner and id."""
        self._present.remove(hearer)
        panels = [place for place, whose in self._panels.items() if whose is hearer]
        for place in panels:
            del self._panels[place]
        if not self._present and self._stop is not None:
            self._stop()
            self._stop = None
        return panels

    def active(self, hearer: Hearer) -> None:
        """Record that a person uses a conversation."""
        if hearer in self._present:
            self._present.remove(hearer)
            self._present.append(hearer)

    @contextmanager
    def working(self, hearer: Hearer, plugin: str) -> Iterator[None]:
        """Record that a plugin works for a conversation while inside."""
        place = (plugin, hearer)
        self._work.append(place)
        try:
            yield
        finally:
            self._work.remove(place)

    def has_panel(self, hearer: Hearer, owner: str, panel: str) -> bool:
        """Return whether a panel belongs to a conversation."""
        return self._panels.get((owner, panel)) is hearer

    def _hear(self, notice: Notice) -> bool:
        if isinstance(notice, SnapshotChanged):
            for hearer in list(self._present):
                hearer.heard(notice)
            return True
        whose = self._whose(notice)
        if whose is not None:
            whose.heard(notice)
        return whose is not None

    def _whose(self, notice: Notice) -> Hearer | None:
        hearer: Hearer | None
        if isinstance(notice, PanelChanged):
            place = (notice.panel.owner, notice.panel.id)
            hearer = self._panels.get(place) or self._of(notice.panel.owner)
            if hearer is not None and notice.panel.is_open:
                self._panels[place] = hearer
            elif not notice.panel.is_open:
                self._panels.pop(place, None)
            return hearer
        return self._of("" if isinstance(notice, SnapshotChanged) else notice.plugin)

    def _of(self, plugin: str) -> Hearer | None:
        under_way = (hearer for owner, hearer in reversed(self._work) if owner == plugin and hearer in self._present)
        return next(under_way, self._present[-1] if self._present else None)


_floors: "weakref.WeakKeyDictionary[Host, Floor]" = weakref.WeakKeyDictionary()


def floor_of(host: "Host") -> Floor:
    """Return the floor that the conversations of a host share."""
    return _floors.setdefault(host, Floor())
