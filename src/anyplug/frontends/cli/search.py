"""`search`: find plugins in the catalogues that the person configured. There is none by default."""

import shlex

import msgspec

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.manage import plugin_catalogues
from anyplug.manage.plugin_catalogues import Hit
from anyplug.model.errors import FAILED, InstallError, UsageError

MOST = 20  # hits that are shown


def _search(parser: Parser) -> Command:
    parser.add_argument("words", nargs="+", metavar="WORD", help="a word in the name or the description")
    parser.add_argument("--catalogue", default="", metavar="NAME", help="search only this catalogue")
    return search


COMMANDS = {"search": _search}


def search(session: Session) -> int:
    """Print what was found, and how to install it. A catalogue that fails does not hide the others."""
    options, catalogues = session.options, session.catalog.settings.catalogues
    if not catalogues:
        raise UsageError(
            "no catalogue is configured, and there is none by default",
            f'name one under [catalogues] in {session.catalog.home.settings}, such as team = "owner/repo"',
        )
    if options.catalogue and options.catalogue not in catalogues:
        raise UsageError(f"there is no catalogue '{options.catalogue}'", f"there is {', '.join(catalogues)}")
    hits: list[Hit] = []
    failed = False
    for name, location in catalogues.items():
        if options.catalogue in {"", name}:
            try:
                with session.progress(f"searching {name}"):
                    hits += plugin_catalogues.search(session.catalog.home, name, location, options.words)
            except InstallError as error:
                failed = True
                render.error(f"catalogue '{name}': {error.message}", session.reached(error.hint))
    hits.sort(key=lambda hit: -hit.score)
    if options.json:
        session.print_json([msgspec.to_builtins(hit) for hit in hits])
    else:
        _show(session, hits, " ".join(options.words))
    return FAILED if failed else 0


def _show(session: Session, hits: list[Hit], words: str) -> None:
    if not hits:
        render.out(f"Nothing was found for '{words}'.")
        return
    for hit in hits[:MOST]:
        render.out(render.line(f"{hit.name} {hit.version}".strip() + f" (in {hit.catalogue})"))
        if hit.description:
            render.out(f"  {render.line(hit.description)}")
        how = f"anyplug install {shlex.join(hit.install)}" if hit.install else "its catalogue does not say how"
        render.out(f"  {render.line(how)}")
    if len(hits) > MOST:
        session.note(f"{len(hits) - MOST} more; {session.again('--json')} lists all")
