"""A rate limit: so many at once, and so many per second after that. Pure: its users say what time it is."""


class Bucket:
    """A token bucket that refills over time."""

    __slots__ = ("_level", "_rate", "_size", "_when")

    def __init__(self, rate: float, size: float, now: float) -> None:
        self._rate, self._size = rate, size
        self._level, self._when = size, now

    def take(self, now: float) -> float:
        """Take one token and return 0; or take none and return the seconds until there is one."""
        level = min(self._size, self._level + (now - self._when) * self._rate)
        self._when = now
        if level < 1:
            self._level = level
            return (1 - level) / self._rate
        self._level = level - 1
        return 0.0

    def is_full(self, now: float) -> bool:
        """Return whether it is as full as a new one."""
        return self._level + (now - self._when) * self._rate >= self._size
