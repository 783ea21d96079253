"""`/records` and `/stats`: what was called, page by page and as numbers over time."""

from typing import Any

import anyio.to_thread

from anyplug.audit import record_pages, record_stats
from anyplug.audit.record_search import Wanted
from anyplug.frontends.console import api_types as types
from anyplug.frontends.console import record_shapes
from anyplug.frontends.console.api_errors import NothingHere
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.endpoints import PAGING, Endpoint, Query
from anyplug.model.errors import UsageError

DAY = "1d"
MOST_BUCKETS = 500


async def list_records(request: ApiRequest) -> dict[str, Any]:
    """Return records, the newest first."""
    audit, limit = request.host.audit, request.limit
    wanted, words = _wanted(request), request.text("q")
    cursor = request.number("cursor", 0, 0, 1 << 62)
    audit.commit()  # on the event loop, as calls do
    page = await anyio.to_thread.run_sync(lambda: record_pages.page(audit, wanted, words, cursor, limit))
    items = [record_shapes.record_shape(item.record, item.number) for item in page.items]
    return {"items": items, "next": str(page.next) if page.next else None}


async def show_record(request: ApiRequest) -> dict[str, Any]:
    """Return one record, by its number or by the id of its call."""
    name = request.values["record"]
    found = request.host.audit.find(name)
    if found is None:
        raise NothingHere(f"there is no record '{name}'", "a call is recorded when it has ended")
    return record_shapes.record_shape(found.record, found.number)


async def show_stats(request: ApiRequest) -> Any:
    """Return calls, errors and latencies over time."""
    audit = request.host.audit
    since, until = _moment(request, "since", DAY), _moment(request, "until", "")
    wanted = Wanted(tool=request.text("tool"), plugin=request.text("plugin"), since=since, until=until)
    buckets = request.number("buckets", 60, 1, MOST_BUCKETS)
    audit.commit()
    return await anyio.to_thread.run_sync(lambda: record_stats.stats(audit, wanted, buckets))


def _wanted(request: ApiRequest) -> Wanted:
    return Wanted(
        kind=request.text("kind"),
        tool=request.text("tool"),
        plugin=request.text("plugin"),
        outcome=request.text("outcome"),
        by=request.text("by"),
        caller=request.text("caller"),
        agent=request.text("agent"),
        project=request.text("project"),
        since=_moment(request, "since", ""),
        until=_moment(request, "until", ""),
    )


def _moment(request: ApiRequest, name: str, default: str) -> float:
    given = request.text(name) or default
    if not given:
        return 0.0
    try:
        return record_pages.moment(given)
    except ValueError as error:
        raise UsageError(f"the parameter '{name}' is not a time: {error}", "") from error


FILTERS = (
    Query("tool", "only calls of this tool"),
    Query("plugin", "only calls of this plugin"),
    Query("since", "only calls since then: seconds since 1970, 2h, 3d, today, or a date"),
    Query("until", "only calls before then"),
)

ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/records",
        name="listRecords",
        for_tokens=True,
        about="List recorded calls, the newest first",
        handle=list_records,
        answer=types.Records,
        queries=(
            *FILTERS,
            Query("kind", "`call` for calls, `trust` for decisions about plugins"),
            Query("outcome", "only calls with this outcome: done, an error code, `failed` or `refused`"),
            Query("by", "only calls that this guard, policy or person decided about"),
            Query("caller", "only calls of this caller"),
            Query("agent", "only calls of agents with this in their name"),
            Query("project", "only calls made in this folder or below"),
            Query("q", "only records that contain this text"),
            *PAGING,
        ),
    ),
    Endpoint(
        method="GET",
        path="/records/{record}",
        name="showRecord",
        for_tokens=True,
        about="Show one record by its number, or by the id of its call",
        handle=show_record,
        answer=types.Record,
    ),
    Endpoint(
        method="GET",
        path="/stats",
        name="showStats",
        for_tokens=True,
        about="Show calls, errors and latencies by tool over time",
        handle=show_stats,
        answer=record_stats.Stats,
        queries=(*FILTERS, Query("buckets", "into how many parts the time is divided (1 to 500)", "integer")),
    ),
]
