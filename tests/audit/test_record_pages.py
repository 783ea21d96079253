"""Pages and numbers of the audit: found without loading everything."""

import time

import pytest

from anyplug.audit import record_pages, record_stats
from anyplug.audit.audit_log import Audit, Record
from anyplug.audit.record_search import Wanted
from anyplug.home.database import Store
from rows import each_row


@pytest.fixture
def audit(tmp_path):
    store = Store(str(tmp_path / "anyplug.db"))
    yield Audit(store)
    store.close()


def fill(audit: Audit, count: int, begin: float = 0.0) -> None:
    start = begin or time.time() - count
    audit.gather(lambda *_: None)
    for number in range(count):
        audit.end(
            Record(
                call=f"c{number}",
                at=start + number,
                attachment="cli-1",
                tool="saw" if number % 2 else "axe",
                plugin="kit",
                verdict="allowed",
                outcome="denied" if number % 10 == 3 else "crashed" if number % 10 == 5 else "done",
                duration_ms=float(number),
            )
        )
    audit.commit()


def numbers(page: record_pages.Page) -> list[int]:
    return [item.number for item in page.items]


def test_pages_follow_one_another_and_end(audit):
    fill(audit, 25)
    first = record_pages.page(audit, Wanted(), "", 0, 10)
    second = record_pages.page(audit, Wanted(), "", first.next, 10)
    third = record_pages.page(audit, Wanted(), "", second.next, 10)
    assert numbers(first) == list(range(25, 15, -1))
    assert numbers(second) == list(range(15, 5, -1))
    assert numbers(third) == [5, 4, 3, 2, 1]
    assert third.next == 0


def test_a_full_last_page_has_nothing_after_it(audit):
    fill(audit, 10)
    assert record_pages.page(audit, Wanted(), "", 0, 10).next == 0


@each_row(
    ("wanted", "words", "found"),
    [
        ({"tool": "saw"}, "", 10),
        ({"outcome": "failed"}, "", 2),
        ({"outcome": "refused"}, "", 2),
        ({"outcome": "done"}, "", 16),
        ({}, "C19", 1),
        ({"plugin": "other"}, "", 0),
    ],
)
def test_filters_choose(audit, wanted, words, found):
    if not audit.find("c0"):
        fill(audit, 20)
    assert len(record_pages.page(audit, Wanted(**wanted), words, 0, 100).items) == found


def test_many_records_are_read_in_parts(audit, monkeypatch):
    monkeypatch.setattr(record_pages, "CHUNK", 7)
    monkeypatch.setattr(record_pages, "MOST_READ", 14)
    fill(audit, 40)
    cursor, found, pages = 0, [], 0
    while True:
        page = record_pages.page(audit, Wanted(tool="axe"), "", cursor, 100)
        found += numbers(page)
        pages += 1
        if not page.next:
            break
        cursor = page.next
    assert len(found) == 20
    assert pages > 1, "a page may have fewer items than asked for, and go on"


def test_a_record_is_found_by_its_number_or_its_call(audit):
    fill(audit, 3)
    assert audit.find("2").record.call == "c1"
    assert audit.find("c1").number == 2
    assert audit.find("99") is None
    assert audit.find("' OR 1=1") is None


def test_stats_count_by_tool_and_time(audit):
    begin = time.time() - 100
    fill(audit, 100, begin)
    stats = record_stats.stats(audit, Wanted(since=begin, until=begin + 100), 10)
    assert (stats.calls, stats.errors, stats.refused) == (100, 10, 10)
    assert stats.series.calls == [10] * 10
    assert len(stats.at) == 10
    assert [tool.tool for tool in stats.tools] == ["axe", "saw"]
    assert stats.tools[1].errors == 10
    assert stats.tools[1].longest == 99.0
    assert stats.outcomes == {"done": 80, "denied": 10, "crashed": 10}
    assert stats.callers == {"cli": 100}
    only = record_stats.stats(audit, Wanted(tool="saw", since=begin, until=begin + 100), 1)
    assert only.calls == 50
    assert only.series.p50 == [only.tools[0].p50]


def test_nothing_called_has_no_latency(audit):
    stats = record_stats.stats(audit, Wanted(since=time.time() - 60), 3)
    assert stats.calls == 0
    assert stats.series.p95 == [None, None, None]


@each_row(
    ("share", "value"),
    [(0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (0.0, 1.0), (1.0, 100.0)],
)
def test_percentiles_are_those_of_nearest_rank(share, value):
    assert record_stats.percentile([float(number) for number in range(1, 101)], share) == value


@each_row("given", ["2h", "today", "2026-01-31", "1795034472.6"])
def test_times_are_read_as_people_write_them(given):
    assert record_pages.moment(given) > 0


def test_other_times_are_refused():
    for given in ("soon", "1e9", "99999999999999", ""):
        with pytest.raises(ValueError, match="neither a span"):
            record_pages.moment(given)


def test_callers_and_plugins_of_many_calls_are_counted_by_their_short_names(audit):
    audit.gather(lambda *_: None)
    for number in range(1_200):
        audit.end(
            Record(
                call=f"c{number}",
                at=time.time() - 60,
                attachment=f"mcp-stdio:{number}",
                tool=f"tool-{number % 100}",
                plugin="kit" if number % 2 else "",
                outcome="done",
                duration_ms=float(number),
            )
        )
    audit.commit()
    told = record_stats.stats(audit, Wanted(since=time.time() - 3600), 10)
    assert (told.calls, told.callers, told.plugins) == (1_200, {"mcp": 1_200}, {"kit": 600, "-": 600})
    assert [tool.calls for tool in told.tools] == [12] * record_stats.MOST_TOOLS
    assert [tool.tool for tool in told.tools] == sorted(tool.tool for tool in told.tools)
    assert told.tools[0].longest == 1_100.0
