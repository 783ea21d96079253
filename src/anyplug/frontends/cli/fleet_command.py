"""`fleet`: set up a fleet, decide what it may run, and look at it."""

import os
from typing import TYPE_CHECKING, TypeVar

import msgspec

from anyplug.formats import registry
from anyplug.frontends.cli import fleet_view, render, terminal
from anyplug.frontends.cli.cli_run import Session, refuse
from anyplug.frontends.cli.describe_plugin import describe_permissions
from anyplug.frontends.cli.parsing import Command, Parser, whole
from anyplug.home.settings import FleetSettings, find_home
from anyplug.model import permissions
from anyplug.model.errors import UsageError
from anyplug.model.hints import command, typed

if TYPE_CHECKING:  # with the libraries for a fleet
    from collections.abc import Awaitable, Callable

    from anyplug.fleet.administration import Seat
    from anyplug.fleet.credentials import Role
    from anyplug.fleet.messages import Offered
    from anyplug.fleet.overview import FleetView

T = TypeVar("T")

ACTIONS = ("demo", "config", "init", "approve", "publish", "policy", "revoke", "withdraw", "secret", "status")
MEMBERS: "tuple[Role, ...]" = ("gateway", "worker", "observer")
ALSO = {
    "worker": "; with secret: for this one, not for all that offer the plugin; with approve: as this one describes it"
}
NAMED = frozenset({"policy", "approve", "publish", "revoke", "withdraw", "secret"})  # actions that take a name
ITS_ADDRESS = "nats://127.0.0.1:4222"  # of a server whose configuration says nothing else
CONNECT_S = 5.0  # a person waits for it
EPILOG = """\
actions:
  demo             start a NATS server, two workers and a gateway here, and show calls spreading
  config DIR       write credentials for members, and the configuration of the NATS server
  init             create what the fleet stores in JetStream
  approve PLUGIN   approve a plugin that workers offer, for the whole fleet
  publish PLUGIN   store a plugin of this machine for workers that pull, and approve it
  policy DIR       let all members apply the policies in a folder, besides their own
  revoke PLUGIN    withdraw the approval, on all workers at once
  withdraw FILE    exclude a member, given its credentials
  secret PLUGIN VARIABLE
                   store a value, typed or from a pipe, that only workers can read
  status           show workers, their load, and what they offer"""


def add_connection(parser: Parser, of: str = "") -> None:
    """Add the options that say how to reach a fleet, where only one option uses it: `of` that one."""
    group = parser.add_argument_group(f"connection{of} (default: [fleet] of settings.toml)")
    group.add_argument("--nats", action="append", metavar="URL", help="a server of the cluster; may be repeated")
    group.add_argument("--credentials", metavar="FILE", help="this member's credentials, from `anyplug fleet config`")
    group.add_argument("--ca", metavar="FILE", help="the servers' certificate authority, if it is private")
    group.add_argument("--prefix", metavar="WORD", help="the prefix of all subjects, if fleets share servers")


def connection(session: Session) -> FleetSettings:
    """Return how to reach the fleet: as the options say, else the settings. Raises ConfigError."""
    options, settings = session.options, find_home(session.options.home).read_settings().fleet
    given = {
        "nats": tuple(options.nats or ()),
        "credentials": options.credentials and os.path.abspath(os.path.expanduser(options.credentials)),
        "ca": options.ca and os.path.abspath(os.path.expanduser(options.ca)),
        "prefix": options.prefix,
    }
    given = {name: value for name, value in given.items() if value}
    try:
        return msgspec.convert({**msgspec.structs.asdict(settings), **given}, FleetSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"--prefix is invalid: {error}", "use up to 16 small letters and digits") from error


def _fleet(parser: Parser) -> Command:
    parser.epilog = EPILOG
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("what", nargs="?", metavar="PLUGIN|DIR|FILE", help="what the action is about")
    parser.add_argument("variable", nargs="?", metavar="VARIABLE", help="with secret: the variable of the plugin")
    add_connection(parser)
    parser.add_argument("--unset", action="store_true", help="with secret: remove it instead")
    parser.add_argument("--yes", action="store_true", help="with approve: do not ask")
    parser.add_argument("--always", action="store_true", help="with approve: callers are not asked before it runs")
    parser.add_argument(
        "--grant", action="append", metavar="P", help="with approve: grant this instead of what it asks for"
    )
    parser.add_argument("--digest", default="", metavar="D", help="with approve: the version, if there are several")
    for role in MEMBERS:
        parser.add_argument(
            f"--{role}",
            action="append",
            default=[],
            metavar="NAME",
            help=f"with config: name of a new {role}; may be repeated" + ALSO.get(role, ""),
        )
    parser.add_argument(
        "--replicas",
        type=whole("a number of copies"),
        default=1,
        metavar="N",
        help="with init: copies of each store; 3 in a cluster",
    )
    return run


COMMANDS = {"fleet": _fleet}


