"""`/status`, `/health` and `/logout`: the daemon as a whole, and the end of a browser's session."""

import time
from typing import Any

from anyplug import __version__
from anyplug.frontends.console import api_types as types
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.console_app import Answer
from anyplug.frontends.console.endpoints import Endpoint

WAITING = frozenset({"new", "changed"})


async def show_status(request: ApiRequest) -> dict[str, Any]:
    """Return the status."""
    host, server = request.host, request.server
    entries = host.snapshot.entries
    return {
        "up": True,
        "api": "v1",
        "version": __version__,
        "home": server.home.path,
        "project": host.project,
        "pid": server.pid,
        "started": server.started,
        "uptime_s": round(time.time() - server.started, 1),
        "url": server.url,
        "is_console": request.is_console,
        "fleet": host.fleet is not None,
        "plugins": len(entries),
        "approved": sum(entry.state == "approved" for entry in entries),
        "waiting": sum(entry.state in WAITING for entry in entries),
        "tools": len(host.tools),
        "running": len(request.live.calls),
        "calls": host.tally.calls,
        "errors": host.tally.errors,
        "questions": len(host.questions.all),
        "policies": host.has_policies,
        "settings_fault": host.catalog.settings_fault,
    }


async def show_health(request: ApiRequest) -> dict[str, bool]:
    """Return that the server answers."""
    return {"ok": True}


async def log_out(request: ApiRequest) -> Answer:
    """End the browser's session."""
    assert request.session is not None
    cookie = request.server.sessions.close(request.session)
    return Answer(status=204, headers=((b"set-cookie", cookie.encode()),))


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/status",
        name="showStatus",
        for_tokens=True,
        about="Show the daemon's status",
        handle=show_status,
        answer=types.Status,
    ),
    Endpoint(
        method="GET",
        path="/health",
        name="showHealth",
        about="Check that the server answers",
        handle=show_health,
        answer=types.Health,
        is_open=True,
        needs_host=False,
    ),
    Endpoint(
        method="POST",
        path="/logout",
        name="logOut",
        about="End the browser's session",
        handle=log_out,
        kind="nothing",
        status=204,
        needs_host=False,
    ),
]
