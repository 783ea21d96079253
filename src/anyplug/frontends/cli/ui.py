"""`ui`: open the console, the page where a person manages plugins, approves, runs and watches."""

import os
import sys
from typing import Any

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser, whole
from anyplug.frontends.cli.serve import NotUp
from anyplug.frontends.daemon.locate import Address, NotStarted, may_attach
from anyplug.home.settings import find_home
from anyplug.model.errors import UsageError

LAST_PORT = 65_535
EPILOG = """\
The page is served on this machine only, by the daemon, which is started if it is not running. The link works once and
for a minute: it lets a browser approve plugins and change everything, so give it to nobody."""


def _ui(parser: Parser) -> Command:
    parser.epilog = EPILOG
    parser.add_argument("--no-open", action="store_true", help="print the link instead of opening a browser")
    parser.add_argument(
        "--port",
        type=whole("a port", 0, LAST_PORT),
        metavar="N",
        help="serve at this port, if it is not served yet (default: a free one)",
    )
    return open_page


COMMANDS = {"ui": _ui}


def open_page(session: Session) -> int:
    """Open the console, which the daemon serves. Raises AnyplugError."""
    options = session.options
    if not may_attach():
        raise UsageError("the console needs the daemon, and ANYPLUG_RESIDENT=off says not to use one", "unset it")
    given = _opened(session)
    if options.json:
        session.print_json(given)
        return 0
    if options.no_open or not _opens_browser(given["link"]):
        render.out(given["link"])
        session.note("open this link in a browser within a minute; it works once")
    else:
        render.out(f"The console is open in your browser, at {given['url']}/")
    return 0


def _opened(session: Session) -> dict[str, Any]:
    """Start the daemon if there is none, and ask it for a link."""
    resident = session.attach("control")
    if resident is None:
        address = Address(find_home(session.options.home).path)
        try:
            with session.progress("starting the daemon"):
                address.start().close()
        except NotStarted as error:
            raise NotUp(f"the daemon did not start: {error}", error.hint or f"its log is {address.log}") from error
        resident = session.attach("control")
    if resident is None:
        raise NotUp("the daemon does not answer", "`anyplug status` shows its state")
    with resident:
        return resident.console(session.options.port)


def _opens_browser(link: str) -> bool:
    """Open a link in the person's browser; return False where there is none to see."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    import webbrowser  # takes 15 ms, and only this command needs it

    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False
