"""`list` and `tools`: what was found."""

import os
import sys
from typing import get_args

from anyplug.catalog.offers import NOT_RUNNING
from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.formats import registry
from anyplug.frontends.cli import model_texts, render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.describe_plugin import TIERS, first_sentence, print_problems
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import entry_shape, tool_shape
from anyplug.home.location import RESIDENT
from anyplug.model import tool_names
from anyplug.model.errors import DONE, FAILED, AnyplugError
from anyplug.model.types import State, Tool


def _list(parser: Parser) -> Command:
    states = get_args(State)
    parser.add_argument(
        "--state", metavar="STATE", choices=states, help=f"only plugins in this state: {', '.join(states)}"
    )
    parser.add_argument("--all", action="store_true", help="also list folders that may be plugins, by their files")
    return list_plugins


def _tools(parser: Parser) -> Command:
    parser.add_argument(
        "name", nargs="?", metavar="TOOL|PLUGIN", help="describe this tool, or the tools of this plugin"
    )
    parser.add_argument("--all", action="store_true", help="also list tools of plugins that are not approved")
    parser.add_argument("--cost", action="store_true", help="show how many tokens of context each plugin's tools take")
    return tools


LONGEST_VERSION = 20  # characters of a version in a table
COMMANDS = {"list": _list, "tools": _tools}


def list_plugins(session: Session) -> int:
    """List what was found."""
    wanted = session.options.state
    healths = _healths(session)
    found = session.running_snapshot().entries
    if session.options.all:
        session.catalog.shows_all = True
        known = {entry.path for entry in found}
        found = (*found, *(entry for entry in session.catalog.load().entries if entry.path not in known))
    entries = [entry for entry in found if not wanted or entry.state == wanted]
    # A folder that was named for this run, as for every other command.
    code = FAILED if any(entry.plugin.explicit and entry.state == "broken" for entry in found) else DONE
    if session.options.json:
        shapes = [entry_shape(entry, healths.get(entry.path, "idle")) for entry in entries]
        for problem in (problem for shape in shapes for problem in shape["problems"]):
            problem["hint"] = session.reached(problem["hint"])
        session.print_json(shapes)
        return code
    _say_what_agents_want(session)
    if not entries:
        render.out(f"No plugin is {wanted}." if wanted else "No plugins found.")
        if not session.snapshot.entries:
            session.note(*_where_we_looked(session))
        return code
    rows = [
        (
            entry.name,
            entry.plugin.version[:LONGEST_VERSION] or "-",
            registry.title(entry.format),
            entry.state,
            str(entry.plugin.tier) if entry.state != "broken" else "-",
            _count_tools(session, entry),
            entry.plugin.description,
        )
        for entry in entries
    ]
    render.table(("NAME", "VERSION", "FORMAT", "STATE", "TIER", "TOOLS", "DESCRIPTION"), rows)
    print_problems(entries, session.reached)
    if sys.stdout.isatty() and any(entry.plugin.tier > 1 for entry in entries):
        session.note(TIERS)
    return code


def _say_what_agents_want(session: Session) -> None:
    if not os.path.isdir(session.catalog.home.requests):  # otherwise importing the requests takes milliseconds
        return
    from anyplug.manage import install_requests  # only needed with requests

    if number := len(install_requests.waiting(session.catalog.home)):
        session.note(f"agents asked for {render.count(number, 'plugin')}; `anyplug install` lists the requests")


def _count_tools(session: Session, entry: Entry) -> str:
    """Count a plugin's tools; unknown for a plugin that reports them only while it runs, and never ran."""
    is_silent = entry.plugin.stays_up and entry.state not in {"approved", "broken"}
    return "?" if is_silent and not session.catalog.knows_offer(entry.plugin) else str(len(entry.tools))


def _healths(session: Session) -> dict[str, str]:
    """Ask the daemon for the health of long-running plugins. It starts none for that, and may be absent."""
    if not os.path.exists(
        os.path.join(session.catalog.home.path, RESIDENT)
    ):  # otherwise importing the client takes 6 ms
        return {}
    from anyplug.frontends.daemon.locate import may_attach  # only needed with a daemon

    try:
        if not may_attach() or (resident := session.attach("control")) is None:
            return {}
        with resident:
            conditions = resident.conditions()
    except AnyplugError as error:
        session.note(f"the daemon did not report the health of plugins: {error.message}")
        return {}
    if conditions:
        session.see_as(conditions)
    return {path: condition.health for path, condition in conditions.items()}


