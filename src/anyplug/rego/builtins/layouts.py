"""Go's layouts for times: the reference time Mon Jan 2 15:04:05 MST 2006 says how each part is written."""

import datetime as dt
import re
from typing import Any, Final

from anyplug.rego.values.rego_errors import BuiltinError, NotSupported

NAMED: Final = {
    "ANSIC": "Mon Jan _2 15:04:05 2006",
    "UnixDate": "Mon Jan _2 15:04:05 MST 2006",
    "RubyDate": "Mon Jan 02 15:04:05 -0700 2006",
    "RFC822": "02 Jan 06 15:04 MST",
    "RFC822Z": "02 Jan 06 15:04 -0700",
    "RFC850": "Monday, 02-Jan-06 15:04:05 MST",
    "RFC1123": "Mon, 02 Jan 2006 15:04:05 MST",
    "RFC1123Z": "Mon, 02 Jan 2006 15:04:05 -0700",
    "RFC3339": "2006-01-02T15:04:05Z07:00",
    "RFC3339Nano": "2006-01-02T15:04:05.999999999Z07:00",
}
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NANO: Final = 9  # digits
_PART: Final = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|2006|__2|_2006|_2|002|01|02|03|04|05|06|15|PM|pm"
    r"|-07:00:00|-070000|-07:00|-0700|-07|Z07:00:00|Z070000|Z07:00|Z0700|Z07|[.,]0+(?![0-9])|[.,]9+(?![0-9])|1|2|3|4|5"
)
_ZONE: Final = re.compile(r"([+-])(\d\d):?(\d\d)?:?(\d\d)?")
_DIGITS: Final[dict[str, tuple[str, str]]] = {
    "2006": ("year", r"\d{4}"), "01": ("month", r"\d{2}"), "1": ("month", r"\d{1,2}"), "02": ("day", r"\d{2}"),
    "2": ("day", r"\d{1,2}"), "_2": ("day", r" ?\d{1,2}"), "002": ("yday", r"\d{3}"), "__2": ("yday", r" {0,2}\d{1,3}"),
    "15": ("hour", r"\d{1,2}"), "03": ("hour12", r"\d{2}"), "3": ("hour12", r"\d{1,2}"), "04": ("minute", r"\d{2}"),
    "4": ("minute", r"\d{1,2}"), "05": ("second", r"\d{2}"), "5": ("second", r"\d{1,2}"), "06": ("year2", r"\d{2}"),
}  # fmt: skip


_NAMED_ZONE: Final = re.compile(
    r"UTC|GMT(?![+-]\d)|ChST|MeST|(?:GMT)?[+-](?P<hours>\d{1,18})(?!\d)|WITA(?![A-Z])|[A-Z]{3}(?:[A-Z]?T)?(?![A-Z])",
    re.ASCII,
)
UNKNOWN: Final = dt.timedelta(seconds=-1)  # what Go takes for no offset
NOON: Final = 12  # hour
MAX_HOURS: Final = 23  # between a zone and UTC


def format(layout: str, moment: dt.datetime, nanoseconds: int) -> str:
    """Write a moment."""
    return _PART.sub(lambda match: _written(match[0], moment, nanoseconds), layout)


def _written(part: str, moment: dt.datetime, nanoseconds: int) -> str:
    hour12 = moment.hour % 12 or 12
    plain = {
        "January": MONTHS[moment.month - 1], "Jan": MONTHS[moment.month - 1][:3], "Monday": DAYS[moment.weekday()],
        "Mon": DAYS[moment.weekday()][:3], "MST": moment.tzname() or "", "2006": f"{moment.year:04}",
        "_2006": f"_{moment.year:04}", "06": f"{moment.year % 100:02}", "01": f"{moment.month:02}",
        "1": str(moment.month), "02": f"{moment.day:02}", "_2": f"{moment.day:2}", "2": str(moment.day),
        "002": f"{moment.timetuple().tm_yday:03}", "__2": f"{moment.timetuple().tm_yday:3}",
        "15": f"{moment.hour:02}", "03": f"{hour12:02}", "3": str(hour12), "04": f"{moment.minute:02}",
        "4": str(moment.minute), "05": f"{moment.second:02}", "5": str(moment.second),
        "PM": "PM" if moment.hour >= 12 else "AM", "pm": "pm" if moment.hour >= 12 else "am",  # noqa: PLR2004 - noon
    }  # fmt: skip
    if part in plain:
        return plain[part]
    if part[0] in ".,":
        digits = f"{nanoseconds:0{NANO}}".ljust(len(part) - 1, "0")[: len(part) - 1]
        if part[1] == "9":
            digits = digits.rstrip("0")
        return part[0] + digits if digits else ""
    return _offset(part, moment)


