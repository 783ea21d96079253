"""`config`: a plugin's configuration. Secrets are read with no echo and never printed."""

import sys

from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import config_shape
from anyplug.home import plugin_config
from anyplug.model.errors import UsageError
from anyplug.model.types import Plugin


def _config(parser: Parser) -> Command:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name")
    parser.add_argument(
        "words",
        nargs="*",
        default=[],  # otherwise argparse lists it among the required arguments
        metavar="KEY[=VALUE]",
        help="set a value; without =VALUE you are asked for it, secrets without echo",
    )
    parser.add_argument("--unset", action="append", default=[], metavar="KEY", help="delete a value; may be repeated")
    return configure


COMMANDS = {"config": _config}


def configure(session: Session) -> int:
    """Show or change values."""
    plugin = session.plugin(session.options.name).plugin
    given = dict(_value(session, plugin, word) for word in session.options.words)
    unset = session.options.unset
    values = plugin_config.change(plugin, given, unset) if given or unset else plugin_config.read(plugin)
    shape = config_shape(plugin, values)
    if session.options.json:
        session.print_json(shape)
        return 0
    if not shape:
        render.out(f"{plugin.name} has no configuration.")
        return 0
    rows = [
        (
            key["name"],
            _shown(key["secret"], key["set"], key["value"]),
            "required" if key["required"] else "optional",
            key["description"],
        )
        for key in shape
    ]
    render.table(("KEY", "VALUE", "", "DESCRIPTION"), rows)
    for name in plugin_config.missing(plugin, values):
        session.note(f"hint: `anyplug config {plugin.name} {name}` asks for the missing value")
    return 0


def _value(session: Session, plugin: Plugin, word: str) -> tuple[str, str]:
    """Split a word into key and value, asking for the value if it is missing."""
    name, equals, value = word.partition("=")
    secret = any(key.name == name and key.secret for key in plugin.config)
    if equals:
        if secret:
            session.note(f"note: leave the value out (`anyplug config {plugin.name} {name}`) to keep it off the screen")
        return name, value
    if not any(key.name == name for key in plugin.config):
        return name, ""  # the change itself reports an unknown key
    value = _typed_in(name, secret=secret) if sys.stdin.isatty() else terminal.answer()
    if not value:
        raise UsageError(
            f"no value was given for '{name}'", f"`anyplug config {plugin.name} --unset {name}` deletes it"
        )
    return name, value


def _typed_in(name: str, *, secret: bool) -> str:
    if not secret:
        terminal.put(f"{name}:")
        return terminal.answer()
    import getpass  # only needed for typing

    try:
        return getpass.getpass(f"{name} (not shown): ")
    except EOFError:
        return ""


def _shown(secret: bool, is_set: bool, value: object) -> str:
    if not is_set:
        return "-"
    return plugin_config.SHOWN_SECRET if secret else str(value)
