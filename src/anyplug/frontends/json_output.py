"""JSON for programs: the shapes shared by all frontends. Pure."""

import time
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.catalog.snapshot import NAME_TAKEN, Entry, Snapshot
from anyplug.model import permissions
from anyplug.model.result_shape import result_shape
from anyplug.model.types import Endpoint, Plugin, Problem, Result, Tool

if TYPE_CHECKING:  # some need an event loop, all slow down the start, and reading plugins needs none of them
    from anyplug.audit.audit_log import Numbered
    from anyplug.call.chains import ChainOutcome
    from anyplug.call.job_store import Job
    from anyplug.call.slash_commands import CommandOutcome
    from anyplug.catalog.approvals import Approval
    from anyplug.launch.assessment import Protection
    from anyplug.model.types import Note
    from anyplug.peers.slot import Slot

HEALTHS = ("running", "idle", "restarting", "given_up")  # from best to worst


def warnings_of(result: Result) -> list[str]:
    """Return a call's warnings for a person; a plugin's own metadata may have another type there."""
    said = result.metadata.get("warnings")
    return [str(warning) for warning in said] if isinstance(said, list) else []


def chain_shape(outcome: "ChainOutcome") -> dict[str, Any]:
    """Return how a chain ended."""
    return {
        "success": outcome.success,
        "failed_at": outcome.failed_at,
        "error": outcome.error,
        "steps": [result_shape(result) for result in outcome.steps],
    }


def problem_shape(problem: Problem) -> dict[str, Any]:
    """Return a problem."""
    return {"code": problem.code, "message": problem.message, "hint": problem.hint, "level": problem.level}


def entry_shape(entry: Entry, health: str = "idle") -> dict[str, Any]:
    """Return a plugin as `list` shows it; `health` is for long-running plugins."""
    plugin = entry.plugin
    return {
        "name": plugin.name,
        "format": plugin.format,
        "version": plugin.version,
        "description": plugin.description,
        "path": plugin.path,
        "state": entry.state,
        "health": health,
        "tier": plugin.tier,
        "tools": [tool.name for tool in entry.tools],
        "commands": [command.name for command in entry.commands],
        "shadowed_by": entry.shadowed_by or None,
        "problems": [problem_shape(problem) for problem in entry.problems],
    }


def tool_shape(tool: Tool, entry: Entry, snapshot: Snapshot) -> dict[str, Any]:
    """Return a tool as `tools` shows it."""
    from anyplug.catalog.tool_descriptions import object_schema  # only listing tools needs it

    return {
        "name": tool.name,
        "model_name": snapshot.model_names.get(tool.name, ""),  # none if another tool has the name
        "plugin": tool.plugin,
        "format": entry.format,
        "description": tool.description,
        "input_schema": object_schema(tool.input_schema),  # as agents see it
        "tier": entry.plugin.tier,
    }


