"""The entry of the command line: finds the command's module, and imports nothing that it does not need.

Built on argparse, because a command line that is called often has to start fast: click costs 38 ms of a
start that is 14 ms without it.
"""

import os
import sys

from anyplug import __version__

INTERRUPTED = 130  # what shells give for SIGINT


def main() -> None:
    """Run a command and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Run a command; give its exit code."""
    if words == ["--version"]:
        print(f"anyplug {__version__}")
        return 0
    try:
        return _run(words)
    except BrokenPipeError:
        # Whoever read our output has gone; what Python still has buffered must not raise once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED


def _run(words: list[str]) -> int:
    from anyplug.frontends.cli.parsing import parse
    from anyplug.frontends.cli.session import Session

    options, command = parse(words)
    with Session(options) as session:
        return session.guarded(command)
