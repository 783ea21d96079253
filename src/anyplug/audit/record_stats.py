"""Numbers about the audit's records: calls, errors and latencies by tool over time."""

import math
import sys
import time
from array import array
from collections import Counter
from typing import Final

import msgspec

from anyplug.audit.audit_log import CALL, Audit, Record
from anyplug.audit.record_pages import CHUNK, kind_of
from anyplug.audit.record_search import Wanted, caller

MOST_READ: Final = 500_000  # records; older ones are left out, and the answer says so
MOST_TOOLS: Final = 50
MOST_NAMED: Final = 20  # callers, plugins, outcomes


class _Point(msgspec.Struct, gc=False):
    """The part of a record that is counted: decoding the rest would take longer than everything else."""

    at: float
    attachment: str
    tool: str
    kind: str = CALL
    plugin: str = ""
    agent: str = ""
    callers: tuple[str, ...] = ()
    outcome: str = ""
    duration_ms: float = 0.0


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers for each part of the time; latencies are null where nothing was called."""

    calls: list[int]
    errors: list[int]
    refused: list[int]
    p50: list[float | None]
    p95: list[float | None]


class ToolStats(msgspec.Struct, frozen=True, kw_only=True):
    """One tool."""

    tool: str
    plugin: str
    calls: int
    errors: int
    refused: int
    p50: float | None
    p95: float | None
    p99: float | None
    longest: float | None
    series: Series


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Latencies are those of calls that ran, in milliseconds."""

    since: float
    until: float
    bucket_s: float
    calls: int
    errors: int
    refused: int
    at: list[float]  # when each part of the time begins
    series: Series
    tools: list[ToolStats]  # the most called first
    outcomes: dict[str, int]
    callers: dict[str, int]
    plugins: dict[str, int]
    is_cut: bool = False  # older records were not counted


class _Columns:
    """The numbers of all records, one column for each: objects for each record would take too long, and much memory."""

    def __init__(self) -> None:
        self.tools: dict[str, int] = {}  # their numbers, in `tool`
        self.plugins: list[str] = []  # by the number of a tool
        self.kinds: dict[str, str] = {}  # by outcome, see `kind_of`
        self.tool, self.bucket, self.duration = array("I"), array("H"), array("d")
        self.outcome: list[str] = []
        self.plugin_counts = Counter[str]()
        self.caller_counts = Counter[tuple[tuple[str, ...], str, str]]()

    def add(self, bucket: int, point: _Point) -> None:
        number = self.tools.get(point.tool)
        if number is None:
            number = self.tools[point.tool] = len(self.plugins)
            self.plugins.append(point.plugin)
        if point.outcome not in self.kinds:
            self.kinds[point.outcome] = kind_of(point.outcome)
        self.tool.append(number)
        self.bucket.append(bucket)
        self.duration.append(point.duration_ms)
        self.outcome.append(sys.intern(point.outcome))
        self.plugin_counts[point.plugin] += 1
        self.caller_counts[point.callers, point.agent, point.attachment] += 1

    def callers(self) -> Counter[str]:
        counts = Counter[str]()
        for (callers, agent, attachment), count in self.caller_counts.items():
            one = Record(call="", at=0.0, attachment=attachment, tool="", agent=agent, callers=callers)
            counts[caller(one)] += count
        return counts


class _Counted:
    """The calls of one tool, or of all."""

    def __init__(self, buckets: int) -> None:
        self.calls, self.errors, self.refused = [0] * buckets, [0] * buckets, [0] * buckets
        self.durations: list[list[float]] = [[] for _ in range(buckets)]

    def add(self, bucket: int, kind: str, duration: float) -> None:
        self.calls[bucket] += 1
        if kind == "refused":
            self.refused[bucket] += 1
            return
        if kind:
            self.errors[bucket] += 1
        self.durations[bucket].append(duration)

    def series(self) -> Series:
        each = [sorted(durations) for durations in self.durations]
        return Series(
            calls=self.calls,
            errors=self.errors,
            refused=self.refused,
            p50=[percentile(one, 0.50) for one in each],
            p95=[percentile(one, 0.95) for one in each],
        )

    def shown(self, name: str, plugin: str) -> ToolStats:
        whole = sorted(duration for durations in self.durations for duration in durations)
        return ToolStats(
            tool=name,
            plugin=plugin,
            calls=sum(self.calls),
            errors=sum(self.errors),
            refused=sum(self.refused),
            p50=percentile(whole, 0.50),
            p95=percentile(whole, 0.95),
            p99=percentile(whole, 0.99),
            longest=whole[-1] if whole else None,
            series=self.series(),
        )


def stats(audit: Audit, wanted: Wanted, buckets: int) -> Stats:
    """Count the records since `wanted.since`. Callable from any thread."""
    until = wanted.until or time.time()
    since = min(wanted.since, until - 1)
    width = (until - since) / buckets
    columns, is_cut = _read(audit, msgspec.structs.replace(wanted, since=since, until=until), buckets)
    of_tools = Counter(columns.tool)
    most = sorted(columns.tools.items(), key=lambda item: (-of_tools[item[1]], item[0]))[:MOST_TOOLS]
    whole, tools = _Counted(buckets), {number: _Counted(buckets) for _, number in most}
    kinds = columns.kinds
    for number, bucket, outcome, duration in zip(
        columns.tool, columns.bucket, columns.outcome, columns.duration, strict=True
    ):
        kind = kinds[outcome]
        whole.add(bucket, kind, duration)
        if number in tools:
            tools[number].add(bucket, kind, duration)
    return Stats(
        since=since,
        until=until,
        bucket_s=width,
        calls=sum(whole.calls),
        errors=sum(whole.errors),
        refused=sum(whole.refused),
        at=[since + number * width for number in range(buckets)],
        series=whole.series(),
        tools=[tools[number].shown(name, columns.plugins[number]) for name, number in most],
        outcomes=dict(Counter(columns.outcome).most_common(MOST_NAMED)),
        callers=dict(columns.callers().most_common(MOST_NAMED)),
        plugins={name or "-": count for name, count in columns.plugin_counts.most_common(MOST_NAMED)},
        is_cut=is_cut,
    )


def _read(audit: Audit, wanted: Wanted, buckets: int) -> tuple[_Columns, bool]:
    """Read what is wanted in chunks; return also whether there was too much."""
    columns, width, since, until = _Columns(), (wanted.until - wanted.since) / buckets, wanted.since, wanted.until
    decoder, before, read = msgspec.json.Decoder(_Point), 0, 0
    while rows := audit.before(before, CHUNK):
        read += len(rows)
        before, is_old = rows[-1][0], True
        for _, raw in rows:
            try:
                point = decoder.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            is_old = is_old and point.at < since
            if since <= point.at < until and _is_wanted(point, wanted):
                columns.add(min(buckets - 1, max(0, int((point.at - since) / width))), point)
        if len(rows) < CHUNK or is_old:
            return columns, False
        if read >= MOST_READ:
            return columns, True
    return columns, False


def percentile(ordered: list[float], share: float) -> float | None:
    """Return the nearest-rank percentile of numbers in order; None if there are none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _is_wanted(point: _Point, wanted: Wanted) -> bool:
    return (
        point.kind == CALL
        and (not wanted.tool or point.tool == wanted.tool)
        and (not wanted.plugin or point.plugin == wanted.plugin)
    )
