"""`leftovers`: data of removed plugins, which no other plugin gets unless a person hands it over."""

import time
from typing import Any

from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.cli_run import Session, refuse
from anyplug.frontends.cli.parsing import Command, Parser, whole
from anyplug.manage.installer import Installer, explained
from anyplug.manage.leftover_data import Leftover, Leftovers
from anyplug.model.errors import UsageError


def _leftovers(parser: Parser) -> Command:
    parser.add_argument("name", nargs="?", default="", metavar="PLUGIN", help="the name of the removed plugin")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--give",
        type=whole("a number of the list"),
        metavar="N",
        help="hand over number N to the plugin that has this name now",
    )
    which.add_argument(
        "--delete", type=whole("a number of the list"), metavar="N", help="delete number N, with its secrets"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return leftovers


COMMANDS = {"leftovers": _leftovers}


def leftovers(session: Session) -> int:
    """List what removed plugins left; hand over or delete one of them."""
    options, left = session.options, Leftovers(session.catalog)
    found = left.of(options.name) if options.name else left.all()
    number = options.delete if options.give is None else options.give
    if number is None:
        _list(session, found)
        return 0
    if not options.name:
        raise UsageError("--give and --delete need the name of a plugin", "`anyplug leftovers` lists them")
    one = next((each for each in found if each.number == number), None)
    if one is None:
        raise UsageError(
            f"no plugin called '{options.name}' left data with the number {number}",
            f"`anyplug leftovers {options.name}` lists them",
        )
    if options.give is not None:
        _give(session, left, one)
    else:
        _ask(session, f"This deletes {_what(one)}, of {one.name} from {render.line(one.origin)}.", "Delete it?")
        with explained(f"delete what '{one.name}' left"):
            left.delete(one)
        _done(session, one, "deleted")
    return 0


def _give(session: Session, left: Leftovers, one: Leftover) -> None:
    plugin = session.plugin(one.name).plugin
    before = Installer(session.catalog).origin(plugin)
    now = before.source.shown if before is not None else plugin.path
    _ask(
        session,
        f"{one.name} from {render.line(now)} gets {_what(one)}, which {one.name} from {render.line(one.origin)} left.",
        "Hand it over?",
    )
    with explained(f"hand over to '{one.name}' what an earlier one left"):
        left.give(one, plugin, before.source if before is not None else None)
    _done(session, one, f"handed over to {plugin.path}")
    if one.secrets and not session.options.json:
        session.note(f"hint: `anyplug secret {one.name}` shows which secrets it is granted")


def _ask(session: Session, what: str, question: str) -> None:
    """Continue only if the person agrees."""
    if not session.options.json:
        terminal.say(what, fold=True)
    if session.options.yes:
        return
    if not terminal.can_ask():
        refuse("nothing was changed: this is not a terminal", f"{session.again('--yes')} continues without asking")
    if not session.confirm(question):
        refuse("nothing was changed", "`anyplug leftovers` lists them")


def _done(session: Session, one: Leftover, what: str) -> None:
    if session.options.json:
        session.print_json(_shape(one))
    else:
        render.out(f"the data that {one.name} left is {what}")


def _what(one: Leftover) -> str:
    return " and ".join([one.folder, *(f"the secret {name}" for name in one.secrets)])


def _list(session: Session, found: list[Leftover]) -> None:
    if session.options.json:
        session.print_json([_shape(one) for one in found])
    elif not found:
        render.out("No removed plugin left data.")
    else:
        rows = [(one.name, str(one.number), one.origin, _day(one), one.folder, ", ".join(one.secrets)) for one in found]
        render.table(("NAME", "N", "FROM", "REMOVED", "KEPT IN", "SECRETS"), rows)


def _day(one: Leftover) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(one.at)) if one.at else "?"


def _shape(one: Leftover) -> dict[str, Any]:
    return {
        "name": one.name,
        "number": one.number,
        "from": one.origin,
        "removed_at": one.at,
        "folder": one.folder,
        "secrets": list(one.secrets),
    }
