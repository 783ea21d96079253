"""`doctor`: test what this machine enforces by trying to escape."""

from typing import TYPE_CHECKING

import msgspec

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.model import hints
from anyplug.model.errors import FAILED

if TYPE_CHECKING:
    from anyplug.manage.machine_report import Layer, Report

SHOWN = {"open": "OPEN", "gap": "open, known", "blocked": "blocked"}  # worst first


def _doctor(parser: Parser) -> Command:
    parser.add_argument("--all", action="store_true", help="also list the escapes that are blocked")
    return doctor


COMMANDS = {"doctor": _doctor}


def doctor(session: Session) -> int:
    """Try everything and report what is enforced."""
    entries = session.running_snapshot().entries
    import anyio  # only commands that run something need it

    from anyplug.manage.machine_report import examine  # for the same reason

    with session.progress("trying all known ways to escape the sandbox"):
        report = anyio.run(examine, session.catalog, entries)
    if session.options.json:
        session.print_json(msgspec.to_builtins(report))
    else:
        _print(report, lists_all=session.options.all)
    return 0 if report.holds else FAILED


def _print(report: "Report", *, lists_all: bool) -> None:
    render.heading(_summary(report))
    render.out("")
    render.fields(
        [
            ("machine", f"{report.system}, Landlock {report.landlock or 'missing'}; you are {report.user}"),
            ("confinement", f"off, by {report.off_by}" if report.off_by else "on"),
            *((name.name, f"{name.path} ({name.version})" if name.path else "none") for name in report.programs),
            ("home", report.home + (f" (mode {report.home_mode})" if report.home_mode else " (not created yet)")),
            ("plugins", ", ".join(f"{count} {state}" for state, count in report.plugins.items()) or "none"),
        ]
    )
    for fault in report.faults:
        render.out("", f"{fault.level}: {render.line(fault.what)}")
        if fault.cure:
            render.out(f"  hint: {render.line(fault.cure)}")
    render.out("")
    render.table(("LAYER", "STATE", "WHAT IT ENFORCES"), [_row(layer) for layer in report.layers])
    worst_first = sorted(report.ways_out, key=lambda way: list(SHOWN).index(way.state))
    listed = [way for way in worst_first if lists_all or way.state != "blocked"]
    if listed:
        render.out("")
        rows = [(way.name, SHOWN[way.state], _last_words(way.answer)) for way in listed]
        render.table(("ESCAPE", "STATE", "THE KERNEL ANSWERED"), rows, ours=True)
    if len(listed) < len(worst_first):
        render.out("", f"{hints.command('doctor', '--all')} lists the escapes that are blocked.")


def _summary(report: "Report") -> str:
    held = sum(layer.held for layer in report.layers)
    shut = sum(way.state == "blocked" for way in report.ways_out)
    counts = f"{held} of {len(report.layers)} layers work, {shut} of {len(report.ways_out)} escapes are blocked"
    if report.off_by:
        return f"Permissions are NOT enforced: the sandbox is turned off. When it is on, {counts}."
    problems = [fault for fault in report.faults if fault.level == "problem"]
    if any(not fault.plugin for fault in problems):
        return f"Permissions are NOT enforced here ({render.count(len(problems), 'problem')}): {counts}."
    names = list(dict.fromkeys(fault.plugin for fault in problems))
    but = f", except for {', '.join(names)}" if names else ""
    return f"Permissions are enforced here{but}: {counts}."


def _row(layer: "Layer") -> tuple[str, str, str]:
    if layer.held:
        return layer.name, "works", layer.meaning
    return layer.name, "MISSING", f"{layer.meaning}. Missing: {layer.why}"


def _last_words(answer: str) -> str:
    """Return the end of a program's output, which is the kernel's error."""
    return answer.rpartition(": ")[2]
