"""`call`: one tool, once."""

import base64
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.formats.shared.attachments import LARGEST_INPUT
from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import warnings_of
from anyplug.model import schema
from anyplug.model.errors import CODES, ToolNotFound, UsageError
from anyplug.model.hints import LOOKING_AT_ALL, command
from anyplug.model.result_shape import result_shape
from anyplug.model.types import Block, File, Result, Text
from anyplug.peers.notices import note_teller

if TYPE_CHECKING:
    from argparse import _ActionsContainer as ArgumentGroup

    from anyplug.call.consent import Attachment
    from anyplug.call.slash_commands import CommandOutcome
    from anyplug.host.host import Host

# Keywords of a schema that allow more than its `properties`.
SAYS_MORE = frozenset({"additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "if"})


def add_call(parser: Parser) -> None:
    """Add the arguments that name a tool and its arguments."""
    parser.add_argument("tool", metavar="TOOL", help="the tool's name")
    parser.add_argument(
        "words",
        nargs="*",
        default=[],  # otherwise argparse lists it among the required arguments
        metavar="KEY=VALUE",
        help="an argument that the tool's schema names, typed by it; for a file, its path; for a list, repeat it; "
        "or all arguments as one JSON object",
    )
    add_json_arguments(parser)


def add_json_arguments(options: "ArgumentGroup") -> None:
    """Add the option that takes a tool's arguments as JSON."""
    options.add_argument(
        "--args",
        metavar="JSON",
        help="all arguments as a JSON object, also ones that the tool does not name; - reads stdin",
    )


def add_yes(parser: Parser) -> None:
    """Add the option that answers the tier 2 question."""
    parser.add_argument("--yes", action="store_true", help="allow tier 2 plugins to run without asking")


def _call(parser: Parser) -> Command:
    parser.epilog = (
        "A slash command works here too: `anyplug call /NAME WORDS` does what `anyplug run /NAME WORDS` does."
    )
    add_call(parser)
    add_yes(parser)
    parser.add_argument(
        "--no-wait", action="store_true", help="return the job of an asynchronous tool at once; needs the daemon"
    )
    return lambda session: invoke(session, [session.options.tool, *session.options.words], prefers_tool=True)


COMMANDS = {"call": _call}


def invoke(session: Session, words: list[str], *, prefers_tool: bool) -> int:
    """Call the tool or run the slash command that the first word names, and print what it returns.

    A name with a slash is a command. Of a tool and a command with the same name, the preferred one is used.
    """
    options = session.options
    no_wait = prefers_tool and options.no_wait
    name = words[0] if prefers_tool else words[0].partition(" ")[0]
    bare = name.removeprefix("/")
    awaited = name if prefers_tool else f"/{bare}"  # extensions may be about to register it

    def is_command(*, has_command: bool, has_tool: bool) -> bool:
        if name != bare:
            return True
        return has_command and not has_tool if prefers_tool else has_command or not has_tool

    if (resident := session.attach(yes=options.yes)) is not None:
        with resident:
            found = resident.find(awaited)
            if is_command(has_command=found.is_command, has_tool=found.is_tool):
                return _report_command(session, resident.run(_line(session, words)))
            given = arguments(words[1:], options.args, found.input_schema)
            with session.progress(f"running {name}"):
                result = resident.call(name, given, wait=not no_wait)
            return _report_call(session, result)
    if no_wait:
        raise UsageError(
            "--no-wait needs the daemon, which is not running: the job would end with this command",
            "`anyplug serve --detach` starts it",
        )

    async def work(host: "Host") -> int:
        await host.hear_out(awaited)
        if is_command(has_command=host.snapshot.knows(f"/{bare}"), has_tool=host.snapshot.knows(bare)):
            from anyplug.frontends.daemon.request_handlers import run_command  # only for commands

            return _report_command(
                session, await run_command(host, _line(session, words), terminal_attachment(session))
            )
        return await call_here(session, host, name, words[1:])

    return session.with_host(work, runs_plugins=True)


def _report_call(session: Session, result: Result) -> int:
    code = report(session, result)
    if result.metadata.get("state") == "running":
        session.note(f"`anyplug jobs {result.metadata['job']}` shows its result")
    elif session.options.named == "call" and session.options.no_wait and not result.is_error:
        session.note(f"{result.tool} is not asynchronous, so it ran to its end")
    return code


async def call_here(session: Session, host: "Host", name: str, words: list[str]) -> int:
    """Call a tool of a host of our own, and print what it returns."""
    try:
        tool = host.snapshot.tool(name)[0]
    except ToolNotFound:
        tool = None  # the call itself reports that, and is recorded
    given = arguments(words, session.options.args, tool.input_schema if tool else None)
    stop = host.listen(note_teller(tool.plugin if tool else "", session.note))
    try:
        with session.progress(f"running {name}"):
            result = await host.call(name, given, attachment=terminal_attachment(session))
    finally:
        stop()
    return report(session, result)


def _line(session: Session, words: list[str]) -> str:
    """Join a slash command as a person types it; raises UsageError."""
    if session.options.args is not None:
        raise UsageError(
            f"{words[0]} is a slash command, which takes no --args",
            f"write its arguments after its name: {command('run', words[0], 'WORDS')}",
        )
    return " ".join(words)


def _report_command(session: Session, outcome: "CommandOutcome") -> int:
    from anyplug.frontends.cli.command_output import report_command  # not needed for tools

    return report_command(session, outcome)


def terminal_attachment(session: Session) -> "Attachment":
    """Return the attachment of this run, which asks the person if there is one."""
    # imported with the host, for commands that run plugins
    from anyplug.call import trace_context
    from anyplug.call.consent import Attachment

    ask = None
    if terminal.can_ask():
        from anyplug.frontends.cli.consent_prompt import wait_for_answer  # only needed at a terminal

        ask = wait_for_answer
    attachment = Attachment("cli", ask=ask, yes=session.options.yes, shows_panels=False)
    attachment.trace = trace_context.read(os.environ)
    return attachment


def arguments(words: list[str], given: str | None, input_schema: dict[str, Any] | None) -> Any:
    """Parse the arguments, typed by the tool's schema if it is known; raises UsageError."""
    if given is None and len(words) == 1 and words[0].startswith("{"):
        words, given = [], words[0]
    values: Any = _read_json(given) if given is not None else {}
    if words and not isinstance(values, dict):
        raise UsageError("--args must be an object when KEY=VALUE is given too", "begin it with { and end it with }")
    properties = input_schema.get("properties", {}) if input_schema is not None else {}
    for name, wanted in properties.items() if isinstance(values, dict) else ():
        if isinstance(wanted, dict) and schema.is_file(wanted) and isinstance(values.get(name), str):
            values[name] = _read_file(values[name])
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("{"):
            raise UsageError(
                f"'{word}' is not of the form KEY=VALUE", "put all arguments into one JSON object, and nothing else"
            )
        if not equals or not name:
            key = next(iter(properties), "") if isinstance(properties, dict) else ""
            named = f"name the argument: {shlex.quote(f'{key}={word}')}; " if key else ""
            raise UsageError(f"'{word}' is not of the form KEY=VALUE", f"{named}quote values that contain spaces")
        _refuse_unknown(name, value, input_schema)
        wanted = properties.get(name)
        wanted = wanted if isinstance(wanted, dict) else {}
        if schema.is_file(wanted):
            values[name] = _read_file(value)
        elif _is_list(wanted):
            values[name] = [*_list_so_far(name, values), *_items(wanted, value)]
        else:
            values[name] = schema.type_word(wanted, value)
    return values


def _refuse_unknown(name: str, value: str, input_schema: dict[str, Any] | None) -> None:
    """Refuse a typed argument that is not among those that the tool names: probably a typo. Raises UsageError."""
    given = input_schema or {}
    known = given.get("properties")
    if not isinstance(known, dict) or not known or name in known or any(given.get(keyword) for keyword in SAYS_MORE):
        return
    from difflib import get_close_matches  # only needed after a typo

    near = get_close_matches(name, list(known), n=1)
    takes = f"it takes {', '.join(known)}"
    anyway = f"--args {shlex.quote(msgspec.json.encode({name: value}).decode())} passes it anyway"
    raise UsageError(f"the tool has no argument '{name}'", f"did you mean {near[0]}?" if near else f"{takes}; {anyway}")


def report(session: Session, result: Result) -> int:
    """Print a result: data to stdout, the rest to stderr; return the exit code."""
    code = CODES[result.error.code].exit if result.error else 0
    if result.error is not None:
        # The host has named the folder of the tool's own plugin.
        error = msgspec.structs.replace(result.error, hint=session.reached(result.error.hint, LOOKING_AT_ALL))
        result = msgspec.structs.replace(result, error=error)
    if session.options.json:
        session.print_json(result_shape(result))
        return code
    for warning in warnings_of(result):
        session.warn(warning)
    if result.error is not None:
        render.error(result.error.message, result.error.hint)
    for block in beyond_the_error(result):
        if isinstance(block, Text):
            render.data(block.text)
        elif isinstance(block, File):
            render.data_line(block.path)
            session.note(f"the tool wrote {block.name} ({block.mime_type}), which is kept for a week")
        elif block.data and sys.stdout.isatty():
            size = len(block.data) * 3 // 4  # it is base64
            kind = type(block).__name__.lower()
            render.data_line(f"[{kind} of {size:,} bytes, {block.mime_type or 'of unknown type'}; --json prints it]")
        else:
            render.data(msgspec.json.encode(block).decode())
    return code


def beyond_the_error(result: Result) -> tuple[Block, ...]:
    """Return the content without a first block that only repeats the error, as Workbench's does."""
    first = result.content[0] if result.content else None
    if result.error is not None and isinstance(first, Text):
        message = result.error.message
        if first.text in {message, f"Tool error: {message}"}:
            return result.content[1:]
    return result.content


def _is_list(wanted: dict[str, Any]) -> bool:
    kind = wanted.get("type")
    return kind == "array" or (isinstance(kind, list) and "array" in kind and "string" not in kind)


def _list_so_far(name: str, values: dict[str, Any]) -> list[Any]:
    before = values.get(name, [])
    if not isinstance(before, list):
        raise UsageError(f"'{name}' is a list, but --args has another value for it", "make it a list in --args, too")
    return before


def _items(wanted: dict[str, Any], word: str) -> list[Any]:
    """Parse a word as a JSON list, or as one item of the list."""
    if word.startswith("["):
        whole = schema.type_word({"type": "array"}, word)
        if isinstance(whole, list):
            return whole
    item = wanted.get("items")
    return [schema.type_word(item if isinstance(item, dict) else {}, word)]


def _read_json(given: str) -> Any:
    text = sys.stdin.buffer.read() if given == "-" else os.fsencode(given)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "quote it for the shell: --args '{\"key\": 1}'"
        if given.startswith("@") or os.path.isfile(given):
            hint = f"to read a file, write `--args - < {shlex.quote(given.removeprefix('@'))}`"
        raise UsageError(f"--args is not valid JSON: {error}", hint) from error


def _read_file(path: str) -> dict[str, str]:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            data = file.read(LARGEST_INPUT + 1)  # the call reports that it is too large; /dev/zero has no end
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "pass the path of a readable file") from error
    return {"filename": os.path.basename(path), "data": base64.b64encode(data).decode()}
