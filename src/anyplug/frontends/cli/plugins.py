"""`list`, `tools` and `show`: what was found."""

import os
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from anyplug import config, names, permissions
from anyplug.errors import DONE, FAILED, ConfigError
from anyplug.frontends.cli import arguments, render
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session
from anyplug.model import Plugin, State, Tool
from anyplug.offers import NOT_RUNNING
from anyplug.registry import Entry, Snapshot
from anyplug.shapes import entry_shape, process_shape, server_shape, show_shape, tool_shape

if TYPE_CHECKING:
    from anyplug.approval import Approval
    from anyplug.host import Host
    from anyplug.protection import Protection

FORMAT_NAMES = {
    "cyclop": "Cyclop One",
    "stavrobot": "Stavrobot",
    "zot": "zot",
    "mcp": "MCP",
    "workbench": "Workbench",
    "builtin": "built-in",
    "": "?",
}


MIB, GIB = 1 << 20, 1 << 30
SIZES = frozenset({"memory", "file_size", "disk", "tmp"})  # the limits that are bytes


def _list(parser: Parser) -> Command:
    states = get_args(State)
    parser.add_argument("--state", metavar="STATE", choices=states, help=f"only plugins that are {', '.join(states)}")
    return list_plugins


def _tools(parser: Parser) -> Command:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a tool, or a plugin whose tools to list")
    parser.add_argument("--all", action="store_true", help="also those that nobody has approved")
    parser.add_argument("--cost", action="store_true", help="show what each plugin's tools take of an agent's context")
    return tools


def _show(parser: Parser) -> Command:
    parser.add_argument("name", metavar="NAME", help="the plugin's name, or its folder")
    return show


COMMANDS = {"list": _list, "tools": _tools, "show": _show}


def list_plugins(session: Session) -> int:
    """List what was found."""
    wanted = session.options.state
    healths = _healths(session) if session.options.json else {}
    entries = [entry for entry in session.running_snapshot().entries if not wanted or entry.state == wanted]
    if session.options.json:
        session.print_json([entry_shape(entry, healths.get(entry.path, "idle")) for entry in entries])
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
            _count_tools(session, entry),
            entry.plugin.description,
        )
        for entry in entries
    ]
    render.table(("NAME", "FORMAT", "STATE", "TIER", "TOOLS", "DESCRIPTION"), rows)
    _print_problems(entries)
    return 0


def _count_tools(session: Session, entry: Entry) -> str:
    """Count a plugin's tools; of one that says only while it runs what it has, and never did, nobody knows."""
    is_silent = entry.plugin.stays_up and entry.state not in {"approved", "broken"}
    return "?" if is_silent and not session.catalog.knows_offer(entry.plugin) else str(len(entry.tools))


def _healths(session: Session) -> dict[str, str]:
    """Ask the host that is up how plugins that stay up are doing."""
    if (resident := session.attach()) is None:
        return {}
    with resident:
        conditions = resident.conditions()
    session.see_as(conditions)
    return {path: condition.health for path, condition in conditions.items()}


def tools(session: Session) -> int:
    """List the tools, show one, or say what they cost."""
    if not session.options.cost:
        return list_tools(session)
    from anyplug.frontends.cli import cost  # what agents see, which only they and this need

    return cost.show(session)


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
    elif owned:
        _print_tools(owned, snapshot)
    else:
        print("No tools can be called.")
    return say_who_is_missing(session, snapshot, name or "", is_all=session.options.all)


def say_who_is_missing(session: Session, snapshot: Snapshot, name: str = "", *, is_all: bool = False) -> int:
    """Say whose tools or commands are not there, and why; give the exit code. `name`: of one plugin only.

    Whoever names a folder for this run wants what is in it: if that cannot be used, it is an error.
    """
    code = DONE
    for entry in snapshot.entries:
        for problem in entry.problems if name in {"", entry.name} else ():
            said = f"{entry.name}: {problem.message}"
            if entry.plugin.explicit and (problem.level == "error" or problem.code == NOT_RUNNING):
                render.error(said, problem.hint)
                code = FAILED
            elif entry.plugin.explicit or problem.code == NOT_RUNNING:
                session.warn(said)
    waiting = [
        entry.name for entry in snapshot.entries if entry.state in {"new", "changed"} and name in {"", entry.name}
    ]
    if waiting and not is_all:
        session.note(f"{render.count(len(waiting), 'plugin')} not approved: {', '.join(waiting)}")
        session.note(f"hint: `anyplug approve {waiting[0]}` shows what it asks for")
    return code


