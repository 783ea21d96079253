"""`check`: the problems of a plugin's folder, each with its fix."""

import os
import tempfile

import msgspec

from anyplug.catalog.pins import TOOLS_CHANGED
from anyplug.formats import registry
from anyplug.frontends.cli import model_texts, render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.describe_plugin import problem_lines
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import problem_shape
from anyplug.home.settings import find_home
from anyplug.manage import fault_places, plugin_check
from anyplug.model import hints
from anyplug.model.errors import FAILED
from anyplug.model.types import Plugin, Problem


def _check(parser: Parser) -> Command:
    parser.add_argument("path", nargs="?", default=".", metavar="DIR", help="the plugin's folder or name (default: .)")
    return check


COMMANDS = {"check": _check}


def check(session: Session) -> int:
    """Check a folder and print the findings."""
    plugin = findings(session, session.folder(session.options.path))
    if session.options.json:
        session.print_json(
            {
                "name": plugin.name,
                "format": plugin.format,
                "path": plugin.path,
                "tools": [tool.name for tool in plugin.tools],
                "problems": [
                    {**problem_shape(problem), "hint": session.reached(problem.hint)} for problem in plugin.problems
                ],
            }
        )
    else:
        for problem in plugin.problems:
            first, *more = problem_lines(problem)
            render.out(f"{problem.level}: {first}", *(f"  {line}" for line in more))
            if problem.hint:
                render.out(f"  hint: {render.line(session.reached(problem.hint))}")
        found = render.count(len(plugin.problems), "problem") if plugin.problems else "no problems"
        tools = (
            "(it reports its tools when it runs)"
            if plugin.stays_up
            else f"with {render.count(len(plugin.tools), 'tool')}"
        )
        kind = f"{registry.title(plugin.format)} plugin {tools}"
        render.out(f"{plugin.name}: {kind if plugin.format else 'not a plugin'}, {found}")
        if model_texts.in_several_lines(plugin.tools):
            command = hints.command("--plugin", plugin.path, "tools", plugin.name)
            render.out("Models read:", *(f"  {line}" for line in model_texts.shown(plugin.tools, command)))
    return FAILED if plugin.problems else 0


def findings(session: Session, path: str) -> Plugin:
    """Read a folder, with all problems that can be found without running it."""
    plugin = plugin_check.examine(path, session.catalog.settings.formats)
    plugin = msgspec.structs.replace(plugin, problems=fault_places.placed(plugin))
    more = (*_changed_tools(session, plugin), *_syntax_errors(session, plugin))
    return msgspec.structs.replace(plugin, problems=(*plugin.problems, *more))


def _syntax_errors(session: Session, plugin: Plugin) -> list[Problem]:
    """Return the syntax errors in its scripts."""
    if not os.path.isdir(plugin.path):
        return []
    from anyplug.launch import syntax_check  # imports an event loop, as running a plugin does

    if not syntax_check.scripts(plugin):
        return []
    import anyio  # for the same reason

    # A home of its own: to look at a plugin creates nothing in the user's.
    with session.progress("parsing its scripts"), tempfile.TemporaryDirectory(prefix="anyplug-check-") as home:
        return anyio.run(syntax_check.faults, find_home(home), plugin)


def _changed_tools(session: Session, plugin: Plugin) -> list[Problem]:
    """Return the changes in an approved plugin's tools since it was approved."""
    if not plugin.stays_up:
        return []
    entries = session.catalog.load().entries
    found = [problem for entry in entries if entry.path == plugin.path for problem in entry.problems]
    return [problem for problem in found if problem.code == TOOLS_CHANGED]
