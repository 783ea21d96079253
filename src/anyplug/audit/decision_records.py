"""Records of what people decide about plugins, in the same chain as the calls.

A decision and its record are one transaction: either both are stored or neither is.
"""

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anyplug.audit.audit_log import TRUST, Audit, Record
from anyplug.audit.call_ids import call_id
from anyplug.home.database import Store
from anyplug.model.untrusted_text import for_people

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

LONGEST_NOTE = 300  # characters
MOST_NOTES = 20


class Decision:
    """A decision about a plugin: what was done, and what a reader of the audit should know about it."""

    def __init__(self, action: str, plugin: str, *notes: str, folder: str, format: str = "", digest: str = "") -> None:
        self.action = action
        self.plugin = plugin
        self.notes = [note for note in notes if note]
        self.folder = folder
        self.format = format
        self.digest = digest

    def record(self, place: str, by: str, project: str) -> Record:
        """Return its record."""
        at = time.time_ns() // 1000
        notes = tuple(for_people(" ".join(note.split()), LONGEST_NOTE) for note in self.notes[:MOST_NOTES])
        return Record(
            call=call_id(at),
            at=at / 1_000_000,
            kind=TRUST,
            attachment=place,
            project=for_people(project),
            tool=self.action,
            plugin=for_people(self.plugin),
            format=self.format,
            digest=self.digest,
            verdict="allowed",
            by=by,
            notes=notes,
            notes_by=(by,) * len(notes),
            outcome="done",
            folder=for_people(self.folder),
        )


class DecisionRecords:
    """Writes decisions to the audit of one home."""

    def __init__(self, store: Store, second_head: str = "", project: str = "") -> None:
        self._store = store
        self._audit = Audit(store, second_head)
        self._project = project

    @contextmanager
    def together(self, decision: Decision | None, place: str) -> "Iterator[sqlite3.Connection]":
        """Record a decision in the transaction that stores it; None: nothing to record. Raises StoreError.

        `place` is where the person decided: `cli`, `library`, or the attachment that asked.
        """
        with self._store.writing() as transaction:
            yield transaction
            if decision is not None:
                self._audit.append_in(transaction, decision.record(place, "person", self._project))
        if decision is not None:
            self._audit.seal()
