"""Everything that the console serves, by path, and the table of the API's endpoints."""

from collections.abc import Mapping

import msgspec

from anyplug.frontends.console import (
    api_calls,
    api_commands,
    api_conversations,
    api_events,
    api_fleet,
    api_installs,
    api_plugins,
    api_policies,
    api_questions,
    api_records,
    api_status,
    api_tools,
    api_trust,
    downloads,
    metrics,
    openapi,
)
from anyplug.frontends.console.console_app import ConsoleApp, Grounds, stays_open
from anyplug.frontends.console.endpoints import ROOT, Table
from anyplug.frontends.console.static_files import StaticFiles
from anyplug.frontends.http import refusals
from anyplug.frontends.http.asgi import App, Receive, Scope, Send
from anyplug.frontends.http.middleware import Route
from anyplug.frontends.http.response import Reply

LARGEST_UPLOAD = 32 << 20  # bytes of a zip; plugins have some kilobytes, a few with modules have megabytes

MODULES = (
    api_status,
    api_plugins,
    api_trust,
    api_installs,
    api_tools,
    api_calls,
    api_records,
    api_questions,
    api_policies,
    api_commands,
    api_conversations,
    api_events,
    api_fleet,
    downloads,
    metrics,
)


def table() -> Table:
    """Return all endpoints."""
    endpoints = [endpoint for module in MODULES for endpoint in module.ENDPOINTS]
    return Table([*endpoints, openapi.endpoint_of(table)])


def routes(grounds: Grounds) -> Mapping[str, Route]:
    """Return what is served at each path."""
    endpoints, sessions = table(), grounds.server.sessions
    api = ConsoleApp(grounds, endpoints)
    shared = Route(api, session_of=sessions.of, streams=stays_open)
    open_paths = {f"{ROOT}{one.path}": Route(api, is_open=True) for one in endpoints.all if one.is_open}
    return {
        ROOT: shared,
        f"{ROOT}/installs": msgspec.structs.replace(shared, max_bytes=LARGEST_UPLOAD),
        **open_paths,
        "/metrics": msgspec.structs.replace(shared, app=_at(api, f"{ROOT}/metrics")),
        "/readyz": Route(_ready, is_open=True),
        "/": Route(StaticFiles(sessions), is_open=True),
    }


def _at(app: App, path: str) -> App:
    """Serve a path under another name."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "path": path}, receive, send)

    return serve


async def _ready(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer that calls can be served: the server listens only while its host is open."""
    body = b'{"ready":true,"reason":""}'
    await Reply(send).whole(200, refusals.json_headers(body), body)
