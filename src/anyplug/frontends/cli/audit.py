"""`audit`: the record of all calls and decisions: show, count, export, verify and remove records."""

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from anyplug.audit.audit_log import CALL, TRUST, Audit, Numbered, Record
from anyplug.audit.record_pages import ENDED_WELL, REFUSED, moment
from anyplug.audit.record_search import NOBODY, Wanted, caller, shown_tool
from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.cli_run import Session, refuse
from anyplug.frontends.cli.fleet_command import add_connection
from anyplug.frontends.cli.parsing import Command, Parser, whole
from anyplug.frontends.json_output import audit_shape
from anyplug.model.errors import CODES, FAILED, UsageError
from anyplug.model.untrusted_text import escaped_json, for_people

if TYPE_CHECKING:
    from collections import Counter

SHOWN = 50  # records on a page, unless -n says otherwise
TOP = 8  # rows of each part of a summary
NAME = 60  # characters of a row's name in a summary
BAR = 24  # characters of the longest bar
LARGEST_HEAD = 4096  # bytes read of a saved head
OUTCOMES = ("done", "allowed", "asked", "modified", *CODES)
ACTIONS = ("summary", "export", "prune", "verify")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet computes
MB = 1_000_000  # bytes


class _Actions(tuple[str, ...]):
    """The actions; the number of a record stands for showing it."""

    __slots__ = ()

    def __contains__(self, given: object) -> bool:
        return super().__contains__(given) or str(given).removeprefix("#").isdecimal()


def _audit(parser: Parser) -> Command:
    parser.add_argument(
        "action",
        nargs="?",
        choices=_Actions(ACTIONS),
        metavar="ACTION|NUMBER",
        help="a record's number: show it whole; summary: count records; export: print all as lines; "
        "prune: remove old ones; verify: same as --verify",
    )
    parser.add_argument(
        "-n", type=whole("a number of records"), metavar="N", help=f"the last N records (default: {SHOWN} in a table)"
    )
    _filters(parser)
    parser.add_argument("--fleet", dest="of_fleet", action="store_true", help="the records of all hosts of the fleet")
    parser.add_argument("--verify", action="store_true", help="check that no record was changed or removed")
    _action_options(parser)
    add_connection(parser, " of --fleet")
    return audit


def _filters(parser: Parser) -> None:
    """Declare the options that choose records."""
    parser.add_argument(
        "--kind",
        default="",
        choices=(CALL, TRUST),
        metavar="call|trust",
        help="only calls, or only decisions about plugins: approve, grant, install, ...",
    )
    parser.add_argument(
        "--since",
        type=_moment,
        default=0.0,
        metavar="WHEN",
        help="only calls since then: 2h or 3d ago, yesterday, or a date",
    )
    parser.add_argument("--until", type=_moment, default=0.0, metavar="WHEN", help="only calls before then")
    parser.add_argument("--plugin", dest="of_plugin", default="", metavar="PLUGIN", help="only calls of this plugin")
    parser.add_argument("--tool", default="", metavar="TOOL", help="only calls of this tool")
    parser.add_argument(
        "--outcome",
        default="",
        choices=OUTCOMES,
        metavar="CODE",
        help="only calls with this outcome: done, lost, allowed, asked, modified or an error code",
    )
    parser.add_argument(
        "--by",
        default="",
        metavar="NAME",
        help="only calls that this guard or policy decided or changed; or: person, host; as BY shows it",
    )
    parser.add_argument("--caller", default="", metavar="NAME", help="only calls from there, as CALLER shows it")
    parser.add_argument("--agent", default="", metavar="NAME", help="only calls of agents with this in their name")
    parser.add_argument(
        "--project", default="", metavar="FOLDER", help="only calls made in this folder or below (. is this one)"
    )


def _action_options(parser: Parser) -> None:
    """Declare the options of single actions."""
    parser.rest.add_argument(
        "--format",
        choices=("jsonl", "csv"),
        default="jsonl",
        metavar="jsonl|csv",
        help="with export: JSON lines (default) or CSV",
    )
    parser.rest.add_argument(
        "--before", type=_moment, default=0.0, metavar="WHEN", help="with prune: remove older ones"
    )
    parser.rest.add_argument(
        "--keep-mb",
        type=whole("a number of megabytes"),
        metavar="N",
        help="with prune: keep only the newest N megabytes",
    )
    parser.rest.add_argument("--yes", action="store_true", help="with prune: do not ask")
    parser.rest.add_argument(
        "--against", metavar="FILE", help="with --verify: also check that this saved head is in the chain (- is stdin)"
    )
    parser.rest.add_argument("--head", action="store_true", help="print the chain's sealed head, to save it elsewhere")
    parser.rest.add_argument("--reseal", action="store_true", help="accept the chain as it is, after you examined it")


