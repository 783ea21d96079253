"""Connect the SDK's server to the handlers, and the host's notices to the clients.

Imports the SDK, which takes about a second.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from anyplug import __version__
from anyplug.call import trace_context
from anyplug.call.consent import Attachment
from anyplug.frontends.mcp import consent_elicitation, tasks
from anyplug.frontends.mcp.handlers import INSTRUCTIONS, BadState, Failed, Handlers, Request
from anyplug.frontends.mcp.listing import BadCursor
from anyplug.frontends.mcp.passed_on_requests import plugins_caller, reason
from anyplug.frontends.mcp.result_content import Wire, failure_data
from anyplug.model.types import LogMessage, Note
from anyplug.model.types import ResourceUpdated as Updated
from anyplug.model.untrusted_text import for_people
from anyplug.peers.notices import Notice, SnapshotChanged

NAME = "anyplug"
CALM_S = 0.1  # between a change and its notification: a reload makes many at once
SEND_S = 5.0  # for a client to take a notification; one that does not read must not hold up the others
MOST_NOTES = 100  # waiting to be sent; beyond that the oldest are dropped
LEVELS: dict[str, types.LoggingLevel] = {"info": "info", "success": "notice", "warn": "warning", "error": "error"}
SEVERITIES: tuple[types.LoggingLevel, ...] = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
USUAL_LEVEL: types.LoggingLevel = "info"  # until a client chooses another
LONGEST_NAME = 60  # characters of an agent's name in the audit
NO_RESOURCE = -32002  # in the older era
KEY = "anyplug"  # in a connection's scratch state

Context = ServerRequestContext[Any, Any]
AttachmentOf = Callable[[Context], Attachment | None]

for _name in ("mcp", "server"):  # the SDK's log is not our output; add a handler to see it
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Client:
    """A connection of the older era."""

    def __init__(self, session: ServerSession, attachment: Attachment) -> None:
        self.session = session
        self.attachment = attachment
        self.level = USUAL_LEVEL
        self.watched: dict[str, str] = {}  # resources that it subscribed to: the plugin's own URI, and the client's

    def wants(self, level: types.LoggingLevel) -> bool:
        """Return whether it wants notes of this level."""
        return SEVERITIES.index(level) >= SEVERITIES.index(self.level)


class SdkServer:
    """One server, with any number of connections."""

    def __init__(self, desk: Handlers, attachment_of: AttachmentOf | None = None) -> None:
        self.desk = desk
        self.desk.changed = self._grow_stale
        self.clients: list[Client] = []
        self.opened: Callable[[Context], None] = lambda _: None  # called when a client of the older era is ready
        self._attachment_of = attachment_of or (lambda _: None)
        self._bus = InMemorySubscriptionBus()
        self._stale = anyio.Event()
        self._notes: deque[Note | LogMessage | Updated] = deque(maxlen=MOST_NOTES)  # waiting to be sent
        self._noted = anyio.Event()
        self.server: Server[Any] = Server(
            NAME,
            version=__version__,
            title="anyplug",
            instructions=INSTRUCTIONS,
            lifespan=self._lifespan,
            get_tool_input_schema=lambda _: None,  # none of our schemas has arguments in headers
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_completion=self._complete,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        tasks.Tasks(desk, self.server, self._request)
        self.server.add_notification_handler("notifications/initialized", types.NotificationParams, self._ready)

    @asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncIterator[None]:
        """Follow the host as long as the server runs."""
        async with anyio.create_task_group() as group:
            stop = self.desk.host.listen(self._heard)
            self.desk.look_again()  # from here on changes are announced
            group.start_soon(self._follow)
            group.start_soon(self._pass_on_notes)
            try:
                yield
            finally:
                stop()
                group.cancel_scope.cancel()

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> Any:
        try:
            has_tasks = ctx.protocol_version == tasks.VERSION
            return self.desk.offering.page_of_tools(params.cursor if params else None, has_tasks=has_tasks)
        except BadCursor:
            raise bad_cursor() from None

    async def _list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> Any:
        try:
            return self.desk.offering.page_of_prompts(params.cursor if params else None)
        except BadCursor:
            raise bad_cursor() from None

    async def _list_resources(self, ctx: Context, params: types.PaginatedRequestParams | None) -> Any:
        try:
            return self.desk.offering.page_of_resources(params.cursor if params else None)
        except BadCursor:
            raise bad_cursor() from None

    async def _list_templates(self, ctx: Context, params: types.PaginatedRequestParams | None) -> Any:
        try:
            return self.desk.offering.page_of_templates(params.cursor if params else None)
        except BadCursor:
            raise bad_cursor() from None

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> Any:
        request = self._request(ctx, params)
        with _as_errors(NO_RESOURCE if not request.is_modern else types.INVALID_PARAMS):
            async with self._notes_for(ctx):
                return await self.desk.read(str(params.uri), request)

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        client = self._client(ctx)
        with _as_errors(NO_RESOURCE):
            client.watched[await self.desk.watch(str(params.uri), self._request(ctx), is_on=True)] = str(params.uri)
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """Send a client no more of a resource's changes; if nobody wants them any more, tell the plugin."""
        watched = self._client(ctx).watched
        own = next((own for own, uri in watched.items() if uri == str(params.uri)), "")
        watched.pop(own, None)
        if own and not any(own in client.watched for client in self.clients):
            with _as_errors(NO_RESOURCE):
                await self.desk.watch(str(params.uri), self._request(ctx), is_on=False)
        return types.EmptyResult()

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> Any:
        given = params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
        return await self.desk.complete(given, self._request(ctx))

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Any:
        request = self._request(ctx, params)
        try:
            async with self._notes_for(ctx):
                return await self.desk.call(params.name, params.arguments, request)
        except BadState:
            raise bad_state() from None

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> Any:
        request = self._request(ctx, params)
        with _as_errors(types.INVALID_PARAMS):
            async with self._notes_for(ctx):
                return await self.desk.prompt(params.name, params.arguments or {}, request)

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self._client(ctx).level = params.level
        return types.EmptyResult()

    async def _ready(self, ctx: Context, _: types.NotificationParams) -> None:
        client = self._client(ctx)
        if client not in self.clients:
            self.clients.append(client)
            self._noted.set()
            _connection(ctx).exit_stack.callback(self.clients.remove, client)
        self.opened(ctx)

    def _client(self, ctx: Context) -> Client:
        """Return what is known about a connection of the older era."""
        connection = _connection(ctx)
        if KEY not in connection.state:
            known = self._attachment_of(ctx) if connection.session_id is None else None
            connection.state[KEY] = Client(
                ctx.session, known or Attachment("mcp", view=self.desk.view, shows_panels=False, is_model=True)
            )
        client: Client = connection.state[KEY]
        client.attachment.agent = agent_name(ctx)
        return client

    def _request(
        self,
        ctx: Context,
        params: types.CallToolRequestParams
        | types.GetPromptRequestParams
        | types.ReadResourceRequestParams
        | None = None,
    ) -> Request:
        """Return who makes the request, and how they can be asked."""
        capabilities = ctx.session.client_capabilities
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return Request(
                attachment=self._client(ctx).attachment,
                can_ask=can_show_forms(capabilities),
                elicit=elicitation(ctx.session, ctx.request_id),
                caller=plugins_caller(ctx.session, ctx.request_id),
                progress=ctx.session.report_progress,
                trace=_trace(ctx),
            )
        known = self._attachment_of(ctx)
        attachment = known or Attachment("mcp", view=self.desk.view, shows_panels=False, line="mcp", is_model=True)
        attachment.agent = agent_name(ctx)
        responses = (params.input_responses if params is not None else None) or {}
        return Request(
            attachment=attachment,
            is_modern=True,
            can_ask=can_show_forms(capabilities),
            is_alone=known is None,
            progress=ctx.session.report_progress,
            state=params.request_state if params is not None else None,
            trace=_trace(ctx),
            responses={key: answer.model_dump(by_alias=True, mode="json") for key, answer in responses.items()},
        )

    def _grow_stale(self) -> None:
        self._stale.set()

    def _heard(self, notice: Notice) -> bool:
        if isinstance(notice, SnapshotChanged):
            self._grow_stale()
        elif isinstance(notice, Note | LogMessage | Updated) and self.desk.view.has_plugin(notice.plugin):
            self._notes.append(notice)  # also for the first client, which is not ready while plugins start
            if self.clients:
                self._noted.set()
            return bool(self.clients)
        else:
            return False
        return True

    async def _follow(self) -> None:
        """Notify clients of changes to what can be called."""
        while True:
            await self._stale.wait()
            await anyio.sleep(CALM_S)
            self._stale = anyio.Event()
            tools, prompts, resources = self.desk.look_again()
            if tools:
                await self._bus.publish(ToolsListChanged())
                await self._notify_all(types.ToolListChangedNotification())
            if prompts:
                await self._bus.publish(PromptsListChanged())
                await self._notify_all(types.PromptListChangedNotification())
            if resources:
                await self._bus.publish(ResourcesListChanged())
                await self._notify_all(types.ResourceListChangedNotification())

    async def _pass_on_notes(self) -> None:
        """Send plugins' own notes as log messages, in the era that allows them at any time."""
        while True:
            await self._noted.wait()
            self._noted = anyio.Event()
            while self._notes:
                note = self._notes.popleft()
                if isinstance(note, Updated):
                    await self._tell_of_update(note)
                    continue
                level = _level(note)
                await self._notify_all(_log(note, level), [client for client in self.clients if client.wants(level)])

    async def _tell_of_update(self, updated: Updated) -> None:
        """Tell those who subscribed to a resource that it changed, by the URI that they know."""
        for client in self.clients:
            if uri := client.watched.get(updated.uri):
                params = types.ResourceUpdatedNotificationParams(uri=uri)
                await _notify(client.session, types.ResourceUpdatedNotification(params=params))
        uri = next((one.uri for one, _ in self.desk.offering.readable if one.own_uri == updated.uri), updated.uri)
        await self._bus.publish(ResourceUpdated(uri=uri))

    async def _notify_all(self, message: types.ServerNotification, clients: list[Client] | None = None) -> None:
        async with anyio.create_task_group() as group:
            for client in self.clients if clients is None else clients:
                group.start_soon(_notify, client.session, message)

    @asynccontextmanager
    async def _notes_for(self, ctx: Context) -> AsyncIterator[None]:
        """Send notes along with a request that asked for them, in the era that has no other way."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            yield
            return
        wanted = allowed_log_levels(ctx.protocol_version, ctx.meta)
        if not wanted:
            yield
            return
        failure: Exception | None = None
        async with anyio.create_task_group() as group:

            def heard(notice: Notice) -> bool:
                if not isinstance(notice, Note | LogMessage) or not self.desk.view.has_plugin(notice.plugin):
                    return False
                level = _level(notice)
                if level in wanted:
                    group.start_soon(_notify, ctx.session, _log(notice, level), ctx.request_id)
                return level in wanted

            stop = self.desk.host.listen(heard, catch_up=False)
            try:
                yield
            except (BadState, Failed, MCPError) as error:  # raised here, it would come out in a group
                failure = error
            finally:
                stop()
        if failure is not None:
            raise failure


def _trace(ctx: Context) -> dict[str, str]:
    """Return the trace context of a request: of its `_meta`, else of its HTTP headers."""
    meta = (ctx.params or {}).get("_meta")
    found = trace_context.read(meta if isinstance(meta, dict) else None)
    return found or trace_context.read(getattr(ctx.request, "headers", None))


def can_show_forms(capabilities: types.ClientCapabilities | None) -> bool:
    """Return whether a client said that it can ask its user; one that names no mode means forms."""
    asking = capabilities.elicitation if capabilities is not None else None
    return asking is not None and (asking.form is not None or asking.url is None)


def elicitation(session: ServerSession, request: types.RequestId | None) -> consent_elicitation.Elicit:
    """Ask through a request to the client, with a time limit."""

    async def elicit(message: str, form: dict[str, Any]) -> tuple[str, Any]:
        try:
            with anyio.fail_after(consent_elicitation.ANSWER_S):
                answer = await session.elicit_form(message, form, related_request_id=request)
        except (MCPError, ValidationError) as error:
            raise ConnectionError(reason(error)) from error
        return answer.action, answer.content

    return elicit


def bad_cursor() -> MCPError:
    """Return the error for an unknown cursor."""
    return MCPError(types.INVALID_PARAMS, "this cursor is no longer valid: list again from the beginning")


def bad_state() -> MCPError:
    """Return the error for an answer without an open question of this caller."""
    hint = "call again without requestState; the question will be asked again"
    data: Wire = {"code": "denied", "message": "the question is not open, or was about something else", "hint": hint}
    return MCPError(types.INVALID_PARAMS, "Invalid or expired requestState", data)


def agent_name(ctx: Context) -> str:
    """Return how the agent names itself; an empty string if it does not."""
    return named(ctx.session.client_params.client_info.name) if ctx.session.client_params is not None else ""


def named(name: str) -> str:
    """Return an agent's name as it is recorded."""
    return for_people(" ".join(name.split()), LONGEST_NAME)