def run(session: Session) -> int:
    """Run the action."""
    action, what = session.options.action, session.options.what
    if action in NAMED and not what:
        raise UsageError(f"`fleet {action}` needs a name", f"`anyplug fleet {action} --help` shows how to use it")
    if session.options.variable and action != "secret":
        extra = session.options.variable
        raise UsageError(f"`fleet {action}` takes no '{extra}'", f"`anyplug fleet {action} --help` shows how to use it")
    from anyplug.fleet.nats_link import need_libraries  # only here, and only the worker needs it otherwise

    need_libraries("fleet-demo" if action == "demo" else "fleet")
    if action == "demo":
        from anyplug.frontends.cli.fleet_demo import demo  # with the host

        return demo(session)
    if action == "config":
        return _config(session)
    work = {
        "init": _init,
        "approve": _approve,
        "publish": _publish,
        "policy": _policy,
        "revoke": _revoke,
        "withdraw": _withdraw,
        "secret": _secret,
        "status": _status,
    }[action]
    return work(session)


def with_seat(session: Session, work: "Callable[[Seat], Awaitable[T]]") -> T:
    """Connect, read what is announced and decided, and do something. Raises AnyplugError."""
    import anyio  # for the same reason

    from anyplug.fleet.administration import Seat  # with the libraries for a fleet
    from anyplug.fleet.nats_link import linked, own_credentials

    settings = connection(session)

    async def inside() -> T:
        async with linked(settings, own_credentials(settings), CONNECT_S) as link:
            return await work(Seat(link))

    with session.progress("asking the fleet"):
        return anyio.run(inside)


def _config(session: Session) -> int:
    from anyplug.fleet.administration import SERVER, write_credentials  # with the libraries for a fleet

    options = session.options
    folder = os.path.abspath(options.what or "fleet")
    wanted: list[tuple[Role, str]] = [(role, name) for role in MEMBERS for name in getattr(options, role)]
    if not wanted and not os.path.isdir(folder):
        wanted = [(role, f"{role}-1") for role in MEMBERS]
    written = write_credentials(folder, wanted, options.prefix or FleetSettings().prefix)
    if options.json:
        session.print_json({"written": written})
        return 0
    render.out(*written)
    server, admin = os.path.join(folder, SERVER), os.path.join(folder, "admin.creds")
    session.note(
        f"start the server with it: {typed('nats-server', '-c', os.path.relpath(server), '-sd', 'jetstream')}; then "
        f"{command('fleet', 'init', '--nats', ITS_ADDRESS, '--credentials', os.path.relpath(admin))}",
        "keep admin.creds offline: its owner decides what all workers run",
    )
    return 0


def _init(session: Session) -> int:
    from anyplug.fleet import stores  # with the libraries for a fleet

    replicas = session.options.replicas
    made = with_seat(session, lambda seat: stores.create(seat.link, replicas))
    if session.options.json:
        session.print_json({"created": made})
    else:
        render.out(f"the fleet's stores are there: {', '.join(made)}")
    return 0


def _approve(session: Session) -> int:
    from anyplug.manage import plugin_approval  # only for decisions

    options, name = session.options, session.options.what
    if len(options.worker) > 1:
        raise UsageError("--worker was given several times", "name one worker, whose description is approved")

    async def find(seat: "Seat") -> "tuple[Offered, list[str]]":
        await seat.read()
        found = seat.offered(name, options.digest, *options.worker)
        return found, seat.workers_of(found)

    offered, workers = with_seat(session, find)
    granted = offered.permissions if options.grant is None else plugin_approval.checked(options.grant)
    if not options.json:
        _present(offered, workers, granted)
    _ask(session, name, "approve")
    serial = _decide(session, offered, granted)
    if not offered.tools and offered.stays_up:  # nothing of it ran before
        offered = _approve_reported(session, offered, granted)
    if options.json:
        tools = [tool.name for tool in offered.tools]
        session.print_json(
            {"approved": name, "digest": offered.digest, "granted": granted, "serial": serial, "tools": tools}
        )
    else:
        render.out(f"{name} is approved for the fleet; workers set it up now")
        if not offered.tools and offered.stays_up:
            session.note(f"its tools wait until you approve them: {command('fleet', 'approve', name)}")
    return 0


def _approve_reported(session: Session, offered: "Offered", granted: tuple[str, ...]) -> "Offered":
    """Approve the tools that a plugin reports now that it runs; return it with those that were approved."""

    async def wait(seat: "Seat") -> "Offered":
        return await seat.reported(offered, *session.options.worker)

    running = with_seat(session, wait)
    if running.tools and not session.options.json:
        render.fields([("tools", _tools(running))])
    if not running.tools or not (session.options.yes or session.confirm("Approve these tools for the whole fleet?")):
        return offered
    _decide(session, running, granted)
    return running


def _decide(session: Session, offered: "Offered", granted: tuple[str, ...]) -> int:
    async def decide(seat: "Seat") -> int:
        await seat.trust.read()
        return await seat.approve(offered, granted, always=session.options.always)

    serial = with_seat(session, decide)
    note = f"granted {', '.join(granted) or 'nothing'}"
    if offered.tools:
        note += f"; tools {', '.join(tool.name for tool in offered.tools)}"
    _record(session, "fleet approve", offered.name, note, offered.digest)
    return serial


