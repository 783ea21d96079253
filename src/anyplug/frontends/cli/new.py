"""`new`: create a plugin from a template."""

import os
import shlex

from anyplug.formats import registry
from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser, folder
from anyplug.home.settings import find_home
from anyplug.manage import scaffold
from anyplug.runtime.processes.toolchain import find_node

FORMATS = tuple(scaffold.KINDS)
SPELLINGS = {"javascript": "node", "js": "node", "nodejs": "node", "ts": "typescript", "py": "python", "golang": "go"}
OLD_NAMES = {"cyclop-one": "cyclop"}  # accepted by earlier versions
LANGUAGES = tuple(dict.fromkeys(language for kind in scaffold.KINDS.values() for language in kind.languages))
NO_NODE = "It needs Node, which is not installed: `pip install 'anyplug[node]'` installs it. Then:"


def _new(parser: Parser) -> Command:
    parser.add_argument("name", metavar="NAME", help="the name of the plugin and of its folder")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        type=lambda given: OLD_NAMES.get(given, given),
        default=FORMATS[0],
        metavar="FORMAT",
        help=f"{', '.join(FORMATS)} (default: {FORMATS[0]})",
    )
    parser.add_argument(
        "--lang",
        choices=LANGUAGES,
        type=lambda given: SPELLINGS.get(given.lower(), given),
        default="",
        metavar="LANGUAGE",
        help=f"{', '.join(LANGUAGES)}; javascript is node (default: the first one that the format has)",
    )
    parser.add_argument(
        "--into", type=folder, default=".", metavar="FOLDER", help="the folder to create it in (default: this one)"
    )
    return new


COMMANDS = {"new": _new}


def new(session: Session) -> int:
    """Write a plugin and suggest the next commands."""
    options = session.options
    made = scaffold.draft(options.name, options.format, options.lang)
    path = os.path.normpath(os.path.join(os.path.expanduser(options.into), made.name))
    scaffold.write(made, path)
    if options.json:
        session.print_json(
            {
                "name": made.name,
                "format": made.format,
                "language": made.language,
                "path": os.path.abspath(path),
                "tool": made.tool,
                "files": list(made.files),
            }
        )
        return 0
    for file in made.files:
        render.out(os.path.join(path, file))
    has_all = made.language != "node" or find_node() is not None
    session.note("", "It works. Next:" if has_all else NO_NODE)
    session.note(*(f"  {command}" for command in _next(session, made, path)))
    return 0


def _next(session: Session, made: scaffold.Draft, path: str) -> list[str]:
    """Return the next commands; a plugin in a searched folder need not be installed."""
    arguments = " ".join(f"{name}={shlex.quote(value)}" for name, value in scaffold.EXAMPLE.items())
    here = shlex.quote(path)
    roots = registry.standard_roots(find_home(session.options.home), os.getcwd())
    is_found = os.path.dirname(os.path.abspath(path)) in roots
    program = shlex.join(["anyplug", *(["--home", session.options.home] if session.options.home else [])])
    return [
        f"{program} check {here}",
        f"{program} -e {here} call {made.tool} {arguments}",
        f"{program} approve {made.name}" if is_found else f"{program} install {here}",
    ]
