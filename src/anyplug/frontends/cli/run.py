"""`run` and `reload`: run slash commands, and restart plugins in the daemon."""

from anyplug.frontends.cli import render
from anyplug.frontends.cli.call import add_json_arguments, add_yes, invoke
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.model.errors import AnyplugError


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


class NoDaemon(AnyplugError):
    """The daemon is not running."""

    code = "unavailable"


def run(session: Session) -> int:
    """Run a slash command and print its action, or list all commands."""
    words = session.options.words
    return invoke(session, words, prefers_tool=False) if words else _list(session)


def reload(session: Session) -> int:
    """Restart plugins in the daemon."""
    if session.options.name:
        session.plugin(session.options.name)  # an unknown name is a separate error
    resident = session.attach()
    if resident is None:
        raise NoDaemon(
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
    from anyplug.frontends.cli.list import say_who_is_missing  # not needed to run a command

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