COMMANDS = {"audit": _audit}


def audit(session: Session) -> int:
    """Show the audit log, or do something else with it."""
    options = session.options
    if options.of_fleet:
        from anyplug.frontends.cli.fleet_trail import show_trail  # with the libraries for a fleet

        return show_trail(session, _wanted(session), SHOWN if options.n is None else options.n)
    trail = Audit(session.catalog.store, session.catalog.home.second_head(session.catalog.settings))
    trail.recover()  # so that the running calls of a killed host are listed from the start
    trail.settle()
    is_verified = options.verify or options.action == "verify"
    if options.against is not None and not is_verified:
        raise UsageError("--against needs --verify", "`anyplug audit --verify --against FILE`")
    if options.head:
        render.out(trail.head().decode().strip())
        return 0
    if options.reseal:
        trail.reseal()
        render.out("The chain is sealed as it is now.")
        return 0
    if is_verified:
        return _verify(session, trail, _kept(options.against))
    if options.action == "prune":
        return _prune(session, trail)
    if options.action is not None and options.action not in ACTIONS:
        return _show_one(session, trail, int(options.action.removeprefix("#")))
    wanted = _wanted(session)
    found = (item for item in trail.newest_first() if wanted.includes(item.record))
    if options.action == "summary":
        return _summary(session, islice(found, options.n), wanted)
    if options.action == "export":
        return _export(session, list(islice(found, options.n))[::-1])
    return _show(session, found, wanted)


def _wanted(session: Session) -> Wanted:
    options = session.options
    return Wanted(
        kind=options.kind,
        plugin=options.of_plugin,
        tool=options.tool,
        outcome=options.outcome,
        by=options.by,
        caller=options.caller,
        agent=options.agent,
        project=os.path.abspath(os.path.expanduser(options.project)) if options.project else "",
        since=options.since,
        until=options.until,
    )


def _show(session: Session, found: Iterator[Numbered], wanted: Wanted) -> int:
    options = session.options
    if options.json:
        session.print_json([audit_shape(item) for item in list(islice(found, options.n))[::-1]])
        return 0
    records = list(islice(found, options.n or SHOWN))[::-1]
    if not records:
        render.out("No calls are recorded." if wanted == Wanted() else "No recorded call matches.")
        return 0
    rows = [
        (
            str(item.number),
            _time(item.record.at),
            item.record.outcome,
            NOBODY if item.record.kind == TRUST else f"{item.record.duration_ms:.0f} ms",
            caller(item.record),
            item.record.by or NOBODY,
            shown_tool(item.record),
        )
        for item in records
    ]
    remarks = [_remarks(item.record) for item in records]
    render.table(("#", "WHEN", "OUTCOME", "TOOK", "CALLER", "BY", "TOOL"), rows, remarks)
    if options.n is None and (left := sum(1 for _ in found)):
        session.note(
            f"{render.count(left, 'older record')} not shown; `-n {left + len(records)}` shows all, "
            "`anyplug audit summary` counts them"
        )
    return 0


def _show_one(session: Session, trail: Audit, number: int) -> int:
    item = trail.one(number)
    if session.options.json:
        session.print_json(audit_shape(item))
        return 0
    record, held_by = item.record, item.record.held_by
    made_by = f"{record.attachment}, {record.agent}" if record.agent else record.attachment
    plugin = f"{record.plugin}, {record.format}" if record.format else record.plugin
    decided = f"{record.verdict} by {record.by}" if record.verdict and record.by else record.verdict or record.by
    render.fields([
        ("record", str(number)),
        ("when", _time(record.at)),
        ("decision" if record.kind == TRUST else "tool", shown_tool(record)),
        ("outcome", record.outcome),
        ("took", "" if record.kind == TRUST else f"{record.duration_ms:.0f} ms"),
        ("plugin", plugin),
        ("folder", record.folder),
        ("code", record.digest),
        ("caller", made_by),
        ("called by", " > ".join(record.callers)),
        ("project", record.project),
        ("decided", f"{decided}: {record.reason}" if record.reason else decided),
        ("notes", record.notes),
        ("confined", "" if held_by is None else ", ".join(held_by.layers) or "no"),
        ("arguments", record.arguments and f"SHA-256 {record.arguments}"),
        ("output", record.output and f"SHA-256 {record.output}"),
        ("worker", record.worker),
    ])  # fmt: skip
    return 0


