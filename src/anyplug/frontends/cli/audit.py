"""`audit`: the record of all calls."""

import time

from anyplug.audit import Audit
from anyplug.errors import FAILED
from anyplug.frontends.cli import render
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session
from anyplug.shapes import audit_shape

SHOWN = 50  # records


def _audit(parser: Parser) -> Command:
    parser.add_argument("--verify", action="store_true", help="check that no record was changed or removed")
    parser.add_argument("--plugin", dest="of_plugin", default="", metavar="NAME", help="only calls of this plugin")
    parser.add_argument("--tool", default="", metavar="NAME", help="only calls of this tool")
    parser.add_argument("-n", type=int, default=SHOWN, metavar="N", help=f"the last N records (default {SHOWN})")
    return audit


COMMANDS = {"audit": _audit}


def audit(session: Session) -> int:
    """Show the trail, or verify it."""
    trail = Audit(session.catalog.store)
    trail.recover()  # what a killed host had under way is on record from the first look on
    if session.options.verify:
        return _verify(session, trail)
    options = session.options
    records = trail.records(plugin=options.of_plugin, tool=options.tool, limit=max(1, options.n))
    if options.json:
        session.print_json([audit_shape(item) for item in records])
        return 0
    if not records:
        print("No calls are recorded.")
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
    render.table(("#", "WHEN", "OUTCOME", "TOOK", "VERDICT", "BY", "TOOL"), rows)
    return 0


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
