"""Extensions' own messages, for listeners: a terminal, a web page, an agent, a test."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from anyplug.model.types import Note, NotesCleared, SlashSubmitted, Submitted

if TYPE_CHECKING:  # imports an event loop, which printing a note does not need
    from anyplug.peers.panels import Panel

MOST_NOTES = 1_000  # of one call or slash command
LONGEST_NOTES = 1 << 20  # characters of all of them


class PanelChanged(msgspec.Struct, frozen=True):
    """A panel was opened, redrawn or closed."""

    panel: "Panel"


class SnapshotChanged(msgspec.Struct, frozen=True):
    """What can be called has changed."""


Notice = Note | NotesCleared | Submitted | SlashSubmitted | PanelChanged | SnapshotChanged
Listener = Callable[[Notice], None]


def note_taker(notes: list[Note]) -> Listener:
    """Return a listener that collects notes, as many as a person would read: an extension may send more."""
    return _bounded(notes.append, lambda notice: notice if isinstance(notice, Note) else None)


def text_taker(notes: list[Note]) -> Listener:
    """Return a listener that collects texts and commands to be sent as notes, if nobody can send them."""
    return _bounded(notes.append, _as_note)


def note_teller(plugin: str, tell: Callable[[str], None]) -> Listener:
    """Return a listener that passes on at once what one plugin tells the person, or does invisibly."""
    open_panels: set[str] = set()

    def noted(notice: Notice) -> Note | None:
        note = notice if isinstance(notice, Note) else _as_note(notice)
        if isinstance(notice, PanelChanged) and notice.panel.is_open and notice.panel.id not in open_panels:
            open_panels.add(notice.panel.id)
            text = f"it opened the panel '{notice.panel.title or notice.panel.id}', which nothing here shows"
            note = Note(notice.panel.owner, "info", text)
        return note if note is not None and note.plugin == plugin else None

    def say(note: Note) -> None:
        for line in lines_of(note):
            tell(line)

    return _bounded(say, noted)


def lines_of(note: Note) -> list[str]:
    """Return a note's lines for a person, each with its plugin's name, so that none passes for one of ours."""
    level = " ".join(note.level.split())
    return [f"[{note.plugin}] {level}: {line}" for line in note.message.splitlines()]


def _as_note(notice: Notice) -> Note | None:
    """Convert what should be sent to a note, if nobody can send it."""
    if isinstance(notice, Submitted | SlashSubmitted):
        return Note(notice.plugin, "info", f"it wants this sent as if you had typed it: {notice.text}")
    return None


def _bounded(keep: Callable[[Note], None], noted: Callable[[Notice], Note | None]) -> Listener:
    room, count = LONGEST_NOTES, 0

    def hear(notice: Notice) -> None:
        nonlocal room, count
        note = noted(notice)
        if note is not None and count <= MOST_NOTES and room >= 0:
            room -= len(note.message)
            is_full = count == MOST_NOTES or room < 0
            count += 1
            keep(Note(note.plugin, "warn", "further notes are not shown") if is_full else note)

    return hear
