"""How a cost is measured: what is compared runs in turns, and the medians are compared."""

import inspect
import statistics
import time
from collections.abc import Awaitable, Callable

import msgspec

Act = Callable[[], Awaitable[object] | object]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How often each thing is done."""

    quick: bool
    calls: int  # of a program that takes less than a millisecond
    scripts: int  # of one that takes tens of them
    loads: int  # of a thousand plugins
    many: int  # plugins, to see how loading grows; most of the time goes into writing them
    starts: int  # of the command line


QUICK = Plan(quick=True, calls=200, scripts=15, loads=5, many=3_000, starts=7)
NORMAL = Plan(quick=False, calls=2_000, scripts=150, loads=25, many=10_000, starts=60)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison."""

    what: str
    against: str
    measured: float
    baseline: float | None  # None where what it would be compared to is not here
    unit: str = "ms"
    aim: float | None = None  # the largest ratio that is good; None where the row only informs

    @property
    def ratio(self) -> float | None:
        """How many times the baseline it is."""
        return None if self.baseline is None else self.measured / self.baseline

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        return None if self.aim is None or self.ratio is None else self.ratio <= self.aim


async def medians(rounds: int, *acts: Act) -> list[float]:
    """Do everything in turns, so that what disturbs the machine disturbs all; give the medians in ms."""
    for act in acts:
        await _time(act)  # the first time pays for what is kept afterwards
    times: list[list[float]] = [[] for _ in acts]
    for _ in range(rounds):
        for taken, act in zip(times, acts, strict=True):
            taken.append(await _time(act))
    return [statistics.median(taken) for taken in times]


async def _time(act: Act) -> float:
    begun = time.perf_counter()
    result = act()
    if inspect.isawaitable(result):
        await result
    return (time.perf_counter() - begun) * 1000
