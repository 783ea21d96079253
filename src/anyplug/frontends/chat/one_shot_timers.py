"""Timers that run exactly once, also on a busy machine.

Textual leaves out what a timer is late for. For one that runs once that is all of it: if the interpreter was held up
while it computed when to wait, it never runs. Textual itself waits so before it takes a new size of the terminal.
"""

from typing import TYPE_CHECKING

from textual.message_pump import MessagePump

if TYPE_CHECKING:
    from textual.timer import Timer, TimerCallback


class OneShotTimers(MessagePump):
    """Lets timers of an application or a widget run late rather than never."""

    def set_timer(
        self, delay: float, callback: "TimerCallback | None" = None, *, name: str | None = None, pause: bool = False
    ) -> "Timer":
        """Call a function once, after a delay."""
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        timer._skip = False  # noqa: SLF001 - there is no other way to say so, and its task has not begun
        return timer
