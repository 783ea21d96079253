"""`run` and `reload`: slash commands of extensions, and starting extensions anew."""

from typing import TYPE_CHECKING

from anyplug.frontends.cli import render
from anyplug.frontends.cli.call import terminal_attachment
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import command_shape
from anyplug.model.errors import CODES, AnyplugError
from anyplug.peers.notices import lines_of

if TYPE_CHECKING:
    from anyplug.call.slash_commands import CommandOutcome
    from anyplug.host.host import Host


def _run(parser: Parser) -> Command:
    parser.add_argument(
        "words",
        nargs="*",
        default=[],
        metavar="COMMAND",
        help="the slash command as you would type it; all that can be run are listed without one",
    )
    parser.add_argument("--yes", action="store_true", help="answer yes where a plugin of tier 2 asks")
    return run


def _reload(parser: Parser) -> Command:
    parser.add_argument("name", nargs="?", metavar="NAME", help="one plugin; all of them without it")
    return reload


COMMANDS = {"run": _run, "reload": _reload}


class NoResidentHost(AnyplugError):
    """There is nothing up that could be started anew."""

    code = "unavailable"


def run(session: Session) -> int:
    """Run a slash command and print what it asks for, or list all that there are."""
    if not session.options.words:
        return _list(session)
    line = " ".join(session.options.words)
    if (resident := session.attach(yes=session.options.yes)) is not None:
        with resident:
            return _report(session, resident.run(line))

    async def work(host: "Host") -> int:
        from anyplug.frontends.daemon.request_handlers import run_command  # with the host, which is here already

        return _report(session, await run_command(host, line, terminal_attachment(session)))

    return session.with_host(work)


def reload(session: Session) -> int:
    """Have the resident host start plugins anew."""
    if session.options.name:
        session.plugin(session.options.name)  # a name that leads nowhere is an error of its own
    resident = session.attach()
    if resident is None:
        raise NoResidentHost(
            "no host is up, so there is nothing to reload",
            "without one every command reads the plugins anew; `anyplug serve` keeps one up",
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
        render.out("No commands can be run.")
    return say_who_is_missing(session, snapshot)


def _report(session: Session, outcome: "CommandOutcome") -> int:
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
