"""Print the outcome of a slash command."""

from typing import TYPE_CHECKING

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.json_output import command_shape
from anyplug.model.errors import CODES
from anyplug.peers.notices import lines_of

if TYPE_CHECKING:
    from anyplug.call.slash_commands import CommandOutcome


def report_command(session: Session, outcome: "CommandOutcome") -> int:
    """Print the outcome of a slash command; return the exit code."""
    if session.options.json:
        session.print_json(command_shape(outcome, list(outcome.notes)))
    else:
        for note in outcome.notes:
            for line in lines_of(note):
                session.note(line)
        if outcome.error is not None:
            render.error(outcome.error.message, outcome.error.hint)
        else:
            _print_said(outcome)
    return CODES[outcome.error.code].exit if outcome.error else 0


def _print_said(outcome: "CommandOutcome") -> None:
    """Print an action with its text; for a panel, its title, lines and footer."""
    text = outcome.text
    if outcome.panel is not None:
        text = "\n".join(filter(None, (outcome.panel.title, *outcome.panel.lines, outcome.panel.footer)))
    if outcome.action == "noop":
        render.out(outcome.action)
    else:
        first, *more = text.split("\n", 1)
        render.trusted(f"{outcome.action}: {render.in_colour(first) or '(empty)'}\n")
        if more:
            render.stream(more[0])
