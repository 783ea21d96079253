"""`login`: sign in to a plugin's MCP servers at an address, in a browser. The tokens go to the plugin's secrets."""

import asyncio
import os
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.model.errors import CallError, NotApproved, Unavailable, UsageError
from anyplug.model.types import Endpoint, Plugin
from anyplug.model.untrusted_text import for_people

WAIT_S = 300.0  # for the person to sign in
ANSWER = "HTTP/1.1 {}\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n{}\n"
DONE = ANSWER.format("200 OK", "Go back to the terminal. You can close this page.").encode()
OTHER = ANSWER.format("404 Not Found", "This is not the page that ends the sign-in.").encode()
LONGEST_URL = 4_000


def _login(parser: Parser) -> Command:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name, or its folder")
    parser.add_argument("server", nargs="?", metavar="SERVER", help="one of its servers; needed if it has several")
    parser.add_argument("--forget", action="store_true", help="delete the tokens instead")
    parser.add_argument("--no-browser", action="store_true", help="only print the address to open")
    return login


COMMANDS = {"login": _login}


def login(session: Session) -> int:
    """Sign in, or delete the tokens."""
    options = session.options
    entry = session.plugin(options.name)
    endpoint = _chosen(entry.plugin, options.server)
    if entry.state != "approved":
        raise NotApproved(entry.name, entry.state, entry.standing.changes)
    from anyplug.runtime import mcp_sdk  # takes a second

    mcp_sdk.load()
    from anyplug.formats.mcp import sign_in  # for the same reason

    storage = sign_in.Storage(session.catalog.secrets, entry.plugin, endpoint.url)
    if options.forget:
        said = "deleted" if storage.forget() else "there are none"
        render.out(f"tokens for {endpoint.name}: {said}")
        return 0
    asyncio.run(_sign_in(session, entry.plugin, endpoint, storage, entry.standing.granted))
    render.out(f"signed in to {endpoint.name}")
    session.note(f"a running daemon uses it after `anyplug reload {entry.name}`")
    return 0


def _chosen(plugin: Plugin, name: str | None) -> Endpoint:
    remote = [one for one in plugin.endpoints if one.url and (name is None or one.name == name)]
    if len(remote) == 1:
        return remote[0]
    known = ", ".join(one.name for one in plugin.endpoints if one.url)
    if not known:
        raise UsageError(f"plugin '{plugin.name}' has no server at an address", "only those are signed in to")
    raise UsageError(f"which server of '{plugin.name}'?", f"name one of them: {known}")


async def _sign_in(
    session: Session, plugin: Plugin, endpoint: Endpoint, storage: Any, granted: tuple[str, ...]
) -> None:
    """Make the server ask for a sign-in, show the person the page, and keep what comes of it; raises Unavailable."""
    import httpx2  # with the SDK
    from mcp.client.auth import AuthorizationCodeResult, OAuthFlowError

    from anyplug.formats.mcp import http_client, sign_in  # with the SDK, too

    async def show(url: str) -> None:
        url = sign_in.with_own_query(url, auth.context.oauth_metadata)
        ending.state = sign_in.checked_page(url, auth.context.oauth_metadata)
        session.note(f"{endpoint.name} wants you to sign in at {for_people(url, LONGEST_URL)}")
        if not session.options.no_browser and (sys.stdin.isatty() or os.environ.get("BROWSER")):
            import webbrowser  # only here

            await asyncio.to_thread(webbrowser.open, url)

    async def answer() -> AuthorizationCodeResult:
        async with asyncio.timeout(WAIT_S):
            given = await ending.given
        return AuthorizationCodeResult(code=given.get("code", ""), state=given["state"], iss=given.get("iss"))

    ending = _Ending()
    server = await asyncio.start_server(ending.hear, "127.0.0.1", 0)
    uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
    auth = sign_in.SignIn(endpoint.url, storage, show, answer, uri)
    exchange = http_client.Exchange(endpoint, http_client.MOST_OF_SIGN_IN, lambda _: None, granted)
    try:
        async with server:
            status = await exchange.greet(auth)
        if storage.kept.tokens is None:
            raise Unavailable(f"'{endpoint.name}' did not ask for a sign-in (HTTP {status})", "it may not need one")
        await auth.keep_metadata()
    except TimeoutError:
        raise Unavailable(f"nobody signed in to '{endpoint.name}' within {WAIT_S:g} s", "try again") from None
    except CallError:
        raise
    except (
        OAuthFlowError,
        httpx2.HTTPError,
        httpx2.InvalidURL,
        http_client.TooLarge,
        ValueError,
        OverflowError,
    ) as error:
        why = for_people(str(error).partition("\n")[0])
        raise Unavailable(f"cannot sign in to '{endpoint.name}': {why}", "check the server's address") from error


class _Ending:
    """The page that ends a sign-in. Whatever else pages and programs send there ends nothing."""

    def __init__(self) -> None:
        self.state = ""  # what the page that is shown must give back
        self.given: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request."""
        try:
            given = _given(await reader.readline())
            is_ours = bool(self.state) and given.get("state") == self.state
            writer.write(DONE if is_ours else OTHER)
        except (ValueError, OSError, asyncio.CancelledError):  # too long, no address; the sign-in ended meanwhile
            return
        finally:
            writer.close()
        if is_ours and not self.given.done():
            self.given.set_result(given)


def _given(line: bytes) -> dict[str, str]:
    """Return what the first line of a request gives; raises ValueError."""
    words = line.decode("latin-1").split(" ")
    return {name: values[0] for name, values in parse_qs(urlsplit(words[1] if len(words) > 1 else "").query).items()}
