"""What extensions say on their own account, for whoever listens: a terminal, a web page, an agent, a test."""

from collections.abc import Callable

import msgspec

from anyplug.panels import Panel

MOST_NOTES = 1_000  # of one slash command
LONGEST_NOTES = 1 << 20  # characters of all of them


class Note(msgspec.Struct, frozen=True):
    """A note for the person. The level is info, success, warn or error; anything else is shown as info."""

    plugin: str
    level: str
    message: str


class NotesCleared(msgspec.Struct, frozen=True):
    """A plugin takes its notes away."""

    plugin: str


class Submitted(msgspec.Struct, frozen=True):
    """A plugin wants this text sent to the agent as if the person had typed it."""

    plugin: str
    text: str


class SlashSubmitted(msgspec.Struct, frozen=True):
    """A plugin wants this slash command run as if the person had typed it."""

    plugin: str
    text: str


class PanelChanged(msgspec.Struct, frozen=True):
    """A panel was opened, drawn anew or closed."""

    panel: Panel


class SnapshotChanged(msgspec.Struct, frozen=True):
    """There is something else to call."""


Notice = Note | NotesCleared | Submitted | SlashSubmitted | PanelChanged | SnapshotChanged
Listener = Callable[[Notice], None]


def note_taker(notes: list[Note]) -> Listener:
    """Give what keeps the notes that it hears, as many as a person would read: an extension may say more."""
    return _taker(notes, lambda notice: notice if isinstance(notice, Note) else None)


def text_taker(notes: list[Note]) -> Listener:
    """Give what keeps as notes which texts and commands are to be sent, where nobody is there to send them."""

    def noted(notice: Notice) -> Note | None:
        if isinstance(notice, Submitted | SlashSubmitted):
            return Note(notice.plugin, "info", f"it wants this sent as if you had typed it: {notice.text}")
        return None

    return _taker(notes, noted)


def _taker(notes: list[Note], noted: Callable[[Notice], Note | None]) -> Listener:
    room, is_full = LONGEST_NOTES, False

    def keep(notice: Notice) -> None:
        nonlocal room, is_full
        note = noted(notice)
        if note is not None and not is_full:
            room -= len(note.message)
            is_full = len(notes) == MOST_NOTES or room < 0
            notes.append(Note(note.plugin, "warn", "further notes are not shown") if is_full else note)

    return keep
