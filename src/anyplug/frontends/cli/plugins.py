"""`list`, `tools` and `show`: what was found."""

import os
from typing import TYPE_CHECKING, Any, get_args

from anyplug import config, permissions
from anyplug.errors import ConfigError, Unavailable
from anyplug.frontends.cli import render
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session
from anyplug.model import Plugin, State, Tool
from anyplug.offers import NOT_RUNNING
from anyplug.registry import Entry
from anyplug.shapes import entry_shape, process_shape, show_shape, tool_shape

if TYPE_CHECKING:
    from anyplug.host import Host

FORMAT_NAMES = {"cyclop": "Cyclop One", "stavrobot": "Stavrobot", "zot": "zot", "": "?"}


def _list(parser: Parser) -> Command:
    states = get_args(State)
    parser.add_argument("--state", metavar="STATE", choices=states, help=f"only plugins that are {', '.join(states)}")
    return list_plugins


def _tools(parser: Parser) -> Command:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a tool, or a plugin whose tools to list")
    parser.add_argument("--all", action="store_true", help="also those that nobody has approved")
    return list_tools


def _show(parser: Parser) -> Command:
    parser.add_argument("name", metavar="NAME", help="the plugin's name, or its folder")
    return show


COMMANDS = {"list": _list, "tools": _tools, "show": _show}


def list_plugins(session: Session) -> int:
    """List what was found."""
    wanted = session.options.state
    entries = [entry for entry in session.running_snapshot().entries if not wanted or entry.state == wanted]
    if session.options.json:
        session.print_json([entry_shape(entry) for entry in entries])
        return 0
    if not entries:
        print(f"No plugin is {wanted}." if wanted else "No plugins found.")
        if not session.snapshot.entries:
            session.note(_where_we_looked(session))
        return 0
    rows = [
        (
            entry.name,
            FORMAT_NAMES[entry.format],
            entry.state,
            str(entry.plugin.tier) if entry.state != "broken" else "-",
            str(len(entry.tools)),
            entry.plugin.description,
        )
        for entry in entries
    ]
    render.table(("NAME", "FORMAT", "STATE", "TIER", "TOOLS", "DESCRIPTION"), rows)
    _print_problems(entries)
    return 0


def list_tools(session: Session) -> int:
    """List the tools, or show one."""
    name, snapshot = session.options.name, session.running_snapshot()
    owned = list(snapshot.owners.values())
    if name:
        if name in snapshot.owners or all(entry.name != name for entry in snapshot.entries):
            return _show_tool(session)
        owned = [(tool, entry) for tool, entry in owned if entry.name == name]
    elif not session.options.all:
        owned = [(tool, entry) for tool, entry in owned if entry.state == "approved"]
    if session.options.json:
        session.print_json([tool_shape(tool, entry, session.snapshot) for tool, entry in owned])
        return 0
    if owned:
        rows = [(tool.name, entry.name, _first_sentence(tool.description)) for tool, entry in owned]
        render.table(("TOOL", "PLUGIN", "DESCRIPTION"), rows)
    else:
        print("No tools can be called.")
    for entry in snapshot.entries:
        for problem in entry.problems:
            if problem.code == NOT_RUNNING and (not name or entry.name == name):
                session.warn(problem.message)
    waiting = [
        entry.name
        for entry in snapshot.entries
        if entry.state in {"new", "changed"} and (not name or entry.name == name)
    ]
    if waiting and not session.options.all:
        session.note(f"{render.count(len(waiting), 'plugin')} not approved: {', '.join(waiting)}")
        session.note(f"hint: `anyplug approve {waiting[0]}` shows what it asks for")
    return 0


def show(session: Session) -> int:
    """Show one plugin."""
    entry = session.plugin(session.options.name)
    plugin = entry.plugin
    try:
        values = config.read(plugin) if plugin.config else {}
    except ConfigError as error:
        values = {}
        session.warn(error.message)
    digest = _digest(session, entry)
    process = None
    if plugin.stays_up and entry.state == "approved":
        entry, process = session.with_host(lambda host: _look_at(host, plugin))
    shape = show_shape(entry, values, dict(os.environ), digest, process)
    if session.options.json:
        session.print_json(shape)
        return 0
    render.fields(
        [
            ("name", f"{plugin.name} {plugin.version}".strip()),
            ("format", FORMAT_NAMES[plugin.format]),
            ("about", plugin.description),
            ("folder", _folder(entry)),
            ("state", entry.state + (f", by {entry.shadowed_by}" if entry.shadowed_by else "")),
            ("changes", "\n".join(entry.standing.changes)),
            ("tier", f"{plugin.tier} ({_tier(plugin.tier)})" if entry.state != "broken" else ""),
            ("asks for", "\n".join(describe_permissions(plugin.permissions)) or "nothing"),
            ("granted", ", ".join(entry.standing.granted)),
            ("warning", permissions.warning(plugin.permissions)),
            ("withheld", ", ".join(shape["environment_withheld"])),
            ("digest", digest[:16]),
            ("tools", "\n".join(f"{tool.name}: {_first_sentence(tool.description)}" for tool in entry.tools)),
            ("commands", "\n".join(f"/{command.name}: {command.description}" for command in entry.commands)),
            ("process", _process_lines(process)),
            ("config", "\n".join(_config_line(key) for key in shape["config"])),
        ]
    )
    if plugin.instructions:
        print(f"\nInstructions from the plugin's author, for you:\n\n{render.plain(plugin.instructions)}")
    _print_problems([entry])
    return 0


