"""Audit records as the API shows them, each with its path through the gates. Pure."""

from typing import Any

import msgspec

from anyplug.audit.audit_log import Record
from anyplug.audit.record_search import caller


class Gate(msgspec.Struct, frozen=True):
    """What one gate said about a call."""

    by: str
    allowed: bool
    reason: str = ""


def gates(record: Record) -> list[Gate]:
    """Return the path of a call through the gates: those that changed or annotated it, and the one that decided."""
    found = [Gate(by, True, note) for by, note in zip(record.notes_by, record.notes, strict=False)]
    if record.verdict:
        found.append(Gate(record.by, record.verdict in {"allowed", "modified"}, record.reason))
    elif record.outcome and record.outcome != "done":
        found.append(Gate(record.by or "host", False, record.outcome))
    return found


def record_shape(record: Record, number: int | None) -> dict[str, Any]:
    """Return a record."""
    shape: dict[str, Any] = msgspec.to_builtins(record)
    return {"number": number, **shape, "caller": caller(record), "gates": msgspec.to_builtins(gates(record))}


def started_shape(record: Record) -> dict[str, Any]:
    """Return a call that begins to run."""
    return {
        "call": record.call,
        "tool": record.tool,
        "plugin": record.plugin,
        "attachment": record.attachment,
        "agent": record.agent,
        "callers": list(record.callers),
        "at": record.at,
        "arguments": record.arguments,
        "state": "running",
    }


def ended_shape(record: Record) -> dict[str, Any]:
    """Return a call that has ended."""
    return {
        "call": record.call,
        "tool": record.tool,
        "plugin": record.plugin,
        "outcome": record.outcome,
        "verdict": record.verdict,
        "by": record.by,
        "reason": record.reason,
        "duration_ms": record.duration_ms,
        "attachment": record.attachment,
        "agent": record.agent,
        "callers": list(record.callers),
        "at": record.at,
        "gates": msgspec.to_builtins(gates(record)),
        "held_by": msgspec.to_builtins(record.held_by),
    }
