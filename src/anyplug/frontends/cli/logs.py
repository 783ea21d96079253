"""`logs`: a plugin's stderr, and how its runs ended."""

import os
import time
from contextlib import ExitStack
from typing import BinaryIO

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser, whole
from anyplug.home import plugin_logs, untrusted_files
from anyplug.model.errors import AnyplugError, PluginNotFound, UsageError

POLL_S = 0.2  # while following
SHOWN = 200  # lines


def _logs(parser: Parser) -> Command:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="print new lines as they are written, until interrupted"
    )
    parser.add_argument(
        "-n",
        type=whole("a number of lines", 0),
        default=SHOWN,
        metavar="N",
        help=f"the last N lines (default: {SHOWN})",
    )
    return show_logs


COMMANDS = {"logs": _logs}


class NoLog(AnyplugError):
    """The log cannot be read."""

    code = "unavailable"


def show_logs(session: Session) -> int:
    """Print the end of a log, and follow it if requested."""
    options, path = session.options, _path(session)
    if options.json and options.follow:
        raise UsageError("--json and --follow cannot be combined", "leave one of them out")
    with ExitStack() as stack:
        file = _open(path)
        lines = _tail(path, stack.enter_context(file) if file else None, options.n)
        if options.json:
            session.print_json({"path": path, "lines": lines})
            return 0
        if not lines and not options.follow:
            session.note(f"the log {path} is empty")
        for line in lines:
            render.stream(line)
        if options.follow:
            _follow(path, stack.pop_all(), file)
    return 0


def _path(session: Session) -> str:
    name = session.options.name
    try:
        return session.catalog.home.log(session.plugin(name).plugin)
    except PluginNotFound:
        path = session.catalog.home.log_named(os.path.basename(name))
        if os.path.exists(path):
            return path  # the plugin is gone, but not its log
        raise


def _open(path: str) -> BinaryIO | None:
    """Open a log; None if there is none yet. Raises NoLog."""
    try:
        return open(untrusted_files.linked(path), "rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoLog(f"cannot read {path}: {error.strerror}", "check the file's permissions") from error


def _tail(path: str, file: BinaryIO | None, count: int) -> list[str]:
    """Return the last lines of a log; if it was recently rotated, some are in the older ones."""
    lines = _lines(file) if file else []
    for name in plugin_logs.generations(path)[1:]:
        if len(lines) >= count:
            break
        older = _open(name)
        if older is not None:
            with older:
                lines = _lines(older) + lines
    return lines[-count:] if count > 0 else []


def _lines(file: BinaryIO) -> list[str]:
    return file.read().decode(errors="replace").splitlines()


def _follow(path: str, opened: ExitStack, file: BinaryIO | None) -> None:
    """Print what is appended, also after a rotation: the rest of the old log comes first."""
    begun = b""  # an incomplete line
    with opened:
        while True:
            is_over = file is not None and _age(path, file) != 0
            if file is not None:
                *lines, begun = (begun + file.read()).split(b"\n")
                for line in lines:
                    render.stream(line.decode(errors="replace"))
            if file is None or is_over:
                successor = _successor(path, file) if file else _open(path)
                opened.close()
                file = successor
                if file is not None:
                    opened.enter_context(file)
            if not is_over:
                time.sleep(POLL_S)


def _successor(path: str, file: BinaryIO) -> BinaryIO | None:
    """Open the successor of a rotated log: a busy plugin fills several between two polls."""
    names = plugin_logs.generations(path)
    while True:
        age = _age(path, file)
        found = _open(names[age - 1] if age else path)
        if age == _age(path, file):
            return found
        if found is not None:  # it was rotated in between, so this may be a later one
            found.close()


def _age(path: str, file: BinaryIO) -> int | None:
    """Return how often a log was rotated since a file had its name; None if it is no longer kept."""
    own = os.fstat(file.fileno())
    for age, name in enumerate(plugin_logs.generations(path)):
        try:
            if os.path.samestat(os.stat(name), own):
                return age
        except FileNotFoundError:
            continue
    return None