def _connection(ctx: Context) -> Connection:
    return ctx.session._connection  # noqa: SLF001 - the SDK has no public way to what lasts as long as a connection


@contextmanager
def _as_errors(not_found: int) -> Iterator[None]:
    """Raise the protocol's errors instead of ours."""
    try:
        yield
    except BadState:
        raise bad_state() from None
    except Failed as failed:
        codes = {"not_found": not_found, "invalid_arguments": types.INVALID_PARAMS}
        code = codes.get(failed.failure.code, types.INTERNAL_ERROR)
        raise MCPError(code, failed.failure.message, failure_data(failed.failure)) from None


def _level(note: Note | LogMessage) -> types.LoggingLevel:
    if isinstance(note, Note):
        return LEVELS.get(note.level, "info")
    return next((level for level in SEVERITIES if level == note.level), "info")


def _log(note: Note | LogMessage, level: types.LoggingLevel) -> types.LoggingMessageNotification:
    """Return a message for agents; its logger begins with the plugin's name, so that none passes for another."""
    logger, data = (note.plugin, note.message) if isinstance(note, Note) else (note.plugin, note.data)
    if isinstance(note, LogMessage) and note.logger:
        logger = f"{note.plugin}/{note.logger}"
    return types.LoggingMessageNotification(
        params=types.LoggingMessageNotificationParams(level=level, logger=logger, data=data)
    )


async def _notify(
    session: ServerSession, message: types.ServerNotification, request: types.RequestId | None = None
) -> None:
    with anyio.move_on_after(SEND_S):
        try:
            await session.send_notification(message, request)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it has just left
