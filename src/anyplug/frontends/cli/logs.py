"""`logs`: what a plugin wrote to stderr, and how its runs ended."""

import os
import time
from contextlib import ExitStack
from typing import BinaryIO

from anyplug.errors import AnyplugError, PluginNotFound, UsageError
from anyplug.frontends.cli import render
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
    options, path = session.options, _path(session)
    if options.json and options.follow:
        raise UsageError("--json and --follow do not go together", "leave one of them out")
    with ExitStack() as stack:
        file = _open(path)
        lines = _tail(stack.enter_context(file), options.n) if file else []
        if options.json:
            session.print_json({"path": path, "lines": lines})
            return 0
        if not lines and not options.follow:
            session.note(f"nothing was logged yet in {path}")
        if lines:
            render.data("\n".join(lines))
        if options.follow:
            _follow(path, stack.pop_all(), file)
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


def _open(path: str) -> BinaryIO | None:
    """Open a log; None if there is none yet. Raises NoLog."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoLog(f"cannot read {path}: {error.strerror}", "check the file's permissions") from error


def _tail(file: BinaryIO, count: int) -> list[str]:
    lines = file.read().decode(errors="replace").splitlines()
    return lines[-count:] if count > 0 else []


def _follow(path: str, opened: ExitStack, file: BinaryIO | None) -> None:
    """Print what is appended, also after the log was rotated: what the old one still has comes first."""
    with opened:
        while True:
            is_over = file is not None and _is_rotated(path, file)
            if file is not None:
                print(render.harmless(file.read().decode(errors="replace")), end="", flush=True)
            if file is None or is_over:
                opened.close()
                file = _open(path)
                if file is not None:
                    opened.enter_context(file)
            if not is_over:
                time.sleep(POLL_S)


def _is_rotated(path: str, file: BinaryIO) -> bool:
    """Whether another file, or none, has the log's name now."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return True
