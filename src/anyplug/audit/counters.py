"""How many calls there were, how they ended, and how long each tool took: for people who look at a host that is up."""

from collections import deque
from statistics import median

import msgspec

from anyplug.model.types import Result

REMEMBERED = 200  # durations of each tool, the newest
MOST_TOOLS = 1_000  # beyond them, those that were never found could fill the memory


class Pace(msgspec.Struct, frozen=True):
    """How long a tool took."""

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


class Tally:
    """The calls of one host, or of several that share it, since it was made."""

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

    def paces(self) -> list[Pace]:
        """Return every tool that was called, the slowest first."""
        found = [
            Pace(name, one.calls, one.errors, round(median(one.durations), 1), round(max(one.durations), 1))
            for name, one in self._tools.items()
        ]
        return sorted(found, key=lambda pace: -pace.median_ms)
