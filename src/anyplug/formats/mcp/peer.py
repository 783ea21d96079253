"""One running MCP server, by command or at an address: its start, its tools, its calls, its end.

A server by command is an ordinary process of ours, with our spawn, guard and log, and the SDK speaks through its pipes.
A server at an address ends with its connection, and is reconnected as a process would be restarted. Imports nothing of
the SDK before it starts one.
"""

import itertools
import math
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from anyplug.formats.mcp import config_file, config_variables, tool_results
from anyplug.formats.mcp.services import LONGEST_URI
from anyplug.formats.shared import long_lived
from anyplug.formats.shared.contract import PeerListener, Terms
from anyplug.formats.shared.features import CommandAnswer
from anyplug.home.settings import Home
from anyplug.model import hints
from anyplug.model.errors import RETURN_LESS, CallError, TimedOut, TooLarge, Unavailable
from anyplug.model.types import Call, Endpoint, LogMessage, Offer, Plugin, ResourceUpdated, Result
from anyplug.runtime import mcp_sdk, thread_lanes
from anyplug.runtime.processes.program import Program
from anyplug.runtime.session.reader import TOO_MANY, Unread
from anyplug.runtime.session.session import PeerGone, Session
from anyplug.secrets.vault import Secrets

if TYPE_CHECKING:  # these import the SDK
    from anyplug.formats.mcp.client import Conversation
    from anyplug.formats.mcp.http_client import Exchange
    from anyplug.formats.mcp.stdio_client import Inbox, Outbox

HELLO_S = 30.0  # from the start to the list of tools
LEAVE_S = 2.0  # how long a remote server may take to end the session
PROJECT_ENVIRONMENT = "UV_PROJECT_ENVIRONMENT"  # where uv keeps a project's dependencies
NOTICE_S = 1.0  # how long a lost connection may take to report why
LONGEST_LINE = 16 << 20  # bytes of one message; an image in base64 is one line
UNAUTHORISED = 401  # the HTTP status of a server that wants a sign-in
NOT_TEXT = frozenset({"action"})  # of a command's answer
CLOSED = "the connection was closed"

_numbers = itertools.count(1)

Way = Callable[[], AbstractAsyncContextManager[Any]]  # opens a pair of streams


