"""`config`: a plugin's configuration. Secrets are read with no echo and never printed."""

import os
import sys

from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import config_shape
from anyplug.home import plugin_config
from anyplug.model.errors import UsageError
from anyplug.model.hints import command
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
    for option, what in (("--enable", "on"), ("--disable", "off")):
        parser.add_argument(option, action="append", default=[], metavar="TOOL", help=f"switch a tool {what}")
    parser.add_argument("--reset", action="store_true", help="replace all values by the defaults; keeps a copy")
    return configure


COMMANDS = {"config": _config}


def configure(session: Session) -> int:
    """Show or change values."""
    plugin = session.plugin(session.options.name).plugin
    options, unset = session.options, session.options.unset
    if not plugin.keeps_config and (options.reset or options.enable or options.disable):
        raise UsageError(
            f"plugin '{plugin.name}' has no configuration that anyplug keeps",
            f"`anyplug disable {plugin.name}` disables the whole plugin",
        )
    if options.reset and (kept := plugin_config.reset(plugin)):
        session.note(f"the values from before are in {os.path.join(plugin.path, kept)}")
    given = dict(_value(session, plugin, word) for word in options.words)
    values = plugin_config.change(plugin, given, unset) if given or unset else plugin_config.read(plugin)
    if tools := dict.fromkeys(options.enable, True) | dict.fromkeys(options.disable, False):
        values = plugin_config.switch(plugin, tools)
    shape = config_shape(plugin, values)
    if session.options.json:
        session.print_json(shape)
        return 0
    if (on := plugin_config.allowed(values)) is not None:
        off = [tool.own_name for tool in plugin.tools if tool.own_name not in on]
        session.note(f"switched off: {', '.join(off) or 'nothing'}")
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
        session.note(f"hint: {command('config', plugin.name, name)} asks for the missing value")
    return 0


def _value(session: Session, plugin: Plugin, word: str) -> tuple[str, str]:
    """Split a word into key and value, asking for the value if it is missing."""
    name, equals, value = word.partition("=")
    secret = any(key.name == name and key.secret for key in plugin.config)
    if equals:
        if secret:
            session.note(
                f"note: leave the value out ({command('config', plugin.name, name)}) to be asked for it; the "
                "command itself is seen on the screen, in your shell's history and by other programs"
            )
        return name, value
    if not any(key.name == name for key in plugin.config):
        return name, ""  # the change itself reports an unknown key
    value = _typed_in(name, secret=secret) if sys.stdin.isatty() else terminal.answer()
    if not value:
        raise UsageError(
            f"no value was given for '{name}'", f"{command('config', plugin.name, '--unset', name)} deletes it"
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
