"""`results`: print results that were too long for a model."""

import time

import msgspec

from anyplug.call.kept_results import KeptResult, KeptResults
from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser, whole
from anyplug.model.errors import UsageError


def _results(parser: Parser) -> Command:
    parser.add_argument("id", nargs="?", default="", metavar="ID", help="print this result")
    parser.add_argument(
        "--from", dest="offset", type=whole("a position", 0), default=0, metavar="N", help="begin at this character"
    )
    parser.add_argument(
        "--length", type=whole("a number of characters"), default=None, metavar="N", help="print this many characters"
    )
    return results


COMMANDS = {"results": _results}


def results(session: Session) -> int:
    """List kept results, or print one."""
    options, kept = session.options, KeptResults(session.catalog.home)
    kept.tidy(session.catalog.settings.results)
    if not options.id:
        if options.offset or options.length is not None:
            raise UsageError("--from and --length need the ID of a result", "`anyplug results` lists them")
        _list(session, kept.all())
        return 0
    about = kept.find(options.id)
    part = kept.read(options.id, options.offset, about.characters if options.length is None else options.length)
    if session.options.json:
        session.print_json(_shape(about) | {"offset": part.offset, "text": part.text})
    else:
        render.data(part.text)
    return 0


def _list(session: Session, found: list[KeptResult]) -> None:
    if session.options.json:
        session.print_json([_shape(one) for one in found])
    elif found:
        rows = [(one.id, _time(one), f"{one.characters:,}", one.tool) for one in found]
        render.table(("ID", "WHEN", "CHARACTERS", "TOOL"), rows)
    else:
        render.out("No results are kept. What is too long for a model is kept for a week.")


def _shape(one: KeptResult) -> dict[str, object]:
    shape: dict[str, object] = msgspec.to_builtins(one)
    del shape["lineage"]
    return shape


def _time(one: KeptResult) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.at))
