"""Events are kept for a while, for those who come back."""

import anyio
import pytest

from anyplug.frontends.console import event_ring
from anyplug.frontends.console.event_ring import Ring

pytestmark = pytest.mark.anyio


async def test_events_are_read_from_where_one_was():
    ring = Ring()
    for number in range(5):
        ring.add("note", {"n": number})
    assert [event.number for event in ring.after(2)] == [3, 4, 5]
    assert ring.after(5) == []


async def test_who_was_away_for_too_long_starts_over():
    ring = Ring(most=3)
    for number in range(10):
        ring.add("note", {"n": number})
    assert [event.number for event in ring.after(7)] == [8, 9, 10]
    assert ring.after(6) is None
    assert ring.after(11) is None


async def test_an_id_of_an_earlier_run_is_unknown():
    ring = Ring()
    ring.add("note", {})
    assert ring.number_of(f"{ring.epoch}-1") == 1
    for name in ("", "1", f"{Ring().epoch}-1", f"{ring.epoch}-x", f"{ring.epoch}--1", f"{ring.epoch}-\u0661"):
        assert ring.number_of(name) is None


async def test_all_readers_are_woken():
    ring, woken = Ring(), []

    async def read() -> None:
        await ring.wait()
        woken.append(ring.last)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(read)
        await anyio.sleep(0.01)
        ring.add("note", {})
    assert woken == [1, 1]


async def test_too_large_an_event_only_says_that_something_happened(monkeypatch):
    monkeypatch.setattr(event_ring, "LARGEST", 100)
    ring = Ring()
    ring.add("note", {"text": "x" * 200})
    assert ring.after(0)[0].name == "reset"


async def test_the_size_of_all_events_is_limited(monkeypatch):
    monkeypatch.setattr(event_ring, "MOST_BYTES", 500)
    ring = Ring()
    for _ in range(100):
        ring.add("note", {"text": "x" * 90})
    assert len(ring.after(ring.last - 2)) == 2
    assert ring.after(50) is None


async def test_half_characters_do_not_break_a_stream():
    ring = Ring()
    ring.add("note", {"\ud800": ["\udfff"]})
    assert ring.after(0)[0].data.decode()
