"""Print a fleet, for `fleet status` and the demo."""

from typing import TYPE_CHECKING

from anyplug.frontends.cli import render

if TYPE_CHECKING:  # with the libraries for a fleet
    from anyplug.fleet.overview import FleetView


def show(view: "FleetView") -> None:
    """Print a fleet."""
    if not view.workers:
        render.out("no worker is up")
    else:
        rows = [
            (
                one.name,
                one.state + (", behind" if one.lag else ""),
                f"{one.running}/{one.places}",
                one.version,
                render.duration(one.uptime_s),
                " ".join(f"{name}={value}" for name, value in sorted(one.labels.items())),
            )
            for one in view.workers
        ]
        render.table(("WORKER", "STATE", "LOAD", "VERSION", "UP", "LABELS"), rows)
    if view.plugins:
        render.out("")
        rows = [
            (
                one.name,
                one.version or "-",
                one.state,
                one.digest[:12],
                ", ".join(one.workers) or "nobody",
                ", ".join(one.tools),
            )
            for one in view.plugins
        ]
        render.table(("PLUGIN", "VERSION", "STATE", "DIGEST", "WORKERS", "TOOLS"), rows)
    for worker in view.workers:
        for plugin, problem in worker.problems.items():
            if not any(one.name == plugin and one.state == "new" for one in view.plugins):
                render.out(f"{plugin} on {worker.name}: {problem}")
    for one in view.plugins:
        for name, tools in one.ignored.items():
            said = f"{one.name} on {name}: gateways ignore tools that are not approved as it describes them:"
            render.out(f"{said} {', '.join(tools)}")
    if any(one.ignored for one in view.plugins):
        render.out("`anyplug fleet approve PLUGIN` shows and approves them")
