"""The conversation between the SDK's client and one server: the handshake, the list of tools, the calls.

`initialize` comes first, and `server/discover` (of the era that began with 2026-07-28) only if it is refused: nearly
every server knows the former, and some ignore or die of a request that comes before it.

Knows no processes, no addresses and no plugins. Imports the SDK, which takes about a second, so only what starts a
server imports this.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, TypeAdapter, ValidationError

from anyplug.formats.mcp import http_client, tool_results
from anyplug.formats.mcp.streams import Source
from anyplug.formats.mcp.tool_results import Listing, Lost
from anyplug.model.errors import BadOutput, CallError, InvalidArguments, TooLarge
from anyplug.model.json_values import excess
from anyplug.model.types import Call, Result

if TYPE_CHECKING:  # the SDK has no public name for them
    from mcp.client._transport import ReadStream, WriteStream

MOST_PAGES = 100  # of tools/list; a longer list is cut off there
LIST_S = 30.0  # to read a changed list again
CALM_S = 0.1  # between two such reads, so that a server that keeps announcing changes is not asked all the time
CALM_TIMES, LONGEST_CALM_S = 20, 60.0  # a longer pause after a slow list: reading it delays everybody
REQUESTS_AT_ONCE, REQUEST_PAUSE_S = (
    50,
    0.05,
)  # requests that a server may make at once, and the pause after each further one
MOST_TYPED = 20_000  # values in what the SDK checks one by one: an answer without structured content, a notification
MOST_ROUNDS = 10  # rounds in which a call may ask for the project's folder before it counts as endless
LOGS_AT_ONCE = 200  # messages that a server may log at once
LOGS_PER_S = 20.0  # and in the long run: writing costs more than sending
LONGEST_LOG = 2_000  # characters
LOG_LEVEL: types.LoggingLevel = "info"

_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)

for _name in ("mcp", "client"):  # the SDK's log is not our output; add a handler to see it
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Conversation:
    """One connection with a server, from the handshake on."""

    def __init__(
        self, server: str, folders: Sequence[str], *, log: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        """Start nothing yet. The server works on these `folders`.

        `changed` is called when the list of tools changes.
        """
        self.listing = Listing()
        self._server = server
        self._folders = folders
        self._log = log
        self._changed = changed
        self._sdk: ClientSession | None = None
        self._over = anyio.Event()
        self._stale = anyio.Event()
        self._logs_left = float(LOGS_AT_ONCE)
        self._logged_at = time.monotonic()

    def leave(self) -> None:
        """End it soon."""
        self._over.set()

    async def run(
        self,
        read: "ReadStream[SessionMessage | Exception]",
        write: "WriteStream[SessionMessage]",
        ready: Callable[[], None],
    ) -> str:
        """Do the handshake, list the tools, and run until the connection ends; return why it failed to start."""
        self._over = anyio.Event()
        dispatcher = _Dispatcher(_Watched(read, self._over.set), write, self)
        sdk = ClientSession(
            dispatcher=dispatcher,
            list_roots_callback=self._roots,
            logging_callback=self._logged,
            message_handler=self._heard,
            client_info=types.Implementation(name="anyplug", version=version("anyplug")),
            log_level=LOG_LEVEL,
        )
        async with sdk:
            self._sdk = sdk
            try:
                await _greet(sdk)
            except MCPError as refusal:
                return f"it refused: {refusal.message}"
            except (RuntimeError, ValidationError) as error:
                return f"its handshake is invalid: {_first_line(error)}"
            await self._list(sdk)
            ready()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, sdk)
                if sdk.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    tasks.start_soon(self._subscribe, sdk)
                await self._over.wait()
                tasks.cancel_scope.cancel()
        return ""

    async def call(self, call: Call) -> Result:
        """Call a tool; raises CallError, and Lost."""
        assert self._sdk is not None
        name = call.tool.own_name.removeprefix(f"{call.tool.process}.")
        try:
            answer = await self._ask(self._sdk, name, call)
        except MCPError as error:
            raise self._failure(call, error) from error
        except (ValidationError, RuntimeError) as error:
            raise self._bad_output(name, _first_line(error)) from error
        listed = self.listing.tools.get(name, {})
        return tool_results.result(answer, listed.get("outputSchema"))

    async def _ask(self, sdk: ClientSession, name: str, call: Call) -> types.CallToolResult:
        """Call, and answer the server's own questions first, of which we can only answer the project's folder.

        The SDK's own `call_tool` checks results with patterns that the server chose, without a time limit.
        """
        given: types.InputResponses | None = None
        state: str | None = None
        for _ in range(MOST_ROUNDS):
            request = types.CallToolRequest(
                params=types.CallToolRequestParams(
                    name=name, arguments=call.arguments, input_responses=given, request_state=state
                )
            )
            answer = await sdk.send_request(request, _ANSWER, progress_callback=call.progress)
            if isinstance(answer, types.CallToolResult):
                return answer
            wanted = answer.input_requests or {}
            for asked in wanted.values():
                if not isinstance(asked, types.ListRootsRequest):
                    raise CallError(
                        f"MCP server '{self._server}' requests {asked.method} before it answers '{name}'",
                        "anyplug cannot answer that; call the tool with everything that it needs",
                    )
            given = {key: self._all_roots() for key in wanted} or None
            state = answer.request_state
        raise self._bad_output(name, "it keeps asking for the project's folder")

    async def _list(self, sdk: ClientSession) -> None:
        """Read the whole list of tools. A failure is a warning, and the known tools stay."""
        before, self.listing = self.listing, Listing()
        cursors: set[str] = set()
        cursor: str | None = None
        try:
            for _ in range(MOST_PAGES):
                before_page = set(self.listing.tools)
                page = await sdk.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
                self._leave_out(set(self.listing.tools) - before_page - {tool.name for tool in page.tools})
                cursor = page.next_cursor
                if not cursor:
                    return
                if cursor in cursors:
                    self.listing.warn("its list of tools is circular; the tools listed before that are used")
                    return
                cursors.add(cursor)
            self.listing.warn(f"its list of tools has more than {MOST_PAGES} pages; the others are ignored")
        except (MCPError, ValidationError, RuntimeError) as error:
            if isinstance(error, MCPError) and error.code == types.METHOD_NOT_FOUND and not self._has_tools(sdk):
                return  # a server without tools
            self.listing.tools = self.listing.tools or before.tools
            self.listing.warn(f"it does not list its tools: {_first_line(error)}")

    def _leave_out(self, names: set[str]) -> None:
        for name in sorted(names):
            del self.listing.tools[name]
            self.listing.warn(f"the tool '{name}' was skipped: its x-mcp-header is not valid")

    @staticmethod
    def _has_tools(sdk: ClientSession) -> bool:
        return sdk.server_capabilities is not None and sdk.server_capabilities.tools is not None

    async def _follow(self, sdk: ClientSession) -> None:
        """Read the list again whenever the server announces a change."""
        while True:
            await self._stale.wait()
            self._stale = anyio.Event()
            began = time.monotonic()
            with anyio.move_on_after(LIST_S) as scope:
                await self._list(sdk)
            if scope.cancelled_caught:
                self.listing.warn(f"it announced that its tools changed, but did not list them within {LIST_S:g}s")
            self._changed()
            took_s = time.monotonic() - began
            await anyio.sleep(min(max(CALM_S, CALM_TIMES * took_s), LONGEST_CALM_S))

    async def _subscribe(self, sdk: ClientSession) -> None:
        """Ask a server of the new era to announce changes of its list, which `_heard` receives."""
        try:
            async with listen(sdk, tools_list_changed=True) as events:
                self._stale.set()  # it may have changed before anybody listened
                async for _ in events:
                    pass
        except (MCPError, SubscriptionLost, TimeoutError):
            pass  # it does not announce changes, so its list is read at its next start

    async def _heard(self, message: types.ServerNotification | Exception) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._stale.set()

    async def _logged(self, params: types.LoggingMessageNotificationParams) -> None:
        """Log a server's messages, as long as there are not too many."""
        now = time.monotonic()
        self._logs_left = min(LOGS_AT_ONCE, self._logs_left + (now - self._logged_at) * LOGS_PER_S)
        self._logged_at = now
        if self._logs_left < 1:
            return
        self._logs_left -= 1
        data = params.data if isinstance(params.data, str) else repr(params.data)
        by = f" {params.logger}" if params.logger else ""
        rest = "; it logs too much, and the rest is dropped" if self._logs_left < 1 else ""
        self._log(f"{params.level}{by}: {data[:LONGEST_LOG]}{rest}")

    async def _roots(self, context: Any) -> types.ListRootsResult:
        return self._all_roots()

    def _all_roots(self) -> types.ListRootsResult:
        roots = [
            types.Root(uri=FileUrl(f"file://{quote(folder)}"), name=os.path.basename(folder))
            for folder in self._folders
        ]
        return types.ListRootsResult(roots=roots)

    def _failure(self, call: Call, error: MCPError) -> Exception:
        """Convert an error of the server, or of the transport, to one of ours."""
        said = error.message
        if http_client.TOO_LARGE in said or said.startswith("SSE stream failed"):
            hint = f"`max_output_bytes` under [plugins.{call.plugin.name}] in settings.toml changes the limit"
            return TooLarge(f"MCP server '{self._server}': {said}", hint)
        if error.code == types.CONNECTION_CLOSED and (said == "Connection closed" or said.startswith("SSE stream")):
            return Lost("the connection was closed")
        if error.code == types.INVALID_PARAMS:
            return InvalidArguments(call.tool.name, [said])
        if error.code == types.PARSE_ERROR and said.startswith("Failed to parse"):
            return self._bad_output(call.tool.own_name, said)
        hint = f"`anyplug logs {call.plugin.name}` shows the server's output"
        return CallError(said or f"error {error.code}", hint, rpc_code=error.code, data=error.data)

    def _bad_output(self, name: str, why: str) -> BadOutput:
        return BadOutput(
            f"MCP server '{self._server}' answered '{name}' with an invalid result: {why}", "fix the server"
        )


