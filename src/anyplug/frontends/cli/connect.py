"""`connect`: add our server to the configuration of other agents, after showing the change, or remove it."""

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.cli_run import Session, refuse
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.home.settings import find_home, usual_home
from anyplug.manage.connect import client_entry
from anyplug.manage.connect.client_entry import Change
from anyplug.manage.connect.clients import CLIENTS, Client, Scope
from anyplug.model.errors import FAILED, ConfigError, UsageError

if TYPE_CHECKING:
    from anyplug.manage.connect.handshake import Seen

SURFACES = ("all", "search")
CONTEXT = 2  # lines shown around a change
SHOWN = 5  # tools that a test names
IN_UVS_CACHE = f"{os.sep}archive-v0{os.sep}"  # where `uvx` keeps programs
LONGEST_LINE = 200  # characters; a longer line is a whole file, and would show more than it should
PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")  # becomes part of a name that every client accepts


def _connect(parser: Parser) -> Command:
    parser.add_argument(
        "client",
        nargs="?",
        metavar="CLIENT",
        help=f"{', '.join(CLIENTS)}; without one, list all of them",
    )
    parser.add_argument(
        "--project", action="store_true", help="change this project's configuration, not the one for all projects"
    )
    parser.add_argument("--remove", action="store_true", help="remove anyplug from the configuration")
    parser.add_argument("--print", action="store_true", help="only print what would be added to the configuration")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.rest.add_argument("--no-test", action="store_true", help="do not start the server to see whether it works")
    parser.rest.add_argument(
        "--by-name", action="store_true", help="name the program `anyplug`, for a file that others use too"
    )
    parser.rest.add_argument("--profile", default="", metavar="NAME", help="offer only the tools of this profile")
    parser.rest.add_argument(
        "--surface", choices=SURFACES, help="offer all tools, or three tools that find and call them"
    )
    parser.rest.add_argument(
        "--policy", action="store_true", help="opencode, claude, codex: apply your policies to its own tools"
    )
    parser.rest.add_argument(
        "--global", dest="everywhere", action="store_true", help="with --policy: in all projects, not only in this one"
    )
    return connect


COMMANDS = {"connect": _connect}


def connect(session: Session) -> int:
    """Connect a client, disconnect it, or list all."""
    options = session.options
    if options.plugin or options.no_discover:
        raise UsageError(
            "connect takes neither --plugin nor --no-discover, which apply to one run only",
            "install the plugin; to choose what an agent gets, use --profile",
        )
    if options.project and options.client in CLIENTS and not CLIENTS[options.client].project and not options.policy:
        title = CLIENTS[options.client].title
        raise UsageError(f"{title} reads no configuration from a project", f"`anyplug connect {options.client}`")
    if options.profile and not PROFILE.fullmatch(options.profile):
        raise UsageError(
            f"'{options.profile}' is not a valid profile name", "use letters, digits, hyphens, underscores"
        )
    if options.everywhere and not options.policy:
        raise UsageError("--global needs --policy", "without --project, a connection is for all projects")
    if options.policy:
        from anyplug.frontends.cli.connect_policy import gate  # only needed for policies

        home = find_home(options.home).path
        program = _program(by_name=options.by_name)
        from anyplug.manage.connect.policy_hooks import AGENTS  # for the same reason

        if options.client in {"opencode", *AGENTS} and not options.remove and not options.print:
            warn_of_missing_programs(session, options.client, program[0])
        return gate(session, [*program, *(["--home", home] if home != usual_home().path else [])])
    if options.client is None:
        return _list(session)
    client = _client(options.client)
    if options.profile and not (options.remove or options.print or options.no_test):
        from anyplug.catalog.profiles import View  # only needed for profiles

        View(find_home(options.home), options.profile)  # raises ConfigError before anything is written
    server = client_entry.server_name(options.profile)
    if options.print:
        return _print(session, client, server)
    return _leave(session, client, server) if options.remove else _join(session, client, server)


def _client(name: str) -> Client:
    if name not in CLIENTS:
        from difflib import get_close_matches  # only needed after a typo

        near = get_close_matches(name, CLIENTS, n=1)
        raise UsageError(
            f"there is no client '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""),
            f"the clients are {', '.join(CLIENTS)}",
        )
    return CLIENTS[name]


