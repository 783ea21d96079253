"""Waits for what comes by itself."""

from collections.abc import Callable
from typing import Any

import anyio

PATIENCE_S = 30.0  # for what happens in a moment, on a machine that has much else to do


async def until(is_so: Callable[[], Any]) -> None:
    """Wait until something is so; raises TimeoutError."""
    with anyio.fail_after(PATIENCE_S):
        while not is_so():
            await anyio.sleep(0.01)
