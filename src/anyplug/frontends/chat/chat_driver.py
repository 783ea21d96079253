"""A driver that outlives its terminal: when the window is closed, the chat still ends its plugins and stores its turn.

Textual's own writes in a thread. An error there ends the thread, and then everything that draws waits for it forever.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.driver import Driver


class _Lenient:
    """A terminal that may be gone."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> int:
        try:
            self._file.write(text)
        except OSError:
            pass
        return len(text)

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError:
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def hardened(driver: "type[Driver]") -> "type[Driver]":
    """Return a driver class that ignores what a closed terminal refuses."""

    class Hardened(driver):  # type: ignore[misc, valid-type]  # which class it is depends on the system
        def __init__(self, *positional: Any, **named: Any) -> None:
            super().__init__(*positional, **named)
            file = getattr(self, "_file", None)  # drivers without a terminal have none
            if file is not None:
                self._file = _Lenient(file)

    return Hardened
