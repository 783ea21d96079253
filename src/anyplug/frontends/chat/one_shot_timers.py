"""Timers that run exactly once, also on a busy machine.

Textual skips the runs for which a timer is late. A timer that runs once then never runs at all, if the interpreter was
held up while Textual computed the wait. Textual uses such a timer itself before it applies a new terminal size.
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
