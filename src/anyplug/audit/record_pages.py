"""Pages of the audit's records: found by filters without loading all of them, and times as people write them."""

import re
import time
from typing import Final

import msgspec

from anyplug.audit.audit_log import Audit, Numbered, numbered
from anyplug.audit.record_search import Wanted

CHUNK: Final = 1_000  # records read at a time, in about a millisecond
MOST_READ: Final = 50_000  # records read for one page; the next page goes on from there
SPAN: Final = re.compile(r"(\d{1,6})([smhdw])")
SECONDS: Final = re.compile(r"\d{9,11}(?:\.\d+)?")  # since 1970
UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
DAYS: Final = {"today": 0, "yesterday": 1}  # in local time
REFUSED: Final = frozenset({"denied", "not_approved", "disabled", "not_enforceable"})
ENDED_WELL: Final = frozenset({"done", "allowed", "asked", "modified", "needs_answer"})
KINDS: Final = ("failed", "refused")  # of outcomes


class Page(msgspec.Struct, frozen=True):
    """Some records, the newest first. `next` is the number below which to go on; 0 at the end."""

    items: tuple[Numbered, ...]
    next: int = 0


def page(audit: Audit, wanted: Wanted, words: str, before: int, limit: int) -> Page:
    """Return the next records that are wanted and contain some words. Callable from any thread."""
    kind = wanted.outcome if wanted.outcome in KINDS else ""
    plain = msgspec.structs.replace(wanted, outcome="") if kind else wanted
    found: list[Numbered] = []
    sought, read = words.lower(), 0
    while read < MOST_READ and (rows := audit.before(before, CHUNK)):
        read += len(rows)
        is_old = bool(wanted.since)
        for number, raw in rows:
            before = number
            is_text = not sought or sought in _text(raw)
            if not is_text and not wanted.since:  # the time decides where to stop
                continue
            item = numbered(number, raw)
            is_old = is_old and item.record.at < wanted.since
            if is_text and plain.includes(item.record) and (not kind or kind_of(item.record.outcome) == kind):
                found.append(item)
                if len(found) == limit:
                    return Page(tuple(found), before if audit.before(before, 1) else 0)
        if len(rows) < CHUNK or is_old:  # all of these began before the time asked for, so the rest did too
            return Page(tuple(found))
    return Page(tuple(found), before if audit.before(before, 1) else 0)


def kind_of(outcome: str) -> str:
    """Return whether a call ended well (an empty string), `failed`, or was `refused`."""
    if outcome in ENDED_WELL:
        return ""
    return "refused" if outcome in REFUSED else "failed"


def moment(given: str) -> float:
    """Parse a time: seconds since 1970, a span before now, or a date, in local time unless it names a zone.

    Raises ValueError, with what is accepted.
    """
    if span := SPAN.fullmatch(given):
        return time.time() - int(span[1]) * UNITS_S[span[2]]
    from datetime import date, datetime, timedelta  # only needed for a date

    try:
        if given in DAYS:
            return datetime.fromisoformat((date.today() - timedelta(days=DAYS[given])).isoformat()).timestamp()  # noqa: DTZ011
        if SECONDS.fullmatch(given):
            return float(given)
        return datetime.fromisoformat(given).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        form = "neither a span such as 30m, 2h or 3d nor yesterday, nor a date such as 2026-01-31 or 2026-01-31T18:00"
        raise ValueError(f"'{given}' is {form}") from error


def _text(raw: bytes | str) -> str:
    return (raw if isinstance(raw, str) else raw.decode(errors="replace")).lower()  # a tamperer may have stored text