def _offset(part: str, moment: dt.datetime) -> str:
    offset = moment.utcoffset() or dt.timedelta()
    seconds = int(offset.total_seconds())
    if part[0] == "Z" and not seconds:
        return "Z"
    sign = "-" if seconds < 0 else "+"
    hours, rest = divmod(abs(seconds), 3600)
    by = ":" if ":" in part else ""
    text = f"{sign}{hours:02}"
    if len(part) > 3:  # noqa: PLR2004 - more than the hours
        text += f"{by}{rest // 60:02}"
    if len(part) > 6:  # noqa: PLR2004 - seconds, too
        text += f"{by}{rest % 60:02}"
    return text


def parse(layout: str, text: str) -> tuple[dt.datetime, int]:
    """Read a moment: whole seconds, and the nanoseconds beyond. Raises BuiltinError."""
    found: dict[str, Any] = {}
    at = begin = 0
    for match in _PART.finditer(layout):
        at = _literal(layout[begin : match.start()], layout, text, at)
        following = layout[match.end() : match.end() + 1]
        at = _read(match[0], layout, text, at, found, following)
        begin = match.end()
    at = _literal(layout[begin:], layout, text, at)
    if at != len(text):
        msg = f'parsing time "{text}": extra text: "{text[at:]}"'
        raise BuiltinError(msg)
    return _moment(found, text)


def _refused(layout: str, text: str, at: int, part: str) -> BuiltinError:
    return BuiltinError(f'parsing time "{text}" as "{layout}": cannot parse "{text[at:]}" as "{part}"')


def _literal(literal: str, layout: str, text: str, at: int) -> int:
    for index, char in enumerate(literal):
        if char == " ":  # one or more, as many as there are
            if literal[index - 1 : index] == " ":
                continue
            if at < len(text) and text[at] != " ":
                raise _refused(layout, text, at, literal)
            while text[at : at + 1] == " ":
                at += 1
        elif text[at : at + 1] != char:
            raise _refused(layout, text, at, literal)
        else:
            at += 1
    return at


def _read(part: str, layout: str, text: str, at: int, found: dict[str, Any], following: str) -> int:  # noqa: C901 - one branch for each kind
    if part in _DIGITS:
        name, digits = _DIGITS[part]
        match = re.compile(digits, re.ASCII).match(text, at)
        if match is None:
            raise _refused(layout, text, at, part)
        found[name] = int(match[0])
        at = match.end()
        if name == "second" and following not in {".", ","}:  # a fraction may stand there though the layout has none
            match = re.compile(r"[.,](\d+)", re.ASCII).match(text, at)
            if match:
                found["nano"] = int(match[1][:NANO].ljust(NANO, "0"))
                at = match.end()
        return at
    if part in {"January", "Jan", "Monday", "Mon"}:
        names = MONTHS if part.startswith("J") else DAYS
        for index, name in enumerate(names):
            word = name if len(part) > 3 else name[:3]  # noqa: PLR2004 - the short names
            if text[at : at + len(word)].lower() == word.lower():
                if names is MONTHS:
                    found["month"] = index + 1
                return at + len(word)
        raise _refused(layout, text, at, part)
    if part in {"PM", "pm"}:
        half = text[at : at + 2]
        if half not in ({"AM", "PM"} if part == "PM" else {"am", "pm"}):
            raise _refused(layout, text, at, part)
        found["half"] = half.lower()
        return at + 2
    if part[0] in ".,":
        return _fraction(part, layout, text, at, found)
    if part == "MST":
        match = _NAMED_ZONE.match(text, at)
        if match is None or int(match["hours"] or 0) > MAX_HOURS:
            raise _refused(layout, text, at, part)
        if match[0] == "UTC":
            found["utc"] = True
        return match.end()
    if part == "_2006":
        return _read("2006", layout, text, _literal("_", layout, text, at), found, following)
    return _read_offset(part, layout, text, at, found)


