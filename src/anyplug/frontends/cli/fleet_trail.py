"""`audit --fleet`: the records of all hosts of a fleet, and what is wrong with them."""

import time
from typing import TYPE_CHECKING

import anyio

from anyplug.audit.audit_log import Numbered
from anyplug.audit.record_search import Wanted
from anyplug.fleet import trail
from anyplug.fleet.nats_link import linked, need_libraries, own_credentials
from anyplug.frontends.cli import render
from anyplug.frontends.cli.fleet_command import connection
from anyplug.frontends.json_output import audit_shape
from anyplug.model.errors import FAILED

if TYPE_CHECKING:
    from anyplug.frontends.cli.cli_run import Session

CONNECT_S = 5.0  # a person waits for it


def show_trail(session: "Session", wanted: Wanted, most: int) -> int:
    """Verify the fleet's trail, and show its last records; with --verify, only what is wrong."""
    need_libraries()
    settings = connection(session)

    async def read() -> trail.Whole:
        async with linked(settings, own_credentials(settings), CONNECT_S) as link:
            return await trail.read(link)

    with session.progress("reading the fleet's trail"):
        whole = anyio.run(read)
    options = session.options
    found = [one for one in whole.records if wanted.includes(one.record)][-most:]
    is_verified = options.verify or options.action == "verify"
    if options.json:
        shown = [{"host": one.host, **audit_shape(Numbered(one.number, one.record))} for one in found]
        session.print_json(
            {"hosts": whole.hosts, "faults": whole.faults, **({} if is_verified else {"records": shown})}
        )
    elif is_verified:
        counted = ", ".join(f"{count} of {name}" for name, count in sorted(whole.hosts.items()))
        render.out(f"{len(whole.records)} records: {counted or 'none'}")
    else:
        rows = [
            (
                one.host,
                str(one.number),
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.record.at)),
                one.record.tool,
                one.record.outcome,
                one.record.worker or "-",
            )
            for one in found
        ]
        render.table(("HOST", "NUMBER", "WHEN", "TOOL", "OUTCOME", "WORKER"), rows)
    if not options.json:
        for fault in whole.faults:
            render.out(f"broken: {fault}")
        if is_verified and not whole.faults:
            render.out("all chains are intact")
    return FAILED if whole.faults else 0
