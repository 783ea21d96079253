"""Extensions' own messages, for listeners: a terminal, a web page, an agent, a test."""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from anyplug.model.types import LogMessage, Note, NotesCleared, ResourceUpdated, SlashSubmitted, Submitted

if TYPE_CHECKING:  # imports an event loop, which printing a note does not need
    from anyplug.peers.panels import Panel

MOST_NOTES = 1_000  # of one call or slash command
LONGEST_NOTES = 1 << 20  # characters of all of them
MOST_KEPT, KEPT_S = 100, 60.0  # notices that nobody has heard yet, for who begins to listen soon


class PanelChanged(msgspec.Struct, frozen=True):
    """A panel was opened, redrawn or closed."""

    panel: "Panel"


class SnapshotChanged(msgspec.Struct, frozen=True):
    """What can be called has changed."""


Notice = (
    Note | NotesCleared | Submitted | SlashSubmitted | PanelChanged | SnapshotChanged | LogMessage | ResourceUpdated
)
Listener = Callable[[Notice], object]  # False: it does nothing with a notice of this kind


class Notices:
    """Sends notices to all listeners, also to those who begin to listen a moment later than an extension speaks."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._kept: deque[tuple[float, Notice]] = deque(maxlen=MOST_KEPT)

    def listen(self, listener: Listener, *, catch_up: bool = True) -> Callable[[], None]:
        """Register a callback for all notices; call the returned function to stop.

        `catch_up`: it also gets what nobody has heard yet; one that listens for a single request does not want that.
        """
        self._listeners.append(listener)
        if catch_up:
            since = time.monotonic() - KEPT_S
            kept = [(when, notice) for when, notice in self._kept if when >= since]
            self._kept = deque((one for one in kept if not _hears(listener, one[1])), MOST_KEPT)
        return lambda: self._listeners.remove(listener)

    def send(self, notice: Notice, *, is_missed: bool = True) -> bool:
        """Send a notice to all listeners; return whether anybody heard it.

        `is_missed`: if nobody did, it is kept for the next listener.
        """
        is_heard = sum([_hears(listener, notice) for listener in self._listeners]) > 0
        older = [one for one in self._kept if _replaces(notice, one[1])]
        for one in older:
            self._kept.remove(one)
        is_over = isinstance(notice, NotesCleared | SnapshotChanged) or (
            isinstance(notice, PanelChanged) and not notice.panel.is_open
        )
        if not is_heard and not is_over and (is_missed or older):
            self._kept.append((time.monotonic(), notice))
        return is_heard


def unheard(notice: Notice) -> tuple[str, str]:
    """Return what a plugin's own log says about a notice that nobody heard; empty for one that nobody misses."""
    match notice:
        case Note():
            return f"nobody heard its note ({' '.join(notice.level.split())}):", notice.message
        case Submitted() | SlashSubmitted():
            return "nobody heard what it submitted:", notice.text
        case PanelChanged() if notice.panel.is_open:
            return "nobody saw its panel:", notice.panel.title or notice.panel.id
        case _:
            return "", ""


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

    def hear(notice: Notice) -> bool:
        nonlocal room, count
        note = noted(notice)
        if note is not None and count <= MOST_NOTES and room >= 0:
            room -= len(note.message)
            is_full = count == MOST_NOTES or room < 0
            count += 1
            keep(Note(note.plugin, "warn", "further notes are not shown") if is_full else note)
        return note is not None

    return hear


def _replaces(notice: Notice, kept: Notice) -> bool:
    """Return whether a notice that nobody has heard yet says nothing any more."""
    if isinstance(notice, PanelChanged) and isinstance(kept, PanelChanged):
        return (notice.panel.owner, notice.panel.id) == (kept.panel.owner, kept.panel.id)
    return isinstance(notice, NotesCleared) and isinstance(kept, Note) and kept.plugin == notice.plugin


def _hears(listener: Listener, notice: Notice) -> bool:
    try:
        return listener(notice) is not False
    except Exception as error:  # noqa: BLE001 - a stranger's code, and others listen, too
        import asyncio  # printing a note does not need it

        said = {"message": "a listener of the host failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(said)
        return True
