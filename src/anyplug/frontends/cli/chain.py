"""`chain`: call tools in sequence, passing results along."""

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from anyplug.call.chains import BadChain, Chain, ChainOutcome, read_chain
from anyplug.frontends.cli import render
from anyplug.frontends.cli.call import add_yes, beyond_the_error, report, terminal_attachment
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import chain_shape, warnings_of
from anyplug.model.errors import CODES, UsageError
from anyplug.model.types import Failure, Result

if TYPE_CHECKING:
    from anyplug.host.host import Host

LARGEST_FILE = 16 << 20  # bytes; /dev/zero has no end
BOM = b"\xef\xbb\xbf"  # some editors begin a file with it
STDIN = "-"


def _chain(parser: Parser) -> Command:
    parser.add_argument("file", metavar="FILE", help="the steps as JSON, or - to read them from stdin")
    add_yes(parser)
    return chain


COMMANDS = {"chain": _chain}


def chain(session: Session) -> int:
    """Run a chain; print its steps as they end, then the last result."""
    read = _read(session.options.file)
    if read.unknown:  # a typo, here where a person wrote the steps
        raise BadChain(read.unknown)

    def tell(number: int, result: Result) -> None:
        _tell(session, read, number, result)

    if (resident := session.attach(yes=session.options.yes)) is not None:
        with resident:
            return _report(session, read, resident.chain(read.steps, tell))

    async def work(host: "Host") -> int:
        with session.progress("running the chain"):
            outcome = await host.run_chain(read.steps, attachment=terminal_attachment(session), on_step=tell)
        return _report(session, read, outcome)

    return session.with_host(work)


def _read(path: str) -> Chain:
    """Read a chain from a file; raises UsageError and BadChain."""
    name = path if path != STDIN else "standard input"
    try:
        if path == STDIN:
            text = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with open(os.path.expanduser(path), "rb") as file:
                text = file.read(LARGEST_FILE + 1)
    except OSError as error:
        hint = "pass the path of a readable file, or - for stdin"
        raise UsageError(f"cannot read {name}: {error.strerror}", hint) from error
    if len(text) > LARGEST_FILE:
        raise UsageError(f"{name} is larger than {LARGEST_FILE >> 20} MiB", "a chain is a short list of steps")
    try:
        given = msgspec.json.decode(text.removeprefix(BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = 'a chain is a list of steps like {"tool": "NAME", "input": {...}, "outputKey": "NAME"}'
        raise UsageError(f"{name} is not valid JSON: {error}", hint) from error
    return read_chain(given)


def _tell(session: Session, read: Chain, number: int, result: Result) -> None:
    """Report the end of a step in one line."""
    if not session.options.json:
        how = "failed" if result.is_error else "ok"
        tool = render.line(read.steps[number - 1].tool)
        session.note(f"{_place(read, number)}: {tool}: {how}, {result.duration_ms:.0f} ms")
    for warning in warnings_of(result):
        session.warn(f"{_place(read, number)}: {warning}")


def _report(session: Session, read: Chain, outcome: ChainOutcome) -> int:
    """Print how it ended; return the exit code."""
    last = outcome.steps[-1]
    if session.options.json:
        session.print_json(chain_shape(outcome))
        return CODES[last.error.code].exit if last.error else 0
    if outcome.failed_at is not None:
        error = _failure(read, outcome, last)
        last = msgspec.structs.replace(last, content=beyond_the_error(last), error=error)
    return report(session, msgspec.structs.replace(last, metadata={}))  # its warnings were printed with its line


def _failure(read: Chain, outcome: ChainOutcome, last: Result) -> Failure:
    """Return which step failed, and why."""
    error = last.error or Failure("tool_error", last.text)
    why = error.message.partition(": ")[2] if error.code == "not_found" else ""  # such as an ambiguous name
    said = f"{_place(read, len(outcome.steps))}: {outcome.error}" + (f": {why}" if why else "")
    return Failure(error.code, said, error.hint)


def _place(read: Chain, number: int) -> str:
    return f"step {number} of {len(read.steps)}"
