"""`call`: one tool, once."""

import base64
import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug import schema
from anyplug.errors import CODES, ToolNotFound, UsageError
from anyplug.frontends.cli import render
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session
from anyplug.model import File, Result, Text, Tool
from anyplug.shapes import result_shape

if TYPE_CHECKING:
    from anyplug.gate import Answer, Question
    from anyplug.host import Host

ANSWERS: dict[str, "Answer"] = {"y": "once", "yes": "once", "r": "attachment", "a": "always"}


def _call(parser: Parser) -> Command:
    parser.add_argument("tool", metavar="TOOL", help="the tool's name")
    parser.add_argument(
        "words",
        nargs="*",
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
        from anyplug.gate import Attachment  # with the host, which is imported only here

        async def ask(question: "Question") -> "Answer":
            return await _ask(session, question)

        attachment = Attachment("cli", ask=ask if session.can_ask() else None, yes=options.yes)
        try:
            tool = host.snapshot.tool(options.tool)[0]
        except ToolNotFound:
            tool = None  # the call itself says so, and is recorded
        result = await host.call(options.tool, arguments(options.words, options.args, tool), attachment=attachment)
        return report(session, result)

    return session.with_host(work)


def arguments(words: list[str], given: str | None, tool: Tool | None) -> Any:
    """Read the arguments from the command line; raises UsageError."""
    values: Any = _read_json(given) if given is not None else {}
    if words and not isinstance(values, dict):
        raise UsageError("--args must be an object when KEY=VALUE is given too")
    properties = tool.input_schema.get("properties", {}) if tool is not None else {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"'{word}' is not of the form KEY=VALUE", "quote values that have spaces in them")
        wanted = properties.get(name)
        wanted = wanted if isinstance(wanted, dict) else {}
        if schema.is_file(wanted):
            values[name] = _read_file(value)
        elif wanted.get("type") == "array" and not value.startswith("["):
            item = wanted.get("items")
            values.setdefault(name, []).append(schema.type_word(item if isinstance(item, dict) else {}, value))
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


async def _ask(session: Session, question: "Question") -> "Answer":
    import anyio.to_thread  # here already, with the host

    session_note = [f"{question.plugin} wants to run {question.tool}. It may use: {', '.join(question.permissions)}"]
    if question.warning:
        session_note.append(f"warning: {question.warning}")
    print("\n".join(session_note), file=sys.stderr)
    answer = await anyio.to_thread.run_sync(session.ask, "Allow? [y]es, once; for this [r]un; [a]lways; [N]o:")
    return ANSWERS.get(answer, "no")


def _read_json(given: str) -> Any:
    text = sys.stdin.buffer.read() if given == "-" else given.encode()
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f"--args is not valid JSON: {error}", "quote it for the shell: --args '{\"key\": 1}'"
        ) from error


def _read_file(path: str) -> dict[str, str]:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    return {"filename": os.path.basename(path), "data": base64.b64encode(data).decode()}
