"""Stored conversations in the home's database: what was shown of each. The oldest are removed."""

import time
from typing import Any

import msgspec

from anyplug.agent.conversation_events import ConversationEvent, Usage
from anyplug.home.database import Store
from anyplug.model.errors import CallError
from anyplug.model.untrusted_text import for_people

MOST_EVENTS = 5_000  # of one conversation; the oldest are removed
_DECODER = msgspec.json.Decoder(ConversationEvent)
_USAGE = msgspec.json.Decoder(Usage)
_HEAD = "SELECT id, project, title, model, began, changed, usage FROM conversations"


class ConversationNotFound(CallError):
    """There is no such conversation."""

    code = "not_found"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no conversation '{for_people(name)}'",
            "`/sessions` lists them; their first letters are enough, and `last` is the last one in this folder",
        )


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation."""

    id: str
    project: str
    title: str = ""
    model: str = ""
    began: float = 0.0
    changed: float = 0.0
    usage: Usage = Usage()
    events: tuple[ConversationEvent, ...] = ()


class ConversationStore:
    """The conversations of one home."""

    def __init__(self, store: Store, keep: int) -> None:
        """`keep` is how many are kept."""
        self._store = store
        self._keep = keep

    def save(self, one: Stored, news: list[ConversationEvent]) -> None:
        """Store a conversation, with what was said since it was last stored. Raises StoreError."""
        with self._store.writing() as transaction:
            transaction.execute(
                "INSERT INTO conversations (id, project, title, model, began, changed, usage) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET title = excluded.title, "
                "model = excluded.model, changed = excluded.changed, usage = excluded.usage",
                (one.id, one.project, one.title, one.model, one.began, one.changed, msgspec.json.encode(one.usage)),
            )
            if not news:
                return
            (last,) = transaction.execute(
                "SELECT COALESCE(MAX(number), 0) FROM conversation_events WHERE conversation = ?", (one.id,)
            ).fetchone()
            transaction.executemany(
                "INSERT INTO conversation_events (conversation, number, event) VALUES (?, ?, ?)",
                [(one.id, number, msgspec.json.encode(event)) for number, event in enumerate(news, last + 1)],
            )
            transaction.execute(
                "DELETE FROM conversation_events WHERE conversation = ? AND number <= ?",
                (one.id, last + len(news) - MOST_EVENTS),
            )
            self._remove_old(transaction)

    def _remove_old(self, transaction: Any) -> None:
        old = transaction.execute(
            "SELECT id FROM conversations ORDER BY changed DESC LIMIT -1 OFFSET ?", (self._keep,)
        ).fetchall()
        for (name,) in old:
            transaction.execute("DELETE FROM conversation_events WHERE conversation = ?", (name,))
            transaction.execute("DELETE FROM conversations WHERE id = ?", (name,))

    def all(self, project: str = "") -> list[Stored]:
        """List the conversations without what was said, newest first; of one project, or of all. Raises StoreError."""
        where, values = (" WHERE project = ?", (project,)) if project else ("", ())
        return [_head(row) for row in self._store.rows(f"{_HEAD}{where} ORDER BY changed DESC", *values)]

    def find(self, name: str, project: str) -> Stored:
        """Find one of a project by its id, or how that begins; `last` is the last one.

        Raises ConversationNotFound and StoreError.
        """
        mine = self.all(project)
        found = mine[:1] if name == "last" else [one for one in mine if name and one.id.startswith(name)]
        if len(found) != 1:
            raise ConversationNotFound(name)
        rows = self._store.rows(
            "SELECT event FROM conversation_events WHERE conversation = ? ORDER BY number", found[0].id
        )
        return msgspec.structs.replace(found[0], events=tuple(_read(row[0]) for row in rows))

    def remove(self, name: str) -> None:
        """Delete a conversation. Raises StoreError."""
        with self._store.writing() as transaction:
            transaction.execute("DELETE FROM conversation_events WHERE conversation = ?", (name,))
            transaction.execute("DELETE FROM conversations WHERE id = ?", (name,))


def new(name: str, project: str, model: str) -> Stored:
    """Begin a conversation; it is stored when something was said."""
    now = time.time()
    return Stored(id=name, project=project, model=model, began=now, changed=now)


def _head(row: Any) -> Stored:
    name, project, title, model, began, changed, usage = row
    return Stored(
        id=name, project=project, title=title, model=model, began=began, changed=changed, usage=_USAGE.decode(usage)
    )


def _read(event: bytes) -> ConversationEvent:
    read: ConversationEvent = _DECODER.decode(event)
    return read
