"""Convert a decision for the agent that asked: one JSON value, and an exit code.

OpenCode's plugin knows allow, deny, block and ask; Claude Code has a form for each of its events. Codex has the same
forms, but ignores a hook that asks the person, or that allows without changing something, and runs the tool.
"""

from typing import Any, Final

from anyplug.policy.decisions import Decision

DONE, FAILED, BLOCKED = 0, 1, 2  # Claude Code takes only 2 as a refusal
NO_REASON: Final = "Operation blocked by policy"
CANNOT_ASK: Final = "a policy requires the user's consent, and Codex cannot ask for it: the user can run it themselves"
LISTENING: Final = frozenset({"UserPromptSubmit", "SessionStart", "PreToolUse", "PostToolUse"})  # accept context


def answer(harness: str, event: str, decision: Decision) -> dict[str, Any]:
    """Return what to print or send."""
    if harness == "codex":
        return _codex(event, decision)
    return _claude(event, decision) if harness == "claude" else _opencode(event, decision)


def exit_code(decision: Decision, *, strict: bool = False) -> int:
    """Return the exit code: 0 for every decision, unless `strict` asks to show a refusal."""
    return FAILED if strict and decision.refuses else DONE


def failure_code(harness: str) -> int:
    """Return the exit code that tells an agent that there is no decision, so that it stops."""
    return BLOCKED if harness in {"claude", "codex"} else FAILED


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


def _codex(event: str, decision: Decision) -> dict[str, Any]:
    if decision.verb == "ask" and event == "PreToolUse":
        reason = f"{decision.reason or NO_REASON} ({CANNOT_ASK})"
        return _specific(event, permissionDecision="deny", permissionDecisionReason=reason)
    if decision.verb == "modify" and event == "PermissionRequest":
        return {}  # it was changed before, by PreToolUse
    return _claude(event, decision)


def _specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}
