"""`run` and `reload`: run slash commands, and restart plugins in the daemon."""

from typing import TYPE_CHECKING

from anyplug.frontends.cli import render
from anyplug.frontends.cli.call import add_json_arguments, add_yes, invoke
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import command_shape
from anyplug.model.errors import CODES, AnyplugError
from anyplug.peers.notices import lines_of

if TYPE_CHECKING:
    from anyplug.call.slash_commands import CommandOutcome


def _run(parser: Parser) -> Command:
    parser.epilog = (
        "A tool works here too: `anyplug run TOOL KEY=VALUE` does what `anyplug call TOOL KEY=VALUE` does,\n"
        "unless a slash command has the same name."
    )
    parser.add_argument(
        "words",
        nargs="*",
        default=[],
        metavar="COMMAND",
        help="the slash command as you would type it; without one, list all of them",
    )
    add_yes(parser)
    add_json_arguments(parser.rest)
    return run


def _reload(parser: Parser) -> Command:
    parser.add_argument("name", nargs="?", metavar="PLUGIN", help="restart only this plugin")
    return reload


COMMANDS = {"run": _run, "reload": _reload}


class NoResidentHost(AnyplugError):
    """The daemon is not running."""

    code = "unavailable"


def run(session: Session) -> int:
    """Run a slash command and print its action, or list all commands."""
    words = session.options.words
    return invoke(session, words, prefers_tool=False) if words else _list(session)


def reload(session: Session) -> int:
    """Restart plugins in the daemon."""
    if session.options.name:
        session.plugin(session.options.name)  # a name that leads nowhere is an error of its own
    resident = session.attach()
    if resident is None:
        raise NoResidentHost(
            "the daemon is not running, so there is nothing to reload",
            "without it, every command reads the plugins again; `anyplug serve --detach` starts it",
        )
    with resident:
        said = resident.reload(session.options.name or "")
    if session.options.json:
        session.print_json({"reloaded": session.options.name, "said": said})
    else:
        render.out(*said.splitlines())
    return 0


def _list(session: Session) -> int:
    from anyplug.frontends.cli.list import say_who_is_missing  # what is only run needs none of it

    snapshot = session.running_snapshot()
    runnable = [(command, entry) for command, entry in snapshot.commands.values() if entry.state == "approved"]
    rows = [(f"/{command.name}", entry.name, command.description) for command, entry in runnable]
    if session.options.json:
        session.print_json([dict(zip(("command", "plugin", "description"), row, strict=True)) for row in rows])
    elif rows:
        render.table(("COMMAND", "PLUGIN", "DESCRIPTION"), rows)
    else:
        render.out("No slash commands are available.")
    return say_who_is_missing(session, snapshot)


def report_command(session: Session, outcome: "CommandOutcome") -> int:
    """Print what a slash command asks for; return the exit code."""
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
    """Print an action with its text; of a panel its title, its lines and its footer, one below the other."""
    text = outcome.text
    if outcome.panel is not None:
        text = "\n".join(filter(None, (outcome.panel.title, *outcome.panel.lines, outcome.panel.footer)))
    if outcome.action == "noop":
        render.out(outcome.action)
    else:
        first, *more = text.split("\n", 1)
        render.out(f"{outcome.action}: {first or '(empty)'}")
        if more:
            render.stream(more[0])
