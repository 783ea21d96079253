"""Tests that check many rows of data, as one loop instead of one case for each row.

`@each_row` takes what `@pytest.mark.parametrize` takes. All rows run, in one process and with the same fixtures; the
test fails at the end and names every row that failed. Use it where a row needs no folder or process of its own.
"""

import contextlib
import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

FAILURES = (Exception, pytest.fail.Exception)


def each_row(names: str | tuple[str, ...], rows: Iterable[Any], ids: Iterable[Any] | None = None) -> Callable[..., Any]:
    """Run the test once for each row; `ids` are what to call the rows, else their values."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    listed = [row if len(keys) > 1 else (row,) for row in rows]
    labels = list(ids) if ids is not None else listed
    assert len(labels) == len(listed) > 0

    given = [(label, dict(zip(keys, row, strict=True))) for label, row in zip(labels, listed, strict=True)]

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def check(**fixtures: Any) -> None:
            failed: list[str] = []
            for label, row in given:
                with _collected(failed, label):
                    test(**fixtures, **row)
            assert not failed, "\n".join([f"{len(failed)} of {len(given)} rows failed", *failed])

        @functools.wraps(test)
        async def check_async(**fixtures: Any) -> None:
            failed: list[str] = []
            for label, row in given:
                with _collected(failed, label):
                    await test(**fixtures, **row)
            assert not failed, "\n".join([f"{len(failed)} of {len(given)} rows failed", *failed])

        looped: Any = check_async if inspect.iscoroutinefunction(test) else check
        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in keys]
        del looped.__wrapped__  # pytest would take the row's values for fixtures
        looped.__signature__ = signature.replace(parameters=others)
        return looped

    return decorate


@contextlib.contextmanager
def _collected(failed: list[str], label: Any) -> Iterator[None]:
    try:
        yield
    except FAILURES:
        failed.append(f"--- {label!r}\n{traceback.format_exc()}")
