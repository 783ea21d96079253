"""W3C trace context, as callers send it and as plugins' environments get it."""

from collections.abc import Mapping
from typing import Any, Protocol

from anyplug.model.late_patterns import late

KEYS = ("traceparent", "tracestate")
LONGEST_STATE = 512  # characters, as the standard wants them to be passed on at least
_PARENT = late(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = late(r"[\x20-\x7e]*")


class CallTrace(Protocol):
    """What traces one call."""

    context: dict[str, str]  # for those whom the call calls

    def passed(self, phase: str) -> None:
        """Note that a phase has ended now."""
        ...

    def settled(self) -> None:
        """Note that the outcome is known."""
        ...

    def end(self, trail: Any, result: Any) -> None:
        """Note that the call has ended."""
        ...


def read(given: Mapping[Any, Any] | None) -> dict[str, str]:
    """Return the trace context in `_meta`, headers or an environment; empty if there is no valid one."""
    if not given:
        return {}
    parent = _text(given, KEYS[0])
    if not _PARENT.fullmatch(parent):
        return {}
    state = _text(given, KEYS[1])
    if not state or len(state) > LONGEST_STATE or not _STATE.fullmatch(state):
        return {KEYS[0]: parent}
    return {KEYS[0]: parent, KEYS[1]: state}


def _text(given: Mapping[Any, Any], key: str) -> str:
    names = (key, key.upper(), key.encode()) if type(given) is dict else (key, key.upper())  # others take only text
    for name in names:
        value = given.get(name)
        if isinstance(value, bytes):
            return value.decode("latin-1")
        if isinstance(value, str):
            return value
    return ""