def _summary(session: Session, found: Iterator[Numbered], wanted: Wanted) -> int:
    from anyplug.audit.record_search import counts  # only needed here

    first = last = 0.0
    number = 0

    def each() -> Iterator[Record]:
        nonlocal first, last, number
        for item in found:
            number += 1
            first, last = item.record.at, last or item.record.at
            yield item.record

    counted = counts(each())
    if session.options.json:
        parts = {name: dict(of.most_common()) for name, of in counted.items()}
        session.print_json({"records": number, "first": first or None, "last": last or None, "by": parts})
        return 0
    if not number:
        render.out("No calls are recorded." if wanted == Wanted() else "No recorded call matches.")
        return 0
    outcomes, decided = counted["outcome"], counted["decision"].total()
    refused = sum(count for name, count in outcomes.items() if name in REFUSED)
    failed = number - decided - refused - sum(count for name, count in outcomes.items() if name in ENDED_WELL)
    more = f", and {render.count(decided, 'decision')} about plugins" if decided else ""
    render.out(
        f"{render.count(number, 'record')} from {_time(first)} to {_time(last)}: "
        f"{refused} refused, {failed} failed{more}"
    )
    for name, of in counted.items():
        if of:
            render.out("")
            render.heading(name.upper())
            _bars(of)
    return 0


def _bars(counted: "Counter[str]") -> None:
    """Print a part of a summary, with a bar for each row."""
    rows = counted.most_common(TOP)
    names = [_shortened(render.line(name)) for name, _ in rows]
    wide = max(len(name) for name in names)
    block = "\u2588" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
    most = len(str(rows[0][1]))
    for name, (_, count) in zip(names, rows, strict=True):
        bar = block * max(1, round(BAR * count / rows[0][1]))
        render.trusted(f"  {name.ljust(wide)}  {count:>{most}}  {render.style('36', bar)}")
    if left := len(counted) - len(rows):
        render.out(f"  and {left} more; --json has all")


def _shortened(name: str) -> str:
    """Shorten a name to what fits; of a path the end matters."""
    if len(name) <= NAME:
        return name
    return f"...{name[3 - NAME :]}" if os.sep in name else f"{name[: NAME - 3]}..."


def _export(session: Session, records: list[Numbered]) -> int:
    """Print one record in each line, for another program."""
    if session.options.format == "jsonl":
        for item in records:
            render.trusted(escaped_json(msgspec.json.encode(audit_shape(item)).decode()))
        return 0
    columns = ("number", "time", *Record.__struct_fields__)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(columns)
    for item in records:
        values = {**audit_shape(item), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(item.record.at))}
        out.writerow([_cell(values[column]) for column in columns])
    return 0


def _cell(value: object) -> object:
    """Return a value as a cell: several as one, and a text never as a formula, because agents choose names."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, dict):
        text = json.dumps(value, sort_keys=True)
    else:
        text = " > ".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")
        text = for_people(text, len(text) * render.ESCAPE)
    return f"'{text}" if text.startswith(FORMULA) else text


def _prune(session: Session, trail: Audit) -> int:
    options = session.options
    if not options.before and not options.keep_mb:
        raise UsageError(
            "prune needs --before or --keep-mb",
            "`anyplug audit prune --before 90d`; `keep_days` under [audit] in settings.toml does it every day",
        )
    if not options.yes:
        if not terminal.can_ask():
            refuse(
                "no record was removed: this is not a terminal", f"{session.again('--yes')} removes them without asking"
            )
        if not session.confirm("Remove old records for good? `anyplug audit export` saves them first."):
            refuse("no record was removed", "nothing was changed")
    removed = trail.remove_old(before=options.before, largest=(options.keep_mb or 0) * MB, by="person")
    if options.json:
        session.print_json({"removed": removed})
    else:
        render.out(f"{render.count(removed, 'record')} removed; `anyplug audit --verify` checks the rest")
    return 0


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _remarks(record: Record) -> list[str]:
    """Return which plugins led to a call, why it was refused, and who rewrote, annotated or skipped something."""
    return [
        *([f"called by: {' > '.join(record.callers)}"] if record.callers else []),
        *([f"because: {record.reason}"] if record.verdict in {"denied", "asked", "modified"} else []),
        *record.notes,
    ]


def _moment(given: str) -> float:
    """Parse a time: a span before now, or a date, in local time unless it names a zone."""
    try:
        return moment(given)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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
        if all(place.is_removed for place in broken):
            render.error(
                f"the chain of {render.count(count, 'record')} is intact, but that head is older than all of them",
                "keep a newer one for the next time: `anyplug audit --head` prints it",
            )
            return FAILED
        where = render.count(len(broken), "place")
        render.error(
            f"the chain of {render.count(count, 'record')} is broken in {where}",
            f"something other than anyplug changed {session.catalog.store.path} or the sealed head; compare them "
            "with a backup, then accept the chain with `anyplug audit --reseal`",
        )
    else:
        render.out(f"{render.count(count, 'record')}, the chain is intact")
    return FAILED if broken else 0
