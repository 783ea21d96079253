"""`/plugins/PLUGIN/…`: a person's decisions about a plugin. No token can make them."""

from typing import Any

import anyio.to_thread
import msgspec

from anyplug.catalog.snapshot import Entry
from anyplug.formats import registry
from anyplug.frontends.console import api_plugin_types as types
from anyplug.frontends.console.api_errors import Conflict
from anyplug.frontends.console.api_plugins import entry_of
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.endpoints import Endpoint
from anyplug.frontends.console.plugin_shapes import entry_shape
from anyplug.manage import plugin_approval
from anyplug.manage.plugin_changes import Changes, changes_of
from anyplug.model import hints
from anyplug.model.errors import ManifestError, NotApproved, PluginNotFound, UsageError


class ApproveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An approval. `digest` is that of the plugin as the person saw it."""

    digest: str
    granted: list[str] | None = None
    always: bool = False
    follow: bool = False
    unconfined: bool = False
    inherit_environment: bool = False


class GrantsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All permissions that a plugin shall have from now on."""

    granted: list[str]


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


def _kept(request: ApiRequest, what: str) -> Entry:
    """Return the plugin to decide about; no decision applies to one that was named for a run."""
    entry = entry_of(request)
    if entry.plugin.explicit:
        raise UsageError(f"'{entry.name}' is in use for this run only, so it cannot be {what}", "install it first")
    return entry


def _now(request: ApiRequest, entry: Entry) -> dict[str, Any]:
    """Return a plugin as it is after a decision."""
    try:
        entry = request.host.snapshot.plugin(entry.path)
    except PluginNotFound:
        pass
    return entry_shape(entry, request.host)


async def approve(request: ApiRequest) -> dict[str, Any]:
    """Approve a plugin as the person saw it."""
    body, host, entry = request.read(ApproveBody), request.host, _kept(request, "approved")
    plugin, approvals = entry.plugin, request.host.catalog.approvals
    if entry.state in {"broken", "shadowed"}:
        raise plugin_approval.unusable(entry)
    if body.inherit_environment and not registry.BY_NAME[plugin.format].INHERITS_ENVIRONMENT:
        raise UsageError(
            f"'{plugin.name}' cannot inherit your environment: {registry.title(plugin.format)} plugins never do",
            f"grant it one variable: {hints.command('grant', plugin.name, 'env:VARIABLE')}",
        )
    before = approvals.of(plugin)
    granted = plugin_approval.wanted_grants(approvals, plugin, body.granted, host.snapshot)
    if not body.digest:
        raise Conflict(
            f"the files of '{entry.name}' could not be read when you looked at it, so it was not approved",
            "look at it again",
        )
    if (await anyio.to_thread.run_sync(host.catalog.digest, plugin)).value != body.digest:
        raise _other(entry)
    try:
        said = await host.approve(
            plugin,
            granted=granted,
            always=body.always,
            follow=body.follow,
            unconfined=body.unconfined,
            inherits_environment=body.inherit_environment,
            seen=body.digest,
        )
    except NotApproved as error:
        raise _other(entry, *error.metadata.get("changes", ())) from error
    ended = plugin_approval.ended(plugin, before, approvals.of(plugin))
    return {"plugin": _now(request, entry), "said": said, "ended": [what for what, _ in ended]}


def _other(entry: Entry, *changes: str) -> Conflict:
    how = f" ({'; '.join(changes)})" if changes else ""
    return Conflict(f"'{entry.name}' changed since you looked at it{how}, so it was not approved", "look at it again")


async def deny(request: ApiRequest) -> dict[str, Any]:
    """Deny a plugin."""
    entry = _kept(request, "denied")
    request.host.catalog.approvals.deny(entry.plugin)
    return await _decided(request, entry)


async def revoke(request: ApiRequest) -> dict[str, Any]:
    """Delete the decision about a plugin."""
    entry = _kept(request, "revoked")
    had = request.host.catalog.approvals.revoke(entry.plugin)
    return await _decided(request, entry, "" if had else "; there was no decision to withdraw")


async def enable(request: ApiRequest) -> dict[str, Any]:
    """Turn a plugin on."""
    entry, catalog = _kept(request, "turned on or off"), request.host.catalog
    catalog.approvals.enable(entry.plugin, on=True)
    standing = catalog.standing(entry.plugin)
    if standing.state == "disabled" and not entry.plugin.is_broken:
        raise ManifestError(f"'{entry.name}' cannot be enabled here: its own files turn it off", standing.reason)
    return await _decided(request, entry)


