"""`audit`: the record of all calls."""

import argparse
import re
import sys
import time

from anyplug.audit.audit_log import Audit, Record
from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import audit_shape
from anyplug.model.errors import CODES, FAILED, UsageError

SHOWN = 50  # records
LARGEST_HEAD = 4096  # bytes read of a saved head
OUTCOMES = ("done", "lost", "asked", "modified", *CODES)
SPAN = re.compile(r"(\d{1,6})([smhdw])")
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def _audit(parser: Parser) -> Command:
    parser.add_argument("-n", type=_number, default=SHOWN, metavar="N", help=f"the last N records (default: {SHOWN})")
    parser.add_argument(
        "--since", type=_moment, default=0.0, metavar="WHEN", help="only calls since then: 2h or 3d ago, or a date"
    )
    parser.add_argument("--plugin", dest="of_plugin", default="", metavar="PLUGIN", help="only calls of this plugin")
    parser.add_argument("--tool", default="", metavar="TOOL", help="only calls of this tool")
    parser.add_argument(
        "--outcome",
        default="",
        choices=OUTCOMES,
        metavar="CODE",
        help="only calls with this outcome: done, lost, asked, modified or an error code",
    )
    parser.add_argument(
        "--by",
        default="",
        metavar="NAME",
        help="only calls that this guard or policy decided or changed; or: person, host",
    )
    parser.add_argument("--verify", action="store_true", help="check that no record was changed or removed")
    parser.rest.add_argument(
        "--against", metavar="FILE", help="with --verify: also check that this saved head is in the chain (- is stdin)"
    )
    parser.rest.add_argument("--head", action="store_true", help="print the chain's sealed head, to save it elsewhere")
    parser.rest.add_argument("--reseal", action="store_true", help="accept the chain as it is, after you examined it")
    return audit


COMMANDS = {"audit": _audit}


def audit(session: Session) -> int:
    """Show the audit log, or verify it."""
    options = session.options
    trail = Audit(session.catalog.store, session.catalog.home.second_head(session.catalog.settings))
    trail.recover()  # so that the running calls of a killed host are listed from the start
    if options.against is not None and not options.verify:
        raise UsageError("--against needs --verify", "`anyplug audit --verify --against FILE`")
    if options.head:
        render.out(trail.head().decode().strip())
        return 0
    if options.reseal:
        trail.reseal()
        render.out("The chain is sealed as it is now.")
        return 0
    if options.verify:
        return _verify(session, trail, _kept(options.against))
    wanted = {"plugin": options.of_plugin, "tool": options.tool, "outcome": options.outcome, "by": options.by}
    records = trail.records(**wanted, since=options.since, limit=options.n)
    if options.json:
        session.print_json([audit_shape(item) for item in records])
        return 0
    if not records:
        is_choosing = options.since or any(wanted.values())
        render.out("No recorded call matches." if is_choosing else "No calls are recorded.")
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
    """Return which plugins led to a call, why it was refused, and who rewrote, annotated or skipped something."""
    return [
        *([f"called by: {' > '.join(record.callers)}"] if record.callers else []),
        *([f"because: {record.reason}"] if record.verdict in {"denied", "asked", "modified"} else []),
        *record.notes,
    ]


def _number(given: str) -> int:
    """Parse a number of records."""
    if not given.isdecimal() or not int(given):
        raise argparse.ArgumentTypeError(f"'{given}' is not a number of records (1 or more)")
    return int(given)


def _moment(given: str) -> float:
    """Parse a time: a span before now, or a date, in local time unless it names a zone."""
    if span := SPAN.fullmatch(given):
        return time.time() - int(span[1]) * UNITS_S[span[2]]
    from datetime import datetime  # only needed for a date

    try:
        return datetime.fromisoformat(given).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        form = "neither a span such as 30m, 2h or 3d nor a date such as 2026-01-31 or 2026-01-31T18:00"
        raise argparse.ArgumentTypeError(f"'{given}' is {form}") from error


def _kept(path: str | None) -> bytes:
    """Read a head that a person saved."""
    if path is None:
        return b""
    try:
        if path == "-":
            return sys.stdin.buffer.read(LARGEST_HEAD)
        with open(path, "rb") as file:
            return file.read(LARGEST_HEAD)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", "pass a file with the output of `anyplug audit --head`"
        ) from error


def _verify(session: Session, trail: Audit, kept: bytes) -> int:
    count, broken = trail.verify(kept)
    if session.options.json:
        places = [{"number": place.number, "reason": place.reason} for place in broken]
        session.print_json({"records": count, "intact": not broken, "broken": places})
    elif broken:
        for place in broken:
            render.out(f"record {place.number}: {place.reason}")
        where = render.count(len(broken), "place")
        render.error(
            f"the chain of {render.count(count, 'record')} is broken in {where}",
            f"something other than anyplug changed {session.catalog.store.path} or the sealed head; compare them "
            "with a backup, then accept the chain with `anyplug audit --reseal`",
        )
    else:
        render.out(f"{render.count(count, 'record')}, the chain is intact")
    return FAILED if broken else 0