async def _greet(sdk: ClientSession) -> None:
    """Agree on a protocol version; raises what `initialize` raised if neither way works."""
    try:
        await sdk.initialize()
    except (MCPError, RuntimeError, ValidationError) as refusal:
        if isinstance(refusal, MCPError) and refusal.code == types.CONNECTION_CLOSED:
            raise
        try:
            await sdk.discover()
        except (MCPError, RuntimeError, ValidationError):
            raise refusal from None


class _Dispatcher(JSONRPCDispatcher):
    """The SDK's dispatcher, except that one invalid tool does not invalidate the whole list."""

    def __init__(
        self,
        read: "ReadStream[SessionMessage | Exception]",
        write: "WriteStream[SessionMessage]",
        conversation: Conversation,
    ) -> None:
        super().__init__(read, write)
        self._conversation = conversation

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None, **others: Any
    ) -> dict[str, Any]:
        raw = await super().send_raw_request(method, params, opts, **others)
        if method == "tools/list":
            if why := excess(raw, sys.maxsize):
                raise RuntimeError(why)
            return self._conversation.listing.add(raw)  # which leaves out single tools that are too deep
        typed = {key: value for key, value in raw.items() if key != "structuredContent"}
        if why := excess(raw) or excess(typed, most=MOST_TYPED):
            raise RuntimeError(why)
        return raw


