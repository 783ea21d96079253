"""How many random examples the property-based tests try: a quarter in every run, all of them with `make random`."""

import os

LONG_FORM = "ANYPLUG_LONG_TESTS"
FEWEST = 6


def at_most(number: int) -> int:
    """Return how many examples to try, of the number that the long form tries."""
    return number if os.environ.get(LONG_FORM) else max(min(number, FEWEST), number // 4)
