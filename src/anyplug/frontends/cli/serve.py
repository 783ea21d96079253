"""`serve`, `stop` and `status`: the daemon, which other commands and agents attach to."""

import os
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session, collect_from_now
from anyplug.frontends.cli.parsing import Command, Parser, seconds
from anyplug.frontends.cli.via_daemon import Attached, HostGone
from anyplug.frontends.daemon.locate import CURE, LINGER_S, Address, NotStarted, credentials
from anyplug.home import process_identity
from anyplug.home.settings import find_home
from anyplug.model.errors import AnyplugError, ConfigError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from anyplug.frontends.daemon.daemon import Daemon
    from anyplug.frontends.daemon.web_server import Web

STOP_S = 30.0  # plugins get some seconds to end in order
SETTLE_S = 10.0  # for one that is starting or ending
LEAVING_S = 1.0  # for clients that are just leaving
LOOK_S = 0.02


class NotUp(AnyplugError):
    """The daemon does not start, or does not stop."""

    code = "unavailable"


def _serve(parser: Parser) -> Command:
    parser.add_argument("--detach", action="store_true", help="run in the background, and return once it is running")
    parser.add_argument(
        "--linger",
        type=seconds,
        metavar="SECONDS",
        help=f"exit after SECONDS without clients (default: {LINGER_S:.0f} with --detach, else never)",
    )
    parser.add_argument("--systemd", action="store_true", help="print a hardened systemd unit that runs this")
    parser.rest.add_argument(
        "--user", default="", metavar="USER", help="with --systemd: a system unit that runs as USER"
    )
    web = parser.add_argument_group("over HTTP")
    web.add_argument(
        "--http", metavar="HOST:PORT", help="serve tools at /mcp and /mcp/PROFILE to clients that have the token"
    )
    web.add_argument("--expose", action="store_true", help="allow a HOST that other machines can reach")
    web.add_argument("--tls-cert", metavar="FILE", help="use TLS with this certificate")
    web.add_argument("--tls-key", metavar="FILE", help="the certificate's key")
    web.add_argument("--new-token", action="store_true", help="create a new token; revokes the old one")
    return serve


def _stop(parser: Parser) -> Command:
    return stop


def _status(parser: Parser) -> Command:
    return status


COMMANDS = {"serve": _serve, "stop": _stop, "status": _status}


def serve(session: Session) -> int:
    """Run the daemon until it is stopped."""
    if session.options.systemd:
        return _print_unit(session)
    _refuse_what_needs_http(session.options)
    try:
        find_home(session.options.home).read_settings()
    except ConfigError as error:  # it starts all the same, and reads them again when they are fixed
        session.warn(f"{error.message} (nothing can be called until it is fixed: {error.hint})")
    if session.options.detach:
        return _detach(session)
    while (resident := _hand_over(session)) is not None:
        with resident:
            session.note("this command waits until it ends, and then serves in its place; Ctrl-C leaves it running")
            resident.until_gone()
        if Address(find_home(session.options.home).path).remembered() is None:  # it was stopped, and not killed
            return 0
    session.leave_signals()
    import anyio  # only here: a client of the daemon needs no event loop

    from anyplug.frontends.daemon.daemon import Daemon  # with the host

    web = _web(session) if session.options.http else None
    daemon = Daemon(find_home(session.options.home), linger_s=session.options.linger)
    collect_from_now()
    with (
        suppress(OSError),
        open("/proc/self/comm", "w", encoding="ascii") as name,
    ):  # for `ps`; `pkill python` is not for us
        name.write("anyplug")
    try:
        anyio.run(_stay, session, daemon, web)
    except OSError as error:
        raise NotUp(f"the daemon cannot listen: {error.strerror}: {error.filename or ''}".rstrip(": "), CURE) from error
    return 0


def _print_unit(session: Session) -> int:
    """Print a unit whose daemon serves as these options say."""
    from anyplug.manage import systemd_unit  # only for this option

    options = session.options
    if options.user and not options.home:
        raise UsageError("a unit of the system needs a home of its own", "add it before: --home /var/lib/anyplug")
    words = ["--http", options.http] if options.http else []
    words += ["--expose"] if options.expose else []
    for option, value in (("--tls-cert", options.tls_cert), ("--tls-key", options.tls_key)):
        words += [option, os.path.abspath(value)] if value else []
    home = find_home(options.home)
    render.out(*systemd_unit.unit(home, words, user=options.user).rstrip().split("\n"))
    return 0


