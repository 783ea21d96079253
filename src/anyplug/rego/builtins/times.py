"""Time: nanoseconds since 1970, in Go's layouts and in time zones."""

import datetime as dt
import re
import time
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from anyplug.rego.builtins import layouts
from anyplug.rego.builtins.builtin_table import ANY, STRING, builtin, need_integer, wrong
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported

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
HOURS: Final = {"d": 24, "w": 7 * 24, "y": 365 * 24}  # units that OPA has beyond Go's
_SEGMENT: Final = re.compile(r"([0-9.]+)(ms|us|µs|ns|[a-z])")
_EXTENDED: Final = re.compile(rf"[-+]?(?:{_SEGMENT.pattern})+")
_FLOAT: Final = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_AMOUNT: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
MAX_ADDED: Final = 1_000_000_000  # years, months or days: Go's integers overflow somewhere beyond
MOST_DIGITS: Final = 19  # of an integer of 64 bits


def _bounded(nanoseconds: int) -> int:
    if not LEAST <= nanoseconds <= MOST:
        msg = "time outside of valid range"
        raise BuiltinError(msg)
    return nanoseconds


def zone(name: str) -> dt.tzinfo:
    """Return a time zone by name. Raises BuiltinError."""
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
    """Return a moment as nanoseconds. Raises BuiltinError."""
    since = moment - EPOCH
    return _bounded((since.days * 86_400 + since.seconds) * SECOND + rest)


@builtin("time.now_ns", context=True, impure=True)
def now_ns(context: Any) -> Any:
    """Return the time at which the evaluation began to ask."""
    return context.now.setdefault("time", time.time_ns())


@builtin("time.parse_rfc3339_ns", STRING)
def parse_rfc3339_ns(text: Any) -> Any:
    """Read a time as in RFC 3339."""
    moment, rest = layouts.parse("2006-01-02T15:04:05Z07:00", text)
    return nanoseconds(moment, rest)


@builtin("time.parse_ns", STRING, STRING)
def parse_ns(layout: Any, text: Any) -> Any:
    """Read a time in a layout of Go's."""
    moment, rest = layouts.parse(layouts.NAMED.get(layout, layout), text)
    return nanoseconds(moment, rest)


def _unreadable(text: str) -> BuiltinError:
    return BuiltinError(f'time: invalid duration "{text}"')


def _in_hours(match: re.Match[str]) -> str:
    """Write a segment in days, weeks or years as hours, with the digits of a float, as OPA does."""
    digits, unit = match.groups()
    if unit not in HOURS:
        return match[0]
    if not _FLOAT.fullmatch(digits):
        raise _unreadable(match[0])
    return format(Decimal(repr(float(digits) * HOURS[unit])), "f") + "h"


@builtin("time.parse_duration_ns", STRING)
def parse_duration_ns(text: Any) -> Any:
    """Read a duration such as 1h30m or 2d."""
    plain = text
    if any(unit in text for unit in HOURS):
        if not _EXTENDED.fullmatch(text):
            raise _unreadable(text)
        plain = _SEGMENT.sub(_in_hours, text)
    sign = -1 if plain.startswith("-") else 1
    rest = plain[1:] if plain[:1] in {"-", "+"} else plain
    if rest == "0":
        return 0
    if not rest:
        raise _unreadable(text)
    total = at = 0
    while at < len(rest):
        match = _AMOUNT.match(rest, at)
        assert match is not None
        whole, fraction, unit = match[1], match[2] or "", match[3]
        if (not whole and not fraction) or len(whole.lstrip("0")) > MOST_DIGITS:
            raise _unreadable(text)
        if unit not in UNITS:
            what = f'unknown unit "{unit}" in' if unit else "missing unit in"
            msg = f'time: {what} duration "{text}"'
            raise BuiltinError(msg)
        total += int(whole or "0") * UNITS[unit] + _part(fraction, UNITS[unit])
        if total > MOST + 1:
            raise _unreadable(text)
        at = match.end()
    if total > MOST and sign > 0:
        raise _unreadable(text)
    return sign * total


def _part(digits: str, unit: int) -> int:
    """Return what a fraction of a unit is, in the arithmetic of floats that Go uses."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > MOST // 10 or value * 10 + int(digit) > MOST + 1:
            break
        value = value * 10 + int(digit)
        scale *= 10
    return int(float(value) * (float(unit) / scale)) if value else 0


@builtin("time.format", ANY)
def format_(value: Any) -> Any:
    """Write a time."""
    moment, rest, layout = _when(value)
    return layouts.format(layouts.NAMED.get(layout, layout) or layouts.NAMED["RFC3339Nano"], moment, rest)


@builtin("time.date", ANY)
def date(value: Any) -> Any:
    """Return year, month and day."""
    moment, _, _ = _when(value)
    return (moment.year, moment.month, moment.day)


@builtin("time.clock", ANY)
def clock(value: Any) -> Any:
    """Return hour, minute and second."""
    moment, _, _ = _when(value)
    return (moment.hour, moment.minute, moment.second)


@builtin("time.weekday", ANY)
def weekday(value: Any) -> Any:
    """Name the day of the week."""
    moment, _, _ = _when(value)
    return DAYS[moment.weekday()]


@builtin("time.add_date", ANY, ANY, ANY, ANY)
def add_date(value: Any, years: Any, months: Any, days: Any) -> Any:
    """Add years, months and days; what goes beyond a month's end goes on into the next."""
    moment, rest, _ = _when(value)
    if moment.tzinfo is not dt.UTC:
        msg = "time.add_date with a time zone"
        raise NotSupported(msg)
    for index, each in enumerate((years, months, days), 2):
        if abs(need_integer(index, each)) > MAX_ADDED:
            msg = f"time.add_date with more than {MAX_ADDED}"
            raise NotSupported(msg)
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
    """Return the years, months, days, hours, minutes and seconds between two times."""
    one, first, _ = _when(left)
    other, second, _ = _when(right)
    other = other.astimezone(one.tzinfo)
    if (one, first) > (other, second):
        one, other, first, second = other, one, second, first
    parts = [
        other.year - one.year, other.month - one.month, other.day - one.day, other.hour - one.hour,
        other.minute - one.minute, other.second - one.second,
    ]  # fmt: skip
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