def tools(session: Session) -> int:
    """List the tools, describe one, or show their cost."""
    if not session.options.cost:
        return list_tools(session)
    from anyplug.frontends.cli import cost  # only agents and this need it

    return cost.show(session)


def list_tools(session: Session) -> int:
    """List the tools, or describe one."""
    name, snapshot = session.options.name, session.running_snapshot()
    owned = list(snapshot.owners.values())
    if name:
        found = [one for one in owned if one[1].name == name]
        if name in snapshot.owners or all(entry.name != name for entry in snapshot.entries):
            one = snapshot.tool(name)
            found = [one, *(other for other in found if other[0].name != one[0].name)]
        owned = found
    elif not session.options.all:
        owned = [(tool, entry) for tool, entry in owned if entry.state == "approved"]
    if session.options.json:
        session.print_json([tool_shape(tool, entry, session.snapshot) for tool, entry in owned])
    elif owned and name:
        _show_tools(owned, snapshot)
    elif owned:
        _print_tools(owned, snapshot)
    else:
        render.out("No tools can be called.")
        if not snapshot.entries:
            session.note(*_where_we_looked(session))
    if name in snapshot.owners:
        return DONE
    return say_who_is_missing(session, snapshot, name or "", is_all=session.options.all)


def say_who_is_missing(session: Session, snapshot: Snapshot, name: str = "", *, is_all: bool = False) -> int:
    """Report whose tools or commands are missing, and why; return the exit code. `name`: only this plugin.

    If a folder named for this run cannot be used, that is an error.
    """
    code = DONE
    for entry in snapshot.entries:
        for problem in entry.problems if name in {"", entry.name} else ():
            said = f"{entry.name}: {problem.message}"
            if entry.plugin.explicit and (problem.level == "error" or problem.code == NOT_RUNNING):
                render.error(session.reached(said), session.reached(problem.hint))
                code = FAILED
            elif entry.plugin.explicit or problem.code == NOT_RUNNING:
                session.warn(said)
    waiting = [
        entry.name for entry in snapshot.entries if entry.state in {"new", "changed"} and name in {"", entry.name}
    ]
    if waiting and not is_all:
        session.note(f"{render.count(len(waiting), 'plugin')} not approved: {', '.join(waiting)}")
        session.note(f"hint: review its permissions with `anyplug approve {waiting[0]}`")
    return code


def _print_tools(owned: list[tuple[Tool, Entry]], snapshot: Snapshot) -> None:
    """Print a table, with the names that agents see if they differ because of collisions or length."""
    given = {tool.name: snapshot.model_names[tool.name] for tool, _ in owned}
    is_odd = any(model_name != tool_names.plain_name(full) for full, model_name in given.items())
    heads = ("TOOL", *(("FOR AGENTS",) if is_odd else ()), "PLUGIN", "DESCRIPTION")
    rows = [
        (tool.name, *((given[tool.name],) if is_odd else ()), entry.name, first_sentence(tool.description))
        for tool, entry in owned
    ]
    render.table(heads, rows)


def _show_tools(owned: list[tuple[Tool, Entry]], snapshot: Snapshot) -> None:
    """Print everything that models read of tools."""
    for number, (tool, entry) in enumerate(owned):
        if number:
            render.out("")
        about = tool.description.strip().split("\n")
        render.fields(
            [
                ("tool", tool.name),
                ("title", tool.title),
                ("for agents", snapshot.model_names.get(tool.name, "")),
                ("plugin", f"{entry.name} ({entry.state})"),
                ("about", about if len(about) == 1 else [render.QUOTE + line for line in about]),
                ("arguments", model_texts.arguments(tool) or "none"),
                *model_texts.rest_of_schemas(tool),
                ("runs", "as a job" if tool.is_async else ""),
                ("deferred", "agents see it once they search for it or a result activates it" if tool.deferred else ""),
            ],
            whole=True,
        )


def _where_we_looked(session: Session) -> list[str]:
    roots = session.catalog.roots
    if not roots:
        return ["hint: `anyplug --plugin FOLDER list` uses the plugin in a folder"]
    return [
        "hint: `anyplug install FOLDER` installs a plugin; these folders were searched:",
        *(f"  {root}" for root in roots),
    ]
