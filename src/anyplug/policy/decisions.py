"""Combine the output of policies to one decision: verbs, severities, priorities, and the reason.

Each verb is a set of a policy. `halt`, `deny`, `block` and `ask` hold objects with `reason`, `severity` and `rule_id`;
`modify` also `updated_input`; `add_context` holds texts. An incomplete object still counts, and tells what it lacks: a
policy that meant to refuse must not allow because of a typo.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

Verb = Literal["halt", "deny", "block", "ask", "modify", "allow"]

REFUSALS: Final = ("halt", "deny", "block")  # strongest first
JUDGING: Final = (*REFUSALS, "ask")
CONTEXT: Final = "add_context"
VERBS: Final = (*JUDGING, "modify", CONTEXT)
KEYS: Final = {  # of the set that an evaluate.rego returns
    "halts": "halt", "denials": "deny", "blocks": "block", "asks": "ask", "modifications": "modify",
    "add_context": CONTEXT,
}  # fmt: skip
HIGH: Final = frozenset({"HIGH", "CRITICAL"})
MEDIUM: Final = frozenset({"MEDIUM", "MODERATE"})
USUAL_SEVERITY: Final = "MEDIUM"  # of a modification without one
USUAL_PRIORITY: Final = 50
LARGEST_PRIORITY: Final = 255
FAILED_RULE: Final = "POLICY_ERROR"  # stands for a policy that failed
SIGNAL_RULE: Final = "SIGNAL_FAILED"
EXPLAINED: Final = "`anyplug policy explain` shows how it was decided"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of one rule, and the rule's position."""

    verb: str
    reason: str
    rule_id: str
    severity: str = "HIGH"
    policy: str = ""  # the package
    file: str = ""
    row: int = 0
    updated_input: dict[str, Any] | None = None
    priority: int = USUAL_PRIORITY
    is_failure: bool = False  # the policy did not decide this: it failed
    cure: str = ""  # for a failure: what a person can do about it


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The combined decision: `findings` are those that decided, the first of them first."""

    verb: Verb = "allow"
    reason: str = ""
    context: tuple[str, ...] = ()
    updated_input: dict[str, Any] | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def refuses(self) -> bool:
        """Whether it is a refusal."""
        return self.verb in REFUSALS


ALLOW: Final = Decision()


def read(verb: str, said: Any, policy: str = "", file: str = "", row: int = 0) -> Finding:
    """Parse one object of a verb's set; whatever it is, it counts as that verb."""
    given = said if isinstance(said, dict) else {}
    if verb == "modify":
        return _read_modification(given, policy, file, row)
    reason, rule, severity = given.get("reason"), given.get("rule_id"), given.get("severity")
    if not isinstance(reason, str):
        reason = said if isinstance(said, str) and said else f"{policy or 'a policy'} has no reason for its {verb}"
    return Finding(
        verb=verb,
        reason=reason,
        rule_id=rule if isinstance(rule, str) else policy.upper(),
        severity=severity if isinstance(severity, str) else "HIGH",
        policy=policy,
        file=file,
        row=row,
    )


def is_malformed(verb: str, said: Any) -> str:
    """Return what a decision lacks; empty if nothing."""
    if verb == CONTEXT:
        return "" if isinstance(said, str) else "it is not a string"
    if not isinstance(said, dict):
        return "it is not an object"
    needed = ("reason", "rule_id") if verb == "modify" else ("reason", "severity", "rule_id")
    lacks = [key for key in needed if not isinstance(said.get(key), str)]
    if verb == "modify" and not isinstance(said.get("updated_input"), dict):
        lacks.append("updated_input")
    return f"it has no {' and no '.join(lacks)}" if lacks else ""


def _read_modification(given: dict[str, Any], policy: str, file: str, row: int) -> Finding:
    updated, priority = given.get("updated_input"), given.get("priority", USUAL_PRIORITY)
    reason, rule, severity = given.get("reason"), given.get("rule_id"), given.get("severity")
    rule = rule if isinstance(rule, str) else policy.upper()
    if not isinstance(updated, dict) or not isinstance(reason, str):
        # It is unknown what it wanted to change, so the call must not run unchanged.
        lacks = "reason" if isinstance(updated, dict) else "updated_input"
        wrong = f"{policy or 'a policy'} has a modification without {lacks}"
        return Finding(
            verb="deny",
            reason=wrong,
            rule_id=rule,
            policy=policy,
            file=file,
            row=row,
            is_failure=True,
            cure=EXPLAINED,
        )
    is_number = isinstance(priority, int) and not isinstance(priority, bool)
    return Finding(
        verb="modify",
        reason=reason,
        rule_id=rule,
        severity=severity if isinstance(severity, str) else USUAL_SEVERITY,
        policy=policy,
        file=file,
        row=row,
        updated_input=updated,
        priority=min(max(priority, 0), LARGEST_PRIORITY) if is_number else USUAL_PRIORITY,
    )


def decide(findings: Iterable[Finding], context: Iterable[str] = ()) -> Decision:
    """Combine findings: the strongest verb wins, and the most severe of its findings are reported."""
    by_verb: dict[str, list[Finding]] = {}
    for finding in _once(findings):
        by_verb.setdefault(finding.verb, []).append(finding)
    said = tuple(dict.fromkeys(context))
    for verb in JUDGING:
        if found := by_verb.get(verb):
            reason, reported = _reason(found)
            return Decision(verb=verb, reason=reason, findings=reported)
    if found := by_verb.get("modify"):
        found.sort(key=lambda finding: -finding.priority)
        merged: dict[str, Any] = {}
        for finding in found:
            merged = _under(merged, finding.updated_input or {})
        return Decision(
            verb="modify", reason=_joined_reasons(found), updated_input=merged, context=said, findings=tuple(found)
        )
    return Decision(context=said) if said else ALLOW


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Drop duplicates: a patch of two files violates one rule once."""
    seen: set[tuple[str, str, str]] = set()
    kept: list[Finding] = []
    for finding in findings:
        key = (finding.verb, finding.rule_id, finding.reason)
        if finding.verb == "modify" or key not in seen:
            seen.add(key)
            kept.append(finding)
    return kept


def _reason(found: list[Finding]) -> tuple[str, tuple[Finding, ...]]:
    high = [finding for finding in found if finding.severity.upper() in HIGH]
    medium = [finding for finding in found if finding.severity.upper() in MEDIUM]
    top = high or medium or found
    rest = [finding for finding in found if finding not in top]
    if len(top) == 1:
        reason = top[0].reason
    elif high:
        reason = f"Multiple high-severity policy violations detected: {_listed(top)}"
    elif medium:
        reason = f"Multiple policy violations detected: {_listed(top)}"
    else:
        reason = f"Policy guidelines: {'; '.join(finding.reason for finding in top)}"
    return reason, (*top, *rest)


def _joined_reasons(found: list[Finding]) -> str:
    return found[0].reason if len(found) == 1 else f"Multiple modifications applied: {_listed(found)}"


def _listed(found: list[Finding]) -> str:
    return "; ".join(f"[{finding.rule_id}] {finding.reason}" for finding in found)


def _under(upper: dict[str, Any], lower: dict[str, Any]) -> dict[str, Any]:
    """Merge objects, in depth; on conflict the upper one wins."""
    made = dict(lower)
    for key, value in upper.items():
        below = lower.get(key)
        made[key] = _under(value, below) if isinstance(value, dict) and isinstance(below, dict) else value
    return made


def applied(updates: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with a modification applied."""
    return _under(updates, arguments)
