"""`run` and `reload`: slash commands of extensions, and starting extensions anew."""

from typing import TYPE_CHECKING

from anyplug.errors import CODES, AnyplugError
from anyplug.frontends.cli import render
from anyplug.frontends.cli.call import terminal_attachment
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session
from anyplug.shapes import command_shape

if TYPE_CHECKING:
    from anyplug.commands import CommandOutcome
    from anyplug.host import Host
    from anyplug.notices import Note

GRACE_S = 0.1  # for notes that follow right behind a command's answer


def _run(parser: Parser) -> Command:
    parser.add_argument("line", metavar="COMMAND", help="the slash command as you would type it, in quotes")
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
    """Run a slash command and print what it asks for."""

    async def work(host: "Host") -> int:
        from anyio import sleep  # here already, with the host

        from anyplug.notices import Note  # likewise

        late: list[Note] = []
        attachment = terminal_attachment(session)
        outcome = await host.run_command(session.options.line, attachment=attachment)
        stop = host.listen(lambda notice: late.append(notice) if isinstance(notice, Note) else None)
        await sleep(GRACE_S)
        stop()
        return _report(session, outcome, [*outcome.notes, *late])

    return session.with_host(work)


def reload(session: Session) -> int:
    """Say what reloading means where no host stays up between commands."""
    if session.options.name:
        session.plugin(session.options.name)  # a name that leads nowhere is an error of its own
    raise NoResidentHost(
        "no host stays up between commands, so there is nothing to reload",
        "every command reads the plugins anew; in a program, `await host.reload()` starts extensions anew",
    )


def _report(session: Session, outcome: "CommandOutcome", notes: "list[Note]") -> int:
    if session.options.json:
        session.print_json(command_shape(outcome, notes))
    else:
        for note in notes:
            session.note(f"[{note.plugin}] {note.level}: {note.message}")
        if outcome.error is not None:
            render.error(outcome.error.message, outcome.error.hint)
        else:
            print(render.plain(f"{outcome.action}: {outcome.text}" if outcome.text else outcome.action))
    return CODES[outcome.error.code].exit if outcome.error else 0
