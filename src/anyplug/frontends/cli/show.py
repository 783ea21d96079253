"""`show`: everything about one plugin."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.catalog.snapshot import Entry
from anyplug.formats import registry
from anyplug.frontends.cli import model_texts, render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.describe_plugin import (
    describe_permissions,
    describe_servers,
    print_problems,
    shadowed_by,
)
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import process_shape, show_shape
from anyplug.home import plugin_config
from anyplug.model import hints, permissions, protected_paths
from anyplug.model.errors import ConfigError
from anyplug.model.tool_names import described
from anyplug.model.types import Plugin
from anyplug.model.untrusted_text import lines_for_people

if TYPE_CHECKING:
    from anyplug.catalog.approvals import Approval
    from anyplug.host.host import Host
    from anyplug.launch.assessment import Protection

MIB, GIB = 1 << 20, 1 << 30
LARGE = 100 << 20  # bytes of a snapshot that are worth mentioning
SNAPSHOT_LATER = "a read-only snapshot, created when it is approved or first started"
SIZES = frozenset({"memory", "file_size", "disk", "tmp"})  # the limits in bytes


def _show(parser: Parser) -> Command:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name, or its folder")
    return show


COMMANDS = {"show": _show}


def show(session: Session) -> int:
    """Show one plugin."""
    entry = session.plugin(session.options.name)
    plugin = entry.plugin
    try:
        values = plugin_config.read(plugin) if plugin.config else {}
    except ConfigError as error:
        values = {}
        session.warn(error.message)
    digest = _digest(session, entry)
    process = None
    if plugin.stays_up and entry.state == "approved":
        entry, process = _look_at_running(session, plugin)
    held_by = _held_by(session, entry)
    approval = None if plugin.explicit else session.catalog.approvals.of(plugin)
    cold = _cold(session, entry)
    shape = show_shape(entry, values, dict(os.environ), digest, process, held_by, approval, cold)
    if session.options.json:
        session.print_json(shape)
        return 0
    render.fields(
        [
            ("name", f"{plugin.name} {plugin.version}".strip()),
            ("format", registry.title(plugin.format)),
            ("about", plugin.description),
            ("file" if plugin.is_file else "folder", _folder(entry)),
            ("data", _data(session, entry)),
            ("state", entry.state + (f", by {shadowed_by(entry)}" if entry.shadowed_by else "")),
            ("changes", entry.standing.changes),
            ("not used", _left_out(session, plugin)),
            ("tier", f"{plugin.tier} ({_tier(plugin, approval)})" if entry.state != "broken" else ""),
            ("approval", _approval(approval)),
            ("asks for", describe_permissions(plugin.permissions) or "nothing"),
            ("granted", describe_permissions(entry.standing.granted)),
            ("warning", permissions.warning(entry.standing.granted or plugin.permissions)),
            *(_confinement_fields(held_by) if held_by is not None else ()),
            ("withheld", _withheld(shape["environment_withheld"])),
            ("digest", digest[:16]),
            *(_own_folder_fields(session, entry, held_by, digest) if held_by is not None else ()),
            ("servers", describe_servers(plugin)),
            ("tools", model_texts.shown(entry.tools, hints.command("tools", plugin.name))),
            ("started", [_start_line(name, why) for name, why in cold.items()]),
            ("commands", [described(f"/{one.name}", render.line(one.description)) for one in entry.commands]),
            ("process", _process_lines(process)),
            ("config", [_config_line(key) for key in shape["config"]]),
        ]
    )
    if plugin.instructions:
        render.out("", "Instructions from the plugin's author, for you:", "")
        render.quote(plugin.instructions)
    print_problems([entry], session.reached)
    return 0


def _left_out(session: Session, plugin: Plugin) -> list[str]:
    """List what was not taken from a plugin that was written for another agent."""
    from anyplug.manage.installer import Installer  # only `show` of the commands that look at plugins needs it

    record = Installer(session.catalog).origin(plugin)
    return [render.line(line) for line in record.left_out] if record is not None else []


def _cold(session: Session, entry: Entry) -> dict[str, str]:
    """Return which programs are started with each call, and why."""
    if entry.state in {"broken", "shadowed"}:
        return {}
    from anyplug.launch.warm_starts import foreseen  # as below

    return foreseen(entry.plugin, session.catalog.home, session.catalog.settings, os.environ)


def _start_line(program: str, why: str) -> str:
    return render.line(f"{program}: " + (f"with each call, because {why}" if why else "ahead of calls, while in use"))


def _withheld(variables: dict[str, str]) -> list[str]:
    """List the variables that it does not see, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, why in variables.items():
        by_reason.setdefault(why, []).append(name)
    return [f"{', '.join(names)} ({why})" for why, names in by_reason.items()]


def _held_by(session: Session, entry: Entry) -> "Protection | None":
    """Assess how a plugin is confined, or would be if everything it asks for were granted."""
    if entry.state in {"broken", "shadowed"}:
        return None
    from anyplug.launch.assessment import assess  # imports an event loop, and only `show` and `approve` need it

    standing = entry.standing
    if entry.state in {"new", "denied"}:
        standing = msgspec.structs.replace(standing, granted=entry.plugin.permissions)
    return assess(session.catalog, entry.plugin, standing)


