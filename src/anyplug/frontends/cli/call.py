"""`call`: one tool, once."""

import base64
import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug import schema
from anyplug.errors import CODES, ToolNotFound, UsageError
from anyplug.formats.attachments import LARGEST_INPUT
from anyplug.frontends.cli import render
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session
from anyplug.model import File, Result, Text, Tool
from anyplug.shapes import result_shape

if TYPE_CHECKING:
    from anyplug.gate import Answer, Attachment, Question
    from anyplug.host import Host

ANSWERS: dict[str, "Answer"] = {"y": "once", "yes": "once", "r": "attachment", "a": "always"}


def _call(parser: Parser) -> Command:
    parser.add_argument("tool", metavar="TOOL", help="the tool's name")
    parser.add_argument(
        "words",
        nargs="*",
        default=[],  # else argparse names it among what is required
        metavar="KEY=VALUE",
        help="an argument, typed by the tool's schema; a file is named by its path; a list may be repeated",
    )
    parser.add_argument("--args", metavar="JSON", help="all arguments as a JSON object, or - for standard input")
    parser.add_argument("--yes", action="store_true", help="answer yes where a plugin of tier 2 asks")
    return call


COMMANDS = {"call": _call}


def call(session: Session) -> int:
    """Call a tool and print what it gave."""
    options = session.options

    async def work(host: "Host") -> int:
        attachment = terminal_attachment(session)
        try:
            tool = host.snapshot.tool(options.tool)[0]
        except ToolNotFound:
            tool = None  # the call itself says so, and is recorded
        result = await host.call(options.tool, arguments(options.words, options.args, tool), attachment=attachment)
        return report(session, result)

    return session.with_host(work)


def terminal_attachment(session: Session) -> "Attachment":
    """Give the attachment of this run, which asks the person where there is one."""
    from anyplug.gate import Attachment  # with the host, which only commands that run plugins import

    async def ask(question: "Question") -> "Answer":
        return await _ask(session, question)

    return Attachment("cli", ask=ask if session.can_ask() else None, yes=session.options.yes)


def arguments(words: list[str], given: str | None, tool: Tool | None) -> Any:
    """Read the arguments from the command line; raises UsageError."""
    values: Any = _read_json(given) if given is not None else {}
    if words and not isinstance(values, dict):
        raise UsageError("--args must be an object when KEY=VALUE is given too", "begin it with { and end it with }")
    properties = tool.input_schema.get("properties", {}) if tool is not None else {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"'{word}' is not of the form KEY=VALUE", "quote values that have spaces in them")
        wanted = properties.get(name)
        wanted = wanted if isinstance(wanted, dict) else {}
        if schema.is_file(wanted):
            values[name] = _read_file(value)
        elif _is_list(wanted):
            values[name] = [*_list_so_far(name, values), *_items(wanted, value)]
        else:
            values[name] = schema.type_word(wanted, value)
    return values


def report(session: Session, result: Result) -> int:
    """Print a result: data to stdout, the rest to stderr; give the exit code."""
    code = CODES[result.error.code].exit if result.error else 0
    if session.options.json:
        session.print_json(result_shape(result))
        return code
    for warning in result.metadata.get("warnings", ()):
        session.warn(warning)
    blocks = result.content
    if result.error is not None:
        render.error(result.error.message, result.error.hint)
        blocks = blocks[1:]  # the first says the same
    for block in blocks:
        if isinstance(block, Text):
            print(block.text, end="" if block.text.endswith("\n") else "\n")
        elif isinstance(block, File):
            print(f"{block.path}")
            session.note(f"the tool wrote {block.name} ({block.mime_type}); it is kept for a week")
        else:
            print(msgspec.json.encode(block).decode())
    return code


def _is_list(wanted: dict[str, Any]) -> bool:
    kind = wanted.get("type")
    return kind == "array" or (isinstance(kind, list) and "array" in kind and "string" not in kind)


def _list_so_far(name: str, values: dict[str, Any]) -> list[Any]:
    before = values.get(name, [])
    if not isinstance(before, list):
        raise UsageError(f"'{name}' is a list, but --args gives it another value", "make it a list there, too")
    return before


def _items(wanted: dict[str, Any], word: str) -> list[Any]:
    """Read a word as a list in JSON, or as one item of the list."""
    if word.startswith("["):
        whole = schema.type_word({"type": "array"}, word)
        if isinstance(whole, list):
            return whole
    item = wanted.get("items")
    return [schema.type_word(item if isinstance(item, dict) else {}, word)]


async def _ask(session: Session, question: "Question") -> "Answer":
    import anyio  # here already, with the host

    may_use = render.line(", ".join(question.permissions)) or "nothing"
    session.say(f"{question.plugin} wants to run {question.tool}. It may use: {may_use}")
    if question.warning:
        session.say(f"warning: {question.warning}")
    session.put("Allow? [y]es, once; for this [r]un; [a]lways; [N]o:")
    await anyio.wait_readable(sys.stdin)  # a thread that reads could not be ended by Ctrl-C
    return ANSWERS.get(session.answer().strip().lower(), "no")


def _read_json(given: str) -> Any:
    text = sys.stdin.buffer.read() if given == "-" else os.fsencode(given)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"--args is not valid JSON: {error}", "quote it for the shell: --args '{\"key\": 1}'"
        ) from error


def _read_file(path: str) -> dict[str, str]:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            data = file.read(LARGEST_INPUT + 1)  # the call says that it is too large; /dev/zero has no end
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", "give the path of a file that you may read"
        ) from error
    return {"filename": os.path.basename(path), "data": base64.b64encode(data).decode()}