def _print_tools(owned: list[tuple[Tool, Entry]], snapshot: Snapshot) -> None:
    """Print a table, with the names that agents see if they cannot be guessed: some met others, or were too long."""
    given = {tool.name: snapshot.model_names[tool.name] for tool, _ in owned}
    is_odd = any(model_name != names.plain_name(full) for full, model_name in given.items())
    heads = ("TOOL", *(("FOR AGENTS",) if is_odd else ()), "PLUGIN", "DESCRIPTION")
    rows = [
        (tool.name, *((given[tool.name],) if is_odd else ()), entry.name, _first_sentence(tool.description))
        for tool, entry in owned
    ]
    render.table(heads, rows)


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
        entry, process = _look_at_running(session, plugin)
    held_by = _held_by(session, entry)
    approval = None if plugin.explicit else session.catalog.approvals.of(plugin)
    shape = show_shape(entry, values, dict(os.environ), digest, process, held_by, approval)
    if session.options.json:
        session.print_json(shape)
        return 0
    render.fields(
        [
            ("name", f"{plugin.name} {plugin.version}".strip()),
            ("format", FORMAT_NAMES[plugin.format]),
            ("about", plugin.description),
            ("file" if plugin.is_file else "folder", _folder(entry)),
            ("state", entry.state + (f", by {_shadowed_by(entry)}" if entry.shadowed_by else "")),
            ("changes", "\n".join(entry.standing.changes)),
            ("tier", f"{plugin.tier} ({_tier(plugin, approval)})" if entry.state != "broken" else ""),
            ("approval", "\n".join(_approval(approval))),
            ("asks for", "\n".join(describe_permissions(plugin.permissions)) or "nothing"),
            ("granted", "\n".join(describe_permissions(entry.standing.granted))),
            ("warning", permissions.warning(entry.standing.granted or plugin.permissions)),
            *(confinement_fields(held_by) if held_by is not None else ()),
            ("withheld", ", ".join(shape["environment_withheld"])),
            ("digest", digest[:16]),
            ("servers", "\n".join(describe_servers(plugin))),
            ("tools", "\n".join(named(tool.name, _first_sentence(tool.description)) for tool in entry.tools)),
            ("commands", "\n".join(named(f"/{command.name}", command.description) for command in entry.commands)),
            ("process", _process_lines(process)),
            ("config", "\n".join(_config_line(key) for key in shape["config"])),
        ]
    )
    if plugin.instructions:
        print(f"\nInstructions from the plugin's author, for you:\n\n{render.plain(plugin.instructions)}")
    _print_problems([entry])
    return 0


def _held_by(session: Session, entry: Entry) -> "Protection | None":
    """Find out what holds a plugin, or would hold it if all that it asks for were granted."""
    if entry.state in {"broken", "shadowed"}:
        return None
    from anyplug.protection import assess  # brings an event loop along, and only `show` and `approve` need it

    standing = entry.standing
    if entry.state in {"new", "denied"}:
        standing = msgspec.structs.replace(standing, granted=entry.plugin.permissions)
    return assess(session.catalog, entry.plugin, standing)


def confinement_fields(held_by: "Protection") -> list[tuple[str, str]]:
    """Say for people what holds a plugin, and what its grants open."""
    said = {
        "confined": "yes, by " + ", ".join(held_by.layers),
        "partly": f"only in part, by {', '.join(held_by.layers) or 'nothing'}, because you allowed it",
        "refused": "it does not run here, because its permissions cannot be enforced",
        "off": f"no: confinement is switched off by {held_by.off_by}",
    }
    falls = [render.line(f"nothing holds {fall.what}: {fall.why}; {fall.cure}") for fall in held_by.shortfalls]
    return [
        ("opens", "\n".join(held_by.notes)),
        ("confined", "\n".join([said[held_by.state], *falls])),
        ("left open", "\n".join(held_by.gaps)),
        ("limits", ", ".join(_limit(name, value) for name, value in held_by.limits.items())),
    ]


def _limit(name: str, value: int) -> str:
    """Say a limit as a person would."""
    if name in SIZES:
        unit, size = ("GiB", GIB) if value >= GIB and value % GIB == 0 else ("MiB", MIB)
        return f"{name.replace('_', ' ')} {value / size:g} {unit}"
    return f"CPU {value} s" if name == "cpu_s" else f"{value} {name.replace('_', ' ')}"


