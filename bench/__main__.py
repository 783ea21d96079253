"""`python -m bench [--quick]`: measures everything in a temporary folder, and leaves nothing there."""

import argparse
import contextlib
import os
import sys
import tempfile

import anyio

from bench import (
    calls,
    chat,
    confined_calls,
    confinement,
    console,
    discovery,
    fleet_calls,
    http_calls,
    many_installed,
    mcp_server,
    memory,
    plots,
    policy,
    rego,
    report,
    resident,
    sessions,
    snapshots,
    startup,
    warm_calls,
    workbench,
)
from bench.measure import NORMAL, QUICK, Plan, Row

PARTS = {
    "calls": calls,
    "confinement": confinement,
    "confined": confined_calls,
    "warm": warm_calls,
    "snapshots": snapshots,
    "sessions": sessions,
    "workbench": workbench,
    "mcp": mcp_server,
    "resident": resident,
    "http": http_calls,
    "console": console,
    "discovery": discovery,
    "start": startup,
    "memory": memory,
    "many": many_installed,
    "rego": rego,
    "policy": policy,
    "chat": chat,
    "fleet": fleet_calls,
}
UNSET = (
    "ANYPLUG_HOME", "ZOT_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",  # where a person's own plugins may be
    "PYTHONDONTWRITEBYTECODE",  # an installed package has its bytecode
)  # fmt: skip


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure what anyplug costs, as ratios within one run.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: seconds in place of minutes")
    parser.add_argument("--docs", action="store_true", help="put the table and a picture into the documentation")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which parts: {', '.join(PARTS)} (all)")
    options = parser.parse_args()
    wanted = options.parts or list(PARTS)
    if unknown := [part for part in wanted if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    plan = QUICK if options.quick else NORMAL
    for name in UNSET:
        os.environ.pop(name, None)
    # Outside /tmp, as people's homes are: where plugins have a /tmp of their own, more would have to be mounted.
    with tempfile.TemporaryDirectory(prefix="anyplug-bench-", dir="/var/tmp") as folder, contextlib.chdir(folder):
        os.environ["HOME"] = folder  # nobody's own plugins are found, and nothing of theirs is touched
        rows = anyio.run(_measure, wanted, folder, plan)
    report.show(rows)
    print(f"kept in {report.keep(rows, plan)}")
    if options.docs:
        plots.into_docs(rows, report.circumstances(plan))
        print(f"drawn into {plots.PICTURE}, and written into {plots.PAGE}")


async def _measure(wanted: list[str], folder: str, plan: Plan) -> list[Row]:
    found: list[Row] = []
    for part in wanted:
        place = os.path.join(folder, part)
        os.makedirs(place)
        try:
            found += await PARTS[part].rows(place, plan)
        except Exception as error:  # noqa: BLE001 - what was measured before took minutes, and the rest may work
            print(f"{part} failed: {type(error).__name__}: {error}", file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
