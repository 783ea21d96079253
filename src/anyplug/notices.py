"""What extensions say on their own account, for whoever listens: a terminal, a web page, an agent, a test."""

from collections.abc import Callable

import msgspec

from anyplug.panels import Panel


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