async def _stay(session: Session, resident: "Daemon", web: "Web | None") -> None:
    from anyplug.runtime import loop_watchdog  # imports the event loop, which clients of the daemon do not need

    async with AsyncExitStack() as stack:
        if limit_ms := os.environ.get(loop_watchdog.VARIABLE):
            stack.enter_context(loop_watchdog.watching(loop_watchdog.to_stderr, int(limit_ms) / 1000))
        await stack.enter_async_context(resident.up(web))
        session.note(f"the daemon is running (pid {os.getpid()}); `anyplug stop` or Ctrl-C stops it")
        if resident.url:
            session.note(f"MCP is at {resident.url}/mcp; the token is in {resident.home.http_token}")
            session.note(f"the console is at {resident.web.page_url}/; `anyplug ui` opens it")
        await resident.until_stopped()


def _web(session: Session) -> "Web":
    """Listen over HTTP, and find or create the token. Raises UsageError and ConfigError."""
    from anyplug.frontends.daemon.hosts import Key
    from anyplug.frontends.daemon.protocol import ServeHttp
    from anyplug.frontends.daemon.web_server import listened  # only needed over HTTP

    options, home = session.options, find_home(session.options.home)
    web = listened(
        home, ServeHttp(id=0, **_asked(options)), Key(os.getcwd(), not options.no_discover, _folders(options))
    )
    for warning in web.listener.warnings:
        session.warn(warning)
    return web


def _asked(options: "Namespace") -> dict[str, Any]:
    """Return what to serve over HTTP."""
    return {
        "address": options.http,
        "expose": options.expose,
        "certificate": (options.tls_cert and os.path.abspath(options.tls_cert)) or "",
        "key": (options.tls_key and os.path.abspath(options.tls_key)) or "",
        "new_token": options.new_token,
    }


def _folders(options: "Namespace") -> tuple[str, ...]:
    return tuple(os.path.abspath(os.path.expanduser(path)) for path in options.plugin)


def _hand_over(session: Session) -> Attached | None:
    """Let a daemon that is running without HTTP serve it; None if none is running. Raises Refused."""
    if not session.options.http or Address(find_home(session.options.home).path).connect() is None:
        return None
    resident = session.attach("control")
    if resident is None:
        return None
    served = resident.serve_http(**_asked(session.options))
    for warning in served.warnings:
        session.warn(warning)
    session.note(f"the running daemon (pid {served.pid}) serves HTTP now: MCP is at {served.url}/mcp")
    return resident


def _detach(session: Session) -> int:
    address = Address(find_home(session.options.home).path)
    if (resident := _hand_over(session)) is not None:
        with resident:
            return _tell_running(session, resident.pid, is_new=False)
    connection = address.connect()
    is_new = connection is None
    words = _words_for_http(session.options)
    if connection is None:
        linger = LINGER_S if session.options.linger is None else session.options.linger
        try:
            connection = address.start(linger, _words_for_the_program(session.options), words)
        except NotStarted as error:
            raise NotUp(f"the daemon did not start: {error}", error.hint or f"its log is {address.log}") from error
    with connection:
        peer = credentials(connection)  # the listening process knows it best; the file may be another's
        pid = peer[0] if peer is not None else (address.read() or {}).get("pid")
    _tell_running(session, pid, is_new=is_new)
    if words:
        session.note(
            f"`anyplug status` shows the address; the token is in {find_home(session.options.home).http_token}"
        )
    return 0


def _tell_running(session: Session, pid: int | None, *, is_new: bool) -> int:
    if session.options.json:
        session.print_json({"up": True, "pid": pid, "started": is_new})
    else:
        render.out(f"the daemon is running (pid {pid})" if is_new else f"the daemon is already running (pid {pid})")
    return 0


def _refuse_what_needs_http(options: "Namespace") -> None:
    """Make sure that no requested option is silently ignored; raises UsageError."""
    if options.http:
        return
    given = {
        "--plugin": options.plugin,
        "--no-discover": options.no_discover,
        "--expose": options.expose,
        "--tls-cert": options.tls_cert,
        "--tls-key": options.tls_key,
        "--new-token": options.new_token,
    }
    for name in (name for name, value in given.items() if value):
        hint = "add --http HOST:PORT"
        if name in {"--plugin", "--no-discover"}:
            hint += f", or leave {name} out here and pass it to the commands that use the daemon"
        raise UsageError(f"{name} needs --http", hint)


def _words_for_the_program(options: "Namespace") -> list[str]:
    """Return the options that select plugins, for another process."""
    words = [word for path in options.plugin for word in ("--plugin", os.path.abspath(os.path.expanduser(path)))]
    return [*words, "--no-discover"] if options.no_discover else words