def _look_at_running(session: Session, plugin: Plugin) -> tuple[Entry, dict[str, Any]]:
    if (resident := session.attach()) is None:
        return session.with_host(lambda host: _look_at(host, plugin))
    with resident:
        process = resident.look(plugin.path)
        session.see_as(resident.conditions())
    return session.plugin(plugin.path), process


async def _look_at(host: "Host", plugin: Plugin) -> tuple[Entry, dict[str, Any]]:
    """Start a plugin that stays up, and look at what it does."""
    places = await host.peers.look_in(plugin, retry=False)  # this host has tried it just now
    return host.snapshot.plugin(plugin.path), process_shape(places)


def _process_lines(process: dict[str, Any] | None) -> str:
    if process is None:
        return ""
    if "processes" in process:
        several = process["processes"].items()
        return "\n".join(f"{render.line(name)}: {_process_lines(each)}" for name, each in several)
    frames = ", ".join(f"{count} {kind}" for kind, count in process["frames"].items()) or "none"
    pid = f", pid {process['pid']}" if process["pid"] else ""
    up = f", up {render.duration(process['uptime_s'])}" if process["uptime_s"] else ""
    lines = [
        f"{process['health']}{pid}{up}, {render.count(process['restarts'], 'restart')}"
        if process["health"] == "running"
        else f"{process['health']}: {process['reason']}",
        *([f"frames: {frames}; malformed: {process['malformed']}"] if pid or process["health"] != "running" else []),
        *([f"is told of: {', '.join(process['events'])}"] if process["events"] else []),
        *([f"decides about: {', '.join(process['intercepts'])}"] if process["intercepts"] else []),
    ]
    return "\n".join(
        [*lines, *([f"stderr: {process['stderr_tail'].strip()}"] if process["stderr_tail"].strip() else [])]
    )


def named(name: str, description: str) -> str:
    """Give a name with what it stands for, if anybody said."""
    return f"{name}: {description}" if description else name


def describe_servers(plugin: Plugin) -> list[str]:
    """Say of each MCP server what is started, or where it is."""
    lines = []
    for server in map(server_shape, plugin.endpoints):
        reached = " ".join(server["command"]) if server["command"] else server["url"]
        given = [*(f"{name}={value}" for name, value in server["environment"].items()), *server["headers"]]
        lines.append(render.line(f"{server['name']}: {reached}" + (f" (with {', '.join(given)})" if given else "")))
    return lines


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
            ("title", tool.title),
            ("for agents", session.snapshot.model_names.get(tool.name, "")),
            ("plugin", f"{entry.name} ({entry.state})"),
            ("about", tool.description),
            ("arguments", "\n".join(arguments.lines(tool)) or "none"),
            ("runs", "as a job" if tool.is_async else ""),
        ]
    )
    return 0


def _print_problems(entries: list[Entry]) -> None:
    for entry in entries:
        for problem in entry.problems:
            print(f"\n{problem.level}: {entry.name}: {render.line(problem.message)}")
            if problem.hint:
                print(f"  hint: {render.line(problem.hint)}")
        if entry.state == "shadowed":
            print(f"\nnote: {entry.name} at {entry.path} is shadowed by {_shadowed_by(entry)}")


def _shadowed_by(entry: Entry) -> str:
    """Say which other one of its name comes first, and what is left to it."""
    return entry.shadowed_by + ("; as a guard it goes on until that one is approved" if entry.on_guard else "")


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


def _tier(plugin: Plugin, approval: "Approval | None") -> str:
    if plugin.tier == 1:
        return "runs without asking once approved"
    if plugin.explicit:
        return "does not ask: you named its folder"
    is_always = approval is not None and approval.always
    return "does not ask: you said always" if is_always else "asks once in each run or session"


def _approval(approval: "Approval | None") -> list[str]:
    """Say what a person allowed beyond the approval itself."""
    if approval is None:
        return []
    unconfined = "may run where its permissions cannot be enforced (--allow-unconfined)"
    return [
        *(["stays approved while only its code changes (--follow)"] if approval.follow else []),
        *([unconfined] if approval.unconfined else []),
    ]


def _config_line(key: dict[str, Any]) -> str:
    value = config.SHOWN_SECRET if key["secret"] else key["value"]
    state = f"= {value}" if key["set"] else ("not set, required" if key["required"] else "not set")
    return f"{key['name']} {state}  {key['description']}".rstrip()


def _first_sentence(text: str) -> str:
    line = text.strip().partition("\n")[0]
    end = line.find(". ")
    return line if end < 0 else line[: end + 1]
