"""`/plugins`: list plugins, and show everything about one."""

import contextlib
import os
import shlex
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from anyplug.catalog import seen_permissions
from anyplug.catalog.seen_permissions import Seen
from anyplug.catalog.snapshot import Entry
from anyplug.frontends import json_output
from anyplug.frontends.console import api_plugin_types as types
from anyplug.frontends.console import approval_texts
from anyplug.frontends.console.api_events import BEAT_S
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.console_app import Stream
from anyplug.frontends.console.endpoints import PAGING, Endpoint, Query
from anyplug.frontends.console.event_ring import encoded
from anyplug.frontends.console.plugin_shapes import entry_shape, find_plugin, plugin_id, tool_shape
from anyplug.home import plugin_config, plugin_logs
from anyplug.launch.assessment import Protection, assess
from anyplug.manage import plugin_approval
from anyplug.manage.installer import Installer
from anyplug.model import permissions
from anyplug.model.errors import ConfigError
from anyplug.model.types import Plugin

TRIES = 3  # at reading the files of a plugin
USUAL_LINES = 200
MOST_LINES = 5_000
POLL_S = 0.3  # between looks at a log
STEP = 256 << 10  # bytes read of a log at a time
LONGEST_LINE = 64 << 10  # bytes kept of a line that has no end yet


def entry_of(request: ApiRequest) -> Entry:
    """Return the plugin that the path names; raises PluginNotFound."""
    return find_plugin(request.host.snapshot, request.values["plugin"])


async def list_plugins(request: ApiRequest) -> dict[str, Any]:
    """Return plugins in their order of precedence."""
    state, kind, words = request.text("state"), request.text("format"), request.text("q").lower()
    found = [
        entry
        for entry in request.host.snapshot.entries
        if (not state or entry.state == state)
        and (not kind or entry.format == kind)
        and (not words or words in f"{entry.name} {entry.plugin.description}".lower())
    ]
    page = request.page(found)
    return {**page, "items": [entry_shape(entry, request.host) for entry in page["items"]]}


async def show_plugin(request: ApiRequest) -> dict[str, Any]:
    """Return everything about one plugin. Nothing of it is started for that."""
    entry, host = entry_of(request), request.host
    plugin, catalog, snapshot = entry.plugin, host.catalog, host.snapshot
    facts = await anyio.to_thread.run_sync(lambda: _facts(request, entry))
    approval = None if plugin.explicit else catalog.approvals.of(plugin)
    places = host.peers.of(plugin) if plugin.stays_up else []
    process = json_output.process_shape(places) if places else None
    shown = json_output.show_shape(
        entry, facts.values, host.variables, facts.digest, process, facts.protection, approval
    )
    granted = plugin_approval.default_grants(catalog.approvals, plugin)
    return {
        **shown,
        **entry_shape(entry, host),
        "permission_rows": permission_rows(entry, granted, facts.seen),
        "warning": permissions.warning(entry.standing.granted or plugin.permissions),
        "approval": _approval_shape(approval),
        "seen_in_use": {"at": facts.seen.at, "calls": facts.seen.calls} if facts.seen and facts.seen.calls else None,
        "config": config_keys(plugin, facts.values),
        "servers": shown.get("servers", []),
        "tool_list": [tool_shape(tool, entry, snapshot) for tool in entry.tools],
        "command_list": [
            {
                "name": command.name,
                "plugin": plugin.name,
                "plugin_id": plugin_id(plugin.path),
                "description": command.description,
            }
            for command in entry.commands
        ],
        "source": facts.source,
        "is_installed": facts.is_ours,
        "default_grants": list(granted),
        "approval_text": approval_texts.sentences(entry, granted),
        "init": plugin.init,
        "launch": shlex.join([plugin.launch.program, *plugin.launch.arguments]) if plugin.launch else "",
        "missing_config": plugin_config.missing(plugin, facts.values),
    }


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is read from the disk."""

    values: dict[str, Any]
    digest: str
    protection: Protection | None
    source: dict[str, Any] | None
    is_ours: bool
    seen: Seen | None


def _facts(request: ApiRequest, entry: Entry) -> _Facts:
    plugin, catalog = entry.plugin, request.host.catalog
    try:
        values = plugin_config.read(plugin) if plugin.config else {}
    except ConfigError:
        values = {}  # a call says what is wrong with it
    digest, protection = "", None
    if entry.state not in {"broken", "shadowed"}:
        digest = _digest(request, plugin)
        standing = entry.standing
        if entry.state in {"new", "denied"}:
            standing = msgspec.structs.replace(standing, granted=plugin.permissions)
        protection = assess(catalog, plugin, standing, project=request.host.project)
    installer = Installer(catalog)
    origin = installer.origin(plugin)
    source = None
    if origin is not None:
        source = {**msgspec.to_builtins(origin.source), "commit": origin.commit, "at": origin.at}
        source["location"] = origin.source.words[0]  # without a password
    return _Facts(
        values=values,
        digest=digest,
        protection=protection,
        source=source,
        is_ours=installer.is_ours(plugin),
        seen=seen_permissions.of(catalog.store, plugin.path, digest) if digest else None,
    )


def _digest(request: ApiRequest, plugin: Plugin) -> str:
    """Return the digest of a plugin's files; empty if they cannot be read, also when tried again: some just change."""
    for _ in range(TRIES):
        with contextlib.suppress(OSError):
            return request.host.catalog.digest(plugin).value
    return ""


