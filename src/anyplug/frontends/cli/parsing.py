"""The command line's grammar: options of the program, then a command, then the command's own."""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from anyplug.frontends.cli import render
from anyplug.frontends.cli.commands import COMMANDS
from anyplug.model.errors import DONE, USAGE

if TYPE_CHECKING:
    from anyplug.frontends.cli.cli_run import Session

Command = Callable[["Session"], int]

TAKES_A_VALUE = frozenset({"--plugin", "--ext", "-e", "--home"})
BEFORE_COMMAND = TAKES_A_VALUE | {"--no-discover", "--quiet", "--debug"}
KEY_VALUE = "KEY=VALUE"  # how commands name a tool's arguments
MARGIN = 2  # columns that argparse leaves free
DESCRIPTION = "One host for the plugins of every agent: find, check, approve, run and record them."


class Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=render.terminal_width() - MARGIN)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in our words, with a hint."""

    def error(self, message: str, hint: str = "") -> NoReturn:
        """Print a usage error and exit."""
        render.say(f"{self.prog}: {message}", f"hint: {hint or self._cure(message)}")
        raise SystemExit(USAGE)

    def _cure(self, message: str) -> str:
        """Say what somebody may have meant, else where to look."""
        usually = f"`{self.prog} --help` says how it goes"
        unknown = message.partition("unrecognized arguments: ")[2].replace("=", " ").split()
        if misplaced := [word for word in unknown if word in BEFORE_COMMAND]:
            return f"{misplaced[0]} goes before the command: `anyplug {misplaced[0]} ... COMMAND`"
        if unknown and unknown[0].startswith("--") and any(action.metavar == KEY_VALUE for action in self._actions):
            key, value, *_ = [*unknown, "..."]
            return f"a tool's arguments are written {KEY_VALUE}: `{key.removeprefix('--')}={value}`; {usually}"
        return usually


def parse(words: list[str]) -> tuple[argparse.Namespace, Command]:
    """Read the whole command line; exits on --help, --version and on what it does not understand."""
    at = _command_at(words)
    parser = program_parser()
    options = parser.parse_args(words[:at])
    if options.version:
        from anyplug import __version__  # only for those who ask

        print(f"anyplug {__version__}")
        raise SystemExit(DONE)
    if at == len(words):
        parser.print_help()
        raise SystemExit(USAGE)
    name, rest = words[at], words[at + 1 :]
    if name == "help":
        if rest in ([], ["help"]):
            parser.print_help()
            raise SystemExit(DONE)
        name, rest = rest[0], [*rest[1:], "--help"]
    if name not in COMMANDS:
        _refuse(parser, name, rest)
    command_options, run = command_parser(name)
    # People write options between a tool's arguments, too; but argparse forgets a `--` when it allows for that.
    read = command_options.parse_args if "--" in rest else command_options.parse_intermixed_args
    read(rest, namespace=options)
    options.named = name
    return options, run


def _refuse(parser: Parser, name: str, rest: list[str]) -> NoReturn:
    """Say that there is no such command, and which one may have been meant."""
    message = f"there is no command '{name}'"
    if name == "ext":  # zot's way: `zot ext list`
        meant = rest[0] if rest and rest[0] in COMMANDS else "COMMAND"
        parser.error(message, f"zot's `ext` is left out here: `anyplug {meant}`")
    from difflib import get_close_matches  # only for those who mistype

    near = get_close_matches(name, COMMANDS, n=1)
    parser.error(message + (f"; did you mean '{near[0]}'?" if near else ""))


def program_parser() -> Parser:
    """Make the parser of the options before the command."""
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items())
    parser = Parser(
        prog="anyplug",
        description=DESCRIPTION,
        epilog=f"commands:\n{listing}\n\n`anyplug help COMMAND` says more about one.",
        usage="anyplug [OPTIONS] COMMAND ...",
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--plugin",
        "--ext",
        "-e",
        action="append",
        default=[],
        type=folder,
        metavar="DIR",
        help="use the plugin in this folder, which counts as approved for this run; may be repeated",
    )
    parser.add_argument(
        "--home", type=folder, metavar="DIR", help="keep plugins, decisions and data here (else $ANYPLUG_HOME)"
    )
    parser.add_argument("--no-discover", action="store_true", help="use only what --plugin names")
    parser.add_argument("--quiet", action="store_true", help="no notes and warnings on stderr, only errors")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    return parser


def command_parser(name: str) -> tuple[Parser, Command]:
    """Make one command's parser, and find what runs it."""
    module, summary = COMMANDS[name]
    room = import_module(f"anyplug.frontends.cli.{module}")
    parser = Parser(
        prog=f"anyplug {name}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=Help,
        allow_abbrev=False,
    )
    run: Command = room.COMMANDS[name](parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser, run


def folder(given: str) -> str:
    """Refuse an empty word: it is a variable that somebody forgot to set, and would mean the working folder."""
    if not given:
        raise argparse.ArgumentTypeError("it is empty")
    return given


def _command_at(words: list[str]) -> int:
    """Find where the command stands: the first word that is neither an option nor an option's value."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in TAKES_A_VALUE else 1
    return min(at, len(words))