class Server:
    """One run of a server, from `start` on."""

    RESTARTS = True
    has_said_all = True  # it is running when it has
    events: frozenset[str] = frozenset()
    intercepts: frozenset[str] = frozenset()

    def __init__(self, plugin: Plugin, terms: Terms, listener: PeerListener) -> None:
        self.plugin = plugin
        self.session: Session | None = None  # from `start` on, for a server by command
        self.gone: PeerGone | None = None
        self.active: dict[str, Call] = {}
        self._name = terms.process
        self._terms = terms
        self._listener = listener
        self._project = terms.greeting.cwd or os.getcwd()
        self._limit = terms.settings.max_output_bytes or LONGEST_LINE
        self._talk: Conversation  # from `start` on
        self._exchange: Exchange | None = None  # also, for a server at an address
        self._under_way: dict[str, anyio.CancelScope] = {}
        self._cut: dict[str, str] = {}  # calls whose answer may have been too long, and what came instead
        self._is_ready = False
        self._is_leaving = False
        self._settled = anyio.Event()  # it is ready, or never will be
        self._left = anyio.Event()  # the conversation has ended
        self._scope = anyio.CancelScope()  # of the conversation

    @property
    def offer(self) -> Offer:
        """What it has listed so far."""
        listing = self._talk.listing
        served, place = self._talk.served, (self.plugin.name, self._name)
        named = [f"server '{self._name}': {text}" for text in (*listing.warnings, *served.warnings)]
        return Offer(
            tools=tool_results.tools(*place, listing),
            commands=served.commands(*place),
            resources=served.listed(*place),
            services=served.tools(*place),
            warnings=tuple(named),
        )

    async def start(self) -> None:
        """Start or connect to it and wait for its tools; if it raises Unavailable, nothing is left running."""
        endpoint = self._resolved()
        conversation, inbox, outbox, exchange = await anyio.to_thread.run_sync(_load_sdk)
        self._talk = conversation(
            self._name,
            self._folders(endpoint),
            log=self._log,
            changed=self._changed,
            said=self._said,
            pausing=self._pausing,
            updated=self._updated,
        )
        if endpoint.command:
            ways = self._by_command(endpoint, inbox(), outbox)
        else:
            auth = await anyio.to_thread.run_sync(_signed_in, self._terms.home, self.plugin, endpoint)
            self._exchange = exchange(endpoint, self._limit, self._lose, self._terms.granted, auth)
            if lacking := self._exchange.lacking(endpoint.url):
                raise Unavailable(
                    f"cannot connect to MCP server '{self._name}': '{self.plugin.name}' was not granted {lacking}",
                    f"`anyplug grant {self.plugin.name} {lacking}`",
                )
            ways = list(self._exchange.ways)
        self._terms.tasks.start_soon(self._converse, ways)
        is_built = long_lived.is_built_first((endpoint.command, *endpoint.arguments))
        hello_s = self._terms.settings.hello_s or (long_lived.BUILT_FIRST_S if is_built else HELLO_S)
        try:
            with anyio.fail_after(hello_s):
                await self._settled.wait()
        except TimeoutError:
            await self._end()
            raise self._too_slow(hello_s) from None
        except BaseException:
            await self._end()
            raise
        if not self._is_ready:
            await self._end()
            assert self.gone is not None
            if self.session is not None and self.gone.exit_code is None:  # a confined start reports failures only later
                raise self._not_started(self._program(endpoint), self.gone.reason)
            raise self.unavailable("before it was ready", self.gone)

    async def call_tool(self, call: Call, timeout_s: float) -> Result:
        """Call one of its tools; raises CallError."""
        number, name = str(next(_numbers)), call.tool.own_name
        if self.session is not None:  # a remote server has no pipe to fit into
            long_lived.encoded(call.arguments)
        self.active[number] = call
        try:
            with anyio.move_on_after(timeout_s) as self._under_way[number]:
                return await self._talk.call(call)
            if number in self._cut:
                raise TooLarge(
                    f"MCP server '{self._name}' sent {self._cut[number]}, which was skipped",
                    RETURN_LESS
                    if self._cut[number] == TOO_MANY
                    else f"`max_output_bytes` under [plugins.{self.plugin.name}] in settings.toml changes the limit",
                )
            raise TimedOut(
                f"timeout waiting for {self.plugin.name}/{name} after {timeout_s:g}s",
                f"`timeout_s` under [plugins.{self.plugin.name}] in settings.toml changes the limit",
            )
        except CallError as error:
            if self.session is None and self.gone is not None:  # it answered that it does not know us
                raise self.unavailable(f"while '{name}' was running", self.gone) from error
            raise
        except tool_results.Lost as lost:
            with anyio.move_on_after(NOTICE_S):
                await self._left.wait()
            self._lose(str(lost))
            raise self.unavailable(f"while '{name}' was running", self.gone or PeerGone(str(lost))) from lost
        finally:
            del self.active[number], self._under_way[number]
            self._cut.pop(number, None)

    @contextmanager
    def _pausing(self, call: Call) -> Iterator[None]:
        """Stop the clock of a call that waits for its caller."""
        number = next((number for number, one in self.active.items() if one.id == call.id), None)
        scope = self._under_way.get(number) if number is not None else None
        left = scope.deadline - anyio.current_time() if scope is not None else 0.0
        if scope is not None:
            scope.deadline = math.inf
        try:
            yield
        finally:
            if scope is not None:
                scope.deadline = anyio.current_time() + left

    async def run_command(self, name: str, words: str) -> CommandAnswer:
        """Get a prompt; raises CallError."""
        timeout_s = self._terms.settings.timeout_s or tool_results.TIMEOUT_S
        try:
            with anyio.move_on_after(timeout_s):
                answer = await self._talk.prompt(self.plugin.name, name, words)
                return await thread_lanes.run(self.plugin.path, self._terms.secrecy.struct, answer, NOT_TEXT)
        except tool_results.Lost as lost:
            self._lose(str(lost))
            raise self.unavailable(f"while '/{name}' was running", self.gone or PeerGone(str(lost))) from lost
        raise TimedOut(
            f"timeout waiting for {self.plugin.name}/{name} after {timeout_s:g}s",
            f"`timeout_s` under [plugins.{self.plugin.name}] in settings.toml changes the limit",
        )

    async def stop(self) -> None:
        """End it in order."""
        self._is_leaving = True
        self._talk.leave()
        with anyio.move_on_after(LEAVE_S):
            await self._left.wait()
        await self._end()

    def unavailable(self, when: str, gone: PeerGone) -> CallError:
        """Return the error for a server that has ended."""
        what, hint = f"MCP server '{self._name}'", f"`anyplug logs {self.plugin.name}` shows its output"
        if self.session is None:
            what = f"the connection to {what}"
            hint = (
                f"`anyplug show {self.plugin.name}` shows its address: check that it is running, and that it accepts "
                "you"
            )
            if self._exchange is not None and self._exchange.status == UNAUTHORISED:
                hint = f"`anyplug login {self.plugin.name}` signs you in"
        return long_lived.ended(what, when, gone, hint)

    def _updated(self, uri: str) -> None:
        """Report a change of a resource, unless its URI is one that no list shows."""
        if len(uri) <= LONGEST_URI and self._terms.secrecy.text(uri) == uri:
            self._listener.said(self, ResourceUpdated(self.plugin.name, self._name, uri))

    def _not_started(self, program: Program, reason: str) -> Unavailable:
        what = f"MCP server '{self._name}'"
        if not os.path.isdir(program.cwd):
            return Unavailable(f"cannot start {what}: the folder {program.cwd} does not exist", "fix its `cwd`")
        return long_lived.not_started(what, program, reason, plugin=self.plugin.name, named_in="the configuration")

    def _too_slow(self, hello_s: float) -> Unavailable:
        stderr = self.session.stderr_end if self.session else ""
        return Unavailable(
            f"MCP server '{self._name}' was not ready within {hello_s:g}s{long_lived.last_words(stderr)}",
            f"it must answer `initialize` and `tools/list`; raise `hello_s` under [plugins.{self.plugin.name}] in "
            "settings.toml if it needs more time",
            stderr=stderr,
        )

    def _resolved(self) -> Endpoint:
        """Return the configuration with every reference resolved; raises Unavailable with a hint."""
        endpoint = next(one for one in self.plugin.endpoints if one.name == self._name)
        try:
            data = self._terms.home.data(self.plugin)
            given = {**dict.fromkeys(config_variables.DATA, data), **self._terms.environment}
            return config_variables.resolve(endpoint, given, self._project)
        except config_variables.Unresolved as absent:
            store = hints.command("secret", self.plugin.name, absent.name)
            reason, cure = f"the variable {absent.name} is not set", f"{store} asks for its value; or export it"
            if absent.kind:
                reason = f"${{{absent.kind}:{absent.name}}} is only available in another program"
                cure = "use an environment variable instead: ${env:NAME}"
            elif absent.name in os.environ:
                from anyplug.secrets import env_vars  # its patterns take milliseconds to compile

                why = env_vars.reason(absent.name, os.environ[absent.name])
                reason = f"the variable {absent.name} is withheld: {why or 'it was not there at the start'}"
                cure = f"pass it with `anyplug grant {self.plugin.name} env:{absent.name}`"
            raise Unavailable(f"cannot start MCP server '{self._name}': {reason}", cure) from None

    def _by_command(self, endpoint: Endpoint, inbox: "Inbox", outbox: "Callable[[Session], Outbox]") -> list[Way]:
        """Start a server by command; return its transport. Raises Unavailable."""
        program = self._program(endpoint)
        if not os.path.isdir(program.cwd):
            raise self._not_started(program, "")

        def ended(gone: PeerGone) -> None:
            inbox.end()
            self._ended(gone)

        try:
            session = Session(
                program,
                self._terms.spawn,
                receive=inbox.take,
                ended=ended,
                log=self._terms.log,
                longest_line=self._limit,
                missed=lambda line: self._missed(line, inbox),
                sieve=self._terms.secrecy.stream(),
            )
        except OSError as error:
            raise self._not_started(program, error.strerror or str(error)) from error
        self.session = inbox.session = session

        @asynccontextmanager
        async def pipes() -> AsyncIterator[Any]:
            yield inbox, outbox(session)

        return [pipes]

    def _program(self, endpoint: Endpoint) -> Program:
        folder = self._project if self.plugin.is_file else self.plugin.path
        cwd = os.path.normpath(os.path.join(folder, os.path.expanduser(endpoint.cwd))) if endpoint.cwd else folder
        words = endpoint.arguments
        if endpoint.cwd and not self.plugin.is_file:  # relative to the folder, wherever it is started
            files = config_file.named_files(self.plugin)
            words = tuple(os.path.join(folder, word) if os.path.normpath(word) in files else word for word in words)
        variables = dict(self._terms.environment)
        if PROJECT_ENVIRONMENT in variables:  # each server is a separate project
            variables[PROJECT_ENVIRONMENT] += f"-{self._name.replace('/', '_')}"
        return Program(
            argv=(config_file.program(self.plugin, endpoint), *words),
            cwd=cwd,
            env={**variables, **endpoint.environment},
        )

    def _folders(self, endpoint: Endpoint) -> list[str]:
        """Return what the server works on: the caller's project, and what its command line names.

        Servers that receive folders treat them as complete, and forget those on their command line.
        """
        if not endpoint.command:
            return [self._project]
        cwd = self._program(endpoint).cwd
        named = (
            os.path.normpath(os.path.join(cwd, os.path.expanduser(word)))
            for word in endpoint.arguments
            if word in {".", "..", "~"} or word.startswith(("/", "./", "../", "~/"))
        )
        return list(dict.fromkeys([self._project, *filter(os.path.isdir, named)]))

    async def _converse(self, ways: list[Way]) -> None:
        """Run the conversation, over the first transport that works, until either side ends it."""
        reasons: list[str] = []
        try:
            with self._scope:
                for way in ways:
                    try:
                        async with way() as (read, write):
                            reasons.append(await self._talk.run(read, write, self._ready))
                    except Exception as error:  # noqa: BLE001 - a stranger's code and a network end here
                        reasons.append(_in_a_line(error))
                    if self._is_ready:
                        break
        finally:
            reason = next(filter(None, reasons), CLOSED)
            if self._exchange is not None and self._exchange.status and not self._is_ready:
                reason = f"{reason} (HTTP {self._exchange.status})"
            if self.session is None:
                self._ended(PeerGone(reason))
            elif self.session.gone is None and not self._is_leaving:
                self.session.give_up(reason)
            self._left.set()

    def _ready(self) -> None:
        self._is_ready = True
        self._settled.set()

    def _lose(self, reason: str) -> None:
        """Record that a remote server is gone, so that it is reconnected."""
        if self.session is None and self._is_ready and self.gone is None:
            self._ended(PeerGone(reason))
            self._talk.leave()

    def _missed(self, line: Unread, inbox: "Inbox") -> None:
        """Cancel what is running if a line was too long: it is unknown whose answer it was."""
        if not line.is_too_long:
            inbox.miss(line)
        if not line.is_too_long or line.is_end:
            return
        for number, scope in self._under_way.items():
            self._cut[number] = line.why
            scope.cancel()

    def _changed(self) -> None:
        self._listener.registered(self)

    def _said(self, level: str, logger: str, data: Any) -> None:
        said = LogMessage(self.plugin.name, level, logger, data)
        self._listener.said(self, self._terms.secrecy.struct(said, frozenset({"plugin", "level"})))

    def _log(self, text: str) -> None:
        self._terms.log(f"[{self._name}] {text}\n".encode(errors="replace"))

    async def _end(self) -> None:
        """End everything that is left of it."""
        with anyio.CancelScope(shield=True):
            self._scope.cancel()
            await self._left.wait()
            if self.session is not None:
                await self.session.stop()

    def _ended(self, gone: PeerGone) -> None:
        if self.gone is None:
            self.gone = gone
            self._settled.set()
            self._listener.ended(self, gone)


def _signed_in(home: Home, plugin: Plugin, endpoint: Endpoint) -> Any:
    """Return what shows a server who is signed in, if anybody is."""
    from anyplug.formats.mcp import sign_in  # with the SDK

    return sign_in.stored(Secrets(home), plugin, endpoint)


def _load_sdk() -> "tuple[type[Conversation], type[Inbox], type[Outbox], type[Exchange]]":
    mcp_sdk.load()
    # With the SDK: only what starts a server pays for it.
    from anyplug.formats.mcp.client import Conversation
    from anyplug.formats.mcp.http_client import Exchange
    from anyplug.formats.mcp.stdio_client import Inbox, Outbox

    return Conversation, Inbox, Outbox, Exchange


def _in_a_line(error: BaseException) -> str:
    """Return in one line what went wrong with a connection; such errors come in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error).partition("\n")[0] or type(error).__name__