def _join(session: Session, client: Client, server: str) -> int:
    home = find_home(session.options.home)
    scope = _scope(session)
    command = _command(session)
    change = client_entry.joining(home, client, server, command, scope, os.getcwd())
    if change.is_none:
        said = f"{client.title} is already connected, in {change.path}"
        return _report(session, change, "", said, connected=True, seen=_try_out(session, command, scope))
    warn_of_missing_programs(session, client.name, command[0])
    _show(session, change, client_entry.snippet(client, server, command))
    _agree(session, f"Change {change.path}?", f"{client.title} was not connected")
    backup = client_entry.make(home, change)
    said = f"{client.title} is connected, in {change.path}"
    code = _report(session, change, backup, said, connected=True, seen=_try_out(session, command, scope))
    for note in (client.project_note if scope == "project" else "", client.user_note):
        if note:
            session.note(f"note: {note}")
    if scope == "project" and os.path.isabs(command[0]):
        session.note(f"note: {command[0]} is a path of this machine; --by-name is for a file that others use too")
    return code


def warn_of_missing_programs(session: Session, client: str, program: str) -> None:
    """Warn before anything is written: our own file would make the client look installed."""
    if not CLIENTS[client].is_here:
        session.warn(f"{CLIENTS[client].title} does not seem to be installed here")
    if not os.path.isabs(program) and shutil.which(program) is None:
        session.warn(f"there is no program `{program}` on your PATH, so {CLIENTS[client].title} will not find it")


def _try_out(session: Session, command: list[str], scope: Scope) -> "Seen | None":
    """Start the server as the client will; leave no daemon behind that was not running before."""
    if session.options.no_test:
        return None
    from anyplug.frontends.cli.serve import stop_daemon  # with the daemon's client, only needed for a connection
    from anyplug.frontends.daemon.locate import Address
    from anyplug.manage.connect.handshake import try_out

    was_up = Address(find_home(session.options.home).path).is_held()
    with session.progress("starting the server as the client will"):
        seen = try_out(command, os.getcwd() if scope == "project" else os.path.expanduser("~"))
        if not was_up:
            stop_daemon(session, only_if_unused=True)
    return seen


def _leave(session: Session, client: Client, server: str) -> int:
    home = find_home(session.options.home)
    change = client_entry.leaving(home, client, server, _scope(session), os.getcwd())
    if change.is_none:
        return _report(session, change, "", f"{client.title} is not connected in {change.path}")
    _show(session, change, "")
    _agree(session, f"Change {change.path}?", f"{client.title} stays connected")
    backup = client_entry.make(home, change)
    if server in client_entry.servers(client, change.path):
        said = f"{client.title} has its previous entry again, in {change.path}"
        return _report(session, change, backup, said, connected=True)
    return _report(session, change, backup, f"{client.title} is no longer connected, in {change.path}")


def _print(session: Session, client: Client, server: str) -> int:
    command = _command(session)
    path = client_entry.file(client, _scope(session), os.getcwd(), server)
    if session.options.json:
        entry = client.entry(command)
        session.print_json({"client": client.name, "path": path, "key": client.key, "server": server, "entry": entry})
        return 0
    session.note(f"{client.title} reads this from {path}:")
    render.trusted(client_entry.snippet(client, server, command))
    return 0


def _list(session: Session) -> int:
    scopes: tuple[Scope, ...] = ("user", "project")
    places = [
        _place(client, scope) for client in CLIENTS.values() for scope in scopes if scope == "user" or client.project
    ]
    shown = [place for place in places if place["scope"] == "user" or place["exists"]]
    if session.options.json:
        session.print_json(shown)
        return 0
    rows = [
        (
            place["client"],
            "yes" if place["found"] else "no",
            "unreadable" if place["problem"] else ", ".join(place["servers"]) or "no",
            _short(place["path"]),
        )
        for place in shown
    ]
    render.table(("CLIENT", "FOUND", "CONNECTED", "FILE"), rows)
    for place in shown:
        if place["problem"]:
            session.warn(place["problem"])
    return 0


def _place(client: Client, scope: Scope) -> dict[str, Any]:
    """Describe one file of a client."""
    path = client_entry.file(client, scope, os.getcwd())
    servers: list[str] = []
    problem = ""
    try:
        servers = client_entry.servers(client, path)
    except ConfigError as error:
        problem = error.message
    return {
        "client": client.name,
        "title": client.title,
        "found": client.is_here,
        "scope": scope,
        "path": path,
        "exists": os.path.lexists(path),
        "connected": bool(servers),
        "servers": servers,
        "problem": problem,
    }


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(f"{home}{os.sep}") else path


