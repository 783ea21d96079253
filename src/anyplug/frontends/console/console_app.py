"""The API as an ASGI application: find the endpoint, check who may use it, enter the project, answer."""

from collections.abc import AsyncIterator, Awaitable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import anyio
import msgspec

from anyplug.frontends.console import page_headers
from anyplug.frontends.console.api_errors import Busy, NothingHere, NotThePage, OnlyPeople, error_shape, status_of
from anyplug.frontends.console.api_request import ApiRequest, Server
from anyplug.frontends.console.endpoints import ROOT, Endpoint, Table
from anyplug.frontends.console.event_ring import encoded
from anyplug.frontends.console.live_project import LiveProject
from anyplug.frontends.http.asgi import Receive, Scope, Send
from anyplug.frontends.http.middleware import SESSION
from anyplug.frontends.http.refusals import Headers, json_headers
from anyplug.host.host import Host
from anyplug.model.errors import AnyplugError, UsageError

ENDLESS: Final = ("/events", "/follow")  # how paths end whose answers stay open
NO_CONTENT: Final = 204
EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is not simply JSON."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Stream(msgspec.Struct, frozen=True):
    """An answer that stays open: server-sent events, as bytes."""

    parts: AsyncIterator[bytes]


class Grounds(Protocol):
    """The process that serves the API."""

    @property
    def server(self) -> Server:
        """What handlers may know of it."""
        ...

    @property
    def place(self) -> Hashable:
        """The project of callers that name none."""
        ...

    def inside(self, place: Hashable) -> AbstractAsyncContextManager[Host]:
        """Keep the host of a project open inside the block."""
        ...


class ConsoleApp:
    """Serves everything below ROOT."""

    def __init__(self, grounds: Grounds, table: Table) -> None:
        self._grounds = grounds
        self._table = table
        self._projects: dict[Hashable, LiveProject] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path, method = scope["path"].removeprefix(ROOT), scope["method"]
        found = self._table.find("GET" if method == "HEAD" else method, path)
        if isinstance(found, frozenset):
            return await _send_error(send, *_not_there(path, found))
        endpoint, values = found
        try:
            answer = await self._answer(endpoint, values, scope, receive, send)
        except AnyplugError as error:
            return await _send_error(send, error)
        if answer is not None:
            await _send(send, answer)
        return None

    async def _answer(
        self, endpoint: Endpoint, values: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> Answer | None:
        session = scope.get(SESSION)
        if endpoint.is_for_people and session is None:
            raise OnlyPeople
        if session is not None and endpoint.is_for_page and not session.is_of_page(dict(scope["headers"])):
            raise NotThePage
        message = await receive()
        place = session.place if session is not None else self._grounds.place
        request = ApiRequest(
            self._grounds.server,
            values,
            scope["query_string"],
            dict(scope["headers"]),
            message.get("body", b""),
            session,
            place,
        )
        _check_body(endpoint, request)
        if not endpoint.needs_host:
            return _answered(endpoint, await endpoint.handle(request))
        async with self._grounds.inside(place) as host:
            request.enter(self._project(place, host))
            if endpoint.runs_tools and session is None:
                given = await _while_connected(endpoint.handle(request), receive)
            else:  # a person may leave the page, and come back to what they began
                given = await endpoint.handle(request)
            if isinstance(given, Stream):
                await _stream(given, receive, send)
                return None
            return _answered(endpoint, given)

    def _project(self, place: Hashable, host: Host) -> LiveProject:
        live = self._projects.get(place)
        if live is None or live.host is not host:
            if live is not None:
                live.close()
            live = self._projects[place] = LiveProject(host)
        return live


def stays_open(path: str) -> bool:
    """Return whether the answer at a path is a stream."""
    return path.endswith(ENDLESS)


def _check_body(endpoint: Endpoint, request: ApiRequest) -> None:
    if not request.body or request.content_type in {"application/json", endpoint.upload} - {""}:
        return
    raise UsageError("the request's body must be JSON", "send `content-type: application/json`")


def _answered(endpoint: Endpoint, given: Any) -> Answer:
    if isinstance(given, Answer):
        return given
    if endpoint.kind == "nothing":
        return Answer(status=NO_CONTENT)
    body = encoded(given)
    return Answer(status=endpoint.status, body=body, headers=tuple(json_headers(body)))


def _not_there(path: str, methods: frozenset[str]) -> tuple[AnyplugError, int, Headers]:
    if methods:
        allowed = ", ".join(sorted(methods))
        error: AnyplugError = UsageError(f"this path only takes {allowed}", "`/api/v1/openapi.json` lists all paths")
        return error, 405, [(b"allow", allowed.encode())]
    return NothingHere(f"there is nothing at {ROOT}{path}", "`/api/v1/openapi.json` lists all paths"), 404, []


async def _while_connected(work: Awaitable[Any], receive: Receive) -> Any:
    """Do something for a program, and cancel it when the program hangs up."""
    given: Any = None
    async with anyio.create_task_group() as tasks:

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(leave)
        try:
            given = await work
        except AnyplugError as error:  # raised here, it would come out in a group
            given = error
        tasks.cancel_scope.cancel()
    if isinstance(given, AnyplugError):
        raise given
    return given


async def _send_error(send: Send, error: AnyplugError, status: int = 0, more: Headers | None = None) -> None:
    body = encoded(error_shape(error))
    headers = (*json_headers(body), *(more or ()))
    if isinstance(error, Busy):
        headers += ((b"retry-after", b"%d" % error.wait_s),)
    await _send(send, Answer(status=status or status_of(error), body=body, headers=headers))


async def _send(send: Send, answer: Answer) -> None:
    headers = [*answer.headers, *page_headers.DATA]
    if not answer.headers and answer.status != NO_CONTENT:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _stream(stream: Stream, receive: Receive, send: Send) -> None:
    """Send a stream until the client leaves."""
    headers = [(b"content-type", EVENT_STREAM), (b"cache-control", b"no-store"), *page_headers.DATA]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async with anyio.create_task_group() as tasks:

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(leave)
        async for part in stream.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        tasks.cancel_scope.cancel()