def _fraction(part: str, layout: str, text: str, at: int, found: dict[str, Any]) -> int:
    match = re.compile(r"[.,](\d+)", re.ASCII).match(text, at)
    if part[1] == "9":
        if match is None:
            return at
    elif match is None or len(match[1]) != len(part) - 1:
        raise _refused(layout, text, at, part)
    assert match is not None
    found["nano"] = int(match[1][:NANO].ljust(NANO, "0"))
    return match.end()


def _read_offset(part: str, layout: str, text: str, at: int, found: dict[str, Any]) -> int:
    if part[0] == "Z" and text[at : at + 1] == "Z":
        found["utc"] = True
        return at + 1
    match = _ZONE.match(text, at)
    want = part.replace("Z", "-")
    if match is not None:
        size = len(want)
        piece = text[at : at + size]
        if len(piece) == size and all((a == ":") == (b == ":") for a, b in zip(piece, want, strict=True)):
            digits = piece[1:].replace(":", "")
            if digits.isdigit() and digits.isascii():
                hours, minutes, seconds = int(digits[:2]), int(digits[2:4] or 0), int(digits[4:6] or 0)
                if hours <= 24 and minutes <= 60 and seconds <= 60:  # noqa: PLR2004 - as Go, which takes 24:60
                    offset = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
                    found["offset"] = -offset if piece[0] == "-" else offset
                    return at + size
    raise _refused(layout, text, at, part)


def _moment(found: dict[str, Any], text: str) -> tuple[dt.datetime, int]:  # noqa: C901 - one branch for each part
    hour = found.get("hour", 0)
    if {"hour", "hour12"} <= set(found) or {"year", "year2"} <= set(found) or found.get("offset") == UNKNOWN:
        msg = "a layout with two kinds of hours or years, or a time zone a second behind UTC"
        raise NotSupported(msg)
    if "hour12" in found:
        hour = found["hour12"]
        if hour > NOON:
            msg = f'parsing time "{text}": hour out of range'
            raise BuiltinError(msg)
        hour = hour % NOON if "half" in found else hour
    if found.get("half") == "pm" and hour < 12:  # noqa: PLR2004 - noon
        hour += 12
    elif found.get("half") == "am" and hour == 12:  # noqa: PLR2004 - midnight
        hour = 0
    year = found.get("year", 0)
    if "year2" in found:
        year = found["year2"] + (1900 if found["year2"] >= 69 else 2000)  # noqa: PLR2004 - as Go decides
    try:
        moment = dt.datetime(
            max(year, 1), found.get("month", 1), found.get("day", 1), hour, found.get("minute", 0),
            found.get("second", 0), tzinfo=dt.UTC,
        )  # fmt: skip
        if year < 1:
            msg = "time outside of valid range"
            raise BuiltinError(msg)
        if "yday" in found:
            if "month" in found or "day" in found:
                msg = "a layout with the day of the year beside the day of the month"
                raise NotSupported(msg)
            moment += dt.timedelta(days=found["yday"] - 1)
        offset = found.get("offset", dt.timedelta())
        return (moment if "utc" in found else moment - offset), found.get("nano", 0)
    except ValueError:
        msg = f'parsing time "{text}": day out of range'
        raise BuiltinError(msg) from None
    except OverflowError:
        msg = "time outside of valid range"
        raise BuiltinError(msg) from None