class _Watched(Source):
    """A stream that reports when it has ended, which the SDK does not."""

    def __init__(self, stream: "ReadStream[SessionMessage | Exception]", ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended
        self._requests_left = float(REQUESTS_AT_ONCE)
        self._asked_at = time.monotonic()

    @property
    def last_context(self) -> Any:
        """What the SDK's own streams carry along."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next readable message: what is too deep or too much is left out, or its details."""
        while True:
            try:
                item = await self._stream.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._ended()
                raise
            message = item.message if isinstance(item, SessionMessage) else None
            if isinstance(message, types.JSONRPCNotification | types.JSONRPCRequest) and excess(
                message.params, most=MOST_TYPED
            ):
                continue
            if isinstance(message, types.JSONRPCRequest):
                await self._pace()
            if isinstance(message, types.JSONRPCError) and (why := excess(message.error.data)):
                message.error.data = why
            return item

    async def _pace(self) -> None:
        """Slow down a server that sends requests all the time, through its own pipe."""
        now = time.monotonic()
        earned = (now - self._asked_at) / REQUEST_PAUSE_S
        self._requests_left = min(REQUESTS_AT_ONCE, self._requests_left + earned) - 1
        self._asked_at = now
        if self._requests_left < 0:
            await anyio.sleep(REQUEST_PAUSE_S)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _first_line(error: Exception) -> str:
    """Return an error's message in one line."""
    if isinstance(error, MCPError):
        return error.message
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
    return str(error).partition("\n")[0]
