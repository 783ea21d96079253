"""The conversation between the SDK's client and one server: the handshake, the list of tools, the calls.

`initialize` comes first, and `server/discover` (of the era that began with 2026-07-28) only if it is refused: nearly
every server knows the former, and some ignore or die of a request that comes before it.

Knows no processes, no addresses and no plugins. Imports the SDK, which takes about a second, so only what starts a
server imports this.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, TypeAdapter, ValidationError

from anyplug.formats.mcp import http_client, server_tasks, services, tool_results
from anyplug.formats.mcp.dispatcher import Dispatcher, Watched
from anyplug.formats.mcp.server_requests import REFUSED, Pausing, ServerRequests
from anyplug.formats.mcp.services import Served
from anyplug.formats.mcp.tool_results import LARGEST_LISTED, Listing, Lost
from anyplug.formats.shared.features import CommandAnswer
from anyplug.model.errors import BadOutput, CallError, InvalidArguments, TooLarge
from anyplug.model.types import Call, Result

if TYPE_CHECKING:  # the SDK has no public name for them
    from mcp.client._transport import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage

MOST_PAGES = 100  # of tools/list; a longer list is cut off there
LIST_S = 30.0  # to read a changed list again
CALM_S = 0.1  # between two such reads, so that a server that keeps announcing changes is not asked all the time
CALM_TIMES, LONGEST_CALM_S = 20, 60.0  # a longer pause after a slow list: reading it delays everybody
MOST_ROUNDS = 10  # rounds in which a call may ask for the project's folder before it counts as endless
LOGS_AT_ONCE = 200  # messages that a server may log at once
LOGS_PER_S = 20.0  # and in the long run: writing costs more than sending
LONGEST_LOG = 2_000  # characters
LOG_LEVEL: types.LoggingLevel = "info"

_ANSWER: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
_CONTENTS: TypeAdapter[Any] = TypeAdapter(types.ReadResourceResult | types.InputRequiredResult)
_PROMPT: TypeAdapter[Any] = TypeAdapter(types.GetPromptResult | types.InputRequiredResult)

for _name in ("mcp", "client"):  # the SDK's log is not our output; add a handler to see it
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Conversation:
    """One connection with a server, from the handshake on."""

    def __init__(
        self,
        server: str,
        folders: Sequence[str],
        *,
        log: Callable[[str], None],
        changed: Callable[[], None],
        said: Callable[[str, str, Any], None] = lambda _level, _logger, _data: None,
        updated: Callable[[str], None] = lambda _: None,
        pausing: Pausing = lambda _: nullcontext(),
    ) -> None:
        """Start nothing yet. The server works on these `folders`.

        `changed` is called when one of its lists changes, `said` with its log messages, and `updated` with the URIs of
        resources that changed. Time in which a call waits for its caller is spent in `pausing`.
        """
        self.listing = Listing()
        self.served = Served()
        self._server = server
        self._folders = folders
        self._log = log
        self._changed = changed
        self._said = said
        self._running: list[Call] = []
        self._updated = updated
        self._requests = ServerRequests(pausing)
        self._watched: set[str] = set()  # URIs that somebody subscribed to
        self._resubscribe = anyio.CancelScope()
        self._sdk: ClientSession | None = None
        self._dispatcher: Dispatcher | None = None
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
        dispatcher = self._dispatcher = Dispatcher(Watched(read, self._over.set), write, lambda: self.listing)
        sdk = ClientSession(
            dispatcher=dispatcher,
            list_roots_callback=self._roots,
            elicitation_callback=self._elicit,
            sampling_callback=self._sample,
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
            await self._list_all(sdk)
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
        self._running.append(call)
        try:
            return await self._answer(self._sdk, name, call)
        except MCPError as error:
            raise self._failure(call.plugin.name, call.tool.name, error) from error
        except (ValidationError, RuntimeError) as error:
            raise self._bad_output(name, _first_line(error)) from error
        finally:
            self._running.remove(call)

    async def prompt(self, plugin: str, command: str, words: str) -> CommandAnswer:
        """Get a prompt by its slash command; raises CallError, and Lost."""
        assert self._sdk is not None
        prompt = self.served.prompt(self._server, command)
        if prompt is None:
            raise CallError(f"MCP server '{self._server}' no longer has a prompt for /{command}", "list them again")
        given = services.read_words(words, [one.name for one in prompt.arguments or ()])

        def make(answers: types.InputResponses | None, state: str | None) -> types.GetPromptRequest:
            params = types.GetPromptRequestParams(
                name=prompt.name, arguments=given or None, input_responses=answers, request_state=state
            )
            return types.GetPromptRequest(params=params)

        try:
            return services.prompt_answer(await self._ask(self._sdk, make, _PROMPT, prompt.name))
        except MCPError as error:
            raise self._failure(plugin, f"/{command}", error) from error
        except (ValidationError, RuntimeError) as error:
            raise self._bad_output(prompt.name, _first_line(error)) from error

    async def _answer(self, sdk: ClientSession, name: str, call: Call) -> Result:
        """Call a tool, or one of the services."""
        given = call.arguments
        match name:
            case services.READ:

                def read(answers: types.InputResponses | None, state: str | None) -> types.ReadResourceRequest:
                    params = types.ReadResourceRequestParams(
                        uri=str(given.get("uri", "")), input_responses=answers, request_state=state
                    )
                    return types.ReadResourceRequest(params=params)

                return services.contents(await self._ask(sdk, read, _CONTENTS, name, call))
            case services.SUBSCRIBE | services.UNSUBSCRIBE:
                await self._watch(sdk, str(given.get("uri")), is_on=name == services.SUBSCRIBE)
                return Result()
            case services.COMPLETE:
                params = types.CompleteRequestParams.model_validate(self._own_reference(given), by_name=False)
                found = await sdk.send_request(types.CompleteRequest(params=params), types.CompleteResult)
                return Result(structured=found.completion.model_dump(by_alias=True, mode="json", exclude_none=True))

        def make(answers: types.InputResponses | None, state: str | None) -> types.CallToolRequest:
            params = types.CallToolRequestParams(
                name=name,
                arguments=given,
                input_responses=answers,
                request_state=state,
                _meta=call.trace or None,  # type: ignore[arg-type] # it may have keys of other standards
            )
            return types.CallToolRequest(params=params)

        listed = self.listing.tools.get(name, {})
        if server_tasks.is_needed(listed, sdk.protocol_version):
            answer = await server_tasks.call(self._send, name, call)
        else:
            answer = await self._ask(sdk, make, _ANSWER, name, call)
        return tool_results.result(answer, listed.get("outputSchema"))

    async def _send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request that the SDK does not know."""
        assert self._dispatcher is not None
        return await self._dispatcher.send_raw_request(method, params)

    def _own_reference(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return a request for completion with the prompt's name as the server knows it."""
        reference = given.get("ref")
        name = reference.get("name") if isinstance(reference, dict) else None
        prompt = self.served.prompt(self._server, name) if isinstance(name, str) else None
        return {**given, "ref": {**reference, "name": prompt.name}} if prompt is not None and reference else given

    async def _watch(self, sdk: ClientSession, uri: str, *, is_on: bool) -> None:
        """Subscribe to changes of a resource, or no longer."""
        (self._watched.add if is_on else self._watched.discard)(uri)
        if sdk.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._resubscribe.cancel()
            return
        request = (
            types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
            if is_on
            else types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
        )
        await sdk.send_request(request, types.EmptyResult)

    async def _ask(
        self,
        sdk: ClientSession,
        make: Callable[[types.InputResponses | None, str | None], Any],
        shape: TypeAdapter[Any],
        name: str,
        call: Call | None = None,
    ) -> Any:
        """Send a request, and answer the server's own questions first, of which we can only answer the folders.

        The SDK's own `call_tool` checks results with patterns that the server chose, without a time limit.
        """
        given: types.InputResponses | None = None
        state: str | None = None
        progress = call.progress if call is not None else None
        for _ in range(MOST_ROUNDS):
            answer = await sdk.send_request(make(given, state), shape, progress_callback=progress)
            if not isinstance(answer, types.InputRequiredResult):
                return answer
            wanted = answer.input_requests or {}
            given = {key: await self._response(asked, call, name) for key, asked in wanted.items()} or None
            state = answer.request_state
        raise self._bad_output(name, f"it asked {MOST_ROUNDS} times before it answered")

    async def _response(self, asked: types.InputRequest, call: Call | None, name: str) -> types.InputResponse:
        """Answer what a server of the newer era asks before it answers; raises CallError."""
        match asked:
            case types.ListRootsRequest():
                return self._all_roots()
            case types.ElicitRequest() if call is not None:
                return await self._requests.elicit(asked.params, call)
            case types.CreateMessageRequest() if call is not None:
                return await self._requests.sample(asked.params, call)
        raise CallError(
            f"MCP server '{self._server}' requests {asked.method} before it answers '{name}'",
            "anyplug asks nobody about that outside a tool's call",
        )

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
                if not cursor or self.listing.is_full:
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

    async def _list_all(self, sdk: ClientSession) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._list, sdk)
            group.start_soon(self._list_others, sdk)

    async def _list_others(self, sdk: ClientSession) -> None:
        """Read the lists of resources and prompts; a failure is a warning, and that list stays as it was."""
        can, before = sdk.server_capabilities or types.ServerCapabilities(), self.served
        served, left = Served(), LARGEST_LISTED

        async def read(what: str, ask: Callable[..., Any], key: str, known: list[Any]) -> list[Any]:
            nonlocal left
            try:
                found, left = await _pages(ask, key, left)
            except (MCPError, ValidationError, RuntimeError) as error:
                if not isinstance(error, MCPError) or error.code != types.METHOD_NOT_FOUND:
                    served.warnings.append(f"it does not list its {what}: {_first_line(error)}")
                return known
            if left < 0:
                served.warnings.append(
                    f"its {what} and the like have more than {LARGEST_LISTED >> 20} MiB; some are ignored"
                )
            return found

        if can.resources is not None:
            served.resources = await read("resources", sdk.list_resources, "resources", before.resources)
            served.templates = await read(
                "resource templates", sdk.list_resource_templates, "resource_templates", before.templates
            )
            served.services.append(services.READ)
            if can.resources.subscribe or sdk.protocol_version in MODERN_PROTOCOL_VERSIONS:
                served.services += [services.SUBSCRIBE, services.UNSUBSCRIBE]
        if can.prompts is not None:
            served.prompts = await read("prompts", sdk.list_prompts, "prompts", before.prompts)
        if can.completions is not None:
            served.services.append(services.COMPLETE)
        self.served = served

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
                await self._list_all(sdk)
            if scope.cancelled_caught:
                self.listing.warn(f"it announced that its tools changed, but did not list them within {LIST_S:g}s")
            self._changed()
            took_s = time.monotonic() - began
            await anyio.sleep(min(max(CALM_S, CALM_TIMES * took_s), LONGEST_CALM_S))

    async def _subscribe(self, sdk: ClientSession) -> None:
        """Ask a server of the new era to announce changes of its lists, which `_heard` receives."""
        is_over = False
        while not is_over:
            is_over = True
            try:
                with anyio.CancelScope() as self._resubscribe:
                    async with listen(
                        sdk,
                        tools_list_changed=True,
                        prompts_list_changed=True,
                        resources_list_changed=True,
                        resource_subscriptions=sorted(self._watched),
                    ) as events:
                        self._stale.set()  # it may have changed before anybody listened
                        async for _ in events:
                            pass
                is_over = not self._resubscribe.cancelled_caught
            except (MCPError, SubscriptionLost, TimeoutError):
                pass  # it does not announce changes, so its lists are read at its next start

    async def _heard(self, message: types.ServerNotification | Exception) -> None:
        match message:
            case (
                types.ToolListChangedNotification()
                | types.PromptListChangedNotification()
                | types.ResourceListChangedNotification()
            ):
                self._stale.set()
            case types.ResourceUpdatedNotification():
                self._updated(str(message.params.uri))

    async def _logged(self, params: types.LoggingMessageNotificationParams) -> None:
        """Log a server's messages, as long as there are not too many."""
        now = time.monotonic()
        self._logs_left = min(LOGS_AT_ONCE, self._logs_left + (now - self._logged_at) * LOGS_PER_S)
        self._logged_at = now
        if self._logs_left < 1:
            return
        self._logs_left -= 1
        self._said(params.level, params.logger or "", params.data)
        data = params.data if isinstance(params.data, str) else repr(params.data)
        by = f" {params.logger}" if params.logger else ""
        rest = "; it logs too much, and the rest is dropped" if self._logs_left < 1 else ""
        self._log(f"{params.level}{by}: {data[:LONGEST_LOG]}{rest}")

    async def _elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        call = self._whose()
        return await self._requests.elicit(params, call) if call else types.ElicitResult(action="cancel")

    async def _sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        call = self._whose()
        try:
            if call is not None:
                return await self._requests.sample(params, call)
        except CallError as error:
            return types.ErrorData(code=REFUSED, message=error.message)
        return types.ErrorData(code=REFUSED, message="no running tool has a caller with a model")

    def _whose(self) -> Call | None:
        """Return the call in which the server asks: the protocol does not tell, so all must be of one caller."""
        callers = {call.attachment for call in self._running}
        if len(callers) > 1:
            self._log("it asked while tools ran for several callers, so nobody was asked")
        return self._running[-1] if len(callers) == 1 else None

    async def _roots(self, context: Any) -> types.ListRootsResult:
        return self._all_roots()

    def _all_roots(self) -> types.ListRootsResult:
        roots = [
            types.Root(uri=FileUrl(f"file://{quote(folder)}"), name=os.path.basename(folder))
            for folder in self._folders
        ]
        return types.ListRootsResult(roots=roots)

    def _failure(self, plugin: str, called: str, error: MCPError) -> Exception:
        """Convert an error of the server, or of the transport, to one of ours."""
        said = error.message
        if http_client.TOO_LARGE in said or said.startswith("SSE stream failed"):
            hint = f"`max_output_bytes` under [plugins.{plugin}] in settings.toml changes the limit"
            return TooLarge(f"MCP server '{self._server}': {said}", hint)
        if error.code == types.CONNECTION_CLOSED and (said == "Connection closed" or said.startswith("SSE stream")):
            return Lost("the connection was closed")
        if error.code == types.INVALID_PARAMS:
            return InvalidArguments(called, [said])
        if error.code == types.PARSE_ERROR and said.startswith("Failed to parse"):
            return self._bad_output(called, said)
        hint = f"`anyplug logs {plugin}` shows the server's output"
        return CallError(said or f"error {error.code}", hint, rpc_code=error.code, data=error.data)

    def _bad_output(self, name: str, why: str) -> BadOutput:
        return BadOutput(
            f"MCP server '{self._server}' answered '{name}' with an invalid result: {why}", "fix the server"
        )


async def _pages(ask: Callable[..., Any], key: str, left: int) -> tuple[list[Any], int]:
    """Read all pages of a list, as far as it is not circular or endless.

    Return how many of the bytes that were left remain; below zero, something was left out.
    """
    found: list[Any] = []
    cursors: set[str | None] = {None}
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await ask(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        for entry in getattr(page, key):
            left = left - len(entry.model_dump_json()) if left >= 0 else left
            found += [entry] if left >= 0 else []
        cursor = page.next_cursor
        if not cursor or cursor in cursors or len(found) >= services.MOST or left < 0:
            break
        cursors.add(cursor)
    return found, left


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


def _first_line(error: Exception) -> str:
    """Return an error's message in one line."""
    if isinstance(error, MCPError):
        return error.message
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
    return str(error).partition("\n")[0]
