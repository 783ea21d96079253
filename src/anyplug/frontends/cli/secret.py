"""`secret`: store values for a plugin's variables. They are never passed as an argument, shown or printed."""

import sys

from anyplug.agent.model_keys import OWNER
from anyplug.catalog.approvals import Standing
from anyplug.catalog.snapshot import Entry
from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.model import permissions
from anyplug.model.errors import UsageError
from anyplug.secrets.vault import LARGEST, SIGN_IN, check


def _secret(parser: Parser) -> Command:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name, or its folder; `chat` for keys of models")
    parser.add_argument(
        "variable",
        nargs="?",
        metavar="VARIABLE",
        help="store a value for this variable, typed without echo or read from stdin",
    )
    parser.add_argument(
        "--unset", action="append", default=[], metavar="VARIABLE", help="delete a value; may be repeated"
    )
    return secret


COMMANDS = {"secret": _secret}


def secret(session: Session) -> int:
    """Store, delete and list secrets."""
    options = session.options
    entry = (
        Entry(plugin=OWNER, standing=Standing(state="approved"))
        if options.name == OWNER.name
        else session.plugin(options.name)
    )
    secrets = session.catalog.secrets
    for name in options.unset:
        if not secrets.remove(entry.plugin, name):
            has = ", ".join(secrets.names(entry.plugin))
            raise UsageError(
                f"no secret {name} is stored for '{entry.name}'", f"it has {has}" if has else "it has none"
            )
    if options.variable is not None:
        _store(session, entry, options.variable)
    _report(session, entry)
    return 0


def _store(session: Session, entry: Entry, name: str) -> None:
    session.catalog.secrets.set(entry.plugin, name, given_value(name, f"anyplug secret {entry.name}"))


def given_value(name: str, command: str) -> str:
    """Return the value of a variable, typed or piped in; `command` is what it is given to. Raises UsageError."""
    if "=" in name:
        raise UsageError(
            "a secret cannot be an argument, because other programs can see those",
            f"`{command} {name.partition('=')[0]}` asks for the value, or reads it from a pipe",
        )
    check(name, "a value")  # check the name before anybody types
    value = _typed_in(name) if sys.stdin.isatty() else _piped_in(name)
    check(name, value)
    return value


def _typed_in(name: str) -> str:
    import getpass  # only needed for typing

    try:
        return getpass.getpass(f"{name} (not shown): ")
    except EOFError:
        return ""


def _piped_in(name: str) -> str:
    """Read all of stdin, because a key may have several lines; drop the final newline."""
    raw = sys.stdin.buffer.read(LARGEST + 2)
    try:
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise UsageError(f"the value of {name} is not UTF-8 text", "encode it, for example in base64") from error


def _report(session: Session, entry: Entry) -> None:
    known = session.catalog.secrets.places(entry.plugin)
    places = {name: place for name, place in known.items() if not name.startswith(SIGN_IN)}
    granted = permissions.environment_names(entry.standing.granted)
    if session.options.json:
        session.print_json(
            [{"name": name, "kept_in": place, "granted": name in granted} for name, place in places.items()]
        )
        return
    if not places:
        render.out(f"No secrets are stored for {entry.name}.")
        return
    rows = [(name, place, "yes" if name in granted else "no") for name, place in places.items()]
    render.table(("VARIABLE", "KEPT IN", "GRANTED"), rows)
    for name in places:
        if name not in granted and entry.plugin is not OWNER:
            session.note(f"hint: pass it to the plugin with `anyplug grant {entry.name} env:{name}`")