def _confinement_fields(held_by: "Protection") -> list[tuple[str, str | Sequence[str]]]:
    """Describe how a plugin is confined, and what its grants open."""
    said = {
        "confined": "yes, by " + ", ".join(held_by.layers),
        "partly": f"only in part, by {', '.join(held_by.layers) or 'nothing'}, because you allowed it",
        "refused": "it does not run here, because its permissions cannot be enforced",
        "off": f"no: {held_by.off_by} turns the sandbox off",
    }
    falls = [render.line(f"nothing enforces {fall.what}: {fall.why}; {fall.cure}") for fall in held_by.shortfalls]
    return [
        ("opens", held_by.notes),
        ("confined", [said[held_by.state], *falls]),
        ("protected", protected_paths.summary(held_by.protected)),
        ("left open", held_by.gaps),
        ("limits", ", ".join(_limit(name, value) for name, value in held_by.limits.items())),
    ]


def _own_folder_fields(session: Session, entry: Entry, held_by: "Protection", digest: str) -> list[tuple[str, str]]:
    """Describe what runs, and where it keeps what it writes into its folder."""
    from anyplug.home.code_snapshots import Snapshots
    from anyplug.launch.own_folder import writes_aside  # already imported with the protection

    plugin, store = entry.plugin, Snapshots(session.catalog.home.path)
    if plugin.is_file:
        return [("runs", "the commands of its servers, which are outside any folder")]
    if "read-only" not in held_by.layers:
        return [("runs", "its folder as it is: without mount namespaces there is no snapshot")]
    size = store.size(digest)
    large = f", {size >> 20} MiB" if size >= LARGE else ""
    runs = f"{store.path(digest)} (a read-only snapshot of what was approved{large})" if size else SNAPSHOT_LATER
    aside = session.catalog.home.beside(plugin) if writes_aside(plugin, entry.standing) else ""
    return [("runs", runs), ("writes", f"{aside} (overlaid on its folder)" if aside else "")]


def _limit(name: str, value: int) -> str:
    """Format a limit for people."""
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
    """Start a long-running plugin and return its state."""
    places = await host.peers.look_in(plugin, retry=False)  # this host has just tried it
    return host.snapshot.plugin(plugin.path), process_shape(places)


def _process_lines(process: dict[str, Any] | None) -> list[str]:
    if process is None:
        return []
    if "processes" in process:
        several = process["processes"].items()
        return [line for name, each in several for line in (f"{name}:", *(f"  {one}" for one in _process_lines(each)))]
    frames = ", ".join(f"{count} {kind}" for kind, count in process["frames"].items()) or "none"
    pid = f", pid {process['pid']}" if process["pid"] else ""
    up = f", up {render.duration(process['uptime_s'])}" if process["uptime_s"] else ""
    lines = [
        f"{process['health']}{pid}{up}, {render.count(process['restarts'], 'restart')}"
        if process["health"] == "running"
        else f"{process['health']}: {process['reason']}",
        *([f"frames: {frames}; malformed: {process['malformed']}"] if pid or process["health"] != "running" else []),
        *([f"receives: {', '.join(process['events'])}"] if process["events"] else []),
        *([f"decides about: {', '.join(process['intercepts'])}"] if process["intercepts"] else []),
    ]
    said = process["stderr_tail"].strip()
    return [*lines, *(["stderr:", *lines_for_people(said, render.QUOTE)] if said else [])]


def _digest(session: Session, entry: Entry) -> str:
    if entry.state in {"broken", "shadowed"}:
        return ""
    try:
        return session.catalog.digest(entry.plugin).value
    except OSError:
        return ""


def _data(session: Session, entry: Entry) -> str:
    """Return where a plugin keeps its data if another plugin owns the folder of its name, and which one."""
    plugin, home = entry.plugin, session.catalog.home
    if entry.state == "broken" or not plugin.format:
        return ""
    data = registry.BY_NAME[plugin.format].data(plugin, home)
    owner = home.owner(plugin.name)
    return "" if os.path.basename(data) == plugin.name else f"{data} (data/{plugin.name} belongs to {owner})"


def _folder(entry: Entry) -> str:
    plugin = entry.plugin
    return plugin.path if plugin.found_at in {"", plugin.path} else f"{plugin.found_at} -> {plugin.path}"


def _tier(plugin: Plugin, approval: "Approval | None") -> str:
    if plugin.tier == 1:
        return "runs without asking once approved"
    if plugin.explicit:
        return "does not ask: you gave its folder"
    is_always = approval is not None and approval.always
    return "does not ask: you said always" if is_always else "asks once per run or session"


def _approval(approval: "Approval | None") -> list[str]:
    """Describe what a person allowed beyond the approval itself."""
    if approval is None:
        return []
    unconfined = "may run where its permissions cannot be enforced (--allow-unconfined)"
    return [
        *(["stays approved while only its code changes (--follow)"] if approval.follow else []),
        *([unconfined] if approval.unconfined else []),
        *(["gets your environment without secrets (--inherit-env)"] if approval.inherits_environment else []),
    ]


def _config_line(key: dict[str, Any]) -> str:
    value = plugin_config.SHOWN_SECRET if key["secret"] else key["value"]
    state = f"= {value}" if key["set"] else ("not set, required" if key["required"] else "not set")
    return f"{key['name']} {state}  {key['description']}".rstrip()
