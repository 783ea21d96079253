"""Convert a decision for the agent that asked: one JSON value, and an exit code.

OpenCode's plugin knows allow, deny, block and ask; Claude Code has a form for each of its events.
"""

from typing import Any, Final

from anyplug.policy.decisions import Decision

DONE, FAILED, BLOCKED = 0, 1, 2  # Claude Code takes only 2 as a refusal
NO_REASON: Final = "Operation blocked by policy"
LISTENING: Final = frozenset({"UserPromptSubmit", "SessionStart", "PreToolUse", "PostToolUse"})  # accept context


def answer(harness: str, event: str, decision: Decision) -> dict[str, Any]:
    """Return what to print or send."""
    return _claude(event, decision) if harness == "claude" else _opencode(event, decision)


def exit_code(decision: Decision, *, strict: bool = False) -> int:
    """Return the exit code: 0 for every decision, unless `strict` asks to show a refusal."""
    return FAILED if strict and decision.refuses else DONE


def failure_code(harness: str) -> int:
    """Return the exit code that tells an agent that there is no decision, so that it stops."""
    return BLOCKED if harness == "claude" else FAILED


def _opencode(event: str, decision: Decision) -> dict[str, Any]:
    if decision.verb in {"halt", "block"}:
        return {"decision": "block", "reason": decision.reason or NO_REASON}
    if decision.verb in {"deny", "ask"}:
        return {"decision": decision.verb, "reason": decision.reason or NO_REASON}
    if decision.verb == "modify":
        return {
            "context": [decision.reason, *decision.context],
            "decision": "allow",
            "updated_input": decision.updated_input or {},
        }
    if decision.context:
        return {"context": list(decision.context), "decision": "allow"}
    return {"decision": "allow"}


def _claude(event: str, decision: Decision) -> dict[str, Any]:
    reason = decision.reason or NO_REASON
    if decision.verb == "allow":
        if decision.context and event in LISTENING:
            return _specific(event, additionalContext="\n".join(decision.context))
        return {}
    if event == "PreToolUse":
        if decision.verb == "modify":
            return _specific(
                event,
                permissionDecision="allow",
                permissionDecisionReason=reason,
                updatedInput=decision.updated_input or {},
            )
        kind = "ask" if decision.verb == "ask" else "deny"
        return _specific(event, permissionDecision=kind, permissionDecisionReason=reason)
    if event == "PermissionRequest":
        if decision.verb == "ask":
            return {}  # no statement: Claude Code asks the person
        if decision.verb == "modify":
            return _specific(event, decision={"behavior": "allow", "updatedInput": decision.updated_input or {}})
        return _specific(event, decision={"behavior": "deny", "message": reason})
    if decision.verb == "modify":
        return {}
    if event in {"SessionStart", "SessionEnd", "Notification", "PreCompact"}:
        return {"continue": False, "stopReason": reason}
    return {"decision": "block", "reason": reason}


def _specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}