async def _look_at(host: "Host", plugin: Plugin) -> tuple[Entry, dict[str, Any]]:
    """Start a plugin that stays up, and look at what it does."""
    try:
        await host.extensions.peer(plugin)
    except Unavailable:
        pass  # its process says why
    place = host.extensions.place(plugin)
    assert place is not None  # it is approved
    return host.snapshot.plugin(plugin.path), process_shape(place)


def _process_lines(process: dict[str, Any] | None) -> str:
    if process is None:
        return ""
    frames = ", ".join(f"{count} {kind}" for kind, count in process["frames"].items()) or "none"
    lines = [
        f"{process['health']}, pid {process['pid']}, {render.count(process['restarts'], 'restart')}, for this look"
        if process["pid"]
        else f"{process['health']}: {process['reason']}",
        f"frames: {frames}; malformed: {process['malformed']}",
    ]
    return "\n".join(
        [*lines, *([f"stderr: {process['stderr_tail'].strip()}"] if process["stderr_tail"].strip() else [])]
    )


def describe_permissions(asked: tuple[str, ...]) -> list[str]:
    """Say what each permission means."""
    return [render.line(f"{permission}: {permissions.describe(permission)}") for permission in asked]


def _show_tool(session: Session) -> int:
    tool, entry = session.snapshot.tool(session.options.name)
    if session.options.json:
        session.print_json([tool_shape(tool, entry, session.snapshot)])
        return 0
    render.fields(
        [
            ("tool", tool.name),
            ("for agents", session.snapshot.model_names[tool.name]),
            ("plugin", f"{entry.name} ({entry.state})"),
            ("about", tool.description),
            ("arguments", "\n".join(_argument_lines(tool)) or "none"),
            ("runs", "as a job" if tool.is_async else ""),
        ]
    )
    return 0


def _argument_lines(tool: Tool) -> list[str]:
    properties = tool.input_schema.get("properties")
    required = tool.input_schema.get("required")
    if not isinstance(properties, dict):
        return []
    lines = []
    for name, schema in properties.items():
        described = schema if isinstance(schema, dict) else {}
        kind = described.get("type", "any")
        kinds = "|".join(kind) if isinstance(kind, list) else str(kind)
        if isinstance(described.get("enum"), list):
            kinds = "|".join(map(str, described["enum"]))
        needed = ", required" if isinstance(required, list) and name in required else ""
        lines.append(f"{name} ({kinds}{needed})  {described.get('description', '')}".rstrip())
    return lines


def _print_problems(entries: list[Entry]) -> None:
    for entry in entries:
        for problem in entry.problems:
            print(f"\n{problem.level}: {entry.name}: {render.line(problem.message)}")
            if problem.hint:
                print(f"  hint: {render.line(problem.hint)}")
        if entry.state == "shadowed":
            print(f"\nnote: {entry.name} at {entry.path} is shadowed by {entry.shadowed_by}")


def _where_we_looked(session: Session) -> str:
    roots = session.catalog.roots
    if not roots:
        return "hint: name a folder with --plugin"
    return "hint: put a plugin into one of these, or `anyplug install` one:\n" + "\n".join(
        f"  {root}" for root in roots
    )


def _digest(session: Session, entry: Entry) -> str:
    if entry.state in {"broken", "shadowed"}:
        return ""
    try:
        return session.catalog.digest(entry.plugin).value
    except OSError:
        return ""


def _folder(entry: Entry) -> str:
    plugin = entry.plugin
    return plugin.path if plugin.found_at in {"", plugin.path} else f"{plugin.found_at} -> {plugin.path}"


def _tier(tier: int) -> str:
    return "runs without asking once approved" if tier == 1 else "asks once in each run or session"


def _config_line(key: dict[str, Any]) -> str:
    value = config.SHOWN_SECRET if key["secret"] else key["value"]
    state = f"= {value}" if key["set"] else ("not set, required" if key["required"] else "not set")
    return f"{key['name']} {state}  {key['description']}".rstrip()


def _first_sentence(text: str) -> str:
    line = text.strip().partition("\n")[0]
    end = line.find(". ")
    return line if end < 0 else line[: end + 1]