def permission_rows(entry: Entry, defaults: tuple[str, ...], seen: Seen | None) -> list[dict[str, Any]]:
    """Return every permission that was asked for, granted, or seen in use."""
    asked, granted = entry.plugin.permissions, entry.standing.granted
    uses = seen.uses if seen is not None else {}
    is_watched = seen is not None and seen.calls > 0
    return [
        {
            "permission": name,
            "description": permissions.describe(name),
            "asked": name in asked,
            "granted": name in granted,
            "default": name in defaults,
            "seen": uses.get(name),
            "is_observed": is_watched and permissions.kind(name) in seen_permissions.OBSERVED,
            "is_risky": permissions.kind(name) not in permissions.HARMLESS,
            "really": permissions.really(name),
        }
        for name in dict.fromkeys((*asked, *granted, *uses))
    ]


def config_keys(plugin: Plugin, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the values that a plugin knows; for secrets, only whether they are set."""
    return [
        {
            **shape,
            "default": None if key.default is msgspec.UNSET or key.secret else key.default,
            "kind": key.kind,
            "tools": list(key.tools),
        }
        for key, shape in zip(plugin.config, json_output.config_shape(plugin, values), strict=True)
    ]


def _approval_shape(approval: Any) -> dict[str, Any] | None:
    shape = json_output.approval_shape(approval)
    return None if shape is None else {**shape, "decided": approval.decided, "since": approval.first}


async def show_log(request: ApiRequest) -> dict[str, Any]:
    """Return the end of a plugin's log."""
    path = request.host.catalog.home.log(entry_of(request).plugin)
    count = request.number("tail", USUAL_LINES, 0, MOST_LINES)
    return {"path": path, "lines": await anyio.to_thread.run_sync(plugin_logs.tail, path, count)}


async def follow_log(request: ApiRequest) -> Stream:
    """Return the lines that are added to a plugin's log from now on."""
    return Stream(_log_events(request.host.catalog.home.log(entry_of(request).plugin)))


async def _log_events(path: str) -> AsyncIterator[bytes]:
    """Yield events with new lines; a rotated log goes on with its successor."""
    begun, at = b"", _place(path)
    quiet_s = 0.0
    yield b"retry: 1000\n\nevent: hello\ndata: {}\n\n"
    while True:
        now = _place(path)
        if now[0] != at[0] or now[1] < at[1]:
            begun, at = b"", (now[0], 0)
        if now[1] > at[1]:
            added = await anyio.to_thread.run_sync(_read_from, path, at[1])
            at, quiet_s = (now[0], at[1] + len(added)), 0.0
            *lines, begun = (begun + added).split(b"\n")
            shown = [line.decode(errors="replace") for line in lines]
            if shown:
                yield b"event: log\ndata: " + encoded({"lines": shown}) + b"\n\n"
            begun = begun[-LONGEST_LINE:]
            continue
        await anyio.sleep(POLL_S)
        quiet_s += POLL_S
        if quiet_s >= BEAT_S:
            quiet_s = 0.0
            yield b": still here\n\n"


def _place(path: str) -> tuple[int, int]:
    """Return which file a log is, and its size."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_ino, found.st_size


def _read_from(path: str, start: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(STEP)
    except OSError:
        return b""


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/plugins",
        name="listPlugins",
        for_tokens=True,
        about="List plugins and their states",
        handle=list_plugins,
        answer=types.Plugins,
        queries=(
            Query("state", "only plugins in this state"),
            Query("format", "only plugins of this format"),
            Query("q", "only plugins with this text in their name or description"),
            *PAGING,
        ),
    ),
    Endpoint(
        method="GET",
        path="/plugins/{plugin}",
        name="showPlugin",
        for_tokens=True,
        about="Show everything about a plugin",
        handle=show_plugin,
        answer=types.PluginDetail,
    ),
    Endpoint(
        method="GET",
        path="/plugins/{plugin}/logs",
        name="showLog",
        about="Show the end of a plugin's log",
        handle=show_log,
        answer=types.Log,
        queries=(Query("tail", "how many lines (at most 5000)", "integer"),),
    ),
    Endpoint(
        method="GET",
        path="/plugins/{plugin}/logs/follow",
        name="followLog",
        about="Follow what is added to a plugin's log",
        handle=follow_log,
        kind="events",
    ),
]
