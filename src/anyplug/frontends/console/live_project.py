"""Turn what happens in one project into events for pages: calls, questions, notes, panels, new snapshots."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from anyplug.audit.audit_log import Record
from anyplug.call.open_questions import Answered, Waiting
from anyplug.catalog.tool_search import Index
from anyplug.frontends.console import plugin_shapes, record_shapes
from anyplug.frontends.console.event_ring import Ring
from anyplug.frontends.console.question_shapes import answered_shape, question_shape
from anyplug.host.host import Host
from anyplug.model.types import Note, NotesCleared, SlashSubmitted, Submitted
from anyplug.peers.notices import Notice, PanelChanged, SnapshotChanged

if TYPE_CHECKING:
    import anyio

    from anyplug.catalog.snapshot import Snapshot

MOST_ENDED: Final = 500  # records of ended calls that are kept for those who called
PLUGIN_FOUND: Final = frozenset({"new", "changed"})


class Running(dict[str, Any]):
    """A call that runs or waits for an answer, as `GET /calls` shows it."""


class LiveProject:
    """One host, followed."""

    def __init__(self, host: Host) -> None:
        self.host = host
        host.catalog.approvals.place = "console"  # where people decide that come through the API
        self.ring = Ring()
        self.streams = 0  # open ones
        self.calls: dict[str, Running] = {}  # by the host's id
        self.scopes: dict[str, anyio.CancelScope] = {}  # of the calls that came through the API, by the host's id
        self.names: dict[str, str] = {}  # the ids that clients chose for their calls, by the host's
        self._ended: dict[str, Record] = {}
        self._snapshot = host.snapshot
        self._known = {entry.path: entry.state for entry in host.snapshot.entries}
        self._index: tuple[Snapshot, Index] | None = None
        self._stops: list[Callable[[], None]] = [
            host.listen(self._noticed),
            host.watch_calls(self._called),
            host.questions.listen(self._asked),
        ]

    def close(self) -> None:
        """Stop following it."""
        for stop in self._stops:
            stop()
        self._stops = []

    @contextmanager
    def watched(self, *, by_a_person: bool) -> Iterator[None]:
        """Count a stream of events as open; a person's stream shows every question."""
        stop = self.host.questions.watch() if by_a_person else None
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1
            if stop is not None:
                stop()

    def index(self) -> Index:
        """Return the search index of the present tools."""
        snapshot = self.host.snapshot
        if self._index is None or self._index[0] is not snapshot:
            self._index = (snapshot, Index(snapshot.owners.values(), snapshot))
        return self._index[1]

    def ended(self, call: str) -> Record | None:
        """Return the record of a call that has just ended."""
        return self._ended.get(call)

    def _called(self, record: Record, is_over: bool) -> None:
        if is_over:
            self.calls.pop(record.call, None)
            self._ended[record.call] = record
            while len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]
            if self.streams:
                self.ring.add("call_ended", self._with_id(record_shapes.ended_shape(record)))
        else:
            shape = self.calls[record.call] = Running(self._with_id(record_shapes.started_shape(record)))
            if self.streams:
                self.ring.add("call_started", shape)

    def _with_id(self, shape: dict[str, Any]) -> dict[str, Any]:
        return {**shape, "id": self.names.get(shape["call"], "")}

    def _asked(self, news: Waiting | Answered) -> None:
        if isinstance(news, Waiting):
            self.ring.add("question", question_shape(news, self.host.snapshot))
        else:
            self.ring.add("answered", answered_shape(news))

    def _noticed(self, notice: Notice) -> bool:
        is_seen = self.streams > 0
        match notice:
            case SnapshotChanged():
                self._snapshot_changed()
            case Note():
                self.ring.add("note", {"plugin": notice.plugin, "level": notice.level, "message": notice.message})
            case NotesCleared():
                self.ring.add("notes_removed", {"plugin": notice.plugin})
            case Submitted() | SlashSubmitted():
                is_command = isinstance(notice, SlashSubmitted)
                self.ring.add("submitted", {"plugin": notice.plugin, "text": notice.text, "is_command": is_command})
                return False  # nobody has sent it yet
            case PanelChanged():
                self.ring.add("panel", notice.panel)
        return is_seen

    def _snapshot_changed(self) -> None:
        before, self._snapshot = self._snapshot, self.host.snapshot
        known, self._known = self._known, {entry.path: entry.state for entry in self._snapshot.entries}
        for entry in self._snapshot.entries:
            if entry.state in PLUGIN_FOUND and known.get(entry.path) != entry.state:
                self.ring.add("plugin_found", plugin_shapes.entry_shape(entry, self.host))
        self.ring.add(
            "snapshot",
            {
                "plugins": len(self._snapshot.entries),
                "tools": len(self._snapshot.callable_tools),
                "changed": self._snapshot.compared_to(before),
                "at": time.time(),
            },
        )
