"""`mcp`: a server for agents that speak MCP, on stdin and stdout."""

import os
from typing import TYPE_CHECKING, get_args

from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.daemon.locate import Address, NotServed, NotStarted, may_attach
from anyplug.frontends.daemon.relay import relay
from anyplug.home.settings import Surface, find_home
from anyplug.model.errors import AnyplugError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyplug.catalog.profiles import View
    from anyplug.host.host import Host


def _mcp(parser: Parser) -> Command:
    parser.add_argument("--profile", metavar="NAME", default="", help="offer only the tools of this profile")
    surfaces = get_args(Surface)
    parser.add_argument(
        "--surface",
        metavar="SURFACE",
        choices=surfaces,
        help="all: every tool; search: three tools that find and call the others; auto: by size (default)",
    )
    parser.add_argument("--resident", action="store_true", help="start the daemon if it is not running, and use it")
    return serve


COMMANDS = {"mcp": _mcp}


class NoHost(AnyplugError):
    """There is no host for the agent."""

    code = "unavailable"


def serve(session: Session) -> int:
    """Serve one agent until it closes stdin: through the daemon, or with its own host."""
    options, address = session.options, Address(find_home(session.options.home).path)
    if may_attach() and (options.resident or address.is_answered()):
        try:
            relay(
                address.home,
                plugins=[os.path.abspath(os.path.expanduser(path)) for path in options.plugin],
                discover=not options.no_discover,
                profile=options.profile,
                surface=options.surface,
            )
        except NotServed as error:
            if error.code == "denied":
                raise NoHost(str(error), "let the agent itself call the tools") from error
            session.note(f"working without the daemon: {error}")
        except NotStarted as error:
            raise NoHost(
                f"the daemon could not be started: {error}", error.hint or f"its log is {address.log}"
            ) from error
        else:
            return 0
    return _serve_alone(session)


def _serve_alone(session: Session) -> int:
    from anyplug.catalog.profiles import View  # with the host, which only commands that run plugins import

    view = View(session.catalog.home, session.options.profile, session.options.surface)

    async def work(host: "Host") -> int:
        from anyio.to_thread import run_sync  # already imported with the host

        host.warm_up()
        serve_stdio = await run_sync(_load)
        await serve_stdio(host, view)
        return 0

    return session.with_host(work, stays_up=True)


def _load() -> "Callable[[Host, View], Awaitable[None]]":
    from anyplug.runtime import mcp_sdk  # takes about a second, in which plugins start

    mcp_sdk.load()
    # With the SDK.
    from anyplug.frontends.mcp.stdio_server import serve_stdio

    mcp_sdk.set_aside()
    return serve_stdio