def config_shape(plugin: Plugin, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a plugin's configuration; for secrets, only whether they are set."""
    return [
        {
            "name": key.name,
            "description": key.description,
            "required": key.required,
            "secret": key.secret,
            "set": values.get(key.name) not in (None, ""),
            "value": None if key.secret else values.get(key.name),
        }
        for key in plugin.config
    ]


def process_shape(places: "list[Slot]") -> dict[str, Any]:
    """Return the health of a long-running plugin: of its worst process, and of each."""
    shapes = [_place_shape(place) for place in places]
    if len(shapes) == 1:
        return shapes[0]
    worst = max(shapes, key=lambda shape: HEALTHS.index(shape["health"]))
    return {**worst, "processes": {place.process: shape for place, shape in zip(places, shapes, strict=True)}}


def _place_shape(place: "Slot") -> dict[str, Any]:
    """Return the status of one process; if it is down, with the end of its last run's output."""
    session = place.session
    is_up = session is not None and place.peer is not None
    return {
        "health": place.health,
        "reason": place.reason,
        "pid": session.pid if session and is_up else None,
        "uptime_s": round(time.monotonic() - session.started, 3) if session and is_up else None,
        "restarts": place.restarts,
        "frames": dict(session.counts.frames) if session else {},
        "malformed": session.counts.malformed + session.counts.too_long if session else 0,
        "stderr_tail": session.stderr_end if session else "",
        "events": list(place.offer.events) if place.offer else [],
        "intercepts": list(place.offer.intercepts) if place.offer else [],
    }


def server_shape(endpoint: Endpoint) -> dict[str, Any]:
    """Return how an MCP server is reached, without secrets; for headers only the names."""
    from anyplug.secrets import env_vars  # its patterns take milliseconds to compile

    return {
        "name": endpoint.name,
        "command": env_vars.masked_words([endpoint.command, *endpoint.arguments]) if endpoint.command else None,
        "cwd": endpoint.cwd or None,
        "environment": env_vars.masked_variables(endpoint.environment),
        "url": env_vars.masked_url(endpoint.url) if endpoint.url else None,
        "headers": sorted(endpoint.headers),
    }


def registration_shapes(entry: Entry) -> list[dict[str, Any]]:
    """Return what a plugin registered, each with the owner of its name if that is another plugin."""
    shadowed = {problem.message for problem in entry.problems if problem.code == NAME_TAKEN}

    def shape(kind: str, name: str, active: bool) -> dict[str, Any]:
        why = "" if active else next((text for text in shadowed if f"'{name}'" in text or f"'/{name}'" in text), "")
        return {"kind": kind, "name": name, "active": active, "shadowed": why or None}

    return [shape("tool", tool.name, tool in entry.tools) for tool in entry.plugin.tools] + [
        shape("command", command.name, command in entry.commands) for command in entry.plugin.commands
    ]


def command_shape(outcome: "CommandOutcome", notes: "list[Note]") -> dict[str, Any]:
    """Return the outcome of a slash command."""
    return {
        "command": outcome.command,
        "plugin": outcome.plugin,
        "action": outcome.action,
        "prompt": outcome.prompt,
        "insert": outcome.insert,
        "display": outcome.display,
        "panel": msgspec.to_builtins(outcome.panel),
        "error": msgspec.to_builtins(outcome.error),
        "notes": [msgspec.to_builtins(note) for note in notes],
    }


def confinement_shape(held_by: "Protection | None") -> dict[str, Any] | None:
    """Return how a plugin is confined; None if it cannot run."""
    return None if held_by is None else msgspec.to_builtins(held_by)


def approval_shape(approval: "Approval | None") -> dict[str, bool] | None:
    """Return how a plugin was approved; None if it was not."""
    if approval is None or not approval.approved:
        return None
    return {
        "always": approval.always,
        "follow": approval.follow,
        "unconfined": approval.unconfined,
        "inherits_environment": approval.inherits_environment,
    }


def show_shape(
    entry: Entry,
    values: dict[str, Any],
    variables: dict[str, str],
    digest: str,
    process: dict[str, Any] | None = None,
    held_by: "Protection | None" = None,
    approval: "Approval | None" = None,
    cold: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return everything about one plugin. `cold` tells why each program is started with each call, if it is."""
    plugin = entry.plugin
    from anyplug.secrets import env_vars  # its patterns take milliseconds to compile, and only `show` needs them

    names = permissions.environment_names(entry.standing.granted)
    return {
        **entry_shape(entry),
        **({"health": process["health"]} if process else {}),
        "found_at": plugin.found_at,
        "changes": list(entry.standing.changes),
        "permissions": {"asked": list(plugin.permissions), "granted": list(entry.standing.granted)},
        "approval": approval_shape(approval),
        "confinement": confinement_shape(held_by),
        "config": config_shape(plugin, values),
        "instructions": plugin.instructions,
        "environment_withheld": env_vars.divide(
            variables, names, inherits=entry.standing.inherits_environment
        ).withheld,
        "digest": digest,
        "process": process,
        "programs": [
            {"program": name, "started": "with each call" if why else "ahead of calls", "reason": why or None}
            for name, why in (cold or {}).items()
        ],
        "registrations": registration_shapes(entry) if plugin.stays_up else [],
        **({"servers": [server_shape(endpoint) for endpoint in plugin.endpoints]} if plugin.endpoints else {}),
    }


def job_shape(job: "Job") -> dict[str, Any]:
    """Return a job."""
    return {
        "id": job.id,
        "tool": job.tool,
        "state": job.state,
        "started": job.started,
        "progress": job.progress or None,
        "result": job.result,
    }


def audit_shape(item: "Numbered") -> dict[str, Any]:
    """Return an audit record."""
    return {"number": item.number, **msgspec.to_builtins(item.record)}
