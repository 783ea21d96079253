"""What was measured, as a table for people and as a file to compare with later."""

import os
import platform
import time

import msgspec
from rich.console import Console
from rich.table import Table

from bench.measure import Plan, Row

RESULTS = os.path.join(os.path.dirname(__file__), "results", "latest.json")
VERDICTS = {True: "met", False: "not met", None: ""}


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table(title="What anyplug costs: medians of one run, in turns with what they are compared to")
    for heading in ("measured", "", "against", "", "ratio", "aim", ""):
        table.add_column(heading, justify="left" if heading in {"measured", "against"} else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.what,
            f"{row.measured:,.2f} {row.unit}",
            row.against,
            "" if row.baseline is None else f"{row.baseline:,.2f} {row.unit}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            "" if row.aim is None else f"≤ {row.aim:g}",
            VERDICTS[row.met],
        )
    console = Console()
    Console(width=max(console.width, 140)).print(table)


def circumstances(plan: Plan) -> str:
    """Return what it was measured on, as a sentence."""
    load, cpus = os.getloadavg()[2], os.cpu_count()
    return (
        f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())} with Python {platform.python_version()} and Linux "
        f"{platform.release()}, on {cpus} processors with a load of {load:.0f}"
        f"{', in few rounds (`--quick`)' if plan.quick else ''}."
    )


def keep(rows: list[Row], plan: Plan) -> str:
    """Write the results down; give the path of the file."""
    results = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "quick": plan.quick,
        "rows": [
            {**msgspec.structs.asdict(row), "ratio": row.ratio and round(row.ratio, 3), "met": row.met} for row in rows
        ],
    }
    os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
    with open(RESULTS, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    return RESULTS
