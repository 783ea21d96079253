"""`logs`: what a plugin wrote to stderr, and how its runs ended."""

import os
import sys
import time

from anyplug.errors import AnyplugError, PluginNotFound
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session

POLL_S = 0.2  # while following
SHOWN = 200  # lines


def _logs(parser: Parser) -> Command:
    parser.add_argument("name", metavar="NAME", help="the plugin's name")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as the log grows, until interrupted")
    parser.add_argument("-n", type=int, default=SHOWN, metavar="N", help=f"the last N lines (default {SHOWN})")
    return show_logs


COMMANDS = {"logs": _logs}


class NoLog(AnyplugError):
    """The log cannot be read."""

    code = "unavailable"


def show_logs(session: Session) -> int:
    """Print the end of a log, and go on if asked to."""
    path = _path(session)
    lines = _tail(path, session.options.n)
    if session.options.json:
        session.print_json({"path": path, "lines": lines})
        return 0
    if not lines and not session.options.follow:
        session.note(f"nothing was logged yet in {path}")
    for line in lines:
        print(line)
    if session.options.follow:
        _follow(path)
    return 0


def _path(session: Session) -> str:
    name = session.options.name
    try:
        return session.catalog.home.log(session.plugin(name).name)
    except PluginNotFound:
        path = session.catalog.home.log(os.path.basename(name))
        if os.path.exists(path):
            return path  # the plugin is gone, its log is not
        raise


def _tail(path: str, count: int) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()[-count:] if count > 0 else []
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NoLog(f"cannot read {path}: {error.strerror}", "check the file's permissions") from error


def _follow(path: str) -> None:
    """Print what is appended, also after the log was rotated."""
    place, inode = (os.path.getsize(path), os.stat(path).st_ino) if os.path.exists(path) else (0, 0)
    while True:
        sys.stdout.flush()
        time.sleep(POLL_S)
        if not os.path.exists(path):
            continue
        found = os.stat(path)
        if found.st_ino != inode or found.st_size < place:
            place, inode = 0, found.st_ino
        if found.st_size > place:
            with open(path, encoding="utf-8", errors="replace") as file:
                file.seek(place)
                sys.stdout.write(file.read())
                place = file.tell()
