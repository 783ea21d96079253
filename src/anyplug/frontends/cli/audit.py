"""`audit`: the record of all calls."""

import argparse
import re
import time

from anyplug.audit import Audit, Record
from anyplug.errors import CODES, FAILED
from anyplug.frontends.cli import render
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session
from anyplug.shapes import audit_shape

SHOWN = 50  # records
OUTCOMES = ("done", "lost", *CODES)
SPAN = re.compile(r"(\d{1,6})([smhdw])")
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def _audit(parser: Parser) -> Command:
    parser.add_argument("--verify", action="store_true", help="check that no record was changed or removed")
    parser.add_argument("--plugin", dest="of_plugin", default="", metavar="NAME", help="only calls of this plugin")
    parser.add_argument("--tool", default="", metavar="NAME", help="only calls of this tool")
    parser.add_argument(
        "--outcome",
        default="",
        choices=OUTCOMES,
        metavar="CODE",
        help="only calls that ended so: done, lost or an error code",
    )
    parser.add_argument(
        "--by", default="", metavar="NAME", help="only what this guard or policy decided or changed; or: person, host"
    )
    parser.add_argument(
        "--since", type=_moment, default=0.0, metavar="WHEN", help="only calls since then: 2h or 3d ago, or a date"
    )
    parser.add_argument("-n", type=_number, default=SHOWN, metavar="N", help=f"the last N records (default {SHOWN})")
    return audit


COMMANDS = {"audit": _audit}


def audit(session: Session) -> int:
    """Show the trail, or verify it."""
    trail = Audit(session.catalog.store)
    trail.recover()  # what a killed host had under way is on record from the first look on
    if session.options.verify:
        return _verify(session, trail)
    options = session.options
    wanted = {"plugin": options.of_plugin, "tool": options.tool, "outcome": options.outcome, "by": options.by}
    records = trail.records(**wanted, since=options.since, limit=options.n)
    if options.json:
        session.print_json([audit_shape(item) for item in records])
        return 0
    if not records:
        is_choosing = options.since or any(wanted.values())
        print("No recorded call fits." if is_choosing else "No calls are recorded.")
        return 0
    rows = [
        (
            str(item.number),
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(item.record.at)),
            item.record.outcome,
            f"{item.record.duration_ms:.0f} ms",
            item.record.verdict or "-",
            item.record.by or "-",
            item.record.tool,
        )
        for item in records
    ]
    remarks = [_remarks(item.record) for item in records]
    render.table(("#", "WHEN", "OUTCOME", "TOOK", "VERDICT", "BY", "TOOL"), rows, remarks)
    return 0


def _remarks(record: Record) -> list[str]:
    """Say which plugins led to a call, why it was refused, and who rewrote or noted something or was passed over."""
    return [
        *([f"called by: {' > '.join(record.callers)}"] if record.callers else []),
        *([f"because: {record.reason}"] if record.verdict == "denied" else []),
        *record.notes,
    ]


def _number(given: str) -> int:
    """Read how many records are wanted."""
    if not given.isdecimal() or not int(given):
        raise argparse.ArgumentTypeError(f"'{given}' is not a number of records, which begins at 1")
    return int(given)


def _moment(given: str) -> float:
    """Read a moment: so long ago, or a date, in the time of this machine unless it says another."""
    if span := SPAN.fullmatch(given):
        return time.time() - int(span[1]) * UNITS_S[span[2]]
    from datetime import datetime  # only for those who name a date

    try:
        return datetime.fromisoformat(given).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        form = "neither a span such as 30m, 2h or 3d nor a date such as 2026-01-31 or 2026-01-31T18:00"
        raise argparse.ArgumentTypeError(f"'{given}' is {form}") from error


def _verify(session: Session, trail: Audit) -> int:
    count, broken = trail.verify()
    if session.options.json:
        places = [{"number": place.number, "reason": place.reason} for place in broken]
        session.print_json({"records": count, "intact": not broken, "broken": places})
    elif broken:
        for place in broken:
            print(f"record {place.number}: {place.reason}")
        where = render.count(len(broken), "place")
        render.error(
            f"the chain of {render.count(count, 'record')} is broken in {where}",
            f"{session.catalog.store.path} was changed by something else than anyplug; compare it with a backup",
        )
    else:
        print(f"{render.count(count, 'record')}, the chain is intact")
    return FAILED if broken else 0
