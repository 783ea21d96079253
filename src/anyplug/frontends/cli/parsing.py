"""The command line's grammar: program options, then a command, then its own options."""

import argparse
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from anyplug.frontends.cli import render
from anyplug.frontends.cli.commands import ALIASES, COMMANDS, GROUPS, aliases_of
from anyplug.model.errors import DONE, USAGE, UsageError
from anyplug.model.hints import command
from anyplug.model.late_patterns import late

if TYPE_CHECKING:
    from anyplug.frontends.cli.cli_run import Session

Command = Callable[["Session"], int]

TAKES_A_VALUE = frozenset({"--plugin", "--ext", "-e", "--home"})
BEFORE_COMMAND = TAKES_A_VALUE | {"--no-discover", "--fleet", "--quiet", "--debug"}
KEY_VALUE = "KEY=VALUE"  # how commands show a tool's arguments
INVALID_CHOICE = late(r"invalid choice: '([^']*)' \(choose from (.*)\)", re.DOTALL)  # as argparse says it
NUMBER = late(r"[0-9]{1,18}")
SECONDS = late(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
MISSING = "arguments are required: "  # and this
MARGIN = 2  # columns that argparse leaves free
DESCRIPTION = "One host for the plugins of every agent: find, check, approve, run and record them."


argparse._ = str  # type: ignore[attr-defined]  # no translations: we read its messages, and `locale` takes 1 ms


class Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=render.terminal_width() - MARGIN)


class Parser(argparse.ArgumentParser):
    """A parser whose errors have a hint, and are JSON if requested.

    Common options are added to the parser itself, the others to `rest`, which help shows below.
    """

    def __init__(self, prog: str, description: str, *, json: bool, epilog: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=Help,
            allow_abbrev=False,
            add_help=False,
        )
        self._positionals.title = "arguments"
        self._json = json
        self.words: list[str] = []  # the whole command line, as typed
        self.foreign_at: Callable[[list[str]], int | None] = _nowhere  # where another program's words begin
        self.rest = self.add_argument_group("more options")

    def error(self, message: str, hint: str = "") -> NoReturn:
        """Print a usage error and exit."""
        hint = hint or self._cure(message)
        if self._json:
            render.json({"error": {"code": UsageError.code, "message": f"{self.prog}: {message}", "hint": hint}})
        else:
            render.say(f"{self.prog}: {message}", f"hint: {hint}")
        raise SystemExit(USAGE)

    def _cure(self, message: str) -> str:
        """Return what to type instead, or where to look."""
        usually = f"`{self.prog} --help` shows how to use it"
        if wrong := INVALID_CHOICE.search(message):
            return _meant(wrong[1], re.findall("'([^']+)'", wrong[2]), usually)
        unknown = message.partition("unrecognized arguments: ")[2].replace("=", " ").split()
        if misplaced := [word for word in unknown if word in BEFORE_COMMAND]:
            return f"{misplaced[0]} goes before the command: {command(*_moved(misplaced[0], self.words))}"
        if unknown == ["--json"]:
            others = [word for word in self.words if word != "--json"]
            return f"--json goes after the command: {command(*others, '--json')}"
        if unknown and unknown[0].startswith("--") and any(action.metavar == KEY_VALUE for action in self._actions):
            key, value, *_ = [*unknown, "..."]
            return f"a tool's arguments are written {KEY_VALUE}: `{key.removeprefix('--')}={value}`; {usually}"
        if unknown and (chosen := self._option_of(unknown[0].removeprefix("--"))):
            return f"did you mean {chosen}? {usually}"
        if unknown and unknown[0].startswith("-"):
            return _meant(unknown[0], self._option_string_actions.keys() - {"--help"}, usually)
        if unknown or MISSING in message:
            return f"{self._choices_of(message.partition(MISSING)[2].split(', '))}{usually}: {self.usage}"
        return usually

    def _option_of(self, word: str) -> str:
        """Return how to write a word that was typed as an option but is another one's value: `--format csv`."""
        for action in self._actions:
            if word in (action.choices or ()):
                return " ".join([*action.option_strings[:1], word])
        return ""

    def _choices_of(self, names: list[str]) -> str:
        """Return what missing arguments may be."""
        return "".join(
            f"{action.metavar} is one of {', '.join(map(str, action.choices))}; "
            for action in self._actions
            if action.choices and {str(action.metavar), *action.option_strings} & set(names)
        )


def _meant(word: str, known: Iterable[str], usually: str) -> str:
    from difflib import get_close_matches  # only needed after a typo

    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}? {usually}" if near else usually


def _nowhere(words: list[str]) -> int | None:
    return None


def _moved(option: str, words: list[str]) -> list[str]:
    """Return a command line with an option of the program, and its value, before the command."""
    at = next(place for place, word in enumerate(words) if word.partition("=")[0] == option)
    end = at + 2 if option in TAKES_A_VALUE and words[at] == option else at + 1
    return [*words[at:end], *words[:at], *words[end:]]


def usage(parser: argparse.ArgumentParser) -> str:
    """Return one line with a command's arguments and required options."""
    words = [parser.prog]
    for action in parser._actions:  # noqa: SLF001 - there is no other way
        metavar = str(action.metavar or action.dest)
        forms = {"?": f"[{metavar}]", "*": f"[{metavar} ...]", "+": f"{metavar} [{metavar} ...]"}
        if not action.option_strings and action.help != argparse.SUPPRESS:
            words.append(forms.get(str(action.nargs), metavar))
        elif action.required:
            words.append(f"{action.option_strings[0]} {metavar}")
    return " ".join([*words, "[OPTIONS]"])


