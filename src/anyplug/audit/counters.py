"""Count a host's calls, their outcomes and durations, for people who inspect a running host."""

from collections import deque

import msgspec

from anyplug.model.types import Result

REMEMBERED = 200  # most recent durations kept per tool
MOST_TOOLS = 1_000  # so that calls to nonexistent tools cannot fill the memory


class Durations(msgspec.Struct, frozen=True):
    """The durations of one tool."""

    tool: str
    calls: int
    errors: int
    median_ms: float
    longest_ms: float


class _Counted:
    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.durations: deque[float] = deque(maxlen=REMEMBERED)


class Counters:
    """The calls of one host, or of several that share it, since it was created."""

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self._tools: dict[str, _Counted] = {}

    def add(self, result: Result) -> None:
        """Count a call that has ended."""
        self.calls += 1
        self.errors += result.is_error
        counted = self._tools.get(result.tool)
        if counted is None:
            if not result.plugin or len(self._tools) >= MOST_TOOLS:
                return
            counted = self._tools[result.tool] = _Counted()
        counted.calls += 1
        counted.errors += result.is_error
        counted.durations.append(result.duration_ms)

    def paces(self) -> list[Durations]:
        """Return every tool that was called, slowest first."""
        from statistics import median  # takes a millisecond to import, and only people who look need it

        found = [
            Durations(name, one.calls, one.errors, round(median(one.durations), 1), round(max(one.durations), 1))
            for name, one in self._tools.items()
        ]
        return sorted(found, key=lambda pace: -pace.median_ms)
