"""`try`: fetch a plugin, call one of its tools once, and delete it with everything that it wrote."""

import shlex
from contextlib import ExitStack
from typing import TYPE_CHECKING

from anyplug.frontends.cli import approve, call, install_sources, render, terminal
from anyplug.frontends.cli.cli_run import Session, refuse
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.manage import pasted_servers
from anyplug.manage.installer import Installer
from anyplug.model.errors import ToolNotFound, UsageError

if TYPE_CHECKING:
    from anyplug.host.host import Host


def _try(parser: Parser) -> Command:
    parser.add_argument(
        "source", metavar="SOURCE", help="what `install` takes; a command in quotes: 'npx -y @scope/server'"
    )
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="the tool's name; without one, list its tools")
    parser.add_argument("words", nargs="*", default=[], metavar="KEY=VALUE", help="the tool's arguments")
    call.add_json_arguments(parser)
    parser.add_argument("--yes", action="store_true", help="run it without asking")
    parser.rest.add_argument("--ref", default="", metavar="R", help="a branch, tag or commit")
    parser.rest.add_argument("--subdir", default="", metavar="D", help="the plugin's folder inside the source")
    return try_source


COMMANDS = {"try": _try}


def try_source(session: Session) -> int:
    """Run one tool of a plugin that is not installed."""
    options = session.options
    if options.source in pasted_servers.LAUNCHERS and options.tool:
        raise UsageError("a command must be one word", "put it into quotes: 'npx -y @scope/server' TOOL KEY=VALUE")
    options.sources, options.name, options.allow_unconfined = [options.source], "", False
    pasted = install_sources.read(session)[0]
    installer = Installer(session.catalog)
    with ExitStack() as stack:
        with session.progress(f"fetching {pasted.source.shown}"):
            brought = stack.enter_context(installer.borrowed(pasted.source))
        for name, value in pasted.secrets.items():
            session.catalog.secrets.set(brought.plugin, name, value)
        return _run(session, brought.plugin.path)


def _run(session: Session, folder: str) -> int:
    """Show what it asks for, then run it as a folder that was named for one run."""
    options = session.options
    options.plugin = [folder]
    session.use_only(folder)
    entry = session.plugin(folder)
    if not options.json:
        approve.present(session, entry, entry.plugin.permissions, shows_instructions=True, tried_from=options.source)
    if not options.yes:
        if not terminal.can_ask():
            again = session.again("--yes")
            refuse(f"'{entry.name}' was not run: this is not a terminal", f"{again} runs it without asking")
        if not session.confirm("Run it once? What it changes outside is not undone"):
            refuse(f"'{entry.name}' was not run", "nothing of it is kept")
    name = entry.name
    if options.tool is None:
        tools = session.running_snapshot().plugin(folder).tools
        if options.json:
            session.print_json([tool.name for tool in tools])
        else:
            render.table(("TOOL", "DESCRIPTION"), [(tool.own_name, render.line(tool.description)) for tool in tools])
            again = f"anyplug try {shlex.quote(options.source)} TOOL KEY=VALUE"
            session.note(f"To call one: {again}")
        return 0

    async def work(host: "Host") -> int:
        await host.hear_out(options.tool)
        whole = options.tool
        try:
            host.snapshot.tool(whole)
        except ToolNotFound:
            whole = f"{name}/{whole}"
        return await call.call_here(session, host, whole, options.words)

    return session.with_host(work)