def parse(words: list[str]) -> tuple[argparse.Namespace, Command]:
    """Parse the whole command line; exits on --help, --version and errors."""
    at = command_at(words)
    is_json = wants_json(words)
    parser = program_parser(json=is_json)
    parser.words = words
    options = parser.parse_args(words[:at])
    if options.version:
        from anyplug import __version__  # only needed when asked for

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
    name = ALIASES.get(name, name)
    if name not in COMMANDS:
        _refuse(parser, name, rest)
    command_options, run = command_parser(name, json=is_json)
    command_options.words = words
    end = command_options.foreign_at(rest)
    own = rest if end is None else rest[:end]
    # People also write options between a tool's arguments; but argparse drops a `--` when it allows for that.
    read = command_options.parse_args if "--" in own else command_options.parse_intermixed_args
    read(own, namespace=options)
    options.named, options.typed, options.foreign = name, rest, [] if end is None else rest[end:]
    return options, run


def wants_json(words: list[str]) -> bool:
    """Return whether a command line asks for JSON, whatever else is wrong with it."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _refuse(parser: Parser, name: str, rest: list[str]) -> NoReturn:
    """Report an unknown command, and which one may have been meant."""
    message = f"there is no command '{name}'"
    if name == "ext":  # zot's syntax: `zot ext list`
        meant = rest[0] if rest[:1] and rest[0] in COMMANDS else "COMMAND"
        parser.error(message, f"leave out zot's `ext`: `anyplug {meant}`")
    if name.startswith("/"):
        parser.error(message, f"`anyplug run {name}` runs a slash command")
    if name == "version":
        parser.error(message, "`anyplug --version` prints the version")
    from anyplug.frontends.cli.suggestions import suggestion  # only needed after a typo

    if meant := suggestion(name):
        purpose = COMMANDS[meant][1]
        parser.error(f"{message}; did you mean '{meant}'?", f"`anyplug {meant} --help`: {purpose}")
    parser.error(message, "`anyplug --help` lists the commands")


def program_parser(*, json: bool = False) -> Parser:
    """Create the parser of the options before the command."""
    parser = Parser(prog="anyplug", description=DESCRIPTION, epilog=_listing(), json=json)
    parser.usage = "anyplug [OPTIONS] COMMAND ..."
    parser.add_argument(
        "--plugin",
        "--ext",
        "-e",
        action="append",
        default=[],
        type=folder,
        metavar="DIR",
        help="use the plugin in this folder, approved for this run; may be repeated",
    )
    parser.add_argument(
        "--home", type=folder, metavar="DIR", help="keep plugins, decisions and data here (default: $ANYPLUG_HOME)"
    )
    parser.add_argument("--no-discover", action="store_true", help="use only plugins given with --plugin")
    parser.add_argument(
        "--fleet", action="store_true", help="also use the tools of the fleet that [fleet] in the settings names"
    )
    parser.add_argument("--quiet", action="store_true", help="print only errors to stderr, no notes or warnings")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("-h", "--help", action="help", help="show this help and exit")
    return parser


def _listing() -> str:
    """List the commands by group, each with its aliases."""
    shown = {name: ", ".join([name, *aliases_of(name)]) for name in COMMANDS}
    width = max(map(len, shown.values()))
    groups = [
        "\n".join([f"{title}:", *(f"  {shown[name]:<{width}}  {about[1]}" for name, about in group.items())])
        for title, group in GROUPS.items()
    ]
    return "\n\n".join([*groups, "`anyplug help COMMAND` shows a command's arguments, options and an example."])


def command_parser(name: str, *, json: bool = False) -> tuple[Parser, Command]:
    """Create one command's parser, and find the function that runs it."""
    module, purpose, example = COMMANDS[name]
    room = import_module(f"anyplug.frontends.cli.{module}")
    also = aliases_of(name)
    parser = Parser(
        prog=f"anyplug {name}",
        description=f"{purpose}." + (f" Also: {', '.join(f'anyplug {alias}' for alias in also)}." if also else ""),
        json=json,
    )
    run: Command = room.COMMANDS[name](parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-h", "--help", action="help", help="show this help and exit")
    parser.usage = usage(parser)
    parser.epilog = "\n\n".join(filter(None, [parser.epilog, f"example:\n  {example}"]))
    return parser, run


def folder(given: str) -> str:
    """Refuse an empty word: it comes from an unset variable, and would mean the working folder."""
    if not given:
        raise argparse.ArgumentTypeError("it is empty")
    return given


def whole(what: str, least: int = 1, most: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers between two limits; `what` says what they count, for the error."""
    limits = f"{least} or more" if most is None else f"{least} to {most}"

    def parse(given: str) -> int:
        number = int(given) if NUMBER.fullmatch(given) else -1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"'{given}' is not {what} ({limits})")
        return number

    return parse


def seconds(given: str) -> float:
    """Parse a number of seconds."""
    if not SECONDS.fullmatch(given):
        raise argparse.ArgumentTypeError(f"'{given}' is not a number of seconds (0 or more)")
    return float(given)


def command_at(words: list[str]) -> int:
    """Return the index of the command: the first word that is neither an option nor an option's value."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in TAKES_A_VALUE else 1
    return min(at, len(words))