def _scope(session: Session) -> Scope:
    return "project" if session.options.project else "user"


def _command(session: Session) -> list[str]:
    """Return the command line with which a client starts us."""
    options = session.options
    home = find_home(options.home).path
    words = _program(by_name=options.by_name)
    words += ["--home", home] if home != usual_home().path else []
    words += ["mcp", "--resident"]
    words += ["--profile", options.profile] if options.profile else []
    words += ["--surface", options.surface] if options.surface else []
    return words


def _program(*, by_name: bool = False) -> list[str]:
    """Return this program's command, by its path: a client that a desktop starts has another PATH than a shell."""
    if by_name:
        return ["anyplug"]
    own = os.path.abspath(sys.argv[0])
    if os.path.basename(own) != "anyplug":  # `python -m anyplug`
        own = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "anyplug")
        if not os.access(own, os.X_OK):
            return [os.path.abspath(sys.executable), "-P", "-m", "anyplug"]
    found = shutil.which("anyplug")
    # The one on the PATH, such as ~/.local/bin/anyplug, stays the same when what it links to is replaced.
    return [os.path.abspath(found) if found is not None and os.path.realpath(found) == os.path.realpath(own) else own]


def _show(session: Session, change: Change, added: str) -> None:
    """Show the change with some context."""
    if session.options.json and session.options.yes:
        return  # nobody reads it
    if change.after is None:
        terminal.say(f"This removes {change.path}, which was created for the connection.")
        return
    from difflib import unified_diff  # only needed for a change

    before, after = (change.before or "").splitlines(), change.after.splitlines()
    lines = list(unified_diff(before, after, lineterm="", n=CONTEXT))[2:]
    if any(len(line) > LONGEST_LINE for line in lines):
        if added:
            terminal.say(f"This adds to {change.path}:", *added.splitlines())
        else:
            terminal.say(f"This removes the entry of anyplug from {change.path}.")
        return
    terminal.say(f"--- {change.path}", f"+++ {change.path}", *lines)


def _agree(session: Session, question: str, otherwise: str) -> None:
    if session.options.yes:
        return
    if not terminal.can_ask():
        refuse(f"{otherwise}: this is not a terminal", f"{session.again('--yes')} does it without asking")
    if not session.confirm(question):
        refuse(otherwise, "nothing was changed")


def _report(
    session: Session,
    change: Change,
    backup: str,
    said: str,
    *,
    connected: bool = False,
    seen: "Seen | None" = None,
) -> int:
    code = FAILED if seen is not None and seen.failure else 0
    if session.options.json:
        tested = {"ok": not seen.failure, "tools": list(seen.tools), "error": seen.failure or None} if seen else None
        session.print_json(
            {
                "client": change.client.name,
                "server": change.server,
                "path": change.path,
                "changed": not change.is_none,
                "connected": connected,
                "backup": backup or None,
                "test": tested,
            }
        )
        return code
    render.out(said)
    if backup:
        session.note(f"the previous file is saved as {backup}")
    if seen is not None:
        _say_what_was_seen(session, seen)
    if IN_UVS_CACHE in sys.prefix:
        session.warn("this program is in uv's cache, from which it may be removed at any time")
        session.note("hint: install it with `uv tool install`, then connect again")
    return code


def _say_what_was_seen(session: Session, seen: "Seen") -> None:
    if seen.failure:
        render.error(f"the server does not start as the client will start it: {seen.failure}", "`anyplug doctor`")
        return
    tools = [name for name in seen.tools if not name.startswith("builtin_")]
    more = f" and {len(tools) - SHOWN} more" if len(tools) > SHOWN else ""
    if tools:
        render.out(
            f"tested: it starts, and offers {render.count(len(tools), 'tool')}: {', '.join(tools[:SHOWN])}{more}"
        )
        return
    render.out("tested: it starts, and offers no tools of plugins yet")
    waiting = [entry.name for entry in session.snapshot.entries if entry.state in {"new", "changed"}]
    session.note(
        f"hint: `anyplug {f'approve {waiting[0]}' if waiting else 'install FOLDER'}`; agents then see its tools"
    )