def _publish(session: Session) -> int:
    from anyplug.frontends.worker.worker import describe  # with the libraries for a fleet
    from anyplug.manage import plugin_approval  # only for decisions

    options, entry = session.options, session.plugin(session.options.what)
    plugin = entry.plugin
    if entry.state in {"broken", "shadowed"}:
        raise plugin_approval.unusable(entry)
    digest = session.catalog.digest(plugin).value
    granted = plugin.permissions if options.grant is None else plugin_approval.checked(options.grant)
    if not options.json:
        _present(describe(plugin, digest), [], granted)
    _ask(session, plugin.name, "publish")
    size = with_seat(session, lambda seat: seat.publish(plugin, digest, granted, always=options.always))
    _record(session, "fleet publish", plugin.name, f"granted {', '.join(granted) or 'nothing'}", digest)
    if options.json:
        session.print_json({"published": plugin.name, "digest": digest, "granted": granted, "bytes": size})
    else:
        render.out(f"{plugin.name} is published and approved; workers with --pull fetch it now")
        if plugin.stays_up and not plugin.tools:
            again = command("fleet", "approve", plugin.name)
            session.note(f"its tools are known once a worker runs it, and wait until you approve them: {again}")
    return 0


def _policy(session: Session) -> int:
    from anyplug.fleet import fleet_policies  # with the libraries for a fleet

    policies = fleet_policies.read(os.path.abspath(session.options.what))
    with_seat(session, lambda seat: seat.publish_policies(policies))
    _record(session, "fleet policy", "", f"version {policies.version}")
    if session.options.json:
        session.print_json({"version": policies.version, "files": sorted(policies.files)})
    else:
        render.out(f"all members apply version {policies.version}: {', '.join(sorted(policies.files))}")
    return 0


def _ask(session: Session, name: str, action: str) -> None:
    """Ask the person whether to decide so."""
    if session.options.yes:
        return
    if not terminal.can_ask():
        refuse(f"'{name}' was not approved: this is not a terminal", command("fleet", action, name, "--yes"))
    if not session.confirm("Approve it for the whole fleet?"):
        refuse(f"'{name}' was not approved", "no worker runs it")


def _present(offered: "Offered", workers: list[str], granted: tuple[str, ...]) -> None:
    render.fields(
        [
            ("plugin", f"{offered.name} {offered.version}".strip()),
            ("format", registry.title(offered.format)),
            ("about", offered.description),
            ("workers", workers),
            ("digest", offered.digest),
            ("tools", _tools(offered) or "known once it runs"),
            ("asks for", describe_permissions(offered.permissions) or "nothing"),
            ("granted", ", ".join(granted) or "nothing"),
            ("warning", permissions.warning(granted)),
        ]
    )


def _tools(offered: "Offered") -> list[str]:
    """Return what models read of tools, and for which parameters gateways read files."""
    from anyplug.model import schema  # only for decisions

    lines = []
    for tool in offered.tools:
        files = schema.files(tool.input_schema)
        reads = f" (gateways read the file for {', '.join(files)})" if files else ""
        lines.append(f"{tool.name}{reads}: {tool.description}")
    return lines


def _revoke(session: Session) -> int:
    name = session.options.what

    async def work(seat: "Seat") -> int:
        await seat.read()
        return len(await seat.revoke(name))

    count = with_seat(session, work)
    if count:
        _record(session, "fleet revoke", name)
    if session.options.json:
        session.print_json({"revoked": count})
    else:
        render.out(f"{name} is no longer approved" if count else f"{name} was not approved")
    return 0


def _withdraw(session: Session) -> int:
    from anyplug.fleet import credentials  # with the libraries for a fleet

    member = credentials.read(session.options.what).member
    with_seat(session, lambda seat: seat.withdraw(member))
    _record(session, "fleet withdraw", "", f"{member.role} {member.name}, {member.key}")
    if session.options.json:
        session.print_json({"withdrawn": member.name, "key": member.key})
    else:
        render.out(f"{member.role} '{member.name}' is no longer a member")
        session.note("also remove its key from the server's configuration, and reload that")
    return 0


def _secret(session: Session) -> int:
    from anyplug.frontends.cli import fleet_secret  # only for secrets

    options = session.options
    code = fleet_secret.store(session, with_seat)
    whose = ", ".join(options.worker) or "all that offer it"
    done = "removed from" if options.unset else "sealed for"
    _record(session, "fleet secret", options.what, f"{options.variable} {done} {whose}")
    return code


def _record(session: Session, action: str, plugin: str, note: str = "", digest: str = "") -> None:
    """Record a decision in the audit of this home."""
    from anyplug.audit.decision_records import Decision  # only for decisions

    decision = Decision(action, plugin, note, folder="fleet", digest=digest)
    session.catalog.approvals.note(decision)


def _status(session: Session) -> int:
    async def look(seat: "Seat") -> "FleetView":
        await seat.read()
        return seat.view()

    view = with_seat(session, look)
    if session.options.json:
        session.print_json(view)
        return 0
    fleet_view.show(view)
    return 0
