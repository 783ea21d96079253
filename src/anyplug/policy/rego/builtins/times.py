"""Time: nanoseconds since 1970, in Go's layouts and in time zones."""

import datetime as dt
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from anyplug.policy.rego.builtins import layouts
from anyplug.policy.rego.builtins.registry import ANY, NUMBER, STRING, builtin, need_integer, wrong
from anyplug.policy.rego.errors import BuiltinError

NUMERIC: Final[frozenset[Any]] = frozenset({int, Decimal})
SECOND: Final = 1_000_000_000
LEAST, MOST = -(1 << 63), (1 << 63) - 1
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}


def _bounded(nanoseconds: int) -> int:
    if not LEAST <= nanoseconds <= MOST:
        msg = "time outside of valid range"
        raise BuiltinError(msg)
    return nanoseconds


def zone(name: str) -> dt.tzinfo:
    """Give a time zone by name. Raises BuiltinError."""
    if name in {"", "UTC"}:
        return dt.UTC
    if name == "Local":
        return dt.datetime.now().astimezone().tzinfo or dt.UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = f"unknown time zone {name}"
        raise BuiltinError(msg) from None


def _stamp(value: Any) -> int:
    """Read nanoseconds."""
    if value.__class__ not in NUMERIC:
        raise wrong(1, "number", value)
    if abs(value) < MOST and value != int(value):
        return need_integer(1, value)
    if not LEAST <= value <= MOST:
        msg = "timestamp too big"
        raise BuiltinError(msg)
    return int(value)


def _when(value: Any) -> tuple[dt.datetime, int, str]:
    """Read what most of these take: nanoseconds, or these with a zone and maybe a layout."""
    layout = ""
    place: dt.tzinfo = dt.UTC
    if value.__class__ is tuple:
        if not value:
            raise wrong(1, "either number (ns) or [number (ns), string (tz)]", value)
        if len(value) > 1:
            if value[1].__class__ is not str:
                raise wrong(1, "string (tz)", value[1])
            place = zone(value[1])
        if len(value) > 2:  # noqa: PLR2004 - nanoseconds, zone, layout
            if value[2].__class__ is not str:
                raise wrong(1, "string (layout)", value[2])
            layout = value[2]
        value = value[0]
    elif value.__class__ not in NUMERIC:
        raise wrong(1, "either number (ns) or [number (ns), string (tz)]", value)
    return _local(_stamp(value), place), _stamp(value) % SECOND, layout


def _local(nanoseconds: int, place: dt.tzinfo) -> dt.datetime:
    seconds = nanoseconds // SECOND
    return (EPOCH + dt.timedelta(seconds=seconds)).astimezone(place)


def nanoseconds(moment: dt.datetime, rest: int) -> int:
    """Give a moment as nanoseconds. Raises BuiltinError."""
    since = moment - EPOCH
    return _bounded((since.days * 86_400 + since.seconds) * SECOND + rest)


@builtin("time.now_ns", context=True, impure=True)
def now_ns(context: Any) -> Any:
    """Give the time at which the evaluation began to ask."""
    return context.now.setdefault("time", time.time_ns())


@builtin("time.parse_rfc3339_ns", STRING)
def parse_rfc3339_ns(text: Any) -> Any:
    """Read a time as RFC 3339 has it."""
    moment, rest = layouts.parse("2006-01-02T15:04:05Z07:00", text)
    return nanoseconds(moment, rest)


@builtin("time.parse_ns", STRING, STRING)
def parse_ns(layout: Any, text: Any) -> Any:
    """Read a time in a layout of Go's."""
    moment, rest = layouts.parse(layouts.NAMED.get(layout, layout), text)
    return nanoseconds(moment, rest)


@builtin("time.parse_duration_ns", STRING)
def parse_duration_ns(text: Any) -> Any:
    """Read a duration such as 1h30m."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return 0
    total = Fraction(0)
    if not rest:
        msg = f'time: invalid duration "{text}"'
        raise BuiltinError(msg)
    while rest:
        size = 0
        while size < len(rest) and rest[size] in "0123456789.":
            size += 1
        number, rest = rest[:size], rest[size:]
        size = 0
        while size < len(rest) and rest[size] not in "0123456789.":
            size += 1
        unit, rest = rest[:size], rest[size:]
        if not number.strip(".") or number.count(".") > 1 or not number.isascii():
            msg = f'time: invalid duration "{text}"'
            raise BuiltinError(msg)
        if unit not in UNITS:
            what = f'unknown unit "{unit}" in' if unit else "missing unit in"
            msg = f'time: {what} duration "{text}"'
            raise BuiltinError(msg)
        total += Fraction(number.removesuffix(".") if number != "." else "0") * UNITS[unit]
    if total > MOST:
        msg = f'time: invalid duration "{text}"'
        raise BuiltinError(msg)
    return sign * int(total)


@builtin("time.format", ANY)
def format_(value: Any) -> Any:
    """Write a time."""
    moment, rest, layout = _when(value)
    return layouts.format(layouts.NAMED.get(layout, layout) or layouts.NAMED["RFC3339Nano"], moment, rest)


@builtin("time.date", ANY)
def date(value: Any) -> Any:
    """Give year, month and day."""
    moment, _, _ = _when(value)
    return (moment.year, moment.month, moment.day)


@builtin("time.clock", ANY)
def clock(value: Any) -> Any:
    """Give hour, minute and second."""
    moment, _, _ = _when(value)
    return (moment.hour, moment.minute, moment.second)


@builtin("time.weekday", ANY)
def weekday(value: Any) -> Any:
    """Name the day of the week."""
    moment, _, _ = _when(value)
    return DAYS[moment.weekday()]


@builtin("time.add_date", NUMBER, ANY, ANY, ANY)
def add_date(value: Any, years: Any, months: Any, days: Any) -> Any:
    """Add years, months and days; what goes beyond a month's end goes on into the next."""
    moment, rest, _ = _when(value)
    month = moment.month - 1 + need_integer(3, months)
    year = moment.year + need_integer(2, years) + month // 12
    try:
        first = moment.replace(year=year, month=month % 12 + 1, day=1)
        return nanoseconds(first + dt.timedelta(days=moment.day - 1 + need_integer(4, days)), rest)
    except (ValueError, OverflowError):
        msg = "time outside of valid range"
        raise BuiltinError(msg) from None


@builtin("time.diff", ANY, ANY)
def diff(left: Any, right: Any) -> Any:
    """Give the years, months, days, hours, minutes and seconds between two times."""
    one, first, _ = _when(left)
    other, second, _ = _when(right)
    other = other.astimezone(one.tzinfo)
    if (one, first) > (other, second):
        one, other, first, second = other, one, second, first
    parts = [
        other.year - one.year, other.month - one.month, other.day - one.day, other.hour - one.hour,
        other.minute - one.minute, other.second - one.second,
    ]  # fmt: skip
    if second < first:
        parts[5] -= 1
    for index, size in ((5, 60), (4, 60), (3, 24)):
        if parts[index] < 0:
            parts[index] += size
            parts[index - 1] -= 1
    if parts[2] < 0:
        # days of the month in which the first time lies, as OPA counts
        following = dt.date(one.year + one.month // 12, one.month % 12 + 1, 1)
        parts[2] += (following - dt.date(one.year, one.month, 1)).days
        parts[1] -= 1
    if parts[1] < 0:
        parts[1] += 12
        parts[0] -= 1
    return tuple(parts)
