"""`check`: everything that is wrong with a plugin's folder, each with the cure."""

from anyplug import checkup
from anyplug.errors import FAILED
from anyplug.frontends.cli import render
from anyplug.frontends.cli.describe import FORMAT_NAMES
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session
from anyplug.shapes import problem_shape


def _check(parser: Parser) -> Command:
    parser.add_argument("path", metavar="PATH", help="the plugin's folder")
    return check


COMMANDS = {"check": _check}


def check(session: Session) -> int:
    """Examine a folder and print what was found."""
    plugin = checkup.examine(session.options.path)
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
            render.out(f"{problem.level}: {render.line(problem.message)}")
            if problem.hint:
                render.out(f"  hint: {render.line(problem.hint)}")
        found = render.count(len(plugin.problems), "problem") if plugin.problems else "no problems"
        tools = (
            "(its tools are known once it runs)"
            if plugin.stays_up
            else f"with {render.count(len(plugin.tools), 'tool')}"
        )
        kind = f"{FORMAT_NAMES[plugin.format]} plugin {tools}"
        render.out(f"{plugin.name}: {kind if plugin.format else 'not a plugin'}, {found}")
    return FAILED if plugin.problems else 0