def _words_for_http(options: "Namespace") -> list[str]:
    """Return the options for HTTP, for another process."""
    if not options.http:
        return []
    named = {"--http": options.http, "--tls-cert": options.tls_cert, "--tls-key": options.tls_key}
    words = [word for name, value in named.items() if value for word in (name, value)]
    flags = {"--expose": options.expose, "--new-token": options.new_token}
    return words + [name for name, is_given in flags.items() if is_given]


def stop_daemon(session: Session, *, only_if_unused: bool = False) -> bool:
    """Stop the daemon, and wait until it is gone; return whether there was one. Raises NotUp."""
    address = Address(find_home(session.options.home).path)
    resident = _reach(session, address)
    if resident is None:
        return False
    with resident, suppress(HostGone):  # another client may have stopped it first
        host = process_identity.of(resident.pid)
        if only_if_unused and not _falls_idle(resident):
            return False
        resident.stop()
    until = time.monotonic() + STOP_S
    while process_identity.is_alive(host):  # not only its socket: a new one needs the files that it holds
        if time.monotonic() > until:
            raise NotUp(f"the daemon is still running after {STOP_S:.0f} s", _how_to_kill(address))
        time.sleep(LOOK_S)
    return True


def _falls_idle(resident: Attached) -> bool:
    """Wait a moment for clients that are just leaving; return whether all have left."""
    until = time.monotonic() + LEAVING_S
    while resident.status()["attached"]:
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)
    return True


def stop(session: Session) -> int:
    """Stop the daemon."""
    was_up = stop_daemon(session)
    if session.options.json:
        session.print_json({"stopped": was_up})
    else:
        render.out("the daemon has stopped" if was_up else "the daemon is not running")
    return 0


def status(session: Session) -> int:
    """Show the daemon's status."""
    said = _status_of(session)
    if said is None:
        if session.options.json:
            session.print_json({"up": False})
        else:
            render.out("the daemon is not running")
            session.note("hint: `anyplug serve --detach` starts it; commands also work without it")
        return 0
    if session.options.json:
        session.print_json(said)
    else:
        _show(said)
    return 0


def _status_of(session: Session) -> dict[str, Any] | None:
    """Return the daemon's status; None if it is not running."""
    while (resident := _reach(session, Address(find_home(session.options.home).path))) is not None:
        with resident, suppress(HostGone):  # it has just ended; there may be another one
            return resident.status()
    return None


def _reach(session: Session, address: Address) -> Attached | None:
    """Attach to the daemon as a control client; None if it is not running. Raises NotUp if it does not answer."""
    until = time.monotonic() + SETTLE_S
    while (resident := session.attach("control")) is None and address.is_held():
        if time.monotonic() > until:
            raise NotUp("the daemon is running, but does not answer", _how_to_kill(address))
        time.sleep(LOOK_S)
    return resident


def _show(said: dict[str, Any]) -> None:
    clients, waiting = said["clients"], said.get("waiting", 0)
    render.fields(
        [
            ("up", f"{render.duration(said['uptime_s'])}, pid {said['pid']}, anyplug {said['version']}"),
            ("home", said["home"]),
            ("over HTTP", said["url"] or ""),
            ("console", f"{said['console']}/, opened by `anyplug ui`" if said.get("console") else ""),
            (
                "attached",
                [f"{one['kind']}, pid {one['pid']}, in {one['folder']}" for one in clients] or "nobody",
            ),
            ("projects", [", with ".join([one["folder"], *one["plugins"]]) for one in said["projects"]]),
            ("settings", said["settings"] or ""),
            # Plugins are only known once a client was attached in some folder.
            ("plugins", "" if said["plugins"] is None else f"{said['plugins']} approved, {said['running']} running"),
            (
                "processes",
                f"{said['processes']}, {said['memory_bytes'] / (1 << 20):.0f} MiB with the daemon"
                + (f"; {render.count(waiting, 'interpreter')} started ahead of calls" if waiting else ""),
            ),
            ("calls", f"{said['calls']}, {said['errors']} failed"),
        ]
    )
    if said["slowest"]:
        render.out("")
        rows = [
            (one["tool"], str(one["calls"]), str(one["errors"]), f"{one['median_ms']:.1f}", f"{one['longest_ms']:.1f}")
            for one in said["slowest"]
        ]
        render.table(("SLOWEST TOOLS", "CALLS", "FAILED", "MEDIAN MS", "LONGEST MS"), rows)


def _how_to_kill(address: Address) -> str:
    word = address.read() or {}
    return f"`kill -9 {word['pid']}` ends it and all its plugins" if "pid" in word else f"see {address.log}"