async def disable(request: ApiRequest) -> dict[str, Any]:
    """Turn a plugin off."""
    entry = _kept(request, "turned on or off")
    request.host.catalog.approvals.enable(entry.plugin, on=False)
    return await _decided(request, entry)


async def _decided(request: ApiRequest, entry: Entry, more: str = "") -> dict[str, Any]:
    await request.host.look_again()
    shape = _now(request, entry)
    catalog = request.host.catalog
    hint = ""
    if catalog.settings.of(entry.name).guard == "required" and shape["state"] != "approved":
        hint = f"every call is refused now, because {entry.name} is a required guard in {catalog.home.settings}"
    return {"plugin": shape, "message": f"{entry.name} is {shape['state']}{more}", "hint": hint}


async def put_grants(request: ApiRequest) -> dict[str, Any]:
    """Replace what a plugin is granted."""
    body, entry, approvals = request.read(GrantsBody), _kept(request, "granted more"), request.host.catalog.approvals
    approval = approvals.of(entry.plugin)
    if approval is None or not approval.approved:
        raise NotApproved(entry.name, entry.state)
    snapshot = request.host.snapshot
    asked = [name for name in body.granted if name not in approval.granted]
    new = plugin_approval.found(plugin_approval.checked(asked), snapshot)  # what it has may be unknown
    granted = tuple(dict.fromkeys((*(name for name in approval.granted if name in body.granted), *new)))
    added = tuple(name for name in granted if name not in approval.granted)
    approvals.regrant(entry.plugin, approval, granted, snapshot.callees(added))
    await request.host.look_again()
    notes = [text for _, text in plugin_approval.meanings(added)]
    return {"plugin": _now(request, entry), "granted": list(granted), "notes": notes}


async def show_changes(request: ApiRequest) -> Any:
    """Return what changed since the last approval: permissions, tools and files."""
    entry, host = entry_of(request), request.host
    return await anyio.to_thread.run_sync(lambda: changes_of(host.catalog, entry))


async def reload_plugin(request: ApiRequest) -> dict[str, Any]:
    """Read a plugin again, and restart it."""
    entry, host = entry_of(request), request.host
    before = host.snapshot
    now = await host.reload(entry.path)
    message = "\n".join([now.compared_to(before), *now.faults])
    return {"plugin": _now(request, entry), "message": message, "hint": ""}


async def reload_all(request: ApiRequest) -> dict[str, Any]:
    """Read everything again; say what changed."""
    host = request.host
    before = host.snapshot
    await host.look_again()
    now = host.snapshot
    return {
        "message": "\n".join([now.compared_to(before), *now.faults]),
        "plugins": len(now.entries),
        "tools": len(now.callable_tools),
    }


def _decision(name: str, about: str, handle: Any, method: str = "POST", body: Any = NoBody, **more: Any) -> Endpoint:
    path = f"/plugins/{{plugin}}/{name}"
    answer = more.pop("answer", types.Decided)
    operation = more.pop("operation", f"{name}Plugin")
    return Endpoint(
        method=method,
        path=path,
        name=operation,
        about=about,
        handle=handle,
        body=body,
        answer=answer,
        **more,
    )


ENDPOINTS = [
    _decision("approve", "Approve a plugin as the person saw it", approve, body=ApproveBody, answer=types.Approved),
    _decision("deny", "Deny a plugin", deny),
    _decision("revoke", "Withdraw an approval or a denial", revoke),
    _decision("enable", "Turn a plugin on", enable),
    _decision("disable", "Turn a plugin off", disable),
    _decision(
        "grants",
        "Replace what a plugin is granted",
        put_grants,
        method="PUT",
        body=GrantsBody,
        answer=types.Granted,
        operation="putGrants",
    ),
    Endpoint(
        method="GET",
        path="/plugins/{plugin}/changes",
        name="showChanges",
        about="Show what changed since the last approval",
        handle=show_changes,
        answer=Changes,
    ),
    Endpoint(
        method="POST",
        path="/plugins/{plugin}/reload",
        name="reloadPlugin",
        for_tokens=True,
        about="Read a plugin again, and restart it",
        handle=reload_plugin,
        body=NoBody,
        answer=types.Decided,
    ),
    Endpoint(
        method="POST",
        path="/reload",
        name="reload",
        for_tokens=True,
        about="Read everything again, and say what changed",
        handle=reload_all,
        body=NoBody,
        answer=types.Reloaded,
    ),
]
