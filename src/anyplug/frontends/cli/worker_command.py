"""`worker`: offer this machine's plugins to a fleet, until it is ended."""

import signal
from typing import TYPE_CHECKING

from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.fleet_command import add_connection, connection
from anyplug.frontends.cli.parsing import Command, Parser, whole
from anyplug.home.settings import FleetSettings
from anyplug.model.errors import AnyplugError, ConfigError, UsageError

if TYPE_CHECKING:
    from anyplug.fleet.credentials import Credentials

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _worker(parser: Parser) -> Command:
    add_connection(parser)
    parser.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE", help="what this machine has; may be repeated"
    )
    parser.add_argument("--pull", action="store_true", help="fetch the plugins that the fleet's admin published")
    parser.add_argument(
        "--places",
        type=whole("a number of calls"),
        default=0,
        metavar="N",
        help="calls at once (default: 4 per processor)",
    )
    parser.epilog = "On SIGTERM it accepts no more calls, and exits when the running ones have ended."
    return work


COMMANDS = {"worker": _worker}


def work(session: Session) -> int:
    """Offer plugins until a signal."""
    from anyplug.fleet.nats_link import need_libraries, own_credentials  # with the libraries for a fleet

    need_libraries()
    settings = connection(session)
    own = own_credentials(settings)
    if own.member.role != "worker":
        raise ConfigError(
            f"{own.path} has the credentials of a fleet's {own.member.role}, not of a worker",
            "`anyplug fleet config --worker NAME` creates credentials for workers",
        )
    labels = {}
    for given in session.options.label:
        name, found, value = given.partition("=")
        if not (name and found):
            raise UsageError(f"--label {given} has no value", "write --label NAME=VALUE")
        labels[name] = value
    session.leave_signals()
    import anyio  # with the host

    try:
        anyio.run(_serve, session, settings, own, labels)
    except ExceptionGroup as group:
        ours, others = group.split(AnyplugError)
        if ours is None or others is not None:
            raise
        raise _first(ours) from None
    return 0


def _first(group: ExceptionGroup[AnyplugError]) -> AnyplugError:
    """Return the first error of a task group, which may be inside another one."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error


async def _serve(session: Session, settings: FleetSettings, own: "Credentials", labels: dict[str, str]) -> None:
    import anyio  # for the same reason

    from anyplug.fleet.nats_link import linked  # with the libraries for a fleet
    from anyplug.frontends.worker.worker import Worker
    from anyplug.host.host import Host

    leaving = anyio.Event()
    is_up = False
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*heard) as signals:
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                async for _ in signals:
                    if leaving.is_set() or not is_up:  # there are no calls to wait for, or somebody does not want to
                        tasks.cancel_scope.cancel()
                    leaving.set()

            tasks.start_soon(end)
            session.note(f"connecting to {', '.join(settings.nats)}")
            async with linked(settings, own) as link, Host(home=session.options.home, tell=session.note) as host:
                options = session.options
                worker = Worker(link, host, labels=labels, places=options.places, pulls=options.pull, tell=session.note)

                def ready() -> None:
                    nonlocal is_up
                    is_up = True
                    session.note(f"worker '{own.member.name}' is up; Ctrl-C ends it when its calls have ended")

                await worker.serve(leaving, ready)
            tasks.cancel_scope.cancel()
    if is_up:
        session.note(f"worker '{own.member.name}' has left the fleet")
