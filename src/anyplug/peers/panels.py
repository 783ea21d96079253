"""Panels: what extensions show in their own area, as data, so that a terminal, a web page and a test agree.

Esc and Ctrl-C close a panel; every other key goes to its owner. Pasted text arrives as one key per character.

Keys are sent one at a time, like a person's: the next when the panel was redrawn, or after a moment. zot's own SDK
handles each key in its own goroutine, so keys that arrive all at once are handled in any order.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from anyplug.formats.shared.features import PanelContent, PanelOwner, PanelRender
from anyplug.model.late_patterns import late

KEYS = frozenset(
    ["up", "down", "left", "right", "enter", "tab", "backspace", "delete", "home", "end", "pageup", "pagedown", "rune"]
)  # what an extension may receive
LONGEST_PASTE = 50_000  # characters, each of which is a frame
PACE_S = 0.02  # between keys, if the panel is not redrawn for the previous one
MOST_OPEN = 16  # panels of one extension; people look at one
CLOSING = frozenset({"esc", "ctrl-c"})
ALIASES = {
    "return": "enter", "escape": "esc", "del": "delete", "bs": "backspace", "page_up": "pageup", "page-up": "pageup",
    "pgup": "pageup", "page_down": "pagedown", "page-down": "pagedown", "pgdn": "pagedown", "arrowup": "up",
    "arrowdown": "down", "arrowleft": "left", "arrowright": "right", "ctrl+c": "ctrl-c", "c-c": "ctrl-c",
    "\r": "enter", "\n": "enter", "\t": "tab", "\x1b": "esc", "\x7f": "backspace", "\b": "backspace", "\x03": "ctrl-c",
}  # fmt: skip
LINE_BREAK = late("\r\n|\r|\n")
CONTROL = late("[\x00-\x1f\x7f-\x9f]")


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A panel's present content."""

    id: str
    owner: str  # the plugin
    title: str = ""
    lines: tuple[str, ...] = ()
    footer: str = ""
    is_open: bool = True


class Changed(Protocol):
    """Is told of a panel that was opened (`is_new`: by its owner), redrawn or closed."""

    def __call__(self, panel: Panel, owner: PanelOwner, *, is_new: bool) -> None:
        """Handle the change."""
        ...


class _Keys:
    """The pending keys for one panel."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._pause: asyncio.TimerHandle | None = None  # since the last key was sent

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Callable[[], None]) -> None:
        """Send a key after those before it."""
        self._waiting.append(key)
        if self._pause is None:
            self.go_on()

    def go_on(self) -> None:
        """Send the next key: its owner has handled the last one, or had enough time."""
        self._end_pause()
        if self._waiting:
            self._waiting.popleft()()
            self._pause = asyncio.get_running_loop().call_later(PACE_S, self.go_on)

    def flush(self) -> None:
        """Send all remaining keys at once."""
        self._end_pause()
        while self._waiting:
            self._waiting.popleft()()

    def drop(self) -> None:
        """Discard the remaining keys."""
        self._end_pause()
        self._waiting.clear()

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None


class Panels:
    """The panels of one host. The one opened last has the focus."""

    def __init__(self, changed: Changed) -> None:
        """Start with none; `changed` is called at every opening, redrawing and closing."""
        self._changed = changed
        self._open: dict[tuple[str, str], tuple[PanelOwner, Panel]] = {}
        self._keys: dict[tuple[str, str], _Keys] = {}  # of the open ones

    @property
    def open(self) -> list[Panel]:
        """The open ones, the focused one last."""
        return [panel for _, panel in self._open.values()]

    def show(self, peer: PanelOwner, given: PanelContent, *, is_asked_for: bool = True) -> Panel:
        """Open a panel, or reopen it. If an extension has too many, its oldest one closes.

        `is_asked_for`: the caller shows it, as the outcome of a command.
        """
        owner = peer.plugin.name
        panel = Panel(
            id=given.id, owner=owner, title=given.title or owner, lines=tuple(given.lines), footer=given.footer
        )
        self._open.pop((owner, given.id), None)
        own = [other for _, other in self._open.values() if other.owner == owner]
        for other in own[: max(0, len(own) - MOST_OPEN + 1)]:
            self.close(other)
        self._open[owner, given.id] = (peer, panel)
        self._keys.setdefault((owner, given.id), _Keys()).go_on()
        self._changed(panel, peer, is_new=not is_asked_for)
        return panel

    def render(self, peer: PanelOwner, frame: PanelRender) -> None:
        """Redraw an open panel; ignore one that is not open. An empty title keeps the old one."""
        place = (peer.plugin.name, frame.panel_id)
        if place in self._open:
            before = self._open[place][1]
            panel = msgspec.structs.replace(
                before, title=frame.title or before.title, lines=tuple(frame.lines), footer=frame.footer
            )
            self._open[place] = (peer, panel)
            self._keys[place].go_on()
            self._changed(panel, peer, is_new=False)

    def closed(self, peer: PanelOwner, name: str) -> None:
        """Close a panel at its owner's request."""
        self._take_away((peer.plugin.name, name))

    def gone(self, peer: PanelOwner) -> None:
        """Close all panels of an extension that has ended."""
        for place, (owner, _) in list(self._open.items()):
            if owner is peer:
                self._take_away(place)

    def press(self, panel: Panel, key: str, text: str = "") -> None:
        """Send a key to a panel's owner; a single character may stand for itself."""
        place = (panel.owner, panel.id)
        if place not in self._open:
            return
        name, text = normalise(key, text)
        if name in CLOSING:
            self.close(panel)
            return
        for sign in text or [""]:
            self._keys[place].add(functools.partial(self._open[place][0].press_key, panel.id, name, sign))

    def paste(self, panel: Panel, text: str) -> str:
        """Send pasted text, character by character, with line breaks as Enter; return what is too long to send."""
        room = max(0, LONGEST_PASTE - len(self._keys.get((panel.owner, panel.id), ())))
        for line_number, line in enumerate(LINE_BREAK.split(text[:room])):
            if line_number:
                self.press(panel, "enter")
            if line:
                self.press(panel, "rune", line)
        return text[room:]

    def close(self, panel: Panel) -> None:
        """Close a panel at the person's request, and tell its owner."""
        place = (panel.owner, panel.id)
        if place in self._open:
            self._keys[place].flush()
            self._open[place][0].close_panel(panel.id)
            self._take_away(place)

    def _take_away(self, place: tuple[str, str]) -> None:
        if place in self._open:
            peer, panel = self._open.pop(place)
            self._keys.pop(place).drop()
            self._changed(msgspec.structs.replace(panel, is_open=False), peer, is_new=False)


def normalise(key: str, text: str = "") -> tuple[str, str]:
    """Name a key as in the guide; a key without a name there is `unknown`."""
    if key == "rune":
        return "rune", text
    if len(key) == 1 and not CONTROL.match(key):
        return "rune", key
    name = ALIASES.get(key.lower(), key.lower())
    if name == "space":
        return "rune", " "
    return (name if name in KEYS or name in CLOSING else "unknown"), ""
