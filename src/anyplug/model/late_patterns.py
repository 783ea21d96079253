"""Regular expressions that are compiled when they are first used.

The modules of a short command define some two hundred patterns, and it uses two dozen: compiling all of them took a
tenth of its time.
"""

import re
from typing import Any, AnyStr


def late(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what behaves as a compiled pattern; an invalid one raises `re.error` on first use."""
    return _Late(text, flags)  # type: ignore[return-value]


class _Late:
    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text = text
        self._flags = flags
        self._made: re.Pattern[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        """Return a method or attribute of the pattern; kept, so that the next use does without this step."""
        if self._made is None:
            self._made = re.compile(self._text, self._flags)
        found = getattr(self._made, name)
        setattr(self, name, found)
        return found
