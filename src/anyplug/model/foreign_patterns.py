"""Match regular expressions that strangers wrote, with RE2: time grows with the text only, whatever the pattern is.

RE2 has no look-around and no references to groups.
"""

import functools
from typing import Any

MOST_KEPT = 256  # compiled patterns
MOST_MEMORY = 8 << 20  # bytes for one pattern


class BadPattern(ValueError):
    """It is not a regular expression that RE2 knows; the text tells why."""


def is_found(pattern: str, text: str, *, ignores_case: bool = False) -> bool:
    """Return whether a pattern is found in a text; raises BadPattern."""
    return compiled(pattern, ignores_case=ignores_case).search(_plain(text)) is not None


def is_whole(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a whole text; raises BadPattern."""
    return compiled(pattern).fullmatch(_plain(text)) is not None


@functools.lru_cache(MOST_KEPT)
def compiled(pattern: str, *, ignores_case: bool = False) -> Any:
    """Compile a pattern; raises BadPattern."""
    import re2  # takes 4 ms, and few commands have a pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_MEMORY
    options.case_sensitive = not ignores_case
    try:
        return re2.compile(_plain(pattern), options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be parsed"
        raise BadPattern(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from error


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # names of files may have bytes that are not UTF-8
