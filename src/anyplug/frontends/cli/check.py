"""`check`: the problems of a plugin's folder, each with its fix."""

import shlex

import msgspec

from anyplug.catalog.pins import TOOLS_CHANGED
from anyplug.formats import registry
from anyplug.frontends.cli import model_texts, render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.describe_plugin import problem_lines
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import problem_shape
from anyplug.manage import plugin_check
from anyplug.model.errors import FAILED
from anyplug.model.types import Plugin, Problem


def _check(parser: Parser) -> Command:
    parser.add_argument("path", metavar="PATH", help="the plugin's folder")
    return check


COMMANDS = {"check": _check}


def check(session: Session) -> int:
    """Check a folder and print the findings."""
    plugin = plugin_check.examine(session.options.path, session.catalog.settings.formats)
    plugin = msgspec.structs.replace(plugin, problems=(*plugin.problems, *_changed_tools(session, plugin)))
    if session.options.json:
        session.print_json(
            {
                "name": plugin.name,
                "format": plugin.format,
                "path": plugin.path,
                "tools": [tool.name for tool in plugin.tools],
                "problems": [problem_shape(problem) for problem in plugin.problems],
            }
        )
    else:
        for problem in plugin.problems:
            first, *more = problem_lines(problem)
            render.out(f"{problem.level}: {first}", *(f"  {line}" for line in more))
            if problem.hint:
                render.out(f"  hint: {render.line(problem.hint)}")
        found = render.count(len(plugin.problems), "problem") if plugin.problems else "no problems"
        tools = (
            "(it reports its tools when it runs)"
            if plugin.stays_up
            else f"with {render.count(len(plugin.tools), 'tool')}"
        )
        kind = f"{registry.title(plugin.format)} plugin {tools}"
        render.out(f"{plugin.name}: {kind if plugin.format else 'not a plugin'}, {found}")
        if model_texts.in_several_lines(plugin.tools):
            command = f"anyplug --plugin {shlex.quote(plugin.path)} tools {shlex.quote(plugin.name)}"
            render.out("Models read:", *(f"  {line}" for line in model_texts.shown(plugin.tools, command)))
    return FAILED if plugin.problems else 0


def _changed_tools(session: Session, plugin: Plugin) -> list[Problem]:
    """Return the changes in an approved plugin's tools since it was approved."""
    if not plugin.stays_up:
        return []
    entries = session.catalog.load().entries
    found = [problem for entry in entries if entry.path == plugin.path for problem in entry.problems]
    return [problem for problem in found if problem.code == TOOLS_CHANGED]
